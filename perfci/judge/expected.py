"""Slow-downs that were agreed on: what an entry under `expected` in `thresholds/<op>.yaml` excuses.

The run is judged again with what entries allow. An entry covers a case that is not found slower then. Only device time
is excused: neither wrong answers nor errors, memory, the first call, or what a compiler makes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import IntEnum

from perfci.core.model import OFFLINE, Expected, Fact, Finding, Gate, Judgement, Reason, Run, Suggestion, Suite, Verdict
from perfci.judge.compare import Context
from perfci.ops.spec import matches
from perfci.thresholds.limits import Thresholds
from perfci.thresholds.write import suggest_expected

GRACE = timedelta(days=14)  # how long an entry that has expired still excuses, with a warning
ROOM = timedelta(days=90)  # how long an entry holds that perfci suggests

_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("duel_slower", "duel_slower_limited", "duel_undecided"), "expected_of_base"),
    **dict.fromkeys(("duel_sustained_slower", "duel_sustained_undecided"), "expected_of_base"),
    **dict.fromkeys(("slower_confirmed", "slower_disputed", "too_noisy"), "expected_of_baseline"),
    **dict.fromkeys(("duel_span_slower", "duel_span_undecided", "span_confirmed", "span_disputed"), "expected_of_span"),
    **dict.fromkeys(("duel_host_slower", "duel_host_undecided"), "expected_of_host"),
    **dict.fromkeys(("tail_slower", "tail_undecided"), "expected_of_tail"),
    **dict.fromkeys(("too_slow", "speedup_undecided"), "expected_of_target"),
    **dict.fromkeys(("bandwidth_low", "bandwidth_undecided"), "expected_of_bandwidth"),
}
"""Kind of a reason for a loss of time, sure or not -> the kind that calls it expected."""

_FINE = frozenset({Verdict.PASS, Verdict.UNCHANGED, Verdict.IMPROVED})

Answers = Mapping[str, Finding]  # By question. One that is not even raised is missing.


class Standing(IntEnum):
    """How an entry stands on a day, the best first."""

    HOLDS = 0
    OVERDUE = 1  # expired, and excuses for some days more
    ENDED = 2


@dataclass(frozen=True)
class Excused:
    """The answers about a case, with what its entries make of them."""

    found: Answers
    entry: Expected | None = None  # the one that bears on them
    overdue: bool = False


def day_of(run: Run) -> date | None:
    """The day on which a run was made, by which entries expire. None if its record does not have it."""
    return parse_day(run.created[:10])


def stage(entry: Expected, day: date | None) -> Standing:
    """How an entry stands on the day of a run. On an unknown day it holds."""
    until = parse_day(entry.until)
    if day is None or (until and day <= until):
        return Standing.HOLDS
    return Standing.OVERDUE if until and day - until <= GRACE else Standing.ENDED


def parse_day(text: str) -> date | None:
    """A day as ISO 8601 has it. None for anything else."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def excuse(found: Answers, allowed: Sequence[tuple[Expected, Answers]], day: date | None) -> Excused:
    """Returns the answers, those that lose time EXPECTED if an entry covers them.

    allowed: each entry with its answers. The widest that covers all decides, those that hold before overdue ones.
    """
    slow = [question for question, finding in found.items() if _loses_time(finding)]
    if not slow or not allowed:
        return Excused(found)
    ranked = sorted(allowed, key=lambda pair: (stage(pair[0], day), -pair[0].up_to))
    standing = [candidate for candidate in ranked if stage(candidate[0], day) is not Standing.ENDED]
    if not standing:
        entry = ranked[0][0]
        why = Reason("expected_ended", _facts(entry))
        failing = {question: _add_reason(found[question], why) for question in slow if _fails(found[question])}
        return Excused({**found, **failing}, entry if failing else None)
    tried = [
        (entry, {question: _answer(found[question], wide.get(question), entry, day) for question in slow})
        for entry, wide in standing
    ]
    covering = (attempt for attempt in tried if not any(map(_fails, attempt[1].values())))
    entry, answers = next(covering, None) or max(tried, key=lambda pair: pair[0].up_to)
    excuses = any(finding.verdict is Verdict.EXPECTED for finding in answers.values())
    return Excused({**found, **answers}, entry, excuses and stage(entry, day) is Standing.OVERDUE)


