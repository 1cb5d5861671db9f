"""What all pictures share: sizes, colours, fonts, titles, legends, and how a PNG is written.

Sizes are inches at DPI dots each. Case ids are set in a monospaced font, so that margins follow from their lengths and
nothing is cut or overlaps.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.model import Gate
from perfci.report.text import glyphs, shorten
from perfci.store.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

DPI = 120
WIDTH = 7.5
LABEL = 44
"""Characters of a case id a line; longer ids take two lines, then lose their middle."""

COLOURS = {"kernel": "#0072B2", "reference": "#8A8A8A", "base": "#009E73"}
"""From Okabe and Ito's palette, told apart with any colour vision, and grey."""

GRAVE = {Gate.FAILS: "#D55E00", Gate.WARNS: "#E69F00", Gate.OK: COLOURS["kernel"]}
MARKERS = {"kernel": "o", "reference": "s", "base": "^"}
OTHER = "#CC79A7"
INK = "#333333"
EDGE = "#999999"
FAINT = "#DDDDDD"
GROUND = "#F0E9D8"

_BLENDS = 16
"""Shades of each colour towards white that a picture keeps, for the edges of lines and letters."""

_FONT = 7.5
MONO = "DejaVu Sans Mono"
CHARACTER = _FONT * 0.602 / 72
"""Width of a character of the monospaced font, inches."""

_STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": _FONT,
    "axes.edgecolor": EDGE,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "text.usetex": False,
}


def style() -> AbstractContextManager[Any]:
    """Fonts and lines of all pictures, whatever the user's matplotlibrc says."""
    import matplotlib as mpl

    wanted: Any = {**mpl.rcParamsDefault, **_STYLE}
    return mpl.rc_context({name: value for name, value in wanted.items() if not name.startswith("backend")})


def save(figure: Figure, file: Path) -> None:
    """Write a small PNG whose bytes depend on nothing but what is drawn: indexed colours, no date, no version."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    figure.set_dpi(DPI)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    drawn = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    indexed = drawn.quantize(palette=_palette(), dither=Image.Dither.NONE)
    # Whole or not at all: a full disk leaves no torn picture.
    whole = io.BytesIO()
    indexed.save(whole, format="PNG", dpi=(DPI, DPI))
    write_atomically(file, whole.getvalue())


@functools.cache
def _palette() -> Image:
    """Our colours, each in steps from itself to white: a picture with few of some colour keeps that colour too."""
    from PIL import Image, ImageColor

    names = dict.fromkeys([*COLOURS.values(), *GRAVE.values(), OTHER, INK, EDGE, "#000000"])
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
    name = glyphs(case, 4 * LABEL)
    if len(name) <= LABEL:
        return name
    breaks = [i + 1 for i, mark in enumerate(name) if mark == ","]
    middle = min(breaks or [len(name) // 2], key=lambda place: abs(place - len(name) / 2))
    return f"{shorten(name[:middle], LABEL)}\n{shorten(name[middle:], LABEL)}"


def panel_title(axes: Axes, text: str, weight: str = "normal") -> None:
    """Above the axes; a text of its own, since matplotlib searches long for a title's best height."""
    axes.annotate(text, (0, 1), (0, 4), "axes fraction", "offset points", family=MONO, color=INK, weight=weight)


def write_legend(figure: Figure, found: Mapping[str, Any]) -> None:
    """In one line under the title."""
    figure.legend(
        list(found.values()),
        list(found),
        loc="center left",
        bbox_to_anchor=(0.0, 1 - 0.36 / figure.get_figheight()),
        ncols=len(found),
        frameon=False,
        handletextpad=0.4,
        columnspacing=1.4,
    )


def colour_of(arm: str) -> str:
    """The colour of an arm; one for all that have none of their own."""
    return COLOURS.get(arm, OTHER)


def canvas(height: float, left: float, right: float, title: str) -> tuple[Figure, Axes]:
    """One pair of axes under a title; margins in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((left / WIDTH, 0.42 / height, (WIDTH - left - right) / WIDTH, (height - 0.72) / height))
    _heading(figure, title)
    return figure, axes


def panels(down: int, across: int, each: float, title: str, *, sharex: bool = False) -> tuple[Figure, Any]:
    """A grid of panels under a title and a line for the legend; each: height of a panel in inches, its title included.

    Gives the figure and its axes, shape (down, across).
    """
    from matplotlib.figure import Figure

    height = 0.95 + each * down
    figure = Figure(figsize=(WIDTH, height))
    grid = figure.subplots(down, across, sharex=sharex, squeeze=False)
    figure.subplots_adjust(0.085, 0.42 / height, 0.985, 1 - 0.72 / height, wspace=0.17, hspace=0.62)
    _heading(figure, title)
    return figure, grid


def _heading(figure: Figure, title: str) -> None:
    figure.text(0.012, 1 - 0.16 / figure.get_figheight(), title, size=9.5, weight="bold", va="center")
