"""Slow drift: what no single merge request shows, from the accepted runs since the last release. Pure.

The median of the last 5 accepted runs is held against that of 10 runs about the last release, which stay where they
are: whatever the gate lets pass bit by bit, it adds up here. docs/how-thresholds-tighten.md says what this sees and how
rarely it errs.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfci.environment import mixed
from perfci.model import HistoryCase, HistoryRun

ANCHOR, RECENT = 10, 5
"""Accepted runs about the last release, and the last ones that are held against them."""

RATE = 0.001
"""False alarms a case and accepted run, at most."""

LEAST = 0.0025
"""A change, ratio, that is never told, however quiet the runs: the least that any duel is asked to see."""

BOARD = 0.004
"""Standard deviation, log scale, that a kernel's time has between boards of a model, but for products of matrices."""

KERNEL, SPEEDUP = "kernel_us", "speedup"

_DOF, _DRAWS = 4, 100_000
_LENGTHS = (15, 20, 30, 50, 100)


@dataclass(frozen=True)
class Creep:
    """The last runs of a case against those about the last release."""

    case: str
    figure: str
    """kernel_us or speedup: the steadier of the two"""
    change: float
    """ratio - 1; plus is slower"""
    threshold: float
    """change beyond which it is told"""
    spread: float
    """standard deviation of a run, log scale"""
    anchor: tuple[str, ...]
    """ids of the runs about the last release"""
    recent: tuple[str, ...]
    """ids of the last runs"""

    @property
    def found(self) -> bool:
        """Whether the case has become slower, bit by bit or at once."""
        return self.change > self.threshold


def same_environment(history: Sequence[HistoryRun]) -> tuple[HistoryRun, ...]:
    """The runs of the newest one's environment, boards aside: a new driver, torch or Triton starts anew."""
    return tuple(run for run in history if not mixed(run.environment, history[-1].environment))


def of_epoch(history: Sequence[HistoryRun], case: str) -> tuple[HistoryRun, ...]:
    """The runs from the last one on that began an epoch of the case; all where none did."""
    starts = [at for at, run in enumerate(history) if run.epoch and case in run.epoch.cases]
    return tuple(history[starts[-1] :]) if starts else tuple(history)


def creep(history: Sequence[HistoryRun], case: str, released: str | None = None) -> Creep | None:
    """Whether a case of the newest run's environment and epoch has crept; history: accepted runs in their order.

    released: id of the run of the last release; the 10 runs about it are the anchor, the first 10 without one or where
    it is not among them. None where the anchor and the last 5 runs would overlap, or the newest run lacks the case.
    """
    known = [(run, found) for run in of_epoch(same_environment(history), case) if (found := _case(run, case))]
    if not known or known[-1][0] is not history[-1]:
        return None
    known = [(run, found) for run, found in known if found.cache == known[-1][1].cache]
    start = _start([run.run for run, _ in known], released)
    if start + ANCHOR + RECENT > len(known):
        return None
    known = known[start:]
    figure, values = min(_figures([found for _, found in known]).items(), key=lambda item: spread(item[1]))
    runs = [run for run, _ in known]
    threshold = math.hypot(factor(len(values)) * spread(values), _apart(runs))
    return Creep(
        case,
        figure,
        math.expm1(shift(values)),
        max(LEAST, math.expm1(threshold)),
        spread(values),
        tuple(run.run for run in runs[:ANCHOR]),
        tuple(run.run for run in runs[-RECENT:]),
    )


def shift(values: Sequence[float]) -> float:
    """Median of the last 5 values less that of the first 10."""
    return statistics.median(values[-RECENT:]) - statistics.median(values[:ANCHOR])


def spread(values: Sequence[float]) -> float:
    """Standard deviation of one run: from neighbours, whose differences no slow creep moves, or the anchor's own.

    The larger of the two, each from mean absolute deviations and scaled for normal values: runs that follow each other
    have small differences and wander all the same.
    """
    steps = statistics.fmean(abs(after - before) for before, after in itertools.pairwise(values))
    centre = statistics.median(values[:ANCHOR])
    about = statistics.fmean(abs(value - centre) for value in values[:ANCHOR])
    return max(steps / math.sqrt(2), about) * math.sqrt(math.pi / 2)


@functools.cache
def factor(count: int) -> float:
    """Spreads that the shift of so many runs exceeds in a quarter of RATE.

    Half would do for taking the steadier of two figures; the rest is for boards and for runs that follow each other.

    Simulated with tails of 4 degrees of freedom; counts between the simulated ones take the smaller one's.
    """
    length = max(each for each in _LENGTHS if each <= count)
    return _factor(length)


@functools.cache
def _factor(length: int) -> float:
    values = np.random.default_rng((4, length)).standard_t(_DOF, (_DRAWS, length))
    anchor = values[:, :ANCHOR]
    centres = np.median(anchor, axis=1)
    steps = np.abs(np.diff(values, axis=1)).mean(axis=1) / math.sqrt(2)
    spreads = np.maximum(steps, np.abs(anchor - centres[:, None]).mean(axis=1)) * math.sqrt(math.pi / 2)
    away = (np.median(values[:, -RECENT:], axis=1) - centres) / spreads
    return float(np.quantile(away, 1 - RATE / 4))


def _start(runs: Sequence[str], released: str | None) -> int:
    """Where the anchor begins: half of its runs before the release, as far as there are any."""
    return max(runs.index(released) - ANCHOR // 2, 0) if released in runs else 0


def _figures(known: Sequence[HistoryCase]) -> Mapping[str, Sequence[float]]:
    """Log scale, more is slower."""
    found = {KERNEL: [math.log(case.kernel_us.median_us) for case in known]}
    shifts = [case.shift for case in known if case.shift is not None]
    return {**found, SPEEDUP: shifts} if len(shifts) == len(known) else found


def _apart(runs: Sequence[HistoryRun]) -> float:
    """What other boards may do, where the last runs share none with the anchor."""
    before, after = ({run.environment.device.uuid for run in part} for part in (runs[:ANCHOR], runs[-RECENT:]))
    return 0.0 if before & after else statistics.NormalDist().inv_cdf(1 - RATE) * BOARD


def _case(run: HistoryRun, case: str) -> HistoryCase | None:
    found = next((each for each in run.cases if each.case == case), None)
    return None if case in run.inconclusive else found
