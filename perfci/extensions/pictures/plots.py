"""Which pictures an op gets, and their files: an overview of each kind, and one of each case that fails or warns.

A figure takes some 0.1 s of a core. So a run of many ops gets fewer panels an op, and only its gravest ops get
overviews.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from perfci.core.cores import count_cores
from perfci.core.model.basics import Gate, Interval, Suite
from perfci.core.model.decision import Comparison, Judgement, Judgements, choose_look
from perfci.core.model.measured import BASE, DUEL, OpRun, PerformanceCase
from perfci.core.model.run import Run
from perfci.core.wording import say
from perfci.extensions.pictures import style
from perfci.extensions.pictures.cases import ROWS, CaseChart, draw_blocks, draw_case, draw_changes, draw_launches
from perfci.extensions.pictures.device import choose_sized, draw_roofline, draw_sizes
from perfci.extensions.pictures.style import COLOURS, INK, SERIES, SHAPES, WIDTH, caption
from perfci.report import ceilings, rows
from perfci.report.ceilings import WorkingPoint
from perfci.report.frame import ArmSpread
from perfci.report.sections import Gallery, OpExtra, Pictures
from perfci.report.text import file_name, plain
from perfci.report.view import Picture, Section
from perfci.store.files import write_atomically
from perfci.store.launches import LaunchRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure


T = TypeVar("T")
R = TypeVar("R")

_WORK: list[Any] = []  # of a fork: the function and the items, which it has from its parent as they are


def map_forked(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Returns the function of each item, computed on all cores by forks of this process.

    Where threads run, which a fork would leave without, this process computes all. Raises what the function raises,
    and BrokenProcessPool if a fork was ended.
    """
    count = min(count_cores(), len(items))
    if count < 2 or sys.platform != "linux" or threading.active_count() > 1:
        return [function(item) for item in items]
    import multiprocessing  # which few commands need
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(count, multiprocessing.get_context("fork"), _WORK.extend, ((function, items),)) as pool:
        return list(pool.map(_compute, range(len(items))))


def _compute(place: int) -> Any:
    function, items = _WORK
    return function(items[place])


CASES = 12  # most cases of a run that get a separate picture: those that fail before those that warn
PANELS_OF_RUN = 40  # panels of one kind in a whole run, which its ops share
FEWEST_PANELS = 3
BESIDE = 16  # most cases in a picture of an op's backends
OPS = 8  # most ops of a run that get overviews, the gravest first
CEILING_OPS = 6  # most ops in the roofline and of times against sizes: as many as there are colours

KINDS = ("changes", "beside", "blocks", "case", "launches", "sizes", "roofline", "history", "lowprec")
"""The beginning of the names of all pictures."""


def collect_charts(run: Run, judgements: Judgements, raw: Iterable[LaunchRow]) -> dict[str, list[CaseChart]]:
    """What there is to draw of each op's timed cases, in their order."""
    judged = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    taken: dict[tuple[str, str, str], list[style.Floats]] = {}
    raw = list(raw)
    base_us = {(row.op, row.case, row.process, row.block): np.median(row.us) for row in raw if row.arm == BASE}
    beside = {place[:2] for place in base_us}
    for row in raw:
        us, base = np.array(row.us), base_us.get((row.op, row.case, row.process, row.block))
        if (row.op, row.case) not in beside:
            taken.setdefault((row.op, row.case, row.arm), []).append(us)
        elif base:
            taken.setdefault((row.op, row.case, row.arm), []).append(100 * (us / base - 1))

    def make(op: str, case: PerformanceCase) -> CaseChart | None:
        of_arms = {arm: taken.get((op, case.case, arm)) for arm in style.COLOURS}
        launches = {arm: np.concatenate(parts) for arm, parts in of_arms.items() if parts}
        return _make_chart(case, judged.get((op, case.case)), launches)

    return {op.op: [chart for case in op.performance if (chart := make(op.op, case))] for op in run.ops}


