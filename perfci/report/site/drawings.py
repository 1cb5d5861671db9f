"""Charts of trends: over the accepted runs in their order, with the marks that explain a move.

All charts of a page share their axis, along which a reader follows the runs; dates stand below it, since clocks may go
backwards and runs do not come evenly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfci.core.model import ErrorStats, Gate, HistoryRun
from perfci.core.wording import say
from perfci.report.figures.sheet import Axis, Line, Note, Panel, Points, Sheet, linear, spread
from perfci.report.figures.sheet import Mark as Drawn
from perfci.report.figures.style import COLOURS, EDGE, GRAVE, INK, OTHER, SERIES
from perfci.report.html import sparks
from perfci.report.html.charts import Chart
from perfci.report.html.drawings import MIDDLE, TALL, headed, stacked
from perfci.report.html.markup import Html
from perfci.report.past import day
from perfci.report.site.trend import Accuracy, Case, Kind, Mark, Op, Storage, Values

_EPOCH, _ENVIRONMENT, _BOARD = GRAVE[Gate.FAILS], OTHER, EDGE
_DASHES = {Kind.EPOCH: "-", Kind.ENVIRONMENT: "--", Kind.BOARD: ":"}
_MARKS = {Kind.EPOCH: _EPOCH, Kind.ENVIRONMENT: _ENVIRONMENT, Kind.BOARD: _BOARD}
_WITHHELD = GRAVE[Gate.WARNS]

DATES = (0.12, 0.39, 0.65, 0.9)
"""Where along the axis dates stand, so that none is cut and none runs into the next."""

LETTERS = 15.0
"""Least distance between two marks' letters, pixels; a mark nearer to the one before it has its line alone."""

_ACROSS = 288.0
"""Width of a panel, pixels."""

_LEAST = 0.02
"""A panel shows at least this share on either side of the median, so that small noise looks small."""


@dataclass(frozen=True)
class Scale:
    """A unit in which numbers are short enough to stand beside an axis."""

    factor: float
    unit: str


@dataclass(frozen=True)
class Row:
    """One panel: what it shows, its values a run, and how they are drawn."""

    heading: str
    values: Values
    colour: str = COLOURS["kernel"]
    marker: str = "o"
    around: tuple[Values, ...] = ()
    """lines beside the values: quartiles"""
    faint: str = SERIES[-1]
    tall: float = MIDDLE
    least: float = _LEAST
    reached: tuple[float, ...] = ()
    """what the axis shows besides"""

    @property
    def known(self) -> list[float]:
        """Every number in it."""
        return [value for each in (self.values, *self.around) for value in each if value is not None]


# --- a case's ---------------------------------------------------------------------------------------------------------


def charts(case: Case, runs: Sequence[HistoryRun], axis: Axis) -> Iterator[Chart]:
    """All that there is to draw of a performance case; axis: that of `order`."""
    withheld = [place for place, run in enumerate(runs) if case.case in run.inconclusive]
    drawn = (
        (say("Times over the accepted runs"), _times(case), times_told(case)),
        (say("Use of the device"), _use(case), say("Bandwidth, arithmetic, compilation and memory of each run.")),
        (say("Errors against float64"), errors(tuple(each.errors if each else None for each in case.seen)), ""),
    )
    for title, rows, text in drawn:
        if any(row.known for row in rows):
            yield _chart(title, rows, text or title, axis, case.marks, withheld)


def accuracy(case: Accuracy, marks: Sequence[Mark], axis: Axis) -> Iterator[Chart]:
    """The errors of an accuracy case."""
    rows = errors(case.errors)
    if any(row.known for row in rows):
        title = say("Errors against float64")
        yield _chart(title, rows, title, axis, [mark for mark in marks if mark.kind is not Kind.EPOCH], [])


def storage(case: Storage, marks: Sequence[Mark], axis: Axis) -> Iterator[Chart]:
    """What a tensor stored in low precision loses."""
    fits = power([value for value in case.p99 if value is not None])
    rows = (
        Row(say("99th percentile of the error{unit}", unit=fits.unit), times(case.p99, fits.factor), least=0.1),
        Row(say("clipped, %"), times(case.clip_ratio, 100), _EPOCH, "^", reached=(0.0, 1.0)),
        Row(say("divergence, nats"), case.divergence, INK, "s", reached=(0.0, 0.1)),
    )
    if any(row.known for row in rows):
        title = say("Storage in low precision")
        yield _chart(title, rows, title, axis, [mark for mark in marks if mark.kind is not Kind.EPOCH], [])


