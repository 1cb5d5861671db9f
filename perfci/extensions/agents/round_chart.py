"""The speed of an op over the rounds of its optimisation: a step for each that was kept, a point for each tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfci.core.model import Gate
from perfci.extensions.agents.round_records import Round, RoundVerdict
from perfci.extensions.pictures import style
from perfci.extensions.pictures.style import GATES, INK, QUIET, SERIES, WIDTH, caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = {"kept": ("o", GATES[Gate.OK]), "equal": ("s", QUIET), "mixed": ("D", SERIES[4]), "slower": ("v", SERIES[1])}


@style.apply_style()
def draw_rounds(rounds: Sequence[Round], level: float, title: str, unit: str) -> Figure:
    """The best so far as a line of steps, and each round with its gain's interval, and what it was expected to reach.

    rounds: of one start, each with a gain and a verdict in MARKS. level: height of the start, as a speed in this unit.
    """
    expected: dict[str, Any] = {"color": SERIES[3], "marker": "_", "ms": 12, "mew": 1.4, "lw": 0}
    legend = [style.sample(caption("best so far"), color=INK, lw=1.4)]
    legend += (
        [style.sample(caption("expected"), **expected)] if any(round_.expected is not None for round_ in rounds) else []
    )
    drawn = {name: MARKS[name] for name in MARKS if any(round_.verdict == name for round_ in rounds)}
    legend += [style.sample(name, color=colour, marker=mark, lw=0) for name, (mark, colour) in drawn.items()]
    figure, share = style.make_figure(title, 3.2, caption("start {commit}", commit=rounds[0].start[:10]), legend)
    below = 0.4 / figure.get_figheight()
    axes = figure.add_axes((0.62 / WIDTH, below, 1 - 0.8 / WIDTH, share - 1.3 * below))
    heights, best, seen = {0: level}, [level], [level]
    for place, round_ in enumerate(rounds, 1):
        assert round_.gain is not None
        under, (mark, colour) = heights.get(round_.best, level), MARKS[round_.verdict]
        height = level * (1 + round_.total.value) if round_.total else under * (1 + round_.gain.value)
        if round_.verdict is RoundVerdict.KEPT:
            heights[round_.number] = height
        best.append(heights.get(round_.number, best[-1]))
        ends = [under * (1 + round_.gain.low), under * (1 + round_.gain.high)]
        axes.plot([place, place], ends, color=colour, lw=2, zorder=3)
        axes.plot([place], [height], mark, color=colour, mec="white", mew=0.5, zorder=4)
        text = f"{100 * round_.gain.value:+.1f} %"
        axes.annotate(text, (place, height), (6, 5), textcoords="offset points", fontsize=7.5, color=colour)
        if round_.expected is not None:
            ends.append(under * (1 + round_.expected))
            axes.plot([place], ends[-1:], **expected, zorder=3)
        seen += [height, *ends]
    axes.step([*range(len(best)), len(best) - 0.5], [*best, best[-1]], where="post", color=INK, lw=1.4, zorder=2)
    style.set_range(axes, seen)
    style.limit_ticks(axes)
    axes.set_xlim(-0.4, len(best) - 0.5)
    axes.set_xticks(
        range(len(best)),
        [caption("the start"), *(caption("round {number}", number=round_.number) for round_ in rounds)],
    )
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(unit)
    return figure
