"""Charts of an op's cases: block medians, launches, changes with their intervals, and one picture of a single case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.core.model import Block, Gate, Interval, Look, Verdict, is_peer
from perfci.core.units import percent, time
from perfci.report.charts import style
from perfci.report.charts.style import COLOURS, DASHES, GATES, INK, MARKERS, QUIET, WIDTH, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEAR = 1.3
"""Greatest ratio between the reference and the other arms at which they share a panel. Beyond, it would press the arms
that are compared into a line."""

CUT = (0.5, 99.5)
"""Percentiles of the launches between which the axis of a distribution lies."""

POINTS = 100
"""Points of a curve that are drawn."""

ROWS, VALUES = 32, 16
"""Most cases in a chart of changes, and most whose numbers stand beside them."""

CUT_NOTE = "axes cut at the 0.5th and 99.5th percentile"


@dataclass(frozen=True)
class CaseChart:
    """What there is to draw of a timed case."""

    case: str
    verdict: Verdict | None = None
    gate: Gate = Gate.OK
    blocks: tuple[Block, ...] = ()
    """in the order of measuring"""
    baseline_us: float | None = None
    """stored median"""
    launches: Mapping[str, Floats] = field(default_factory=dict)
    """every launch by arm, without peers, microseconds"""
    stored: Floats | None = None
    """medians of the baseline's blocks, microseconds: its launches are not stored"""
    duel: Look | None = None
    shifts: tuple[tuple[float, ...], ...] = ()
    """by process: logarithm of kernel / base of each block"""
    change: Interval | None = None
    """against the base or the baseline, ratio - 1"""
    allowed: float | None = None
    """slow-down, ratio - 1"""
    speedup: Interval | None = None
    target: float | None = None
    """of the speedup"""


def name_verdict(case: CaseChart) -> str:
    """Returns the verdict if the case fails or warns."""
    return str(case.verdict) if case.verdict and case.gate is not Gate.OK else ""


# --- block medians ----------------------------------------------------------------------------------------------------


def draw_blocks(cases: Sequence[CaseChart], title: str, note: str = "") -> Figure:
    """A panel a case: the median of each block against the block's number, by arm."""
    with style.apply_style():
        arms = _find_arms(arm for case in cases for block in case.blocks for arm in block.arms)
        figure, panels = style.make_panels(len(cases), title, note, _name_arms(arms, cases))
        shared, names = style.split_names([case.case for case in cases])
        _write_shared(figure, shared, note)
        for axes, case, name in zip(panels, cases, names, strict=True):
            near, far = _part_arms(_medians(case))
            style.set_heading(axes, name, _describe_far(far, _medians(case)), case.gate, name_verdict(case))
            plot_blocks(axes, case, near)
        for axes in _lowest(panels):
            axes.set_xlabel("block")
        return figure


def plot_blocks(axes: Axes, case: CaseChart, arms: Sequence[str]) -> None:
    """Draw medians of these arms. They are set apart sideways, so that equal ones do not hide each other."""
    medians = _medians(case)
    seen = [us for arm in arms for us in medians[arm] if us is not None]
    if not seen:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=QUIET)
        axes.set_axis_off()
        return
    baseline = case.baseline_us if "kernel" in arms else None
    scale, unit = style.choose_unit(float(np.median(seen)))
    dense = len(case.blocks) > 30
    processes = [block.process for block in case.blocks]
    for process in sorted(set(processes) - {0}):
        places = [place for place, each in enumerate(processes, 1) if each == process]
        axes.axvspan(places[0] - 0.42, places[-1] + 0.42, color=style.GROUND, lw=0, zorder=0)
    for index, arm in enumerate(reversed(arms)):
        shift = 0.22 * (index - (len(arms) - 1) / 2)
        values = np.array([math.nan if us is None else us / scale for us in medians[arm]])
        filled = style.colour_of(arm) if arm == "kernel" else "white"
        axes.plot(
            np.arange(1, len(values) + 1) + shift, values, color=style.colour_of(arm), lw=0.6,
            marker=MARKERS.get(arm, "D"), ms=2.2 if dense else 3.4, mfc=filled, mew=0.7, zorder=3 + index,
        )  # fmt: skip
    if baseline:
        axes.axhline(baseline / scale, color="black", lw=1, ls=":", zorder=2)
        seen = [*seen, baseline]
    style.set_range(axes, [us / scale for us in seen])
    style.limit_ticks(axes, whole=True)
    axes.set_xlim(0.3, len(case.blocks) + 0.7)
    axes.set_ylabel(unit)
    axes.grid(axis="x", visible=False)


