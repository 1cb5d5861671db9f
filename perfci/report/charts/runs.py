"""Charts of what was accepted run by run: a panel a case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.core.model import Gate
from perfci.report.charts import style
from perfci.report.charts.style import COLOURS, GATES, INK, OTHER, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOSS, ENVIRONMENT, STEP = "loss accepted", "environment", "step"
LOOKS = {LOSS: (GATES[Gate.FAILS], "-"), ENVIRONMENT: (OTHER, ":"), STEP: (INK, "--")}
"""What stands between two runs: its colour and its line."""

MOST = 1e300
"""Greatest value that is drawn: room above it can still be counted."""


@dataclass(frozen=True)
class Upright:
    """Something between a run and the one before it."""

    at: int
    """place of the run after it"""
    name: str
    """letters by which tables name it"""
    kind: str
    """LOSS, ENVIRONMENT or STEP"""


@dataclass(frozen=True)
class RunsChart:
    """One figure of a case over the accepted runs."""

    name: str
    dates: tuple[str, ...]
    """one a run"""
    values: tuple[float | None, ...]
    """one a run, in microseconds if `time`"""
    quartiles: tuple[tuple[float, float] | None, ...] = ()
    reference: tuple[float | None, ...] = ()
    now: float | None = None
    """of the run that is reported on, which stands behind the accepted ones"""
    uprights: tuple[Upright, ...] = ()
    told: str = ""
    """below the name"""
    grave: bool = False
    time: bool = True
    unit: str = ""
    """of the values if they are no times"""


def draw_runs(
    charts: Sequence[RunsChart], title: str, note: str = "", *, across: int = 3, height: float = 1.0
) -> Figure:
    """A panel a case: medians with their quartiles, what moved them, and this run at the end."""
    with style.apply_style():
        figure, panels = style.make_panels(
            len(charts), title, note, list(_name_looks(charts)), across=across, height=height
        )
        for axes, chart in zip(panels, charts, strict=True):
            style.set_heading(axes, chart.name, chart.told, Gate.WARNS, "!" if chart.grave else "")
            plot_runs(axes, chart)
        return figure


def plot_runs(axes: Axes, chart: RunsChart) -> None:
    """One panel."""
    known = [min(value, MOST) for value in (*chart.values, *chart.reference, chart.now) if value is not None]
    scale, unit = style.choose_unit(float(np.median(known))) if chart.time else (1.0, chart.unit)
    places = np.arange(1, len(chart.values) + 1)
    values = _as_array(chart.values) / scale
    seen = [*(value / scale for value in known)]
    if any(chart.quartiles):
        ends = [(math.nan, math.nan) if each is None else each for each in chart.quartiles]
        low, high = (np.array(end) / scale for end in zip(*ends, strict=True))
        axes.fill_between(places, low, high, color=COLOURS["kernel"], alpha=0.18, lw=0, zorder=2)
        seen += [*low[np.isfinite(low)], *high[np.isfinite(high)]]
    if any(value is not None for value in chart.reference):
        axes.plot(places, _as_array(chart.reference) / scale, color=COLOURS["reference"], lw=1, ls=style.DASHES["base"])
    size = 2.6 if len(values) <= 60 else 1.4
    axes.plot(places, values, "o-", color=COLOURS["kernel"], ms=size, lw=0.7, zorder=3)
    if chart.now is not None:
        axes.plot([len(values) + 1], [chart.now / scale], "D", color="black", ms=4, zorder=5)
    style.set_range(axes, seen, share=0.12)
    style.limit_ticks(axes)
    axes.set_xlim(0.3, len(values) + (1.8 if chart.now is not None else 0.7))
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(unit)
    _name_runs(axes, chart)
    _plot_uprights(axes, chart)


def _as_array(values: Sequence[float | None]) -> Floats:
    return np.array([math.nan if value is None else min(value, MOST) for value in values])


def _name_runs(axes: Axes, chart: RunsChart) -> None:
    """Dates of the first run and of one further on, and `now`."""
    count = len(chart.dates)
    ticks = {1: chart.dates[0]} if count else {}
    if chart.now is None and count > 1:
        ticks[count] = chart.dates[-1]
    elif count >= 8:
        ticks[round(0.6 * count)] = chart.dates[round(0.6 * count) - 1]
    if chart.now is not None:
        ticks[count + 1] = "now"
    axes.set_xticks(list(ticks), [style.fit(name, 12) for name in ticks.values()])
    labels = axes.get_xticklabels()
    if len(labels) > 1:
        labels[0].set_horizontalalignment("left")
        labels[-1].set_horizontalalignment("right")


def _plot_uprights(axes: Axes, chart: RunsChart) -> None:
    """Lines between runs with their letters, which are left out if they would stand upon each other."""
    last = -math.inf
    room = 0.05 * (len(chart.values) + 2)
    for upright in chart.uprights:
        at = upright.at + 0.5
        colour, dash = LOOKS[upright.kind]
        axes.axvline(at, color=colour, ls=dash, lw=0.9, zorder=1)
        if at - last >= room:
            last = at
            axes.annotate(upright.name, (at, 1), (1.5, -1), xycoords=("data", "axes fraction"), va="top",
                          textcoords="offset points", fontsize=7, fontweight="bold", color=colour)  # fmt: skip


def _name_looks(charts: Sequence[RunsChart]) -> list[Any]:
    """Entries of the legend, as far as they occur."""
    found = [style.sample("accepted run", color=COLOURS["kernel"], marker="o", ms=3, lw=0.8)]
    if any(any(chart.quartiles) for chart in charts):
        found.append(style.sample_ground("quartiles of its blocks", COLOURS["kernel"], alpha=0.18))
    if any(any(chart.reference) for chart in charts):
        found.append(style.sample("reference", color=COLOURS["reference"], lw=1, ls=style.DASHES["base"]))
    if any(chart.now is not None for chart in charts):
        found.append(style.sample("this run", color="black", marker="D", ms=4, lw=0))
    kinds = {upright.kind for chart in charts for upright in chart.uprights}
    shown = [(kind, look) for kind, look in LOOKS.items() if kind in kinds]
    return found + [style.sample(kind, color=colour, ls=dash, lw=0.9) for kind, (colour, dash) in shown]
