"""Verdicts about right and wrong: one row an op, and one a case that failed."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from perfci.core.model import AccuracyCase, Fact, Judgement, OpRun, PlannedOp, Reason, Run, Suite, Verdict
from perfci.core.model.measured import find_worst_errors
from perfci.judge.cause import NAMED
from perfci.judge.figures import errors_beyond
from perfci.measure.closeness import times_allowed
from perfci.measure.stored import BEYOND, find_checks
from perfci.thresholds.limits import Thresholds

_WIDE = tuple(2**power for power in range(1, 14))  # widths of a block along an axis, elements

_DIGITS = 18  # of a size. Python reads no text of more than 4300 as a number
_NUMBER = rf"\d{{1,{_DIGITS}}}"

_HOW = {
    "wrote_outside": "pattern_outside", "not_written": "pattern_unwritten", "used_outside": "pattern_strays",
    "race": "pattern_race", "differs_from_itself": "pattern_race",
}  # fmt: skip
"""Kinds of failure that are a pattern by themselves. Each explains those behind it: strays race with their owners."""

_OF_SIZE_0 = re.compile(r"(?<!dim)(?<!axis)[=(;]0(?=[;),]|$)")
"""In a case's id: `batch=0,cols=8` or `shape=(3;0)`. What it gives may have elements, such as a weight's gradient."""

_BY_VALUE = frozenset({"wrong_values", "not_finite", "less_exact"})
"""Kinds of failure that other cases may not have. All others show by themselves what to change."""


def find_pattern(op: str, checks: Sequence[AccuracyCase]) -> Reason | None:
    """Returns what wrong answers have in common. None if nothing was found, or nothing is wrong.

    First how they are wrong, then with which inputs, then where in the output, then in which cases.
    """
    # One that was shrunk has the fault of another, and no sizes that show where it is.
    plain = [check for check in checks if not (check.failure and check.failure.kind.startswith("least_"))]
    made = [check for check in plain if check.unchecked is None and not check.case.startswith("rejects=")]
    failed = [(check, check.failure) for check in made if check.failure and not check.raised]
    kinds = {why.kind for _, why in failed}
    if not failed:
        return None
    if first := next((kind for kind in _HOW if kind in kinds), None):
        same = [why.facts for _, why in failed if why.kind == first]
        farthest = max(same, key=lambda facts: _whole(facts.get("far"))) if first == "wrote_outside" else {}
        return Reason(_HOW[first], {**farthest, "op": op})
    if kinds == {"less_exact"}:
        return Reason("pattern_imprecise", {"op": op})
    if not kinds <= _BY_VALUE:
        return None
    ordinary = [check for check in made if check.values == "normal" and check.layout == "contiguous"]
    broken = {check.case for check in ordinary if check.failure and not check.raised}
    if not broken:
        layouts, values = ({getattr(check, name) for check, _ in failed} for name in ("layout", "values"))
        if "contiguous" not in layouts:
            return Reason("pattern_layouts", {"op": op, "layouts": ", ".join(sorted(layouts))})
        return None if "normal" in values else Reason("pattern_values", {"op": op, "values": ", ".join(sorted(values))})
    places = [(_read(check.case), why) for check, why in failed if check.case in broken and check.values == "normal"]
    if end := _find_end(op, places) or _find_left_out(op, places):
        return end
    # A case without elements cannot be wrong.
    cases = {case: params for case in dict.fromkeys(check.case for check in ordinary)
             if 0 not in (params := _read(case)).values()}  # fmt: skip
    if broken >= cases.keys():
        return _describe_everywhere(op, cases)
    bad, good = ([params for case, params in cases.items() if (case in broken) is wrong] for wrong in (True, False))
    dtypes, right = ({str(params.get("dtype")) for params in group} for group in (bad, good))
    if dtypes.isdisjoint(right):
        return Reason("pattern_dtypes", {"op": op, "dtypes": ", ".join(sorted(dtypes))})
    return next(filter(None, (_find_sizes(op, name, bad, good) for name in bad[0])), None)


def _whole(fact: Fact) -> int:
    """A whole number of a reason. 0 for what is none: an op may have made it up."""
    return fact if isinstance(fact, int) else 0


def _read(case: str) -> dict[str, int | str]:
    """The parameters of a case's id."""
    pairs = (part.partition("=") for part in case.split(",") if "=" in part)
    return {name: int(value) if value.isdecimal() and len(value) <= _DIGITS else value for name, _, value in pairs}


