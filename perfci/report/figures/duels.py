"""Duels: the shift of kernel against base, block by block and process by process, over what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from perfci.core.model import Gate, Interval, Verdict
from perfci.core.units import percent
from perfci.report.figures import fonts
from perfci.report.figures.sheet import Axis, Band, Floats, Line, Mark, Note, Panel, Points, Sheet, boxes, linear
from perfci.report.figures.style import BLACK, COLOURS, GRAVE, INK
from perfci.report.text import columns

HEIGHT = 1.12
GAP = 1.6
"""Blocks' widths between two processes."""

LEAST_VIEW = 1.6
"""An axis shows at least so many tau on either side of 0, so that small noise looks small."""

_BAND = COLOURS["base"]
_OUTER, _INNER = 0.13, 0.15
"""Opacity of the bands of tau and of tau / 2, one on the other."""

_ROOM = 99
"""Characters that fit above a panel."""


@dataclass(frozen=True)
class Duel:
    """One case's blocks against the base."""

    case: str
    verdict: Verdict | None
    processes: tuple[tuple[float, ...], ...]
    """d of every block in order of time, log scale, process by process"""
    tau: float
    """allowed slow-down, ratio - 1"""
    change: Interval
    """ratio - 1"""


def duels(cases: Sequence[Duel], title: str) -> Sheet:
    """A panel a case, over one axis of blocks; each process has its own stretch of it."""
    height, grid = boxes(len(cases), 1, HEIGHT)
    slots = _slots(cases)
    starts = [0.0, *accumulate(width + GAP for width in slots)]
    x = _blocks(slots, starts)
    panels = [
        _panel(case, starts, row[0], x, labels=index == len(cases) - 1)
        for index, (row, case) in enumerate(zip(grid, cases, strict=True))
    ]
    return Sheet(title, height, tuple(panels), tuple(_legend(fresh=len(slots) > 1)))


def _slots(cases: Sequence[Duel]) -> list[int]:
    """Most blocks that any case has in each process."""
    most = max(len(case.processes) for case in cases)
    return [max(len(case.processes[i]) for case in cases if i < len(case.processes)) for i in range(most)]


def _blocks(slots: Sequence[int], starts: Sequence[float]) -> Axis:
    names = ("first process", *(f"fresh process {index}" for index in range(1, len(slots))))
    places = (start + (width - 1) / 2 for start, width in zip(starts, slots, strict=False))
    label = "blocks in order of time; above 0 the kernel is slower than the base"
    return Axis(-1, starts[-1] - GAP, tuple(zip(places, names, strict=True)), label)


def _panel(
    case: Duel, starts: Sequence[float], box: tuple[float, float, float, float], x: Axis, *, labels: bool
) -> Panel:
    tau = 100 * case.tau
    changes = [100 * np.expm1(np.asarray(shifts)) for shifts in case.processes]
    seen = [0.0, *(float(change) for part in changes for change in part)]
    low, high = min(*seen, -LEAST_VIEW * tau), max(*seen, LEAST_VIEW * tau)
    y = linear(
        low - 0.06 * (high - low), high + 0.06 * (high - low), "change, %", most=4,
        shown=lambda value: f"{value:+g}" if value else "0",
    )  # fmt: skip
    marks: list[Mark] = [
        Band(None, (-reach, reach), _BAND, opacity) for reach, opacity in ((tau, _OUTER), (tau / 2, _INNER))
    ]
    marks.append(Line((x.low, x.high), (0, 0), INK, 0.7, order=1))
    for index, (start, part) in enumerate(zip(starts, changes, strict=False)):
        marks += _stretch(start, part, GRAVE[case.verdict.gate if case.verdict else Gate.OK], fresh=index > 0)
    return Panel(box, x, y, (*marks, *_heading(case)), case.case, x_labels=labels)


def _stretch(start: float, changes: Floats, colour: str, *, fresh: bool) -> Iterator[Mark]:
    """One process's blocks, and their median."""
    places, middle = tuple(float(start + i) for i in range(changes.size)), float(np.median(changes))
    values = tuple(float(change) for change in changes)
    yield Line(places, values, colour, 0.5, order=3)
    yield Points(places, values, colour, hollow=fresh, order=4, name="blocks")
    yield Line((start - 0.5, places[-1] + 0.5), (middle, middle), BLACK, 1.1, order=5, name="median")


def _heading(case: Duel) -> Iterator[Note]:
    """The case and its verdict on the left; on the right what was found, as much of it as a long case leaves room."""
    grave = case.verdict is not None and case.verdict.gate is not Gate.OK
    verdict = f"  {case.verdict}" if case.verdict else ""
    name = fonts.drawn(case.case, _ROOM)
    room = _ROOM - columns(name) - len(verdict) - 2
    found = next((text for text in _found(case) if len(text) <= room), percent(case.change.value, signed=True))
    name = fonts.drawn(case.case, _ROOM - len(found) - len(verdict) - 2)
    yield Note(f"{name}{verdict}", 0, 1, shift=(0, 4), bold=grave)
    yield Note(found, 1, 1, shift=(0, 4), align="right")


def _found(case: Duel) -> tuple[str, ...]:
    """The change, from all that is known about it down to itself."""
    change = case.change
    value, low, high = (percent(one, signed=True) for one in (change.value, change.low, change.high))
    return (f"{value} ({low} to {high}), {percent(case.tau)} allowed", f"{value} ({low} to {high})", value)


def _legend(*, fresh: bool) -> Iterator[tuple[str, Mark]]:
    yield "a block", Points((), (), INK, size=4)
    if fresh:
        yield "in a fresh process", Points((), (), INK, hollow=True, size=4)
    yield "median of a process", Line((), (), BLACK, 1.1)
    yield "up to what is allowed", Band(None, None, _BAND, _OUTER)
    yield "up to half of it", Band(None, None, _BAND, _OUTER + _INNER)
