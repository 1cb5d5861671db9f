"""The figures of one stored tensor, from host copies of it, its scales and its originals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfci.core.model import Channels, ErrorHistogram, Extent
from perfci.measure.closeness import errors_of

Host = np.ndarray[Any, Any]

ROUNDING = 1 + 2.0**-20
"""Dividing by a float32 scale, rounded itself, may take the largest value this far beyond the format's largest."""

EXTREME = 10.0  # a channel is extreme if its largest magnitude is this many times the median of all channels'
LEAST_CHANNELS = 8  # slices that an axis must have for their median to mean something


@dataclass(frozen=True)
class Format:
    """A number format of 8 bits or fewer."""

    largest: float  # finite magnitude
    mantissa: int = 0  # bits after the leading one. Unused for integers
    exponent: int = 0  # of the least normal number, to base 2
    integer: bool = False

    def half_step(self, size: float, scale: float) -> float:
        """Returns the greatest rounding error of a stored number that gives this size by the scale.

        >>> FORMATS["float8_e4m3fn"].half_step(1.0, 1 / 448), FORMATS["float8_e5m2"].half_step(1.0, 1 / 57344)
        (0.03571428571428571, 0.07142857142857142)
        """
        if self.integer:
            return scale / 2
        if not size or not scale:
            return 0.0
        exponent = max(int(np.floor(np.log2(min(size / scale, self.largest)))), self.exponent)
        return float(2.0 ** (exponent - self.mantissa - 1) * scale)

    def count_foreign(self, values: Host) -> int:
        """Returns how many finite values are not numbers of the format."""
        sizes = np.abs(values[np.isfinite(values)]).astype(np.float64)
        if self.integer:
            return int(((sizes > self.largest + 1) | (sizes != np.round(sizes))).sum())
        exponents = np.maximum(np.frexp(sizes)[1] - 1, self.exponent)
        steps = np.ldexp(sizes, self.mantissa - exponents)
        return int(((sizes > self.largest) | (steps != np.round(steps))).sum())


FORMATS: Mapping[str, Format] = {
    "float8_e4m3fn": Format(448.0, 3, -6),
    "float8_e5m2": Format(57344.0, 2, -14),
    "float8_e4m3fnuz": Format(240.0, 3, -7),
    "float8_e5m2fnuz": Format(57344.0, 2, -15),
    "float6_e2m3fn": Format(7.5, 3, 0),
    "float6_e3m2fn": Format(28.0, 2, -2),
    "float4_e2m1fn": Format(6.0, 1, 0),
    "int8": Format(127.0, integer=True),
    "int4": Format(7.0, integer=True),
}
"""By name. float8_e4m3fn has no infinity and a NaN at the top exponent, so its largest is 1.75 * 2^8 = 448, and
float8_e5m2 is a short float16 with 1.75 * 2^15 = 57344 (OCP 8-bit floating point specification, 2023). Those of 6 and 4
bits are OCP microscaling formats (2023)."""

EDGES: tuple[float, ...] = tuple(10.0 ** (-8 + step / 8) for step in range(12 * 8 + 1))
"""From 1e-8 to 1e4, eight a decade. They never move, so that histograms of any two runs can be compared."""

BINS = len(EDGES) + 1  # one below the lowest edge, which exact zeros fall into too, and one from the highest on


def histogram(errors: Host) -> ErrorHistogram:
    """Returns how many of the absolute errors, all finite, lie in each bin: from one edge on, to below the next."""
    counts = np.bincount(np.searchsorted(EDGES, errors.ravel(), side="right"), minlength=BINS)
    used = np.flatnonzero(counts)
    if not used.size:
        return ErrorHistogram(0)
    first, last = int(used[0]), int(used[-1])
    return ErrorHistogram(first, tuple(int(count) for count in counts[first : last + 1]))


@dataclass(frozen=True)
class HostTensor:
    """A stored tensor on the host, in float64."""

    original: Host
    values: Host
    scale: Host  # one element, or as many axes as the values
    group: tuple[int, ...]  # values that share a scale, by axis
    form: Format

    def spread_scale(self) -> Host:
        """Returns the scale of each value."""
        spread = self.scale.reshape((1,) * self.values.ndim) if self.scale.size == 1 else self.scale
        for axis, (size, width) in enumerate(zip(self.values.shape, self.group, strict=True)):
            if spread.shape[axis] != size:
                # The last group of an axis may be narrower.
                spread = np.take(np.repeat(spread, width, axis=axis), range(size), axis=axis)
        return np.broadcast_to(spread, self.values.shape)


def measure_figures(tensor: HostTensor) -> dict[str, Any]:
    """Returns the figures of a tensor with at least one finite original, by the names of `StoredTensor`."""
    scales, size = tensor.spread_scale(), np.abs(tensor.original)
    restored = tensor.values * scales
    finite = np.isfinite(tensor.original)
    figures = finite & np.isfinite(restored)
    clipped = size[finite] > scales[finite] * tensor.form.largest * ROUNDING
    nonzero = finite & (tensor.original != 0)
    amax = group_maxima(np.where(finite, size, 0.0), tensor.group)
    scale = tensor.scale.reshape(amax.shape) if tensor.scale.size == amax.size else tensor.scale
    return {
        "errors": errors_of(restored, tensor.original).stats,
        "clip_ratio": float(clipped.mean()),
        "lost_ratio": float((tensor.values[nonzero] == 0).mean()) if nonzero.any() else 0.0,
        "groups": int(tensor.scale.size),
        "amax": _measure_extent(amax),
        "scale": _measure_extent(tensor.scale),
        "load": _measure_extent(amax / (scale * tensor.form.largest)),
        "histogram": histogram(np.abs(restored[figures] - tensor.original[figures])),
        "channels": channels(np.where(finite, size, 0.0)),
    }


def group_maxima(size: Host, group: Sequence[int]) -> Host:
    """Returns the largest of each group of magnitudes. The last group of an axis holds what is left."""
    if not size.ndim:
        return size
    padded = np.pad(size, [(0, -length % width) for length, width in zip(size.shape, group, strict=True)])
    split = [part for length, width in zip(padded.shape, group, strict=True) for part in (length // width, width)]
    return np.asarray(padded.reshape(split).max(axis=tuple(range(1, len(split), 2))))


def channels(size: Host) -> Channels | None:
    """Returns the axis, of those with LEAST_CHANNELS slices or more, whose slices differ most in largest magnitude."""
    candidates = []
    for axis, count in enumerate(size.shape):
        if size.ndim > 1 and count >= LEAST_CHANNELS:
            peaks = size.max(axis=tuple(other for other in range(size.ndim) if other != axis))
            usual = float(np.median(peaks))
            extreme = int((peaks >= EXTREME * usual).sum()) if usual else 0
            ratio = float(peaks.max()) / usual if usual else 0.0
            candidates.append(Channels(axis, count, extreme, ratio if math.isfinite(ratio) else 0.0))
    return max(candidates, key=lambda candidate: (candidate.ratio, candidate.axis), default=None)


def _measure_extent(values: Host) -> Extent:
    return Extent(*(float(value) for value in np.quantile(values, (0.0, 0.5, 1.0))))
