"""Which pictures an op gets, and their files: the same run gives the same bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from perfci.core.model import Baseline, Gate, Judgement, Judgements, OpRun, Run, Suite, is_peer
from perfci.core.wording import say
from perfci.ops.spec import is_stored
from perfci.report import ceilings, figures, frame, lowprec, past, rows
from perfci.report.against import DUEL
from perfci.report.ceilings import Place
from perfci.report.figures import LABEL, Bar, Distribution, Duel, Strip, Trace, drawn
from perfci.report.figures.sheet import Floats, Sheet
from perfci.report.frame import Spread
from perfci.report.past import Past, Pasts, Trail
from perfci.report.scaling import scaling
from perfci.report.sections import Pictures
from perfci.report.text import file_name, plain
from perfci.report.view import Picture

if TYPE_CHECKING:
    import pandas as pd

BARS = 32
"""Most bars a figure."""

TRACES = 8
"""Most cases in a figure of block medians, or of launches."""

MOST_TRACES = 16
"""Most cases of an op whose block medians are drawn; beyond them the gravest are."""

MOST_TRACES_OF_MANY = 4
"""The same in a run of more than MANY_CASES, so that its report stays quick to make and to read."""

MANY_CASES = 100

FEWEST_RUNS = 3
"""Accepted runs below which no history is drawn."""

TRAILS = 8
"""Most cases of an op whose history is drawn; of a run of more than MANY_CASES it is MOST_TRACES_OF_MANY."""

ROOFLINE_OPS = 6
"""Most ops that share one roofline: as many as there are colours. Beyond, each op has its own."""

PATTERNS = (
    "speedup-*.png",
    "blocks-*.png",
    "duels-*.png",
    "launches-*.png",
    "sizes-*.png",
    "roofline.png",
    "roofline-*.png",
    "history-*.png",
    "lowprec-*.png",
)

_Judged = Mapping[tuple[str, str | None], Judgement]
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Gallery:
    """All pictures of a report."""

    ops: Mapping[str, Pictures]
    roofline: Picture | None = None
    """of all ops together; None where each has its own, or no case's operations are known"""


@dataclass(frozen=True)
class _Source:
    """What pictures are made of, beside the run."""

    judged: _Judged
    spreads: Sequence[Spread]
    places: Mapping[str, Sequence[Place]]
    """by op, where each op has a roofline of its own"""
    most: int
    raw: pd.DataFrame | None = None
    stored: Mapping[str, Baseline] = field(default_factory=dict)
    pasts: Pasts = field(default_factory=dict)
    stored_rows: Sequence[Judgement] = ()
    """of tensors that are stored in low precision"""


