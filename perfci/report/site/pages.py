"""The site's two kinds of pages, each a file that needs no other: the index, and the page of an op on a device."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from perfci.core import units
from perfci.core.model import HistoryRun, Reason
from perfci.core.wording import say, sentence
from perfci.report import history, past, plots, words
from perfci.report.charts import style
from perfci.report.charts.runs import RunsChart, draw_runs
from perfci.report.html import page as report
from perfci.report.html.markup import Html, inline
from perfci.report.past import Trail, write_day
from perfci.report.site.folder import INDEX, name_page
from perfci.report.site.kept import Kept, OpOnDevice, find_move, last_run_with, list_trails
from perfci.report.steps import quote
from perfci.report.text import NAME_LIMIT, code, plain
from perfci.report.text import plain as escaped
from perfci.report.view import Picture
from perfci.statistics import changepoints

HERE = "perfci.report.site"

OPEN = 40
"""Rows that are shown at first."""

PANELS = 12
"""Most cases of an op that are drawn."""

_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class Trend(StrEnum):
    """How a case went over the kept runs, or an op: its worst case. The gravest come first."""

    DAMAGED = "damaged"
    STEPPED = "stepped"
    STEADY = "steady"
    FEW = "few"
    GONE = "gone"
    ACCURACY = "accuracy"


GATES = {Trend.DAMAGED: "fails", Trend.STEPPED: "warns", Trend.STEADY: "ok"}
"""Colours of states, as those of verdicts. The others have none."""


@dataclass(frozen=True)
class Cell:
    """A finished cell, and the number to sort by."""

    html: Html
    number: float | None = None


@dataclass(frozen=True)
class StateRow:
    """A row of either table."""

    state: Trend
    key: str
    """names it in the page's address"""
    name: Html
    cells: tuple[Cell, ...]
    why: tuple[str, ...] = ()
    """plain sentences, with words between backticks as code"""
    commands: tuple[tuple[str, str], ...] = ()
    """what it is for, and what to type"""

    @property
    def word(self) -> str:
        """Its state in the reader's language."""
        return name_state(self.state)

    @property
    def gate(self) -> str:
        """The class that colours it."""
        return GATES.get(self.state, "")

    @property
    def rank(self) -> int:
        """Of its state, 0 the gravest."""
        return list(Trend).index(self.state)


@dataclass(frozen=True, kw_only=True)
class Entry(StateRow):
    """A row of the index."""

    place: OpOnDevice
    last: str
    """date and commit of the newest run"""
    worst: Html
    """the case that changed most for the worse"""


def name_state(found: Trend) -> str:
    """A state as a chip and a cell have it."""
    return {
        Trend.DAMAGED: say("damaged"),
        Trend.STEPPED: say("step"),
        Trend.STEADY: say("steady"),
        Trend.FEW: say("few runs"),
        Trend.GONE: say("gone"),
        Trend.ACCURACY: say("accuracy"),
    }[found]


# --- an op on a device ------------------------------------------------------------------------------------------------


def render_op(kept: Kept, others: Sequence[OpOnDevice]) -> tuple[str, Entry]:
    """The page of an op on a device, and its row of the index. others: the same op on other devices."""
    place, trails = kept.place, list_trails(kept.past)
    marks = past.find_marks(kept.past, trails)
    rows = sorted((_make_row(trail, kept) for trail in trails), key=lambda row: row.rank)
    rows += _list_errors(kept)
    state = Trend.DAMAGED if kept.damaged else rows[0].state if rows else Trend.FEW
    page: str = report.load_template("op.html.j2", HERE).render(
        **report.make_shell(_style(), report.read_part("page.js"), {"words": _words()}),
        title=say("{op} on {device}: history", op=plain(place.op, 80), device=plain(place.device, 80)),
        gate="",
        op=plain(place.op, NAME_LIMIT),
        device=plain(place.device, NAME_LIMIT),
        word=name_state(state),
        state_gate=GATES.get(state, ""),
        index=f"../{INDEX}",
        others=[(plain(other.device, NAME_LIMIT), f"../{name_page(other)}") for other in others],
        problems=[escaped(sentence(problem)) for problem in kept.problems],
        facts=list(_list_facts(kept)),
        pictures=list(_draw(kept, trails, marks)),
        marks=history.tabulate_marks(marks) if marks else None,
        rows=rows,
        open=OPEN,
        chips=_count_chips(rows),
        columns=(
            ("kernel", say("kernel")),
            ("change", say("over the kept runs")),
            ("speedup", say("speedup")),
            ("runs", say("runs")),
        ),
    )
    return page, _make_entry(kept, trails, state)


