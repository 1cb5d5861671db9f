"""How fast a device copies at best: it is a ceiling, so that the best of several pairs of buffers counts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from time import perf_counter

PAIRS = 4
"""Pairs of buffers, each in a place of its own: on an H200 later ones may copy 10 % slower than a process's first."""

COPIES = 5
"""Timed copies of a pair, after an untimed one."""

LIMIT_S = 0.03
"""After so long no further pair is begun: slow memory is told by fewer."""


def fastest_s(pairs: Iterable[Callable[[], float]], clock: Callable[[], float] = perf_counter) -> float:
    """Seconds of a copy between the best of several pairs of buffers, at least one.

    Each pair is a function that copies once and gives the seconds. A pair counts with its median, so that no single
    lucky reading sets the ceiling; of the medians the least counts, since buffers can only be in the way. Raises
    ValueError without a pair.
    """
    began, medians = clock(), list[float]()
    for copied_s in pairs:
        copied_s()
        medians.append(statistics.median(copied_s() for _ in range(COPIES)))
        if clock() - began >= LIMIT_S:
            break
    return min(medians)
