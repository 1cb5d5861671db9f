"""Charts over the accepted runs: a case's kernel, a panel each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from perfci.core.model import Gate, OpRun, Run
from perfci.core.wording import say
from perfci.extensions.history.past import ENVIRONMENT, LOSS, STEP, Past, Trail, compare_trails, list_events, write_day
from perfci.extensions.pictures import style
from perfci.extensions.pictures.plots import Painter, describe_left_out
from perfci.extensions.pictures.style import COLOURS, GATES, INK, caption
from perfci.report.text import plain
from perfci.report.view import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = {LOSS: (GATES[Gate.FAILS], "-"), ENVIRONMENT: ("#CC79A7", ":"), STEP: (INK, "--")}
"""A mark between two runs: its colour and its line."""


def draw_history(op: OpRun, run: Run, past: Past, painter: Painter, name: str) -> Iterator[Picture]:
    """One picture of the accepted runs of an op, if they have any of its cases. name: of the op in file names."""
    trails = compare_trails(op, run, past)
    chosen = sorted(trails, key=lambda trail: trail.rank)[: painter.panels]
    if shown := [trail for trail in trails if trail in chosen]:
        title = caption("{op}: accepted runs, and this one", op=style.fit(op.op, 40))
        figure = draw_runs(past, shown, title, describe_left_out(len(shown), len(trails)))
        alt = say("History of {op}", op=plain(op.op, 40))
        yield painter.save(figure, f"history-{name}", alt, shows=len(shown))


@style.apply_style()
def draw_runs(past: Past, trails: Sequence[Trail], title: str, note: str = "") -> Figure:
    """A panel a case: medians with their quartiles, what moved them, and this run at the end."""
    legend = [
        style.sample(caption("accepted run"), color=COLOURS["kernel"], marker="o", ms=3, lw=0.8),
        style.sample(caption("quartiles of its blocks"), COLOURS["kernel"], alpha=0.18),
    ]
    if any(trail.now_us is not None for trail in trails):
        legend.append(style.sample(caption("this run"), color="black", marker="D", ms=4, lw=0))
    marks = [list_events(past, trail.case) for trail in trails]
    kinds = {kind for events in marks for _, kind in events}
    legend += [
        style.sample(style.caption_of(kind), color=LOOKS[kind][0], ls=LOOKS[kind][1], lw=0.9)
        for kind in LOOKS
        if kind in kinds
    ]
    figure, panels = style.make_panels(len(trails), title, note, legend)
    dates, (_, names) = [write_day(run) for run in past.runs], style.split_names([trail.case for trail in trails])
    for axes, trail, name, events in zip(panels, trails, names, marks, strict=True):
        warning = "a step that nothing explains" if trail.unexplained else ""
        style.set_heading(axes, plain(name, 160), warning, Gate.WARNS, "!" if warning else "")
        _plot_runs(axes, trail, dates, events)
    return figure


def _plot_runs(axes: Axes, trail: Trail, dates: Sequence[str], events: Sequence[tuple[int, str]]) -> None:
    scale, unit = style.choose_unit(float(np.median(trail.medians)))
    count, spreads = len(trail.seen), [case.kernel_us if case else None for case in trail.seen]
    missing = (math.nan,) * 3
    rows = [(one.median_us, one.p25_us, one.p75_us) if one else missing for one in spreads]
    values, low, high = np.array(rows).T / scale
    axes.fill_between(np.arange(1, count + 1), low, high, color=COLOURS["kernel"], alpha=0.18, lw=0, zorder=2)
    axes.plot(np.arange(1, count + 1), values, "o-", color=COLOURS["kernel"], ms=2.6 if count <= 60 else 1.4, lw=0.7)
    seen = [float(np.nanmin(low)), float(np.nanmax(high))]
    if trail.now_us is not None:
        axes.plot([count + 1], [trail.now_us / scale], "D", color="black", ms=4, zorder=5)
        seen.append(trail.now_us / scale)
    style.set_range(axes, seen, share=0.12)
    style.limit_ticks(axes)
    axes.set_xlim(0.3, count + (1.8 if trail.now_us is not None else 0.7))
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(unit)
    newest = {count: dates[-1]} if trail.now_us is None else {count + 1: caption("now")}
    ends = {1: dates[0], **newest}
    axes.set_xticks(list(ends), [style.fit(name, 12) for name in ends.values()])
    if len(ends) > 1:
        axes.get_xticklabels()[0].set_horizontalalignment("left")
        axes.get_xticklabels()[-1].set_horizontalalignment("right")
    for at, kind in events:
        colour, dash = LOOKS[kind]
        axes.axvline(at + 0.5, color=colour, ls=dash, lw=0.9, zorder=1)
