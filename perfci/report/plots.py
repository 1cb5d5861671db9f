"""Which pictures an op gets, and their files: an overview of each kind, and one of each case that fails or warns.

A figure takes some 0.1 s to draw. So a run of many ops gets fewer panels an op, and only its gravest ops get every kind
of picture. The same run gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.core.model import Baseline, Gate, Judgement, Judgements, OpRun, Run, Suite, is_peer
from perfci.core.wording import say
from perfci.ops.spec import is_stored
from perfci.report import ceilings, frame, lowprec, past, rows
from perfci.report.against import DUEL
from perfci.report.ceilings import CeilingPoint
from perfci.report.charts import style
from perfci.report.charts.cases import ROWS, CaseChart, draw_blocks, draw_case, draw_changes, draw_launches
from perfci.report.charts.device import draw_roofline, draw_sizes
from perfci.report.charts.runs import ENVIRONMENT, LOSS, STEP, RunsChart, Upright, draw_runs
from perfci.report.charts.storage import draw_errors, draw_trends
from perfci.report.frame import ArmSpread
from perfci.report.past import Past, Pasts, Trail
from perfci.report.scaling import find_curves
from perfci.report.sections import Pictures
from perfci.report.text import file_name, plain
from perfci.report.view import Picture

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

CASES = 12
"""Most cases of a run that get a picture of their own: those that fail before those that warn."""

PANELS_OF_RUN = 40
"""Panels of one kind in a whole run, which its ops share."""

FEWEST_PANELS = 3

LAST = (len(Gate) + 3, 0.0)
"""Rank of an op without timed cases."""

OPS = 8
"""Most ops of a run that get every kind of picture, the gravest first. Others that fail or warn get their changes."""

FEWEST_RUNS = 3
"""Accepted runs below which no history is drawn."""

ROOFLINE_OPS = 6
"""Most ops that share one roofline: as many as there are colours. Beyond, each op has its own."""

PATTERNS = (
    "changes-*.png",
    "blocks-*.png",
    "case-*.png",
    "launches-*.png",
    "sizes-*.png",
    "roofline.png",
    "roofline-*.png",
    "history-*.png",
    "lowprec-*.png",
)


@dataclass(frozen=True)
class Gallery:
    """All pictures of a report."""

    ops: Mapping[str, Pictures]
    roofline: Picture | None = None
    """of all ops together. None if each has its own, or if no case's operations are known"""


@dataclass(frozen=True)
class Album:
    """What the pictures are made of, and where they go."""

    run: Run
    charts: Mapping[str, Sequence[CaseChart]]
    """timed cases by op, in the op's order"""
    own: frozenset[tuple[str, str]]
    """op and case of those with a picture of their own"""
    whole: frozenset[str]
    """ops that get every kind of picture"""
    panels: int
    """most of a picture"""
    spreads: Sequence[ArmSpread]
    judgements: Judgements
    folder: Path | None
    svg: bool

    def save(self, figure: Figure, name: str, alt: str, **facts: object) -> Picture:
        """Save a figure as PNG, as SVG, or as both."""
        if self.folder is not None:
            (self.folder / f"{name}.png").write_bytes(style.save_png(figure))
        found = Picture(f"{name}.png", alt, svg=style.save_svg(figure) if self.svg else "")
        return replace(found, **facts)  # type: ignore[arg-type]


