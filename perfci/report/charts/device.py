"""Charts against what the device can do: the roofline, and time against the bytes moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from perfci.core.model import Limits, OpRun
from perfci.core.units import percent, significant, size, time
from perfci.report.ceilings import CeilingPoint, find_ridge
from perfci.report.charts import style
from perfci.report.charts.style import COLOURS, DASHES, INK, MARKERS, QUIET, SERIES, SHAPES
from perfci.report.frame import ArmSpread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = 8
"""Most points that are named, those with the lowest shares of their ceilings."""

NAMES = 2.9
"""Width of the column with their names, inches."""

FEWEST = 3
"""Fewest sizes of one line: two points show no shape."""

Curves = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
"""What tells the cases of a curve from others, dtype=float16 -> arm -> bytes and microseconds, by size."""


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
    shared, names = style.split_names([one.case for one in named])
    note = f"all that are named: {style.fit(shared, 40)}" if shared else ""
    axes = style.make_axes(title, 3.9, note, legend, right=NAMES)
    _plot_ceilings(axes, found, limits, list(dtypes))
    for one in found:
        axes.plot(
            [one.intensity], [one.tflops], dtypes[one.dtype], color=ops[one.op], ms=5, mec="white", mew=0.5, zorder=4
        )
    names = [f"{one.op} {name}" if len(ops) > 1 else name for one, name in zip(named, names, strict=True)]
    _name_points(axes, sorted(zip(named, names, strict=True), key=lambda pair: (-pair[0].tflops, -pair[0].intensity)))
    axes.set_xlabel("operations a byte")
    axes.set_ylabel("TFLOP/s")
    return axes.get_figure(root=True)  # type: ignore[return-value]


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


# --- time against bytes -----------------------------------------------------------------------------------------------


def find_curves(op: OpRun, spreads: Iterable[ArmSpread]) -> Curves:
    """The op's medians by bytes moved. Empty if a case does not declare its bytes, or if no curve has FEWEST sizes.

    Cases are told apart by the parts of their ids that are no numbers and that differ.
    """
    timed = [case for case in op.performance if case.blocks]
    if not all(case.bytes_moved for case in timed):
        return {}
    names = {case.case: [part for part in case.case.split(",") if not _is_number(part)] for case in timed}
    shared = set.intersection(*map(set, names.values())) if names else set()
    times = {(spread.case, spread.arm): spread.p50_us for spread in spreads}
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for case in sorted(timed, key=lambda case: case.bytes_moved or 0):
        name = ",".join(part for part in names[case.case] if part not in shared)
        for arm in COLOURS:
            if us := times.get((case.case, arm)):
                curves.setdefault(name, {}).setdefault(arm, []).append((case.bytes_moved or 0.0, us))
    most = max((len({x for x, _ in points}) for arms in curves.values() for points in arms.values()), default=0)
    return curves if most >= FEWEST else {}


def _is_number(part: str) -> bool:
    return part.partition("=")[2].replace(".", "", 1).isdigit()


@style.apply_style()
def draw_sizes(curves: Curves, limits: Limits, title: str) -> Figure:
    """Medians over the bytes that a case moves, with the device's measured copy. Each curve has a colour."""
    colours = dict(zip(curves, SERIES, strict=False))
    arms = dict.fromkeys(arm for name in colours for arm in curves[name])
    filled = {arm: INK if arm == "kernel" else "white" for arm in arms}
    legend = [style.sample(arm, color=INK, marker=MARKERS[arm], ms=4, ls=DASHES[arm], mfc=filled[arm]) for arm in arms]
    legend += [style.sample(style.fit(name, 48), color=colour, lw=3) for name, colour in colours.items() if name]
    points = [point for name in colours for arm in curves[name].values() for point in arm]
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    least, most = min(us for _, us in points), max(us for _, us in points)
    left_out = len(curves) - len(colours)
    if limits.copy_gbps:
        least = min(least, low / limits.copy_gbps / 1e3)
        legend.append(style.sample(f"copy, {significant(limits.copy_gbps)} GB/s", color="black", lw=1.2, ls=":"))
    axes = style.make_axes(title, 3.1, f"{left_out} more curves are left out" if left_out else "", legend)
    if limits.copy_gbps:
        ends = [low, high]
        axes.plot(ends, [x / limits.copy_gbps / 1e3 for x in ends], color="black", lw=1.2, ls=":")
    for name, colour in colours.items():
        for arm, ours in reversed(list(curves[name].items())):
            axes.plot(
                *zip(*ours, strict=True), color=colour, ls=DASHES[arm], lw=1, marker=MARKERS[arm], ms=4,
                mfc=colour if arm == "kernel" else "white", mew=0.8,
            )  # fmt: skip
    style.set_log(axes.xaxis, low, high, lambda x: size(x).replace(".00 ", " ").replace(".0 ", " "), base=2)
    style.set_log(axes.yaxis, least, most, lambda us: time(us).replace(".00", "").replace(".0 ", " "))
    axes.set_xlim(low / 1.15, high * 1.15)
    axes.set_ylim(least / 1.3, most * 1.3)
    axes.set_xlabel("bytes moved")
    axes.set_ylabel("time")
    return axes.get_figure(root=True)  # type: ignore[return-value]
