"""A picture as plain data: panels with their axes and what is drawn in them, in the units of the data.

Drawing is left to `canvas`, which puts all panels of a picture into a handful of matplotlib's collections: its own axes
cost 15 ms each to make and 40 ms to draw, and a report has hundreds of panels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from perfci.report.figures.style import INK

WIDTH = 7.5
"""Of every picture, inches."""

HEAD = 0.47
"""Room for the title and one line of the legend, inches."""

FOOT = 0.42
"""Room for the labels of the lowest panels' axes, inches."""

_NICE = (1.0, 2.0, 2.5, 5.0, 10.0)

TURNED = "turned"
"""Alignment of a text that runs upwards, centred where it stands."""

WIDE = 3.0
"""Greatest / least from which an axis of times is logarithmic."""

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Axis:
    """One direction of a panel: its ends, its ticks with their labels, and what it shows."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()
    label: str = ""
    log: bool = False

    def at(self, values: Sequence[float] | Floats) -> Floats:
        """Where values stand, 0 at the low end and 1 at the high one."""
        data = np.asarray(values, dtype=float)
        if not self.log:
            return np.asarray((data - self.low) / (self.high - self.low))
        return np.asarray(np.log(data / self.low) / math.log(self.high / self.low))


def linear(
    low: float, high: float, label: str = "", *, most: int = 5, shown: Callable[[float], str] | None = None
) -> Axis:
    """An axis with round ticks, `most` at the most; shown: how one of them is written."""
    if not low < high:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    ticks = round_steps(low, high, most)
    digits = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9)) if len(ticks) > 1 else 0
    if len(ticks) > 1 and not math.isclose(round(ticks[1] - ticks[0], digits), ticks[1] - ticks[0]):
        digits += 1
    write = shown or (lambda value: f"{value:.{digits}f}")
    return Axis(low, high, tuple((tick, write(tick)) for tick in ticks), label)


def round_steps(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten between the two, `most` at the most.

    >>> round_steps(0, 1, 5)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    for nice in (*_NICE, 20.0):
        step = nice * power
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            return [index * step for index in range(first, last + 1)]
    return []


def logarithmic(low: float, high: float, label: str = "", *, shown: Callable[[float], str] | None = None) -> Axis:
    """An axis of powers of ten, with steps between them where it spans few."""
    if not low < high:
        low, high = low / 1.5, high * 1.5
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    span = math.log10(high / low)
    inside: list[float] = []
    for steps, every in (((1,), max(1, round(span / 7))), ((1, 3), 1), ((1, 2, 5), 1)):
        ticks = [step * 10.0**power for power in range(first, last + 1, every) for step in steps]
        inside = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(inside) >= 4:
            break
    if len(inside) < 3:
        inside = round_steps(low, high, 4)
    write = shown or (lambda value: f"{value:.10g}")
    return Axis(low, high, tuple((tick, write(tick)) for tick in inside), label, log=True)


def powers(low: float, high: float, label: str, *, shown: Callable[[float], str]) -> Axis:
    """A logarithmic axis of powers of two, as sizes are chosen; five of them or so."""
    if not low < high:
        low, high = low / 2, high * 2
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    step = max(1, -(-(last - first) // 6))
    ticks = [2.0**power for power in range(first, last + 1, step)]
    return Axis(low, high, tuple((tick, shown(tick)) for tick in ticks), label, log=True)


@dataclass(frozen=True)
class Line:
    """A line through points; dash: -, -- or a colon."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    colour: str = INK
    width: float = 1.0
    dash: str = "-"
    order: int = 2
    name: str = ""
    """what it shows, for who reads the data"""


@dataclass(frozen=True)
class Points:
    """Markers: o, s, ^, D, v, P or X."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    colour: str = INK
    marker: str = "o"
    hollow: bool = False
    size: float = 3.4
    """diameter, points"""
    order: int = 3
    name: str = ""


@dataclass(frozen=True)
class Band:
    """A filled rectangle; None reaches the panel's end."""

    x: tuple[float, float] | None
    y: tuple[float, float] | None
    colour: str
    opacity: float = 1.0
    order: int = 0
    widen: float = 0.0
    """points that it is wider by on either side, so that a point in time is seen"""


@dataclass(frozen=True)
class Note:
    """A text at a place of the panel: of its axes from 0 to 1, or of the data where `data`."""

    text: str
    x: float
    y: float
    data_x: bool = False
    data_y: bool = False
    shift: tuple[float, float] = (0.0, 0.0)
    """points that it is moved by"""
    align: str = "left"
    """left, center, right, or TURNED"""
    upright: str = "baseline"
    """baseline, center or top"""
    colour: str = INK
    mono: bool = True
    bold: bool = False
    large: bool = False


Mark = Line | Points | Band | Note


@dataclass(frozen=True)
class Panel:
    """A pair of axes and its marks; the box is left, bottom, width and height in inches."""

    box: tuple[float, float, float, float]
    x: Axis
    y: Axis
    marks: tuple[Mark, ...] = ()
    name: str = ""
    """the case that it shows"""
    grid: str = "y"
    """axes whose ticks have lines: "", x, y or xy"""
    x_labels: bool = True
    y_labels: bool = True
    mono: bool = False
    """tick labels of y are case ids"""

    def notes(self) -> list[str]:
        """All texts in it."""
        return [mark.text for mark in self.marks if isinstance(mark, Note)]

    def lines(self, name: str | None = None) -> list[Line]:
        """Its lines, or those of a name."""
        return [mark for mark in self.marks if isinstance(mark, Line) and name in {None, mark.name}]

    def points(self, name: str | None = None) -> list[Points]:
        """Its markers, or those of a name."""
        return [mark for mark in self.marks if isinstance(mark, Points) and name in {None, mark.name}]


@dataclass(frozen=True)
class Sheet:
    """One picture."""

    title: str
    height: float
    """inches"""
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, Mark], ...] = ()
    """what a sample shows, and the sample, whose coordinates do not matter"""
    alone: tuple[Note, ...] = field(default=())
    """texts that belong to no panel: places are inches from the lower left corner"""


def boxes(
    down: int,
    across: int,
    each: float,
    *,
    left: float = 0.64,
    right: float = 0.11,
    gap: float = 0.55,
    title: float = 0.3,
) -> tuple[float, list[list[tuple[float, float, float, float]]]]:
    """Boxes of a grid of panels by row and column, under a heading, and the height of the picture.

    each: height of a panel, inches, with `title` of it above it.
    """
    height = HEAD + FOOT + each * down
    width = (WIDTH - left - right - gap * (across - 1)) / across
    grid = [
        [
            (left + column * (width + gap), height - HEAD - each * (row + 1) + _BELOW, width, each - title - _BELOW)
            for column in range(across)
        ]
        for row in range(down)
    ]
    return height, grid


_BELOW = 0.12
"""Room under a panel that the next one's title does not use, inches."""


def spread(values: Iterable[float], *, share: float = 0.08, least: float = 0.0) -> tuple[float, float]:
    """Ends of an axis that shows all values with some room, and at least `least` of the median on either side."""
    data = np.asarray(list(values), dtype=float)
    middle = float(np.median(data))
    low, high = min(float(data.min()), middle * (1 - least)), max(float(data.max()), middle * (1 + least))
    room = share * (high - low) or abs(middle) * share or 1.0
    return low - room, high + room


def with_title(panel: Panel, text: str, *, bold: bool = False) -> Panel:
    """The panel with a text above it."""
    return replace(panel, marks=(*panel.marks, Note(text, 0, 1, shift=(0, 4), bold=bold)), name=panel.name or text)