def _find_end(op: str, places: Sequence[tuple[Mapping[str, int | str], Reason]]) -> Reason | None:
    """Whether all wrong elements lie in the last block along an axis, or are its last element.

    Records have one index and the number of wrong elements, which is at most that of the elements in the block.
    """
    for axis in (-1, 0):
        for name in (name for name, length in places[0][0].items() if isinstance(length, int)):
            causes = []
            for params, why in places:
                length, size, count = params.get(name), why.facts.get("size"), why.facts.get("count")
                index = [*map(int, re.findall(_NUMBER, str(why.facts.get("index"))))]
                if not (
                    isinstance(length, int) and isinstance(size, int) and isinstance(count, int) and size and index
                ):
                    break
                causes.append((length, index[axis], count * length / size))
            for width in _WIDE if len(causes) == len(places) else ():
                # The last block is cut, unless it is a single element.
                last = [(length, length % width or 1) for length, _, _ in causes]
                inside = all(
                    length - rest <= at < length and wrong <= rest
                    for (length, rest), (_, at, wrong) in zip(last, causes, strict=True)
                )
                if inside and any(2 * rest < length for length, rest in last):
                    return Reason("pattern_end", {"op": op, "name": name})
    return None


def _find_left_out(op: str, places: Sequence[tuple[Mapping[str, int | str], Reason]]) -> Reason | None:
    """Whether all answers that can differ are those of inputs without their last elements along one axis."""
    left = {str(why.facts["left_out"]) for _, why in places if why.facts.get("left_out")}
    for params, why in places:
        for name in left:
            length = params.get(name)
            told = isinstance(length, int) and length > 1 and [*params.values()].count(length) == 1
            if told and why.facts.get("left_out", name) != name:
                return None
    if len(left) != 1:
        return None
    most = max(_whole(why.facts.get("left")) for _, why in places if why.facts.get("left_out"))
    return Reason("pattern_left_out", {"op": op, "name": next(iter(left)), "most": most})


def _describe_everywhere(op: str, cases: Mapping[str, Mapping[str, int | str]]) -> Reason:
    """That all cases are wrong: sizes and dtypes only if there are several of both."""
    if len(cases) == 1:
        return Reason("pattern_one", {"op": op, "case": next(iter(cases))})
    dtypes = {params.get("dtype") for params in cases.values()}
    sizes = {tuple(size for name, size in params.items() if name != "dtype") for params in cases.values()}
    if len(dtypes) > 1 and len(sizes) > 1:
        return Reason("pattern_everywhere", {"op": op})
    return Reason("pattern_all", {"op": op, "cases": len(cases)})


def _find_sizes(
    op: str, name: str, bad: Sequence[Mapping[str, Fact]], good: Sequence[Mapping[str, Fact]]
) -> Reason | None:
    """Whether one parameter separates the cases that are wrong from those that are right."""
    wrong, right = ({size for params in group if isinstance(size := params.get(name), int)} for group in (bad, good))
    if not wrong or not right:
        return None
    facts: dict[str, Fact] = {"op": op, "name": name, "least": min(wrong), "most": max(wrong)}
    facts["sizes"] = ", ".join(map(str, sorted(wrong)[:NAMED])) + (", ..." if len(wrong) > NAMED else "")
    if min(wrong) > max(right):
        return Reason("pattern_from", facts)
    if max(wrong) < min(right):
        return Reason("pattern_up_to", facts)
    for width in _WIDE:
        cut = {size for size in wrong | right if size % width}
        if wrong <= cut and right - cut and 2 * len(wrong) > len(cut) and not wrong & right:
            return Reason("pattern_ragged", facts)
    return None


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
    elif unchecked and not any(_tells(check) for check in checks):
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


def _tells(check: AccuracyCase) -> bool:
    """Whether a check that passed is evidence: it was made, and its case is neither refused nor without elements."""
    has_elements = (check.errors is None or check.errors.count > 0) and not _OF_SIZE_0.search(check.case)
    return not check.unchecked and not check.case.startswith("rejects=") and has_elements


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
