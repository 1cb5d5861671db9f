"""What all charts share. In Chinese they need a font with its letters: without one their words are in English."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.core.model import Fact, Gate
from perfci.core.units import significant
from perfci.core.wording import ENGLISH, fill, speaking, spoken, translate
from perfci.report.text import columns, plain, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = np.ndarray[Any, np.dtype[np.float64]]

COLOURS = {"kernel": "#0072B2", "base": "#009E73", "reference": "#8A8A8A"}
"""The arms that are drawn, in this order, in colours of Okabe and Ito, which any eye can distinguish."""

MARKERS = {"kernel": "o", "base": "^", "reference": "s"}
DASHES = {"kernel": "-", "base": (0, (5, 1.5)), "reference": (0, (1.5, 1))}
GATES = {Gate.FAILS: "#D55E00", Gate.WARNS: "#C98500", Gate.OK: "#0072B2"}
INK, QUIET, GROUND = "#333333", "#6B6B6B", "#F0E9D8"
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of lines that differ in colour alone, in this order."""

SHAPES = ("o", "s", "^", "D", "v", "P")

WIDTH = 9.0  # width of every picture, inches
DPI = 200
LETTER = 0.068  # average width of a letter of 8 points, inches
PANELS = 12  # most panels of an overview

STYLE = {
    "font.size": 8,
    "text.parse_math": False,
    "text.hinting": "none",
    "axes.edgecolor": "#999999",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 8,
    "axes.titlepad": 4,
    "axes.labelpad": 2,
    "axes.labelsize": 7.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E8E8E8",
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.frameon": False,
    "legend.fontsize": 8,
}


FONTS = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei", "Microsoft YaHei", "SimHei", "PingFang SC", "Droid Sans Fallback",
)  # fmt: skip
"""Fonts with the letters of Chinese, the best first."""

_CHINESE = re.compile("[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]+")


@functools.cache
def find_font() -> str | None:
    """The font for Chinese that is installed here. None if there is none."""
    from matplotlib import font_manager

    listed = {font.name for font in font_manager.fontManager.ttflist}
    if listed.isdisjoint(FONTS):  # matplotlib's list may be older than the font
        for file in {*font_manager.findSystemFonts()} - {font.fname for font in font_manager.fontManager.ttflist}:
            with contextlib.suppress(Exception):  # whatever its parser makes of a foreign file
                font_manager.fontManager.addfont(file)
        listed = {font.name for font in font_manager.fontManager.ttflist}
    return next((name for name in FONTS if name in listed), None)


def _find_language() -> str:
    """The language of pictures. Fonts are looked for only where they matter, since that reads every font there is."""
    return spoken() if spoken() != ENGLISH and find_font() else ENGLISH


def caption(english: str, **facts: Fact) -> str:
    """A text of a picture: `say` of it, in English if no font here has the reader's letters."""
    with speaking(_find_language()):
        return fill(translate(english), facts)


def caption_of(text: str) -> str:
    """A text for a picture that was given by `as_fact`, such as an arm's name."""
    with speaking(_find_language()):
        return translate(text)


@contextmanager
def apply_style() -> Iterator[None]:
    """Settings under which figures are drawn and saved, whatever the user's are."""
    import matplotlib as mpl

    font = find_font() if _find_language() != ENGLISH else None
    fonts = {"font.family": [font, "DejaVu Sans"]} if font else {}
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # few of these fonts have a bold one
    with mpl.rc_context({**mpl.rcParamsDefault, **STYLE, **fonts, "backend": mpl.rcParams._get("backend")}):  # type: ignore[dict-item]
        yield


def fit(name: str, limit: int) -> str:
    """A foreign name in one line of at most `limit` letters. A letter that no font here has becomes its code point."""
    drawn = _CHINESE if _find_language() != ENGLISH else None
    return glyphs(name, limit, drawn)


def glyphs(text: str, limit: int, drawn: re.Pattern[str] | None = None) -> str:
    r"""Returns a name for a picture in `limit` letters. A letter that not every font has becomes its code point.

    drawn: letters beyond ASCII that the font in use has.

    >>> print(glyphs("caf\u00e9 n=1", 40))
    caf\xe9 n=1
    """
    name, at, parts = plain(text, 4 * limit), 0, list[str]()
    for match in drawn.finditer(name) if drawn else ():
        parts += [_spell_out(name[at : match.start()]), match[0]]
        at = match.end()
    return shorten("".join((*parts, _spell_out(name[at:]))), limit)