def _medians(case: CaseChart) -> dict[str, list[float | None]]:
    """Medians by arm, one a block. Peers are left out: beside their times a change would not be seen."""
    arms = _find_arms(arm for block in case.blocks for arm in block.arms)
    return {
        arm: [block.arms[arm].time.median_us if arm in block.arms else None for block in case.blocks] for arm in arms
    }


def _find_arms(found: Iterator[str]) -> list[str]:
    """The usual arms first."""
    known = {arm for arm in found if not is_peer(arm)}
    return [*(arm for arm in COLOURS if arm in known), *sorted(known - set(COLOURS))]


def _part_arms(values: Mapping[str, Iterable[float | None]]) -> tuple[list[str], list[str]]:
    """Arms that share a panel, and the reference if it lies too far from them."""
    middles = {
        arm: float(np.median(known)) for arm, us in values.items() if (known := [one for one in us if one is not None])
    }
    others = [us for arm, us in middles.items() if arm != "reference"]
    reference = middles.get("reference")
    if not others or reference is None or max(others) / NEAR < reference < min(others) * NEAR:
        return list(middles), []
    return [arm for arm in middles if arm != "reference"], ["reference"]


def _describe_far(far: Sequence[str], values: Mapping[str, Iterable[float | None]]) -> str:
    """What stands in place of an arm that lies off the axis."""
    return ", ".join(f"{arm} {time(float(np.median([us for us in values[arm] if us is not None])))}" for arm in far)


def _name_arms(arms: Sequence[str], cases: Sequence[CaseChart]) -> list[Any]:
    found = [
        style.sample(
            style.name_arm(arm), color=style.colour_of(arm), lw=0.6, marker=MARKERS.get(arm, "D"), ms=4,
            mfc=style.colour_of(arm) if arm == "kernel" else "white", mew=0.8,
        )
        for arm in arms
    ]  # fmt: skip
    if any(case.baseline_us for case in cases):
        found.append(style.sample("baseline", color="black", lw=1, ls=":"))
    if any(block.process for case in cases for block in case.blocks):
        found.append(style.sample_ground("fresh process"))
    return found


def _write_shared(figure: Figure, shared: str, note: str) -> None:
    """What the ids of all cases share, below the note at the right."""
    if shared:
        height = figure.get_figheight()
        down = 0.26 if note else 0.1
        figure.text(1 - 0.08 / WIDTH, 1 - down / height, f"all: {style.fit(shared, 70)}", fontsize=7.5, color=QUIET,
                    va="top", ha="right")  # fmt: skip


def _lowest(panels: Sequence[Axes]) -> Iterator[Axes]:
    """The panels under which no other stands."""
    return iter({round(axes.get_position().x0, 4): axes for axes in panels}.values())


# --- launches ---------------------------------------------------------------------------------------------------------


def draw_launches(cases: Sequence[CaseChart], title: str, note: str = "") -> Figure:
    """A panel a case: the share of launches that took at most so long, by arm."""
    with style.apply_style():
        arms = _find_arms(arm for case in cases for arm in case.launches)
        figure, panels = style.make_panels(
            len(cases), title, ", ".join(filter(None, (note, CUT_NOTE))), _name_curves(arms, cases)
        )
        shared, names = style.split_names([case.case for case in cases])
        _write_shared(figure, shared, CUT_NOTE)
        for axes, case, name in zip(panels, cases, names, strict=True):
            near, far = _part_arms(case.launches)
            beyond = plot_launches(axes, case, near)
            text = "; ".join(filter(None, (beyond, _describe_far(far, case.launches))))
            style.set_heading(axes, name, text, case.gate, name_verdict(case))
        for axes in panels[:: min(3, len(panels))]:
            axes.set_ylabel("share of launches")
        return figure


def plot_launches(axes: Axes, case: CaseChart, arms: Sequence[str]) -> str:
    """Distributions of these arms. Returns what lies beyond the axis, in words."""
    low, high = find_cut([case.launches[arm] for arm in arms])
    scale, unit = style.choose_unit(high)
    curves = [(arm, case.launches[arm]) for arm in reversed(arms)]
    if case.stored is not None and "kernel" in arms:
        curves.insert(0, ("baseline", case.stored))
        low, high = min(low, float(case.stored.min())), max(high, float(case.stored.max()))
    room = 0.03 * (high - low) or 0.01 * high
    for arm, us in curves:
        values, shares = find_quantiles(us)
        xs = np.concatenate(([low - room], values, [high + room])) / scale
        look: dict[str, Any] = {"color": "black", "ls": ":", "lw": 1}
        if arm != "baseline":
            look = {"color": style.colour_of(arm), "ls": DASHES.get(arm, "-"), "lw": 1.3}
        axes.plot(xs, np.concatenate(([0.0], shares, [1.0])), drawstyle="steps-post", **look)
    axes.set_xlim((low - room) / scale, (high + room) / scale)
    axes.set_ylim(-0.02, 1.02)
    style.limit_ticks(axes, y=3)
    axes.set_xlabel(unit)
    every = np.concatenate([case.launches[arm] for arm in arms])
    slower = every[every > high + room]
    return f"{percent(slower.size / every.size)} slower, to {time(float(every.max()))}" if slower.size else ""


