"""Absolute errors in bins that never move, so that histograms of any two runs can be held against each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfci.core.model import ErrorHistogram

Host = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]

LOWEST, HIGHEST, A_DECADE = -8, 4, 8

EDGES: tuple[float, ...] = tuple(
    10.0 ** (LOWEST + step / A_DECADE) for step in range((HIGHEST - LOWEST) * A_DECADE + 1)
)
"""From 1e-8 to 1e4, eight a decade: each 10^(1/8) = 1.33 times the one before."""

BINS = len(EDGES) + 1
"""One below the lowest edge, which exact zeros fall into too, and one from the highest on."""

SMOOTHING = 0.5
"""Added to every bin's count before two histograms are compared, so that no bin is impossible (Jeffreys' prior)."""


def histogram(errors: Host) -> ErrorHistogram:
    """How many of the absolute errors, all finite, lie in each bin: from one edge on, to below the next."""
    counts = np.bincount(np.searchsorted(EDGES, errors.ravel(), side="right"), minlength=BINS)
    filled = np.flatnonzero(counts)
    if not filled.size:
        return ErrorHistogram(0)
    first, last = int(filled[0]), int(filled[-1])
    return ErrorHistogram(first, tuple(int(count) for count in counts[first : last + 1]))


def dense(found: ErrorHistogram) -> Floats:
    """The counts of all bins; what a file says beyond the last one counts there."""
    counts = np.zeros(BINS)
    for place, count in enumerate(found.counts, start=found.start):
        counts[min(place, BINS - 1)] += count
    return counts


def divergence(found: ErrorHistogram, accepted: ErrorHistogram) -> float:
    """Kullback-Leibler divergence of the found histogram from the accepted one, nats: sum of p ln(p / q).

    p and q are the shares of the bins after SMOOTHING of a count was added to each; 0 where both are the same. Empty
    histograms say nothing, and are 0 from any other.
    """
    counts = dense(found), dense(accepted)
    if not all(each.sum() for each in counts):
        return 0.0
    p, q = ((each + SMOOTHING) / (each.sum() + SMOOTHING * BINS) for each in counts)
    return max(float((p * np.log(p / q)).sum()), 0.0)
