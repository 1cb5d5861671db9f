"""The speed of an op over the rounds of its optimisation: a step for each that was kept, a point for each tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfci.core.model import Gate
from perfci.report.charts import style
from perfci.report.charts.style import GATES, INK, QUIET, SERIES, WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = {"kept": ("o", GATES[Gate.OK]), "equal": ("s", QUIET), "mixed": ("D", SERIES[4]), "slower": ("v", SERIES[1])}


@dataclass(frozen=True)
class RoundPoint:
    """A round as it is drawn. Heights are speeds in one unit. Number 0 is the start."""

    number: int
    height: float
    gain: float | None = None  # over the best before, ratio - 1
    low: float | None = None  # ends of its interval as heights
    high: float | None = None
    expected: float | None = None
    verdict: str = "kept"
    why: str = ""


@style.apply_style()
def draw_rounds(points: Sequence[RoundPoint], title: str, unit: str, note: str = "") -> Figure:
    """The best so far as a line of steps, and each round with its interval, and what it was expected to reach."""
    shown = {point.verdict for point in points[1:]}
    legend = [style.sample("best so far", color=INK, lw=1.4)]
    legend += [
        style.sample(name, color=colour, marker=mark, ms=5, lw=0)
        for name, (mark, colour) in MARKS.items()
        if name in shown
    ]
    if any(point.expected is not None for point in points):
        legend.append(style.sample("expected", color=SERIES[3], marker="_", ms=11, mew=1.4, lw=0))
    width = (WIDTH - 0.8) / len(points)
    labels = [_fold(f"{point.number} {point.why}" if point.number else "start", width) for point in points]
    below = 0.2 + 0.12 * max(map(len, labels))
    figure, share = style.make_figure(title, 2.8 + below, note, legend)
    inches = figure.get_figheight()
    axes = figure.add_axes((0.62 / WIDTH, below / inches, 1 - 0.8 / WIDTH, share - (below + 0.12) / inches))
    levels = [points[0].height]
    for point in points[1:]:
        levels.append(point.height if point.verdict == "kept" else levels[-1])
    places = list(range(len(points)))
    axes.step([*places, len(points) - 0.5], [*levels, levels[-1]], where="post", color=INK, lw=1.4, zorder=2)
    seen = list(levels)
    for place, point in enumerate(points):
        mark, colour = MARKS.get(point.verdict, MARKS["equal"])
        if point.low is not None and point.high is not None:
            axes.plot([place, place], [point.low, point.high], color=colour, lw=2, zorder=3)
            seen += [point.low, point.high]
        axes.plot([place], [point.height], mark, color=colour, ms=6, mec="white", mew=0.5, zorder=4)
        if point.gain is not None:
            text = f"{100 * point.gain:+.1f} %"
            axes.annotate(text, (place, point.height), (6, 5), textcoords="offset points", fontsize=7.5, color=colour)
        if point.expected is not None:
            axes.plot([place], [point.expected], "_", color=SERIES[3], ms=16, mew=1.4, zorder=3)
            seen.append(point.expected)
        seen.append(point.height)
    style.set_range(axes, seen)
    style.limit_ticks(axes)
    axes.set_xlim(-0.4, len(points) - 0.5)
    axes.set_xticks(places, ["\n".join(lines) for lines in labels], fontsize=7)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(unit)
    return figure


def _fold(text: str, inches: float) -> list[str]:
    """A label in at most three lines of a width."""
    most, lines = max(int(inches / (7 * style.LETTER / 8)) - 1, 8), [""]
    for word in style.fit(text, 3 * most).split():
        joined = f"{lines[-1]} {word}".strip()
        if len(joined) <= most or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(style.fit(word, most))
    return lines[:3]
