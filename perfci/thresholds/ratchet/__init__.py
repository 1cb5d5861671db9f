"""Thresholds that tighten themselves: what the history of accepted runs has earned, and only that. Pure.

    changes = ratchet.propose(history, limits, "softmax", family=30)

tau comes from the A/A duels of this environment (`ratchet.noise`), every other threshold from a bound
for the next accepted run (`ratchet.prediction`, `ratchet.figures`). Both go a quarter of the way at a time, never
back, and never beyond what keeps the predicted rate of false alarms. docs/how-thresholds-tighten.md has how often
that errs; benchmarks/ratchet.py makes its tables.
"""
