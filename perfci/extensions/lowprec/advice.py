"""A stored tensor compared with accepted runs and with other ways to store it, and the likely cause of its errors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np

from perfci.core.model import AcceptedStorage, ErrorHistogram, StoredTensor
from perfci.extensions.common.accepted_runs import HistoryRun
from perfci.extensions.lowprec.figures import BINS, FORMATS

KEPT = 30  # accepted runs that a run takes figures of along: the report's trends show so many

SMOOTHING = 0.5
"""Added to every bin's count before two histograms are compared, so that no bin is impossible (Jeffreys' prior)."""

FEW = 0.05  # extreme channels are few up to this share of all
CLIPS = 0.001  # From this share of clipped values on, the scale is too small. Below it, a single value may be stray.
LOSES = 0.01  # from this share of values stored as 0 on, the scale is too large
TAIL = 1.25  # a drifted tail has at least so many times the accepted 99th percentile
STEADY = 0.10  # up to this share of the accepted mean error, a change of it counts as steady
ROUNDS = 1.01  # room for the rounding of the scale itself when an error is compared with half a step


def add_history(tensor: StoredTensor, history: Sequence[HistoryRun]) -> StoredTensor:
    """Returns the tensor with the figures of the accepted runs (oldest first) and its divergence from the newest."""
    accepted = [(run, stored) for run in history for stored in run.stored if stored.case == tensor.case]
    last = next((stored.histogram for _, stored in reversed(accepted) if stored.histogram is not None), None)
    before = []
    for run, stored in accepted[-KEPT:]:
        errors, figures = stored.errors, (stored.clip_ratio, stored.divergence, stored.extreme)
        before.append(AcceptedStorage(run.run, run.created, errors.mean_abs, errors.p99_abs, *figures))
    apart = divergence(tensor.histogram, last) if last else 0.0
    return replace(tensor, divergence=apart, before=tuple(before), accepted=last)


def dense(error_histogram: ErrorHistogram) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns the counts of all bins. Counts beyond the last bin are added to it."""
    counts = np.zeros(BINS)
    for place, count in enumerate(error_histogram.counts, start=error_histogram.start):
        counts[min(place, BINS - 1)] += count
    return counts


def divergence(error_histogram: ErrorHistogram, accepted: ErrorHistogram) -> float:
    """Returns the Kullback-Leibler divergence of the found histogram from the accepted one, nats: sum of p ln(p / q).

    p and q are the shares of the bins, SMOOTHING added to each count. 0 if one is empty.
    """
    counts = dense(error_histogram), dense(accepted)
    if not all(count.sum() for count in counts):
        return 0.0
    p, q = ((count + SMOOTHING) / (count.sum() + SMOOTHING * BINS) for count in counts)
    return max(float((p * np.log(p / q)).sum()), 0.0)


def families(stored_tensors: Sequence[StoredTensor]) -> Mapping[str, tuple[StoredTensor, ...]]:
    """Returns the ways of storing each tensor."""
    by_family: dict[str, tuple[StoredTensor, ...]] = {}
    for tensor in stored_tensors:
        by_family[tensor.family] = (*by_family.get(tensor.family, ()), tensor)
    return by_family


def group_columns(ways: Sequence[StoredTensor]) -> dict[str, tuple[StoredTensor, ...]]:
    """Returns the ways of storing one tensor by everything but the dtype, in their order."""
    columns: dict[str, tuple[StoredTensor, ...]] = {}
    for tensor in ways:
        name = ", ".join(part for part in way(tensor).split(",") if not part.startswith("dtype=")) or tensor.mode
        columns[name] = (*columns.get(name, ()), tensor)
    return columns


def way(tensor: StoredTensor) -> str:
    """Returns the part of a tensor's id that differs within its family: scaling=row,dtype=float8_e4m3fn."""
    shared = set(tensor.family.split(","))
    return ",".join(part for part in tensor.case.split(",") if part not in shared)


class AdviceCause(StrEnum):
    """The likely cause of a figure beyond its limit."""

    CHANNELS = "channels"  # few channels of extreme scale
    SCALE_SMALL = "scale_small"  # values are clipped
    SCALE_LARGE = "scale_large"  # values are stored as 0
    TAIL = "tail"  # the largest errors grew while the mean is steady
    MOVED = "moved"  # all errors grew
    COARSE = "coarse"  # rounding alone: the format's steps are too wide for values of this size
    UNKNOWN = "unknown"


def find_cause(tensor: StoredTensor) -> AdviceCause:
    """Returns the first cause with a rule that holds. docs/low-precision.md lists the rules."""
    last = tensor.before[-1] if tensor.before else None
    errors, form, channels = tensor.errors, FORMATS.get(tensor.dtype), tensor.channels
    if channels and channels.count and channels.extreme:
        share, new = channels.extreme / channels.count, last is None or last.extreme < channels.extreme
        if new and tensor.clip_ratio <= share <= FEW:  # they hold all that is clipped
            return AdviceCause.CHANNELS
    if tensor.clip_ratio >= CLIPS:
        return AdviceCause.SCALE_SMALL
    if tensor.lost_ratio >= LOSES:
        return AdviceCause.SCALE_LARGE
    # How many times the accepted figure; 0 if it is not known or 0.
    mean = errors.mean_abs / last.mean_abs if last and last.mean_abs and errors.mean_abs is not None else 0.0
    p99 = errors.p99_abs / last.p99_abs if last and last.p99_abs and errors.p99_abs is not None else 0.0
    if p99 >= TAIL and abs(mean - 1) <= STEADY:
        return AdviceCause.TAIL
    if mean > 1 + STEADY:
        return AdviceCause.MOVED
    step = form.half_step(tensor.amax.most, tensor.scale.most) if form else None
    if step is not None and errors.p99_abs is not None and errors.p99_abs <= ROUNDS * step:
        return AdviceCause.COARSE
    return AdviceCause.UNKNOWN
