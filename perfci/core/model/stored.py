"""Tensors that ops store in low precision."""

from __future__ import annotations

from dataclasses import dataclass, field

from perfci.core.model.basics import BY_PERFCI, Amount, Count, ErrorStats, Whole


@dataclass(frozen=True)
class Extent:
    """A figure over the groups of a tensor that share a scale each."""

    least: Amount  # of any group
    median: Amount  # of the groups
    most: Amount  # of any group


@dataclass(frozen=True)
class ErrorHistogram:
    """How many absolute errors lie in each bin, eight a decade from 1e-8 on. Bins that are left out are empty."""

    start: Count
    """place of the first bin in `counts`: 0 holds what lies below the lowest edge, errors of exactly 0 included"""
    counts: tuple[Count, ...] = ()  # of that bin and those that follow


@dataclass(frozen=True)
class Channels:
    """Slices of the tensor along the axis on which their largest magnitudes differ most."""

    axis: Count  # of the tensor
    count: Count  # slices along it
    extreme: Count  # of them: their largest magnitude is 10 times the median of all slices' or more
    ratio: Amount  # greatest of the slices' largest magnitudes / their median. 0 if the median is 0


@dataclass(frozen=True)
class AcceptedStorage:
    """What an accepted run had for the same stored tensor."""

    run: str  # id
    created: str  # ISO 8601, UTC
    mean_abs: float | None = None  # mean absolute error
    p99_abs: float | None = None  # 99th percentile of the absolute error
    clip_ratio: Amount = 0.0  # share of clipped values
    divergence: Amount = 0.0  # from the accepted run before it, nats
    extreme: Count = 0  # channels of extreme scale


@dataclass(frozen=True)
class StoredTensor:
    """One tensor that an op stores in low precision, in one case: the inputs are those of a fixed seed."""

    case: str
    """id: stored=a,m=128,k=128,scaling=row,dtype=float8_e4m3fn; it has thresholds and a history like any other"""
    tensor: str  # the op's name for it
    mode: str  # how it is scaled, as in the case: tensor, row, group
    dtype: str  # of the stored values
    family: str  # id of the case without modes, groups and dtypes: those of one family hold the same tensor
    seed: Whole
    errors: ErrorStats
    """of what is stored, values * scale in float64, against the originals, over those that are finite"""
    clip_ratio: Amount  # share of the originals that lie beyond scale * the dtype's largest number, and became that
    lost_ratio: Amount  # share of the originals other than 0 that became 0
    groups: Count  # scales that are stored
    amax: Extent  # largest finite magnitude of the originals of a group
    scale: Extent  # of a group
    load: Extent  # amax / (scale * the dtype's largest number) of a group: above 1 its largest values are clipped
    histogram: ErrorHistogram
    channels: Channels | None = None  # None of a tensor of fewer than two axes, or of no slices
    scale_bytes: Count = 0  # what the scales take
    divergence: Amount = field(default=0.0, metadata=BY_PERFCI)
    """Kullback-Leibler divergence of the histogram from that of the newest accepted run, nats. 0 if there is none"""
    before: tuple[AcceptedStorage, ...] = field(default=(), metadata=BY_PERFCI)
    """accepted runs that have it, oldest first, 30 at most"""
    accepted: ErrorHistogram | None = field(default=None, metadata=BY_PERFCI)
    """of the newest accepted run, which the divergence is from"""
