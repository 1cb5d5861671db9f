"""Charts of an op's cases: block medians, launches, changes with their intervals, and one picture of a single case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.core.model import Gate, Interval, Verdict
from perfci.core.units import percent, time
from perfci.extensions.pictures import style
from perfci.extensions.pictures.style import COLOURS, DASHES, GATES, INK, MARKERS, WIDTH, Floats, caption

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEAR = 1.3
"""Greatest ratio between the reference and the other arms at which they share a panel. Beyond, it would press the arms
that are compared into a line."""

CUT = (0.01, 0.98)  # quantiles of the launches between which the axis of a distribution lies
FAR = 3.0  # distances of the quartiles beyond them at which it ends at the latest: a few far launches hide no step
POINTS = 100  # points of a curve that are drawn
ROWS = 32  # most cases in a chart of changes
ALLOWED = "#D5E3EE"


@dataclass(frozen=True)
class CaseChart:
    """What there is to draw of a timed case. Times are in microseconds."""

    case: str
    verdict: Verdict | None = None
    gate: Gate = Gate.OK
    processes: tuple[int, ...] = ()  # of each block, in the order of measuring
    medians: Mapping[str, Floats] = field(default_factory=dict)
    """of each block, by arm in the order of COLOURS, NaN if the block lacks the arm"""
    baseline_us: float | None = None  # stored median
    launches: Mapping[str, Floats] = field(default_factory=dict)
    """every launch by arm, in microseconds. If one is the base, in per cent against its median in the same block"""
    shifts: tuple[Floats, ...] = ()  # by process: logarithm of kernel / base of each block
    change: Interval | None = None  # against the base or the baseline, ratio - 1
    allowed: float | None = None  # slow-down, ratio - 1
    speedup: Interval | None = None
    target: float | None = None  # of the speedup

    @property
    def beside_base(self) -> bool:
        """Whether its launches are held against the base's."""
        return "base" in self.launches

    @property
    def flag(self) -> str:
        """The verdict if the case fails or warns."""
        return str(self.verdict) if self.verdict and self.gate is not Gate.OK else ""


def part_arms(values: Mapping[str, Floats]) -> tuple[list[str], str]:
    """Arms that share a panel, and in words a reference that lies too far from them."""
    middles = {arm: float(np.nanmedian(us)) for arm, us in values.items()}
    others = [us for arm, us in middles.items() if arm != "reference"]
    reference = middles.get("reference")
    if not others or reference is None or max(others) / NEAR < reference < min(others) * NEAR:
        return list(middles), ""
    return [arm for arm in middles if arm != "reference"], caption("reference {time}", time=time(reference))


def _name_shared(shared: str, limit: int) -> str:
    return caption("all: {shared}", shared=style.fit(shared, limit)) if shared else ""


def _join(*texts: str) -> str:
    return "; ".join(filter(None, texts))


def _name_arms(cases: Sequence[CaseChart]) -> list[Any]:
    """The legend of block medians."""
    arms = [
        style.sample(
            style.caption_of(arm),
            color=colour,
            lw=0.6,
            marker=MARKERS[arm],
            ms=4,
            mfc=colour if arm == "kernel" else "white",
            mew=0.8,
        )
        for arm, colour in COLOURS.items()
        if any(arm in part_arms(case.medians)[0] for case in cases)
    ]
    if any(case.baseline_us for case in cases):
        arms.append(style.sample(caption("baseline"), color="black", lw=1, ls=":"))
    if any(any(case.processes) for case in cases):
        arms.append(style.sample(caption("fresh process"), style.GROUND))
    return arms


