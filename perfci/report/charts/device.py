"""Charts against what the device can do: the roofline, and time against size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.core.model import Limits
from perfci.core.units import percent, significant, size, time
from perfci.report.ceilings import CeilingPoint, find_ridge
from perfci.report.charts import style
from perfci.report.charts.style import DASHES, INK, MARKERS, SERIES, SHAPES, WIDTH
from perfci.report.scaling import BYTES, OPERATIONS, Scaling, average_sizes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = 8
"""Most points that are named, those with the lowest shares of their ceilings first."""

CURVES = len(SERIES)
"""Most curves of time against size."""

Box = tuple[float, float, float, float]
"""left, bottom, right, top in dots"""


def draw_roofline(found: Sequence[CeilingPoint], limits: Limits, title: str) -> Figure:
    """Draw TFLOP/s over operations a byte below the ceilings of this device. Several ops differ in colour."""
    with style.apply_style():
        dtypes = list(dict.fromkeys(one.dtype for one in found))
        ops = list(dict.fromkeys(one.op for one in found))
        legend = [
            style.sample(style.fit(op, 30), color=SERIES[index % len(SERIES)], marker="o", lw=0)
            for index, op in enumerate(ops)
        ]
        legend += [
            style.sample(style.fit(dtype, 20), color=INK, mfc="none", marker=SHAPES[index % len(SHAPES)], lw=0)
            for index, dtype in enumerate(dtypes)
        ]
        legend.append(style.sample("measured ceiling", color="black", lw=1.4))
        figure, share = style.make_figure(title, 3.9, "", legend)
        inches = 3.9 / share
        axes = figure.add_axes((0.62 / WIDTH, 0.42 / inches, 1 - 0.8 / WIDTH, share - 0.5 / inches))
        lines = _plot_ceilings(axes, found, limits, dtypes)
        for index, op in enumerate(ops):
            for kind, dtype in enumerate(dtypes):
                mine = [one for one in found if (one.op, one.dtype) == (op, dtype)]
                axes.plot(
                    [one.intensity for one in mine], [one.tflops for one in mine], SHAPES[kind % len(SHAPES)],
                    color=SERIES[index % len(SERIES)], ms=5, mec="white", mew=0.5, zorder=4,
                )  # fmt: skip
        _name_points(axes, found, lines, several=len(ops) > 1)
        axes.set_xlabel("operations a byte")
        axes.set_ylabel("TFLOP/s")
        return figure


def _plot_ceilings(
    axes: Axes, found: Sequence[CeilingPoint], limits: Limits, dtypes: Sequence[str]
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The copy's slope up to each ridge, and the matrix products' levels from there on. Returns their ends."""
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
    lines = [((start, start * slope), (end, end * slope))]
    lines += [((at, peaks[dtype]), (high, peaks[dtype])) for dtype, at in ridges.items()]
    for ends in lines:
        axes.plot(*zip(*ends, strict=True), color="black", lw=1.4, zorder=2)
    for dtype, at in ridges.items():
        axes.plot([at, at], [bottom, peaks[dtype]], color="#AAAAAA", lw=0.8, ls=":", zorder=1)
    # Below the slope's lower end, which few cases reach, and above the levels.
    axes.annotate(f"copy {significant(limits.copy_gbps or 0)} GB/s", lines[0][0], (20, 2), textcoords="offset points",
                  fontsize=7.5)  # fmt: skip
    if peaks:
        ranked = sorted(peaks.items(), key=lambda pair: -pair[1])
        text = "matmul TFLOP/s: " + ", ".join(f"{style.fit(name, 16)} {significant(peak)}" for name, peak in ranked)
        axes.annotate(text, (high, ranked[0][1]), (0, 3), textcoords="offset points", fontsize=7.5, ha="right")
    return lines


