"""The table of cases: a line a case, accuracy and what was only compiled gathered as in the other reports."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perfci.core.model import Gate, Judgement, Judgements, Suite
from perfci.report import rows
from perfci.report.html.markup import Html, breaking, inline
from perfci.report.rows import VerdictRow
from perfci.report.text import code, plain

OPEN = 40
"""Lines that are fine and shown at first; the others are folded until they are asked for."""


@dataclass(frozen=True)
class Line:
    """One line of the table; numbers are given beside the texts, to sort by."""

    key: str
    """names it in the page's address: softmax/rows=4096"""
    op: str
    verdict: str
    gate: str
    rank: int
    cells: tuple[Html, ...]
    """op, case, change, speedup, kernel, reference, reason"""
    numbers: tuple[float | None, ...]
    """change, speedup, kernel and reference"""
    judgement: Judgement | None
    """None where it stands for several"""
    gathered: int = 1
    """verdicts that it stands for"""
    folded: bool = False


@dataclass(frozen=True)
class Chip:
    """A verdict that one can filter by."""

    verdict: str
    gate: str
    count: int


def lines(judgements: Judgements) -> tuple[Line, ...]:
    """Every line, the gravest first."""
    found = sorted(_told(judgements), key=lambda one: rows.rank(one[0].verdict, one[0].gate))
    made = [_line(row, judgement) for row, judgement in found]
    fine = 0
    for index, (row, _) in enumerate(found):
        fine += not row.aloud
        made[index] = replace(made[index], folded=fine > OPEN)
    return tuple(made)


def _told(judgements: Judgements) -> Iterator[tuple[VerdictRow, Judgement | None]]:
    """Performance case by case, so that each can be found; the others as `perfci.report.rows` gathers them."""
    singly = [row for row in judgements.rows if row.suite is Suite.PERFORMANCE and row.case is not None]
    others = [row for row in judgements.rows if row.suite is not Suite.PERFORMANCE or row.case is None]
    known = {(row.op, str(row.suite), row.case, row.verdict): row for row in others if row.suite is not Suite.COMPILED}
    for line in rows.make_rows(replace(judgements, rows=tuple(others))):
        yield line, known.get((line.op, str(line.suite), line.case, line.verdict)) if line.gathered == 1 else None
    for row in singly:
        yield rows.make_rows(replace(judgements, rows=(row,)))[0], row


def _line(row: VerdictRow, judgement: Judgement | None) -> Line:
    return Line(
        key=f"{plain(row.op, 160)}/{plain(row.where, 160)}",
        op=plain(row.op, 160),
        verdict=str(row.verdict),
        gate=str(row.gate),
        rank=rows.rank(row.verdict, row.gate),
        cells=tuple(_cells(row)),
        numbers=_numbers(judgement),
        judgement=judgement,
        gathered=row.gathered,
    )


def _cells(row: VerdictRow) -> Iterator[Html]:
    yield inline(code(row.op))
    yield breaking(" ".join(filter(None, (plain(row.about), code(row.case or "")))))
    yield _ranged(row.change, row.change_range)
    yield _ranged(row.speedup, row.speedup_range)
    yield inline(row.kernel)
    yield inline(row.reference)
    yield inline(plain(row.sentence))


def _ranged(value: str, interval: str) -> Html:
    small = f" <small>{inline(interval).source}</small>" if interval else ""
    return Html(inline(value).source + small)


def _numbers(row: Judgement | None) -> tuple[float | None, ...]:
    seen = row.comparison if row else None
    change = rows.find_change(row) if row else None
    speedup = seen.speedup if seen else None
    found = (
        change.value if change else None,
        speedup.value if speedup else None,
        seen.kernel_us if seen else None,
        seen.reference_us if seen else None,
    )
    return tuple(float(f"{one:.6g}") if one is not None and math.isfinite(one) else None for one in found)


def chips(found: Sequence[Line]) -> tuple[Chip, ...]:
    """Verdicts that occur, the gravest first, with their number as the headline counts it."""
    counts: dict[str, Chip] = {}
    for line in found:
        before = counts.get(line.verdict, Chip(line.verdict, line.gate, 0))
        counts[line.verdict] = replace(before, count=before.count + line.gathered)
    return tuple(counts.values())


def ops(found: Iterable[Line]) -> Mapping[str, str]:
    """Every op with the worst gate of its lines."""
    order = [str(gate) for gate in (Gate.FAILS, Gate.WARNS, Gate.OK)]
    worst: dict[str, str] = {}
    for line in found:
        worst[line.op] = min(worst.get(line.op, line.gate), line.gate, key=order.index)
    return dict(sorted(worst.items()))