def _fails(finding: Finding) -> bool:
    return finding.verdict.gate is Gate.FAILS


def _loses_time(finding: Finding) -> bool:
    """Whether this is a slow-down, sure or left undecided after all that may be measured."""
    if not finding.reasons or finding.reasons[0].kind not in _KINDS or finding.exact:
        return False
    facts = finding.reasons[0].facts
    change = facts.get("mean", facts.get("change"))
    slower = change is None or float(change) > 0
    doubted = finding.verdict is Verdict.INCONCLUSIVE and not finding.unsettled and slower
    return _fails(finding) or finding.verdict is Verdict.TAIL or doubted


def _answer(plain: Finding, wide: Finding | None, entry: Expected, day: date | None) -> Finding:
    """One question, answered by the rules as they are (plain) and with what the entry allows (wide)."""
    # UNCHANGED alone would hide a control that came out undecided.
    covered = wide is None or wide.verdict is Verdict.PASS
    if wide is not None and not covered:
        if _fails(wide):
            return _add_reason(plain, Reason("expected_exceeded", _facts(entry)))
        if not _fails(plain):
            return plain
        if wide.unsettled:
            return _add_reason(wide, Reason("expected_open", _facts(entry)))
    first = plain.reasons[0]
    reasons = [Reason(_KINDS[first.kind], {**first.facts, **_facts(entry)})]
    if stage(entry, day) is Standing.OVERDUE:
        reasons.append(Reason("expected_overdue", _facts(entry)))
    return Finding(Verdict.EXPECTED, (*reasons, *plain.reasons))


def _add_reason(finding: Finding, why: Reason) -> Finding:
    """The finding with one more reason, right behind the one that decided."""
    first, *rest = finding.reasons
    return replace(finding, reasons=(first, why, *rest))


def _facts(entry: Expected) -> dict[str, Fact]:
    until = parse_day(entry.until)
    facts: dict[str, Fact] = {"file": entry.file, "line": entry.line, "up_to": entry.up_to, "why": why_of(entry)}
    return {**facts, "until": entry.until, "ends": (until + GRACE).isoformat() if until and until.year < 9999 else None}


def why_of(entry: Expected) -> str:
    """Why it was agreed on, as the end of a sentence."""
    return entry.why.rstrip(".。 ")


def suggest(answers: Answers, context: Context) -> Suggestion | None:
    """Returns the entry that would make a case EXPECTED that fails for time alone. None if no entry can."""
    failing, day = [finding for finding in answers.values() if _fails(finding)], day_of(context.run)
    if not failing or day is None or any(finding.exact for finding in failing):
        return None
    reach = 0.0
    for facts in (finding.reasons[0].facts for finding in failing):
        # The slow-down that was measured, by the upper end of its interval and by every process that looked again.
        if "target" in facts:
            reach = max(reach, float(facts["target"] or 0.0) / float(facts["low"] or 1.0) - 1)
        else:
            ends = ("high", "first", "again_high")
            reach = max(reach, *(float(facts[name] or 0.0) for name in ends if name in facts))
    return suggest_expected(context.thresholds, context.comparison.op, context.comparison.case, reach, day + ROOM)


def find_unneeded(run: Run, rows: Sequence[Judgement], thresholds: Thresholds) -> Iterator[Reason]:
    """Entries that fit no case, or without which all fitting cases are fine. Only if the whole op was looked at."""
    plan = run.plan
    if plan.filter is not None or run.stopped or Suite.PERFORMANCE not in plan.suites or plan.device == OFFLINE:
        return
    for op in plan.ops:
        verdicts = {row.case: row.verdict for row in rows if row.op == op.op and row.suite is Suite.PERFORMANCE}
        of_op = thresholds.ops.get(op.op)
        for entry in of_op.expected if of_op and not op.failure else ():
            if entry.weaker:
                continue
            facts: dict[str, Fact] = {"file": entry.file, "line": entry.line, "case": entry.case, "op": op.op}
            fitting = [case for case in op.performance if matches(case, entry.case)]
            if not fitting:
                yield Reason("expected_fits_nothing", facts)
            elif all(verdicts.get(case) in _FINE for case in fitting):
                yield Reason("expected_unneeded", {**facts, "count": len(fitting)})
