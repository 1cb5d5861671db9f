"""A stored tensor compared with accepted runs and with its limits: what went wrong, and how to store it better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from perfci.core.model import AcceptedStorage, ErrorHistogram, HistoryRun, StoredTensor
from perfci.measure.lowprec.storage import BINS, FORMATS

KEPT = 30
"""Accepted runs whose figures a run takes along: the report's trends show so many."""

SMOOTHING = 0.5
"""Added to every bin's count before two histograms are compared, so that no bin is impossible (Jeffreys' prior)."""

FIGURES = ("stored_p99", "clip_ratio", "divergence")
"""Thresholds of a stored tensor."""

# --- accepted runs ----------------------------------------------------------------------------------------------------


def add_history(found: StoredTensor, history: Sequence[HistoryRun]) -> StoredTensor:
    """Returns the tensor with the figures of the accepted runs (oldest first) and its divergence from the newest."""
    known = [(run, each) for run in history for each in run.stored if each.case == found.case]
    last = next((each.histogram for _, each in reversed(known) if each.histogram is not None), None)
    before = tuple(
        AcceptedStorage(
            run=run.run,
            created=run.created,
            mean_abs=each.errors.mean_abs,
            p99_abs=each.errors.p99_abs,
            clip_ratio=each.clip_ratio,
            divergence=each.divergence,
            extreme=each.extreme,
        )
        for run, each in known[-KEPT:]
    )
    return replace(found, divergence=divergence(found.histogram, last) if last else 0.0, before=before, accepted=last)


def dense(found: ErrorHistogram) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns the counts of all bins. Counts beyond the last bin are added to it."""
    counts = np.zeros(BINS)
    for place, count in enumerate(found.counts, start=found.start):
        counts[min(place, BINS - 1)] += count
    return counts


def divergence(found: ErrorHistogram, accepted: ErrorHistogram) -> float:
    """Returns the Kullback-Leibler divergence of the found histogram from the accepted one, nats: sum of p ln(p / q).

    p and q are the shares of the bins after SMOOTHING of a count was added to each. It is 0 if both are the same, or
    if one is empty.
    """
    counts = dense(found), dense(accepted)
    if not all(each.sum() for each in counts):
        return 0.0
    p, q = ((each + SMOOTHING) / (each.sum() + SMOOTHING * BINS) for each in counts)
    return max(float((p * np.log(p / q)).sum()), 0.0)


# --- the likely cause -------------------------------------------------------------------------------------------------

FEW = 0.05
"""Extreme channels are few up to this share of all."""

CLIPS = 0.001
"""From this share of clipped values on, the scale is too small. Below it, a single value may be stray."""

LOSES = 0.01
"""From this share of values stored as 0 on, the scale is too large."""

TAIL = 1.25
"""A drifted tail has at least so many times the accepted 99th percentile."""

STEADY = 0.10
"""Up to this share of the accepted mean error, a change of it counts as steady."""

ROUNDS = 1.01
"""Room for the rounding of the scale itself when an error is compared with half a step."""


class AdviceCause(StrEnum):
    """The likely cause of a figure beyond its limit."""

    CHANNELS = "channels"
    """few channels of extreme scale"""
    SCALE_SMALL = "scale_small"
    """values are clipped"""
    SCALE_LARGE = "scale_large"
    """values are stored as 0"""
    TAIL = "tail"
    """the largest errors grew while the mean is steady"""
    MOVED = "moved"
    """all errors grew"""
    COARSE = "coarse"
    """rounding alone: the format's steps are too wide for values of this size"""
    UNKNOWN = "unknown"


