"""How far a duel strays from the truth: what its processes' blocks show, pooled over many duels.

A shift, log scale, positive if the kernel is slower, is the mean of its processes' medians.
"""

import math
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from perfci.core.model import Interval
from perfci.statistics.exact import CONFIDENCE, compute_student_tail, find_student_quantile

BIAS = 0.002
"""Least standard deviation of processes, log. Of 401 processes of unchanged kernels none strayed by more than 0.75 %,
so by the rule of three at most 3 in 401 do. That is the tail of t(3) for a scale of 0.116 %, times sqrt(3)."""


@dataclass(frozen=True)
class Shown:
    """A duel's shifts."""

    processes: tuple[tuple[float, ...], ...]
    """d of each process's blocks, log scale. Empty if the two do the same work"""

    @property
    def shift(self) -> float:
        """The mean of the processes' medians, log scale."""
        return statistics.fmean(map(statistics.median, self.processes)) if self.processes else 0.0

    @property
    def blocks(self) -> int:
        """Over all processes."""
        return sum(map(len, self.processes))


SAME = Shown(())  # the two do the same work, which needs no timing


@dataclass(frozen=True)
class Stray:
    """How far a duel strays, log scale."""

    block: float  # standard deviation of a process's blocks
    process: float = BIAS  # standard deviation of processes

    def deviation(self, seen: Shown) -> float:
        """Standard deviation of the error of a duel's shift."""
        count = len(seen.processes)
        if not count:
            return 0.0
        blocks = sum(1 / len(process) for process in seen.processes) / count**2
        return math.sqrt(self.process**2 / count + self.block**2 * math.pi / 2 * blocks)

    def interval(self, seen: Shown, confidence: float = CONFIDENCE) -> Interval:
        """A duel's shift with its interval, log scale, by the quantiles of `find_tail`."""
        share = 0.5 + confidence / 2
        reach = max(NormalDist().inv_cdf(share), find_student_quantile(share, 3) / math.sqrt(3)) * self.deviation(seen)
        return Interval(seen.shift, seen.shift - reach, seen.shift + reach, confidence)

    def chance(self, distance: float, *duels: Shown) -> float:
        """That the shifts of these duels together stray by more than this to one side."""
        deviation = math.hypot(*map(self.deviation, duels))
        return find_tail(distance / deviation) if deviation else 0.0


def estimate_noise(duels: Collection[Shown]) -> Stray:
    """The noise that these duels show, pooled over all of them; rather too much if they are few."""

    def pool(groups: Sequence[Sequence[float]], centre: Callable[[Sequence[float]], float]) -> float:
        """Standard deviation within groups, each around its centre; widened if there are few of them."""
        free = sum(len(group) - 1 for group in groups if group)
        middles = [(group, centre(group)) for group in groups if group]
        squares = math.fsum((value - middle) ** 2 for group, middle in middles for value in group)
        return math.sqrt(squares / free) * (1 + 1 / free) if free else 0.0

    blocks = [process for seen in duels for process in seen.processes]
    medians = [[statistics.median(process) for process in seen.processes] for seen in duels]
    return Stray(pool(blocks, statistics.median), max(BIAS, pool(medians, statistics.fmean)))


def find_tail(deviations: float) -> float:
    """Chance of an error above so many standard deviations, by t(3) or the normal distribution: the larger one.

    t(3) has a variance of 3.

    >>> round(find_tail(0.0), 6), round(find_tail(1.959964), 6), round(find_tail(3.371998), 6)
    (0.5, 0.025, 0.005001)
    """
    return max(math.erfc(deviations / math.sqrt(2)) / 2, float(compute_student_tail(math.sqrt(3) * deviations, 3)))