def find_cut(arms: Sequence[Floats]) -> tuple[float, float]:
    """The least 0.5th and the greatest 99.5th percentile of the arms."""
    ends = [np.percentile(us, CUT) for us in arms]
    return min(float(low) for low, _ in ends), max(float(high) for _, high in ends)


def find_quantiles(us: Floats) -> tuple[Floats, Floats]:
    """Returns values and the share of all that is at most each. Of many values POINTS are returned.

    >>> find_quantiles(np.array([3.0, 1.0]))[0].tolist(), find_quantiles(np.array([3.0, 1.0]))[1].tolist()
    ([1.0, 3.0], [0.5, 1.0])
    """
    ordered = np.sort(np.asarray(us, dtype=float))
    chosen = np.unique(np.linspace(0, ordered.size - 1, min(ordered.size, POINTS)).round().astype(int))
    return ordered[chosen], (chosen + 1) / ordered.size


def _name_curves(arms: Sequence[str], cases: Sequence[CaseChart]) -> list[Any]:
    found = [
        style.sample(style.name_arm(arm), color=style.colour_of(arm), ls=DASHES.get(arm, "-"), lw=1.5) for arm in arms
    ]
    if any(case.stored is not None for case in cases):
        found.append(style.sample("medians of the baseline's blocks", color="black", lw=1, ls=":"))
    return found


# --- a case alone -----------------------------------------------------------------------------------------------------


def draw_case(case: CaseChart, title: str) -> Figure:
    """Everything about one case: its blocks, its launches and its duel side by side, a distant reference below."""
    with style.apply_style():
        arms = _find_arms(arm for block in case.blocks for arm in block.arms)
        near, far = _part_arms(_medians(case))
        kinds = ["blocks", *(["launches"] if case.launches else []), *(["duel"] if any(case.shifts) else [])]
        rows = 2 if far else 1
        whole = 1.55 * rows + 0.62 * rows + 0.12
        note = CUT_NOTE if case.launches else ""
        figure, share = style.make_figure(title, whole, note, _name_arms(arms, [case]))
        inches = whole / share
        grid = figure.add_gridspec(
            rows, len(kinds), height_ratios=[1.55, 1.1][:rows], left=0.6 / WIDTH, right=1 - 0.12 / WIDTH,
            bottom=0.4 / inches, top=share - 0.3 / inches, wspace=0.62 / (WIDTH / len(kinds) - 0.6), hspace=0.55,
        )  # fmt: skip
        for column, kind in enumerate(kinds):
            if kind == "duel":
                _plot_duel(figure.add_subplot(grid[:, column]), case)
                continue
            for row, shown in enumerate((near, far)[:rows]):
                axes = figure.add_subplot(grid[row, column])
                if kind == "blocks":
                    style.set_heading(axes, "reference: block medians" if row else "block medians")
                    plot_blocks(axes, case, shown)
                    axes.set_xlabel("block")
                else:
                    known = [arm for arm in shown if arm in case.launches]
                    text = plot_launches(axes, case, known) if known else ""
                    style.set_heading(axes, "share of launches", text)
        return figure


def _plot_duel(axes: Axes, case: CaseChart) -> None:
    """Kernel against base, block by block, with what is allowed and each process's median."""
    tau = 100 * (math.expm1(case.duel.tau) if case.duel else case.allowed or 0.0)
    axes.axhspan(-tau, tau, color="#B9D3E6", alpha=0.6, lw=0, zorder=1)
    axes.axhline(0, color=INK, lw=0.7)
    start, seen = 1, [0.0, -1.25 * tau, 1.25 * tau]
    for process, shifts in enumerate(case.shifts):
        changes = 100 * np.expm1(np.asarray(shifts))
        places = np.arange(start, start + changes.size)
        if process:
            axes.axvspan(start - 0.42, places[-1] + 0.42, color=style.GROUND, lw=0, zorder=0)
        axes.plot(places, changes, "o-", color=GATES[case.gate], lw=0.5, ms=2.6 if len(places) > 30 else 3.4)
        axes.plot([start - 0.4, places[-1] + 0.4], [np.median(changes)] * 2, color="black", lw=1.2, zorder=5)
        start += changes.size
        seen += changes.tolist()
    room = 0.06 * (max(seen) - min(seen))
    axes.set_ylim(min(seen) - room, max(seen) + room)
    axes.set_xlim(0.3, start - 0.3)
    style.limit_ticks(axes, whole=True)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("block")
    axes.set_ylabel("%")
    style.set_heading(axes, "kernel against base, by block", _describe_change(case))


