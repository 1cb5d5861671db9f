"""Slow-downs that were agreed on: what an entry under `expected` in `thresholds/<op>.yaml` excuses.

An entry is asked by the rules that find a case slower themselves, with what it allows in the place of what is allowed
as a rule: against the base in a duel, against the stored baseline in a screen, against the time that the targets of
speedup and bandwidth leave. It covers a case that is not found slower by that much. Only device time is excused:
neither wrong answers nor errors, nor memory, nor the first call, nor what a compiler makes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import IntEnum

from perfci.core.model import (
    Comparison,
    Expected,
    Fact,
    Gate,
    Judgement,
    PlannedOp,
    Reason,
    Run,
    Suggestion,
    Suite,
    Verdict,
)
from perfci.judge import static
from perfci.judge.findings import Context, Finding
from perfci.ops.spec import matches
from perfci.thresholds.expected import suggestion
from perfci.thresholds.limits import Thresholds

GRACE = timedelta(days=14)
"""How long an entry that has expired still excuses, with a warning."""

ROOM = timedelta(days=90)
"""How long an entry holds that perfci suggests."""

_TOLD: Mapping[str, str] = {
    "duel_slower": "expected_of_base",
    "duel_undecided": "expected_of_base",
    "slower_confirmed": "expected_of_baseline",
    "slower_disputed": "expected_of_baseline",
    "too_noisy": "expected_of_baseline",
    "duel_span_slower": "expected_of_span",
    "duel_span_undecided": "expected_of_span",
    "span_confirmed": "expected_of_span",
    "span_disputed": "expected_of_span",
    "too_slow": "expected_of_target",
    "speedup_undecided": "expected_of_target",
    "bandwidth_low": "expected_of_bandwidth",
    "bandwidth_undecided": "expected_of_bandwidth",
}
"""Kind of a reason that time is lost by, beyond doubt or not -> the kind that says it was expected."""

_FINE = frozenset({Verdict.PASS, Verdict.UNCHANGED, Verdict.IMPROVED})


class Stage(IntEnum):
    """How an entry stands on a day, the best first."""

    HOLDS = 0
    OVERDUE = 1
    """expired, and excuses for some days more"""
    ENDED = 2


@dataclass(frozen=True)
class Allowed:
    """What the questions about a case would be answered with, were as much allowed as an entry says."""

    entry: Expected
    found: Mapping[str, Finding]
    """by question; one that would not even be raised is missing"""


@dataclass(frozen=True)
class Excused:
    """The answers about a case, with what its entries make of them."""

    found: Mapping[str, Finding]
    entry: Expected | None = None
    """the one that bears on them"""
    overdue: bool = False


def day_of(run: Run) -> date | None:
    """The day on which a run was made, by which entries expire; None where its record does not tell."""
    return _day(run.created[:10])


def stage(entry: Expected, day: date | None) -> Stage:
    """How an entry stands on the day of a run; on a day that is not known it holds."""
    until = _day(entry.until)
    if day is None or (until and day <= until):
        return Stage.HOLDS
    return Stage.OVERDUE if until and day - until <= GRACE else Stage.ENDED


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


# --- what an entry excuses --------------------------------------------------------------------------------------------


def excused(found: Mapping[str, Finding], allowed: Sequence[Allowed], day: date | None) -> Excused:
    """The answers, those that lose time EXPECTED where an entry covers them.

    Of several entries the first decides that covers all, those that hold before those that are overdue, the widest
    first; where none does, the one that comes closest is told.
    """
    slow = [question for question, finding in found.items() if _loses_time(finding)]
    if not slow or not allowed:
        return Excused(found)
    ranked = sorted(allowed, key=lambda each: (stage(each.entry, day), -each.entry.up_to))
    standing = [each for each in ranked if stage(each.entry, day) is not Stage.ENDED]
    if not standing:
        return _with_all(found, slow, Reason("expected_ended", _facts(ranked[0].entry)), ranked[0].entry)
    tried = [(each, _answers(found, slow, each, stage(each.entry, day))) for each in standing]
    each, answers = next((one for one in tried if not _failing(one[1])), None) or max(
        tried, key=lambda one: one[0].entry.up_to
    )
    overdue = stage(each.entry, day) is Stage.OVERDUE and any(
        finding.verdict is Verdict.EXPECTED for finding in answers.values()
    )
    return Excused({**found, **answers}, each.entry, overdue)


def _loses_time(finding: Finding) -> bool:
    """Whether this is a slow-down, beyond doubt, or left undecided after all that may be measured."""
    if not finding.reasons or finding.reasons[0].kind not in _TOLD or finding.exact:
        return False
    slower = finding.reasons[0].facts.get("change")
    undecided = finding.verdict is Verdict.INCONCLUSIVE and not finding.unsettled and _above_zero(slower)
    return finding.verdict.gate is Gate.FAILS or undecided


def _above_zero(change: Fact) -> bool:
    return change is None or float(change) > 0


def _with_all(found: Mapping[str, Finding], slow: Sequence[str], why: Reason, entry: Expected) -> Excused:
    """Nothing is excused, and why."""
    failing = [question for question in slow if found[question].verdict.gate is Gate.FAILS]
    told = {question: _adding(found[question], why) for question in failing}
    return Excused({**found, **told}, entry if failing else None)


def _failing(answers: Mapping[str, Finding]) -> bool:
    return any(finding.verdict.gate is Gate.FAILS for finding in answers.values())


def _answers(
    found: Mapping[str, Finding], slow: Sequence[str], allowed: Allowed, standing: Stage
) -> dict[str, Finding]:
    return {
        question: _answer(found[question], allowed.found.get(question), allowed.entry, standing) for question in slow
    }


def _answer(plain: Finding, wide: Finding | None, entry: Expected, standing: Stage) -> Finding:
    """One question, answered by the rules as they are and with what the entry allows."""
    fails = plain.verdict.gate is Gate.FAILS
    # UNCHANGED alone would hide a control that came out undecided.
    if wide is None or wide.verdict is Verdict.PASS:
        return _expected(plain, entry, standing)
    if wide.verdict.gate is Gate.FAILS:
        return _adding(plain, Reason("expected_exceeded", _facts(entry)))
    if fails and wide.unsettled:
        return _adding(wide, Reason("expected_open", _facts(entry)))
    return _expected(plain, entry, standing) if fails else plain


def _expected(plain: Finding, entry: Expected, standing: Stage) -> Finding:
    first = plain.reasons[0]
    told = Reason(_TOLD[first.kind], {**first.facts, **_facts(entry)})
    if standing is Stage.OVERDUE:
        return Finding(Verdict.EXPECTED, (told, Reason("expected_overdue", _facts(entry)), *plain.reasons))
    return Finding(Verdict.EXPECTED, (told, *plain.reasons))


def _adding(finding: Finding, why: Reason) -> Finding:
    """The finding with one reason more, right behind the one that decided."""
    first, *rest = finding.reasons
    return replace(finding, reasons=(first, why, *rest))


def _facts(entry: Expected) -> dict[str, Fact]:
    until = _day(entry.until)
    facts: dict[str, Fact] = {"file": entry.file, "line": entry.line, "up_to": entry.up_to, "why": reason_of(entry)}
    return {**facts, "until": entry.until, "ends": (until + GRACE).isoformat() if until and until.year < 9999 else None}


def reason_of(entry: Expected) -> str:
    """Why it was agreed on, as the end of a sentence."""
    return entry.why.rstrip(".。 ")


# --- the entry that would excuse --------------------------------------------------------------------------------------


def suggested(found: Mapping[str, Finding], comparison: Comparison, context: Context) -> Suggestion | None:
    """The entry that would make a case EXPECTED that fails for time alone; None where no entry can."""
    failing = [finding for finding in found.values() if finding.verdict.gate is Gate.FAILS]
    if not failing or context.day is None or any(finding.exact for finding in failing):
        return None
    until, reach = context.day + ROOM, max(map(_reach, failing))
    return suggestion(context.thresholds, comparison.op, comparison.case, reach, until)


def _reach(finding: Finding) -> float:
    """The slow-down that was measured, by the upper end of its interval and by every process that looked again."""
    facts = finding.reasons[0].facts
    if "target" in facts:
        return float(facts["target"] or 0.0) / float(facts["low"] or 1.0) - 1
    return max(float(facts[name] or 0.0) for name in ("high", "again_high") if name in facts)


# --- entries that nothing needs ---------------------------------------------------------------------------------------


def unneeded(run: Run, rows: Sequence[Judgement], thresholds: Thresholds) -> Iterator[Reason]:
    """Entries that no case fits, or without which all that fit are fine; only where the whole op was looked at."""
    plan = run.plan
    if plan.filter is not None or run.stopped or Suite.PERFORMANCE not in plan.suites or plan.device == static.OFFLINE:
        return
    for op in plan.ops:
        own = thresholds.ops.get(op.op)
        if own and not op.failure:
            verdicts = {row.case: row for row in rows if row.op == op.op and row.suite is Suite.PERFORMANCE}
            yield from (why for entry in own.expected for why in _unneeded(entry, op, verdicts))


def _unneeded(entry: Expected, op: PlannedOp, rows: Mapping[str | None, Judgement]) -> Iterator[Reason]:
    facts: dict[str, Fact] = {"file": entry.file, "line": entry.line, "case": entry.case, "op": op.op}
    fitting = [case for case in op.performance if matches(case, entry.case)]
    if not fitting:
        guess = _meant(entry.case, op.performance)
        yield Reason("expected_misspelt" if guess else "expected_fits_nothing", {**facts, "guess": guess})
    elif all(case in rows and rows[case].verdict in _FINE for case in fitting):
        yield Reason("expected_unneeded", {**facts, "count": len(fitting)})


def _meant(pattern: str, cases: Sequence[str]) -> str | None:
    """The pattern with every part that fits nothing in the place of which one does; else the closest case."""
    known = sorted({part for case in cases for part in case.split(",")})
    parts = [_closest(part, known) for part in pattern.split(",")]
    mended = ",".join(part for part in parts if part)
    if None not in parts and any(matches(case, mended) for case in cases):
        return mended
    return _closest(pattern, cases)


def _closest(word: str, words: Sequence[str]) -> str | None:
    if any(matches(known, word) for known in words):
        return word
    return next(iter(difflib.get_close_matches(word, words, n=1)), None)
