"""From runs that people looked at to the baseline of later runs: pure, and picky.

A gate that takes over whatever it measures learns each slow-down. So a loss that no one agreed on is refused.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfci.core.environment import list_differences, unmixable
from perfci.core.errors import UsageError
from perfci.core.model.baseline import Baseline, BaselineBlock, BaselineCase, BaselineRun
from perfci.core.model.basics import Reason, Suite, Verdict, as_fact
from perfci.core.model.decision import Judgement, Judgements
from perfci.core.model.measured import KERNEL, REFERENCE, SPEEDUP, OpRun, PerformanceCase, list_first_look
from perfci.core.model.run import Run
from perfci.thresholds.case import CaseThresholds

REFUSED = frozenset({Verdict.WRONG, Verdict.ERROR, Verdict.SUSPECT, Verdict.INCONCLUSIVE})  # never a baseline

SLOWER = frozenset({Verdict.REGRESSED, Verdict.TOO_SLOW})  # a baseline only if a person gives a reason

NO_BASELINES = frozenset({"cpu"})  # kinds of device with times that mean nothing for kernels
WHOLE = as_fact("accuracy")  # what is refused of an op without performance cases
FIRST = 5  # runs of the history that a case is compared with: one alone may have been lucky

Evidence = tuple[Run, Judgements]  # a run with the verdicts about it
Limits = Callable[[str], CaseThresholds]  # case id -> its thresholds


@dataclass(frozen=True)
class Acceptance:
    """The result for the runs' cases of one op."""

    op: str
    baseline: Baseline | None  # to be stored, None if nothing could be accepted
    accepted: tuple[str, ...] = ()  # case ids with blocks that are new in it
    refused: tuple[Reason, ...] = ()  # a reason for each case that was not accepted
    said: tuple[Reason, ...] = ()  # what else people should know


def accept(
    op: str,
    evidence: Sequence[Evidence],
    existing: Baseline | None = None,
    *,
    dirty: bool = False,
    only: Collection[str] | None = None,
    withheld: Mapping[str, Reason] | None = None,
) -> Acceptance:
    """Returns the baseline of an op from the first looks (process 0) of one or more runs of it. Pure.

    A case is refused if a run judged it WRONG, ERROR, SUSPECT or INCONCLUSIVE, unless that lacks only blocks, or the
    op's accuracy WRONG, or if it is in `withheld`. Cases of `existing` stay if they are refused, not planned, or not in
    `only`. Raises UsageError for runs that do not go together: several boards may be mixed, nothing else.
    """
    runs = [run for run, _ in evidence]
    _check(op, runs, dirty=dirty)
    blocks: dict[str, tuple[BaselineBlock, ...]] = {}
    caches = {}
    for run in runs:
        for case in _find_op(run, op).performance:
            blocks[case.case] = blocks.get(case.case, ()) + tuple(_list_blocks(run, case))
            caches[case.case] = case.cache
    refusals = {**(withheld or {}), **find_refusals(op, evidence)}
    # An op that is wrong was not timed: its refusal names the cases that would have been.
    cases_of_op = blocks if any(blocks.values()) else {**blocks, **refusals}
    asked = [case for case in cases_of_op if only is None or case in only]
    fresh = {case: blocks[case] for case in asked if case not in refusals and blocks[case]}
    refused = tuple(
        refusals.get(case) or Reason("accept_unmeasured", {"op": op, "case": case})
        for case in asked
        if case not in fresh
    )
    if not fresh:
        return Acceptance(op, None, refused=refused)

    # Numbers of different device models and timers are never mixed.
    device, timer = runs[0].environment.device.key, runs[0].environment.timer or "no timer"
    cases: dict[str, BaselineCase] = {}
    sources: dict[str, BaselineRun] = {}
    if existing and (existing.device, existing.timer) == (device, timer):  # else nothing of it can stay
        partly = only is not None or any(run.plan.filter is not None for run in runs)
        planned = {case for run in runs for op_run in run.plan.ops if op_run.op == op for case in op_run.performance}
        stay = [case for case in existing.cases if partly or case.case in planned]
        cases = {case.case: case for case in stay if case.case not in fresh}
        sources = {source.id: source for source in existing.runs}
    cases |= {case: BaselineCase(case, new, caches[case]) for case, new in fresh.items()}
    sources |= {run.id: BaselineRun(run.id, run.created, run.environment) for run in runs}
    used = {block.run for case in cases.values() for block in case.blocks}
    kept = tuple(source for source in sources.values() if source.id in used)
    baseline = Baseline(op, device, timer, kept, tuple(cases.values()), existing.steps if existing else ())
    return Acceptance(op, baseline, tuple(fresh), refused)


