"""Verdicts about right and wrong: one row an op, and one a case that failed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from perfci.core.model import AccuracyCase, Fact, Judgement, OpRun, PlannedOp, Reason, Run, Suite, Verdict
from perfci.core.model.measured import find_worst_errors
from perfci.judge.figures import errors_beyond
from perfci.judge.pattern import find_pattern
from perfci.measure.closeness import times_allowed
from perfci.measure.stored import BEYOND, find_checks
from perfci.thresholds.limits import Thresholds

_BY_LIMIT = ("checked_errors_", BEYOND)  # what kinds of reasons about a limit begin with

BROKE_RULES = frozenset({"worker_unasked", "worker_flooded"})
"""Reasons for which nothing that an op's processes have said passes it, however much they have checked."""

_DOUBTS = frozenset(
    {"calls_reference", "interpreter_lacks_now", "launches_nothing", "less_exact", "vacuous", "vacuous_answers"}
)
"""Reasons for which a pass is no evidence."""

_NAMED = 3  # cases that a sentence names before it gives the number of the others


def judge_accuracy(run: Run, op: PlannedOp, outcome: OpRun | None, thresholds: Thresholds) -> tuple[Judgement, ...]:
    """The op's accuracy as a whole, then each case that failed or is beyond a limit. Nothing if none was asked for.

    An op that ended after a wrong answer is WRONG, with its end beside that: one fault, one verdict.
    """
    failure = op.failure or (outcome.failure if outcome else None)
    checks = outcome.accuracy if outcome else ()
    cases = tuple(_judge_cases(run, op, outcome, thresholds))
    elsewhere = Suite.PERFORMANCE in run.plan.suites and is_complete(run, op, outcome)  # a row about speed has it
    if failure and (failure.kind in BROKE_RULES or not elsewhere):
        told = _describe_failures(op.op, checks)
        if any(row.verdict is Verdict.WRONG for row in cases) and told:
            return (_row(op, None, Verdict.WRONG, (*told, failure)), *cases)
        return (_row(op, None, Verdict.ERROR, (failure, *told)), *cases)
    if Suite.ACCURACY not in run.plan.suites or not (op.accuracy or op.stored or checks):
        # Without accuracy to judge, an op with a speed that cannot be measured has not been checked at all.
        unmeasured = outcome.unmeasured if outcome else None
        return (_row(op, None, Verdict.INCONCLUSIVE, (unmeasured,)),) if unmeasured and op.performance else ()
    late = outcome.late if outcome else None
    if not is_complete(run, op, outcome) or (late and late.kind == "checks_late"):
        missing = len(set(op.accuracy) - {check.case for check in checks})
        facts: dict[str, Fact] = {"missing": missing, "cases": len(op.accuracy), "signal": run.stopped}
        reason = Reason("accuracy_stopped" if run.stopped else "accuracy_missing", facts)
        if late:
            # All cases of a suite may be checked while what it refuses, and what it leaves in memory, are not.
            reason = Reason("accuracy_late", {**late.facts, **facts}) if missing else late
        failed = sort_failed(checks)
        verdict = _verdict_of(failed) if failed else Verdict.INCONCLUSIVE
        return (_row(op, None, verdict, (*_describe_failures(op.op, checks), reason)), *cases)
    whole = _row(op, None, *_judge_whole(op.op, checks, outcome))
    if beyond := [row for row in cases if is_by_limit(row)]:
        # Cases beyond their limits make the op WRONG. What failed a check outweighs that.
        worst = max(beyond, key=lambda row: times_allowed(row.reasons[0]))
        limits = Reason("accuracy_beyond_limits", {"cases": len(beyond), "case": worst.case}), worst.reasons[0]
        graver = whole.verdict in {Verdict.WRONG, Verdict.ERROR}
        reasons = (*whole.reasons, *limits) if graver else (*limits, *whole.reasons)
        whole = replace(whole, verdict=whole.verdict if graver else Verdict.WRONG, reasons=reasons)
    return (whole, *cases)


def _judge_cases(run: Run, op: PlannedOp, outcome: OpRun | None, limits: Thresholds) -> Iterator[Judgement]:
    """The cases that failed their checks, then those less exact than is asked for, then stored tensors."""
    if outcome is None:
        return
    wrong, device = dict.fromkeys(check.case for check in sort_failed(outcome.accuracy)), run.environment.device.key
    for case in wrong:
        checks = [check for check in outcome.accuracy if check.case == case]
        failed = sort_failed(checks)
        facts = {"failed": len(failed), "checks": len(checks), **_how(failed[0])}
        worst = (failed[0].failure,) if failed[0].failure else ()
        yield _row(op, case, _verdict_of(failed), (*worst, Reason("accuracy_case_failed", facts)))
    for error in find_worst_errors(outcome.accuracy):
        reason = errors_beyond("checked", error.errors, op.op, error.case, limits, device, error.checks)
        if reason and error.case not in wrong:
            yield _row(op, error.case, Verdict.WRONG, (reason,))
    if outcome.stored:
        yield from find_checks().judge(outcome, device, limits)


