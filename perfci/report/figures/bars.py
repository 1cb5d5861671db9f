"""Speedups: a bar a case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perfci.model import Gate, Interval, Verdict
from perfci.report import rows
from perfci.report.figures.canvas import CHARACTER, GRAVE, INK, MONO, canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Bar:
    """One case's speedup."""

    label: str
    speedup: Interval
    verdict: Verdict
    target: float | None
    """lowest speedup that its threshold asks for"""


def speedup(bars: Sequence[Bar], title: str) -> Figure:
    """A bar a case with its interval; lines at 1 and, where one is set, at the case's target."""
    lines = max(bar.label.count("\n") + 1 for bar in bars)
    height = 0.75 + len(bars) * (0.1 + 0.15 * lines)
    longest = max(len(line) for bar in bars for line in bar.label.split("\n"))
    notes = [_bar_note(bar) for bar in bars]
    figure, axes = canvas(height, 0.3 + longest * CHARACTER, 0.2 + max(map(len, notes)) * CHARACTER, title)
    places = np.arange(len(bars))[::-1]
    values = np.array([bar.speedup.value for bar in bars])
    ends = np.array([[b.speedup.value - b.speedup.low, b.speedup.high - b.speedup.value] for b in bars]).T
    axes.barh(places, values, height=0.62, color=[GRAVE[bar.verdict.gate] for bar in bars], zorder=2)
    axes.errorbar(
        values, places, xerr=np.maximum(ends, 0), fmt="none", ecolor="black", elinewidth=1, capsize=2.5, zorder=3
    )
    axes.set_xlim(0, 1.06 * max(1.0, *(max(bar.speedup.high, bar.target or 0) for bar in bars)))
    axes.axvline(1, color=INK, linewidth=0.9, linestyle="--", zorder=4)
    for place, bar, note in zip(places, bars, notes, strict=True):
        axes.text(1.015, place, note, transform=axes.get_yaxis_transform(), va="center", family=MONO, color=INK)
        if bar.target is not None:
            axes.plot([bar.target] * 2, [place - 0.42, place + 0.42], color="black", linewidth=2, zorder=5)
    axes.set_yticks(places, [bar.label for bar in bars], family=MONO)
    axes.set_ylim(-0.6, len(bars) - 0.4)
    axes.tick_params(axis="y", length=0)
    targets = "; black mark: target" if any(bar.target is not None for bar in bars) else ""
    axes.set_xlabel(f"speedup = reference time / kernel time{targets}")
    return figure


def _bar_note(bar: Bar) -> str:
    """The number beside the bar, its target, and its verdict if it is not fine."""
    target = f" of {rows.ratio(bar.target)}" if bar.target is not None else ""
    grave = f" {bar.verdict}" if bar.verdict.gate is not Gate.OK else ""
    return f"{rows.ratio(bar.speedup.value)}{target}{grave}"
