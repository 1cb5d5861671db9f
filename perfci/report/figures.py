"""The drawing itself, with matplotlib's object interface: no pyplot, no window, no state.

Sizes are inches at DPI dots each. Case ids are set in a monospaced font, so that margins follow from their lengths and
nothing is cut or overlaps.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.model import Block, Gate, Interval, Verdict
from perfci.report import rows
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

LEAST_SPAN = 0.02
"""A time axis shows at least this share on either side of the median, so that small noise looks small."""

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
_MONO = "DejaVu Sans Mono"
_CHARACTER = _FONT * 0.602 / 72
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


@dataclass(frozen=True)
class Bar:
    """One case's speedup."""

    label: str
    speedup: Interval
    verdict: Verdict
    target: float | None
    """lowest speedup that its threshold asks for"""


@dataclass(frozen=True)
class Trace:
    """One case's blocks, and the stored median that they are held against."""

    label: str
    verdict: Verdict | None
    blocks: tuple[Block, ...]
    baseline_us: float | None


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


def speedup(bars: Sequence[Bar], title: str) -> Figure:
    """A bar a case with its interval; lines at 1 and, where one is set, at the case's target."""
    lines = max(bar.label.count("\n") + 1 for bar in bars)
    height = 0.75 + len(bars) * (0.1 + 0.15 * lines)
    longest = max(len(line) for bar in bars for line in bar.label.split("\n"))
    notes = [_bar_note(bar) for bar in bars]
    figure, axes = _canvas(height, 0.3 + longest * _CHARACTER, 0.2 + max(map(len, notes)) * _CHARACTER, title)
    places = np.arange(len(bars))[::-1]
    values = np.array([bar.speedup.value for bar in bars])
    ends = np.array([[b.speedup.value - b.speedup.low, b.speedup.high - b.speedup.value] for b in bars]).T
    axes.barh(places, values, height=0.62, color=[GRAVE[bar.verdict.gate] for bar in bars], zorder=2)
    axes.errorbar(
        values, places, xerr=np.maximum(ends, 0), fmt="none", ecolor="black", elinewidth=1, capsize=2.5, zorder=3
    )
    axes.set_xlim(0, 1.06 * max(1.0, *(max(bar.speedup.high, bar.target or 0) for bar in bars)))
    axes.axvline(1, color=INK, linewidth=0.9, linestyle="--", zorder=4)
    for place, bar, note in zip(places, bars, notes, strict=True):
        axes.text(1.015, place, note, transform=axes.get_yaxis_transform(), va="center", family=_MONO, color=INK)
        if bar.target is not None:
            axes.plot([bar.target] * 2, [place - 0.42, place + 0.42], color="black", linewidth=2, zorder=5)
    axes.set_yticks(places, [bar.label for bar in bars], family=_MONO)
    axes.set_ylim(-0.6, len(bars) - 0.4)
    axes.tick_params(axis="y", length=0)
    targets = "; black mark: target" if any(bar.target is not None for bar in bars) else ""
    axes.set_xlabel(f"speedup = reference time / kernel time{targets}")
    return figure


def _bar_note(bar: Bar) -> str:
    """The number beside the bar, its target, and its verdict if it is not fine."""
    target = f" of {rows.ratio(bar.target)}" if bar.target is not None else ""
    grave = f" {bar.verdict}" if bar.verdict.gate is not Gate.OK else ""
    return f"{rows.ratio(bar.speedup.value)}{target}{grave}"


def traces(cases: Sequence[Trace], title: str) -> Figure:
    """Two panels a case, the kernel with its base on the left and the reference on the right, over one time axis."""
    from matplotlib.figure import Figure

    arms = [arm for arm in _arms(cases) if arm != "reference"], [arm for arm in _arms(cases) if arm == "reference"]
    columns = [column for column in arms if column]
    height = 0.95 + 1.12 * len(cases)
    figure = Figure(figsize=(WIDTH, height))
    grid = figure.subplots(len(cases), len(columns), sharex=True, squeeze=False)
    figure.subplots_adjust(0.085, 0.42 / height, 0.985, 1 - 0.72 / height, wspace=0.17, hspace=0.62)
    figure.text(0.012, 1 - 0.16 / height, title, size=9.5, weight="bold", va="center")
    for row, case in zip(grid, cases, strict=True):
        _case_title(row[0], case)
        for axes, column in zip(row, columns, strict=True):
            _panel(axes, case, column)
    for axes in grid[-1]:
        axes.set_xlabel("seconds since the start of the run")
    _legend(figure, [arm for column in columns for arm in column], cases, 1 - 0.36 / height)
    return figure


def _case_title(axes: Axes, case: Trace) -> None:
    grave = case.verdict is not None and case.verdict.gate is not Gate.OK
    text = f"{case.label}  {case.verdict}" if grave else case.label
    _title(axes, text, "bold" if grave else "normal")


def _title(axes: Axes, text: str, weight: str = "normal") -> None:
    """Above the axes; a text of its own, since matplotlib searches long for a title's best height."""
    axes.annotate(text, (0, 1), (0, 4), "axes fraction", "offset points", family=_MONO, color=INK, weight=weight)


