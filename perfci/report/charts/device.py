"""The roofline: what cases reach of what the device can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfci.core.model import Limits
from perfci.core.units import percent, significant
from perfci.report.ceilings import CeilingPoint, find_ridge
from perfci.report.charts import style
from perfci.report.charts.style import INK, QUIET, SERIES, SHAPES, WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = 8  # most points that are named, those with the lowest shares of their ceilings
NAMES = 2.9  # width of the column with their names, inches


@style.apply_style()
def draw_roofline(found: Sequence[CeilingPoint], limits: Limits, title: str) -> Figure:
    """Draw TFLOP/s over operations a byte below the ceilings of this device. Several ops differ in colour."""
    ops = dict(zip(dict.fromkeys(one.op for one in found), SERIES * len(found), strict=False))
    dtypes = dict(zip(dict.fromkeys(one.dtype for one in found), SHAPES * len(found), strict=False))
    legend = [style.sample(style.fit(op, 30), color=colour, marker="o", lw=0) for op, colour in ops.items()]
    legend += [
        style.sample(style.fit(dtype, 20), color=INK, mfc="none", marker=shape, lw=0) for dtype, shape in dtypes.items()
    ]
    legend.append(style.sample("measured ceiling", color="black", lw=1.4))
    named = sorted(found, key=lambda one: one.share)[:LABELS]
    # The shape of a point shows its dtype.
    shared, names = style.split_names([one.case.replace(f",dtype={one.dtype}", "") for one in named])
    note = f"all that are named: {style.fit(shared, 40)}" if shared else ""
    figure, share = style.make_figure(title, 3.9, note, legend)
    inches = figure.get_figheight()
    axes = figure.add_axes((0.7 / WIDTH, 0.42 / inches, 1 - (0.7 + NAMES) / WIDTH, share - 0.5 / inches))
    _plot_ceilings(axes, found, limits, list(dtypes))
    for one in found:
        axes.plot(
            [one.intensity], [one.tflops], dtypes[one.dtype], color=ops[one.op], ms=5, mec="white", mew=0.5, zorder=4
        )
    names = [f"{one.op} {name}" if len(ops) > 1 else name for one, name in zip(named, names, strict=True)]
    _name_points(axes, sorted(zip(named, names, strict=True), key=lambda pair: (-pair[0].tflops, -pair[0].intensity)))
    axes.set_xlabel("operations a byte")
    axes.set_ylabel("TFLOP/s")
    return figure


def _plot_ceilings(axes: Axes, found: Sequence[CeilingPoint], limits: Limits, dtypes: Sequence[str]) -> None:
    """The copy's slope up to each ridge, and the matrix products' levels from there on."""
    slope = (limits.copy_gbps or 0.0) / 1e3
    ridges = {dtype: at for dtype in dtypes if (at := find_ridge(limits, dtype))}
    peaks = {dtype: limits.matmul_tflops[dtype] for dtype in ridges}
    xs = [*(one.intensity for one in found), *ridges.values()]
    ys = [*(one.tflops for one in found), *peaks.values(), *(one.ceiling for one in found)]
    low, high, bottom, top = min(xs) / 2, max(xs) * 3, min(ys) / 2.5, max(ys) * 2.2
    style.set_log(axes.xaxis, low, high)
    style.set_log(axes.yaxis, bottom, top)
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, top)
    start = max(low, bottom / slope)
    end = max(ridges.values()) if len(ridges) == len(dtypes) else min(high, top / slope)
    axes.plot([start, end], [start * slope, end * slope], color="black", lw=1.4, zorder=2)
    for dtype, at in ridges.items():
        axes.plot([at, high], [peaks[dtype]] * 2, color="black", lw=1.4, zorder=2)
        axes.plot([at, at], [bottom, peaks[dtype]], color="#AAAAAA", lw=0.8, ls=":", zorder=1)
    # Below the slope's lower end, which few cases reach, and above the levels.
    axes.annotate(f"copy {significant(limits.copy_gbps or 0)} GB/s", (start, start * slope), (20, 2), fontsize=7.5,
                  textcoords="offset points")  # fmt: skip
    if peaks:
        ranked = sorted(peaks.items(), key=lambda pair: -pair[1])
        text = "matmul TFLOP/s: " + ", ".join(f"{style.fit(name, 16)} {significant(peak)}" for name, peak in ranked)
        axes.annotate(text, (high, ranked[0][1]), (0, 3), textcoords="offset points", fontsize=7.5, ha="right")


def _name_points(axes: Axes, named: Sequence[tuple[CeilingPoint, str]]) -> None:
    """Names of the points furthest below their ceilings, in a column at the right with a line to each."""
    top = 0.5 + 0.045 * len(named)
    axes.text(1.05, top + 0.02, "furthest below the ceiling", transform=axes.transAxes, fontsize=7, color=QUIET)
    for place, (one, name) in enumerate(named, 1):
        axes.annotate(
            f"{style.fit_inches(name, NAMES - 0.85, 7)}  {percent(one.share)}", (one.intensity, one.tflops),
            (1.05, top - 0.09 * place + 0.03), textcoords="axes fraction", fontsize=7, color=INK, va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "#BBBBBB", "lw": 0.6, "shrinkB": 3, "relpos": (0, 0.5)},
        )  # fmt: skip
