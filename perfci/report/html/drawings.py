"""A case's charts: its blocks over time above clock and temperature, its distributions, its duel.

They are the marks of the report's pictures (`perfci.report.figures`), placed below each other so that a phone shows
them, and with their texts in the reader's language.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from perfci.core.model import PEER, Block, DeviceState, Verdict, is_peer
from perfci.core.units import percent, time
from perfci.core.wording import say
from perfci.report import figures
from perfci.report.ceilings import Place
from perfci.report.figures import Distribution, Duel, Trace
from perfci.report.figures.sheet import WIDTH, Axis, Floats, Line, Mark, Note, Panel, Points, Sheet, linear
from perfci.report.figures.style import GRAVE, OTHER
from perfci.report.html.charts import NARROW, Chart, thinned
from perfci.report.scaling import Scaling

STEPS = 48
"""Most steps of a curve of launches: at a phone's width more would not be seen."""

_LEFT, _RIGHT, _HEADING, _FOOT, _AIR = 0.5, 0.1, 0.2, 0.36, 0.06
TALL, MIDDLE, _LOW = 1.0, 0.6, 0.42
"""Heights of panels, inches."""

_STRIP = 0.28
"""Share of the width that the reference takes where its launches have a panel of their own."""

TOLD = 12
"""Most cases told in the description of a chart."""

_Each = TypeVar("_Each")


@dataclass(frozen=True)
class Timed:
    """One timed case."""

    name: str
    verdict: Verdict | None
    blocks: tuple[Block, ...]
    """in order of time"""
    baseline_us: float | None = None
    stored: Floats | None = None
    """medians of the baseline's blocks"""
    launches: Mapping[str, Floats] | None = None
    """by arm; None where they are not stored"""
    duel: Duel | None = None


def charts(case: Timed) -> Iterator[Chart]:
    """All that there is to draw of a case."""
    if case.blocks:
        yield _over_time(case)
        yield _distribution(case)
    if case.duel and any(case.duel.processes):
        yield _against_base(case.duel)


# --- over time --------------------------------------------------------------------------------------------------------


def _over_time(case: Timed) -> Chart:
    found = figures.traces([Trace(case.name, case.verdict, case.blocks, case.baseline_us)], "")
    x = replace(
        found.panels[0].x, label=say("seconds since the start of the run"), ticks=fewer(found.panels[0].x.ticks, 5)
    )
    times = [replace(panel, y=replace(panel.y, label=""), marks=_without_title(panel)) for panel in found.panels]
    timed = [(headed(panel, _arms_heading(panel)), tall) for panel, tall in zip(times, (TALL, MIDDLE), strict=False)]
    states = [(headed(panel, heading), _LOW) for heading, panel in _states(case.blocks)]
    sheet = Sheet(say("Block medians over time"), *stacked([*timed, *states], x), legend=tuple(_entries(found.legend)))
    return Chart(sheet, _told(case.blocks))


def _arms_heading(panel: Panel) -> str:
    arms = list(dict.fromkeys(mark.name for mark in panel.points()))
    return say("{names}, us", names=", ".join(map(arm_name, arms)))


def _without_title(panel: Panel) -> tuple[Mark, ...]:
    said = {"not measured": say("not measured")}
    kept = (mark for mark in panel.marks if not (isinstance(mark, Note) and mark.y == 1))
    return tuple(
        replace(mark, text=said.get(mark.text, mark.text)) if isinstance(mark, Note) else mark for mark in kept
    )


def _states(blocks: Sequence[Block]) -> Iterator[tuple[str, Panel]]:
    """The clock and the temperature, where the device told them."""
    known: tuple[tuple[str, str, Callable[[DeviceState], int | None], float], ...] = (
        (say("SM clock, MHz"), GRAVE[Verdict.INCONCLUSIVE.gate], lambda state: state.sm_clock_mhz, 30.0),
        (say("temperature, C"), OTHER, lambda state: state.temperature_c, 2.0),
    )
    for heading, colour, read, least in known:
        marks = tuple(_state(blocks, colour, read))
        if marks:
            seen = [value for mark in marks for value in mark.ys]
            y = linear(min(seen) - least, max(seen) + least, most=3, shown=lambda value: f"{value:.0f}")
            yield heading, Panel((0, 0, 0, 0), Axis(0, 1), y, marks)


