"""A picture of what was timed beside an op's kernel: other backends, peers and the reference, case by case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfci.core.model import Comparison, Interval
from perfci.extensions.pictures import style
from perfci.extensions.pictures.style import COLOURS, INK, SERIES, SHAPES, WIDTH, caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPREAD = 0.62  # of a case's row, in which its arms lie


def list_ratios(cases: Sequence[Comparison]) -> Mapping[str, list[Interval | None]]:
    """The ratio of each arm's time to the kernel's, case by case. The reference is the first arm."""
    names = dict.fromkeys(peer.name for seen in cases for peer in seen.peers)
    arms: dict[str, list[Interval | None]] = {caption("the reference"): [seen.speedup for seen in cases]}
    for name in names:
        ratios = [{peer.name: peer.ratio for peer in seen.peers}.get(name) for seen in cases]
        arms[name] = ratios
    return {name: ratios for name, ratios in arms.items() if any(ratio and ratio.low > 0 for ratio in ratios)}


def draw_beside(cases: Sequence[Comparison], title: str, note: str = "") -> Figure:
    """A line a case: the time of each arm divided by the kernel's, with 95 % intervals, on a logarithmic axis."""
    arms = list_ratios(cases)
    looks = [(COLOURS["reference"], "s"), *zip(SERIES[1:], SHAPES[2:], strict=False)]
    legend = [style.sample(caption("the kernel"), color=INK, lw=0.8)]
    legend += [
        style.sample(style.fit(name, 40), color=colour, marker=shape, ms=4, lw=1.2)
        for name, (colour, shape) in zip(arms, looks, strict=False)
    ]
    shared, names = style.split_names([seen.case for seen in cases])
    note = "; ".join(filter(None, (note, caption("all: {shared}", shared=style.fit(shared, 60)) if shared else "")))
    figure, share = style.make_figure(title, 0.3 * len(cases) + 0.66, note, legend)
    inches, left = figure.get_figheight(), min(max(map(len, names)) * style.LETTER + 0.2, 3.4)
    axes = figure.add_axes((left / WIDTH, 0.4 / inches, (WIDTH - left - 0.3) / WIDTH, share - 0.5 / inches))
    ends = [1.0]
    for number, (ratios, (colour, shape)) in enumerate(zip(arms.values(), looks, strict=False)):
        shift = SPREAD * ((number + 0.5) / len(arms) - 0.5)
        for row, ratio in enumerate(ratios):
            if ratio is None or ratio.low <= 0:
                continue
            axes.plot([ratio.low, ratio.high], [row + shift] * 2, color=colour, lw=1.6, zorder=3)
            axes.plot([ratio.value], [row + shift], shape, color=colour, ms=4, zorder=4)
            ends += [ratio.value, min(ratio.high, 20 * ratio.value)]
    axes.axvline(1.0, color=INK, lw=0.8, zorder=2)
    style.set_log(axes.xaxis, min(ends) / 1.15, max(ends) * 1.15, lambda value: f"{value:g}x")
    axes.set_xlim(min(ends) / 1.15, max(ends) * 1.15)
    axes.set_xlabel(caption("times as long as the kernel: left of 1 is faster"))
    axes.set_yticks([])
    axes.set_ylim(len(cases) - 0.4, -0.6)
    for row, name in enumerate(names):
        axes.text(-0.008, row, style.fit_inches(name, left - 0.1), ha="right", va="center",
                  transform=axes.get_yaxis_transform(), fontsize=7.5, color=INK)  # fmt: skip
    return figure