def _panel(axes: Axes, case: Trace, arms: Sequence[str]) -> None:
    """Block medians of some arms; blocks of fresh processes hollow and on a shaded ground."""
    from matplotlib.ticker import MaxNLocator

    seen: list[float] = []
    for arm in arms:
        for process in sorted({block.process for block in case.blocks}):
            points = [
                (b.started_s, b.arms[arm].time.median_us) for b in case.blocks if b.process == process and arm in b.arms
            ]
            seen += [us for _, us in points]
            _points(axes, sorted(points), arm, fresh=process > 0)
    if not seen:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color=INK)
        axes.set_yticks([])
        return
    if case.baseline_us and "kernel" in arms:
        axes.axhline(case.baseline_us, color="black", linewidth=0.9, linestyle=":", zorder=1)
        seen.append(case.baseline_us)
    _shade(axes, case)
    middle = float(np.median(seen))
    low, high = min(*seen, middle * (1 - LEAST_SPAN)), max(*seen, middle * (1 + LEAST_SPAN))
    axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))
    axes.yaxis.set_major_locator(MaxNLocator(3, min_n_ticks=2))
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")
    axes.set_ylabel("us", labelpad=2)
    axes.grid(axis="y", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)


def _points(axes: Axes, points: Sequence[tuple[float, float]], arm: str, *, fresh: bool) -> None:
    colour = _colour(arm)
    if points:
        times, medians = zip(*points, strict=True)
        face = "white" if fresh else colour
        axes.plot(
            times, medians, MARKERS.get(arm, "D"), markersize=3.4, color=colour, markerfacecolor=face,
            markeredgewidth=0.9, linestyle="-", linewidth=0.5, alpha=0.95, zorder=3,
        )  # fmt: skip


def _shade(axes: Axes, case: Trace) -> None:
    for process in sorted({block.process for block in case.blocks} - {0}):
        times = [block.started_s for block in case.blocks if block.process == process]
        axes.axvspan(min(times), max(times), color=GROUND, linewidth=3, zorder=0)


def _arms(cases: Sequence[Trace]) -> list[str]:
    """Every arm that some block has, the usual ones first."""
    found = {arm for case in cases for block in case.blocks for arm in block.arms}
    return [*(arm for arm in MARKERS if arm in found), *sorted(found - set(MARKERS))]


def _legend(figure: Figure, arms: Sequence[str], cases: Sequence[Trace], top: float) -> None:
    from matplotlib.lines import Line2D

    found: dict[str, Any] = {
        glyphs(arm, 20): Line2D(
            [], [], color=_colour(arm), marker=MARKERS.get(arm, "D"), linestyle="none", markersize=4
        )
        for arm in arms
    }
    if any(block.process for case in cases for block in case.blocks):
        hollow = Line2D([], [], color=INK, marker="o", markerfacecolor="white", linestyle="none", markersize=4)
        found["measured again in a fresh process"] = hollow
    if any(case.baseline_us for case in cases):
        found["kernel's baseline"] = Line2D([], [], color="black", linestyle=":", linewidth=0.9)
    _write_legend(figure, found, top)


def _write_legend(figure: Figure, found: Mapping[str, Any], top: float) -> None:
    """In one line under the title."""
    figure.legend(
        list(found.values()),
        list(found),
        loc="center left",
        bbox_to_anchor=(0.0, top),
        ncols=len(found),
        frameon=False,
        handletextpad=0.4,
        columnspacing=1.4,
    )


def _colour(arm: str) -> str:
    return COLOURS.get(arm, OTHER)


def distributions(cases: Mapping[str, Mapping[str, np.ndarray[Any, Any]]], title: str) -> Figure:
    """The share of launches that took at most so long, a panel a case: case -> arm -> microseconds."""
    from matplotlib.figure import Figure

    across = min(2, len(cases))
    down = -(-len(cases) // across)
    height = 0.95 + 1.5 * down
    figure = Figure(figsize=(WIDTH, height))
    grid = figure.subplots(down, across, squeeze=False)
    figure.subplots_adjust(0.085, 0.42 / height, 0.985, 1 - 0.72 / height, wspace=0.17, hspace=0.62)
    figure.text(0.012, 1 - 0.16 / height, title, size=9.5, weight="bold", va="center")
    for axes, (case, arms) in zip(grid.flat, cases.items(), strict=False):
        for arm, times in arms.items():
            axes.ecdf(times, color=_colour(arm), linewidth=1.1, label=glyphs(arm, 20))
        _title(axes, case)
        axes.set_ylabel("share of launches", labelpad=2)
        axes.grid(color=FAINT, linewidth=0.5)
    for axes in grid.flat[len(cases) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("device time of a launch, us")
    lines = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    _write_legend(figure, lines, 1 - 0.36 / height)
    return figure


def _canvas(height: float, left: float, right: float, title: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((left / WIDTH, 0.42 / height, (WIDTH - left - right) / WIDTH, (height - 0.72) / height))
    figure.text(0.012, 1 - 0.16 / height, title, size=9.5, weight="bold", va="center")
    return figure, axes
