"""The pictures of what an op stores in low precision, for the page, in the reader's language."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perfci.core import units
from perfci.core.model import Judgement, OpRun, StoredTensor
from perfci.core.wording import say
from perfci.measure.lowprec.advice import way
from perfci.report import figures, lowprec
from perfci.report.figures.lowprec import ACCEPTED, FIGURES, LIMIT, P99, THIS_RUN
from perfci.report.figures.sheet import HEAD, WIDTH, Axis, Mark, Note, Panel, Sheet
from perfci.report.html.charts import Chart, svg
from perfci.report.html.markup import Html
from perfci.report.text import plain


@dataclass(frozen=True)
class Drawing:
    """A picture with what stands above it."""

    title: str
    """plain"""
    drawing: Html


def drawings(op: OpRun, judged: Sequence[Judgement]) -> Iterator[Drawing]:
    """Of each tensor its errors by way of storing it, and its trends where accepted runs have it."""
    for ways in lowprec.chosen(op, judged):
        about = plain(ways[0].family, 120)
        yield _drawn(figures.histograms(ways, ""), say("Errors of storage of {what}", what=about), _errors(ways))
        if any(each.before for each in ways):
            sheet = figures.storage_trends(ways, "", lowprec.limits(ways, judged))
            yield _drawn(sheet, say("Trends of storage of {what}", what=about), _trends(ways))


def _drawn(sheet: Sheet, title: str, text: str) -> Drawing:
    legend = tuple((_WORDS[name]() if name in _WORDS else name, mark) for name, mark in sheet.legend)
    # The page has the title above the picture and its own lines for the legend.
    top = max(panel.box[1] + panel.box[3] for panel in sheet.panels)
    shown = replace(
        sheet, title=title, legend=legend, height=top + HEAD / 2, panels=tuple(_worded(panel) for panel in sheet.panels)
    )
    return Drawing(title, svg(Chart(shown, text, WIDTH)))


def _worded(panel: Panel) -> Panel:
    return replace(panel, x=_axis(panel.x), y=_axis(panel.y), marks=tuple(_mark(mark) for mark in panel.marks))


def _axis(axis: Axis) -> Axis:
    ticks = tuple((at, _said(name)) for at, name in axis.ticks)
    return replace(axis, label=_said(axis.label), ticks=ticks)


def _mark(mark: Mark) -> Mark:
    return replace(mark, text=_said(mark.text)) if isinstance(mark, Note) else mark


def _said(text: str) -> str:
    return _WORDS[text]() if text in _WORDS else text


_WORDS: Mapping[str, Callable[[], str]] = {
    ACCEPTED: lambda: say("accepted run"),
    P99: lambda: say("99th percentile"),
    LIMIT: lambda: say("limit"),
    THIS_RUN: lambda: say("this run"),
    FIGURES[0]: lambda: say("99th percentile of the error"),
    FIGURES[1]: lambda: say("clipped, %"),
    FIGURES[2]: lambda: say("divergence, nats"),
    "absolute error": lambda: say("absolute error"),
    "share of values": lambda: say("share of values"),
    "cumulative share": lambda: say("cumulative share"),
    "now": lambda: say("now"),
}
"""What the pictures say, in the reader's language; it is worded when it is drawn."""


def _errors(ways: Sequence[StoredTensor]) -> str:
    """The curves in numbers, for who does not see them."""
    return "; ".join(
        say("{way}: p50 {p50}, p90 {p90}, p99 {p99}", way=way(each), p50=_number(each.errors.p50_abs),
            p90=_number(each.errors.p90_abs), p99=_number(each.errors.p99_abs))
        for each in ways
    )  # fmt: skip


def _trends(ways: Sequence[StoredTensor]) -> str:
    return "; ".join(
        say(
            "{way}: p99 from {first} to {last}, clipped {clip:%}, divergence {divergence:n}", way=way(each),
            first=_number(each.before[0].p99_abs), last=_number(each.errors.p99_abs), clip=each.clip_ratio,
            divergence=each.divergence,
        )
        for each in ways
        if each.before
    )  # fmt: skip


def _number(value: float | None) -> str:
    return "-" if value is None else units.significant(value)
