"""Storage in low precision: histograms of errors with their cumulative curves, and trends over accepted runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfci.core.model import ErrorHistogram, StoredTensor
from perfci.measure.lowprec.advice import dense, way
from perfci.measure.lowprec.storage import BINS, EDGES
from perfci.report.figures import fonts, legend
from perfci.report.figures.sheet import (
    Axis,
    Floats,
    Line,
    Mark,
    Panel,
    Points,
    Sheet,
    boxes,
    linear,
    logarithmic,
    with_title,
)
from perfci.report.figures.style import BLACK, INK, SERIES, SHAPES

ACROSS = 4
"""Most ways side by side in a picture."""

LEFT_OUT = 0.02
"""Share of the values, those of the least errors, that may lie left of the axis."""

LEAST_DECADES = 3.0

ACCEPTED, P99, LIMIT, THIS_RUN = "accepted run", "99th percentile", "limit", "this run"

_HEIGHT = 1.32
_TREND = 1.75
_TICKS = 5
"""Most powers of ten below a panel, where four stand side by side."""

_SPARE = 0.22
"""Room below the lowest labels that is not needed, inches."""

_TITLE = 34
"""Characters of the title of a panel."""


@dataclass(frozen=True)
class Column:
    """Ways that share a panel, since only the dtype tells them apart."""

    name: str
    ways: tuple[StoredTensor, ...]


def columns(ways: Sequence[StoredTensor]) -> tuple[Column, ...]:
    """The ways of one tensor by everything but the dtype, in their order."""
    found: dict[str, tuple[StoredTensor, ...]] = {}
    for each in ways:
        name = ", ".join(part for part in way(each).split(",") if not part.startswith("dtype=")) or each.mode
        found[name] = (*found.get(name, ()), each)
    return tuple(Column(name, own) for name, own in found.items())


def dtypes(ways: Sequence[StoredTensor]) -> Mapping[str, str]:
    """A colour a dtype."""
    names = dict.fromkeys(each.dtype for each in ways)
    return {name: SERIES[place % len(SERIES)] for place, name in enumerate(names)}


# --- histograms -------------------------------------------------------------------------------------------------------


def histograms(ways: Sequence[StoredTensor], title: str) -> Sheet:
    """Ways of storing one tensor side by side: above the share of values by error, below how many err at most so.

    Both axes of the upper panels are logarithmic, and all panels share theirs, so that ways can be compared by eye. The
    newest accepted run's histogram stands behind.
    """
    cols = columns(ways)[:ACROSS]
    height, grid = boxes(2, len(cols), _HEIGHT, left=0.66, gap=0.24, title=0.24)
    x, shares, colours = _errors(ways), _shares(ways), dtypes(ways)
    panels = []
    for place, column in enumerate(cols):
        first = place == 0
        upper = tuple(mark for each in column.ways for mark in _histogram(each, x, shares, colours[each.dtype]))
        lower = tuple(mark for each in column.ways for mark in _cumulative(each, x, colours[each.dtype]))
        cumulative = Axis(0.0, 1.04, ((0.0, "0"), (0.5, "0.5"), (1.0, "1")), "cumulative share" if first else "")
        top = Panel(
            grid[0][place], x, _labelled(shares, "share of values" if first else ""), upper, grid="xy",
            x_labels=False, y_labels=first,
        )  # fmt: skip
        panels.append(with_title(top, fonts.drawn(column.name, _TITLE)))
        panels.append(Panel(grid[1][place], x, cumulative, lower, column.name, grid="xy", y_labels=first))
    return _fitted(Sheet(title, height, tuple(panels), tuple(_legend(ways, colours))), _SPARE)


def _fitted(sheet: Sheet, spare: float) -> Sheet:
    """With room for all lines of the legend, and without the spare room at its foot, inches."""
    lowered = tuple(replace(panel, box=(panel.box[0], panel.box[1] - spare, *panel.box[2:])) for panel in sheet.panels)
    more = legend.extra(name for name, _ in sheet.legend)
    return replace(sheet, height=sheet.height - spare + more, panels=lowered)


def _labelled(axis: Axis, label: str) -> Axis:
    return Axis(axis.low, axis.high, axis.ticks, label, axis.log)


def _errors(ways: Sequence[StoredTensor]) -> Axis:
    """All errors but the LEFT_OUT least."""
    found = [each for one in ways for each in (one.histogram, one.accepted) if each and dense(each).any()]
    lows, highs = zip(*(_ends(each) for each in found), strict=True) if found else ((EDGES[0],), (EDGES[-1],))
    high = max(highs)
    low = min(*lows, high / 10**LEAST_DECADES)
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    step = -(-(last - first + 1) // _TICKS)
    ticks = tuple((10.0**power, _power(10.0**power)) for power in range(last, first - 1, -step))
    return Axis(low, high, ticks, "absolute error", log=True)


def _ends(found: ErrorHistogram) -> tuple[float, float]:
    """The edges between which nearly all errors lie."""
    counts = dense(found)
    below = np.cumsum(counts) / counts.sum()
    first = int(np.searchsorted(below, LEFT_OUT, side="right"))
    last = int(np.flatnonzero(counts)[-1])
    return EDGES[max(first - 1, 0)], EDGES[min(max(last, 1), BINS - 2)]


def _power(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("1e0", "1")


def _shares(ways: Sequence[StoredTensor]) -> Axis:
    most = max((each.errors.count for each in ways), default=1)
    return logarithmic(10.0 ** math.floor(math.log10(1 / max(most, 10))), 1.0, shown=_power)


def _histogram(found: StoredTensor, x: Axis, y: Axis, colour: str) -> Iterator[Mark]:
    if found.accepted and any(found.accepted.counts):
        yield Line(*_steps(found.accepted, x, y.low), colour, 0.8, ":", order=2, name=ACCEPTED)
    if any(found.histogram.counts):
        yield Line(*_steps(found.histogram, x, y.low), colour, 1.1, order=3, name=found.dtype)


def _steps(found: ErrorHistogram, x: Axis, floor: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The outline of the bins that the axis shows; what lies beyond the highest edge stands in the last of them."""
    counts = dense(found)
    shares = counts / counts.sum()
    shares[BINS - 2] += shares[BINS - 1]
    xs, ys = [], []
    for place in range(1, BINS - 1):
        left, right = EDGES[place - 1], EDGES[place]
        if left >= x.low * 0.999 and right <= x.high * 1.001:
            xs += [left, right]
            ys += [max(float(shares[place]), floor)] * 2
    return tuple(xs), tuple(ys)


