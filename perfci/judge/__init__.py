"""From a run and its comparisons to verdicts, each with its reasons, and to what would make them firmer. Pure.

Every planned case is accounted for: by a row of its own, or by its op's row where the op broke, was wrong or was not
measured at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfci.judge import accuracy, speed
from perfci.judge.findings import Adjusted, Context
from perfci.model import (
    Comparison,
    Judgement,
    Judgements,
    Need,
    OpRun,
    PerformanceCase,
    PlannedOp,
    Reason,
    Run,
    Suite,
    Verdict,
)
from perfci.thresholds import Thresholds

__all__ = ["judge"]

Row = tuple[Judgement, Need | None]


def judge(run: Run, comparisons: Sequence[Comparison], thresholds: Thresholds) -> Judgements:
    """The verdicts of a run: per op its accuracy, its failing accuracy cases, then its performance cases.

    Asks for fresh processes (`needs`) only where these would decide and were not had yet.
    """
    adjusted = speed.adjust(comparisons, run.plan.family)
    found = {op.op: op for op in run.ops}
    by_op: dict[str, dict[str, Comparison]] = {}
    for comparison in comparisons:
        by_op.setdefault(comparison.op, {})[comparison.case] = comparison
    rows = [
        row
        for op in run.plan.ops
        for row in _Op(run, op, found.get(op.op), by_op.get(op.op, {}), adjusted, thresholds).rows()
    ]
    needs = tuple(need for _, need in rows if need)
    return Judgements(tuple(row for row, _ in rows), needs, tuple(_notes(run, comparisons, thresholds)))


@dataclass(frozen=True)
class _Op:
    """One op of the plan with all that is known about it."""

    run: Run
    plan: PlannedOp
    found: OpRun | None
    comparisons: Mapping[str, Comparison]
    adjusted: Mapping[tuple[str, str], Adjusted]
    thresholds: Thresholds

    def rows(self) -> Iterator[Row]:
        checked = accuracy.rows(self.run, self.plan, self.found)
        yield from ((row, None) for row in checked)
        if Suite.PERFORMANCE not in self.run.plan.suites:
            return
        broken = next((row for row in checked if row.case is not None), None)
        if broken:
            yield from self._not_timed(broken)
        else:
            yield from self._timed()
        yield from self._removed()

    def _not_timed(self, broken: Judgement) -> Iterator[Row]:
        """One row for all cases of a kernel that is wrong: its speed means nothing."""
        if self.plan.performance:
            facts = {"count": len(self.plan.performance), "case": broken.case}
            yield self._row(None, broken.verdict, Reason("not_timed", facts))

    def _timed(self) -> Iterator[Row]:
        failure = self.found.failure if self.found else None
        if failure and accuracy.complete(self.run, self.plan, self.found):
            yield self._row(None, Verdict.ERROR, failure)
        measured = {case.case: case for case in self.found.performance} if self.found else {}
        for case in self.plan.performance:
            yield from self._case(case, measured.get(case))

    def _case(self, case: str, measured: PerformanceCase | None) -> Iterator[Row]:
        comparison = self.comparisons.get(case)
        if measured and measured.failure:
            yield self._row(case, Verdict.ERROR if measured.raised else Verdict.WRONG, measured.failure)
        elif measured and comparison and comparison.measured:
            yield speed.judge_case(measured, comparison, self._context(case))
        elif not self._covered():
            kind = "case_stopped" if self.run.stopped else "case_missing"
            yield self._row(case, Verdict.INCONCLUSIVE, Reason(kind, {"signal": self.run.stopped}))

    def _covered(self) -> bool:
        """Whether the op's own row, or a note, already says why cases of it were not timed."""
        broke = self.plan.failure or (self.found and (self.found.failure or self.found.unmeasured))
        return broke is not None

    def _context(self, case: str) -> Context:
        return Context(
            limits=self.thresholds.for_case(self.plan.op, case),
            adjusted=self.adjusted.get((self.plan.op, case), Adjusted()),
            alpha=self.thresholds.alpha,
            family=self.run.plan.family,
            timer=self.run.environment.timer,
        )

    def _removed(self) -> Iterator[Row]:
        """Cases that only the baseline knows; with a --case filter, or an op that did not load, that says nothing."""
        if self.run.plan.filter is not None or self._covered():
            return
        for case, comparison in self.comparisons.items():
            if comparison.known and case not in self.plan.performance:
                facts = {"op": self.plan.op, "baseline_us": comparison.baseline_us}
                yield self._row(case, Verdict.REMOVED, Reason("removed", facts))

    def _row(self, case: str | None, verdict: Verdict, reason: Reason) -> Row:
        return Judgement(self.plan.op, Suite.PERFORMANCE, case, verdict, (reason,), self._comparison(case)), None

    def _comparison(self, case: str | None) -> Comparison | None:
        return self.comparisons.get(case) if case is not None else None


def _notes(run: Run, comparisons: Sequence[Comparison], thresholds: Thresholds) -> Iterator[Reason]:
    """About the run as a whole."""
    if run.stopped:
        yield Reason("run_stopped", {"signal": run.stopped})
    yield from _once(op.unmeasured for op in run.ops)
    if any(comparison.screens for comparison in comparisons):
        facts = {"family": run.plan.family, "alpha": thresholds.alpha, "margin": thresholds.default.margin}
        yield Reason("how_judged", facts)


def _once(reasons: Iterator[Reason | None]) -> list[Reason]:
    """Each reason but once; facts are mappings, so that reasons cannot be hashed."""
    seen: list[Reason] = []
    for reason in reasons:
        if reason and reason not in seen:
            seen.append(reason)
    return seen
