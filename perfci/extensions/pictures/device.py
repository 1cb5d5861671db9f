"""The roofline, and time against size: what cases reach of what the device can do."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from perfci.core.model import Limits
from perfci.core.units import percent, significant, time
from perfci.extensions.pictures import style
from perfci.extensions.pictures.style import COLOURS, DASHES, INK, MARKERS, QUIET, SERIES, SHAPES, WIDTH, caption
from perfci.report.ceilings import CeilingPoint, WorkingPoint, find_ridge

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = 8  # most points that are named, those with the lowest shares of their ceilings
NAMES = 2.9  # width of the column with their names, inches
FEWEST = 3  # sizes below which time against size has no shape
BEST = "#D55E00"


@style.apply_style()
def draw_roofline(ceiling_points: Sequence[CeilingPoint], limits: Limits, title: str) -> Figure:
    """Draw TFLOP/s over operations a byte below the ceilings of this device. Several ops differ in colour."""
    ops = dict(zip(dict.fromkeys(one.op for one in ceiling_points), SERIES * len(ceiling_points), strict=False))
    dtypes = dict(zip(dict.fromkeys(one.dtype for one in ceiling_points), SHAPES * len(ceiling_points), strict=False))
    legend = [style.sample(style.fit(op, 30), color=colour, marker="o", lw=0) for op, colour in ops.items()]
    legend += [
        style.sample(style.fit(dtype, 20), color=INK, mfc="none", marker=shape, lw=0) for dtype, shape in dtypes.items()
    ]
    legend.append(style.sample(caption("measured ceiling"), color="black", lw=1.4))
    named = sorted(ceiling_points, key=lambda one: one.share)[:LABELS]
    # The shape of a point shows its dtype.
    shared, names = style.split_names([one.case.replace(f",dtype={one.dtype}", "") for one in named])
    note = caption("all that are named: {shared}", shared=style.fit(shared, 40)) if shared else ""
    figure, share = style.make_figure(title, 3.9, note, legend)
    inches = figure.get_figheight()
    axes = figure.add_axes((0.7 / WIDTH, 0.42 / inches, 1 - (0.7 + NAMES) / WIDTH, share - 0.5 / inches))
    _plot_ceilings(axes, ceiling_points, limits, list(dtypes))
    for one in ceiling_points:
        axes.plot(
            [one.intensity], [one.tflops], dtypes[one.dtype], color=ops[one.op], ms=5, mec="white", mew=0.5, zorder=4
        )
    names = [f"{one.op} {name}" if len(ops) > 1 else name for one, name in zip(named, names, strict=True)]
    _name_points(axes, sorted(zip(named, names, strict=True), key=lambda pair: (-pair[0].tflops, -pair[0].intensity)))
    axes.set_xlabel(caption("operations a byte"))
    axes.set_ylabel("TFLOP/s")
    return figure


def _plot_ceilings(axes: Axes, ceiling_points: Sequence[CeilingPoint], limits: Limits, dtypes: Sequence[str]) -> None:
    """The copy's slope up to each ridge, and the matrix products' levels from there on."""
    slope = (limits.copy_gbps or 0.0) / 1e3
    ridges = {dtype: at for dtype in dtypes if (at := find_ridge(limits, dtype))}
    peaks = {dtype: limits.matmul_tflops[dtype] for dtype in ridges}
    xs = [*(one.intensity for one in ceiling_points), *ridges.values()]
    ys = [*(one.tflops for one in ceiling_points), *peaks.values(), *(one.ceiling for one in ceiling_points)]
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
    text = caption("copy {limit:n} GB/s", limit=limits.copy_gbps or 0.0)
    axes.annotate(text, (start, start * slope), (20, 2), fontsize=7.5, textcoords="offset points")
    if peaks:
        ranked = sorted(peaks.items(), key=lambda pair: -pair[1])
        told = ", ".join(f"{style.fit(name, 16)} {significant(peak)}" for name, peak in ranked)
        text = caption("matmul TFLOP/s: {peaks}", peaks=told)
        axes.annotate(text, (high, ranked[0][1]), (0, 3), textcoords="offset points", fontsize=7.5, ha="right")


def _name_points(axes: Axes, named: Sequence[tuple[CeilingPoint, str]]) -> None:
    """Names of the points furthest below their ceilings, in a column at the right with a line to each."""
    top = 0.5 + 0.045 * len(named)
    axes.text(
        1.05, top + 0.02, caption("furthest below the ceiling"), transform=axes.transAxes, fontsize=7, color=QUIET
    )
    for place, (one, name) in enumerate(named, 1):
        axes.annotate(
            f"{style.fit_inches(name, NAMES - 0.85, 7)}  {percent(one.share)}", (one.intensity, one.tflops),
            (1.05, top - 0.09 * place + 0.03), textcoords="axes fraction", fontsize=7, color=INK, va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "#BBBBBB", "lw": 0.6, "shrinkB": 3, "relpos": (0, 0.5)},
        )  # fmt: skip


# --- time against size ------------------------------------------------------------------------------------------------


def find_size(point: WorkingPoint, by_memory: bool) -> float:
    """What a case is as large as: the bytes that it moves, or its operations."""
    return float((point.case.bytes_moved if by_memory else point.case.flops) or 0)


def _is_by_memory(working_points: Sequence[WorkingPoint]) -> bool:
    """Whether the cases of an op are as large as the bytes that they move: most are not limited by arithmetic."""
    return 2 * sum(bool(one.place and not one.place.by_memory) for one in working_points) < len(working_points)


def choose_sized(working_points: Iterable[WorkingPoint]) -> dict[str, list[WorkingPoint]]:
    """The points with a size that is known, of the ops that have FEWEST sizes."""
    ops: dict[str, list[WorkingPoint]] = {}
    for one in working_points:
        ops.setdefault(one.op, []).append(one)
    sized = {op: [one for one in points if find_size(one, _is_by_memory(points))] for op, points in ops.items()}
    return {
        op: points
        for op, points in sized.items()
        if len({find_size(one, _is_by_memory(points)) for one in points}) >= FEWEST
    }


def _name_curves(working_points: Sequence[WorkingPoint]) -> list[str]:
    """What keeps each point's curve apart from others: the parts of its case that are no numbers and that differ."""
    parts = [[part for part in one.case.case.split(",") if not _is_number(part)] for one in working_points]
    shared = set.intersection(*map(set, parts))
    return [",".join(part for part in names if part not in shared) for names in parts]