def find_cause(found: StoredTensor) -> AdviceCause:
    """Returns the first cause whose rule holds, in the order of `Cause`. docs/low-precision.md lists the rules."""
    last = found.before[-1] if found.before else None
    errors, form = found.errors, FORMATS.get(found.dtype)
    # How many times the accepted figure; 0 if it is not known or 0.
    mean = errors.mean_abs / last.mean_abs if last and last.mean_abs and errors.mean_abs is not None else 0.0
    p99 = errors.p99_abs / last.p99_abs if last and last.p99_abs and errors.p99_abs is not None else 0.0
    step = form.half_step(found.amax.most, found.scale.most) if form else None
    rules = {
        AdviceCause.CHANNELS: _has_few_extreme(found, last),
        AdviceCause.SCALE_SMALL: found.clip_ratio >= CLIPS,
        AdviceCause.SCALE_LARGE: found.lost_ratio >= LOSES,
        AdviceCause.TAIL: p99 >= TAIL and abs(mean - 1) <= STEADY,
        AdviceCause.MOVED: mean > 1 + STEADY,
        AdviceCause.COARSE: step is not None and errors.p99_abs is not None and errors.p99_abs <= ROUNDS * step,
    }
    return next((cause for cause, holds in rules.items() if holds), AdviceCause.UNKNOWN)


def _has_few_extreme(found: StoredTensor, last: AcceptedStorage | None) -> bool:
    """Few extreme channels, enough to hold all that is clipped, and fewer of them in the accepted run."""
    channels = found.channels
    if channels is None or not channels.count or not channels.extreme:
        return False
    share = channels.extreme / channels.count
    return (last is None or last.extreme < channels.extreme) and found.clip_ratio <= share <= FEW


# --- limits and better ways -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """A figure and the most that is allowed of it."""

    figure: str
    """one of FIGURES"""
    value: float
    limit: float | None

    @property
    def beyond(self) -> bool:
        """Whether it is more than is allowed."""
        return self.limit is not None and self.value > self.limit


@dataclass(frozen=True)
class Advice:
    """What to change a stored tensor to."""

    figure: str
    """the one furthest beyond its limit"""
    to: StoredTensor | None
    """of the ways that keep every limit, the one with the fewest bytes of scales, in the same dtype if there is one;
    None if no way that was measured keeps them"""
    least: StoredTensor
    """the way with the least of the figure"""
    measured: int
    """ways of storing the tensor in this run"""


def value_of(found: StoredTensor, figure: str) -> float:
    """Returns a figure of FIGURES. 0 without errors."""
    if figure == "stored_p99":
        return found.errors.p99_abs or 0.0
    return found.clip_ratio if figure == "clip_ratio" else found.divergence


def compare_limits(found: StoredTensor, limits: Mapping[str, float | None]) -> tuple[Limit, ...]:
    """Returns every figure with its limit."""
    return tuple(Limit(figure, value_of(found, figure), limits.get(figure)) for figure in FIGURES)


def worst(found: Sequence[Limit]) -> Limit | None:
    """Returns the figure that is the most times its limit, of those beyond. None if none is."""
    beyond = [each for each in found if each.beyond]
    return max(beyond, key=lambda each: each.value / each.limit if each.limit else float("inf"), default=None)


def families(found: Sequence[StoredTensor]) -> Mapping[str, tuple[StoredTensor, ...]]:
    """Returns the ways of storing each tensor."""
    by_family: dict[str, tuple[StoredTensor, ...]] = {}
    for each in found:
        by_family[each.family] = (*by_family.get(each.family, ()), each)
    return by_family


def way(found: StoredTensor) -> str:
    """Returns the part of a tensor's id that differs within its family: scaling=row,dtype=float8_e4m3fn."""
    shared = set(found.family.split(","))
    return ",".join(part for part in found.case.split(",") if part not in shared)


def advise(found: StoredTensor, ways: Sequence[StoredTensor], limits: Mapping[str, float | None]) -> Advice | None:
    """Returns what to change a tensor to whose figures are beyond their limits.

    ways: all of its family, itself included. `limits`: figure -> the most that is allowed of each. None if nothing is
    beyond its limit, or only the divergence: another way would be no nearer to what was accepted, but begin a history
    of its own.
    """
    without = {**limits, "divergence": None}
    first = worst(compare_limits(found, without))
    if first is None:
        return None
    fitting = [each for each in ways if worst(compare_limits(each, without)) is None]
    to = min(
        fitting,
        key=lambda each: (each.dtype != found.dtype, each.scale_bytes, value_of(each, "stored_p99")),
        default=None,
    )
    least = min(ways, key=lambda each: value_of(each, first.figure))
    return Advice(first.figure, to, least, len(ways))
