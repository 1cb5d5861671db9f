"""The speed of an op over the rounds of its optimisation: a step for each that was kept, a point for each tried."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfci.core.model import Gate, Round, RoundVerdict
from perfci.report.charts import style
from perfci.report.charts.style import GATES, INK, QUIET, SERIES, WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = {"kept": ("o", GATES[Gate.OK]), "equal": ("s", QUIET), "mixed": ("D", SERIES[4]), "slower": ("v", SERIES[1])}


@style.apply_style()
def draw_rounds(rounds: Sequence[Round], level: float, title: str, unit: str) -> Figure:
    """The best so far as a line of steps, and each round with its gain's interval, and what it was expected to reach.

    rounds: of one start, each with a gain. level: height of the start, as a speed in this unit.
    """
    width = (WIDTH - 0.8) / (len(rounds) + 1)
    letters = max(int(width / (style.LETTER * 0.9)) - 1, 8)
    names = ["start", *(style.fit(f"{each.number} {each.why}", 3 * letters) for each in rounds)]
    labels = [textwrap.wrap(name, letters)[:3] for name in names]
    legend = [style.sample("best so far", color=INK, lw=1.4)]
    legend += [
        style.sample(name, color=colour, marker=mark, ms=5, lw=0)
        for name, (mark, colour) in MARKS.items()
        if name in {each.verdict for each in rounds}
    ]
    legend.append(style.sample("expected", color=SERIES[3], marker="_", ms=11, mew=1.4, lw=0))
    below = 0.2 + 0.12 * max(map(len, labels))
    figure, share = style.make_figure(title, 2.8 + below, f"start {rounds[0].start[:10]}", legend)
    inches = figure.get_figheight()
    axes = figure.add_axes((0.62 / WIDTH, below / inches, 1 - 0.8 / WIDTH, share - (below + 0.12) / inches))
    heights, best, seen = {0: level}, [level], [level]
    for place, each in enumerate(rounds, 1):
        assert each.gain is not None
        under, (mark, colour) = heights.get(each.best, level), MARKS[each.verdict]
        height = level * (1 + each.total.value) if each.total else under * (1 + each.gain.value)
        if each.verdict is RoundVerdict.KEPT:
            heights[each.number] = height
        best.append(heights.get(each.number, best[-1]))
        ends = [under * (1 + each.gain.low), under * (1 + each.gain.high)]
        axes.plot([place, place], ends, color=colour, lw=2, zorder=3)
        axes.plot([place], [height], mark, color=colour, ms=6, mec="white", mew=0.5, zorder=4)
        text = f"{100 * each.gain.value:+.1f} %"
        axes.annotate(text, (place, height), (6, 5), textcoords="offset points", fontsize=7.5, color=colour)
        if each.expected is not None:
            ends.append(under * (1 + each.expected))
            axes.plot([place], ends[-1:], "_", color=SERIES[3], ms=16, mew=1.4, zorder=3)
        seen += [height, *ends]
    axes.step([*range(len(best)), len(best) - 0.5], [*best, best[-1]], where="post", color=INK, lw=1.4, zorder=2)
    style.set_range(axes, seen)
    style.limit_ticks(axes)
    axes.set_xlim(-0.4, len(best) - 0.5)
    axes.set_xticks(range(len(best)), ["\n".join(lines) for lines in labels], fontsize=7)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(unit)
    return figure
