"""Charts of what is stored in low precision: errors by way of storing it, and their trends over accepted runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.core.model import ErrorHistogram, StoredTensor
from perfci.measure.lowprec.advice import dense, way
from perfci.measure.lowprec.storage import BINS, EDGES
from perfci.report.charts import style
from perfci.report.charts.style import INK, SERIES, SHAPES, WIDTH, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 4
"""Most ways side by side in a picture."""

LEFT_OUT = 0.02
"""Share of the values, those of the least errors, that may lie left of the axis."""

DECADES = 3.0
"""Fewest decades of errors that are shown."""


@dataclass(frozen=True)
class WayColumn:
    """Ways that share a panel, since only the dtype tells them apart."""

    name: str
    ways: tuple[StoredTensor, ...]


@dataclass(frozen=True)
class TrendLimits:
    """Limits of the three trends, if known. The clip ratio is in per cent."""

    p99: float | None = None
    clip: float | None = None
    divergence: float | None = None


def group_columns(ways: Sequence[StoredTensor]) -> tuple[WayColumn, ...]:
    """The ways of one tensor by everything but the dtype, in their order."""
    found: dict[str, tuple[StoredTensor, ...]] = {}
    for each in ways:
        name = ", ".join(part for part in way(each).split(",") if not part.startswith("dtype=")) or each.mode
        found[name] = (*found.get(name, ()), each)
    return tuple(WayColumn(name, own) for name, own in found.items())


# --- histograms -------------------------------------------------------------------------------------------------------


def draw_errors(ways: Sequence[StoredTensor], title: str) -> Figure:
    """Ways of storing one tensor side by side: above the share of values by error, below the share of at most so much.

    All panels share their axes, so that ways can be compared by eye. The newest accepted run stands behind, dotted.
    """
    with style.apply_style():
        columns = group_columns(ways)[:ACROSS]
        names = dict.fromkeys(each.dtype for each in ways)
        colours = {name: SERIES[place % len(SERIES)] for place, name in enumerate(names)}
        legend = [style.sample(style.fit(name, 24), color=colour, lw=2) for name, colour in colours.items()]
        legend.append(style.sample("99th percentile", color=INK, marker="v", ms=5, lw=0))
        if any(each.accepted for each in ways):
            legend.append(style.sample("accepted run", color=INK, lw=0.9, ls=":"))
        figure, share = style.make_figure(title, 3.6, "", legend)
        inches = 3.6 / share
        panels = figure.subplots(
            2, len(columns), squeeze=False, sharex=True, sharey="row",
            gridspec_kw={"left": 0.66 / WIDTH, "right": 1 - 0.14 / WIDTH, "bottom": 0.42 / inches,
                         "top": share - 0.34 / inches, "wspace": 0.1, "hspace": 0.12},
        )  # fmt: skip
        low, high = _find_ends(ways)
        floor = 10.0 ** math.floor(math.log10(1 / max(*(each.errors.count for each in ways), 10)))
        for column, (upper, lower) in zip(columns, panels.T, strict=True):
            for each in column.ways:
                colour = colours[each.dtype]
                if each.accepted and any(each.accepted.counts):
                    _plot_histogram(upper, lower, each.accepted, {"color": colour, "lw": 0.9, "ls": ":"})
                if any(each.histogram.counts):
                    _plot_histogram(upper, lower, each.histogram, {"color": colour, "lw": 1.3})
                if each.errors.p99_abs is not None:
                    lower.plot([each.errors.p99_abs], [0.99], "v", color=colour, ms=5, zorder=4)
            style.set_heading(upper, column.name)
            lower.set_xlabel("absolute error")
        style.set_log(panels[0, 0].xaxis, low, high, style.power_of_ten)
        style.set_log(panels[0, 0].yaxis, floor, 1.0, style.power_of_ten)
        panels[0, 0].set_xlim(low, high)
        panels[0, 0].set_ylim(floor, 1.3)
        panels[1, 0].set_ylim(0, 1.06)
        panels[0, 0].set_ylabel("share of values")
        panels[1, 0].set_ylabel("cumulative share")
        return figure


def _find_ends(ways: Sequence[StoredTensor]) -> tuple[float, float]:
    """The errors between which nearly all values of every way lie."""
    lows, highs = [], []
    for found in (each for one in ways for each in (one.histogram, one.accepted) if each):
        counts = dense(found)
        if counts.any():
            below = np.cumsum(counts) / counts.sum()
            lows.append(EDGES[max(int(np.searchsorted(below, LEFT_OUT, side="right")) - 1, 0)])
            highs.append(EDGES[min(max(int(np.flatnonzero(counts)[-1]), 1), BINS - 2)])
    high = max(highs, default=EDGES[-1])
    return min(*lows, high / 10**DECADES) if lows else EDGES[0], high


def _plot_histogram(upper: Axes, lower: Axes, found: ErrorHistogram, look: dict[str, Any]) -> None:
    """The shares of the bins, and how they add up. What lies beyond the highest edge counts in the last bin."""
    counts: Floats = dense(found)
    shares = counts / counts.sum()
    shares[BINS - 2] += shares[BINS - 1]
    upper.stairs(np.maximum(shares[1 : BINS - 1], 1e-12), EDGES, baseline=None, **look)
    lower.plot(EDGES, np.cumsum(counts)[: len(EDGES)] / counts.sum(), **look)


# --- trends -----------------------------------------------------------------------------------------------------------


def draw_trends(ways: Sequence[StoredTensor], title: str, limits: TrendLimits) -> Figure:
    """The three figures that have thresholds, over the accepted runs in their order, with this run at the end.

    Ways beyond those that have a colour of their own are left out.
    """
    with style.apply_style():
        shown = [each for each in ways if each.before][: len(SERIES)]
        legend = [
            style.sample(
                style.fit(way(each).replace("scaling=", "").replace("dtype=", ""), 34), color=SERIES[index],
                marker=SHAPES[index], ms=4, lw=1,
            )
            for index, each in enumerate(shown)
        ]  # fmt: skip
        held = (limits.p99, limits.clip, limits.divergence)
        if any(limit is not None for limit in held):
            legend.append(style.sample("limit", color="black", lw=1, ls="--"))
        figure, panels = style.make_panels(3, title, "filled: this run", legend, height=1.5)
        dates = [style.fit(each.created[:10], 16) for each in max((one.before for one in shown), key=len)]
        names = ("99th percentile of the error", "clipped, %", "divergence, nats")
        for place, (axes, name, limit) in enumerate(zip(panels, names, held, strict=True)):
            style.set_heading(axes, name)
            top = limit or 0.0
            for index, each in enumerate(shown):
                values = _list_values(each)[place]
                places = np.arange(len(dates) + 1 - len(values), len(dates) + 1)
                axes.plot(places, values, color=SERIES[index], lw=0.9, marker=SHAPES[index], ms=3.4, mfc="white")
                axes.plot(places[-1:], values[-1:], SHAPES[index], color=SERIES[index], ms=5, zorder=4)
                top = max(top, *values)
            if limit is not None:
                axes.axhline(limit, color="black", lw=1, ls="--", zorder=1)
            style.limit_ticks(axes, y=5)
            # A share and a divergence begin at nothing. Of an error the changes matter.
            least = min(value for each in shown for value in _list_values(each)[place])
            low = max(least - 0.25 * (top - least or top), 0.0) if not place else 0.0
            axes.set_ylim(low - 0.04 * (top - low or 1), top + 0.14 * (top - low) or 1)
            axes.set_xlim(-0.5, len(dates) + 0.5)
            axes.set_xticks([0, len(dates)], [dates[0], "now"])
            axes.get_xticklabels()[0].set_horizontalalignment("left")
            axes.grid(axis="x", visible=False)
        return figure


def _list_values(found: StoredTensor) -> tuple[list[float], list[float], list[float]]:
    """Of each trend: the accepted runs' figures, then this run's."""
    return (
        [*(each.p99_abs or 0.0 for each in found.before), found.errors.p99_abs or 0.0],
        [100 * each for each in (*(each.clip_ratio for each in found.before), found.clip_ratio)],
        [*(each.divergence for each in found.before), found.divergence],
    )
