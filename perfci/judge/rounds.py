"""The verdict about a round of optimising an op: from a run beside the best round before, judged case by case."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from perfci.core.model import (
    Comparison,
    Interval,
    Judgement,
    Judgements,
    OpRun,
    PerformanceCase,
    PlannedOp,
    Reason,
    Round,
    RoundCase,
    RoundChange,
    RoundKind,
    RoundVerdict,
    Run,
    Suite,
    Verdict,
    choose_regime,
)
from perfci.statistics import exact
from perfci.statistics.rounds import find_confidence
from perfci.store.past.lines import DUEL

SAME = Interval(0.0, 0.0, 0.0)  # gain of a case that does the same work on the device

_FASTER = frozenset({"duel_faster", "duel_faster_limited"})
_SLOWER = frozenset({"duel_slower", "duel_slower_limited", "tail_slower"}.union(
    f"duel_{question}_slower" for question in ("span", "sustained", "host")
))  # fmt: skip

_REFUSED = frozenset({Verdict.SUSPECT, Verdict.WEAKENED})
_TUNED = frozenset({"warps", "stages", "grid"})


def judge_round(blank: Round, run: Run, judgements: Judgements) -> Round:
    """Returns the round with all that its run shows. Its place says for how many rounds the intervals are widened."""
    planned = next(op for op in run.plan.ops if op.op == blank.op)
    found = next((op for op in run.ops if op.op == blank.op), OpRun(blank.op))
    rows = [row for row in judgements.rows if row.op == blank.op]
    measured = {case.case: case for case in found.performance}
    confidence = find_confidence(blank.place)
    cases = tuple(
        _describe_case(row, measured.get(row.case), confidence)
        for row in rows
        if row.case and row.suite is Suite.PERFORMANCE
    )
    changed = tuple(dict.fromkeys(change for case in found.performance for change in list_changes(case)))
    gains = [case.best for case in cases if case.best]
    done = replace(
        blank,
        device=run.environment.device.key,
        cases=cases,
        changed=changed,
        kinds=_find_kinds(blank, planned, found),
        gain=average_gains(gains, confidence) if len(gains) == len(cases) else None,
    )
    verdict, reasons = _decide(done, rows)
    return replace(done, verdict=verdict, reasons=reasons)


def _describe_case(row: Judgement, case: PerformanceCase | None, confidence: float) -> RoundCase:
    gain = measure_gain(case, confidence) if case else None
    if gain is None and row.verdict is Verdict.UNCHANGED:
        gain = SAME
    seen = row.comparison or Comparison(row.op, row.case or "")
    times = seen.kernel_us, seen.base_us, seen.reference_us
    return RoundCase(seen.case, *times, gain, kernels=case.compiled if case else ())


def measure_gain(case: PerformanceCase, confidence: float) -> Interval | None:
    """The base's time / the kernel's - 1 with its interval. None if they were not timed beside each other."""
    if case.base and case.base.same:
        return SAME
    shifts = [-block.shifts[DUEL] for block in choose_regime(case.blocks) if DUEL in block.shifts]
    return exact.to_ratio(exact.location(shifts, confidence)) if shifts else None


def average_gains(gains: Sequence[Interval], confidence: float) -> Interval | None:
    """The geometric mean. None without gains, and if one has too few blocks for any confidence."""
    if not gains or any(not 0 < each.confidence < 1 or each.low <= -1 for each in gains):
        return None
    ratios = (Interval(1 + each.value, 1 + each.low, 1 + each.high, each.confidence) for each in gains)
    mean = exact.average_ratios(list(ratios), confidence)
    return Interval(mean.value - 1, mean.low - 1, mean.high - 1, confidence)


def _decide(done: Round, rows: Sequence[Judgement]) -> tuple[RoundVerdict, tuple[Reason, ...]]:
    """What is wrong decides first, then what was not measured, then the cases: all of them have a say."""
    for verdict, said in (
        (RoundVerdict.WRONG, [row for row in rows if row.verdict is Verdict.WRONG]),
        (RoundVerdict.ERROR, [row for row in rows if row.verdict is Verdict.ERROR]),
        (RoundVerdict.REFUSED, [row for row in rows if row.verdict in _REFUSED or row.fails]),
        # Answers that nobody could check, and cases that were not timed beside the base: there is no verdict.
        (RoundVerdict.ERROR, [row for row in rows if row.verdict is Verdict.INCONCLUSIVE and _is_unknown(row)]),
    ):
        if said:
            return verdict, _list_first(said)
    timed = [row for row in rows if row.case and row.suite is Suite.PERFORMANCE]
    if done.gain is None:
        return RoundVerdict.ERROR, _list_first(timed)
    certain = [row for row in timed if row.verdict is not Verdict.INCONCLUSIVE]
    faster, slower = (sum(_says(row, kinds) for row in certain) for kinds in (_FASTER, _SLOWER))
    # Not beyond doubt, yet by more than is allowed: nobody would keep it for the cases that are faster.
    doubtful = sum(_looks_slower(row) for row in timed if row.verdict is Verdict.INCONCLUSIVE)
    kinds = {(True, False): "kept", (True, True): "mixed", (False, True): "slower", (False, False): "equal"}
    verdict = RoundVerdict(kinds[faster > 0, slower + (doubtful if faster else 0) > 0])
    facts = {"gain": done.gain.value, "low": done.gain.low, "high": done.gain.high, "cases": len(timed)}
    facts |= {"faster": faster, "slower": slower, "doubtful": doubtful, "place": done.place, "best": done.best}
    return verdict, (Reason(f"round_{verdict}", facts),)


def _list_first(rows: Sequence[Judgement]) -> tuple[Reason, ...]:
    """The first reason of each row, each kind once."""
    return tuple({row.reasons[0].kind: row.reasons[0] for row in reversed(rows) if row.reasons}.values())[::-1]


def _says(row: Judgement, kinds: frozenset[str]) -> bool:
    return any(reason.kind in kinds for reason in row.reasons)


def _is_unknown(row: Judgement) -> bool:
    late = any(reason.kind.endswith("_late") for reason in row.reasons)
    return late or row.suite is not Suite.PERFORMANCE or row.comparison is None or row.comparison.duel is None


def _looks_slower(row: Judgement) -> bool:
    seen = row.comparison
    looks = (seen.duel, seen.duel_span, seen.duel_sustained, seen.duel_host) if seen else ()
    return any(look is not None and look.shift.value > look.tau for look in looks)


# --- what was changed -------------------------------------------------------------------------------------------------


def list_changes(case: PerformanceCase) -> Iterator[RoundChange]:
    """What differs between the kernels of a case and its base's: stages 4 -> 3."""
    base = case.base
    if base is None:
        return
    for change in base.changes:
        facts = change.facts
        if change.kind == "launch_changed" and facts["what"] == "grid":
            yield RoundChange("grid", str(facts["before"]), str(facts["after"]), str(facts["kernel"]))
    if not base.compiled:  # of revisions that have a process each, or of a device without a compiler
        return
    old, new = ({each.name: each.parameters for each in kernels} for kernels in (base.compiled, case.compiled))
    for kernel in dict.fromkeys((*old, *new)):
        was, now = old.get(kernel, {}), new.get(kernel, {})
        for name in dict.fromkeys((*was, *now)):
            if was.get(name) != now.get(name):
                yield RoundChange(name, was.get(name), now.get(name), kernel)


