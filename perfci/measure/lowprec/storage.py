"""The figures of one stored tensor, from host copies of it, its scales and its originals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfci.core.model import Channels, ErrorHistogram, ErrorStats, Extent
from perfci.measure.closeness import error_stats
from perfci.measure.lowprec.formats import Format
from perfci.measure.lowprec.histogram import histogram

Host = np.ndarray[Any, Any]

ROUNDING = 1 + 2.0**-20
"""How far dividing by a float32 scale, rounded itself, may take the largest value beyond the format's largest."""

EXTREME = 10.0
"""A channel is extreme whose largest magnitude is so many times the median of all channels'."""

LEAST_CHANNELS = 8
"""Slices that an axis must have for their median to say what is usual."""


@dataclass(frozen=True)
class Held:
    """A stored tensor on the host, in float64."""

    original: Host
    values: Host
    scale: Host
    """one element, or as many axes as the values"""
    group: tuple[int, ...]
    """values that share a scale, by axis"""
    form: Format

    @property
    def spread(self) -> Host:
        """The scale of each value."""
        found = self.scale.reshape((1,) * self.values.ndim) if self.scale.size == 1 else self.scale
        for axis, (size, width) in enumerate(zip(self.values.shape, self.group, strict=True)):
            if found.shape[axis] != size:
                found = np.repeat(found, width, axis=axis)[_first(size, axis)]
        return np.broadcast_to(found, self.values.shape)


@dataclass(frozen=True)
class Figures:
    """What is recorded of it; see `StoredTensor` for what each is."""

    errors: ErrorStats
    clip_ratio: float
    lost_ratio: float
    groups: int
    amax: Extent
    scale: Extent
    load: Extent
    histogram: ErrorHistogram
    channels: Channels | None


def figures(held: Held) -> Figures:
    """All of them; the tensor holds at least one finite original."""
    scales, size = held.spread, np.abs(held.original)
    restored = held.values * scales
    known = np.isfinite(held.original) & np.isfinite(restored)
    finite = np.isfinite(held.original)
    clipped = size[finite] > scales[finite] * held.form.largest * ROUNDING
    there = finite & (held.original != 0)
    amax = amaxima(np.where(finite, size, 0.0), held.group)
    scale = held.scale.reshape(amax.shape) if held.scale.size == amax.size else held.scale
    return Figures(
        errors=error_stats(restored, held.original),
        clip_ratio=float(clipped.mean()),
        lost_ratio=float((held.values[there] == 0).mean()) if there.any() else 0.0,
        groups=int(held.scale.size),
        amax=extent(amax),
        scale=extent(held.scale),
        load=extent(amax / (scale * held.form.largest)),
        histogram=histogram(np.abs(restored[known] - held.original[known])),
        channels=channels(np.where(finite, size, 0.0)),
    )


def amaxima(size: Host, group: Sequence[int]) -> Host:
    """The largest of each group of magnitudes; the last group of an axis holds what is left."""
    if not size.ndim:
        return size
    padded = np.pad(size, [(0, -length % width) for length, width in zip(size.shape, group, strict=True)])
    split = [part for length, width in zip(padded.shape, group, strict=True) for part in (length // width, width)]
    return np.asarray(padded.reshape(split).max(axis=tuple(range(1, len(split), 2))))


def channels(size: Host) -> Channels | None:
    """The axis, of those with LEAST_CHANNELS slices or more, on which the slices' largest magnitudes differ most."""
    return max(_channels(size), key=lambda each: (each.ratio, each.axis), default=None)


def extent(values: Host) -> Extent:
    """Least, median and greatest."""
    return Extent(*(float(each) for each in np.quantile(values, (0.0, 0.5, 1.0))))


def _channels(size: Host) -> Iterator[Channels]:
    for axis, count in enumerate(size.shape):
        if size.ndim > 1 and count >= LEAST_CHANNELS:
            peaks = size.max(axis=tuple(other for other in range(size.ndim) if other != axis))
            usual = float(np.median(peaks))
            extreme = int((peaks >= EXTREME * usual).sum()) if usual else 0
            ratio = float(peaks.max()) / usual if usual else 0.0
            yield Channels(axis, count, extreme, ratio if math.isfinite(ratio) else 0.0)


def _first(size: int, axis: int) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(size))
