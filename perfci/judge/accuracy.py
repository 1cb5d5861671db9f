"""Verdicts about right and wrong: one row an op, and one a case that failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from perfci.core.model import AccuracyCase, Judgement, OpRun, PlannedOp, Reason, Run, Suite, Verdict
from perfci.judge import storage
from perfci.judge.figures import errors_beyond
from perfci.measure.closeness import times_allowed
from perfci.store.past.lines import worst_errors
from perfci.thresholds.limits import Thresholds

_BY_LIMIT = frozenset({"checked_errors_overall", "checked_errors_in_places", *storage.BY_CAUSE.values()})


def rows(run: Run, op: PlannedOp, found: OpRun | None, thresholds: Thresholds) -> tuple[Judgement, ...]:
    """The op's accuracy as a whole, then each case that failed or is beyond a limit; nothing where none was asked for.

    An op that broke before all its cases were checked is one ERROR; one that the run did not reach is INCONCLUSIVE.
    """
    failure = op.failure or (found.failure if found else None)
    checks = found.accuracy if found else ()
    stored = storage.beyond(found, run.environment.device.key, thresholds) if found else ()
    cases = (*_failed_cases(op, checks), *_beyond_limits(run, op, checks, thresholds), *stored)
    if failure and not complete(run, op, found):
        return (_row(op, None, Verdict.ERROR, (failure, *_failed_so_far(checks))), *cases)
    if Suite.ACCURACY not in run.plan.suites or not (op.accuracy or op.stored or checks):
        return _nothing_else(op, found)
    late = found.late if found else None
    if not complete(run, op, found) or (late and late.kind == "checks_late"):
        return (_row(op, None, *_unfinished(run, op, checks, late)), *cases)
    return (_with_limits(_row(op, None, *_whole(checks, found)), cases), *cases)


def _nothing_else(op: PlannedOp, found: OpRun | None) -> tuple[Judgement, ...]:
    """Without accuracy to judge, an op whose speed cannot be measured has not been checked at all."""
    unmeasured = found.unmeasured if found else None
    return (_row(op, None, Verdict.INCONCLUSIVE, (unmeasured,)),) if unmeasured and op.performance else ()


def complete(run: Run, op: PlannedOp, found: OpRun | None) -> bool:
    """Whether every planned accuracy case was checked at least once, so that a later failure is about speed."""
    if found is None or op.failure:
        return False
    wanted = op.accuracy if Suite.ACCURACY in run.plan.suites else ()
    return set(wanted) <= {check.case for check in found.accuracy}


def _row(op: PlannedOp, case: str | None, verdict: Verdict, reasons: Iterable[Reason]) -> Judgement:
    return Judgement(op.op, Suite.ACCURACY, case, verdict, tuple(reasons))


def _whole(checks: Sequence[AccuracyCase], found: OpRun | None) -> tuple[Verdict, tuple[Reason, ...]]:
    """PASS with what was checked, or the first failure; either way with what this machine could not check."""
    failed, not_made = _failed(checks), [check for check in checks if check.unchecked]
    vacuous = [check.unchecked for check in not_made if check.unchecked and check.unchecked.kind == "tolerance_vacuous"]
    unchecked = [check for check in not_made if check.unchecked not in vacuous]
    if failed:
        verdict, first = _verdict(failed), _failed_so_far(checks)
    elif vacuous:
        verdict, first = Verdict.INCONCLUSIVE, (vacuous[0],)
    elif not checks and found and found.stored:
        verdict, first = Verdict.PASS, ()
    elif len(unchecked) == len(checks):
        verdict, first = Verdict.INCONCLUSIVE, (Reason("accuracy_nothing_checked", {"checks": len(checks)}),)
    else:
        verdict, first = Verdict.PASS, (_passed(checks, len(unchecked)),)
    unmeasured = (found.unmeasured,) if found and found.unmeasured else ()
    stored = (Reason("stored_within", {"tensors": len(found.stored)}),) if found and found.stored else ()
    return verdict, (*first, *stored, *unmeasured, *_unchecked(unchecked))


def _passed(checks: Sequence[AccuracyCase], unchecked: int) -> Reason:
    facts = {
        "checks": len(checks) - unchecked,
        "cases": len({check.case for check in checks if not check.unchecked}),
        "seed": next((check.seed for check in checks if check.fresh), None),
    }
    return Reason("accuracy_passed" if facts["seed"] is not None else "accuracy_passed_no_fresh_seed", facts)


def _unchecked(checks: Sequence[AccuracyCase]) -> Iterator[Reason]:
    """How many checks were not made, which, then each cause once."""
    if not checks:
        return
    cases = list(dict.fromkeys(check.case for check in checks))
    yield Reason("accuracy_unchecked", {"checks": len(checks), "cases": len(cases), "names": _names(cases)})
    seen: list[Reason] = []
    for check in checks:
        if check.unchecked and check.unchecked not in seen:
            seen.append(check.unchecked)
    yield from seen


_NAMED = 3
"""Cases that a sentence names before it says how many more there are."""


def _names(cases: Sequence[str]) -> str:
    more = len(cases) - _NAMED
    return "; ".join(cases[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _unfinished(
    run: Run, op: PlannedOp, checks: Sequence[AccuracyCase], late: Reason | None
) -> tuple[Verdict, tuple[Reason, ...]]:
    failed = _failed(checks)
    missing = len(set(op.accuracy) - {check.case for check in checks})
    facts = {"missing": missing, "cases": len(op.accuracy), "signal": run.stopped}
    reason = Reason("accuracy_stopped" if run.stopped else "accuracy_missing", facts)
    if late:
        # Of a suite whose cases were all checked, what it refuses and what it leaves in memory may not be.
        reason = Reason("accuracy_late", {**late.facts, **facts}) if missing else late
    if failed:
        return _verdict(failed), (*_failed_so_far(checks), reason)
    return Verdict.INCONCLUSIVE, (reason,)


# --- limits -----------------------------------------------------------------------------------------------------------


def by_limit(row: Judgement) -> bool:
    """Whether a case's row is about a limit alone: it passed its checks, and was timed."""
    return row.reasons[0].kind in _BY_LIMIT


