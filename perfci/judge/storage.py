"""Verdicts about tensors stored in low precision: figures beyond their limits, each with its likely cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfci.core import units
from perfci.core.model import Fact, Judgement, OpRun, Reason, StoredTensor, Suite, Verdict
from perfci.judge.figures import show_command
from perfci.measure.lowprec.advice import (
    AdviceCause,
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
    AdviceCause.CHANNELS: "stored_beyond_channels",
    AdviceCause.SCALE_SMALL: "stored_beyond_scale_small",
    AdviceCause.SCALE_LARGE: "stored_beyond_scale_large",
    AdviceCause.TAIL: "stored_beyond_tail",
    AdviceCause.MOVED: "stored_beyond_moved",
    AdviceCause.COARSE: "stored_beyond_coarse",
    AdviceCause.UNKNOWN: "stored_beyond_unknown",
}
"""Cause -> kind of the reason."""


def judge_stored(op: OpRun, device: str, limits: Thresholds) -> Iterator[Judgement]:
    """Yields a row for each stored tensor with a figure beyond its limit.

    No noise is allowed for: the inputs are those of a fixed seed, so that the same code gives the same figures.
    """
    ways = families(op.stored)
    for found in op.stored:
        own = vars(limits.for_case(op.op, found.case))
        every = compare_limits(found, own)
        first = worst(every)
        if first is None:
            continue
        facts: dict[str, Fact] = {
            "op": op.op, "case": found.case, "figure": first.figure, "value": first.value, "limit": first.limit,
            "shown": _write(first.figure, first.value), "allowed": _write(first.figure, first.limit),
            "beyond": sum(each.beyond for each in every),
            "source": limits.origin(op.op, found.case, first.figure, device),
            "command": show_command(op.op, found.case),
        }  # fmt: skip
        reason = Reason(BY_CAUSE[find_cause(found)], facts | _statistics(found))
        advised = _advise(found, ways[found.family], own)
        yield Judgement(op.op, Suite.ACCURACY, found.case, Verdict.WRONG, (reason, *((advised,) if advised else ())))


def _advise(found: StoredTensor, ways: Sequence[StoredTensor], limits: Mapping[str, float | None]) -> Reason | None:
    """Which other way of storing the tensor to take, by what this run measured. None if that does not help."""
    told = advise(found, ways, limits)
    if told is None:
        return None
    facts: dict[str, Fact] = {"case": found.case, "figure": told.figure, "ways": told.measured}
    if told.measured == 1:
        return Reason("stored_advice_alone", facts)
    best = told.to or told.least
    facts |= {"way": way(best), "shown": _write(told.figure, value_of(best, told.figure))}
    facts |= {"scale_bytes": best.scale_bytes, "now_bytes": found.scale_bytes}
    return Reason("stored_advice_to" if told.to else "stored_advice_none", facts)


def _write(figure: str, value: float | None) -> str:
    if value is None:
        return "-"
    return units.percent(value) if figure == "clip_ratio" else units.significant(value)


def _statistics(found: StoredTensor) -> dict[str, Fact]:
    """The statistics by which causes are found."""
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
