"""Leaks and decay, judged from series of readings; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfci.core.model import Interval
from perfci.statistics import exact

WINDOWS = 20
"""Readings over all calls, where there are enough calls."""

LEAST_WINDOWS = 8
"""With fewer a trend cannot be beyond doubt, nor told from a cache that fills."""

LEAST_LAUNCHES = 5
"""Timed calls of a window at least: its median then shrugs off a spike."""

P_LIMIT = 0.01
"""A rise counts where chance alone would show one as clear in fewer cases than this."""


def windows(calls: int, least: int = 1) -> list[int]:
    """How many calls each window has, all nearly alike; none where there are too few for LEAST_WINDOWS.

    >>> windows(1000)[:2], len(windows(1000)), windows(41, least=5), windows(30, least=5)
    ([50, 50], 20, [6, 5, 5, 5, 5, 5, 5, 5], [])
    """
    count = min(WINDOWS, calls // least)
    if count < LEAST_WINDOWS:
        return []
    return [calls // count + (index < calls % count) for index in range(count)]


def leak(held: Sequence[float]) -> float | None:
    """Bytes a window that do not come back, by Theil and Sen's slope; None where memory does not go on growing.

    held: bytes at evenly spaced readings. The first quarter is for caches to fill. Memory goes on growing where the
    least reading of each of the last three quarters lies above that of the one before, the last reading above the last
    one of the third quarter (a cache that is full by then stands still), and the rise is beyond chance (Mann-Kendall).
    """
    size = len(held)
    quarters = [held[size * k // 4 : size * (k + 1) // 4] for k in (1, 2, 3)]
    if min(len(quarter) for quarter in quarters) < 2:
        return None
    second, third, last = (min(quarter) for quarter in quarters)
    if not (second < third < last and held[-1] > quarters[1][-1]):
        return None
    late = held[size // 4 :]
    return exact.trend(late).value if exact.trend_p(late) < P_LIMIT else None


@dataclass(frozen=True)
class Decay:
    """How the time of a call changed over all windows; ratios - 1, positive is slower."""

    change: Interval
    p: float
    """Mann-Kendall, one-sided: chance that a series without a trend rises as clearly"""
    clock: float | None = None
    """how the SM clock changed over the same time; None where it is not told"""
    left: float | None = None
    """what of the change is left where the clock is taken out: the change in clock cycles"""

    def beyond(self, limit: float) -> bool:
        """Whether calls became slower by more than the limit beyond doubt."""
        return self.change.low > limit and self.p < P_LIMIT

    def explained(self, limit: float) -> bool:
        """Whether the change in clock cycles is within the limit."""
        return self.left is not None and self.left <= limit


def decay(medians_us: Sequence[float], clocks_mhz: Sequence[float | None]) -> Decay:
    """Theil and Sen's slope of the windows' log medians, over all of them, beside what the clock did.

    medians_us: of each window's calls, above 0. clocks_mhz: SM clock in each window. Cycles are time times
    clock: a kernel whose time follows the clock alone keeps its cycles.
    """
    times = np.log(np.asarray(medians_us, dtype=np.float64))
    steps = times.size - 1
    slope = exact.trend(times)
    low, value, high = (math.expm1(each * steps) for each in (slope.low, slope.value, slope.high))
    change, p = Interval(value, low, high, slope.confidence), exact.trend_p(times)
    known = [clock for clock in clocks_mhz if clock]
    if len(known) < times.size:
        return Decay(change, p)
    clocks = np.log(np.asarray(known, dtype=np.float64))
    fall, cycles = (math.expm1(exact.trend(each).value * steps) for each in (clocks, times + clocks))
    return Decay(change, p, fall, cycles)
