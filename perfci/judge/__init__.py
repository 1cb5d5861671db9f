"""From a run and its comparisons to verdicts, each with its reasons, and to what would make them firmer. Pure.

Every planned case is accounted for: by a row of its own, or by its op's row where the op broke, was wrong or was not
measured at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perfci.core.model import (
    AgainCase,
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
from perfci.judge import accuracy, duel, expected, late, notes, speed, static
from perfci.judge.findings import Adjusted, Context
from perfci.thresholds.limits import Thresholds

Row = tuple[Judgement, Need | None]


def judge(run: Run, comparisons: Sequence[Comparison], thresholds: Thresholds) -> Judgements:
    """The verdicts of a run: per op its accuracy, its failing accuracy cases, then its performance cases.

    Asks for fresh processes (`needs`) only where these would decide and were not had yet.
    """
    adjusted = speed.adjust(comparisons, run.plan.family, run.plan.duel_family)
    within = _within(comparisons, run)
    found = {op.op: op for op in run.ops}
    by_op: dict[str, dict[str, Comparison]] = {}
    for comparison in comparisons:
        by_op.setdefault(comparison.op, {})[comparison.case] = comparison
    rows = [
        row
        for op in run.plan.ops
        for row in _Op(run, op, found.get(op.op), by_op.get(op.op, {}), adjusted, within, thresholds).rows()
    ]
    rows += [(_removed_op(op, run), None) for op in run.plan.removed]
    rows += [(_missing_shard(reason), None) for reason in run.missing]
    rows += [(row, None) for row in static.rows(run, thresholds)]
    needs = tuple(need for _, need in rows if need)
    judged = tuple(row for row, _ in rows)
    told = notes.notes(run, comparisons, judged, thresholds)
    return Judgements(judged, needs, (*told, *late.notes(run), *expected.unneeded(run, judged, thresholds)))


def _within(comparisons: Sequence[Comparison], run: Run) -> Sequence[Mapping[tuple[str, str], Adjusted]]:
    """The p values adjusted anew for what each case's first, second, ... expected entry allows."""
    most = max((len(comparison.within) for comparison in comparisons), default=0)
    wider = ([each.within[i] if i < len(each.within) else each for each in comparisons] for i in range(most))
    return [speed.adjust(each, run.plan.family, run.plan.duel_family) for each in wider]