def _beyond_limits(run: Run, op: PlannedOp, checks: Sequence[AccuracyCase], limits: Thresholds) -> Iterator[Judgement]:
    """Cases that passed their checks and are less exact than is asked for.

    Held against the limit is what the history keeps, so that what was predicted of the one holds for the other: the
    worst of a case's checks on ordinary values, the fresh seed's included.
    """
    wrong = {check.case for check in _failed(checks)}
    for each in worst_errors(checks):
        reason = errors_beyond(
            "checked", each.errors, op.op, each.case, limits, run.environment.device.key, each.checks
        )
        if reason and each.case not in wrong:
            yield _row(op, each.case, Verdict.WRONG, (reason,))


def _with_limits(whole: Judgement, cases: Sequence[Judgement]) -> Judgement:
    """The op as a whole, WRONG where cases are beyond their limits; what failed a check outweighs that."""
    beyond = [row for row in cases if by_limit(row)]
    if not beyond:
        return whole
    worst = max(beyond, key=lambda row: times_allowed(row.reasons[0]))
    told = Reason("accuracy_beyond_limits", {"cases": len(beyond), "case": worst.case}), worst.reasons[0]
    if whole.verdict in {Verdict.WRONG, Verdict.ERROR}:
        return replace(whole, reasons=(*whole.reasons, *told))
    return replace(whole, verdict=Verdict.WRONG, reasons=(*told, *whole.reasons))


# --- failures ---------------------------------------------------------------------------------------------------------


def _failed(checks: Sequence[AccuracyCase]) -> list[AccuracyCase]:
    """The worst first; wrong answers before exceptions, since they outweigh them."""
    failed = [(check, check.failure) for check in checks if check.failure]
    return [check for check, _ in sorted(failed, key=lambda one: (one[0].raised, -times_allowed(one[1])))]


def _failures(checks: Sequence[AccuracyCase]) -> list[Reason]:
    return [check.failure for check in checks if check.failure]


def _verdict(failed: Sequence[AccuracyCase]) -> Verdict:
    return Verdict.ERROR if all(check.raised for check in failed) else Verdict.WRONG


def _failed_so_far(checks: Sequence[AccuracyCase]) -> tuple[Reason, ...]:
    """How many checks failed, naming the worst, then what it did."""
    failed = _failed(checks)
    if not failed:
        return ()
    worst = failed[0]
    made = sum(check.unchecked is None for check in checks)
    cases = len({check.case for check in failed})
    facts = {"failed": len(failed), "checks": made, "cases": cases, "case": worst.case, **_how(worst)}
    return Reason("accuracy_failed", facts), *_failures([worst])


def _failed_cases(op: PlannedOp, checks: Sequence[AccuracyCase]) -> Iterator[Judgement]:
    for case in dict.fromkeys(check.case for check in _failed(checks)):
        own = [check for check in checks if check.case == case]
        failed = _failed(own)
        facts = {"failed": len(failed), "checks": len(own), **_how(failed[0])}
        yield _row(op, case, _verdict(failed), (*_failures(failed[:1]), Reason("accuracy_case_failed", facts)))


def _how(check: AccuracyCase) -> dict[str, str | int]:
    return {"values": check.values, "layout": check.layout, "seed": check.seed}
