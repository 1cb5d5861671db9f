"""What a quarantined board says: it advises, and neither fails a merge request nor calls it faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfci.core.model import Fact, Judgement, Judgements, PerformanceCase, Reason, Run, Suite, Verdict, board_key

TIMED = frozenset({Verdict.REGRESSED, Verdict.TOO_SLOW, Verdict.IMPROVED, Verdict.EXPECTED})
"""Verdicts that rest on times alone; a wrong answer or an exception is one on every board."""


def advised(run: Run, judgements: Judgements, quarantine: Sequence[str]) -> Judgements:
    """The judgements where these boards, by their UUIDs, gate nothing.

    A case is advised on that was timed on such boards only; where another one joined, its verdict stands. Of those
    cases the verdicts that rest on times become INCONCLUSIVE, and the others say where they come from.
    """
    listed = {board_key(board) for board in quarantine}
    if not listed:
        return judgements
    boards = {(op.op, case.case): boards_of(case, run) for op in run.ops for case in op.performance}
    timed = {key: found for key, found in boards.items() if found}
    there = {key: found for key, found in timed.items() if {board_key(board) for board in found} <= listed}
    if not there:
        return judgements
    rows = tuple(_advised(row, there.get((row.op, row.case or ""), ())) for row in judgements.rows)
    return replace(judgements, rows=rows, notes=(*judgements.notes, _note(there, len(timed))))


def boards_of(case: PerformanceCase, run: Run) -> tuple[str, ...]:
    """UUIDs of the boards on which a case was timed; none where that is not known of every block."""
    found = dict.fromkeys(block.board or run.environment.device.uuid for block in case.blocks)
    return tuple(board for board in found if board) if None not in found else ()


def _advised(row: Judgement, boards: Sequence[str]) -> Judgement:
    if not boards or row.suite is not Suite.PERFORMANCE:
        return row
    facts: dict[str, Fact] = {"op": row.op, "case": row.case, "board": ", ".join(boards), "verdict": row.verdict.value}
    advises = Reason("board_advises", facts)
    if row.verdict not in TIMED:
        return replace(row, reasons=(*row.reasons, advises))
    reasons = (Reason("board_quarantined", facts), *row.reasons, advises)
    return replace(
        row, verdict=Verdict.INCONCLUSIVE, reasons=reasons, expected=None, suggested=None, warns=False, p_adjusted=None
    )


def _note(there: dict[tuple[str, str], tuple[str, ...]], timed: int) -> Reason:
    boards = dict.fromkeys(board for found in there.values() for board in found)
    facts: dict[str, Fact] = {"boards": ", ".join(boards), "count": len(there), "cases": timed}
    return Reason("only_quarantined" if len(there) == timed else "some_quarantined", facts)
