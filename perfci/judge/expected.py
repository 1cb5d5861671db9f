"""Slow-downs that were agreed on: what an entry under `expected` in `thresholds/<op>.yaml` excuses.

A whole run is judged again with what entries allow (`judge`): in a duel against the base, in a screen against the
stored baseline, and for the targets of speedup and bandwidth. An entry covers a case that is not found slower then.
Only device time is excused: neither wrong answers nor errors, memory, the first call, or what a compiler makes.
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
from perfci.thresholds.entries import suggest_expected
from perfci.thresholds.limits import Thresholds

GRACE = timedelta(days=14)
"""How long an entry that has expired still excuses, with a warning."""

ROOM = timedelta(days=90)
"""How long an entry holds that perfci suggests."""

_KINDS: Mapping[str, str] = {
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
"""Kind of a reason for a loss of time, sure or not -> the kind that calls it expected."""

_FINE = frozenset({Verdict.PASS, Verdict.UNCHANGED, Verdict.IMPROVED})

Answers = Mapping[str, Finding]
"""By question. One that is not even raised is missing."""


class Standing(IntEnum):
    """How an entry stands on a day, the best first."""

    HOLDS = 0
    OVERDUE = 1
    """expired, and excuses for some days more"""
    ENDED = 2


@dataclass(frozen=True)
class Excused:
    """The answers about a case, with what its entries make of them."""

    found: Answers
    entry: Expected | None = None
    """the one that bears on them"""
    overdue: bool = False


def day_of(run: Run) -> date | None:
    """The day on which a run was made, by which entries expire. None if its record does not have it."""
    return _parse_day(run.created[:10])


def stage(entry: Expected, day: date | None) -> Standing:
    """How an entry stands on the day of a run; on an unknown day it holds."""
    until = _parse_day(entry.until)
    if day is None or (until and day <= until):
        return Standing.HOLDS
    return Standing.OVERDUE if until and day - until <= GRACE else Standing.ENDED


def _parse_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def excuse(found: Answers, allowed: Sequence[tuple[Expected, Answers]], day: date | None) -> Excused:
    """Returns the answers, those that lose time EXPECTED if an entry covers them.

    allowed: each entry of the case, with the answers if as much is allowed as it says. The first entry decides that
    covers all: those that hold before those that are overdue, the widest first. If none does, the widest is named.
    """
    slow = [question for question, finding in found.items() if _loses_time(finding)]
    if not slow or not allowed:
        return Excused(found)
    ranked = sorted(allowed, key=lambda each: (stage(each[0], day), -each[0].up_to))
    standing = [each for each in ranked if stage(each[0], day) is not Standing.ENDED]
    if not standing:
        entry = ranked[0][0]
        why = Reason("expected_ended", _facts(entry))
        told = {question: _add_reason(found[question], why) for question in slow if _fails(found[question])}
        return Excused({**found, **told}, entry if told else None)
    tried = [
        (entry, {question: _answer(found[question], wide.get(question), entry, day) for question in slow})
        for entry, wide in standing
    ]
    covering = (each for each in tried if not any(map(_fails, each[1].values())))
    entry, answers = next(covering, None) or max(tried, key=lambda each: each[0].up_to)
    excuses = any(finding.verdict is Verdict.EXPECTED for finding in answers.values())
    return Excused({**found, **answers}, entry, excuses and stage(entry, day) is Standing.OVERDUE)


def _fails(finding: Finding) -> bool:
    return finding.verdict.gate is Gate.FAILS


def _loses_time(finding: Finding) -> bool:
    """Whether this is a slow-down, sure or left undecided after all that may be measured."""
    if not finding.reasons or finding.reasons[0].kind not in _KINDS or finding.exact:
        return False
    change = finding.reasons[0].facts.get("change")
    slower = change is None or float(change) > 0
    return _fails(finding) or (finding.verdict is Verdict.INCONCLUSIVE and not finding.unsettled and slower)


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
    until = _parse_day(entry.until)
    facts: dict[str, Fact] = {"file": entry.file, "line": entry.line, "up_to": entry.up_to, "why": why_of(entry)}
    return {**facts, "until": entry.until, "ends": (until + GRACE).isoformat() if until and until.year < 9999 else None}


def why_of(entry: Expected) -> str:
    """Why it was agreed on, as the end of a sentence."""
    return entry.why.rstrip(".。 ")


def suggest(found: Answers, comparison: Comparison, context: Context) -> Suggestion | None:
    """Returns the entry that would make a case EXPECTED that fails for time alone. None if no entry can."""
    failing, day = [finding for finding in found.values() if _fails(finding)], day_of(context.run)
    if not failing or day is None or any(finding.exact for finding in failing):
        return None
    reach = max(map(_slowdown, failing))
    return suggest_expected(context.thresholds, comparison.op, comparison.case, reach, day + ROOM)


def _slowdown(finding: Finding) -> float:
    """The slow-down that was measured, by the upper end of its interval and by every process that looked again."""
    facts = finding.reasons[0].facts
    if "target" in facts:
        return float(facts["target"] or 0.0) / float(facts["low"] or 1.0) - 1
    return max(float(facts[name] or 0.0) for name in ("high", "again_high") if name in facts)


# --- entries that nothing needs ---------------------------------------------------------------------------------------


def find_unneeded(run: Run, rows: Sequence[Judgement], thresholds: Thresholds) -> Iterator[Reason]:
    """Entries that fit no case, or without which all fitting cases are fine. Only if the whole op was looked at."""
    plan = run.plan
    if plan.filter is not None or run.stopped or Suite.PERFORMANCE not in plan.suites or plan.device == static.OFFLINE:
        return
    for op in plan.ops:
        own = thresholds.ops.get(op.op)
        if own and not op.failure:
            mine = {row.case: row for row in rows if row.op == op.op and row.suite is Suite.PERFORMANCE}
            yield from (why for entry in own.expected for why in _find_unneeded(entry, op, mine))


def _find_unneeded(entry: Expected, op: PlannedOp, rows: Mapping[str | None, Judgement]) -> Iterator[Reason]:
    facts: dict[str, Fact] = {"file": entry.file, "line": entry.line, "case": entry.case, "op": op.op}
    fitting = [case for case in op.performance if matches(case, entry.case)]
    if not fitting:
        guess = _guess_pattern(entry.case, op.performance)
        yield Reason("expected_misspelt" if guess else "expected_fits_nothing", {**facts, "guess": guess})
    elif all(case in rows and rows[case].verdict in _FINE for case in fitting):
        yield Reason("expected_unneeded", {**facts, "count": len(fitting)})


def _guess_pattern(pattern: str, cases: Sequence[str]) -> str | None:
    """The pattern with every part that fits nothing replaced by one that does; else the closest case."""
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