def _check(op: str, runs: Sequence[Run], *, dirty: bool) -> None:
    """Raises UsageError for runs that do not go together."""
    first = runs[0]
    for at, run in enumerate(runs):
        device = run.environment.device
        if device.kind in NO_BASELINES:
            raise UsageError("accept_no_baselines", run=run.id, device=device.name)
        if run.environment.dirty and not dirty:
            raise UsageError("accept_dirty", run=run.id, commit=run.environment.commit)
        if not any(op_run.op == op for op_run in run.ops):
            raise UsageError("accept_op_not_run", run=run.id, op=op, ops=", ".join(op_run.op for op_run in run.ops))
        if run.id in {other.id for other in runs[:at]}:
            raise UsageError("accept_twice", run=run.id)
        # What L2 held when the op was timed is the same for all cases. None if nothing was timed.
        caches = [next((case.cache for case in _find_op(other, op).performance), None) for other in (*runs[:at], run)]
        first_cache = next(filter(None, caches[:-1]), None)
        apart = list_differences(unmixable(first.environment, run.environment))
        if not apart and first_cache and caches[-1] and first_cache != caches[-1]:
            apart = f"cache {first_cache} -> {caches[-1]}"
        if apart:
            raise UsageError("accept_mixed", run=run.id, first=first.id, fields=apart)


def _find_op(run: Run, op: str) -> OpRun:
    return next(op_run for op_run in run.ops if op_run.op == op)


def _list_cases(run: Run, op: str) -> list[str]:
    """The performance cases of an op that were planned or timed."""
    planned = [case for plan in run.plan.ops if plan.op == op for case in plan.performance]
    return list(dict.fromkeys([*planned, *(case.case for case in _find_op(run, op).performance)]))


def _list_blocks(run: Run, case: PerformanceCase) -> Iterator[BaselineBlock]:
    for block in list_first_look(case):
        if SPEEDUP in block.shifts:
            kernel = block.arms[KERNEL]
            yield BaselineBlock(
                run=run.id,
                kernel_us=kernel.time.median_us,
                reference_us=block.arms[REFERENCE].time.median_us,
                shift=block.shifts[SPEEDUP],
                span_us=kernel.span_us,
                activities=kernel.activities,
            )


def find_refusals(op: str, evidence: Sequence[Evidence], verdicts: Collection[Verdict] = REFUSED) -> dict[str, Reason]:
    """Case id -> why it is refused for any of these verdicts, the first run's reason first."""
    refusals: dict[str, Reason] = {}
    for run, judgements in evidence:
        rows = [row for row in judgements.rows if row.op == op]
        for row in rows:
            if row.verdict not in verdicts or _lacks_blocks(row):
                continue
            if row.suite is Suite.PERFORMANCE and row.case is not None:
                touched = [row.case]
            elif row.verdict in SLOWER or row.verdict is Verdict.INCONCLUSIVE:
                touched = []  # it is not about a time
            else:  # a wrong kernel's speed means nothing in any case
                touched = _list_cases(run, op) or [row.case or WHOLE]
            kind = "accept_slower" if row.verdict in SLOWER else "accept_refused"
            facts = {"op": op, "verdict": row.verdict.value, "run": run.id, "judged": row.case or op}
            for case in touched:
                refusals.setdefault(case, Reason(kind, {**facts, "case": case}))
        advised = ((row, reason) for row in rows for reason in row.reasons if reason.kind == "board_advises")
        for row, reason in advised if Verdict.INCONCLUSIVE in verdicts else ():
            if row.case:
                refusals.setdefault(row.case, Reason("accept_quarantined", {**reason.facts, "run": run.id}))
    return refusals


def _lacks_blocks(row: Judgement) -> bool:
    """Whether a verdict is open for want of blocks alone, as beside a baseline of one run. Losses are looked for."""
    return row.verdict is Verdict.INCONCLUSIVE and row.reasons[0].kind == "too_few_blocks"