def _make_chart(case: PerformanceCase, row: Judgement | None, launches: Mapping[str, style.Floats]) -> CaseChart | None:
    """None if the case was not timed. Peers are left out: beside their times a change would not be seen."""
    blocks = sorted(case.blocks, key=lambda block: (block.process, block.started_s))
    medians = {
        arm: np.array([block.arms[arm].time.median_us if arm in block.arms else np.nan for block in blocks])
        for arm in style.COLOURS
        if any(arm in block.arms for block in blocks)
    }
    if not medians:
        return None
    chart = CaseChart(case.case, processes=tuple(block.process for block in blocks), medians=medians, launches=launches)
    if row is None:
        return chart
    seen = row.comparison
    if seen and seen.duel:
        allowed: float | None = float(np.expm1(seen.duel.tau))
    else:
        allowed = choose_look(seen.screens).margin if seen and seen.screens else None
    shifts: dict[int, list[float]] = {}
    for block in blocks if seen and seen.duel else ():
        if DUEL in block.shifts:
            shifts.setdefault(block.process, []).append(block.shifts[DUEL])
    # Shares of bandwidth have targets too.
    facts = next((reason.facts for reason in row.reasons if {"speedup", "target"} <= {*reason.facts}), {})
    return replace(
        chart,
        verdict=row.verdict,
        gate=row.gate,
        baseline_us=seen.baseline_us if seen else None,
        shifts=tuple(np.array(shift) for shift in shifts.values()),
        change=rows.find_change(row),
        allowed=allowed,
        speedup=seen.speedup if seen else None,
        target=float(facts.get("target") or 0.0) or None,
    )


def rank_chart(chart: CaseChart) -> tuple[int, float]:
    """The least is the gravest verdict, or the greatest change among equal ones."""
    grave = rows.rank(chart.verdict, chart.gate) if chart.verdict else len(Gate) + 2
    return grave, -abs(chart.change.value) if chart.change else 0.0


def pick_worst(charts: Sequence[CaseChart], most: int) -> list[CaseChart]:
    """All in their order if they are few, else the worst."""
    return list(charts) if len(charts) <= most else sorted(charts, key=rank_chart)[:most]


def choose_lowest(points: Iterable[WorkingPoint], most: int) -> set[str]:
    """The ops of which a case is furthest below its ceiling, at most so many."""
    return {*list(dict.fromkeys(one.op for one in sorted(points, key=lambda one: one.share or 0.0)))[:most]}


def name_files(ops: Sequence[str]) -> list[str]:
    """A file name an op. Ops with names that differ only in what a file name can't hold, or in case, get a number."""
    names = [file_name(op) for op in ops]
    folded = [name.casefold() for name in names]
    return [name if folded.index(folded[i]) == i else f"{name}-{i}" for i, name in enumerate(names)]


def describe_left_out(shown: int, count: int) -> str:
    """Notes in a picture that not all cases are in it."""
    return caption("{shown} of {count} cases, the worst first", shown=shown, count=count) if shown < count else ""