def plot_blocks(axes: Axes, case: CaseChart) -> str:
    """The median of each block, with arms set apart sideways. Returns in words what is left out."""
    arms, far = part_arms(case.medians)
    scale, unit = style.choose_unit(float(np.nanmedian(np.concatenate([case.medians[arm] for arm in arms]))))
    _shade_processes(axes, case.processes)
    seen = list[float]()
    for index, arm in enumerate(reversed(arms)):
        values = case.medians[arm] / scale
        places = np.arange(1, len(values) + 1) + 0.22 * (index - (len(arms) - 1) / 2)
        axes.plot(
            places, values, color=COLOURS[arm], lw=0.6, marker=MARKERS[arm], ms=2.2 if len(values) > 30 else 3.4,
            mfc=COLOURS[arm] if arm == "kernel" else "white", mew=0.7, zorder=3 + index,
        )  # fmt: skip
        seen += values[np.isfinite(values)].tolist()
    if case.baseline_us and "kernel" in arms:
        axes.axhline(case.baseline_us / scale, color="black", lw=1, ls=":", zorder=2)
        seen.append(case.baseline_us / scale)
    style.set_range(axes, seen)
    _number_blocks(axes, len(case.processes))
    axes.set_ylabel(unit)
    return far


def _shade_processes(axes: Axes, processes: Sequence[int]) -> None:
    for process in sorted(set(processes) - {0}):
        places = [place for place, number in enumerate(processes, 1) if number == process]
        axes.axvspan(places[0] - 0.42, places[-1] + 0.42, color=style.GROUND, lw=0, zorder=0)


def _number_blocks(axes: Axes, count: int) -> None:
    style.limit_ticks(axes, whole=True)
    axes.set_xlim(0.3, count + 0.7)
    axes.grid(axis="x", visible=False)


def plot_launches(axes: Axes, case: CaseChart) -> str:
    """The share of launches that took at most so long. Returns in words what lies beyond the axis.

    Beside a base each launch is held against the base's in the same block, so that no clock hides a step.
    """
    arms = list_launched(case)
    ends = [end for arm in arms for end in _find_ends(case.launches[arm])]
    if case.beside_base:
        allowed = 100 * (case.allowed or 0.0)
        axes.axvspan(-allowed, allowed, color=ALLOWED, lw=0, zorder=0)
        scale, unit = 1.0, caption("% beside the base, block by block")
        ends += [-1.1 * allowed, 1.1 * allowed]
    else:
        scale, unit = style.choose_unit(max(ends))
        if case.baseline_us:
            axes.axvline(case.baseline_us / scale, color="black", lw=1, ls=":", zorder=2)
            ends.append(case.baseline_us)
    low, high = float(min(ends)), float(max(ends))
    room = 0.03 * (high - low) or 0.01 * abs(high) or 1.0
    for arm in reversed(arms):
        shares = np.linspace(0, 1, min(case.launches[arm].size, POINTS))
        values = np.quantile(case.launches[arm], shares)
        xs, ys = np.concatenate(([low - room], values, [high + room])), np.concatenate(([0], shares, [1]))
        axes.plot(xs / scale, ys, color=COLOURS[arm], ls=DASHES[arm], lw=1.3)
    axes.set_xlim((low - room) / scale, (high + room) / scale)
    axes.set_ylim(-0.02, 1.02)
    style.limit_ticks(axes, y=3)
    axes.set_xlabel(unit)
    every = np.concatenate([case.launches[arm] for arm in arms])
    slower, most = np.count_nonzero(every > high + room), float(every.max())
    longest = percent(most / 100, signed=True) if case.beside_base else time(most)
    share = percent(slower / every.size)
    return caption("{share} beyond, up to {longest}", share=share, longest=longest) if slower else ""


def _find_ends(values: Floats) -> tuple[float, float]:
    """Between which nearly all values lie."""
    low, first, third, high = np.quantile(values, (CUT[0], 0.25, 0.75, CUT[1])).tolist()
    reach = FAR * (third - first) or high - low
    return max(low, first - reach), min(high, third + reach)


def list_launched(case: CaseChart) -> list[str]:
    """The arms with launches that are drawn: beside a base nothing widens the axis, so that a small step is seen."""
    return ["kernel", "base"] if case.beside_base else part_arms(case.launches)[0]