def overview(op: Op, axis: Axis) -> Iterator[Chart]:
    """All cases of an op together."""
    rows = (
        Row(say("kernel, all cases, % off the median"), times(op.relative, 100), tall=TALL, reached=(-1.0, 1.0)),
        Row(say("speedup, geometric mean"), op.speedup, INK),
    )
    if any(row.known for row in rows):
        title = say("All cases together")
        text = say("Kernel time over the kept runs: {move:+%}.", move=op.move)
        yield _chart(title, rows, text, axis, op.marks, [])


def times_told(case: Case) -> str:
    """The ends of a trend in words."""
    known = [us for us in case.kernel if us is not None]
    return say(
        "kernel: {count} runs, first {first:us}, last {last:us}, from {low:us} to {high:us}; change {move:+%}",
        count=len(known), first=known[0], last=known[-1], low=min(known), high=max(known), move=case.move,
    )  # fmt: skip


def _times(case: Case) -> tuple[Row, ...]:
    fits = fitting([us for us in (*case.kernel, *case.reference) if us is not None])
    kernel = [each.kernel_us if each else None for each in case.seen]
    other = [each.reference_us if each else None for each in case.seen]
    around = [
        (times([each.p25_us if each else None for each in arm], fits.factor),
         times([each.p75_us if each else None for each in arm], fits.factor))
        for arm in (kernel, other)
    ]  # fmt: skip
    return (
        Row(
            say("kernel, {unit}", unit=fits.unit), times(case.kernel, fits.factor), around=around[0], tall=TALL
        ),
        Row(
            say("reference, {unit}", unit=fits.unit), times(case.reference, fits.factor), COLOURS["reference"], "s",
            around[1], EDGE,
        ),
        Row(say("speedup"), case.speedup, INK),
    )  # fmt: skip


def _use(case: Case) -> tuple[Row, ...]:
    return (
        Row(say("share of the copy bandwidth, %"), times(bandwidth(case), 100), COLOURS["base"]),
        Row(say("TFLOP/s"), tflops(case), COLOURS["base"]),
        Row(say("compile time, s"), tuple(each.compile_s if each else None for each in case.seen), OTHER, least=0.1),
        Row(say("peak memory, MiB"), times(peaks(case), 2**-20), INK),
    )


def errors(found: Sequence[ErrorStats | None]) -> tuple[Row, ...]:
    """The 99th percentile and the greatest absolute error."""
    p99, most = (tuple(getattr(each, name) if each else None for each in found) for name in ("p99_abs", "max_abs"))
    fits = [power([value for value in values if value is not None]) for values in (p99, most)]
    return (
        Row(say("99th percentile of the error{unit}", unit=fits[0].unit), times(p99, fits[0].factor), least=0.1),
        Row(say("greatest error{unit}", unit=fits[1].unit), times(most, fits[1].factor), _EPOCH, "^", least=0.1),
    )


def bandwidth(case: Case) -> Values:
    """Shares of the copy bandwidth of each run's own device, ratios."""
    return tuple(each.bandwidth_share if each else None for each in case.seen)


def tflops(case: Case) -> Values:
    """Tera floating-point operations a second."""
    return tuple(each.flops / each.kernel_us.median_us / 1e6 if each and each.flops else None for each in case.seen)


def peaks(case: Case) -> Values:
    """Bytes."""
    return tuple(each.peak_bytes if each else None for each in case.seen)


def times(values: Sequence[float | None], factor: float) -> Values:
    """The values in another unit."""
    return tuple(None if value is None or not math.isfinite(value) else value * factor for value in values)


def fitting(us: Sequence[float]) -> Scale:
    """The unit in which times of these microseconds have few digits.

    >>> fitting([8.1, 9.3]).unit, fitting([21_000.0]).unit
    ('us', 'ms')
    """
    most = max(us, default=0.0)
    return Scale(1e-6, "s") if most >= 1e7 else Scale(1e-3, "ms") if most >= 1e4 else Scale(1.0, "us")


def power(values: Sequence[float]) -> Scale:
    """The power of ten in which errors are written: as ", 1e-6" behind a heading.

    >>> power([2.4e-7, 3.1e-7]), power([0.5])
    (Scale(factor=10000000.0, unit=', 1e-7'), Scale(factor=1.0, unit=''))
    """
    most = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if most == 0 or 0.01 <= most < 1e4:
        return Scale(1.0, "")
    exponent = max(math.floor(math.log10(most)), -300)  # below that its inverse is no number
    return Scale(10.0**-exponent, f", 1e{exponent}")


