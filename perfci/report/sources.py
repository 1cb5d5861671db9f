"""Where thresholds in force come from that people did not simply write: earned, relaxed for a time, or given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from perfci.core.wording import say
from perfci.report import words
from perfci.report.text import code, plain
from perfci.report.view import Part, make_table

EACH = 12
"""Most cases of an op and threshold that have a row each. More are gathered in one."""


class SetBy(StrEnum):
    """What put a value there."""

    GIVEN = "given"
    """on the command line"""
    RELAXED = "relaxed"
    EARNED = "earned"


@dataclass(frozen=True)
class SetValue:
    """A threshold in force, for a case or for all that a pattern fits."""

    layer: SetBy
    key: str
    value: str
    """as files write it, empty for a relaxed entry by which what people wrote holds again"""
    without: str
    """what would be in force without it. Of several cases the least and the greatest"""
    where: str
    """file and line, or the option"""
    op: str = ""
    """empty: every op"""
    case: str = ""
    """id, or pattern, empty: every case"""
    until: str = ""
    """last day on which it holds"""
    why: str = ""
    runs: int | None = None
    """that an earned value was learnt from"""
    date: str = ""
    """of its last step"""
    number: float = 0.0
    """the value, to find the least and the greatest of several"""


def make_part(sources: Sequence[SetValue]) -> Part | None:
    """A table of them, its title a count of each layer. None if people wrote all that is in force."""
    if not sources:
        return None
    given, relaxed, earned = (sum(one.layer is layer for one in sources) for layer in SetBy)
    counts = [say("given on the command line: {count}", count=given)] if given else []
    counts += [say("relaxed for a time: {count}", count=relaxed)] if relaxed else []
    counts += [say("earned: {count}", count=earned)] if earned else []
    title = say("Where thresholds in force come from: {what}", what=", ".join(counts))
    heads = "threshold | op | case | value | without it | from | until | why"
    ranked = sorted(sources, key=lambda one: list(SetBy).index(one.layer))
    return Part(title, "", make_table(heads, _make_rows(ranked)))


def _make_rows(ranked: Sequence[SetValue]) -> Iterator[tuple[str, ...]]:
    groups: dict[tuple[SetBy, str, str], list[SetValue]] = {}
    for one in ranked:
        groups.setdefault((one.layer, one.op, one.key), []).append(one)
    for (layer, _, _), found in groups.items():
        if layer is SetBy.EARNED and len(found) > EACH:
            yield _gather(found)
        else:
            yield from map(_make_row, found)


def _make_row(one: SetValue) -> tuple[str, ...]:
    why = plain(one.why)
    if one.layer is SetBy.EARNED and one.runs is not None:
        date = plain(one.date) or "-"
        learnt = say("learnt from {count:accepted run|accepted runs}, last step on {date}", count=one.runs, date=date)
        why = f"{learnt}. {why}" if why else learnt
    return (
        code(one.key),
        code(one.op) or say("all"),
        code(one.case) or say("all"),
        plain(one.value) or say("as people wrote it"),
        plain(one.without) or "-",
        _write_origin(one, one.where),
        plain(one.until) or "-",
        why or "-",
    )


def _write_origin(one: SetValue, where: str) -> str:
    layers = {SetBy.GIVEN: say("command line"), SetBy.RELAXED: say("relaxed"), SetBy.EARNED: say("earned")}
    return say("{layer}, {where}", layer=layers[one.layer], where=code(where))


def _gather(found: Sequence[SetValue]) -> tuple[str, ...]:
    """Many cases of an op in one row, with the ends of their values."""
    first = found[0]
    ranked = sorted(found, key=lambda one: one.number)
    return (
        code(first.key),
        code(first.op),
        words.count_cases(len(found)),
        _write_ends(ranked[0].value, ranked[-1].value),
        _write_ends(ranked[0].without, ranked[-1].without),
        _write_origin(first, first.where.rpartition(":")[0]),
        "-",
        say("`perfci thresholds show --op {op} --key {key}` tells of each.", op=first.op, key=first.key),
    )


def _write_ends(least: str, greatest: str) -> str:
    ends = [plain(end) or "-" for end in (least, greatest)]
    return ends[0] if least == greatest else words.write_range(*ends)