def _is_number(part: str) -> bool:
    return part.partition("=")[2].replace(".", "", 1).isdigit()


@style.apply_style()
def draw_sizes(working_points: Mapping[str, Sequence[WorkingPoint]], title: str, note: str = "") -> Figure:
    """A panel an op with its medians by size, the time that the ceilings allow, and the point nearest to that."""
    every = [one for points in working_points.values() for one in points]
    legend = [
        style.sample(style.caption_of(arm), color=colour, marker=MARKERS[arm], ms=3, ls=DASHES[arm])
        for arm, colour in COLOURS.items()
        if any(arm in one.us for one in every)
    ]
    if any(one.share for one in every):
        legend.append(style.sample(caption("what the ceilings allow"), color="black", lw=1, ls=":"))
        legend.append(style.sample(caption("best working point"), color=BEST, marker="o", ms=7, mfc="none", lw=0))
    figure, panels = style.make_panels(len(working_points), title, note, legend)
    for axes, (op, points) in zip(panels, working_points.items(), strict=True):
        style.set_heading(axes, op, plot_sizes(axes, points))
    return figure


def plot_sizes(axes: Axes, working_points: Sequence[WorkingPoint]) -> str:
    """The medians of each arm, a line each of those that differ in size alone. Returns the best point in words."""
    by_memory = _is_by_memory(working_points)
    points = sorted(working_points, key=lambda one: find_size(one, by_memory))
    sizes = [find_size(one, by_memory) for one in points]
    curves: dict[str, list[tuple[float, WorkingPoint]]] = {}
    for name, size, one in zip(_name_curves(points), sizes, points, strict=True):
        curves.setdefault(name, []).append((size, one))
    ceilings = list[tuple[float, float]]()
    for curve, arm in itertools.product(curves.values(), reversed(COLOURS)):
        if line := [(size, one.us[arm]) for size, one in curve if arm in one.us]:
            axes.plot(*zip(*line, strict=True), color=COLOURS[arm], ls=DASHES[arm], lw=0.9, marker=MARKERS[arm], ms=2.6)
    for curve in curves.values():
        if line := [(size, one.us["kernel"] * one.share) for size, one in curve if one.share]:
            axes.plot(*zip(*line, strict=True), color="black", lw=1, ls=":", marker="_", ms=3, zorder=1)
            ceilings += line
    best = max(points, key=lambda one: one.share or 0.0)
    if ceilings:
        at = [find_size(best, by_memory)], [best.us["kernel"]]
        axes.plot(*at, "o", ms=8, mfc="none", mec=BEST, mew=1.2, zorder=5)
    times = [one.us[arm] for one in points for arm in COLOURS if arm in one.us] + [us for _, us in ceilings]
    style.set_log(axes.xaxis, sizes[0], sizes[-1], _write_size if by_memory else _write_giga, most=4)
    style.set_log(
        axes.yaxis, min(times), max(times), lambda us: time(us).replace(".00", "").replace(".0 ", " "), most=4
    )
    axes.set_xlim(sizes[0] / 1.2, sizes[-1] * 1.2)
    axes.set_ylim(min(times) / 1.5, max(times) * 1.5)
    axes.set_xlabel(caption("bytes moved") if by_memory else caption("operations"))
    if not ceilings:
        return ""
    write = _write_size if by_memory else _write_giga
    facts = {"share": percent(best.share), "size": write(float(significant(find_size(best, by_memory))))}
    if best.place:
        return caption("best: {share} of its ceiling, at {size}", **facts)
    return caption("best: {share} of a copy, at {size}", **facts)


def _write_size(value: float) -> str:
    return f"{value / 1e6:.6g} MB" if value < 1e9 else f"{value / 1e9:.6g} GB"


def _write_giga(value: float) -> str:
    return f"{value / 1e9:.6g} Gop"