def _cumulative(found: StoredTensor, x: Axis, colour: str) -> Iterator[Mark]:
    if found.accepted and any(found.accepted.counts):
        yield Line(*_risen(found.accepted, x), colour, 0.8, ":", order=2, name=ACCEPTED)
    if any(found.histogram.counts):
        yield Line(*_risen(found.histogram, x), colour, 1.1, order=3, name=found.dtype)
    p99 = found.errors.p99_abs
    if p99 is not None and x.low <= p99 <= x.high:
        yield Points((p99,), (0.99,), colour, "v", size=4.4, order=4, name=P99)


def _risen(found: ErrorHistogram, x: Axis) -> tuple[tuple[float, ...], tuple[float, ...]]:
    counts: Floats = dense(found)
    below = np.cumsum(counts) / counts.sum()
    ends = [(edge, float(share)) for edge, share in zip(EDGES, below, strict=False)]
    known = [(edge, share) for edge, share in ends if x.low * 0.999 <= edge <= x.high * 1.001]
    return tuple(edge for edge, _ in known), tuple(share for _, share in known)


def _legend(ways: Sequence[StoredTensor], colours: Mapping[str, str]) -> Iterator[tuple[str, Mark]]:
    for name, colour in colours.items():
        yield fonts.drawn(name, 24), Line((), (), colour, 2.0)
    yield P99, Points((), (), INK, "v", size=4.4)
    if any(each.accepted for each in ways):
        yield ACCEPTED, Line((), (), INK, 0.8, ":")


# --- trends -----------------------------------------------------------------------------------------------------------

FIGURES = ("99th percentile of the error", "clipped, %", "divergence, nats")

