"""Charts of the errors of what is stored in low precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.core.model import ErrorHistogram, StoredTensor
from perfci.extensions.lowprec.advice import dense, group_columns
from perfci.extensions.lowprec.figures import BINS, EDGES
from perfci.extensions.pictures import style
from perfci.extensions.pictures.style import INK, SERIES, WIDTH, Floats, caption

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT_OUT = 0.02  # share of the values, those of the least errors, that may lie left of the axis
DECADES = 3.0  # fewest decades of errors that are shown


@style.apply_style()
def draw_errors(ways: Sequence[StoredTensor], title: str) -> Figure:
    """Ways of storing one tensor side by side: above the share of values by error, below the cumulative share."""
    names = group_columns(ways)
    colours = dict(zip(dict.fromkeys(way.dtype for way in ways), SERIES * len(ways), strict=False))
    legend = [style.sample(style.fit(name, 24), color=colour, lw=2) for name, colour in colours.items()]
    legend.append(style.sample(caption("99th percentile"), color=INK, marker="v", ms=5, lw=0))
    if any(way.accepted for way in ways):
        legend.append(style.sample(caption("accepted run"), color=INK, lw=0.9, ls=":"))
    figure, share = style.make_figure(title, 3.6, "", legend)
    inches = figure.get_figheight()
    panels = figure.subplots(
        2, len(names), squeeze=False, sharex=True, sharey="row",
        gridspec_kw={"left": 0.66 / WIDTH, "right": 1 - 0.14 / WIDTH, "bottom": 0.42 / inches,
                     "top": share - 0.34 / inches, "wspace": 0.1, "hspace": 0.12},
    )  # fmt: skip
    for (name, drawn), (upper, lower) in zip(names.items(), panels.T, strict=True):
        for way_drawn in drawn:
            colour = colours[way_drawn.dtype]
            if way_drawn.accepted:
                _plot_histogram(upper, lower, way_drawn.accepted, {"color": colour, "lw": 0.9, "ls": ":"})
            _plot_histogram(upper, lower, way_drawn.histogram, {"color": colour, "lw": 1.3})
            if way_drawn.errors.p99_abs is not None:
                lower.plot([way_drawn.errors.p99_abs], [0.99], "v", color=colour, ms=5, zorder=4)
        style.set_heading(upper, name)
        lower.set_xlabel(caption("absolute error"))
    low, high = _find_ends(ways)
    floor = 10.0 ** math.floor(math.log10(1 / max(*(way.errors.count for way in ways), 10)))
    first, second = panels[:, 0]
    # Ends first: without them a logarithmic axis looks for a positive value, and errors may all be zero.
    first.set_xlim(low, high)
    first.set_ylim(floor, 1.3)
    style.set_log(first.xaxis, low, high, _write_power)
    style.set_log(first.yaxis, floor, 1.0, _write_power)
    second.set_ylim(0, 1.06)
    first.set_ylabel(caption("share of values"))
    second.set_ylabel(caption("cumulative share"))
    return figure


def _write_power(value: float) -> str:
    return "1" if value == 1 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def _find_ends(ways: Sequence[StoredTensor]) -> tuple[float, float]:
    """The errors between which nearly all values of every way lie."""
    lows, highs = [], []
    histograms = (histogram for way in ways for histogram in (way.histogram, way.accepted) if histogram)
    for histogram in (histogram for histogram in histograms if any(histogram.counts)):
        counts = dense(histogram)
        below = np.cumsum(counts) / counts.sum()
        lows.append(EDGES[max(int(np.searchsorted(below, LEFT_OUT, side="right")) - 1, 0)])
        highs.append(EDGES[min(max(int(np.flatnonzero(counts)[-1]), 1), BINS - 2)])
    high = max(highs, default=EDGES[-1])
    return min(*lows, high / 10**DECADES) if lows else EDGES[0], high


def _plot_histogram(upper: Axes, lower: Axes, error_histogram: ErrorHistogram, look: dict[str, Any]) -> None:
    """The shares of the bins, and how they add up. What lies beyond the highest edge counts in the last bin."""
    counts: Floats = dense(error_histogram)
    if counts.any():
        shares = counts / counts.sum()
        lower.plot(EDGES, np.cumsum(shares)[: len(EDGES)], **look)
        shares[BINS - 2] += shares[BINS - 1]
        upper.stairs(np.maximum(shares[1 : BINS - 1], 1e-12), EDGES, baseline=None, **look)
