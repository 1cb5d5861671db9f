"""Cases over the accepted runs, with epochs and steps of the environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfci.core.model import Difference, Gate
from perfci.report.figures import fonts
from perfci.report.figures.sheet import Axis, Line, Mark, Note, Panel, Points, Sheet, boxes, linear, spread, with_title
from perfci.report.figures.style import COLOURS, GRAVE, MARKERS, OTHER, colour_of
from perfci.store.past.series import Point, Series, StoredPoint, StoredSeries

LEAST_SPAN = 0.03
"""An axis shows at least this share on either side of the median, so that small noise looks small."""

MOST_CASES = 8
"""Most panels of a picture."""

_HEIGHT = 1.45
_DATES = 5
"""Most dates on the axis of runs."""

_WORDS = 44
"""Characters of what is written beside a step."""

_ROWS = (0.97, 0.86, 0.75)
"""Heights in turn at which steps are named, so that neighbours do not meet."""


@dataclass(frozen=True)
class Trend:
    """A case of a picture."""

    label: str
    series: Series


@dataclass(frozen=True)
class StoredTrend:
    """A tensor stored in low precision, of a picture."""

    label: str
    series: StoredSeries


_Trends = Sequence[Trend | StoredTrend]
_Points = Sequence[Point | StoredPoint]


def trends(cases: Sequence[Trend], title: str) -> Sheet:
    """A panel a case: medians of the kernel with their quartiles over the runs, and the reference's faintly scaled.

    Runs stand side by side in the order in which they were accepted, whatever time lies between them. The reference is
    scaled to the kernel's first run, so that what moves both is seen to.
    """
    runs = _runs(cases)
    x = _axis(runs, cases)
    height, grid = boxes(len(cases), 1, _HEIGHT)
    panels = [
        _panel(case, row[0], x, runs, labels=index == len(cases) - 1)
        for index, (row, case) in enumerate(zip(grid, cases, strict=True))
    ]
    return Sheet(title, height, tuple(panels), tuple(_legend(cases)))


def stored_trends(cases: Sequence[StoredTrend], title: str) -> Sheet:
    """A panel a tensor: the 99th percentile of its absolute error over the runs, as `trends` has times."""
    runs = _runs(cases)
    x = _axis(runs, cases)
    height, grid = boxes(len(cases), 1, _HEIGHT)
    panels = [
        _stored_panel(case, row[0], x, runs, labels=index == len(cases) - 1)
        for index, (row, case) in enumerate(zip(grid, cases, strict=True))
    ]
    return Sheet(title, height, tuple(panels), tuple(_stored_legend(cases)))


def _stored_panel(
    case: StoredTrend, box: tuple[float, float, float, float], x: Axis, runs: dict[str, int], *, labels: bool
) -> Panel:
    points = case.series.points
    at = tuple(float(runs[point.run.run]) for point in points)
    errors = tuple(point.figures.errors.p99_abs or 0.0 for point in points)
    y = linear(*spread(errors, share=0.25, least=LEAST_SPAN), "p99 abs", most=4, shown=lambda value: f"{value:.4g}")
    marks: list[Mark] = [
        *_steps(points, at, y),
        Line(at, errors, colour_of("kernel"), 0.7, order=3),
        Points(at, errors, colour_of("kernel"), MARKERS["kernel"], order=4, name="p99"),
    ]
    return with_title(Panel(box, x, y, tuple(marks), case.label, x_labels=labels), case.label)


def _runs(cases: _Trends) -> dict[str, int]:
    """Id of each run -> its place, by the longest case first, whose order is the file's."""
    ordered = sorted(cases, key=lambda case: -len(case.series.points))
    ids = dict.fromkeys(point.run.run for case in ordered for point in case.series.points)
    return {name: place for place, name in enumerate(ids)}