def _find_kinds(done: Round, planned: PlannedOp, found: OpRun) -> tuple[RoundKind, ...]:
    """What kinds of change a round makes: other numbers, another signature, another way to compute."""
    changes = [change for case in found.performance if case.base for change in case.base.changes]
    base = planned.base
    kinds: list[RoundKind] = []
    if base and base.signature and base.signature != planned.signature:
        kinds.append("interface")
    other_work = {"operations_counted", "launches_changed", "kernel_renamed"}
    if "logic" in done.kinds or any(change.kind in other_work for change in changes):
        kinds.append("logic")
    tuned = "tuning" in done.kinds or any(
        change.kind == "launch_changed" and change.facts["what"] in _TUNED for change in changes
    )
    return ("tuning", *kinds) if tuned or not kinds else tuple(kinds)


def read_kinds(pairs: Iterable[tuple[str, bytes, bytes]]) -> tuple[RoundKind, ...]:
    """What the sources show of a change. pairs: a file's name, and what it held before and holds now.

    Code of kernels, which are functions with a decorator, that differs in more than numbers is logic. Numbers, and
    files of other kinds, such as tuned ones, are tuning. What only a run can show is left open.
    """
    kinds: list[RoundKind] = []
    for name, before, now in pairs:
        try:
            old, new = (_mask(ast.parse(text)) for text in (before, now))
        except (SyntaxError, ValueError, RecursionError):
            kinds += [] if name.endswith(".py") else ["tuning"]
            continue
        if not name.endswith(".py") or (old == new and before != now):
            kinds.append("tuning")
        elif [each for each in old if each[0]] != [each for each in new if each[0]]:
            kinds.append("logic")
    return tuple(dict.fromkeys(kinds))


def _mask(tree: ast.Module) -> list[tuple[bool, str]]:
    """Every statement of a module without its numbers and texts, and whether it is a decorated function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value = 0
    return [(bool(getattr(each, "decorator_list", ())), ast.dump(each)) for each in tree.body]
