"""Which pictures an op gets, and their files: the same run gives the same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from perfci.model import Judgement, Judgements, OpRun, Run, Suite
from perfci.report import figures, rows
from perfci.report.against import DUEL
from perfci.report.figures import Bar, Duel, Trace
from perfci.report.sections import Pictures
from perfci.report.text import file_name, glyphs, inline
from perfci.report.view import Picture

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

BARS = 32
"""Most bars a figure."""

TRACES = 8
"""Most cases in a figure of block medians, or of launches."""

MOST_TRACES = 16
"""Most cases of an op whose block medians are drawn; beyond them the gravest are."""

MOST_TRACES_OF_MANY = 4
"""The same in a run of more than MANY_CASES, so that its report stays quick to make and to read."""

MANY_CASES = 100

PATTERNS = ("speedup-*.png", "blocks-*.png", "duels-*.png", "launches-*.png")

_Judged = Mapping[tuple[str, str | None], Judgement]
_Item = TypeVar("_Item")


def write(run: Run, judgements: Judgements, folder: Path, raw: pd.DataFrame | None = None) -> dict[str, Pictures]:
    """Draw every op's pictures into the folder, which loses those of an earlier report; the pictures by op."""
    for pattern in PATTERNS:
        for old in folder.glob(pattern):
            old.unlink()
    judged = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    timed = sum(bool(case.blocks) for op in run.ops for case in op.performance)
    most = MOST_TRACES_OF_MANY if timed > MANY_CASES else MOST_TRACES
    with figures.style():
        return {
            op.op: _op(op, judged, folder / name, most, raw)
            for op, name in zip(run.ops, _file_names([op.op for op in run.ops]), strict=True)
        }


def _op(op: OpRun, judged: _Judged, stem: Path, most: int, raw: pd.DataFrame | None) -> Pictures:
    bars = [bar for case in op.performance if (bar := _bar(judged.get((op.op, case.case)), case.case))]
    drawn = _worth_drawing(op, judged, most)
    title, alt = glyphs(op.op, 40), inline(op.op, 40)
    traced = [_trace(op, case, judged) for case in drawn]
    duelled = [duel for case in drawn if (duel := _duel(op, case, judged))]
    speedups, traces = f"{title}: speedup over the reference", f"{title}: block medians over time"
    duels = f"{title}: kernel against base, block by block"
    return Pictures(
        duels=tuple(
            _saved(figures.duels(chunk, duels + part), stem, "duels", part, f"Duels of {alt}")
            for chunk, part in _chunks(duelled, TRACES)
        ),
        speedups=tuple(
            _saved(figures.speedup(chunk, speedups + part), stem, "speedup", part, f"Speedup of {alt}")
            for chunk, part in _chunks(bars, BARS)
        ),
        traces=tuple(
            _saved(figures.traces(chunk, traces + part), stem, "blocks", part, f"Block medians of {alt}")
            for chunk, part in _chunks(traced, TRACES)
        ),
        distributions=_distributions(op, drawn[:TRACES], stem, raw),
        traced=len(drawn),
    )


def _worth_drawing(op: OpRun, judged: _Judged, most: int) -> list[str]:
    """Cases with blocks in the op's order; where not all can be drawn the gravest come first."""
    timed = [case.case for case in op.performance if case.blocks]
    if len(timed) <= most:
        return timed

    def rank(case: str) -> int:
        row = judged.get((op.op, case))
        return rows.rank(row.verdict) if row else len(timed)

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
    return Trace(glyphs(case, 2 * figures.LABEL), row.verdict if row else None, blocks, stored)


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
    return Duel(case, row.verdict, processes, math.expm1(look.tau), rows.as_ratio(look.shift))


def _distributions(op: OpRun, cases: Sequence[str], stem: Path, raw: pd.DataFrame | None) -> tuple[Picture, ...]:
    if raw is None:
        return ()
    mine = raw[raw["op"] == op.op]
    found = {
        glyphs(str(case), figures.LABEL): {str(arm): times.to_numpy() for arm, times in group.groupby("arm")["us"]}
        for case, group in mine[mine["case"].isin(cases)].groupby("case", sort=False)
    }
    if not found:
        return ()
    drawn = figures.distributions(found, f"{glyphs(op.op, 40)}: every launch")
    return (_saved(drawn, stem, "launches", "", f"Launches of {inline(op.op, 40)}"),)


def _chunks(items: Sequence[_Item], size: int) -> Iterator[tuple[Sequence[_Item], str]]:
    """Even parts of at most `size`, each with how it is told apart in a title: ' (2 of 3)'."""
    count = -(-len(items) // size)
    for index in range(count):
        part = items[index * len(items) // count : (index + 1) * len(items) // count]
        yield part, f" ({index + 1} of {count})" if count > 1 else ""


def _saved(figure: Figure, stem: Path, kind: str, part: str, alt: str) -> Picture:
    suffix = f"-{part.split(maxsplit=1)[0].strip('(')}" if part else ""
    file = stem.with_name(f"{kind}-{stem.name}{suffix}.png")
    figures.save(figure, file)
    return Picture(file.name, f"{alt}{part}")


def _file_names(ops: Sequence[str]) -> list[str]:
    """A file name an op; ops whose names differ only in what a file name can't hold get a number."""
    names = [file_name(op) for op in ops]
    return [name if names.index(name) == i else f"{name}-{i}" for i, name in enumerate(names)]
