"""Duels: the shift of kernel against base, block by block and process by process, over what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.model import Gate, Interval, Verdict
from perfci.report.figures.canvas import COLOURS, FAINT, GRAVE, INK, MONO, panel_title, panels, write_legend
from perfci.report.text import glyphs
from perfci.units import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 1.12
GAP = 1.6
"""Blocks' widths between two processes."""

LEAST_VIEW = 1.6
"""An axis shows at least so many tau on either side of 0, so that small noise looks small."""

_BAND = COLOURS["base"]
_OUTER, _INNER = 0.13, 0.15
"""Opacity of the bands of tau and of tau / 2, one on the other."""

_ROOM = 99
"""Characters that fit above a panel."""


@dataclass(frozen=True)
class Duel:
    """One case's blocks against the base."""

    case: str
    verdict: Verdict | None
    processes: tuple[tuple[float, ...], ...]
    """d of every block in order of time, log scale, process by process"""
    tau: float
    """allowed slow-down, ratio - 1"""
    change: Interval
    """ratio - 1"""


def duels(cases: Sequence[Duel], title: str) -> Figure:
    """A panel a case, over one axis of blocks; each process has its own stretch of it."""
    figure, grid = panels(len(cases), 1, HEIGHT, title, sharex=True)
    slots = _slots(cases)
    starts = [0.0, *accumulate(width + GAP for width in slots)]
    for axes, case in zip(grid[:, 0], cases, strict=True):
        _panel(axes, case, starts)
        _heading(axes, case)
    last = grid[-1, 0]
    last.set_xlim(-1, starts[-1] - GAP)
    last.set_xticks([start + (width - 1) / 2 for start, width in zip(starts, slots, strict=False)])
    last.set_xticklabels(_process_name(index) for index in range(len(slots)))
    last.set_xlabel("blocks in order of time; above 0 the kernel is slower than the base")
    _legend(figure, fresh=len(slots) > 1)
    return figure


def _slots(cases: Sequence[Duel]) -> list[int]:
    """Most blocks that any case has in each process."""
    most = max(len(case.processes) for case in cases)
    return [max(len(case.processes[i]) for case in cases if i < len(case.processes)) for i in range(most)]


def _process_name(index: int) -> str:
    return "first process" if index == 0 else f"fresh process {index}"


def _panel(axes: Axes, case: Duel, starts: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    tau = 100 * case.tau
    for reach, opacity in ((tau, _OUTER), (tau / 2, _INNER)):
        axes.axhspan(-reach, reach, facecolor=_BAND, edgecolor="none", alpha=opacity, zorder=0)
    axes.axhline(0, color=INK, linewidth=0.7, zorder=1)
    seen = [0.0]
    for index, (start, shifts) in enumerate(zip(starts, case.processes, strict=False)):
        changes = 100 * np.expm1(np.asarray(shifts))
        seen += changes.tolist()
        _stretch(axes, start, changes, _colour(case), fresh=index > 0)
    low, high = min(*seen, -LEAST_VIEW * tau), max(*seen, LEAST_VIEW * tau)
    axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    axes.yaxis.set_major_locator(MaxNLocator(4, min_n_ticks=3))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    axes.set_ylabel("change, %")
    axes.yaxis.set_label_coords(-0.058, 0.5)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)


def _stretch(axes: Axes, start: float, changes: np.ndarray[Any, Any], colour: str, *, fresh: bool) -> None:
    """One process's blocks, and their median."""
    places, middle = start + np.arange(changes.size), float(np.median(changes))
    axes.plot(
        places, changes, "o", markersize=3.4, color=colour, markerfacecolor="white" if fresh else colour,
        markeredgewidth=0.9, linestyle="-", linewidth=0.5, zorder=3,
    )  # fmt: skip
    axes.plot([start - 0.5, places[-1] + 0.5], [middle, middle], color="black", linewidth=1.1, zorder=4)


def _colour(case: Duel) -> str:
    return GRAVE[case.verdict.gate if case.verdict else Gate.OK]


def _heading(axes: Axes, case: Duel) -> None:
    """The case and its verdict on the left; on the right what was found, as much of it as a long case leaves room."""
    grave = case.verdict is not None and case.verdict.gate is not Gate.OK
    verdict = f"  {case.verdict}" if case.verdict else ""
    name = glyphs(case.case, _ROOM)
    room = _ROOM - len(name) - len(verdict) - 2
    found = next((text for text in _found(case) if len(text) <= room), percent(case.change.value, signed=True))
    name = glyphs(case.case, _ROOM - len(found) - len(verdict) - 2)
    panel_title(axes, f"{name}{verdict}", "bold" if grave else "normal")
    axes.annotate(found, (1, 1), (0, 4), "axes fraction", "offset points", family=MONO, color=INK, ha="right")


def _found(case: Duel) -> tuple[str, ...]:
    """The change, from all that is known about it down to itself."""
    change = case.change
    value, low, high = (percent(one, signed=True) for one in (change.value, change.low, change.high))
    return (f"{value} ({low} to {high}), {percent(case.tau)} allowed", f"{value} ({low} to {high})", value)


def _legend(figure: Figure, *, fresh: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found: dict[str, Any] = {"a block": Line2D([], [], color=INK, marker="o", linestyle="none", markersize=4)}
    if fresh:
        hollow = Line2D([], [], color=INK, marker="o", markerfacecolor="white", linestyle="none", markersize=4)
        found["in a fresh process"] = hollow
    found["median of a process"] = Line2D([], [], color="black", linewidth=1.1)
    found["up to what is allowed"] = Patch(facecolor=_BAND, alpha=_OUTER)
    found["up to half of it"] = Patch(facecolor=_BAND, alpha=_OUTER + _INNER)
    write_legend(figure, found)
