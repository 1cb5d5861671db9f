"""The rule of `perfci.statistics.duel_rule` for many duels at once, and what it does to an unchanged kernel.

The signed-rank statistic of d > tau counts the Walsh averages above tau. So of each duel the largest tau is kept with
which it would still be slower. That moves with a planted slow-down, and any tau is answered by comparisons alone.
"""

import bisect
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfci.statistics import duel_rule, exact
from perfci.statistics.duel_rule import Flags
from perfci.statistics.exact import Floats

_ROWS = 1000  # duels at a time: 48 blocks have 1,176 averages

POWER = 0.95
DRAWS = 200
STEPS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0)  # slow-downs tried, in multiples of tau


@dataclass(frozen=True)
class Cleared:
    """A look that may clear: of each duel (n,), log scale."""

    centre: Floats
    reach: Floats


@dataclass(frozen=True)
class Tested(Cleared):
    """A look that may decide too."""

    above: Floats  # the least tau that it is not slower than, beyond doubt
    below: Floats  # the same of faster: negative if it was faster


@dataclass(frozen=True)
class Duels:
    """Figures of n duels for the rule, log scale."""

    early: Mapping[int, Cleared]  # blocks of the first process -> the look
    medians: Floats  # (n, processes)
    tested: Mapping[int, Tested]  # processes -> the look

    def __len__(self) -> int:
        return len(self.medians)


@dataclass(frozen=True)
class Ends:
    """How n duels ended. Each flag is (n,)."""

    slower: Flags
    faster: Flags
    undecided: Flags
    blocks: NDArray[np.int64]  # that it took

    @property
    def alarms(self) -> Flags:
        """Of an unchanged kernel: both directions."""
        return self.slower | self.faster


def reading(d: Floats, family: int, alpha: float) -> Duels:
    """d: (n, processes, blocks of a process), log scale. alpha: of the family. p counts for the worst place in it."""
    parts = [d[start : start + _ROWS] for start in range(0, len(d), _ROWS)]

    def join(looks: Iterable[tuple[Floats, ...]]) -> Iterator[Floats]:
        return map(np.concatenate, zip(*looks, strict=True))

    early = {count: Cleared(*join(_sum_up(part[:, :1, :count]) for part in parts)) for count in duel_rule.EARLY}
    tested = {
        count: Tested(*join(_test(part[:, :count], family, alpha) for part in parts)) for count in duel_rule.FINAL
    }
    return Duels(early, np.median(d, axis=2), tested)


def ends(duels: Duels, tau: float, effect: float = 0.0, bias: float = duel_rule.BIAS) -> Ends:
    """How every duel ends. tau: allowed slow-down, effect: planted, both log scale or in its unit, like bias."""
    undecided, blocks = np.ones(len(duels), dtype=bool), np.zeros(len(duels), dtype=np.int64)

    def clears(seen: Cleared, share: float) -> Flags:
        centre = np.abs(seen.centre + effect)
        return (centre <= share * tau) & (centre + seen.reach < duel_rule.PROMISE * tau)

    for count, share in duel_rule.EARLY.items():
        blocks = np.where(undecided, count, blocks)
        undecided = undecided & ~clears(duels.early[count], share)
    slower, faster = np.zeros_like(undecided), np.zeros_like(undecided)
    for count, total in duel_rule.FINAL.items():
        blocks = np.where(undecided, total, blocks)
        seen, medians = duels.tested[count], duels.medians[:, :count] + effect
        up = undecided & (seen.above + effect > tau) & duel_rule.agree(medians, tau, bias=bias)
        down = undecided & (seen.below + effect < -tau) & duel_rule.agree(-medians, tau, bias=bias) & ~up
        slower, faster = slower | up, faster | down
        undecided = undecided & ~up & ~down & ~clears(seen, 1.0)
    return Ends(slower, faster, undecided, blocks)


def _sum_up(d: Floats) -> tuple[Floats, Floats]:
    """Centre and reach of one look at each of the duels. d: (n, processes, blocks)."""
    flat = d.reshape(len(d), -1)
    reach = exact.mean_reach(flat, duel_rule.SURE)
    if d.shape[1] > min(duel_rule.FINAL):
        reach = np.maximum(reach, exact.mean_reach(np.median(d, axis=2), duel_rule.SURE_OF_PROCESSES))
    return np.median(_averages(flat), axis=1), reach


def _test(d: Floats, family: int, alpha: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Centre, reach, above and below of one look at each of the duels."""
    flat = d.reshape(len(d), -1)
    averages, many = _averages(flat), needed(flat.shape[1], family, alpha)
    if many is None:
        never = np.full(len(flat), math.inf)
        return *_sum_up(d), -never, never
    count = averages.shape[1]
    averages.partition(sorted({many - 1, count - many}), axis=1)
    return *_sum_up(d), averages[:, count - many], averages[:, many - 1]


def needed(blocks: int, family: int, alpha: float) -> int | None:
    """Averages of two blocks that must exceed tau for a verdict. None if not even all of them would do."""
    enough = np.flatnonzero(exact.signed_rank_tail(blocks) * max(family, 1) <= alpha / duel_rule.TESTS)
    return int(enough[0]) if enough.size else None


def _averages(flat: Floats) -> Floats:
    first, second = exact.walsh_pairs(flat.shape[1])
    averages: Floats = (flat[:, first] + flat[:, second]) / 2
    return averages


@dataclass(frozen=True)
class Noise:
    """The noise of a measurement, from a case's blocks."""

    blocks: int
    spread: float  # standard deviation of d over blocks, log scale
    smallest: float | None  # least slow-down, ratio - 1, that a duel finds with a power of 95 %. None beyond 12 tau


def noise(shifts: Sequence[float], tau: float, alpha: float, family: int) -> Noise:
    """The noise of a case that is unchanged, or nearly so, by duels drawn from residuals with a fixed seed.

    shifts: d of blocks, log. tau: ratio - 1. alpha: of the family. Raises ValueError for fewer than two blocks.
    """
    if len(shifts) < 2:
        raise ValueError("a spread takes two blocks at least")
    residuals, allowed = np.asarray(shifts) - statistics.median(shifts), math.log1p(tau)
    size = (DRAWS, duel_rule.PROCESSES, duel_rule.BLOCKS)
    duels = reading(np.random.default_rng(0).choice(residuals, size), family, alpha)
    # The same draws at every step, so that power only ever grows with the effect.
    at = bisect.bisect_left(STEPS, POWER, key=lambda step: float(ends(duels, allowed, step * allowed).slower.mean()))
    smallest = math.expm1(STEPS[at] * allowed) if at < len(STEPS) else None
    return Noise(len(shifts), float(residuals.std(ddof=1)), smallest)