def _state(blocks: Sequence[Block], colour: str, read: Callable[[DeviceState], int | None]) -> Iterator[Line | Points]:
    """One line a process: nothing is known of the time between two."""
    for process in sorted({block.process for block in blocks}):
        mine = [(block.started_s, read(block.state)) for block in blocks if block.process == process]
        points = [(at, float(value)) for at, value in mine if value is not None]
        if points:
            xs, ys = (tuple(each) for each in zip(*points, strict=True))
            yield Line(xs, ys, colour, 0.5)
            yield Points(xs, ys, colour, size=2.6)


def _told(blocks: Sequence[Block]) -> str:
    """What a reader sees in the lines, in numbers."""
    arms = _drawn(blocks)
    said = [_median(arm, [block.arms[arm].time.median_us for block in blocks if arm in block.arms]) for arm in arms]
    clocks = [block.state.sm_clock_mhz for block in blocks if block.state.sm_clock_mhz is not None]
    if clocks:
        said.append(say("SM clock from {low} to {high} MHz", low=min(clocks), high=max(clocks)))
    return "; ".join(said)


def _drawn(blocks: Sequence[Block]) -> tuple[str, ...]:
    """Arms of which there are curves; peers stand in tables, since their times would press the others together."""
    return tuple(dict.fromkeys(arm for block in blocks for arm in block.arms if not is_peer(arm)))


def _median(arm: str, us: Sequence[float]) -> str:
    return say(
        "{arm}: {count} blocks, median {middle:us}, from {low:us} to {high:us}",
        arm=arm_name(arm),
        count=len(us),
        middle=statistics.median(us),
        low=min(us),
        high=max(us),
    )


# --- distributions ----------------------------------------------------------------------------------------------------


def _distribution(case: Timed) -> Chart:
    """Of launches; of blocks' medians where the launches are not stored."""
    medians = {arm: _medians(case.blocks, arm) for arm in _drawn(case.blocks)}
    launches = {arm: us for arm, us in (case.launches or {}).items() if not is_peer(arm)}
    arms = medians if case.launches is None else {arm: thinned(us, STEPS) for arm, us in launches.items()}
    found = figures.distributions([Distribution("", arms, case.stored)], "")
    label = say("device time of a launch, us") if case.launches else say("median of a block, us")
    panels = [_beside(panel, index, len(found.panels), label) for index, panel in enumerate(found.panels)]
    title = say("Distribution of launches") if case.launches else say("Distribution of block medians")
    share = (
        say("The share of launches that took at most so long.")
        if case.launches
        else say("The share of blocks with at most this median.")
    )
    sheet = Sheet(title, _FOOT + TALL + MIDDLE + _AIR, tuple(panels), tuple(_entries(found.legend)))
    return Chart(sheet, share)


def _medians(blocks: Sequence[Block], arm: str) -> Floats:
    return np.array([block.arms[arm].time.median_us for block in blocks if arm in block.arms])


def _beside(panel: Panel, index: int, count: int, label: str) -> Panel:
    """One of one or two panels in a row."""
    room = NARROW - _LEFT - _RIGHT
    strip = room * _STRIP
    left, width = (
        (_LEFT, room) if count == 1 else (_LEFT, room - strip - 0.16) if not index else (NARROW - _RIGHT - strip, strip)
    )
    x = replace(panel.x, label=label if not index else "", ticks=fewer(panel.x.ticks, 2 if index else 5))
    return replace(
        panel, box=(left, _FOOT, width, TALL + MIDDLE), x=x, y=replace(panel.y, label=""), marks=_without_title(panel)
    )


# --- duels ------------------------------------------------------------------------------------------------------------


def _against_base(duel: Duel) -> Chart:
    found = figures.duels([duel], "")
    (panel,) = found.panels
    ticks = tuple((place, str(index)) for index, (place, _) in enumerate(panel.x.ticks, start=1))
    x = Axis(panel.x.low, panel.x.high, ticks, say("blocks in order of time, by process"))
    drawn = replace(panel, marks=_without_title(panel), y=replace(panel.y, label=""))
    placed = stacked([(headed(drawn, say("kernel against base, %; plus is slower")), TALL + MIDDLE)], x)
    sheet = Sheet(say("Kernel against base, block by block"), *placed, legend=tuple(_entries(found.legend)))
    text = say(
        "Change {change}, from {low} to {high}; {allowed} is allowed.",
        change=percent(duel.change.value, signed=True), low=percent(duel.change.low, signed=True),
        high=percent(duel.change.high, signed=True), allowed=percent(duel.tau),
    )  # fmt: skip
    return Chart(sheet, text)


