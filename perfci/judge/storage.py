"""Verdicts about what is stored in low precision: figures beyond their limits, each with its likely cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfci.core import units
from perfci.core.model import Fact, Judgement, OpRun, Reason, StoredTensor, Suite, Verdict
from perfci.judge.figures import show
from perfci.measure.lowprec.advice import (
    Cause,
    Limit,
    advise,
    compare_limits,
    families,
    find_cause,
    value_of,
    way,
    worst,
)
from perfci.measure.lowprec.storage import FORMATS
from perfci.thresholds.limits import Thresholds

BY_CAUSE = {
    Cause.CHANNELS: "stored_beyond_channels",
    Cause.SCALE_SMALL: "stored_beyond_scale_small",
    Cause.SCALE_LARGE: "stored_beyond_scale_large",
    Cause.TAIL: "stored_beyond_tail",
    Cause.MOVED: "stored_beyond_moved",
    Cause.COARSE: "stored_beyond_coarse",
    Cause.UNKNOWN: "stored_beyond_unknown",
}
"""Cause -> kind of the reason."""


def beyond(op: OpRun, device: str, limits: Thresholds) -> Iterator[Judgement]:
    """A row for each stored tensor with a figure beyond its limit; nothing of those within.

    No noise is allowed for: the inputs are those of a fixed seed, so that the same code gives the same figures.
    """
    ways = families(op.stored)
    for found in op.stored:
        reason = reason_of(op.op, found, device, limits)
        if reason:
            advised = advised_of(found, ways[found.family], vars(limits.for_case(op.op, found.case)))
            also = (advised,) if advised else ()
            yield Judgement(op.op, Suite.ACCURACY, found.case, Verdict.WRONG, (reason, *also))


def advised_of(found: StoredTensor, ways: Sequence[StoredTensor], limits: Mapping[str, float | None]) -> Reason | None:
    """Which other way of storing the tensor to take, by what this run measured of it; None where that says nothing."""
    told = advise(found, ways, limits)
    if told is None:
        return None
    facts: dict[str, Fact] = {"case": found.case, "figure": told.figure, "ways": told.measured}
    if told.measured == 1:
        return Reason("stored_advice_alone", facts)
    best = told.to or told.least
    value = shown(Limit(told.figure, value_of(best, told.figure), None))
    facts |= {"way": way(best), "shown": value, "scale_bytes": best.scale_bytes, "now_bytes": found.scale_bytes}
    return Reason("stored_advice_to" if told.to else "stored_advice_none", facts)


def reason_of(op: str, found: StoredTensor, device: str, limits: Thresholds) -> Reason | None:
    """Why a stored tensor is beyond its limits, by the figure that is furthest beyond; None where none is."""
    own = limits.for_case(op, found.case)
    every = compare_limits(found, vars(own))
    first = worst(every)
    if first is None:
        return None
    facts: dict[str, Fact] = {
        "op": op, "case": found.case, "figure": first.figure, "value": first.value, "limit": first.limit,
        "shown": shown(first), "allowed": shown(first, limit=True), "beyond": sum(each.beyond for each in every),
        "source": limits.origin(op, found.case, first.figure, device), "command": show(op, found.case),
    }  # fmt: skip
    return Reason(BY_CAUSE[find_cause(found)], facts | _told(found))


def shown(figure: Limit, *, limit: bool = False) -> str:
    """A figure, or its limit, as people read it."""
    value = figure.limit if limit else figure.value
    if value is None:
        return "-"
    return units.percent(value) if figure.figure == "clip_ratio" else units.significant(value)


def _told(found: StoredTensor) -> dict[str, Fact]:
    """The statistics that causes are told by."""
    last, channels, form = found.before[-1] if found.before else None, found.channels, FORMATS.get(found.dtype)
    return {
        "dtype": found.dtype,
        "mode": found.mode,
        "largest": form.largest if form else None,
        "clip": found.clip_ratio,
        "lost": found.lost_ratio,
        "load": found.load.most,
        "amax": found.amax.most,
        "groups": found.groups,
        "extreme": channels.extreme if channels else 0,
        "channels": channels.count if channels else 0,
        "ratio": channels.ratio if channels else 0.0,
        "axis": channels.axis if channels else None,
        "mean": found.errors.mean_abs,
        "p99": found.errors.p99_abs,
        "mean_accepted": last.mean_abs if last else None,
        "p99_accepted": last.p99_abs if last else None,
        "since": last.created[:10] if last else None,
    }