@dataclass(frozen=True)
class Painter:
    """The data of the pictures, and where they go."""

    run: Run
    judgements: Judgements
    spreads: Sequence[ArmSpread]
    folder: Path | None  # where PNGs go, in place of an earlier report's
    raw: Sequence[LaunchRow] = ()  # every launch. Without it their distribution is not drawn
    extras: Sequence[OpExtra] = ()  # of extensions

    @cached_property
    def charts(self) -> dict[str, list[CaseChart]]:
        """What there is to draw, by op."""
        return collect_charts(self.run, self.judgements, self.raw)

    @cached_property
    def panels(self) -> int:
        """Most of an overview."""
        return max(min(style.PANELS, PANELS_OF_RUN // max(sum(map(bool, self.charts.values())), 1)), FEWEST_PANELS)

    @cached_property
    def gravest(self) -> list[str]:
        """The ops that get overviews."""
        last = (len(Gate) + 3, 0.0)
        return sorted(self.charts, key=lambda op: min(map(rank_chart, self.charts[op]), default=last))[:OPS]

    def save(self, figure: Figure, name: str, alt: str, case: str | None = None, shows: int = 0) -> Picture:
        """Draw a figure, and save it if there is a folder."""
        png = style.save_png(figure)
        if self.folder is not None:
            write_atomically(self.folder / f"{name}.png", png)
        return Picture(f"{name}.png", alt, shows, case, png)

    @staticmethod
    def import_libraries() -> None:
        """Import what draws, and draw once."""
        style.save_png(style.make_figure("", 1.0)[0])

    @np.errstate(all="ignore")  # matplotlib overflows if times are absurd, and then leaves a margin out
    def draw_all(self) -> Gallery:
        """Draw the pictures of all ops, on all cores."""
        for old in [old for kind in KINDS if self.folder for old in self.folder.glob(f"{kind}*.png")]:
            old.unlink()
        grave = [(op, chart) for op, charts in self.charts.items() for chart in charts if chart.gate is not Gate.OK]
        grave = sorted(grave, key=lambda pair: rank_chart(pair[1]))[:CASES]
        alone = {(op, chart.case) for op, chart in grave}
        points = [*ceilings.find_points(self.run.ops, self.spreads, self.judgements.rows, self.run.limits)]
        drawings: dict[tuple[str, str], Callable[[], Iterable[Picture]]] = {
            ("", "roofline"): partial(self.draw_roofline, points),
            ("", "sizes"): partial(self.draw_sizes, points),
        }
        for op, name in zip(self.run.ops, name_files([op.op for op in self.run.ops]), strict=True):
            if op.op in self.gravest:
                drawings[op.op, "overview"] = partial(self.draw_overviews, op, name)
            for place, extra in enumerate(self.extras):
                drawings[op.op, f"extra {place}"] = partial(extra.draw, op, self, name)
            alone_here = [chart for chart in self.charts[op.op] if (op.op, chart.case) in alone]
            for number, chart in enumerate(alone_here, 1):
                drawings[op.op, f"case {number}"] = partial(self.draw_alone, op, chart, f"case-{name}-{number}")
        made = map_forked(lambda draw: tuple(draw()), [*drawings.values()])
        drawn = dict(zip(drawings, made, strict=True))

        def take(op: str, kind: str) -> tuple[Picture, ...]:
            parts = (drawn[key] for key in drawn if key[0] == op and key[1].partition(" ")[0] == kind)
            return tuple(itertools.chain.from_iterable(parts))

        ops = {}
        for op in self.run.ops:
            count = sum(chart.gate is not Gate.OK for chart in self.charts[op.op])
            extras = tuple(drawn.get((op.op, f"extra {place}"), ()) for place, _ in enumerate(self.extras))
            ops[op.op] = Pictures(take(op.op, "overview"), take(op.op, "case"), count, extras)
        roofline = (_show_roofline(self.run, picture) for picture in take("", "roofline"))
        return Gallery(ops, (*roofline, *map(_show_sizes, take("", "sizes"))))

    def draw_alone(self, op: OpRun, chart: CaseChart, name: str) -> Iterator[Picture]:
        """A case that fails or warns, by itself."""
        figure = draw_case(chart, style.fit(f"{op.op} {chart.case}: {chart.verdict}", 100))
        facts = {"op": plain(op.op, 40), "case": plain(chart.case, 80), "verdict": str(chart.verdict)}
        yield self.save(figure, name, say("{op}, {case}: {verdict}", **facts), case=chart.case)

    def draw_overviews(self, op: OpRun, name: str) -> Iterator[Picture]:
        """One picture of each kind that there are data for."""
        title, alt = style.fit(op.op, 40), plain(op.op, 40)
        charts = self.charts[op.op]
        shown = pick_worst(charts, self.panels)
        overviews: list[tuple[Callable[..., Figure], str, str, str, list[CaseChart], int]] = [
            (draw_changes, "changes", caption("{op}: changes and speedups", op=title),
             say("Changes and speedups of {op}", op=alt),
             [chart for chart in charts if chart.change or chart.speedup], ROWS),
            (draw_blocks, "blocks", caption("{op}: block medians", op=title), say("Block medians of {op}", op=alt),
             shown if any(chart.gate is not Gate.OK for chart in charts) else [], self.panels),
            (draw_launches, "launches", caption("{op}: launches", op=title), say("Launches of {op}", op=alt),
             [chart for chart in shown if chart.launches], self.panels),
        ]  # fmt: skip
        beside = [row.comparison for row in self.judgements.rows if row.op == op.op and row.comparison]
        if beside := [seen for seen in beside if seen.peers]:
            shown_beside = beside[:BESIDE]
            heading, about = caption("{op}: side by side", op=title), say("{op} side by side", op=alt)
            note = caption("{shown} of {count} cases", shown=len(shown_beside), count=len(beside))
            figure = draw_beside(shown_beside, heading, note if len(shown_beside) < len(beside) else "")
            yield self.save(figure, f"beside-{name}", about)
        for draw, kind, heading, about, found, most in overviews:
            if found:
                worst = pick_worst(found, most)
                count = len(found) if kind == "changes" else len(charts)
                figure = draw(worst, heading, describe_left_out(len(worst), count))
                yield self.save(figure, f"{kind}-{name}", about)

    def draw_roofline(self, points: Sequence[WorkingPoint]) -> Iterator[Picture]:
        """The roofline of the ops that are furthest below their ceilings."""
        device = self.run.environment.device.name
        shown = choose_lowest([one for one in points if one.place], CEILING_OPS)
        if places := [one.place for one in points if one.place and one.op in shown]:
            figure = draw_roofline(places, self.run.limits, caption("Roofline, {device}", device=style.fit(device, 40)))
            yield self.save(figure, "roofline", say("Roofline of {device}", device=plain(device, 40)))

    def draw_sizes(self, points: Sequence[WorkingPoint]) -> Iterator[Picture]:
        """The times of the same ops against their sizes."""
        sized = choose_sized(points)
        shown = choose_lowest([one for one in points if one.op in sized], CEILING_OPS)
        if shown:
            left_out = caption(
                "{shown} of {count} ops, those furthest below their ceilings", shown=len(shown), count=len(sized)
            )
            figure = draw_sizes(
                {op: sized[op] for op in sized if op in shown},
                caption("Time against size"),
                left_out if sized.keys() - shown else "",
            )
            yield self.save(figure, "sizes", say("Time against size"))


def _show_roofline(run: Run, picture: Picture) -> Section:
    """Its section. Present if any case's operations are known."""
    note = say(
        "Operations and bytes are those that the ops declare; the ceilings are a copy and a matrix product measured in "
        "this run. Left of the ridge a case is bound by memory, right of it by arithmetic; named are the cases "
        "furthest below their ceiling, with the share of it that they reach."
    )
    known = {case.dtype for op in run.ops for case in op.performance if case.flops and case.blocks and case.dtype}
    if lacking := sorted(known - set(run.limits.matmul_tflops)):
        dtypes = ", ".join(map(plain, lacking))
        note = say("{note} No matrix product was measured in {dtypes}.", note=note, dtypes=dtypes)
    return Section(say("Roofline"), (note,), pictures=(picture,))


def _show_sizes(picture: Picture) -> Section:
    """Its section. Present if an op was timed at several sizes."""
    note = say("A line joins cases that differ in size alone. The best working point comes nearest to its ceiling.")
    return Section(say("Time against size"), (note,), pictures=(picture,))


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
