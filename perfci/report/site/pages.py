"""The site's two kinds of pages, each a file that needs no other: the index, and the page of an op on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfci.core.model import Reason
from perfci.core.wording import say, sentence
from perfci.report import words as counts
from perfci.report.html import cases as details
from perfci.report.html import page as report
from perfci.report.html.charts import Store, svg
from perfci.report.html.markup import Html, inline
from perfci.report.past import day
from perfci.report.site import cases, drawings, trend, words
from perfci.report.site.cases import Cell, changed
from perfci.report.site.folder import INDEX, address
from perfci.report.site.kept import Place
from perfci.report.site.trend import Kind, Op, State
from perfci.report.text import NAME_LIMIT, code, plain
from perfci.report.text import plain as escaped

HERE = "perfci.report.site"

SERVED = 1
"""Cases whose charts and numbers are written into the page as they are, the worst first, for readers without
JavaScript; the script draws the others when they are opened, and all of them to be printed. Each takes 100 KB of 100
runs, 20 MB of a site of 200 ops, and GitLab's own limit for a site is 100 MB."""

OPEN = 40
"""Rows that are fine and shown at first."""

DRAWN = 1
"""Cases that stand open at first."""


@dataclass(frozen=True)
class Entry(words.Stated):
    """A line of the index."""

    place: Place
    address: str
    state: State
    name: Html
    spark: Html
    cells: tuple[Cell, ...]
    """those of `index_columns`"""
    worst: Html
    last: str
    why: str
    """plain; what could not be read"""


@dataclass(frozen=True)
class Chip:
    """A state that one can filter by."""

    state: str
    word: str
    gate: str
    count: int


# --- an op on a device ------------------------------------------------------------------------------------------------


def op_page(op: Op, others: Sequence[Place]) -> str:
    """The page of an op on a device; others: the same op on other devices."""
    axis = drawings.order(op.kept.runs)
    rows, store = cases.rows(op, axis), Store()
    packed = {str(place): details.packed(row.detail, store) for place, row in enumerate(rows) if place >= SERVED}
    found = {"cases": packed, "series": store.series, "axes": store.axes, "styles": store.styles}
    page: str = report.template("op.html.j2", HERE).render(
        **report.shell(_style(), _script(), {**found, "words": _words()}),
        title=say("{op} on {device}: history", op=plain(op.kept.place.op, 80), device=plain(op.kept.place.device, 80)),
        gate="",
        op=plain(op.kept.place.op, NAME_LIMIT),
        device=plain(op.kept.place.device, NAME_LIMIT),
        state=op.state,
        word=words.state(op.state),
        state_gate=words.GATES.get(op.state, ""),
        index=f"../{INDEX}",
        others=[(plain(place.device, NAME_LIMIT), f"../{address(place)}") for place in others],
        problems=[escaped(sentence(problem)) for problem in op.kept.problems],
        notes=[escaped(sentence(note)) for note in op.kept.notes],
        facts=_facts(op),
        rows=rows,
        served=SERVED,
        drawn=DRAWN,
        open=OPEN,
        chips=_chips([(row.state, row.rank) for row in rows]),
        columns=cases.columns(),
        overview=[(chart.sheet.title, svg(chart)) for chart in drawings.overview(op, axis)],
        overview_numbers=_overview(op),
        marks=cases.marks(op),
        mark_columns=cases.mark_columns(),
        runs=cases.surroundings(op),
        run_columns=cases.run_columns(),
        arm_columns=details.arm_columns(),
        difference_columns=details.difference_columns(),
        allowed=op.kept.limits.folder,
    )
    return page


def _facts(op: Op) -> list[tuple[str, str]]:
    runs = op.kept.runs
    if not runs:
        return []
    last = runs[-1]
    boards = {run.environment.device.uuid for run in runs} - {None}
    return [
        (say("device"), plain(last.environment.device.name, 80)),
        (say("accepted runs"), str(len(runs))),
        (say("first"), f"{day(runs[0])} {trend.commit(runs[0])}"),
        (say("last"), f"{day(last)} {trend.commit(last)}"),
        (say("cases"), str(sum(case.state is not State.GONE for case in op.cases))),
        (say("boards"), str(len(boards) or "-")),
        (say("timer"), plain(last.environment.timer or "-", 40)),
        *_earned(op),
    ]