_NOTHING = (1e-3, 1.0, 0.1)
"""Upper ends of the panels where all figures are 0."""


@dataclass(frozen=True)
class Limits:
    """What a panel of trends is held to, where it is known; clip ratio in per cent."""

    p99: float | None = None
    clip: float | None = None
    divergence: float | None = None

    @property
    def each(self) -> tuple[float | None, ...]:
        """In the order of the panels."""
        return self.p99, self.clip, self.divergence


def trends(ways: Sequence[StoredTensor], title: str, limits: Limits) -> Sheet:
    """The three figures that have thresholds, over the accepted runs in their order, with this run at the end.

    Ways beyond those that have a colour and a marker of their own are left to the tables.
    """
    shown = [each for each in ways if each.before][: len(SERIES)]
    height, grid = boxes(1, len(FIGURES), _TREND, left=0.6, gap=0.62, title=0.24)
    dates = tuple(each.created[:10] for each in max((one.before for one in shown), key=len))
    panels = [
        _trend(shown, place, name, grid[0][place], dates, limits.each[place]) for place, name in enumerate(FIGURES)
    ]
    return _fitted(Sheet(title, height, tuple(panels), tuple(_named(shown, limits))), _SPARE + 0.1)


def _trend(
    ways: Sequence[StoredTensor],
    place: int,
    name: str,
    box: tuple[float, float, float, float],
    dates: Sequence[str],
    limit: float | None,
) -> Panel:
    lines = [_values(each)[place] for each in ways]
    most = max(value for values in lines for value in values)
    least = min(value for values in lines for value in values)
    top = max(most, limit or 0.0) or _NOTHING[place]
    # A share and a divergence begin at nothing; of an error the changes are looked for.
    low = 0.0 if place else max(least - 0.25 * (top - least or top), 0.0)
    y = linear(low - 0.03 * (top - low), top + 0.12 * (top - low), most=4, shown=lambda value: f"{value:.3g}")
    count = len(dates)
    ticks = ((0.0, dates[0]), (float(count), "now")) if count > 1 else ((float(count), "now"),)
    x = Axis(-0.04 * count - 0.4, count + 0.04 * count + 0.4, ticks)
    marks = [mark for index, values in enumerate(lines) for mark in _line(values, index, count)]
    if limit is not None:
        marks.append(Line((x.low, x.high), (limit, limit), BLACK, 0.9, "--", order=1, name=LIMIT))
    return with_title(Panel(box, x, y, tuple(marks), name), name)


def _line(values: Sequence[float], index: int, count: int) -> Iterator[Mark]:
    """The accepted runs, and this one behind them; ways whose figures are alike are told apart by their markers."""
    xs = tuple(float(at) for at in range(count + 1 - len(values), count + 1))
    colour, marker = SERIES[index], SHAPES[index]
    yield Line(xs, tuple(values), colour, 0.8, order=2)
    yield Points(xs[:-1], tuple(values[:-1]), colour, marker, hollow=True, size=3.0, order=3)
    yield Points(xs[-1:], tuple(values[-1:]), colour, marker, size=4.6, order=4, name=THIS_RUN)


def _values(found: StoredTensor) -> tuple[tuple[float, ...], ...]:
    """Of each panel: the accepted runs' figures, then this run's."""
    p99 = (*(each.p99_abs or 0.0 for each in found.before), found.errors.p99_abs or 0.0)
    clip = (*(each.clip_ratio for each in found.before), found.clip_ratio)
    divergence = (*(each.divergence for each in found.before), found.divergence)
    return p99, tuple(100 * each for each in clip), divergence


def _named(ways: Sequence[StoredTensor], limits: Limits) -> Iterator[tuple[str, Mark]]:
    for index, each in enumerate(ways):
        name = fonts.drawn(way(each).replace("scaling=", "").replace("dtype=", ""), 34)
        yield name, Points((), (), SERIES[index], SHAPES[index], size=4.6)
    if any(each is not None for each in limits.each):
        yield LIMIT, Line((), (), BLACK, 0.9, "--")
    yield THIS_RUN, Points((), (), BLACK, "o", size=4.6)
