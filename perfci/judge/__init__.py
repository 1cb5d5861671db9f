"""From a run and what is stored to verdicts with their reasons. Every planned case is accounted for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perfci.core.errors import require
from perfci.core.model.baseline import Baseline
from perfci.core.model.basics import Gate, Reason, Suite, Verdict
from perfci.core.model.decision import Comparison, Judgement, Judgements, Need
from perfci.core.model.measured import OpRun, PerformanceCase
from perfci.core.model.place import OFFLINE, UNTIMED
from perfci.core.model.run import AgainCase, PlannedOp, Run
from perfci.judge import change, compare, expected
from perfci.judge.accuracy import is_by_limit, is_complete, judge_accuracy
from perfci.judge.cause import add_causes
from perfci.judge.compare import Context, Key, adjust, find_step
from perfci.judge.notes import add_range, is_reached, note_run
from perfci.judge.speed import judge_case
from perfci.thresholds.limits import Thresholds

Row = tuple[Judgement, Need | None]


def judge(run: Run, baselines: Mapping[str, Baseline], thresholds: Thresholds) -> Judgements:
    """The verdicts of a run: per op its accuracy, failing accuracy cases, then performance cases. baselines: by op."""
    step_us = find_step(run, thresholds.default.floor(run.environment.timer))
    thresholds = replace(thresholds, step_us=step_us) if step_us else thresholds
    compared = {
        (comparison.op, comparison.case): comparison for comparison in compare.compare(run, baselines, thresholds)
    }
    # The whole run is compared once more for the first, second, ... expected entry of each case, with what these allow.
    evidence = [_Evidence.of(run, compared, thresholds)]
    ops = {op.op for op in run.plan.ops if thresholds.expected(op.op)}
    for number in range(max((len(thresholds.expected(*key)) for key in compared), default=0)):
        wider = replace(thresholds, excusing=number)
        again = {
            (comparison.op, comparison.case): comparison for comparison in compare.compare(run, baselines, wider, ops)
        }
        evidence.append(_Evidence.of(run, {**compared, **again}, wider))

    outcomes = {op.op: op for op in run.ops}
    stored: dict[str, list[str]] = {}
    for comparison in compared.values():
        if comparison.known:
            stored.setdefault(comparison.op, []).append(comparison.case)
    judges = [
        _OpJudge(run, op, outcomes.get(op.op), evidence[0], evidence[1:], stored.get(op.op, ())) for op in run.plan.ops
    ]
    judged = [row for judge in judges for row in judge.rows()]
    base = run.plan.base.name if run.plan.base else None
    rows = add_causes(run.ops, [row for row, _ in judged])
    for op in run.plan.removed:
        reason = Reason("op_removed", {"op": op, "base": base})
        rows.append(Judgement(op, Suite.PERFORMANCE, None, Verdict.REMOVED, (reason,)))
    for lost in run.missing:
        # A shard of a merged run that gave no whole result fails the gate, whatever it had to measure.
        rows.append(Judgement(f"shard {lost.facts.get('shard')}", Suite.PERFORMANCE, None, Verdict.ERROR, (lost,)))
    if run.static:
        rows += require("compiled", "static", "perfci static").judge(run, thresholds)
    notes = note_run(run, tuple(compared.values()), rows, thresholds)
    unneeded = expected.find_unneeded(run, rows, thresholds)
    return Judgements(tuple(rows), tuple(need for _, need in judged if need), (*notes, *unneeded))


@dataclass(frozen=True)
class _Evidence:
    """Comparisons of a run's cases, all under the same thresholds."""

    thresholds: Thresholds
    comparisons: Mapping[Key, Comparison]

    @classmethod
    def of(cls, run: Run, comparisons: Mapping[Key, Comparison], thresholds: Thresholds) -> _Evidence:
        return cls(thresholds, adjust(comparisons, run.plan.family, run.plan.duel_family))


