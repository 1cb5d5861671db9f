"""How small a slow-down a duel would have found, from the spread of its blocks: by simulation with a fixed seed."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfci.statistics import duel_rule, many_duels

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
    Whole duels, with all their looks, are drawn from the residuals of the blocks at hand. The median of d is taken out.
    Raises ValueError for fewer blocks.
    """
    if len(shifts) < 2:
        raise ValueError("a spread takes two blocks at least")
    residuals = np.asarray(shifts) - statistics.median(shifts)
    size = (DRAWS, duel_rule.PROCESSES, duel_rule.BLOCKS)
    duels = many_duels.reading(np.random.default_rng(0).choice(residuals, size), family, alpha)
    allowed = math.log1p(tau)
    # The same draws at every step, so that power only ever grows with the effect.
    at = bisect.bisect_left(STEPS, POWER, key=lambda step: _found(duels, allowed, step * allowed))
    smallest = math.expm1(STEPS[at] * allowed) if at < len(STEPS) else None
    return Noise(len(shifts), float(residuals.std(ddof=1)), smallest)


def _found(duels: many_duels.Duels, allowed: float, effect: float) -> float:
    """Share of the duels that end in a slow-down if the kernel is slower by this, log scale."""
    return float(many_duels.ends(duels, allowed, effect).slower.mean())
