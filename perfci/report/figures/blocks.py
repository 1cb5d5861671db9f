"""Times: block medians as the run went on, and the distribution of the launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.model import Block, Gate, Verdict
from perfci.report.figures.canvas import FAINT, GROUND, INK, MARKERS, colour_of, panel_title, panels, write_legend
from perfci.report.text import glyphs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_SPAN = 0.02
"""A time axis shows at least this share on either side of the median, so that small noise looks small."""


@dataclass(frozen=True)
class Trace:
    """One case's blocks, and the stored median that they are held against."""

    label: str
    verdict: Verdict | None
    blocks: tuple[Block, ...]
    baseline_us: float | None


def traces(cases: Sequence[Trace], title: str) -> Figure:
    """Two panels a case, the kernel with its base on the left and the reference on the right, over one time axis."""
    arms = [arm for arm in _arms(cases) if arm != "reference"], [arm for arm in _arms(cases) if arm == "reference"]
    columns = [column for column in arms if column]
    figure, grid = panels(len(cases), len(columns), 1.12, title, sharex=True)
    for row, case in zip(grid, cases, strict=True):
        _case_title(row[0], case)
        for axes, column in zip(row, columns, strict=True):
            _panel(axes, case, column)
    for axes in grid[-1]:
        axes.set_xlabel("seconds since the start of the run")
    _legend(figure, [arm for column in columns for arm in column], cases)
    return figure


def _case_title(axes: Axes, case: Trace) -> None:
    grave = case.verdict is not None and case.verdict.gate is not Gate.OK
    text = f"{case.label}  {case.verdict}" if grave else case.label
    panel_title(axes, text, "bold" if grave else "normal")


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
    colour = colour_of(arm)
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


def _legend(figure: Figure, arms: Sequence[str], cases: Sequence[Trace]) -> None:
    from matplotlib.lines import Line2D

    found: dict[str, Any] = {
        glyphs(arm, 20): Line2D(
            [], [], color=colour_of(arm), marker=MARKERS.get(arm, "D"), linestyle="none", markersize=4
        )
        for arm in arms
    }
    if any(block.process for case in cases for block in case.blocks):
        hollow = Line2D([], [], color=INK, marker="o", markerfacecolor="white", linestyle="none", markersize=4)
        found["measured again in a fresh process"] = hollow
    if any(case.baseline_us for case in cases):
        found["kernel's baseline"] = Line2D([], [], color="black", linestyle=":", linewidth=0.9)
    write_legend(figure, found)


def distributions(cases: Mapping[str, Mapping[str, np.ndarray[Any, Any]]], title: str) -> Figure:
    """The share of launches that took at most so long, a panel a case: case -> arm -> microseconds."""
    across = min(2, len(cases))
    figure, grid = panels(-(-len(cases) // across), across, 1.5, title)
    for axes, (case, arms) in zip(grid.flat, cases.items(), strict=False):
        for arm, times in arms.items():
            axes.ecdf(times, color=colour_of(arm), linewidth=1.1, label=glyphs(arm, 20))
        panel_title(axes, case)
        axes.set_ylabel("share of launches", labelpad=2)
        axes.grid(color=FAINT, linewidth=0.5)
    for axes in grid.flat[len(cases) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("device time of a launch, us")
    lines = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    write_legend(figure, lines)
    return figure