def plot_duel(axes: Axes, case: CaseChart) -> str:
    """Kernel against base, block by block, with what is allowed and each process's median. Returns the whole change."""
    tau = 100 * (case.allowed or 0.0)
    axes.axhspan(-tau, tau, color="#B9D3E6", alpha=0.6, lw=0, zorder=1)
    axes.axhline(0, color=INK, lw=0.7)
    _shade_processes(axes, [process for process, shifts in enumerate(case.shifts) for _ in shifts])
    start, seen = 1, [0.0, -1.25 * tau, 1.25 * tau]
    for shifts in case.shifts:
        changes = 100 * np.expm1(shifts)
        places = np.arange(start, start + changes.size)
        axes.plot(places, changes, "o-", color=GATES[case.gate], lw=0.5, ms=2.6 if len(places) > 30 else 3.4)
        axes.plot([start - 0.4, places[-1] + 0.4], [np.median(changes)] * 2, color="black", lw=1.2, zorder=5)
        start += changes.size
        seen += changes.tolist()
    style.set_range(axes, seen, least=0.0, share=0.06)
    _number_blocks(axes, start - 1)
    axes.set_ylabel("%")
    if case.change is None:
        return ""
    value, low, high = (percent(one, signed=True) for one in (case.change.value, case.change.low, case.change.high))
    allowed = percent(case.allowed)
    return caption("{value} ({low} to {high}), allowed {allowed}", value=value, low=low, high=high, allowed=allowed)


@style.apply_style()
def draw_blocks(cases: Sequence[CaseChart], title: str, note: str = "") -> Figure:
    """A panel a case with its block medians."""
    shared, names = style.split_names([case.case for case in cases])
    note = _join(note, _name_shared(shared, 70))
    figure, panels = style.make_panels(len(cases), title, note, _name_arms(cases))
    for place, (axes, case, name) in enumerate(zip(panels, cases, names, strict=True)):
        style.set_heading(axes, name, plot_blocks(axes, case), case.gate, case.flag)
        if place + 3 >= len(panels):
            axes.set_xlabel(caption("block"))
    return figure


@style.apply_style()
def draw_launches(cases: Sequence[CaseChart], title: str, note: str = "") -> Figure:
    """A panel a case with the distribution of its launches."""
    shared, names = style.split_names([case.case for case in cases])
    note = _join(note, _name_shared(shared, 30), caption("distributions without their tails"))
    legend = [
        style.sample(style.caption_of(arm), color=colour, ls=DASHES[arm], lw=1.5)
        for arm, colour in COLOURS.items()
        if any(arm in list_launched(case) for case in cases)
    ]
    if any(case.beside_base and case.allowed for case in cases):
        legend.append(style.sample(caption("allowed"), ALLOWED))
    if any(case.baseline_us and not case.beside_base for case in cases):
        legend.append(style.sample(caption("baseline"), color="black", lw=1, ls=":"))
    figure, panels = style.make_panels(len(cases), title, note, legend)
    for place, (axes, case, name) in enumerate(zip(panels, cases, names, strict=True)):
        style.set_heading(axes, name, plot_launches(axes, case), case.gate, case.flag)
        if place % 3 == 0:
            axes.set_ylabel(caption("share of launches"))
    return figure


@style.apply_style()
def draw_case(case: CaseChart, title: str) -> Figure:
    """Everything about one case: its blocks, its launches and its duel side by side."""
    plots = [(caption("block medians"), plot_blocks)]
    plots += [(caption("share of launches"), plot_launches)] if case.launches else []
    plots += [(caption("kernel against base, by block"), plot_duel)] if case.shifts else []
    note = caption("distributions without their tails") if case.launches else ""
    figure, panels = style.make_panels(len(plots), title, note, _name_arms([case]), height=1.6)
    for axes, (name, plot) in zip(panels, plots, strict=True):
        style.set_heading(axes, name, plot(axes, case))
        if plot is not plot_launches:
            axes.set_xlabel(caption("block"))
    return figure


