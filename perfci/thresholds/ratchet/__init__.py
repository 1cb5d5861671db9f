"""Thresholds that tighten themselves: what the history of accepted runs has earned, and only that. Pure.

    changes = ratchet.propose(history, limits, "softmax", family=30)

tau comes from the A/A duels of this environment (`ratchet.noise`, `ratchet.tau`), every other threshold from a bound
for the next accepted run (`ratchet.prediction`, `ratchet.figures`). Both go a quarter of the way at a time, never
back, and never beyond what keeps the predicted rate of false alarms. docs/how-thresholds-tighten.md says how often
that errs; benchmarks/ratchet.py makes its tables.
"""

from perfci.thresholds.ratchet.figures import CHANCE, KEYS, Key
from perfci.thresholds.ratchet.noise import NULLS, Noise, Scale
from perfci.thresholds.ratchet.prediction import RUNS
from perfci.thresholds.ratchet.steps import Change, anew, noise_of, predicted, propose, rescaled
from perfci.thresholds.ratchet.tau import FLOOR, RATE, Predicted

__all__ = [
    "CHANCE",
    "FLOOR",
    "KEYS",
    "NULLS",
    "RATE",
    "RUNS",
    "Change",
    "Key",
    "Noise",
    "Predicted",
    "Scale",
    "anew",
    "noise_of",
    "predicted",
    "propose",
    "rescaled",
]
