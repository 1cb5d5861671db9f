"""Where thresholds in force come from that people did not simply write: earned, relaxed for a time, or given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from perfci.core.wording import say
from perfci.report import words
from perfci.report.text import code, inline
from perfci.report.view import Part, Table

EACH = 12
"""Most cases of an op and threshold that have a row each; more are gathered in one."""


class Layer(StrEnum):
    """What put a value there."""

    GIVEN = "given"
    """on the command line"""
    RELAXED = "relaxed"
    EARNED = "earned"


@dataclass(frozen=True)
class Source:
    """A threshold in force, for a case or for all that a pattern fits."""

    layer: Layer
    key: str
    value: str
    """as files write it; empty of a relaxed entry by which what people wrote holds again"""
    without: str
    """what would be in force without it, alike; of several cases the least and the greatest"""
    where: str
    """file and line, or the option"""
    op: str = ""
    """empty: every op"""
    case: str = ""
    """id, or pattern; empty: every case"""
    until: str = ""
    """last day on which it holds"""
    why: str = ""
    runs: int | None = None
    """that an earned value was learnt from"""
    date: str = ""
    """of its last step"""
    number: float = 0.0
    """the value, to find the least and the greatest of several"""


def part(sources: Sequence[Source]) -> Part | None:
    """A table of them, its title a count of each layer; None where people wrote all that is in force."""
    if not sources:
        return None
    columns = (
        say("threshold"), say("op"), say("case"), say("value"), say("without it"), say("from"), say("until"),
        say("why"),
    )  # fmt: skip
    ranked = sorted(sources, key=lambda one: list(Layer).index(one.layer))
    return Part(_title(sources), "", Table(columns, tuple(_rows(ranked))))


def _title(sources: Sequence[Source]) -> str:
    counts = {layer: sum(one.layer is layer for one in sources) for layer in Layer}
    told = {
        Layer.GIVEN: say("given on the command line: {count}", count=counts[Layer.GIVEN]),
        Layer.RELAXED: say("relaxed for a time: {count}", count=counts[Layer.RELAXED]),
        Layer.EARNED: say("earned: {count}", count=counts[Layer.EARNED]),
    }
    what = ", ".join(told[layer] for layer in Layer if counts[layer])
    return say("Where thresholds in force come from: {what}", what=what)


def _rows(ranked: Sequence[Source]) -> Iterator[tuple[str, ...]]:
    groups: dict[tuple[Layer, str, str], list[Source]] = {}
    for one in ranked:
        groups.setdefault((one.layer, one.op, one.key), []).append(one)
    for (layer, _, _), found in groups.items():
        if layer is Layer.EARNED and len(found) > EACH:
            yield _gathered(found)
        else:
            yield from map(_row, found)


def _row(one: Source) -> tuple[str, ...]:
    return (
        code(one.key),
        code(one.op) if one.op else say("all"),
        code(one.case) if one.case else say("all"),
        inline(one.value) or say("as people wrote it"),
        inline(one.without) or "-",
        _from(one, one.where),
        inline(one.until) or "-",
        _why(one) or "-",
    )


def _why(one: Source) -> str:
    if one.layer is not Layer.EARNED or one.runs is None:
        return inline(one.why)
    date = inline(one.date) or "-"
    learnt = say("learnt from {count:accepted run|accepted runs}, last step on {date}", count=one.runs, date=date)
    return f"{learnt}. {inline(one.why)}" if one.why else learnt


def _from(one: Source, where: str) -> str:
    words_of = {Layer.GIVEN: say("command line"), Layer.RELAXED: say("relaxed"), Layer.EARNED: say("earned")}
    return say("{layer}, {where}", layer=words_of[one.layer], where=code(where))


def _gathered(found: Sequence[Source]) -> tuple[str, ...]:
    """Many cases of an op in one row, with the ends of their values."""
    first = found[0]
    ranked = sorted(found, key=lambda one: one.number)
    ends = list(dict.fromkeys((ranked[0].value, ranked[-1].value)))
    without = list(dict.fromkeys((ranked[0].without, ranked[-1].without)))
    return (
        code(first.key),
        code(first.op),
        words.cases(len(found)),
        _between(ends),
        _between(without),
        _from(first, first.where.rpartition(":")[0]),
        "-",
        say("`perfci thresholds show --op {op} --key {key}` tells of each.", op=first.op, key=first.key),
    )


def _between(ends: Sequence[str]) -> str:
    told = [inline(end) or "-" for end in ends]
    return told[0] if len(told) == 1 else words.between(*told)