@dataclass(frozen=True)
class _OpJudge:
    """One op of the plan with all that is known about it."""

    run: Run
    plan: PlannedOp
    found: OpRun | None
    plain: _Evidence
    widened: Sequence[_Evidence]  # with what the first, second, ... expected entry of each case allows
    stored: Sequence[str]  # cases that its baseline knows

    def rows(self) -> Iterator[Row]:
        plan, outcome = self.run.plan, self.found
        if self.plan.unchecked:
            if self.plan.base and not self.plan.base.lent and self.plan.failure:  # the base's ran here
                needs_package = "lacks" in self.plan.failure.kind
                yield self._row(None, Verdict.ERROR if needs_package else Verdict.INCONCLUSIVE, self.plan.failure)
            return
        if self.plan.outdated and not self.plan.failure:  # what is checked is not what ships, and nothing else shows it
            yield self._row(None, Verdict.ERROR, self.plan.outdated)
        if plan.device == OFFLINE:
            return
        if plan.skip_unchanged and self.plan.base and self.plan.base.same:
            # Its files are the base's, so that nothing of it was run but a control.
            yield from self._unchanged_rows()
        elif outcome and outcome.late and not is_reached(outcome):
            suite = Suite.ACCURACY if Suite.ACCURACY in plan.suites else Suite.PERFORMANCE
            # This includes an op that was ended while it was still starting.
            reason = Reason("op_not_reached", outcome.late.facts)
            yield Judgement(self.plan.op, suite, None, Verdict.INCONCLUSIVE, (reason,)), None
        else:
            if changed := change.judge_change(self.run, self.plan, outcome):
                yield changed, None
            checked = judge_accuracy(self.run, self.plan, change.take_own(self.plan, outcome), self.plain.thresholds)
            if unjudged := self._find_unjudged():
                # Only the change's suites may call it right.
                first = checked[0] if checked else self._row(None, Verdict.PASS)[0]
                if first.gate is Gate.OK:
                    first = replace(first, verdict=Verdict.INCONCLUSIVE, reasons=(unjudged, *first.reasons))
                    checked = (first, *checked[1:])
            yield from ((row, None) for row in checked)
            if Suite.PERFORMANCE not in plan.suites:
                return
            broken = next((row for row in checked if row.case is not None and not is_by_limit(row)), None)
            if not broken:
                failure = outcome.failure if outcome else None
                if failure and is_complete(self.run, self.plan, outcome):
                    yield self._row(None, Verdict.ERROR, failure)
                measured = {case.case: case for case in outcome.performance} if outcome else {}
                for case in self.plan.performance:
                    yield from self._case_rows(case, measured.get(case))
            elif self.plan.performance and plan.device not in UNTIMED:
                # One row for all cases of a kernel that is wrong: its speed means nothing.
                facts = {"count": len(self.plan.performance), "case": broken.case}
                yield self._row(None, broken.verdict, Reason("not_timed", facts))
        yield from self._removed_rows()

    def _find_unjudged(self) -> Reason | None:
        """Returns why the base's suites did not judge a change. None if they did, or if there is none to do so."""
        note, base, planned_base = self.run.plan.base_note, self.run.plan.base, self.plan.base
        if note and note.kind == "merge_without_base":
            return note
        if base is None or planned_base is None or not base.suites or self.plan.failure:
            return None
        notes = (note for note in (self.found.notes if self.found else ()) if note.kind == "judged_by_own")
        return planned_base.failure or planned_base.unjudged or next(notes, None)

    def _unchanged_rows(self) -> Iterator[Row]:
        same = self._same_as_base()
        if self.found and self.found.failure:
            yield self._row(None, Verdict.ERROR, self.found.failure)
        elif self.plan.unlisted:
            yield self._row(None, Verdict.UNCHANGED, same)
        if Suite.ACCURACY in self.run.plan.suites and self.plan.accuracy:
            yield Judgement(self.plan.op, Suite.ACCURACY, None, Verdict.UNCHANGED, (same,)), None
        if Suite.PERFORMANCE not in self.run.plan.suites:
            return
        measured = {case.case: case for case in self.found.performance} if self.found else {}
        for case in self.plan.performance:
            control = measured.get(case)
            if control and (control.blocks or control.failure):
                yield from self._case_rows(case, control)
            else:
                yield self._row(case, Verdict.UNCHANGED, same)

    def _same_as_base(self) -> Reason:
        base = self.run.plan.base
        return Reason("unchanged_files", {"op": self.plan.op, "base": base.name if base else None})

    def _case_rows(self, case: str, measured: PerformanceCase | None) -> Iterator[Row]:
        """The row of a case, unless its op's row, or a note, already gives the reason why it was not timed."""
        comparison, skips = self.plain.comparisons.get((self.plan.op, case)), self.run.plan.skip_unchanged
        # What this very case is duelled against, if each has a base.
        again = self.run.plan.again.by_case.get((self.plan.op, case)) if self.run.plan.again else None
        if again and again.failure:
            yield self._row(case, Verdict.INCONCLUSIVE, again.failure)
        elif measured and measured.failure:
            lost = measured.failure.kind == "records_lost"
            failed = Verdict.ERROR if measured.raised else Verdict.WRONG
            yield self._row(case, Verdict.INCONCLUSIVE if lost else failed, measured.failure)
        elif measured and skips and not measured.blocks and (base := measured.base) and base.same and not base.duelled:
            # It does the base's device work and was not timed, except for its host time.
            assert comparison is not None
            yield self._judge_timed(measured, comparison, again)
        elif again and again.same and skips and not measured:
            yield self._row(case, Verdict.UNCHANGED, self._same_as_base())
        elif measured and comparison and comparison.measured:
            yield self._judge_timed(measured, comparison, again)
        elif self.found and self.found.late:
            yield self._row(case, Verdict.INCONCLUSIVE, Reason("case_late", self.found.late.facts))
        elif not self._is_covered():
            kind = "case_stopped" if self.run.stopped else "case_missing"
            yield self._row(case, Verdict.INCONCLUSIVE, Reason(kind, {"signal": self.run.stopped}))

    def _judge_timed(self, measured: PerformanceCase, comparison: Comparison, again: AgainCase | None) -> Row:
        key, thresholds = (self.plan.op, comparison.case), self.plain.thresholds
        same = again.same if again else bool(self.plan.base and self.plan.base.same)

        def context(evidence: _Evidence) -> Context:
            limits = evidence.thresholds.for_case(*key)
            return Context(self.run, thresholds, limits, evidence.comparisons[key], same)

        allowed = [
            (entry, context(evidence)) for entry, evidence in zip(thresholds.expected(*key), self.widened, strict=False)
        ]
        row, need = judge_case(measured, context(self.plain), allowed)
        row, late = add_range(row, again, self.run), measured.late
        if late and row.gate is not Gate.FAILS:
            # The time limit kept evidence from it, and what there is does not fail it.
            if late.kind == "case_late" or row.verdict is Verdict.INCONCLUSIVE:
                row = replace(row, verdict=Verdict.INCONCLUSIVE, reasons=(late, *row.reasons), expected=None)
            else:
                row = replace(row, reasons=(*row.reasons, late))
        return row, need

    def _is_covered(self) -> bool:
        """Whether the op's row, or a note, already gives the reason why cases of it were not timed."""
        broke = self.plan.failure or (self.found and (self.found.failure or self.found.unmeasured))
        return broke is not None

    def _removed_rows(self) -> Iterator[Row]:
        """Cases that only base or baseline know. A --case filter, or an op that did not load, knows nothing of them."""
        if self.run.plan.filter is not None or self.plan.failure or self.plan.unlisted:
            return
        gone = change.list_gone(self.run, self.plan)
        for case in gone:
            yield self._row(case, Verdict.REMOVED, Reason("removed_since_base", {"op": self.plan.op}))
        if self._is_covered():
            return
        for case in self.stored:
            if case not in {*self.plan.performance, *gone}:
                facts = {"op": self.plan.op, "baseline_us": self.plain.comparisons[self.plan.op, case].baseline_us}
                yield self._row(case, Verdict.REMOVED, Reason("removed", facts))

    def _row(self, case: str | None, verdict: Verdict, *reasons: Reason) -> Row:
        comparison = self.plain.comparisons.get((self.plan.op, case or ""))
        return Judgement(self.plan.op, Suite.PERFORMANCE, case, verdict, reasons, comparison), None
