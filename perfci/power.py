"""How small a slow-down a duel would have found, from the spread of its blocks: by simulation with a fixed seed."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfci import looks, stats
from perfci.looks import Answer, Look
from perfci.model import Interval

POWER = 0.95
DRAWS = 200
STEPS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0)
"""Slow-downs tried, in multiples of tau."""


@dataclass(frozen=True)
class Noise:
    """What a case's blocks say about the measurement."""

    blocks: int
    spread: float
    """standard deviation of d over blocks, log scale"""
    smallest: float | None
    """least slow-down, ratio - 1, that a duel finds with a power of 95 %; None beyond 12 tau"""


def noise(shifts: Sequence[float], tau: float, alpha: float, family: int) -> Noise:
    """The noise of a case that is unchanged, or nearly so.

    shifts: d of at least two blocks, log scale; tau: allowed slow-down, ratio - 1; alpha: of the family of duels.
    Whole duels, with all their looks, are drawn from the residuals of the blocks at hand; the median of d is taken out.
    Raises ValueError for fewer blocks.
    """
    if len(shifts) < 2:
        raise ValueError("a spread takes two blocks at least")
    residuals = np.asarray(shifts) - statistics.median(shifts)
    size = (DRAWS, looks.PROCESSES, looks.BLOCKS)
    duels = _Duels(np.random.default_rng(0).choice(residuals, size), math.log1p(tau), alpha, max(family, 1))
    # The same draws at every step, so that power only ever grows with the effect.
    at = bisect.bisect_left(STEPS, POWER, key=lambda step: duels.power(step * duels.tau))
    smallest = math.expm1(STEPS[at] * duels.tau) if at < len(STEPS) else None
    return Noise(len(shifts), float(residuals.std(ddof=1)), smallest)


@dataclass(frozen=True)
class _Duels:
    """Many duels of one unchanged case."""

    d: NDArray[Any]
    """(duels, processes, blocks of a process), log scale"""
    tau: float
    """log scale"""
    alpha: float
    family: int

    def power(self, effect: float) -> float:
        """Share of the duels that end in a slow-down if the kernel is slower by this, log scale."""
        open_, found = np.ones(len(self.d), dtype=bool), 0
        for answers in self._looks(self.d + effect):
            slower = np.array([answer is Answer.SLOWER for answer in answers])
            found += int(np.count_nonzero(open_ & slower))
            open_ &= np.array([answer is Answer.OPEN for answer in answers])
        return found / len(self.d)

    def _looks(self, d: NDArray[Any]) -> Iterator[list[Answer]]:
        """The answers of all duels, look by look."""
        for blocks in (looks.FIRST, looks.SECOND):
            yield self._answers(d[:, :1, :blocks])
        for processes in looks.FINAL:
            yield self._answers(d[:, :processes])

    def _answers(self, d: NDArray[Any]) -> list[Answer]:
        """What `looks` says to each duel so far; the p values count for the worst place in the family."""
        flat = d.reshape(len(d), -1)
        medians, centres = np.median(d, axis=2), _centres(flat)
        tested = d.shape[1] >= min(looks.FINAL)
        p = np.minimum(_signed_rank_p(flat - self.tau) * self.family, 1.0) if tested else np.ones(len(d))
        return [
            looks.answer(_seen(flat.shape[1], mine, centre, self.tau), own, 1.0, self.alpha)
            for mine, centre, own in zip(medians.tolist(), centres.tolist(), p.tolist(), strict=True)
        ]


def _seen(blocks: int, medians: Sequence[float], centre: float, tau: float) -> Look:
    return Look(blocks, len(medians), Interval(centre, centre, centre), 1.0, 1.0, tuple(medians), tau)


def _centres(d: NDArray[Any]) -> NDArray[Any]:
    """Hodges-Lehmann centre of each row, as in `stats.location`."""
    first, second = np.triu_indices(d.shape[1])
    centres: NDArray[Any] = np.median((d[:, first] + d[:, second]) / 2, axis=1)
    return centres


def _signed_rank_p(excess: NDArray[Any]) -> NDArray[Any]:
    """The p of each row, as in `stats.signed_rank_p`: among equal sizes the positive ones take the lower ranks."""
    order = np.lexsort((excess <= 0, np.abs(excess)), axis=1)
    positive = np.take_along_axis(excess > 0, order, axis=1)
    ranks = 1 + np.arange(excess.shape[1])
    tail: NDArray[Any] = stats.signed_rank_tail(excess.shape[1])
    p: NDArray[Any] = tail[(positive * ranks).sum(axis=1)]
    return p
