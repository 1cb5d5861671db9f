"""Speedups: a bar a case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfci.core.model import Gate, Interval, Verdict
from perfci.report import words
from perfci.report.figures.sheet import FOOT, WIDTH, Axis, Band, Line, Mark, Note, Panel, Sheet, linear
from perfci.report.figures.style import BLACK, CHARACTER, GRAVE, INK
from perfci.report.text import columns

_TOP = 0.3
"""Room for the title alone, inches."""

_HALF = 0.31
"""Of a bar's height, in the distance of two cases."""


@dataclass(frozen=True)
class Bar:
    """One case's speedup."""

    label: str
    speedup: Interval
    verdict: Verdict
    target: float | None
    """lowest speedup that its threshold asks for"""


def speedup(bars: Sequence[Bar], title: str) -> Sheet:
    """A bar a case with its interval; lines at 1 and, where one is set, at the case's target."""
    lines = max(bar.label.count("\n") + 1 for bar in bars)
    height = 0.03 + FOOT + _TOP + len(bars) * (0.1 + 0.15 * lines)
    left = 0.3 + CHARACTER * max(columns(line) for bar in bars for line in bar.label.split("\n"))
    right = 0.2 + CHARACTER * max(len(_note(bar)) for bar in bars)
    targets = "; black mark: target" if any(bar.target is not None for bar in bars) else ""
    end = 1.06 * max(1.0, *(max(bar.speedup.high, bar.target or 0) for bar in bars))
    panel = Panel(
        box=(left, FOOT, WIDTH - left - right, height - FOOT - _TOP),
        x=linear(0, end, f"speedup = reference time / kernel time{targets}", most=9),
        y=Axis(-0.6, len(bars) - 0.4, tuple((len(bars) - 1 - i, bar.label) for i, bar in enumerate(bars))),
        marks=(
            *(mark for i, bar in enumerate(bars) for mark in _marks(bar, len(bars) - 1 - i)),
            Line((1, 1), (-0.6, len(bars) - 0.4), INK, 0.9, "--", order=4, name="1"),
        ),
        grid="",
        mono=True,
    )
    return Sheet(title, height, (panel,))


def _marks(bar: Bar, place: int) -> Iterator[Mark]:
    found = bar.speedup
    yield Band((0, found.value), (place - _HALF, place + _HALF), GRAVE[bar.verdict.gate])
    yield Line((found.low, found.high), (place, place), BLACK, order=3, name="interval")
    for end in (found.low, found.high):
        yield Line((end, end), (place - 0.12, place + 0.12), BLACK, order=3)
    if bar.target is not None:
        yield Line((bar.target,) * 2, (place - 0.42, place + 0.42), BLACK, 2, order=5, name="target")
    yield Note(_note(bar), 1.015, place, data_y=True, upright="center")


def _note(bar: Bar) -> str:
    """The number beside the bar, its target, and its verdict if it is not fine."""
    target = f" of {words.write_ratio(bar.target)}" if bar.target is not None else ""
    grave = f" {bar.verdict}" if bar.verdict.gate is not Gate.OK else ""
    return f"{words.write_ratio(bar.speedup.value)}{target}{grave}"