def _describe_change(case: CaseChart) -> str:
    if case.change is None:
        return ""
    value, low, high = (percent(one, signed=True) for one in (case.change.value, case.change.low, case.change.high))
    return f"{value} ({low} to {high}), allowed {percent(case.allowed)}"


# --- changes and speedups ---------------------------------------------------------------------------------------------


def draw_changes(cases: Sequence[CaseChart], title: str, note: str = "") -> Figure:
    """A line a case: its change against the base or baseline with what is allowed, and its speedup over the reference.

    A side is left out if no case has it. Bars are 95 % intervals.
    """
    with style.apply_style():
        sides = [side for side in ("change", "speedup") if any(getattr(case, side) for case in cases)]
        legend = [
            style.sample(name, color=GATES[gate], marker="o", ms=4, lw=1.2)
            for gate, name in ((Gate.OK, "fine"), (Gate.WARNS, "warns"), (Gate.FAILS, "fails"))
            if any(case.gate is gate for case in cases)
        ]
        if "change" in sides and any(case.allowed for case in cases):
            legend.append(style.sample_ground("allowed", "#D5E3EE"))
        if any(case.target for case in cases):
            legend.append(style.sample("target", color="black", marker="|", ms=7, lw=0))
        whole = 0.19 * len(cases) + 0.66
        figure, share = style.make_figure(title, whole, note, legend)
        inches = whole / share
        shared, names = style.split_names([case.case for case in cases])
        _write_shared(figure, shared, note)
        named = min(max((len(name) for name in names), default=8) * style.LETTER + 0.2, 3.4)
        width = (WIDTH - named) / len(sides)
        for column, side in enumerate(sides):
            left = named + column * width
            axes = figure.add_axes(
                ((left + 0.05) / WIDTH, 0.36 / inches, (width - 0.75) / WIDTH, share - 0.62 / inches)
            )
            _plot_side(axes, cases, side)
            axes.set_yticks(range(len(cases)))
            axes.set_yticklabels([style.fit_inches(name, named - 0.1) for name in names] if not column else [])
            axes.tick_params(axis="y", length=0)
            axes.set_ylim(len(cases) - 0.4, -0.6)
        return figure


def _plot_side(axes: Axes, cases: Sequence[CaseChart], side: str) -> None:
    axes.grid(axis="y", visible=False)
    scale, middle = (100, 0.0) if side == "change" else (1, 1.0)
    found = [(place, case, getattr(case, side)) for place, case in enumerate(cases) if getattr(case, side)]
    places = [place for place, _, _ in found]
    values = [scale * interval.value for _, _, interval in found]
    colours = [GATES[case.gate] for _, case, _ in found]
    ends = [middle, *values]
    if side == "change":
        allowed = [100 * (case.allowed or 0.0) for _, case, _ in found]
        axes.barh(places, [2 * each for each in allowed], left=[-each for each in allowed], color="#D5E3EE", zorder=1)
        ends += [sign * each for each in allowed for sign in (-1.1, 1.1)]
    else:
        targets = [(case.target, place) for place, case, _ in found if case.target]
        if targets:
            axes.plot(*zip(*targets, strict=True), "|", color="black", ms=9, mew=1.4, zorder=5)
            ends += [target for target, _ in targets]
    bounds = [(scale * interval.low, scale * interval.high) for _, _, interval in found]
    axes.hlines(places, [low for low, _ in bounds], [high for _, high in bounds], colors=colours, lw=2, zorder=3)
    axes.scatter(values, places, s=16, c=colours, zorder=4)
    # An interval that is much wider than the changes would press all others into a line.
    ends += [end for pair, value in zip(bounds, values, strict=True) for end in pair
             if abs(end - value) < 20 * max(abs(value), 1)]  # fmt: skip
    for place, value in zip(places, values, strict=True) if len(cases) <= VALUES else ():
        text = f"{round(value, 1) + 0.0:+.1f} %" if side == "change" else f"{value:.2f}x"
        axes.text(1.02, place, text, transform=axes.get_yaxis_transform(), va="center", fontsize=7, color=INK)
    axes.axvline(middle, color=INK, lw=0.8, zorder=2)
    room = 0.04 * (max(ends) - min(ends)) or 0.5
    axes.set_xlim(min(ends) - room, max(ends) + room)
    style.limit_ticks(axes, x=6)
    axes.set_xlabel("%" if side == "change" else "times as fast as the reference")
    heading = "change: right of 0 is slower" if side == "change" else "speedup over the reference"
    axes.set_title(heading, pad=4, fontweight="bold", color=INK)