def _axis(runs: dict[str, int], cases: _Trends) -> Axis:
    dates = {point.run.run: point.run.created[:10] for case in cases for point in case.series.points}
    step = max(1, -(-len(runs) // _DATES))
    ticks = tuple((float(place), dates[name]) for name, place in runs.items() if place % step == 0)
    return Axis(-0.6, max(len(runs) - 0.4, 0.6), ticks, "accepted runs, in their order")


def _panel(
    case: Trend, box: tuple[float, float, float, float], x: Axis, runs: dict[str, int], *, labels: bool
) -> Panel:
    points = case.series.points
    at = tuple(float(runs[point.run.run]) for point in points)
    medians = tuple(point.figures.kernel_us.median_us for point in points)
    scaled = _reference(points)
    seen = [us for point in points for us in (point.figures.kernel_us.p25_us, point.figures.kernel_us.p75_us)]
    y = linear(*spread([*seen, *medians, *scaled], share=0.25, least=LEAST_SPAN), "us", most=4)
    marks: list[Mark] = [
        *_steps(points, at, y),
        *(_quartiles(point, place) for point, place in zip(points, at, strict=True)),
        Line(at, medians, colour_of("kernel"), 0.7, order=3),
        Points(at, medians, colour_of("kernel"), MARKERS["kernel"], order=4, name="kernel"),
    ]
    if scaled:
        marks.append(Line(at, scaled, COLOURS["reference"], 0.8, "--", order=2, name="reference"))
    return with_title(Panel(box, x, y, tuple(marks), case.label, x_labels=labels), case.label)


def _reference(points: Sequence[Point]) -> tuple[float, ...]:
    """The reference's medians as parts of its first, times the kernel's first; nothing where any is missing."""
    references = [point.figures.reference_us.median_us for point in points if point.figures.reference_us]
    if len(references) < len(points):
        return ()
    first = points[0].figures.kernel_us.median_us / references[0]
    return tuple(first * us for us in references)


def _quartiles(point: Point, place: float) -> Line:
    us = point.figures.kernel_us
    return Line((place, place), (us.p25_us, us.p75_us), colour_of("kernel"), 2.2, order=2, name="quartiles")


def _steps(points: _Points, at: Sequence[float], y: Axis) -> Iterator[Mark]:
    told = 0
    for point, place in zip(points, at, strict=True):
        for name, text, colour, dash in _told(point):
            yield Line((place - 0.5, place - 0.5), (y.low, y.high), colour, 1.0, dash, order=1, name=name)
            height = _ROWS[told % len(_ROWS)]
            right = place - 0.5 > 0.6 * max(at, default=0.0)
            side, align = (-3.0, "right") if right else (3.0, "left")
            yield Note(
                text, place - 0.5, height, data_x=True, shift=(side, 0), align=align, upright="top", colour=colour
            )
            told += 1


def _told(point: Point | StoredPoint) -> Iterator[tuple[str, str, str, str]]:
    if point.steps:
        yield "environment", fonts.drawn(_fields(point.steps), _WORDS), OTHER, ":"
    if point.why is not None:
        yield "epoch", fonts.drawn(point.why, _WORDS), _ACCEPTED, "-"


_ACCEPTED = GRAVE[Gate.FAILS]


def _fields(moved: Sequence[Difference]) -> str:
    first = moved[0]
    rest = f" (+{len(moved) - 1})" if len(moved) > 1 else ""
    return f"{first.field.rpartition('.')[2]} {first.after or '-'}{rest}"


def _legend(cases: Sequence[Trend]) -> Iterator[tuple[str, Mark]]:
    points = [point for case in cases for point in case.series.points]
    yield "kernel, with quartiles", Points((), (), colour_of("kernel"), MARKERS["kernel"], size=4)
    if any(point.figures.reference_us for point in points):
        yield "reference, scaled", Line((), (), COLOURS["reference"], 0.8, "--")
    if any(point.steps for point in points):
        yield "environment changed", Line((), (), OTHER, 1.0, ":")
    if any(point.why is not None for point in points):
        yield "loss accepted", Line((), (), _ACCEPTED, 1.0)


def _stored_legend(cases: Sequence[StoredTrend]) -> Iterator[tuple[str, Mark]]:
    yield "99th percentile of the error", Points((), (), colour_of("kernel"), MARKERS["kernel"], size=4)
    if any(point.steps for case in cases for point in case.series.points):
        yield "environment changed", Line((), (), OTHER, 1.0, ":")