def _make_row(trail: Trail, kept: Kept) -> StateRow:
    runs = kept.past.runs
    gone = last_run_with(trail.case, runs)
    few = trail.runs < changepoints.FEWEST
    state = Trend.GONE if gone else Trend.STEPPED if trail.unexplained else Trend.FEW if few else Trend.STEADY
    steps = [change for change in trail.changes if change.unexplained]
    why = [sentence(changepoints.describe_change(change, kept.place.op)) for change in steps]
    if gone:
        why = [say("The last accepted run does not have it: it was taken out or renamed after run {run}.", run=gone)]
    withheld = sum(trail.case in run.inconclusive for run in runs)
    if withheld:
        why.append(say("{count:run|runs} could say nothing about it and were not accepted.", count=withheld))
    speedup = find_speedups(trail)
    cells = (
        Cell(Html(units.time(trail.last_us)), trail.last_us),
        _show_change(trail.change),
        Cell(Html(words.write_ratio(speedup[-1] if speedup else None)), speedup[-1] if speedup else None),
        Cell(Html(str(trail.runs)), trail.runs),
    )
    commands = () if gone else tuple(_list_commands(trail.case, kept))
    return StateRow(state, plain(trail.case, 160), _name_case(trail.case), cells, tuple(why), commands)


def find_speedups(trail: Trail) -> list[float]:
    """Reference / kernel of the runs that have both."""
    known = [each for each in trail.seen if each]
    found = [
        math.exp(-each.shift)
        if each.shift is not None
        else each.reference_us.median_us / each.kernel_us.median_us
        if each.reference_us
        else None
        for each in known
    ]
    return [one for one in found if one is not None]


def _name_case(case: str) -> Html:
    """A case's id, which may go on in the next line behind a comma."""
    return Html(inline(code(case)).source.replace(",", ",<wbr>"))


def _show_change(ratio: float | None) -> Cell:
    known = ratio is not None and math.isfinite(100 * ratio)
    return Cell(Html(words.write_change(ratio if known else None)), float(f"{ratio:.6g}") if known else None)


def _list_commands(case: str, kept: Kept) -> Iterator[tuple[str, str]]:
    """To see it again, to compare it with its past, and to find the change that did it."""
    op, only = quote(kept.place.op), f"--case {quote(case)}"
    yield say("This case now, on a machine with the device:"), f"perfci check {op} {only}"
    commits = [
        run.environment.commit[:12]
        for run in kept.past.runs
        if any(each.case == case for each in run.cases)
        and run.environment.commit
        and _COMMIT.fullmatch(run.environment.commit)
        and not run.environment.dirty
    ]
    if commits and commits[0] != commits[-1]:
        yield (
            say("Side by side with the first kept run:"),
            f"perfci check {op} {only} --against {commits[0]} --duel all",
        )
        yield say("Which change moved it, by duels:"), f"perfci bisect --op {op} {only} {commits[0]} {commits[-1]}"
    yield say("Every run in a terminal:"), f"perfci history --op {op} {only}"


def _list_errors(kept: Kept) -> Iterator[StateRow]:
    """A row an accuracy case and a tensor that is stored in low precision, with the change of its error."""
    for case, values in _errors_by_case(kept.past.runs).items():
        known = [value for value in values if value is not None]
        count = Cell(Html(str(len(known))), len(known))
        dash = Cell(Html("-"))
        cells = (dash, _show_change(find_move(known)), dash, count)
        what = f"{quote(kept.place.op)} --case {quote(case)} --suite accuracy"
        why = (say("Its error in the last kept run: {error}.", error=units.significant(known[-1])),) if known else ()
        commands = ((say("This case now:"), f"perfci check {what}"),)
        yield StateRow(Trend.ACCURACY, plain(f"accuracy/{case}", 160), _name_case(case), cells, why, commands)


def _errors_by_case(runs: Sequence[HistoryRun]) -> dict[str, list[float | None]]:
    """Greatest error of each accuracy case, 99th percentile of each stored tensor, one a run."""
    each_run = [
        {one.case: one.errors.max_abs for one in run.accuracy} | {one.case: one.errors.p99_abs for one in run.stored}
        for run in runs
    ]
    names = dict.fromkeys(case for run in reversed(each_run) for case in run)
    return {case: [run.get(case) for run in each_run] for case in names}


def _list_facts(kept: Kept) -> Iterator[tuple[str, str]]:
    runs = kept.past.runs
    if not runs:
        return
    where = runs[-1].environment
    yield say("device"), plain(where.device.name, 80)
    yield say("accepted runs"), str(len(runs))
    yield say("first"), f"{write_day(runs[0])} {name_commit(runs[0])}"
    yield say("last"), f"{write_day(runs[-1])} {name_commit(runs[-1])}"
    yield say("cases"), str(len(runs[-1].cases))
    yield say("boards"), str(len({run.environment.device.uuid for run in runs} - {None}) or "-")
    yield say("timer"), plain(where.timer or "-", 40)


