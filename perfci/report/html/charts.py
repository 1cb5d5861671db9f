"""A sheet as SVG, or packed as numbers that the page's own script draws alike when a case is opened.

Colours are classes, so that the page's style decides between light and dark; texts are escaped.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from perfci.core.model import Gate
from perfci.report.figures.sheet import Axis, Band, Line, Mark, Note, Panel, Points, Sheet
from perfci.report.figures.style import BLACK, COLOURS, EDGE, FAINT, GRAVE, GROUND, INK, OTHER, SERIES
from perfci.report.html.markup import Html
from perfci.report.text import columns, plain

INCH = 96
"""Units of the drawing an inch: pixels at its natural size."""

POINT = INCH / 72

NARROW = 3.6
"""Width of most charts, inches: as wide as a phone, so that their letters are readable there."""

LEGEND = 16
"""Height of a line of the legend, pixels."""

_SAMPLE, _LETTER = 18, 6.2
_CLASSES = {
    COLOURS["kernel"]: "b",
    COLOURS["reference"]: "g",
    COLOURS["base"]: "n",
    GRAVE[Gate.FAILS]: "v",
    GRAVE[Gate.WARNS]: "o",
    OTHER: "p",
    SERIES[-1]: "s",
    INK: "i",
    EDGE: "e",
    FAINT: "f",
    GROUND: "d",
    BLACK: "k",
}
_DASHES = {"-": "", "--": "5 3", ":": "1.5 2.5", "-.": "6 2.5 1.5 2.5"}
_ANCHORS = {"left": "", "center": "m", "right": "r"}
_DROPS = {"baseline": 0.0, "center": 3.6, "top": 8.5}
"""How far below its place a text's baseline lies, pixels."""


@dataclass(frozen=True)
class Chart:
    """A sheet with what is said about it; panels' boxes are inches from the lower left corner, the legend is above."""

    sheet: Sheet
    text: str
    """what its series show, in words and numbers"""
    width: float = NARROW
    """inches"""
    followed: bool = False
    """its panels share an axis that counts, along which a reader goes from one to the next"""


def height(chart: Chart) -> float:
    """Pixels, legend included."""
    rows = [row for row, _ in _slots(chart)]
    return chart.sheet.height * INCH + LEGEND * (max(rows) + 1 if rows else 0)


def _slots(chart: Chart) -> list[tuple[int, float]]:
    """Line and left end of each entry of the legend."""
    found, row, x = list[tuple[int, float]](), 0, 4.0
    for name, _ in chart.sheet.legend:
        wide = _SAMPLE + 4 + columns(name) * _LETTER + 12
        if x + wide > chart.width * INCH and x > 4:
            row, x = row + 1, 4.0
        found.append((row, x))
        x += wide
    return found


# --- as SVG -----------------------------------------------------------------------------------------------------------


def svg(chart: Chart) -> Html:
    """The chart as one element, which names and describes itself."""
    tall, wide = height(chart), chart.width * INCH
    kind = "wide" if chart.width > NARROW else "narrow"
    head = (
        f'<svg class="chart {kind}" role="img" viewBox="0 0 {_n(wide)} {_n(tall)}"{_followed(chart)}>'
        f"<title>{_text(chart.sheet.title)}</title><desc>{_text(chart.text)}</desc>"
    )
    panels = (part for one in chart.sheet.panels for part in _panel(one, tall))
    return Html("".join([head, *_legend(chart), *panels, "</svg>"]))


def _followed(chart: Chart) -> str:
    return f' tabindex="0" data-followed="{way(chart)}"' if chart.followed else ""


def way(chart: Chart) -> str:
    """Of a chart that is followed: its panels' left and right end, the axis' low and high one, top and bottom."""
    first, last, tall = chart.sheet.panels[0], chart.sheet.panels[-1], height(chart)
    left, right = first.box[0] * INCH, (first.box[0] + first.box[2]) * INCH
    top, bottom = tall - (first.box[1] + first.box[3]) * INCH, tall - last.box[1] * INCH
    return " ".join(map(_n, (left, right, first.x.low, first.x.high, top, bottom)))


@functools.lru_cache(4096)  # labels of ticks come again and again
def _plain(text: str) -> str:
    return plain(text)


def _text(text: str) -> str:
    return escape(_plain(text))


