"""How a sheet becomes a small PNG: all panels in a handful of matplotlib's collections, in pixels."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.report.figures import fonts, legend, text_drawing
from perfci.report.figures.legend import LETTER, SAMPLE, Placed
from perfci.report.figures.sheet import TURNED, WIDTH, Band, Floats, Line, Note, Panel, Points, Sheet
from perfci.report.figures.style import (
    BLACK,
    COLOURS,
    DPI,
    EDGE,
    FAINT,
    GRAVE,
    GROUND,
    INK,
    LABEL,
    OTHER,
    SERIES,
)
from perfci.report.text import columns, shorten
from perfci.store.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

_BLENDS = 16
"""Shades of each colour towards white that a picture keeps, for the edges of lines and letters."""

_TICK = 2.5 / 72


def style() -> AbstractContextManager[Any]:
    """Lines of all pictures alike, whatever the user's matplotlibrc says."""
    import matplotlib as mpl

    wanted: Any = mpl.rcParamsDefault
    return mpl.rc_context({name: value for name, value in wanted.items() if not name.startswith("backend")})


def save(sheet: Sheet, file: Path) -> None:
    """Write a small PNG whose bytes depend on nothing but what is drawn: indexed colours, no date, no version."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas: Any = FigureCanvasAgg(figure(sheet))
    canvas.draw()
    drawn = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    text_drawing.write(drawn, texts(sheet))
    indexed = drawn.quantize(palette=_palette(), dither=Image.Dither.NONE)
    # Whole or not at all: a full disk leaves no torn picture.
    whole = io.BytesIO()
    indexed.save(whole, format="PNG", dpi=(DPI, DPI))
    write_atomically(file, whole.getvalue())


@functools.cache
def _palette() -> Image:
    """Our colours, each in steps from itself to white: a picture with few of some colour keeps that colour too."""
    from PIL import Image, ImageColor

    names = dict.fromkeys([*COLOURS.values(), *GRAVE.values(), OTHER, INK, EDGE, BLACK, *SERIES])
    pure = np.array([ImageColor.getrgb(name)[:3] for name in names], dtype=float)
    steps = np.linspace(0, 1, _BLENDS)[:, None, None]
    blends = (pure * (1 - steps) + 255 * steps).round().astype("uint8").tobytes()
    flat = bytes(part for name in (FAINT, GROUND) for part in ImageColor.getrgb(name)[:3])
    found = Image.new("P", (1, 1))
    found.putpalette(blends + flat)
    return found


def label(case: str) -> str:
    """A case id on one or two lines.

    >>> label("rows=4096,cols=1024")
    'rows=4096,cols=1024'
    """
    name = fonts.drawn(case, 4 * LABEL)
    if columns(name) <= LABEL:
        return name
    breaks = [i + 1 for i, mark in enumerate(name) if mark == ","]
    middle = min(breaks or [len(name) // 2], key=lambda place: abs(place - len(name) / 2))
    return f"{shorten(name[:middle], LABEL)}\n{shorten(name[middle:], LABEL)}"


# --- from data to artists ---------------------------------------------------------------------------------------------


def figure(sheet: Sheet) -> Figure:
    """The sheet as a figure without axes and texts: every coordinate is a pixel."""
    from matplotlib.figure import Figure

    found = Figure(figsize=(WIDTH, sheet.height), dpi=DPI)
    scaled = [(mark, xs, ys) for panel in sheet.panels for mark, xs, ys in _placed(panel)]
    scaled += list(legend.samples(sheet))
    for artist in (*_bands(scaled), *_lines(scaled), *_points(scaled)):
        found.add_artist(artist)
    return found


def texts(sheet: Sheet) -> list[tuple[Note, float, float]]:
    """All texts of the picture, with the pixels from its lower left corner at which they stand."""
    return [*_notes(sheet), *(at for panel in sheet.panels for at in _tick_labels(panel))]


def _placed(panel: Panel) -> Iterator[Placed]:
    yield from _frame(panel)
    for mark in panel.marks:
        if isinstance(mark, Line | Points) and mark.xs:
            yield mark, _x(panel, panel.x.at(mark.xs)), _y(panel, panel.y.at(mark.ys))
        elif isinstance(mark, Band):
            across = panel.x.at(mark.x) if mark.x else np.array([0.0, 1.0])
            up = panel.y.at(mark.y) if mark.y else np.array([0.0, 1.0])
            wider = np.array([-1, 1]) * mark.widen * DPI / 72
            yield mark, _x(panel, np.clip(across, 0, 1)) + wider, _y(panel, np.clip(up, 0, 1))


def _x(panel: Panel, shares: Floats) -> Floats:
    return np.asarray((panel.box[0] + panel.box[2] * shares) * DPI)


def _y(panel: Panel, shares: Floats) -> Floats:
    return np.asarray((panel.box[1] + panel.box[3] * shares) * DPI)


def _frame(panel: Panel) -> Iterator[Placed]:
    """The two lines at its left and bottom, ticks, and the grid; on whole pixels, so that they are sharp."""
    left, right = _sharp(_x(panel, np.array([0.0, 1.0])))
    low, high = _sharp(_y(panel, np.array([0.0, 1.0])))
    across = _sharp(_x(panel, panel.x.at([tick for tick, _ in panel.x.ticks])))
    up = _sharp(_y(panel, panel.y.at([tick for tick, _ in panel.y.ticks])))
    for x in across:
        if "x" in panel.grid:
            yield _rule(FAINT, 0.5, [x, x], [low, high], 1)
        yield _rule(EDGE, 0.6, [x, x], [low - _TICK * DPI, low], 1)
    for y in up:
        if "y" in panel.grid:
            yield _rule(FAINT, 0.5, [left, right], [y, y], 1)
        if not panel.mono:
            yield _rule(EDGE, 0.6, [left - _TICK * DPI, left], [y, y], 1)
    yield _rule(EDGE, 0.6, [left, left, right], [high, low, low], 2)


def _rule(colour: str, width: float, xs: Sequence[float], ys: Sequence[float], order: int) -> Placed:
    return Line((), (), colour, width, order=order), np.array(xs), np.array(ys)


def _sharp(pixels: Floats) -> Floats:
    return np.asarray(np.floor(pixels) + 0.5)


def _bands(placed: Iterable[Placed]) -> Iterator[Any]:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba
    from matplotlib.transforms import IdentityTransform

    found = [(m, xs, ys) for m, xs, ys in placed if isinstance(m, Band)]
    if found:
        corners = [np.array([(x[0], y[0]), (x[1], y[0]), (x[1], y[1]), (x[0], y[1])]) for _, x, y in found]
        colours = [to_rgba(band.colour, band.opacity) for band, _, _ in found]
        yield PolyCollection(corners, facecolors=colours, edgecolors="none", transform=IdentityTransform(), zorder=0)


def _lines(placed: Iterable[Placed]) -> Iterator[Any]:
    """One collection an order of drawing."""
    from matplotlib.collections import LineCollection
    from matplotlib.transforms import IdentityTransform

    layers: dict[int, list[Placed]] = {}
    for one in placed:
        if isinstance(one[0], Line):
            layers.setdefault(one[0].order, []).append(one)
    for order, layer in sorted(layers.items()):
        marks = [mark for mark, _, _ in layer if isinstance(mark, Line)]
        yield LineCollection(
            [np.column_stack((xs, ys)) for _, xs, ys in layer],
            colors=[mark.colour for mark in marks],
            linewidths=[mark.width for mark in marks],
            linestyles=[mark.dash for mark in marks],
            transform=IdentityTransform(),
            zorder=order,
        )


def _points(placed: Iterable[Placed]) -> Iterator[Any]:
    """One collection a shape and order of drawing."""
    from matplotlib.collections import PathCollection
    from matplotlib.transforms import IdentityTransform

    groups: dict[tuple[str, int], list[tuple[Points, Floats, Floats]]] = {}
    for mark, xs, ys in placed:
        if isinstance(mark, Points):
            groups.setdefault((mark.marker, mark.order), []).append((mark, xs, ys))
    for (marker, order), group in groups.items():
        each = [mark for mark, xs, _ in group for _ in xs]
        yield PathCollection(
            [_shape(marker)],
            sizes=[mark.size**2 for mark in each],
            offsets=np.column_stack([np.concatenate([one[i] for one in group]) for i in (1, 2)]),
            offset_transform=IdentityTransform(),
            facecolors=["white" if mark.hollow else mark.colour for mark in each],
            edgecolors=[mark.colour for mark in each],
            linewidths=0.9,
            transform=IdentityTransform(),
            zorder=order,
        )


@functools.cache
def _shape(marker: str) -> Any:
    from matplotlib.markers import MarkerStyle

    known = MarkerStyle(marker)
    return known.get_path().transformed(known.get_transform())


# --- texts ------------------------------------------------------------------------------------------------------------


def _notes(sheet: Sheet) -> Iterator[tuple[Note, float, float]]:
    title = Note(sheet.title, 0, 0, mono=False, bold=True, upright="center", large=True, colour=BLACK)
    yield title, 0.012 * WIDTH * DPI, (sheet.height - 0.16) * DPI
    for note in sheet.alone:
        yield note, note.x * DPI, note.y * DPI
    for panel in sheet.panels:
        for mark in panel.marks:
            if isinstance(mark, Note):
                across = panel.x.at([mark.x]) if mark.data_x else np.array([mark.x])
                up = panel.y.at([mark.y]) if mark.data_y else np.array([mark.y])
                yield mark, float(_x(panel, across)[0]), float(_y(panel, up)[0])
    for name, x, y in legend.places(sheet):
        yield Note(name, 0, 0, mono=False, upright="center", colour=BLACK), (x + SAMPLE + 0.06) * DPI, y * DPI


def _tick_labels(panel: Panel) -> Iterator[tuple[Note, float, float]]:
    left, bottom, width, height = (length * DPI for length in panel.box)
    gap: float = (_TICK + 0.03) * DPI
    if panel.x_labels:
        note = Note("", 0, 0, align="center", upright="top", mono=False)
        for (_, name), share in zip(panel.x.ticks, panel.x.at([tick for tick, _ in panel.x.ticks]), strict=True):
            yield _named(note, name), left + width * float(share), bottom - gap
        if panel.x.label:
            yield _named(note, panel.x.label, BLACK), left + width / 2, bottom - gap - 0.145 * DPI
    if panel.y_labels:
        note = Note("", 0, 0, align="right", upright="center", mono=panel.mono)
        for (_, name), share in zip(panel.y.ticks, panel.y.at([tick for tick, _ in panel.y.ticks]), strict=True):
            yield _named(note, name), left - gap, bottom + height * float(share)
    if panel.y.label:
        wide = max((columns(name) for _, name in panel.y.ticks), default=0) * LETTER if panel.y_labels else 0.0
        note = Note(panel.y.label, 0, 0, align=TURNED, mono=False, colour=BLACK)
        yield note, left - gap - (1.15 * wide + 0.11) * DPI, bottom + height / 2


def _named(note: Note, text: str, colour: str | None = None) -> Note:
    return replace(note, text=text, colour=colour or note.colour)