def _name_points(axes: Axes, found: Sequence[CeilingPoint], lines: Sequence[Any], *, several: bool) -> None:
    """Names of the points furthest below their ceilings, each at a place where it covers nothing."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    dots = axes.figure.dpi / 72
    canvas: Any = FigureCanvasAgg(axes.figure)  # type: ignore[arg-type]
    renderer = canvas.get_renderer()
    spots = [tuple(axes.transData.transform((one.intensity, one.tflops))) for one in found]
    reach = 3.5 * dots
    texts: list[Box] = [text.get_window_extent(renderer).extents for text in axes.texts]
    taken: list[Box] = [(x - reach, y - reach, x + reach, y + reach) for x, y in spots]
    for ends in lines:
        start, end = axes.transData.transform(ends)
        taken += [(x - dots, y - dots, x + dots, y + dots) for x, y in np.linspace(start, end, 120)]
    for one, spot in sorted(zip(found, spots, strict=True), key=lambda pair: pair[0].share)[:LABELS]:
        case = ",".join(part for part in one.case.split(",") if part != f"dtype={one.dtype}") or one.case
        name = f"{style.fit(f'{one.op} {case}' if several else case, 44)}  {percent(one.share)}"
        text = axes.annotate(
            name, (one.intensity, one.tflops), (0, 0), textcoords="offset points", fontsize=7, color=INK, va="center",
            zorder=6,
        )  # fmt: skip
        extent = text.get_window_extent(renderer)
        places = _find_places(spot, extent.width, extent.height, dots)
        box = next((box for box in places if _is_free(box, taken + texts, axes.bbox.extents, spot, texts)), None)
        if box is None:
            text.remove()
            continue
        texts.append(box)
        text.set_position(((box[0] - spot[0]) / dots + 1, ((box[1] + box[3]) / 2 - spot[1]) / dots))
        end = _find_end(spot, box)
        if math.dist(end, spot) > 9 * dots:
            offset = ((end[0] - spot[0]) / dots, (end[1] - spot[1]) / dots)
            axes.annotate(
                "", (one.intensity, one.tflops), offset, textcoords="offset points", zorder=1,
                arrowprops={"arrowstyle": "-", "color": "#888888", "lw": 0.6, "shrinkA": 0, "shrinkB": 3},
            )  # fmt: skip


def _find_places(spot: tuple[float, float], width: float, height: float, dots: float) -> Iterator[Box]:
    """Boxes of a label around its point, dots. The nearest come first."""
    x, y = spot
    gap = 7 * dots
    for step in range(12):
        for up in dict.fromkeys((-step * 0.9 * height, step * 0.9 * height)):
            for right in (gap, -gap - width, *((-width / 2,) if step > 1 else ())):
                left, middle = x + right, y + up
                yield (left - dots, middle - height / 2, left + width + dots, middle + height / 2)


def _find_end(spot: tuple[float, float], box: Box) -> tuple[float, float]:
    """The place of a box that is nearest to a point."""
    return min(max(spot[0], box[0]), box[2]), min(max(spot[1], box[1]), box[3])


def _is_free(box: Box, taken: Sequence[Box], inside: Box, spot: tuple[float, float], texts: Sequence[Box]) -> bool:
    """Whether a label covers nothing, and the line to its point crosses no text."""
    left, bottom, right, top = box
    within = left >= inside[0] and bottom >= inside[1] and right <= inside[2] and top <= inside[3]
    if not within or any(left < r and x < right and bottom < t and b < top for x, b, r, t in taken):
        return False
    way = np.linspace(spot, _find_end(spot, box), 30)
    return not any(x <= at <= r and b <= up <= t for at, up in way for x, b, r, t in texts)


# --- time against size ------------------------------------------------------------------------------------------------


def draw_sizes(found: Scaling, title: str) -> Figure:
    """Medians over what the op moves, computes, or is large in, with the device's limit. Each curve has a colour."""
    with style.apply_style():
        curves = found.curves[:CURVES]
        arms = dict.fromkeys(arm for curve in curves for arm in curve.arms)
        legend = [
            style.sample(
                style.name_arm(arm), color=INK, marker=MARKERS.get(arm, "D"), ms=4, ls=DASHES.get(arm, "-"),
                mfc=INK if arm == "kernel" else "white",
            )
            for arm in arms
        ]  # fmt: skip
        if len(curves) > 1 or curves[0].name:
            legend += [
                style.sample(style.fit(curve.name, 48), color=SERIES[index], lw=3) for index, curve in enumerate(curves)
            ]
        if found.limit:
            legend.append(style.sample(found.limit.name, color="black", lw=1.2, ls=":"))
        left_out = len(found.curves) - len(curves)
        note = f"{left_out} more curves are left out" if left_out else ""
        figure, share = style.make_figure(title, 3.1, note, legend)
        inches = 3.1 / share
        axes = figure.add_axes((0.72 / WIDTH, 0.42 / inches, 1 - 0.9 / WIDTH, share - 0.5 / inches))
        points = [point for curve in curves for arm in curve.arms.values() for point in arm]
        low, high = min(x for x, _ in points), max(x for x, _ in points)
        least, most = min(us for _, us in points), max(us for _, us in points)
        if found.limit:
            axes.plot([low, high], [low / found.limit.per_us, high / found.limit.per_us], color="black", lw=1.2, ls=":")
            least = min(least, low / found.limit.per_us)
        for index, curve in enumerate(curves):
            for arm, ours in reversed(list(curve.arms.items())):
                axes.plot(*zip(*average_sizes(ours), strict=True), color=SERIES[index], ls=DASHES.get(arm, "-"), lw=1)
                axes.plot(
                    *zip(*ours, strict=True), MARKERS.get(arm, "D"), color=SERIES[index], ms=4,
                    mfc=SERIES[index] if arm == "kernel" else "white", mew=0.8,
                )  # fmt: skip
        _scale_sizes(axes, found.axis, low, high)
        style.set_log(axes.yaxis, least, most, lambda us: time(us).replace(".00", "").replace(".0 ", " "))
        axes.set_ylim(least / 1.3, most * 1.3)
        axes.set_ylabel("time")
        return figure


def _scale_sizes(axes: Axes, axis: str, low: float, high: float) -> None:
    """Make the axis of sizes logarithmic. Bytes and numbers have ticks at powers of two."""
    from matplotlib.ticker import FixedLocator

    def write(value: float) -> str:
        if axis == BYTES:
            return size(value).replace(".00 ", " ").replace(".0 ", " ")
        if axis == OPERATIONS:
            scales = ((1e12, " T"), (1e9, " G"), (1e6, " M"))
            scale, unit = next(((scale, unit) for scale, unit in scales if value >= scale), (1.0, ""))
            return f"{value / scale:.10g}{unit}"
        return significant(value) if value < 1 else f"{value:.0f}"

    style.set_log(axes.xaxis, low, high, write)
    if axis != OPERATIONS:
        powers = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
        every = -(-len(powers) // 8)
        axes.xaxis.set_major_locator(FixedLocator([2.0**power for power in powers[::every]]))
    axes.set_xlim(low / 1.15, high * 1.15)
    axes.set_xlabel(style.fit(axis, 40))
