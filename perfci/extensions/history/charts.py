"""Charts over the accepted runs: a case's kernel, a panel each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perfci.core.model import Gate, OpRun, Run
from perfci.core.wording import say
from perfci.extensions.history.past import ENVIRONMENT, LOSS, STEP, Past, list_events, list_trails, write_day
from perfci.extensions.pictures import style
from perfci.extensions.pictures.plots import Painter, describe_left_out
from perfci.extensions.pictures.style import COLOURS, GATES, INK, caption
from perfci.report.text import plain
from perfci.report.view import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = {LOSS: (GATES[Gate.FAILS], "-"), ENVIRONMENT: ("#CC79A7", ":"), STEP: (INK, "--")}
"""A mark between two runs: its colour and its line."""


@dataclass(frozen=True)
class RunsChart:
    """A case over the accepted runs. Times are in microseconds."""

    name: str
    dates: tuple[str, ...]  # one a run
    values: tuple[float | None, ...]  # medians, one a run
    quartiles: tuple[tuple[float, float] | None, ...] = ()
    now: float | None = None  # of the run that is reported on, which stands behind the accepted ones
    marks: tuple[tuple[int, str], ...] = ()
    """what lies between two runs: place of the run after it, and LOSS, ENVIRONMENT or STEP"""
    warning: str = ""  # below the name


def draw_history(op: OpRun, run: Run, past: Past, painter: Painter, name: str) -> Iterator[Picture]:
    """One picture of the accepted runs of an op, if they have any of its cases. name: of the op in file names."""
    charts, count = chart_history(op, run, past, painter.panels)
    if charts:
        title = caption("{op}: accepted runs, and this one", op=style.fit(op.op, 40))
        figure = draw_runs(charts, title, describe_left_out(len(charts), count))
        alt = say("History of {op}", op=plain(op.op, 40))
        yield painter.save(figure, f"history-{name}", alt, shows=len(charts))


def chart_history(op: OpRun, run: Run, past: Past, most: int) -> tuple[list[RunsChart], int]:
    """A panel for each of the cases that the history has most of, and how many cases it knows."""
    trails = list_trails(op, run, past)
    chosen = sorted(trails, key=lambda trail: trail.rank)[:most]
    shown = [trail for trail in trails if trail in chosen]
    _, names = style.split_names([trail.case for trail in shown])
    charts = [
        RunsChart(
            plain(name, 160),
            tuple(map(write_day, past.runs)),
            trail.kernel,
            tuple((case.kernel_us.p25_us, case.kernel_us.p75_us) if case else None for case in trail.seen),
            now=trail.now_us,
            marks=list_events(past, trail.case),
            warning="a step that nothing explains" if trail.unexplained else "",
        )
        for trail, name in zip(shown, names, strict=True)
    ]
    return charts, len(trails)


@style.apply_style()
def draw_runs(charts: Sequence[RunsChart], title: str, note: str = "") -> Figure:
    """A panel a case: medians with their quartiles, what moved them, and this run at the end."""
    legend = [style.sample(caption("accepted run"), color=COLOURS["kernel"], marker="o", ms=3, lw=0.8)]
    if any(any(chart.quartiles) for chart in charts):
        legend.append(style.sample(caption("quartiles of its blocks"), COLOURS["kernel"], alpha=0.18))
    if any(chart.now is not None for chart in charts):
        legend.append(style.sample(caption("this run"), color="black", marker="D", ms=4, lw=0))
    kinds = {kind for chart in charts for _, kind in chart.marks}
    legend += [
        style.sample(style.caption_of(kind), color=LOOKS[kind][0], ls=LOOKS[kind][1], lw=0.9)
        for kind in LOOKS
        if kind in kinds
    ]
    figure, panels = style.make_panels(len(charts), title, note, legend)
    for axes, chart in zip(panels, charts, strict=True):
        style.set_heading(axes, chart.name, chart.warning, Gate.WARNS, "!" if chart.warning else "")
        _plot_runs(axes, chart)
    return figure


def _plot_runs(axes: Axes, chart: RunsChart) -> None:
    scale, unit = style.choose_unit(float(np.median([value for value in chart.values if value is not None])))
    count = len(chart.values)
    values = np.array([math.nan if value is None else value / scale for value in chart.values])
    seen = values[np.isfinite(values)].tolist()
    if any(chart.quartiles):
        pairs = [quartile or (math.nan, math.nan) for quartile in chart.quartiles]
        low, high = (np.array(end) / scale for end in zip(*pairs, strict=True))
        axes.fill_between(np.arange(1, count + 1), low, high, color=COLOURS["kernel"], alpha=0.18, lw=0, zorder=2)
        seen += [float(np.nanmin(low)), float(np.nanmax(high))]
    axes.plot(np.arange(1, count + 1), values, "o-", color=COLOURS["kernel"], ms=2.6 if count <= 60 else 1.4, lw=0.7)
    if chart.now is not None:
        axes.plot([count + 1], [chart.now / scale], "D", color="black", ms=4, zorder=5)
        seen.append(chart.now / scale)
    style.set_range(axes, seen, share=0.12)
    style.limit_ticks(axes)
    axes.set_xlim(0.3, count + (1.8 if chart.now is not None else 0.7))
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(unit)
    newest = {count: chart.dates[-1]} if chart.now is None else {count + 1: caption("now")}
    ends = {1: chart.dates[0], **newest}
    axes.set_xticks(list(ends), [style.fit(name, 12) for name in ends.values()])
    if len(ends) > 1:
        axes.get_xticklabels()[0].set_horizontalalignment("left")
        axes.get_xticklabels()[-1].set_horizontalalignment("right")
    for at, kind in chart.marks:
        colour, dash = LOOKS[kind]
        axes.axvline(at + 0.5, color=colour, ls=dash, lw=0.9, zorder=1)