def name_commit(run: HistoryRun) -> str:
    """The beginning of a run's commit, plain."""
    return plain(run.environment.commit or "-", 60)[:10] + ("+" if run.environment.dirty else "")


def _draw(kept: Kept, trails: Sequence[Trail], marks: Sequence[past.Mark]) -> Iterator[Picture]:
    """Kernel times of the worst cases, then errors of accuracy cases and stored tensors."""
    op = style.fit(kept.place.op, 40)
    drawn = [trail for trail in trails if last_run_with(trail.case, kept.past.runs) is None]
    worst = {trail.case for trail in sorted(drawn, key=lambda trail: trail.rank)[:PANELS]}
    if worst:
        charts = plots.chart_trails([trail for trail in drawn if trail.case in worst], marks, kept.past)
        note = f"{len(worst)} of {len(drawn)} cases, the worst first" if len(worst) < len(drawn) else ""
        figure = draw_runs(charts, f"{op}: kernel over the kept runs", note)
        yield Picture("", say("Kernel times of {op}", op=plain(kept.place.op, 40)), svg=style.save_svg(figure))
    errors = _errors_by_case(kept.past.runs)
    if errors:
        dates = tuple(map(write_day, kept.past.runs))
        charts = [
            RunsChart(plain(case, 160), dates, tuple(values), time=False)
            for case, values in list(errors.items())[:PANELS]
        ]
        note = f"{len(charts)} of {len(errors)} cases" if len(charts) < len(errors) else ""
        figure = draw_runs(charts, f"{op}: greatest errors; of stored tensors the 99th percentile", note)
        yield Picture("", say("Errors of {op}", op=plain(kept.place.op, 40)), svg=style.save_svg(figure))


# --- the index --------------------------------------------------------------------------------------------------------


def _make_entry(kept: Kept, trails: Sequence[Trail], state: Trend) -> Entry:
    """The row of an op. Nothing else of its history is kept in memory."""
    place, runs = kept.place, kept.past.runs
    drawn = [trail for trail in trails if last_run_with(trail.case, runs) is None]
    speedups = [found[-1] for trail in drawn if (found := find_speedups(trail))]
    speedup = statistics.geometric_mean(speedups) if speedups else None
    moved = [trail for trail in drawn if trail.change is not None and trail.change > -1]
    logs = [math.log1p(trail.change or 0.0) for trail in moved]
    worst = max(moved, key=lambda trail: trail.change or 0.0, default=None)
    cells = (
        Cell(Html(words.write_ratio(speedup)), speedup),
        _show_change(math.expm1(statistics.fmean(logs)) if logs else None),
        _show_change(worst.change if worst else None),
        Cell(Html(str(len(runs))), len(runs)),
        Cell(Html(str(sum(run.epoch is not None for run in runs))), sum(run.epoch is not None for run in runs)),
    )
    why = (plain(sentence(kept.problems[0])),) if kept.damaged else ()
    return Entry(
        state, name_page(place), inline(code(place.op)), cells, why, place=place,
        last=f"{write_day(runs[-1])} {name_commit(runs[-1])}" if runs else "-",
        worst=_name_case(worst.case) if worst else Html(""),
    )  # fmt: skip


def render_index(entries: Sequence[Entry], project: str, notes: Sequence[Reason]) -> str:
    """The index of ops and devices."""
    ranked = sorted(entries, key=lambda one: (one.rank, one.place))
    page: str = report.load_template("index.html.j2", HERE).render(
        **report.make_shell(_style(), report.read_part("page.js"), {"words": _words()}),
        title=say("perfci: history of {project}", project=plain(project, 80)),
        gate="",
        project=plain(project, NAME_LIMIT),
        entries=ranked,
        devices=[plain(device, NAME_LIMIT) for device in sorted({one.place.device for one in entries})],
        notes=[escaped(sentence(note)) for note in notes],
        chips=_count_chips(ranked),
        columns=(
            ("speedup", say("speedup")),
            ("change", say("over the kept runs")),
            ("worst", say("worst case")),
            ("runs", say("runs")),
            ("epochs", say("epochs")),
        ),
        open=OPEN,
        plain=plain,
    )
    return page


def _count_chips(rows: Sequence[StateRow]) -> list[tuple[str, str, str, int]]:
    """Trend, its word, its class and how many rows have it."""
    found = [row.state for row in rows]
    return [
        (str(state), name_state(state), GATES.get(state, ""), found.count(state)) for state in Trend if state in found
    ]


def _words() -> dict[str, object]:
    return {**report.name_controls(), "more": say("Show the other rows ({count})", count="{count}")}


def _style() -> str:
    return report.read_part("style.css") + report.read_part("site.css", HERE)
