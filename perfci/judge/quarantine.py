"""Results of a quarantined board: they advise, and neither fail a merge request nor call it faster."""

from collections.abc import Collection
from dataclasses import replace

from perfci.core.model import Fact, Judgement, Judgements, PerformanceCase, Reason, Run, Suite, Verdict, board_key

TIMED = frozenset({Verdict.REGRESSED, Verdict.TOO_SLOW, Verdict.TAIL, Verdict.IMPROVED, Verdict.EXPECTED})
"""Verdicts that rest on times alone. A wrong answer or an exception is one on every board."""


def advise(run: Run, judgements: Judgements, quarantine: Collection[str]) -> Judgements:
    """The judgements if these boards (UUIDs) gate nothing: verdicts from times on them alone are INCONCLUSIVE."""
    listed = {board_key(board) for board in quarantine}
    boards = {(op.op, case.case): boards_of(case, run) for op in run.ops for case in op.performance}
    timed = {key: used for key, used in boards.items() if used}
    only = {key: used for key, used in timed.items() if {board_key(board) for board in used} <= listed}
    if run.plan.put_aside:
        aside = Reason("boards_put_aside", {"boards": ", ".join(run.plan.put_aside)})
        judgements = replace(judgements, notes=(*judgements.notes, aside))
    if not only:
        return judgements
    rows = tuple(_advise_row(row, only.get((row.op, row.case or ""), ())) for row in judgements.rows)
    names = ", ".join(dict.fromkeys(board for used in only.values() for board in used))
    facts: dict[str, Fact] = {"boards": names, "count": len(only), "cases": len(timed)}
    note = Reason("only_quarantined" if len(only) == len(timed) else "some_quarantined", facts)
    return replace(judgements, rows=rows, notes=(*judgements.notes, note))


def boards_of(case: PerformanceCase, run: Run) -> tuple[str, ...]:
    """UUIDs of the boards on which a case was timed. None if that is not known of every block."""
    boards = dict.fromkeys(block.board or run.environment.device.uuid for block in case.blocks)
    return tuple(board for board in boards if board) if None not in boards else ()


def _advise_row(row: Judgement, boards: tuple[str, ...]) -> Judgement:
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