# --- parts ------------------------------------------------------------------------------------------------------------


def order(runs: Sequence[HistoryRun]) -> Axis:
    """The runs by their number, with dates where there is room."""
    count = len(runs)
    ticks: dict[str, float] = {}
    for place in () if not runs else (0.5,) if count < 4 else DATES:
        number = min(max(round(place * (count + 1)), 1), count)
        ticks.setdefault(day(runs[number - 1]), float(number))
    label = say("accepted runs in their order")
    return Axis(0.0, count + 1.0, tuple((number, text) for text, number in ticks.items()), label)


def _chart(
    title: str, rows: Sequence[Row], text: str, axis: Axis, marks: Sequence[Mark], withheld: Sequence[int]
) -> Chart:
    shown = [row for row in rows if row.known]
    panels = [(_panel(row, axis, marks, withheld, first=row is shown[0]), row.tall) for row in shown]
    height, placed = stacked(panels, axis)
    return Chart(Sheet(title, height, placed, tuple(_legend(shown, marks, withheld))), text, followed=True)


def _panel(row: Row, axis: Axis, marks: Sequence[Mark], withheld: Sequence[int], *, first: bool) -> Panel:
    y = linear(*spread([*row.known, *row.reached], least=row.least), most=3)
    drawn: list[Drawn] = [_upright(mark, y) for mark in marks]
    drawn += [line for values in row.around for line in _lines(values, row.faint, 0.6)]
    drawn += _lines(row.values, row.colour, 0.9)
    drawn.append(_dots(row))
    if first:
        drawn += _letters(marks, axis)
        drawn += [_withheld(withheld, y)] if withheld else []
    return headed(Panel((0, 0, 0, 0), axis, y, tuple(drawn)), row.heading)


def _dots(row: Row) -> Points:
    points = [(float(place), value) for place, value in enumerate(row.values, 1) if value is not None]
    xs, ys = (tuple(each) for each in zip(*points, strict=True)) if points else ((), ())
    return Points(xs, ys, row.colour, row.marker, size=2.4)


def _lines(values: Values, colour: str, width: float) -> list[Line]:
    """One a stretch of runs that have a value, so that a gap is seen."""
    found, stretch = list[Line](), list[tuple[float, float]]()
    for place, value in enumerate((*values, None), 1):
        if value is not None:
            stretch.append((float(place), value))
            continue
        if len(stretch) > 1:
            xs, ys = (tuple(each) for each in zip(*stretch, strict=True))
            found.append(Line(xs, ys, colour, width))
        stretch = []
    return found


def _upright(mark: Mark, y: Axis) -> Line:
    at = mark.run + 0.5
    return Line((at, at), (y.low, y.high), _MARKS[mark.kind], 0.9, _DASHES[mark.kind], order=1)


def _letters(marks: Sequence[Mark], axis: Axis) -> Iterator[Note]:
    each, last = _ACROSS / (axis.high - axis.low), -math.inf
    for mark in marks:
        at = (mark.run + 0.5) * each
        if at - last >= LETTERS and at < _ACROSS - 12:
            last = at
            yield Note(mark.name, mark.run + 0.5, 1, data_x=True, shift=(1.5, -1), upright="top", bold=True, mono=False)


def _withheld(places: Sequence[int], y: Axis) -> Points:
    low = y.low + 0.05 * (y.high - y.low)
    return Points(tuple(place + 1.0 for place in places), (low,) * len(places), _WITHHELD, "X", size=3.2)


def _legend(rows: Sequence[Row], marks: Sequence[Mark], withheld: Sequence[int]) -> Iterator[tuple[str, Drawn]]:
    if any(row.around for row in rows):
        yield say("median of a run"), Points((), (), COLOURS["kernel"], size=3.4)
        yield say("quartiles"), Line((), (), SERIES[-1], 0.6)
    kinds = {mark.kind for mark in marks}
    names = {Kind.EPOCH: say("epoch"), Kind.ENVIRONMENT: say("environment"), Kind.BOARD: say("another board")}
    for kind, name in names.items():
        if kind in kinds:
            yield name, Line((), (), _MARKS[kind], 0.9, _DASHES[kind])
    if withheld:
        yield say("not accepted"), Points((), (), _WITHHELD, "X", size=3.4)


# --- small ones -------------------------------------------------------------------------------------------------------


def spark(values: Values, marks: Sequence[Mark] = ()) -> Html:
    """A trend as small as a line of text, which says its ends. values: times as ratios - 1 of their median."""
    return sparks.spark(values, [mark.run for mark in marks if mark.parts])