def _spell_out(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def fit_inches(name: str, inches: float, points: float = 8) -> str:
    """A text that takes at most so many inches in a font of so many points."""
    wide = columns(name) / max(len(name), 1)
    return fit(name, max(int(inches / (points * LETTER / 8) / wide), 8))


def split_names(names: Sequence[str]) -> tuple[str, list[str]]:
    """The parts that all case ids share, and what is left of each.

    >>> split_names(["n=1,dtype=float16", "n=2,dtype=float16"])
    ('dtype=float16', ['n=1', 'n=2'])
    """
    every = [name.split(",") for name in names]
    shared = [part for part in every[0] if len(every) > 1 and all(part in parts for parts in every)] if every else []
    rest = [",".join(part for part in parts if part not in shared) for parts in every]
    return (",".join(shared), rest) if all(rest) else ("", list(names))


def make_figure(title: str, height: float, note: str = "", legend: Sequence[Any] = ()) -> tuple[Figure, float]:
    """An empty figure of a height for its panels, inches, and the share of it that the panels may fill."""
    from matplotlib.figure import Figure

    widest = max((columns(str(handle.get_label())) for handle in legend), default=0)
    across = max(min(len(legend), int((WIDTH - 0.1) / (widest * LETTER + 0.5))), 1)
    whole = height + 0.34 + 0.19 * math.ceil(len(legend) / across)
    made = Figure(figsize=(WIDTH, whole))
    made.text(0.08 / WIDTH, 1 - 0.08 / whole, title, fontsize=10, fontweight="bold", color=INK, va="top")
    made.text(1 - 0.08 / WIDTH, 1 - 0.1 / whole, note, fontsize=7.5, color=QUIET, va="top", ha="right")
    if legend:
        made.legend(
            handles=list(legend), loc="upper left", bbox_to_anchor=(0.0, 1 - 0.24 / whole), ncols=across,
            handlelength=1.8, columnspacing=1.4, handletextpad=0.5, labelspacing=0.3, borderaxespad=0.2,
        )  # fmt: skip
    return made, height / whole


def make_panels(
    count: int, title: str, note: str = "", legend: Sequence[Any] = (), *, height: float = 1.0
) -> tuple[Figure, list[Axes]]:
    """A figure with rows of three panels, each with room for two lines of heading and for the labels of both axes."""
    across = min(3, count)
    rows = -(-count // across)
    figure, share = make_figure(title, rows * (height + 0.64) + 0.06, note, legend)
    inches = figure.get_figheight()
    gap = 0.66
    width = (WIDTH - 0.62 - 0.14 - gap * (across - 1)) / across
    grid = figure.add_gridspec(
        rows, across, left=0.62 / WIDTH, right=1 - 0.14 / WIDTH, bottom=0.4 / inches, top=share - 0.3 / inches,
        wspace=gap / width, hspace=0.64 / height,
    )  # fmt: skip
    return figure, [figure.add_subplot(grid[divmod(place, across)]) for place in range(count)]


def set_heading(axes: Axes, name: str, text: str = "", gate: Gate = Gate.OK, verdict: str = "") -> None:
    """The name of a panel's case, and under it its verdict and a text, above the labels of the vertical axis."""
    width = axes.get_position().width * WIDTH
    left = -0.42 / width
    weight = "bold" if verdict else "normal"
    axes.set_title(fit_inches(name, width + 0.55, 9 if verdict else 7.6), x=left, pad=13, color=INK, weight=weight)
    line: dict[str, Any] = {"transform": axes.transAxes, "va": "bottom"}
    if verdict:
        axes.text(left, 1.01, verdict, fontsize=7.5, fontweight="bold", color=GATES[gate], **line)
        left += (len(verdict) * 0.088 + 0.08) / width
    if text:
        axes.text(left, 1.01, fit_inches(text, width * (1 - left) + 0.13, 7), fontsize=7, color=QUIET, **line)


def sample(label: str, ground: str = "", **look: Any) -> Any:
    """An entry of a legend: an area of a ground colour, else a line, with a marker or alone."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return Patch(facecolor=ground, label=label, **look) if ground else Line2D([], [], label=label, **look)


def choose_unit(us: float) -> tuple[float, str]:
    """Microseconds of the unit that fits, and its name.

    >>> choose_unit(4.0), choose_unit(1500.0)
    ((1.0, 'us'), (1000.0, 'ms'))
    """
    return (1e6, "s") if us >= 1e6 else (1e3, "ms") if us >= 1e3 else (1.0, "us")


def set_range(axes: Axes, values: Sequence[float], least: float = 0.02, share: float = 0.08) -> None:
    """Show all values, and at least this share on either side of their middle, so that small noise looks small."""
    middle = float(np.median(values))
    low = min(*values, middle - least * abs(middle))
    high = max(*values, middle + least * abs(middle))
    room = share * (high - low) or 1.0
    axes.set_ylim(low - room, high + room)


def limit_ticks(axes: Axes, x: int = 5, y: int = 4, *, whole: bool = False) -> None:
    """Few ticks, at round numbers, without offsets or exponents. whole: numbers on the x axis are counts."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(x, integer=whole, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(y, steps=[1, 2, 2.5, 5, 10]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g}"))


def set_log(axis: Any, low: float, high: float, write: Callable[[float], str] = significant, most: int = 7) -> None:
    """A logarithmic axis with so many labelled ticks at most, at 1, 2 and 5 of a decade, or at powers of ten."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis._set_axes_scale("log")
    steps = (1, 2, 5) if high / low < 150 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
    axis.set_major_locator(FixedLocator(ticks[:: -(-len(ticks) // most) or 1]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))


@apply_style()
def save_png(figure: Figure) -> bytes:
    """The picture at DPI dots an inch. The same figure gives the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas: Any = FigureCanvasAgg(figure)
    figure.set_dpi(DPI)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    # A palette makes the file a third as large, and loses nothing that is seen.
    picture = picture.quantize(128, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    out = io.BytesIO()
    picture.save(out, "png", dpi=(DPI, DPI))
    return out.getvalue()
