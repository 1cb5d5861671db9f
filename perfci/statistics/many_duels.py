"""The rule of `perfci.statistics.duel_rule` for many duels at once, and what it does to an unchanged kernel.

The signed-rank statistic of d > tau is the number of averages of two blocks (Walsh averages, each block with itself
too) that exceed tau. So the test is turned round: of each duel the largest tau is kept with which it would still be
slower beyond doubt. All that is kept moves with a planted slow-down and grows with the noise, and any tau is then
answered by comparisons alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfci.statistics import duel_rule, exact
from perfci.statistics.duel_rule import Flags
from perfci.statistics.exact import Floats

_ROWS = 1000
"""Duels at a time: 48 blocks have 1,176 averages."""


@dataclass(frozen=True)
class Tested:
    """A look that may decide: of each duel (n,), log scale."""

    centre: Floats
    above: Floats
    """the least tau that it is not slower than, beyond doubt"""
    below: Floats
    """the same of faster: negative where that could be said"""


@dataclass(frozen=True)
class Duels:
    """What the rule reads of n duels, log scale."""

    first: Floats
    """(n,): median of the first blocks"""
    second: Floats
    """(n,): Hodges-Lehmann centre of the first process"""
    medians: Floats
    """(n, processes)"""
    tested: Mapping[int, Tested]
    """processes -> the look"""

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class Ends:
    """How n duels ended. Each flag is (n,)."""

    slower: Flags
    faster: Flags
    undecided: Flags
    blocks: NDArray[np.int64]
    """that it took"""

    @property
    def alarms(self) -> Flags:
        """Of an unchanged kernel: both directions."""
        return self.slower | self.faster


def reading(d: Floats, family: int, alpha: float) -> Duels:
    """d: (n, processes, blocks of a process), log scale; alpha: of the family; p counts for the worst place in it."""
    parts = [_reading(d[start : start + _ROWS], family, alpha) for start in range(0, len(d), _ROWS)]
    tested = {}
    for count in duel_rule.FINAL:
        looks = [part.tested[count] for part in parts]
        columns = ([look.centre for look in looks], [look.above for look in looks], [look.below for look in looks])
        tested[count] = Tested(*map(np.concatenate, columns))
    return Duels(
        first=np.concatenate([part.first for part in parts]),
        second=np.concatenate([part.second for part in parts]),
        medians=np.concatenate([part.medians for part in parts]),
        tested=tested,
    )


def ends(duels: Duels, tau: float, effect: float = 0.0, bias: float = duel_rule.BIAS) -> Ends:
    """How every duel ends. tau: allowed slow-down, effect: planted, both log scale or in its unit, like bias."""
    undecided = np.abs(duels.first + effect) > duel_rule.CLEAR_FIRST * tau
    blocks = np.where(undecided, duel_rule.SECOND, duel_rule.FIRST)
    undecided = undecided & (np.abs(duels.second + effect) > duel_rule.CLEAR_SECOND * tau)
    slower, faster = np.zeros_like(undecided), np.zeros_like(undecided)
    for count, total in duel_rule.FINAL.items():
        blocks = np.where(undecided, total, blocks)
        seen, medians = duels.tested[count], duels.medians[:, :count] + effect
        up = undecided & (seen.above + effect > tau) & duel_rule.agree(medians, tau, bias=bias)
        down = undecided & (seen.below + effect < -tau) & duel_rule.agree(-medians, tau, bias=bias) & ~up
        slower, faster = slower | up, faster | down
        undecided = undecided & ~up & ~down & (np.abs(seen.centre + effect) > tau)
    return Ends(slower, faster, undecided, blocks)


def _reading(d: Floats, family: int, alpha: float) -> Duels:
    tested = {count: _tested(d[:, :count].reshape(len(d), -1), family, alpha) for count in duel_rule.FINAL}
    second = _middle(_averages(d[:, 0, : duel_rule.SECOND]))
    return Duels(np.median(d[:, 0, : duel_rule.FIRST], axis=1), second, np.median(d, axis=2), tested)


def _tested(flat: Floats, family: int, alpha: float) -> Tested:
    averages, many = _averages(flat), needed(flat.shape[1], family, alpha)
    if many is None:
        never = np.full(len(flat), math.inf)
        return Tested(_middle(averages), -never, never)
    count = averages.shape[1]
    middles = [(count - 1) // 2, count // 2]
    averages.partition(sorted({*middles, many - 1, count - many}), axis=1)
    return Tested(averages[:, middles].mean(axis=1), averages[:, count - many], averages[:, many - 1])


def needed(blocks: int, family: int, alpha: float) -> int | None:
    """Averages of two blocks that must exceed tau for a verdict. None if not even all of them would do."""
    enough = np.flatnonzero(exact.signed_rank_tail(blocks) * max(family, 1) <= alpha / duel_rule.TESTS)
    return int(enough[0]) if enough.size else None


def _averages(flat: Floats) -> Floats:
    first, second = exact.walsh_pairs(flat.shape[1])
    averages: Floats = (flat[:, first] + flat[:, second]) / 2
    return averages


def _middle(averages: Floats) -> Floats:
    middle: Floats = np.median(averages, axis=1)
    return middle