def _n(value: float) -> str:
    """A coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def _legend(chart: Chart) -> Iterator[str]:
    for (name, mark), (row, x) in zip(chart.sheet.legend, _slots(chart), strict=True):
        middle = LEGEND * row + 8.0
        yield _sample(mark, x, middle)
        yield _label(name, x + _SAMPLE + 4, middle + _DROPS["center"])


def _sample(mark: Mark, x: float, middle: float) -> str:
    if isinstance(mark, Points):
        return _dots(mark, [x + _SAMPLE / 2], [middle])
    if isinstance(mark, Band):
        return _rect(mark, (x, middle - 4), (x + _SAMPLE, middle + 4))
    return _poly(mark, [x, x + _SAMPLE], [middle, middle]) if isinstance(mark, Line) else ""


def _panel(panel: Panel, tall: float) -> Iterator[str]:
    left, right = panel.box[0] * INCH, (panel.box[0] + panel.box[2]) * INCH
    low, high = tall - panel.box[1] * INCH, tall - (panel.box[1] + panel.box[3]) * INCH
    spot = _Spot(panel, left, right, low, high)
    yield from _frame(spot)
    for mark in sorted(panel.marks, key=_order):
        yield _drawn(mark, spot)
    yield from _ticks(spot)


@dataclass(frozen=True)
class _Spot:
    """Where a panel is, pixels from the upper left corner."""

    panel: Panel
    left: float
    right: float
    low: float
    high: float

    def xs(self, values: Sequence[float]) -> list[float]:
        return [self.left + (self.right - self.left) * share for share in _shares(self.panel.x, values)]

    def ys(self, values: Sequence[float]) -> list[float]:
        return [self.low + (self.high - self.low) * share for share in _shares(self.panel.y, values)]


def _shares(axis: Axis, values: Sequence[float]) -> list[float]:
    """As `Axis.at`, without an array for a handful of numbers."""
    if not axis.log:
        wide = axis.high - axis.low
        return [(value - axis.low) / wide for value in values]
    wide = math.log(axis.high / axis.low)
    return [math.log(value / axis.low) / wide for value in values]


def _order(mark: Mark) -> int:
    return 9 if isinstance(mark, Note) else mark.order


def _frame(at: _Spot) -> Iterator[str]:
    panel = at.panel
    xs = at.xs([tick for tick, _ in panel.x.ticks])
    ys = at.ys([tick for tick, _ in panel.y.ticks])
    rules = [f"M{_n(x)} {_n(at.low)}V{_n(at.high)}" for x in xs] if "x" in panel.grid else []
    rules += [f"M{_n(at.left)} {_n(y)}H{_n(at.right)}" for y in ys] if "y" in panel.grid else []
    if rules:
        yield f'<path class="r" d="{"".join(rules)}"/>'
    marks = [f"M{_n(x)} {_n(at.low)}v3" for x in xs] + [f"M{_n(at.left)} {_n(y)}h-3" for y in ys]
    corner = f"M{_n(at.left)} {_n(at.high)}V{_n(at.low)}H{_n(at.right)}"
    yield f'<path class="a" d="{corner}{"".join(marks)}"/>'


def _ticks(at: _Spot) -> Iterator[str]:
    panel = at.panel
    if panel.x_labels:
        for (_, name), x in zip(panel.x.ticks, at.xs([tick for tick, _ in panel.x.ticks]), strict=True):
            yield _label(name, x, at.low + 14, "m")
        if panel.x.label:
            yield _label(panel.x.label, (at.left + at.right) / 2, at.low + 28, "m")
    if panel.y_labels:
        for (_, name), y in zip(panel.y.ticks, at.ys([tick for tick, _ in panel.y.ticks]), strict=True):
            yield _label(name, at.left - 6, y + _DROPS["center"], "r")
    if panel.y.label:
        middle = _n((at.low + at.high) / 2)
        yield f'<text class="m" transform="translate(9 {middle})rotate(-90)">{_text(panel.y.label)}</text>'


def _label(text: str, x: float, y: float, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f'<text{attribute} x="{_n(x)}" y="{_n(y)}">{_text(text)}</text>'


def _drawn(mark: Mark, at: _Spot) -> str:
    if isinstance(mark, Line):
        return _poly(mark, at.xs(mark.xs), at.ys(mark.ys))
    if isinstance(mark, Points):
        return _dots(mark, at.xs(mark.xs), at.ys(mark.ys))
    if isinstance(mark, Note):
        return _noted(mark, at)
    left, right = (
        at.xs([min(max(x, at.panel.x.low), at.panel.x.high) for x in mark.x]) if mark.x else (at.left, at.right)
    )
    low, high = at.ys([min(max(y, at.panel.y.low), at.panel.y.high) for y in mark.y]) if mark.y else (at.low, at.high)
    wider = mark.widen * POINT
    return _rect(mark, (left - wider, high), (right + wider, low))


def _poly(mark: Line, xs: Sequence[float], ys: Sequence[float]) -> str:
    dash = f' stroke-dasharray="{_DASHES[mark.dash]}"' if _DASHES.get(mark.dash) else ""
    points = "L".join(f"{_n(x)} {_n(y)}" for x, y in zip(xs, ys, strict=True))
    return f'<path class="l {_colour(mark.colour)}" stroke-width="{_n(mark.width * POINT)}"{dash} d="M{points}"/>'


def _dots(mark: Points, xs: Sequence[float], ys: Sequence[float]) -> str:
    outline = shape(mark.marker, mark.size * POINT / 2)
    points = "".join(f"M{_n(x)} {_n(y)}{outline}" for x, y in zip(xs, ys, strict=True))
    return f'<path class="{"h" if mark.hollow else "p"} {_colour(mark.colour)}" d="{points}"/>'


def _rect(mark: Band, corner: tuple[float, float], other: tuple[float, float]) -> str:
    (x, y), (right, low) = corner, other
    return (
        f'<rect class="q {_colour(mark.colour)}" fill-opacity="{mark.opacity:g}" x="{_n(x)}" y="{_n(y)}" '
        f'width="{_n(max(right - x, 0.0))}" height="{_n(max(low - y, 0.0))}"/>'
    )


def _noted(note: Note, at: _Spot) -> str:
    x = at.xs([note.x])[0] if note.data_x else at.left + (at.right - at.left) * note.x
    y = at.ys([note.y])[0] if note.data_y else at.low + (at.high - at.low) * note.y
    x, y = x + note.shift[0] * POINT, y - note.shift[1] * POINT + _DROPS[note.upright]
    kinds = [_ANCHORS[note.align], "mono" if note.mono else "", "bold" if note.bold else ""]
    return _label(note.text, x, y, " ".join(filter(None, kinds)))


def _colour(name: str) -> str:
    return f"c{_CLASSES.get(name, 'i')}"


def shape(marker: str, radius: float) -> str:
    """A marker's outline from its middle, as relative steps of a path: the page's script has no shapes of its own.

    >>> shape("s", 2)
    'm-2-2h4v4h-4z'
    """
    r, d = _n(radius), _n(2 * round(radius, 1))  # of the rounded radius, or a circle is none
    outlines = {
        "s": f"m-{r}-{r}h{d}v{d}h-{d}z",
        "^": f"m0-{r}l{r} {d}h-{d}z",
        "v": f"m0 {r}l{r}-{d}h-{d}z",
        "D": f"m0-{d}l{d} {d}l-{d} {d}l-{d}-{d}z",
        "P": f"m-{r} 0h{d}m-{r}-{r}v{d}",
        "X": f"m-{r}-{r}l{d} {d}m-{d} 0l{d}-{d}",
    }
    return outlines.get(marker, f"m-{r} 0a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0-{d} 0")


# --- packed -----------------------------------------------------------------------------------------------------------


@dataclass
class Store:
    """What charts share: series of numbers, axes and styles, each stored once however many charts refer to it."""

    series: list[Any] = field(default_factory=list)
    axes: list[Any] = field(default_factory=list)
    styles: list[Any] = field(default_factory=list)
    _places: dict[Any, int] = field(default_factory=dict)
    _packed: dict[tuple[float | None, ...], int] = field(default_factory=dict)

    def add(self, kind: list[Any], value: Any, key: Any) -> int:
        """The value's place in one of the lists."""
        known = (id(kind), key)
        if known not in self._places:
            self._places[known] = len(kind)
            kind.append(value)
        return self._places[known]

    def numbers(self, values: Iterable[float | None]) -> int:
        """A series: its decimals, then its numbers as integers, each less the one before; null where there is none."""
        given = tuple(values)
        if given not in self._packed:  # a line's numbers are those of its markers, and of a table
            found = tuple(_deltas(given))
            self._packed[given] = self.add(self.series, found, found)
        return self._packed[given]

    def style(self, *parts: Any) -> int:
        """How something is drawn."""
        return self.add(self.styles, parts, parts)

    def axis(self, axis: Axis) -> int:
        """Ends, whether it is logarithmic, its label, and its ticks with theirs."""
        ticks = [[_short(tick), _plain(name)] for tick, name in axis.ticks]
        value = [_short(axis.low), _short(axis.high), int(axis.log), _plain(axis.label), ticks]
        return self.add(self.axes, value, repr(value))


