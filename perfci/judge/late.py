"""What the time limit left undone: never green, never missing, and said with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfci.core.model import Gate, Judgement, OpRun, PerformanceCase, PlannedOp, Reason, Run, Suite, Verdict

__all__ = ["case", "notes", "reached", "row"]


def reached(found: OpRun | None) -> bool:
    """Whether anything is known of an op; one that the run does not know at all was not kept from it by time."""
    return found is None or found.late is None or bool(found.accuracy or found.performance)


def row(run: Run, op: PlannedOp, found: OpRun) -> Judgement:
    """The one row of an op that was not reached."""
    suite = Suite.ACCURACY if Suite.ACCURACY in run.plan.suites else Suite.PERFORMANCE
    facts = found.late.facts if found.late else {}
    # Also of one that was ended while it still started.
    return Judgement(op.op, suite, None, Verdict.INCONCLUSIVE, (Reason("op_not_reached", facts),))


def case(judged: Judgement, measured: PerformanceCase) -> Judgement:
    """A timed case's verdict, where time kept evidence from it.

    One whose first look was not whole is INCONCLUSIVE, unless what there is fails it. Of one that lacks further
    processes the verdict is that of the evidence at hand, which is INCONCLUSIVE where it calls for more.
    """
    late = measured.late
    if late is None or judged.gate is Gate.FAILS:
        return judged
    if late.kind == "case_late" or judged.verdict is Verdict.INCONCLUSIVE:
        return replace(judged, verdict=Verdict.INCONCLUSIVE, reasons=(late, *judged.reasons), expected=None)
    return replace(judged, reasons=(*judged.reasons, late))


def notes(run: Run) -> Iterator[Reason]:
    """How much of the run the time limit cost, and what of the job's variables was ignored."""
    if run.plan.deadline_note:
        yield run.plan.deadline_note
    late = [op.late for op in run.ops if op.late]
    cases = [each.late for op in run.ops for each in op.performance if each.late]
    if late or cases:
        unreached = sum(not reached(op) for op in run.ops)
        counts = {"unreached": unreached, "cut": len(late) - unreached, "cases": len(cases)}
        facts = {**(*late, *cases)[0].facts, **counts, "ops": len(run.plan.ops)}
        yield Reason("run_late_reserve" if facts.get("reserve_s") else "run_late", facts)
