"""What was accepted before a run, drawn for the page: small trends of all cases, and charts of the gravest."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from perfci.core import units
from perfci.core.model import OpRun, Run
from perfci.core.wording import say
from perfci.report import history, past, plots
from perfci.report.figures.sheet import Axis, Line, Mark, Note, Panel, Sheet
from perfci.report.figures.style import SERIES
from perfci.report.figures.trails import ACCEPTED, ANCHOR, KINDS, QUARTILES, THIS_RUN, Strip, legend, panel
from perfci.report.html.charts import Chart
from perfci.report.html.drawings import MIDDLE, TALL, headed, stacked
from perfci.report.html.markup import Html
from perfci.report.html.sparks import spark
from perfci.report.past import Past, Trail
from perfci.report.text import plain

MOST, MOST_OF_MANY = 6, 2
"""Most cases of an op that get a chart; in a run of more than plots.MANY_CASES the second."""


@dataclass(frozen=True)
class Drawn:
    """What stands in an op's History section beside its tables."""

    sparks: tuple[Html, ...]
    """one a row of its table of cases"""
    charts: tuple[Chart, ...]
    note: str
    """which cases have a chart, where it is not all"""


def drawn(op: OpRun, run: Run, found: Past) -> Drawn:
    """All that is drawn of an op's history, which knows some of its cases."""
    shown = past.trails(op, run, found)
    timed = sum(bool(case.blocks) for each in run.ops for case in each.performance)
    chosen = plots.strips(shown, found, MOST_OF_MANY if timed > plots.MANY_CASES else MOST)
    marks = past.marks(found, shown)
    small = tuple(_spark(trail, [mark.at for mark in marks if mark.about(trail.case)]) for trail in shown)
    return Drawn(small, tuple(map(_chart, chosen)), history.drawn_note(len(chosen), len(shown)))


def _spark(trail: Trail, marks: Sequence[int]) -> Html:
    """Of a case; the median of this run stands behind the others where it may be held against them."""
    known = [us for us in trail.kernel if us is not None]
    middle = statistics.median(known)
    now = trail.now_us / middle - 1 if trail.now_us is not None and trail.change is not None else None
    return spark([None if us is None else us / middle - 1 for us in trail.kernel], marks, now)


def _chart(strip: Strip) -> Chart:
    """Quartiles as two lines: a stroke a run would be most of the page."""
    found = panel(strip, (0, 0, 1, 1))
    x = replace(found.x, label=say("accepted runs in their order"), ticks=tuple(_ticks(found.x)))
    shown = replace(found, y=replace(found.y, label=""), marks=(*_quartiles(strip.trail), *_kept(found)))
    placed = stacked([(headed(shown, say("kernel, us")), TALL + MIDDLE)], x)
    title = plain(strip.trail.case, 80)
    return Chart(Sheet(title, *placed, legend=tuple(_legend(strip))), _told(strip.trail))


def _ticks(x: Axis) -> Iterator[tuple[float, str]]:
    """The dates as they are, and the place of this run in the reader's language."""
    *dates, (at, _) = x.ticks
    yield from dates
    yield at, say("now")


def _kept(shown: Panel) -> Iterator[Mark]:
    """The letters of marks stay; the case's name stands above the chart."""
    strokes = set(map(id, shown.lines(QUARTILES)))
    return (
        mark for mark in shown.marks if id(mark) not in strokes and not (isinstance(mark, Note) and not mark.data_x)
    )


def _quartiles(trail: Trail) -> Iterator[Line]:
    known = [(float(place), each.kernel_us) for place, each in enumerate(trail.seen) if each]
    places = tuple(place for place, _ in known)
    for ends in ([us.p25_us for _, us in known], [us.p75_us for _, us in known]):
        yield Line(places, tuple(ends), SERIES[-1], 0.6)


def _legend(strip: Strip) -> Iterator[tuple[str, Mark]]:
    known = {
        ACCEPTED: say("accepted run"),
        THIS_RUN: say("this run"),
        ANCHOR: say("anchor"),
        KINDS[0]: say("loss accepted"),
        KINDS[1]: say("environment"),
        KINDS[2]: say("step"),
    }
    return ((known[name], mark) for name, mark in legend([strip]))


def _told(trail: Trail) -> str:
    """The ends of a trend in words."""
    known = [us for us in trail.kernel if us is not None]
    return say(
        "kernel: {count} accepted runs, first {first:us}, last {last:us}, from {low:us} to {high:us}; this run: {now}",
        count=len(known), first=known[0], last=known[-1], low=min(known), high=max(known), now=units.time(trail.now_us),
    )  # fmt: skip