def _deltas(values: Sequence[float | None]) -> Iterator[int | None]:
    places = digits(values)
    yield places
    before = 0
    for value in values:
        if value is None or not math.isfinite(value):
            yield None
        else:
            now = round(value * 10**places)
            yield now - before
            before = now


def digits(values: Sequence[float | None]) -> int:
    """Decimals that packed numbers keep: a thousandth of what the series spans, which no eye sees in a chart.

    >>> digits([4.93, None, 5.01]), digits([212345.25, 212845.0]), digits([1980.0, 1755.0])
    (5, 2, 0)
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known or all(value == round(value) for value in known):
        return 0
    span = max(known) - min(known) or max(map(abs, known))
    return min(max(math.ceil(3 - math.log10(span)), 2), 9)


def _short(value: float) -> float:
    found = float(f"{value:.6g}")
    return int(found) if found == int(found) and abs(found) < 1e15 else found


def packed(chart: Chart, store: Store) -> list[Any]:
    """Title, description, size, legend and panels, as `page.js` reads them; what charts share is in the store."""
    legend = tuple(
        (_plain(name), *_packed_style(mark, store), row, _short(x))
        for (name, mark), (row, x) in zip(chart.sheet.legend, _slots(chart), strict=True)
    )
    panels = [_packed_panel(panel, height(chart), store) for panel in chart.sheet.panels]
    size = [_short(round(chart.width * INCH, 1)), _short(round(height(chart), 1))]
    found = [store.style(_plain(chart.sheet.title)), _plain(chart.text), size, store.style(*legend), panels]
    return [*found, way(chart)] if chart.followed else found


def _packed_panel(panel: Panel, tall: float, store: Store) -> list[Any]:
    left, bottom, width, high = (length * INCH for length in panel.box)
    box = [_short(round(one, 1)) for one in (left, left + width, tall - bottom, tall - bottom - high)]
    marks = [_packed_mark(mark, store) for mark in sorted(panel.marks, key=_order)]
    place = store.style(*box, panel.grid, int(panel.x_labels), int(panel.y_labels))
    return [place, store.axis(panel.x), store.axis(panel.y), marks]


def _packed_style(mark: Mark, store: Store) -> tuple[int, int]:
    """Its kind, and the place of its style."""
    if isinstance(mark, Line):
        return 0, store.style(_colour(mark.colour), _n(mark.width * POINT), _DASHES.get(mark.dash, ""))
    if isinstance(mark, Points):
        return 1, store.style(_colour(mark.colour), int(mark.hollow), shape(mark.marker, mark.size * POINT / 2))
    if isinstance(mark, Band):
        return 2, store.style(_colour(mark.colour), f"{mark.opacity:g}", _short(mark.widen * POINT))
    kinds = [_ANCHORS[mark.align], "mono" if mark.mono else "", "bold" if mark.bold else ""]
    moved = [_short(mark.shift[0] * POINT), _short(_DROPS[mark.upright] - mark.shift[1] * POINT)]
    return 3, store.style(" ".join(filter(None, kinds)), *moved, int(mark.data_x), int(mark.data_y))


def _packed_mark(mark: Mark, store: Store) -> list[Any]:
    head = _packed_style(mark, store)
    if isinstance(mark, Line | Points):
        return [*head, store.numbers(mark.xs), store.numbers(mark.ys)]
    if isinstance(mark, Note):
        return [*head, store.style(_plain(mark.text)), _short(mark.x), _short(mark.y)]
    ends = (mark.x, mark.y)
    return [*head, *(list(map(_short, one)) if one else 0 for one in ends)]


def thinned(values: Any, most: int) -> Any:
    """At most so many of the values, evenly spaced in order of size, both ends among them."""
    ordered = np.sort(np.asarray(values, dtype=float))
    if ordered.size <= most:
        return ordered
    return ordered[np.linspace(0, ordered.size - 1, most).round().astype(int)]