@style.apply_style()
def draw_changes(cases: Sequence[CaseChart], title: str, note: str = "") -> Figure:
    """A line a case: its change and its speedup with 95 % intervals. A side is left out if no case has it."""
    sides = [side for side in ("change", "speedup") if any(getattr(case, side) for case in cases)]
    legend = [
        style.sample(name, color=GATES[gate], marker="o", ms=4, lw=1.2)
        for gate, name in ((Gate.OK, caption("fine")), (Gate.WARNS, caption("warns")), (Gate.FAILS, caption("fails")))
        if any(case.gate is gate for case in cases)
    ]
    if "change" in sides and any(case.allowed for case in cases):
        legend.append(style.sample(caption("allowed"), ALLOWED))
    if any(case.target for case in cases):
        legend.append(style.sample(caption("target"), color="black", marker="|", ms=7, lw=0))
    shared, names = style.split_names([case.case for case in cases])
    note = _join(note, _name_shared(shared, 60))
    figure, share = style.make_figure(title, 0.19 * len(cases) + 0.66, note, legend)
    inches = figure.get_figheight()
    left = min(max(map(len, names)) * style.LETTER + 0.2, 3.4)
    width = (WIDTH - left) / len(sides)
    for column, side in enumerate(sides):
        start = left + column * width + 0.05
        axes = figure.add_axes((start / WIDTH, 0.36 / inches, (width - 0.75) / WIDTH, share - 0.62 / inches))
        plot_changes(axes, cases, side)
        axes.set_yticks([])
        axes.set_ylim(len(cases) - 0.4, -0.6)
        for place, name in enumerate(names if column == 0 else ()):
            axes.text(-0.06 / (width - 0.75), place, style.fit_inches(name, left - 0.1), ha="right", va="center",
                      transform=axes.get_yaxis_transform(), fontsize=7.5, color=INK)  # fmt: skip
    return figure


def plot_changes(axes: Axes, cases: Sequence[CaseChart], side: str) -> None:
    """The intervals of one side, with their values as text."""
    scale, middle = (100, 0.0) if side == "change" else (1, 1.0)
    intervals = [(place, case, getattr(case, side)) for place, case in enumerate(cases) if getattr(case, side)]
    ends = [middle]
    for place, case, interval in intervals:
        value, low, high = scale * interval.value, scale * interval.low, scale * interval.high
        colour = GATES[case.gate]
        axes.plot([low, high], [place, place], color=colour, lw=2, zorder=3)
        axes.plot([value], [place], "o", color=colour, ms=4, zorder=4)
        text = percent(interval.value, signed=True) if side == "change" else f"{value:.2f}x"
        axes.text(1.02, place, text, transform=axes.get_yaxis_transform(), va="center", fontsize=7, color=INK)
        # An interval that is much wider than the changes would press all others into a line.
        ends += [value, *(end for end in (low, high) if abs(end - value) < 20 * max(abs(value), 1))]
        if side == "change" and case.allowed:
            allowed = 100 * case.allowed
            axes.barh(place, 2 * allowed, left=-allowed, color=ALLOWED, zorder=1)
            ends += [-1.1 * allowed, 1.1 * allowed]
        elif side == "speedup" and case.target:
            axes.plot([case.target], [place], "|", color="black", ms=9, mew=1.4, zorder=5)
            ends.append(case.target)
    axes.axvline(middle, color=INK, lw=0.8, zorder=2)
    room = 0.04 * (max(ends) - min(ends)) or 0.5
    axes.set_xlim(min(ends) - room, max(ends) + room)
    style.limit_ticks(axes, x=6)
    axes.set_xlabel("%" if side == "change" else caption("times as fast as the reference"))
    heading = caption("change: right of 0 is slower") if side == "change" else caption("speedup over the reference")
    axes.set_title(heading, pad=4, fontweight="bold", color=INK)
