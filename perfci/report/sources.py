"""Where thresholds in force come from that people did not simply write: earned, relaxed for a time, or given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from perfci.core.wording import say
from perfci.report.text import code, plain
from perfci.report.view import Section, make_table


class SetBy(StrEnum):
    """What put a value there."""

    GIVEN = "given"
    """on the command line"""
    RELAXED = "relaxed"
    EARNED = "earned"


@dataclass(frozen=True)
class SetValue:
    """A threshold in force, for a case or for all cases that fit a pattern."""

    layer: SetBy
    key: str
    value: str
    """as files write it. Empty for a relaxed entry that restores what people wrote"""
    without: str
    """what would be in force without it: one value, or the least and the greatest of several cases"""
    where: str
    """file and line, or the option"""
    op: str = ""
    """empty: every op"""
    case: str = ""
    """id or pattern, empty: every case"""
    until: str = ""
    """last day on which it holds"""
    why: str = ""
    runs: int | None = None
    """number of runs that an earned value was learnt from"""
    date: str = ""
    """of its last step"""


def make_section(sources: Sequence[SetValue]) -> Section | None:
    """Returns a table of them, with a count of each layer as its title. None if people wrote all that is in force."""
    if not sources:
        return None
    names = {
        SetBy.GIVEN: say("given on the command line"),
        SetBy.RELAXED: say("relaxed for a time"),
        SetBy.EARNED: say("earned"),
    }
    counts = {layer: sum(one.layer is layer for one in sources) for layer in SetBy}
    what = ", ".join(f"{names[layer]}: {count}" for layer, count in counts.items() if count)
    rows = []
    for one in sorted(sources, key=lambda one: list(SetBy).index(one.layer)):
        why = plain(one.why)
        if one.runs is not None:
            learnt = say(
                "learnt from {count:accepted run|accepted runs}, last step on {date}", count=one.runs, date=one.date
            )
            why = f"{learnt}. {why}" if why else learnt
        rows.append((
            code(one.key),
            code(one.op) or say("all"),
            code(one.case) or say("all"),
            plain(one.value) or say("as people wrote it"),
            plain(one.without) or "-",
            f"{names[one.layer]}, {code(one.where)}",
            plain(one.until) or "-",
            why or "-",
        ))  # fmt: skip
    table = make_table("threshold | op | case | value | without it | from | until | why", rows)
    title = say("Where thresholds in force come from: {what}", what=what)
    return Section(say("Thresholds"), parts=(Section(title, table=table, folded=True),))
