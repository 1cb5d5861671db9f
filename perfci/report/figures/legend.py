"""The line of samples under a picture's title."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from perfci.report.figures.sheet import WIDTH, Band, Floats, Line, Mark, Points, Sheet
from perfci.report.figures.style import DPI, FONT
from perfci.report.text import columns

LETTER = FONT * 0.56 / 72
"""Width of a letter of the proportional font on the average, inches."""

LEGEND_LINE = 0.16
"""Height of a further line, inches."""

SAMPLE = 0.2
"""Width of a sample, inches."""

Placed = tuple[Mark, Floats, Floats]
"""A mark with its coordinates in pixels."""


def extra(names: Iterable[str]) -> float:
    """Inches by which a picture is higher whose legend takes more than one line."""
    return LEGEND_LINE * max((row for row, _ in _columns(list(names))), default=0)


def _columns(names: Sequence[str]) -> list[tuple[int, float]]:
    """Row and left end, in inches, of each entry."""
    found, row, x = [], 0, 0.1
    for name in names:
        width = SAMPLE + 0.06 + columns(name) * LETTER + 0.2
        if x + width > WIDTH and x > 0.1:
            row, x = row + 1, 0.1
        found.append((row, x))
        x += width
    return found


def places(sheet: Sheet) -> Iterator[tuple[str, float, float]]:
    """Each entry's text, and where its sample begins: inches from the lower left corner, its middle in height."""
    names = [name for name, _ in sheet.legend]
    for name, (row, x) in zip(names, _columns(names), strict=True):
        yield name, x, sheet.height - 0.36 - row * LEGEND_LINE


def samples(sheet: Sheet) -> Iterator[Placed]:
    """The samples of all entries."""
    for (_, mark), (_, x, y) in zip(sheet.legend, places(sheet), strict=True):
        ends = np.array([x, x + SAMPLE]) * DPI
        if isinstance(mark, Points):
            yield mark, ends.mean(keepdims=True), np.array([y * DPI])
        elif isinstance(mark, Band):
            yield mark, ends, (y + np.array([-0.04, 0.04])) * DPI
        elif isinstance(mark, Line):
            yield mark, ends, np.array([y, y]) * DPI
