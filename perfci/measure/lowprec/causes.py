"""The likely cause of a figure beyond its limit: stated rules on what was recorded, the most telling first."""

from __future__ import annotations

from enum import StrEnum

from perfci.core.model import AcceptedStorage, StoredTensor
from perfci.measure.lowprec.formats import FORMATS

FEW = 0.05
"""Extreme channels are few up to this share of all."""

CLIPS = 0.001
"""Share of clipped values from which on the scale is too small, and not one value stray."""

LOSES = 0.01
"""Share of values stored as 0 from which on the scale is too large."""

TAIL = 1.25
"""How many times the accepted 99th percentile a drifted tail has at least."""

STEADY = 0.10
"""How far the mean error may be from the accepted one and be called steady, as a share of it."""

ROUNDS = 1.01
"""Room for the rounding of the scale itself, where an error is told to be no more than half a step."""


class Cause(StrEnum):
    """What a figure beyond its limit most likely comes from."""

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


def cause(found: StoredTensor) -> Cause:
    """The first rule that holds, in the order of `Cause`; docs/low-precision.md states each."""
    last = found.before[-1] if found.before else None
    mean = _times(found.errors.mean_abs, last.mean_abs if last else None)
    p99 = _times(found.errors.p99_abs, last.p99_abs if last else None)
    rules = {
        Cause.CHANNELS: _few_extreme(found, last),
        Cause.SCALE_SMALL: found.clip_ratio >= CLIPS,
        Cause.SCALE_LARGE: found.lost_ratio >= LOSES,
        Cause.TAIL: p99 >= TAIL and abs(mean - 1) <= STEADY,
        Cause.MOVED: mean > 1 + STEADY,
        Cause.COARSE: _rounding(found),
    }
    return next((cause for cause, holds in rules.items() if holds), Cause.UNKNOWN)


def _few_extreme(found: StoredTensor, last: AcceptedStorage | None) -> bool:
    """Few extreme channels, enough to hold all that is clipped, and none of them in the accepted run."""
    channels = found.channels
    if channels is None or not channels.count or not channels.extreme:
        return False
    if last is not None and last.extreme >= channels.extreme:
        return False
    share = channels.extreme / channels.count
    return share <= FEW and found.clip_ratio <= share


def _times(now: float | None, accepted: float | None) -> float:
    """How many times the accepted figure; 0 where one of the two is not known or the accepted one is 0."""
    return now / accepted if now is not None and accepted else 0.0


def _rounding(found: StoredTensor) -> bool:
    """Whether 99 % of the errors are no more than half a step at the largest magnitude."""
    form, p99 = FORMATS.get(found.dtype), found.errors.p99_abs
    if form is None or p99 is None:
        return False
    return p99 <= ROUNDS * form.half_step(found.amax.most, found.scale.most)