@dataclass(frozen=True)
class _Op:
    """One op of the plan with all that is known about it."""

    run: Run
    plan: PlannedOp
    found: OpRun | None
    comparisons: Mapping[str, Comparison]
    adjusted: Mapping[tuple[str, str], Adjusted]
    within: Sequence[Mapping[tuple[str, str], Adjusted]]
    """the same with what expected entries allow"""
    thresholds: Thresholds

    def rows(self) -> Iterator[Row]:
        if self.run.plan.device == static.OFFLINE:
            return
        if self._untouched():
            yield from self._unchanged()
            yield from self._removed()
            return
        if self.found and not late.reached(self.found):
            yield late.row(self.run, self.plan, self.found), None
            yield from self._removed()
            return
        checked = accuracy.rows(self.run, self.plan, self.found, self.thresholds)
        yield from ((row, None) for row in checked)
        if Suite.PERFORMANCE not in self.run.plan.suites:
            return
        broken = next((row for row in checked if row.case is not None and not accuracy.by_limit(row)), None)
        if broken:
            yield from self._not_timed(broken)
        else:
            yield from self._timed()
        yield from self._removed()

    def _untouched(self) -> bool:
        """Its files are the base's own, so that nothing of it was run but a control."""
        return bool(self.run.plan.skip_unchanged and self.plan.base and self.plan.base.same)

    def _unchanged(self) -> Iterator[Row]:
        same = self._same_as_base()
        measured = {case.case: case for case in self.found.performance} if self.found else {}
        if self.found and self.found.failure:
            yield self._row(None, Verdict.ERROR, self.found.failure)
        elif self.plan.unlisted:
            yield self._row(None, Verdict.UNCHANGED, same)
        if Suite.ACCURACY in self.run.plan.suites and self.plan.accuracy:
            yield Judgement(self.plan.op, Suite.ACCURACY, None, Verdict.UNCHANGED, (same,)), None
        if Suite.PERFORMANCE not in self.run.plan.suites:
            return
        for case in self.plan.performance:
            control = measured.get(case)
            if control and (control.blocks or control.failure):
                yield from self._case(case, control)
            else:
                yield self._row(case, Verdict.UNCHANGED, same)

    def _same_as_base(self) -> Reason:
        base = self.run.plan.base
        return Reason("unchanged_files", {"op": self.plan.op, "base": base.name if base else None})

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
        again = self._again(case)
        if again and again.failure:
            yield self._row(case, Verdict.INCONCLUSIVE, again.failure)
        elif measured and measured.failure:
            lost = measured.failure.kind == "records_lost"
            failed = Verdict.ERROR if measured.raised else Verdict.WRONG
            yield self._row(case, Verdict.INCONCLUSIVE if lost else failed, measured.failure)
        elif measured and self.run.plan.skip_unchanged and _proven(measured):
            yield self._proven(case, measured)
        elif again and again.same and self.run.plan.skip_unchanged and not measured:
            yield self._row(case, Verdict.UNCHANGED, self._same_as_base())
        elif measured and comparison and comparison.measured:
            row, need = speed.judge_case(measured, comparison, self._context(case))
            yield late.case(notes.with_range(row, again, self.run), measured), need
        elif self.found and self.found.late:
            yield self._row(case, Verdict.INCONCLUSIVE, Reason("case_late", self.found.late.facts))
        elif not self._covered():
            kind = "case_stopped" if self.run.stopped else "case_missing"
            yield self._row(case, Verdict.INCONCLUSIVE, Reason(kind, {"signal": self.run.stopped}))

    def _proven(self, case: str, measured: PerformanceCase) -> Row:
        """A case that does the base's own device work and was not timed; what looks like cheating is told still."""
        verdict = Verdict.SUSPECT if measured.suspicion else Verdict.UNCHANGED
        row, _ = self._row(case, verdict, duel.unchanged(measured.identity))
        return replace(row, reasons=(*measured.suspicion, *row.reasons)), None

    def _again(self, case: str) -> AgainCase | None:
        """Against what this very case is duelled, where each has its own."""
        again = self.run.plan.again
        return again.by_case.get((self.plan.op, case)) if again else None

    def _same_files(self, case: str) -> bool:
        again = self._again(case)
        return again.same if again else bool(self.plan.base and self.plan.base.same)

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
            duel_family=self.run.plan.duel_family,
            same_files=self._same_files(case),
            identity_counts=notes.identity_counts(self.run.plan.base),
            thresholds=self.thresholds,
            within=self._adjusted_within(case),
            day=expected.day_of(self.run),
            ceilings=self.run.limits,
            device=self.run.environment.device,
            whole=Suite.ACCURACY in self.run.plan.suites and self.run.plan.filter is None,
        )

    def _adjusted_within(self, case: str) -> tuple[Adjusted, ...]:
        entries = self.thresholds.expected(self.plan.op, case)
        return tuple(self.within[i][self.plan.op, case] for i in range(len(entries)))

    def _removed(self) -> Iterator[Row]:
        """Cases that only base or baseline know; a --case filter, or an op that did not load, says nothing of them."""
        if self.run.plan.filter is not None or self.plan.failure or self.plan.unlisted:
            return
        before = self.plan.base.performance if self.plan.base else ()
        gone = [case for case in before if case not in self.plan.performance]
        for case in gone:
            yield self._row(case, Verdict.REMOVED, Reason("removed_since_base", {"op": self.plan.op}))
        if self._covered():
            return
        for case, comparison in self.comparisons.items():
            if comparison.known and case not in self.plan.performance and case not in gone:
                facts = {"op": self.plan.op, "baseline_us": comparison.baseline_us}
                yield self._row(case, Verdict.REMOVED, Reason("removed", facts))

    def _row(self, case: str | None, verdict: Verdict, reason: Reason) -> Row:
        return Judgement(self.plan.op, Suite.PERFORMANCE, case, verdict, (reason,), self._comparison(case)), None

    def _comparison(self, case: str | None) -> Comparison | None:
        return self.comparisons.get(case) if case is not None else None


def _proven(case: PerformanceCase) -> bool:
    """Whether its identity alone decides: it was not timed, and was not to be."""
    base = case.base
    return not case.blocks and base is not None and base.same is True and not base.duelled


def _removed_op(op: str, run: Run) -> Judgement:
    facts = {"op": op, "base": run.plan.base.name if run.plan.base else None}
    return Judgement(op, Suite.PERFORMANCE, None, Verdict.REMOVED, (Reason("op_removed", facts),))


def _missing_shard(reason: Reason) -> Judgement:
    """A shard of a merged run that gave no whole result fails the gate, whatever it had to measure."""
    return Judgement(f"shard {reason.facts.get('shard')}", Suite.PERFORMANCE, None, Verdict.ERROR, (reason,))
