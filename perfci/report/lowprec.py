"""What an op stores in low precision, as tables: ways of storing each tensor side by side, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfci.core import units, wording
from perfci.core.model import Extent, Judgement, OpRun, Reason, StoredTensor, Suite, Verdict
from perfci.core.wording import say
from perfci.measure.lowprec.advice import families, way
from perfci.ops.spec import is_stored
from perfci.report.figures.lowprec import ACROSS, Limits, columns
from perfci.report.text import code, inline
from perfci.report.view import Part, Table

FAMILIES = 6
"""Most tensors of an op that are drawn, those beyond their limits first."""

_KINDS = "stored_beyond_"
"""What the kinds of reasons for figures beyond their limits begin with."""


def parts(op: OpRun, judged: Sequence[Judgement]) -> Iterator[Part]:
    """A table of all stored tensors, and one of the likely causes; nothing of an op that declares none."""
    if not op.stored:
        return
    name = inline(op.op, 80)
    note = say(
        "Errors of what is stored against the originals, on inputs of a fixed seed: the same code gives the same "
        "numbers. *Clipped*: the share of values beyond the scale times the dtype's largest number. *Divergence*: "
        "Kullback-Leibler, of the errors' histogram from the newest accepted run's, nats; 0 where there is none."
    )
    yield Part(say("{op}: stored in low precision", op=name), note, _table(op, beyond(judged)))
    yield Part(say("{op}: likely causes, and what to do", op=name), "", _causes(judged))


def beyond(judged: Sequence[Judgement]) -> Mapping[str, Reason]:
    """Case of each stored tensor beyond its limits -> why."""
    found = ((row.case, reason) for row in judged if row.case and _about(row) for reason in row.reasons)
    return {case: reason for case, reason in found if reason.kind.startswith(_KINDS)}


def chosen(op: OpRun, judged: Sequence[Judgement]) -> list[tuple[StoredTensor, ...]]:
    """The tensors that are drawn, each with the ways that fit side by side into a picture."""
    bad = beyond(judged)
    ranked = sorted(families(op.stored).values(), key=lambda ways: not any(each.case in bad for each in ways))
    return [part for ways in ranked[:FAMILIES] for part in _across(ways)]


def limits(ways: Sequence[StoredTensor], judged: Sequence[Judgement]) -> Limits:
    """What the figures of a tensor are held to, as far as a verdict tells: those beyond their limits."""
    bad = beyond(judged)
    found: dict[str, float] = {}
    for each in ways:
        facts = bad[each.case].facts if each.case in bad else {}
        figure, limit = facts.get("figure"), facts.get("limit")
        if isinstance(figure, str) and isinstance(limit, int | float):
            found[figure] = min(limit, found.get(figure, limit))
    clip = found.get("clip_ratio")
    return Limits(found.get("stored_p99"), None if clip is None else 100 * clip, found.get("divergence"))


def _about(row: Judgement) -> bool:
    return row.suite is Suite.ACCURACY and row.case is not None and is_stored(row.case)


def _across(ways: Sequence[StoredTensor]) -> Iterator[tuple[StoredTensor, ...]]:
    cols = columns(ways)
    for first in range(0, len(cols), ACROSS):
        yield tuple(each for column in cols[first : first + ACROSS] for each in column.ways)


def _table(op: OpRun, bad: Mapping[str, Reason]) -> Table:
    heads = (
        say("tensor"), say("stored as"), say("p50 abs"), say("p90 abs"), say("p99 abs"), say("max abs"),
        say("mean rel"), say("clipped"), say("stored as 0"), say("divergence"), say("amax"), say("scale"),
        say("scales"), say("verdict"),
    )  # fmt: skip
    rows = (_row(each, bad) for ways in families(op.stored).values() for each in ways)
    return Table(heads, tuple(rows), frozenset(heads[2:-1]))


def _row(found: StoredTensor, bad: Mapping[str, Reason]) -> tuple[str, ...]:
    errors = found.errors
    figures = (errors.p50_abs, errors.p90_abs, errors.p99_abs, errors.max_abs)
    return (
        code(found.tensor),
        code(way(found) or found.mode),
        *(_number(value) for value in figures),
        units.percent(errors.mean_rel),
        _share(found.clip_ratio),
        _share(found.lost_ratio),
        _number(found.divergence),
        _extent(found.amax),
        _extent(found.scale),
        units.size(found.scale_bytes),
        str(Verdict.WRONG if found.case in bad else Verdict.PASS),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else units.significant(value)


def _share(ratio: float) -> str:
    """Per cent, in which one value of many is seen too."""
    return "0 %" if not ratio else say("{percent} %", percent=units.significant(100 * ratio, 2))


def _extent(found: Extent) -> str:
    """Least, median and greatest; one number where all are the same."""
    if found.least == found.most:
        return units.significant(found.most)
    ends = {"low": units.significant(found.least), "high": units.significant(found.most)}
    return say("{middle} ({low} to {high})", middle=units.significant(found.median), **ends)


def _causes(judged: Sequence[Judgement]) -> Table:
    rows = tuple(
        (code(row.case or ""), inline(wording.sentence(row.reasons[0])), " ".join(_inlined(row.reasons[1:])) or "-")
        for row in judged
        if _about(row) and row.reasons and row.reasons[0].kind.startswith(_KINDS)
    )
    return Table((say("case"), say("what is beyond its limit, and why"), say("advice")), rows)


def _inlined(reasons: Sequence[Reason]) -> Iterator[str]:
    return (inline(wording.sentence(reason)) for reason in reasons)