@np.errstate(all="ignore")  # matplotlib overflows if times are absurd, and then leaves a margin out
def write(
    run: Run,
    judgements: Judgements,
    folder: Path | None,
    raw: pd.DataFrame | None = None,
    *,
    spreads: Sequence[ArmSpread] | None = None,
    baselines: Mapping[str, Baseline] | None = None,
    pasts: Pasts | None = None,
    svg: bool = False,
) -> Gallery:
    """Draw all pictures, as PNGs into the folder, which loses those of an earlier report, and as SVG if asked.

    raw: every launch, without which their distribution is not drawn. spreads: every arm's, else found here. baselines:
    op -> what is stored for it, of whatever device and timer. pasts: op -> what was accepted before this run.
    """
    for old in [old for pattern in PATTERNS if folder for old in folder.glob(pattern)]:
        old.unlink()
    known = frame.pool_spreads(frame.tabulate_blocks(run)) if spreads is None else spreads
    charts = collect_charts(run, judgements, raw, baselines or {})
    grave = [(op, chart) for op, found in charts.items() for chart in found if chart.gate is not Gate.OK]
    grave.sort(key=lambda pair: _rank(pair[1]))
    timed = sum(bool(found) for found in charts.values())
    gravest = sorted((op.op for op in run.ops), key=lambda op: min(map(_rank, charts.get(op, ())), default=LAST))
    album = Album(
        run,
        charts,
        frozenset((op, chart.case) for op, chart in grave[:CASES]),
        frozenset(gravest[:OPS]),
        max(min(style.PANELS, PANELS_OF_RUN // max(timed, 1)), FEWEST_PANELS),
        known,
        judgements,
        folder,
        svg,
    )
    places = ceilings.group_places(ceilings.find_places(run.ops, known, judgements.rows, run.limits))
    shared = 0 < len(places) <= ROOFLINE_OPS
    names = _name_files([op.op for op in run.ops])
    ops = {}
    for op, name in zip(run.ops, names, strict=True):
        found = _draw_op(op, name, album, [] if shared else places.get(op.op, []))
        history = tuple(_draw_history(op, name, album, (pasts or {}).get(op.op)))
        ops[op.op] = replace(found, history=history)
    return Gallery(ops, _draw_shared_roofline(album, places) if shared else None)


def collect_charts(
    run: Run, judgements: Judgements, raw: pd.DataFrame | None, baselines: Mapping[str, Baseline]
) -> dict[str, list[CaseChart]]:
    """What there is to draw of each op's timed cases, in their order."""
    judged = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    launches: dict[tuple[str, str], dict[str, style.Floats]] = {}
    if raw is not None:
        keyed: Any = raw.groupby(["op", "case", "arm"], sort=False)["us"]
        for (op, case, arm), us in keyed:
            if not is_peer(arm):
                launches.setdefault((op, case), {})[arm] = us.to_numpy()
    where = run.environment
    # Times of another device or timer have no place beside the run's.
    stored = {
        (op, case.case): np.array([block.kernel_us for block in case.blocks])
        for op, one in baselines.items()
        if (one.device, one.timer) == (where.device.key, where.timer)
        for case in one.cases
        if case.blocks
    }
    found: dict[str, list[CaseChart]] = {}
    for op in run.ops:
        for case in op.performance:
            if not any(block.arms for block in case.blocks):
                continue
            key = (op.op, case.case)
            blocks = tuple(sorted(case.blocks, key=lambda block: (block.process, block.started_s)))
            chart = CaseChart(case.case, blocks=blocks, launches=launches.get(key, {}), stored=stored.get(key))
            found.setdefault(op.op, []).append(_add_judgement(chart, judged.get(key)))
    return found


def _add_judgement(chart: CaseChart, row: Judgement | None) -> CaseChart:
    if row is None:
        return chart
    seen = row.comparison
    change = rows.find_change(row)
    allowed = None
    shifts: dict[int, list[float]] = {}
    if seen and seen.duel:
        allowed = float(np.expm1(seen.duel.tau))
        for block in chart.blocks:
            if DUEL in block.shifts:
                shifts.setdefault(block.process, []).append(block.shifts[DUEL])
    elif seen and seen.screens:
        allowed = seen.screens[-1].margin
    targets = [reason.facts.get("target") for reason in row.reasons]
    return replace(
        chart,
        verdict=row.verdict,
        gate=row.gate,
        baseline_us=seen.baseline_us if seen else None,
        duel=seen.duel if seen else None,
        shifts=tuple(tuple(found) for found in shifts.values()),
        change=change,
        allowed=allowed,
        speedup=seen.speedup if seen else None,
        target=next((float(t) for t in targets if isinstance(t, int | float) and not isinstance(t, bool)), None),
    )


def _rank(chart: CaseChart) -> tuple[int, float]:
    grave = rows.rank(chart.verdict, chart.gate) if chart.verdict else len(Gate) + 2
    return grave, -abs(chart.change.value) if chart.change else 0.0


def pick_worst(charts: Sequence[CaseChart], most: int) -> list[CaseChart]:
    """All in their order if they are few, else the gravest verdicts, then the greatest changes."""
    return list(charts) if len(charts) <= most else sorted(charts, key=_rank)[:most]


def _tell_left_out(shown: int, count: int) -> str:
    return f"{shown} of {count} cases, the worst first" if shown < count else ""


# --- an op ------------------------------------------------------------------------------------------------------------


def _draw_op(op: OpRun, name: str, album: Album, places: Sequence[CeilingPoint]) -> Pictures:
    title, alt = style.fit(op.op, 40), plain(op.op, 40)
    charts = album.charts.get(op.op, [])
    shown = pick_worst(charts, album.panels)
    pictures = list[Picture]()
    compared = [chart for chart in charts if chart.change or chart.speedup]
    if compared and (op.op in album.whole or any(chart.gate is not Gate.OK for chart in charts)):
        rated = pick_worst(compared, ROWS)
        figure = draw_changes(rated, f"{title}: changes and speedups", _tell_left_out(len(rated), len(compared)))
        pictures.append(album.save(figure, f"changes-{name}", say("Changes and speedups of {op}", op=alt)))
    if op.op not in album.whole:
        shown = []
    if shown:
        figure = draw_blocks(shown, f"{title}: block medians", _tell_left_out(len(shown), len(charts)))
        pictures.append(album.save(figure, f"blocks-{name}", say("Block medians of {op}", op=alt)))
    launched = [chart for chart in shown if chart.launches]
    if launched:
        figure = draw_launches(launched, f"{title}: launches", _tell_left_out(len(launched), len(charts)))
        pictures.append(album.save(figure, f"launches-{name}", say("Launches of {op}", op=alt)))
    bad = ceilings.find_unsound(row for row in album.judgements.rows if row.op == op.op)
    sound = [one for one in album.spreads if one.op == op.op and (one.op, one.case) not in bad]
    if op.op in album.whole and (found := find_curves(op, sound, album.run.limits)):
        figure = draw_sizes(found, f"{title}: time against size")
        pictures.append(album.save(figure, f"sizes-{name}", say("Time against size of {op}", op=alt)))
    if places and op.op in album.whole:
        figure = draw_roofline(places, album.run.limits, f"{title}: roofline")
        pictures.append(album.save(figure, f"roofline-{name}", say("Roofline of {op}", op=alt)))
    pictures += _draw_storage(op, name, album)
    own = list[Picture]()
    for chart in charts:
        if (op.op, chart.case) in album.own:
            figure = draw_case(chart, style.fit(f"{op.op} {chart.case}: {chart.verdict}", 100))
            facts = {"case": plain(chart.case, 80), "verdict": str(chart.verdict)}
            text = say("{op}, {case}: {verdict}", op=alt, **facts)
            own.append(album.save(figure, f"case-{name}-{len(own) + 1}", text, case=chart.case))
    return Pictures(tuple(pictures), tuple(own), alone=sum(chart.gate is not Gate.OK for chart in charts))


def _draw_storage(op: OpRun, name: str, album: Album) -> Iterator[Picture]:
    """Of each tensor that is stored in low precision its errors, and its trends if accepted runs have it."""
    judged = [row for row in album.judgements.rows if row.op == op.op and row.case and is_stored(row.case)]
    for index, ways in enumerate(lowprec.choose_tensors(op, judged), 1):
        about, alt = style.fit(f"{op.op} {ways[0].family}", 80), plain(f"{op.op} {ways[0].family}", 120)
        figure = draw_errors(ways, f"{about}: errors")
        yield album.save(figure, f"lowprec-{name}-{index}", say("Errors of storage of {what}", what=alt))
        if any(each.before for each in ways):
            figure = draw_trends(ways, f"{about}: trends", lowprec.find_limits(ways, judged))
            yield album.save(figure, f"lowprec-{name}-{index}-trends", say("Trends of storage of {what}", what=alt))


def _draw_history(op: OpRun, name: str, album: Album, found: Past | None) -> Iterator[Picture]:
    """One picture of those cases about which the history says most."""
    if found is None or found.damage or len(found.runs) < FEWEST_RUNS or op.op not in album.whole:
        return
    trails = past.list_trails(op, album.run, found)
    chosen = {trail.case for trail in sorted(trails, key=lambda trail: trail.rank)[: album.panels]}
    if chosen:
        charts = chart_trails(
            [trail for trail in trails if trail.case in chosen], past.find_marks(found, trails), found
        )
        note = _tell_left_out(len(charts), len(trails))
        figure = draw_runs(charts, f"{style.fit(op.op, 40)}: accepted runs, and this one", note)
        alt = say("History of {op}", op=plain(op.op, 40))
        yield album.save(figure, f"history-{name}", alt, shows=len(charts))


def chart_trails(trails: Sequence[Trail], marks: Sequence[past.Mark], found: Past) -> list[RunsChart]:
    """A panel a case."""
    dates = tuple(past.write_day(run) for run in found.runs)
    _, names = style.split_names([trail.case for trail in trails])
    return [
        RunsChart(
            plain(name, 160),
            dates,
            trail.kernel,
            tuple((each.kernel_us.p25_us, each.kernel_us.p75_us) if each else None for each in trail.seen),
            now=trail.now_us,
            uprights=tuple(
                Upright(mark.at, mark.name, LOSS if mark.why else ENVIRONMENT if mark.fields else STEP)
                for mark in marks
                if mark.about(trail.case)
            ),
            told="a step that nothing explains" if trail.unexplained else "",
            grave=trail.unexplained,
        )
        for trail, name in zip(trails, names, strict=True)
    ]


def _draw_shared_roofline(album: Album, found: Mapping[str, Sequence[CeilingPoint]]) -> Picture:
    places = [one for group in found.values() for one in group]
    device = album.run.environment.device.name
    figure = draw_roofline(places, album.run.limits, f"Roofline, {style.fit(device, 40)}")
    return album.save(figure, "roofline", say("Roofline of {device}", device=plain(device, 40)))


def _name_files(ops: Sequence[str]) -> list[str]:
    """A file name an op. Ops whose names differ only in what a file name can't hold, or in case, get a number."""
    names = [file_name(op) for op in ops]
    folded = [name.casefold() for name in names]
    return [name if folded.index(folded[i]) == i else f"{name}-{i}" for i, name in enumerate(names)]