def _earned(op: Op) -> list[tuple[str, str]]:
    """How many values of which thresholds its cases have earned here."""
    values = [key for keys in op.kept.limits.earned.get(op.kept.place.op, {}).values() for key in keys]
    names = ", ".join(dict.fromkeys(values))
    return [(say("earned thresholds"), f"{len(values)} ({names})")] if values else []


def _overview(op: Op) -> list[details.Column]:
    return [
        details.Column(say("run"), tuple(float(number) for number in range(1, len(op.kept.runs) + 1))),
        details.Column(say("date, UTC"), texts=tuple(map(trend.minute, op.kept.runs))),
        details.Column(say("commit"), texts=tuple(map(trend.commit, op.kept.runs))),
        details.Column(say("kernel, all cases, % off the median"), drawings.times(op.relative, 100)),
        details.Column(say("speedup, geometric mean"), op.speedup),
    ]


# --- the index --------------------------------------------------------------------------------------------------------


def entry(op: Op) -> Entry:
    """The line of an op; of its history nothing else is kept."""
    place, runs = op.kept.place, op.kept.runs
    speedup = next((value for value in reversed(op.speedup) if value is not None), None)
    worst = op.worst
    epochs = sum(mark.kind is Kind.EPOCH for mark in op.marks)
    cells = (
        Cell(Html(counts.write_ratio(speedup)), _rounded(speedup)),
        changed(op.move),
        changed(worst.own if worst else None),
        Cell(Html(str(len(runs))), len(runs)),
        Cell(Html(str(epochs)), epochs),
    )
    return Entry(
        place=place,
        address=address(place),
        state=op.state,
        name=inline(code(place.op)),
        spark=drawings.spark(op.relative, op.marks),
        cells=cells,
        worst=cases.named(worst.case) if worst else Html(""),
        last=f"{day(runs[-1])} {trend.commit(runs[-1])}" if runs else "-",
        why=plain(sentence(op.kept.problems[0])) if op.kept.damaged else "",
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def index_columns() -> tuple[tuple[str, str], ...]:
    """Name to sort by, and heading, of an entry's cells of numbers."""
    return (
        ("speedup", say("speedup")),
        ("change", say("over the kept runs")),
        ("worst", say("worst case")),
        ("runs", say("runs")),
        ("epochs", say("epochs")),
    )


def index_page(entries: Sequence[Entry], project: str, notes: Sequence[Reason]) -> str:
    """The index of ops and devices."""
    ranked = sorted(entries, key=lambda one: (one.rank, one.place))
    page: str = report.template("index.html.j2", HERE).render(
        **report.shell(_style(), _script(), {"words": _words()}),
        title=say("perfci: history of {project}", project=plain(project, 80)),
        gate="",
        project=plain(project, NAME_LIMIT),
        entries=ranked,
        devices=[plain(device, NAME_LIMIT) for device in sorted({one.place.device for one in entries})],
        notes=[escaped(sentence(note)) for note in notes],
        chips=_chips([(one.state, one.rank) for one in ranked]),
        columns=index_columns(),
        open=OPEN,
        plain=plain,
    )
    return page


# --- both -------------------------------------------------------------------------------------------------------------


def _chips(found: Sequence[tuple[State, int]]) -> tuple[Chip, ...]:
    counted: dict[State, int] = {}
    for state, _ in sorted(found, key=lambda one: one[1]):
        counted[state] = counted.get(state, 0) + 1
    return tuple(
        Chip(str(state), words.state(state), words.GATES.get(state, ""), count) for state, count in counted.items()
    )


def _words() -> Mapping[str, Any]:
    return {
        **report.words(),
        "numbers": say("Numbers of each run"),
        "more": say("Show the other rows ({count})", count="{count}"),
        "follow": say("Arrow keys go from run to run."),
    }


def _style() -> str:
    return report.part("style.css") + report.part("site.css", HERE)


def _script() -> str:
    return report.part("page.js") + report.part("site.js", HERE)