# --- an op's ----------------------------------------------------------------------------------------------------------


def sizes(found: Scaling) -> Chart:
    """Time against size, of an op."""
    drawn = figures.sizes(found, "")
    (panel,) = drawn.panels
    x = replace(panel.x, ticks=fewer(panel.x.ticks, 4))
    sheet = replace(drawn, title=say("Time against size"), height=_FOOT + 2.2 + _AIR)
    sheet = replace(sheet, panels=(replace(panel, box=(_LEFT + 0.1, _FOOT, NARROW - _LEFT - _RIGHT - 0.1, 2.2), x=x),))
    return Chart(replace(sheet, legend=tuple(_entries(sheet.legend))), _curves(found))


def _curves(found: Scaling) -> str:
    """Each curve's ends in words."""
    said = []
    for curve in found.curves:
        for arm, points in curve.arms.items():
            name = " ".join(filter(None, (curve.name, arm_name(arm))))
            said.append(say("{name}: {low} to {high}", name=name, low=time(points[0][1]), high=time(points[-1][1])))
    return "; ".join(said)


# --- parts ------------------------------------------------------------------------------------------------------------


def stacked(panels: Sequence[tuple[Panel, float]], x: Axis) -> tuple[float, tuple[Panel, ...]]:
    """The height of all panels below each other over one axis, of which only the lowest has labels, and they placed."""
    total = _FOOT + sum(tall + _HEADING + _AIR for _, tall in panels)
    placed, top = [], total
    for index, (panel, tall) in enumerate(panels):
        top -= _HEADING + tall
        box = (_LEFT, top, NARROW - _LEFT - _RIGHT, tall)
        placed.append(replace(panel, box=box, x=x, x_labels=index == len(panels) - 1))
        top -= _AIR
    return total, tuple(placed)


def headed(panel: Panel, text: str) -> Panel:
    """The panel with what it shows above it."""
    return replace(panel, marks=(*panel.marks, Note(text, 0, 1, shift=(0, 3.5), mono=False)))


_LEGEND: Mapping[str, Callable[[], str]] = {
    "measured again in a fresh process": lambda: say("in a fresh process"),
    "in a fresh process": lambda: say("in a fresh process"),
    "kernel's baseline": lambda: say("baseline"),
    "baseline's block medians": lambda: say("baseline's block medians"),
    "a block": lambda: say("a block"),
    "median of a process": lambda: say("median of a process"),
    "up to what is allowed": lambda: say("up to what is allowed"),
    "up to half of it": lambda: say("up to half of it"),
    "measured ceiling": lambda: say("measured ceiling"),
}
"""What the pictures' legends say, in the reader's language; it is worded when it is drawn."""


def _entries(legend: Sequence[tuple[str, Mark]]) -> Iterator[tuple[str, Mark]]:
    return ((_LEGEND[name]() if name in _LEGEND else arm_name(name), mark) for name, mark in legend)


def fewer(ticks: tuple[_Each, ...], most: int) -> tuple[_Each, ...]:
    """Every so many of the ticks, where they would run into each other."""
    return ticks[:: -(-len(ticks) // most)] if len(ticks) > most else ticks


def whole(sheet: Sheet, text: str) -> Chart:
    """A picture of the report as it is, but for its title and its legend, which stand outside of its panels."""
    (panel,) = sheet.panels
    return Chart(
        replace(sheet, height=panel.box[1] + panel.box[3] + _AIR, legend=tuple(_entries(sheet.legend))), text, WIDTH
    )


def reached(found: Sequence[Place]) -> str:
    """Each case's place below its ceiling in words, the lowest first."""
    ranked = sorted(found, key=lambda one: one.share)[:TOLD]
    return "; ".join(
        say("{name}: {share:%} of its ceiling", name=f"{one.op} {one.case}", share=one.share) for one in ranked
    )


def arm_name(name: str) -> str:
    """An arm in the reader's language, as plain text."""
    match name:
        case "kernel":
            return say("kernel")
        case "base":
            return say("base")
        case "reference":
            return say("reference")
    return name.removeprefix(PEER)
