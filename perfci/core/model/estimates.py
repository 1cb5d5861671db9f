"""Estimates with their intervals, and where a duel stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its confidence interval."""

    value: float
    low: float
    high: float
    confidence: float = 0.95


@dataclass(frozen=True)
class Look:
    """One case's duel as it stands: d is the shift of kernel against base in one block, log scale, plus is slower."""

    blocks: int
    processes: int
    shift: Interval
    """Hodges-Lehmann centre of d with its interval, log scale"""
    p_slower: float
    """exact signed-rank test of d > tau. 1 before the looks that may decide"""
    p_faster: float
    """of d < -tau"""
    medians: tuple[float, ...]
    """of d, one a process"""
    sizes: tuple[int, ...]
    """blocks, one a process"""
    tau: float
    """allowed slow-down, log scale"""
    p_differs: float = 1.0
    """of |d| >= tau, the larger of two one-sided tests: small where kernel and base are as good as equal"""