def is_complete(run: Run, op: PlannedOp, outcome: OpRun | None) -> bool:
    """Whether every planned accuracy case was checked at least once, so that a later failure is about speed."""
    if outcome is None or op.failure:
        return False
    wanted = op.accuracy if Suite.ACCURACY in run.plan.suites else ()
    return set(wanted) <= {check.case for check in outcome.accuracy}


def is_by_limit(row: Judgement) -> bool:
    """Whether a case's row is about a limit alone: it passed its checks, and was timed."""
    return row.reasons[0].kind.startswith(_BY_LIMIT)


def _row(op: PlannedOp, case: str | None, verdict: Verdict, reasons: Iterable[Reason]) -> Judgement:
    return Judgement(op.op, Suite.ACCURACY, case, verdict, tuple(reasons))


def _judge_whole(op: str, checks: Sequence[AccuracyCase], outcome: OpRun | None) -> tuple[Verdict, tuple[Reason, ...]]:
    """PASS with what was checked, or the first failure. Either way with what this machine could not check."""
    failed, not_made = sort_failed(checks), [check for check in checks if check.unchecked]
    vacuous = [check.unchecked for check in not_made if check.unchecked and check.unchecked.kind in _DOUBTS]
    unchecked = [check for check in not_made if check.unchecked not in vacuous]
    stored = outcome.stored if outcome else ()
    if failed:
        verdict, first = _verdict_of(failed), _describe_failures(op, checks)
    elif vacuous:
        verdict, first = Verdict.INCONCLUSIVE, (vacuous[0],)
    elif not checks and stored:
        verdict, first = Verdict.PASS, ()
    elif len(unchecked) == len(checks):
        verdict, first = Verdict.INCONCLUSIVE, (Reason("accuracy_nothing_checked", {"checks": len(checks)}),)
    else:
        cases = len({check.case for check in checks if not check.unchecked})
        seed = next((check.seed for check in checks if check.fresh), None)
        kind = "accuracy_passed" if seed is not None else "accuracy_passed_no_fresh_seed"
        facts = {"checks": len(checks) - len(unchecked), "cases": cases, "seed": seed}
        verdict, first = Verdict.PASS, (Reason(kind, facts),)
    unmeasured = (outcome.unmeasured,) if outcome and outcome.unmeasured else ()
    within = (Reason("stored_within", {"tensors": len(stored)}),) if stored else ()
    return verdict, (*first, *within, *unmeasured, *_describe_unchecked(unchecked))


def _describe_unchecked(checks: Sequence[AccuracyCase]) -> Iterator[Reason]:
    """How many checks were not made, which, then each cause once."""
    if not checks:
        return
    cases = list(dict.fromkeys(check.case for check in checks))
    more = len(cases) - _NAMED
    names = "; ".join(cases[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    yield Reason("accuracy_unchecked", {"checks": len(checks), "cases": len(cases), "names": names})
    yield from take_once(check.unchecked for check in checks)


def take_once(reasons: Iterable[Reason | None]) -> list[Reason]:
    """Returns each reason once. Facts are mappings, so that reasons cannot be hashed."""
    seen: list[Reason] = []
    for reason in reasons:
        if reason and reason not in seen:
            seen.append(reason)
    return seen


def sort_failed(checks: Sequence[AccuracyCase]) -> list[AccuracyCase]:
    """Failed checks, the worst first. Wrong answers before exceptions, since they outweigh them."""
    failed = [(check, check.failure) for check in checks if check.failure]
    return [check for check, _ in sorted(failed, key=lambda one: (one[0].raised, -times_allowed(one[1])))]


def _verdict_of(failed: Sequence[AccuracyCase]) -> Verdict:
    return Verdict.ERROR if all(check.raised for check in failed) else Verdict.WRONG


def _describe_failures(op: str, checks: Sequence[AccuracyCase]) -> tuple[Reason, ...]:
    """How many checks failed, naming the worst, then what it did."""
    failed = sort_failed(checks)
    if not failed or failed[0].failure is None:
        return ()
    made = sum(check.unchecked is None for check in checks)
    cases = len({check.case for check in failed})
    facts = {"failed": len(failed), "checks": made, "cases": cases, "case": failed[0].case, **_how(failed[0])}
    pattern = find_pattern(op, checks)
    return (Reason("accuracy_failed", facts), failed[0].failure, *([pattern] if pattern else []))


def _how(check: AccuracyCase) -> dict[str, Fact]:
    return {"values": check.values, "layout": check.layout, "seed": check.seed}