def write(
    run: Run,
    judgements: Judgements,
    folder: Path,
    raw: pd.DataFrame | None = None,
    *,
    spreads: Sequence[Spread] | None = None,
    baselines: Mapping[str, Baseline] | None = None,
    pasts: Pasts | None = None,
) -> Gallery:
    """Draw all pictures into the folder, which loses those of an earlier report.

    raw: every launch, without which their distribution is not drawn. spreads: every arm's, else found here. baselines:
    op -> what is stored for it, of whatever device and timer. pasts: op -> what was accepted before this run.
    """
    for pattern in PATTERNS:
        for old in folder.glob(pattern):
            old.unlink()
    timed = sum(bool(case.blocks) for op in run.ops for case in op.performance)
    known = frame.spreads(frame.blocks(run)) if spreads is None else spreads
    found = ceilings.by_op(ceilings.places(run.ops, known, judgements.rows, run.limits))
    together = len(found) <= ROOFLINE_OPS
    source = _Source(
        judged={(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE},
        spreads=known,
        places={} if together else found,
        most=MOST_TRACES_OF_MANY if timed > MANY_CASES else MOST_TRACES,
        raw=raw,
        stored=_comparable(run, baselines or {}),
        pasts=pasts or {},
        stored_rows=[row for row in judgements.rows if row.case is not None and is_stored(row.case)],
    )
    names = _file_names([op.op for op in run.ops])
    with figures.style():
        ops = {op.op: _op(run, op, source, folder / name) for op, name in zip(run.ops, names, strict=True)}
        return Gallery(ops, _shared_roofline(run, found, folder) if together and found else None)


def _comparable(run: Run, baselines: Mapping[str, Baseline]) -> dict[str, Baseline]:
    """Baselines of this kind of device, by this timer: other times have no place beside the run's."""
    where = run.environment
    return {op: one for op, one in baselines.items() if (one.device, one.timer) == (where.device.key, where.timer)}


def _op(run: Run, op: OpRun, source: _Source, stem: Path) -> Pictures:
    judged = source.judged
    bars = [bar for case in op.performance if (bar := _bar(judged.get((op.op, case.case)), case.case))]
    chosen = worth_drawing(op, judged, source.most)
    title, alt = drawn(op.op, 40), plain(op.op, 40)
    traced = [_trace(op, case, judged) for case in chosen]
    duelled = [duel for case in chosen if (duel := _duel(op, case, judged))]
    speedups, traces = f"{title}: speedup over the reference", f"{title}: block medians over time"
    duels = f"{title}: kernel against base, block by block"
    launched = _distributions(op, chosen[:TRACES], source)
    return Pictures(
        duels=_each(duelled, TRACES, stem, "duels", say("Duels of {op}", op=alt), figures.duels, duels),
        speedups=_each(bars, BARS, stem, "speedup", say("Speedup of {op}", op=alt), figures.speedup, speedups),
        traces=_each(traced, TRACES, stem, "blocks", say("Block medians of {op}", op=alt), figures.traces, traces),
        distributions=_each(
            launched, TRACES, stem, "launches", say("Launches of {op}", op=alt), figures.distributions,
            f"{title}: every launch",
        ),
        sizes=_sizes(run, op, source, stem),
        roofline=_own_roofline(run, op, source, stem),
        traced=len(chosen),
        undrawn=tuple(case.case for case in op.performance if case.blocks and case.case not in chosen),
        stored=any(one.baseline is not None for one in launched),
        history=_history(run, op, source, stem),
        lowprec=tuple(_lowprec(op, source, stem)),
    )  # fmt: skip


def _each(
    items: Sequence[_Item],
    size: int,
    stem: Path,
    kind: str,
    alt: str,
    draw: Callable[[Sequence[_Item], str], Sheet],
    title: str,
) -> tuple[Picture, ...]:
    """Pictures of at most `size` items each."""
    found = []
    for index, chunk in enumerate(chunks := list(_chunks(items, size)), start=1):
        if len(chunks) == 1:
            found.append(_saved(draw(chunk, title), stem, kind, alt))
        else:
            told = say("{alt} ({index} of {count})", alt=alt, index=index, count=len(chunks))
            sheet = draw(chunk, f"{title} ({index} of {len(chunks)})")
            found.append(_saved(sheet, stem, kind, told, f"-{index}"))
    return tuple(found)


def worth_drawing(op: OpRun, judged: _Judged, most: int) -> list[str]:
    """Cases with blocks in the op's order; where not all can be drawn the gravest verdicts, then the widest changes."""
    timed = [case.case for case in op.performance if any(block.arms for block in case.blocks)]
    if len(timed) <= most:
        return timed

    def rank(case: str) -> tuple[int, float]:
        row = judged.get((op.op, case))
        change = rows.find_change(row) if row else None
        return rows.rank(row.verdict) if row else len(timed), -abs(change.value) if change else 0.0

    return sorted(timed, key=rank)[:most]


def _bar(row: Judgement | None, case: str) -> Bar | None:
    if row is None or row.comparison is None or row.comparison.speedup is None:
        return None
    targets = [reason.facts.get("target") for reason in row.reasons]
    target = next((float(t) for t in targets if isinstance(t, int | float) and not isinstance(t, bool)), None)
    return Bar(figures.label(case), row.comparison.speedup, row.verdict, target)


def _trace(op: OpRun, case: str, judged: _Judged) -> Trace:
    row = judged.get((op.op, case))
    blocks = next(found.blocks for found in op.performance if found.case == case)
    stored = row.comparison.baseline_us if row and row.comparison else None
    return Trace(drawn(case, 2 * figures.LABEL), row.verdict if row else None, blocks, stored)


def _duel(op: OpRun, case: str, judged: _Judged) -> Duel | None:
    row = judged.get((op.op, case))
    look = row.comparison.duel if row and row.comparison else None
    if row is None or look is None:
        return None
    shifts: dict[int, list[float]] = {}
    blocks = next(found.blocks for found in op.performance if found.case == case)
    for block in sorted(blocks, key=lambda block: block.started_s):
        if DUEL in block.shifts:
            shifts.setdefault(block.process, []).append(block.shifts[DUEL])
    processes = tuple(tuple(shifts[process]) for process in sorted(shifts))
    return Duel(case, row.verdict, processes, math.expm1(look.tau), rows.to_ratio(look.shift))


def _distributions(op: OpRun, cases: Sequence[str], source: _Source) -> list[Distribution]:
    """Every launch of the cases by arm, beside the medians of the baseline's blocks; none without launches."""
    if source.raw is None:
        return []
    mine = source.raw[source.raw["op"] == op.op]
    found = dict(iter(mine[mine["case"].isin(cases)].groupby("case", sort=False)))
    return [_distribution(op, case, found[case], source) for case in cases if case in found]


def _distribution(op: OpRun, case: str, launches: pd.DataFrame, source: _Source) -> Distribution:
    row = source.judged.get((op.op, case))
    grave = row is not None and row.verdict.gate is not Gate.OK
    arms = {str(arm): times.to_numpy() for arm, times in launches.groupby("arm")["us"] if not is_peer(str(arm))}
    return Distribution(drawn(case, figures.LABEL), arms, _medians(source.stored.get(op.op), case), grave)


def _medians(stored: Baseline | None, case: str) -> Floats | None:
    """Of the baseline's blocks of a case; None where it has none."""
    known = next((one.blocks for one in stored.cases if one.case == case), ()) if stored else ()
    return np.array([block.kernel_us for block in known]) if known else None


def _sizes(run: Run, op: OpRun, source: _Source, stem: Path) -> tuple[Picture, ...]:
    bad = ceilings.unsound(source.judged.values())
    mine = [one for one in source.spreads if one.op == op.op and (one.op, one.case) not in bad]
    found = scaling(op, mine, run.limits)
    if found is None:
        return ()
    sheet = figures.sizes(found, f"{drawn(op.op, 40)}: time against size")
    return (_saved(sheet, stem, "sizes", say("Time against size of {op}", op=plain(op.op, 40))),)


def _history(run: Run, op: OpRun, source: _Source, stem: Path) -> tuple[Picture, ...]:
    """One picture of those cases that the history tells most about."""
    found = source.pasts.get(op.op)
    if found is None or found.damage:
        return ()
    shown = past.trails(op, run, found)
    chosen = strips(shown, found, min(TRAILS, source.most))
    if not chosen:
        return ()
    sheet = figures.trails(chosen, f"{drawn(op.op, 40)}: accepted runs, and this one")
    made = _saved(sheet, stem, "history", say("History of {op}", op=plain(op.op, 40)))
    return (replace(made, shows=len(chosen)),)


def _lowprec(op: OpRun, source: _Source, stem: Path) -> Iterator[Picture]:
    """Of each tensor that is stored in low precision: its errors by way of storing it, and its trends."""
    judged = [row for row in source.stored_rows if row.op == op.op]
    for index, ways in enumerate(lowprec.chosen(op, judged)):
        about, alt = drawn(f"{op.op} {ways[0].family}", 2 * LABEL), plain(f"{op.op} {ways[0].family}", 120)
        errors = figures.histograms(ways, f"{about}: errors")
        suffix = f"-{index + 1}"
        yield _saved(errors, stem, "lowprec", say("Errors of storage of {what}", what=alt), suffix)
        if any(each.before for each in ways):
            sheet = figures.storage_trends(ways, f"{about}: trends", lowprec.limits(ways, judged))
            yield _saved(sheet, stem, "lowprec", say("Trends of storage of {what}", what=alt), f"{suffix}-trends")


def strips(shown: Sequence[Trail], found: Past, most: int) -> list[Strip]:
    """Of each of the gravest cases what is drawn, in the run's order; nothing of so few runs that a table tells all."""
    if len(found.runs) < FEWEST_RUNS:
        return []
    marks, dates = past.marks(found, shown), tuple(past.day(run) for run in found.runs)
    chosen = {trail.case for trail in sorted(shown, key=lambda trail: trail.rank)[:most]}
    return [
        Strip(drawn(trail.case, LABEL), trail, tuple(mark for mark in marks if mark.about(trail.case)), dates)
        for trail in shown
        if trail.case in chosen
    ]


def _own_roofline(run: Run, op: OpRun, source: _Source, stem: Path) -> Picture | None:
    places = source.places.get(op.op)
    if not places:
        return None
    sheet = figures.roofline(places, run.limits, f"{drawn(op.op, 40)}: roofline", colours="case")
    return _saved(sheet, stem, "roofline", say("Roofline of {op}", op=plain(op.op, 40)))


def _shared_roofline(run: Run, found: Mapping[str, Sequence[Place]], folder: Path) -> Picture:
    places = [one for group in found.values() for one in group]
    sheet = figures.roofline(places, run.limits, f"Roofline, {drawn(run.environment.device.name, 40)}")
    file = folder / "roofline.png"
    figures.save(sheet, file)
    return Picture(file.name, say("Roofline of {device}", device=plain(run.environment.device.name, 40)))


def _chunks(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """Even parts of at most `size`."""
    count = -(-len(items) // size)
    for index in range(count):
        yield items[index * len(items) // count : (index + 1) * len(items) // count]


def _saved(sheet: Sheet, stem: Path, kind: str, alt: str, suffix: str = "") -> Picture:
    file = stem.with_name(f"{kind}-{stem.name}{suffix}.png")
    figures.save(sheet, file)
    return Picture(file.name, alt)


def _file_names(ops: Sequence[str]) -> list[str]:
    """A file name an op; ops whose names differ only in what a file name can't hold, or in case, get a number."""
    names = [file_name(op) for op in ops]
    folded = [name.casefold() for name in names]
    return [name if folded.index(folded[i]) == i else f"{name}-{i}" for i, name in enumerate(names)]
