"""The verdict table as plain text, for Markdown and terminal alike: what failed first, accuracy gathered by op."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from perfci.core import units, wording
from perfci.core.model import Gate, Interval, Judgement, Judgements, Reason, Run, Suite, Verdict
from perfci.core.wording import say
from perfci.measure.closeness import times_allowed
from perfci.report.words import between, cases, ratio

EXIT_CODES = {Gate.OK: 0, Gate.WARNS: 3, Gate.FAILS: 2}
"""What a run ends with unless it is strict."""

FIRST = frozenset(
    {
        "baselines_edited",
        "baselines_proposed",
        "rules_changed",
        "rules_differ",
        "rules_gone",
        "expected_added",
        "cache_changed",
        "pins_changed",
        "threshold_loosened",
        "thresholds_carried",
        "thresholds_given",
    }
)
"""Notes on what a change, or a command line, does to the way in which it is judged: they come before all else."""

BESIDE = frozenset({"expected_overdue", "expected_ended", "expected_exceeded", "expected_open"})
"""Reasons that are told in one breath with the one that decided."""

COMPARED = frozenset(
    {"compared_with", "compared_with_python", "compared_again", "compared_release", "compared_untimed"}
)
"""Notes without which the verdicts cannot be read: they stand above the table."""

CONFIDENCE = 0.95
"""Of intervals, where nothing else is said."""

NAMED = 3
"""Most ops that one row names."""

_LOST = frozenset({"shard_missing", "shard_unfinished"})

_SUMS = frozenset({"accuracy_failed", "accuracy_beyond_limits"})
"""Reasons that only count: the next one says what is wrong."""

_QUIET = frozenset({Verdict.PASS, Verdict.UNCHANGED})


@dataclass(frozen=True)
class Row:
    """One line of the verdict table; texts are as they come, not yet escaped."""

    verdict: Verdict
    op: str
    case: str | None
    """None for the op as a whole"""
    suite: Suite
    change: str
    change_range: str
    speedup: str
    speedup_range: str
    kernel: str
    reference: str
    sentence: str
    gathered: int = 1
    """verdicts that this line stands for: the accuracy of an op is one, however many of its cases are wrong"""
    about: str = ""
    """what it is about within the op, in words, if that is not the case alone; the case follows"""
    warns: bool = False
    """the gate warns although the verdict is fine"""

    @property
    def where(self) -> str:
        """What the verdict is about within the op."""
        return f"{self.about} {self.case or ''}".strip()

    @property
    def gate(self) -> Gate:
        """What it does to the merge request."""
        return Gate.WARNS if self.warns and self.verdict.gate is Gate.OK else self.verdict.gate

    @property
    def aloud(self) -> bool:
        """Whether it is never left out, nor folded away."""
        return self.gate is not Gate.OK or self.verdict is Verdict.EXPECTED

    @property
    def quiet(self) -> bool:
        """Whether there is nothing to say about it."""
        return self.verdict in _QUIET and self.suite is not Suite.COMPILED


@dataclass(frozen=True)
class Counts:
    """How many verdicts there are, the gravest first."""

    ops: int
    rows: int
    """verdicts: of cases, of an op's accuracy, of an op that failed as a whole"""
    verdicts: tuple[tuple[Verdict, int], ...]
    gate: Gate


def rows(judgements: Judgements) -> tuple[Row, ...]:
    """The lines of the verdict table: what fails, what warns, what is fine but worth saying, the rest."""
    shown = [row for group in _groups(judgements.rows) for row in _lines(group)]
    return tuple(sorted(shown, key=lambda row: rank(row.verdict, row.gate)))


@dataclass(frozen=True)
class Notes:
    """Sentences about the run as a whole, by where they belong."""

    first: tuple[str, ...]
    """before everything: how a change alters its own judging"""
    above: tuple[str, ...]
    """above the verdicts: what they are against"""
    below: tuple[str, ...]


def notes(judgements: Judgements, run: Run | None = None) -> Notes:
    """The notes in three parts, each in the judge's order."""
    missing = run.plan.base_note if run else None
    found: dict[str, list[str]] = {"first": [], "above": [], "below": []}
    for note in judgements.notes:
        above = note.kind in COMPARED or note == missing
        place = "first" if note.kind in FIRST else "above" if above else "below"
        found[place].append(wording.sentence(note))
    return Notes(*(tuple(sentences) for sentences in found.values()))


def counts(judgements: Judgements) -> Counts:
    """What the summary line says."""
    found = verdicts(rows(judgements))
    ranked = sorted(found.items(), key=lambda item: (rank(item[0]), list(Verdict).index(item[0])))
    # "shard 1/2" stands in the place of an op, whose name is that of a function.
    ops = {row.op for row in judgements.rows if " " not in row.op}
    return Counts(len(ops), found.total(), tuple(ranked), judgements.gate)


def verdicts(shown: Iterable[Row]) -> Counter[Verdict]:
    """How many verdicts of each kind these lines stand for."""
    found = Counter[Verdict]()
    for row in shown:
        found[row.verdict] += row.gathered
    return found


def tally(found: Iterable[tuple[Verdict, int]]) -> str:
    """Counts in words: 1 REGRESSED, 28 PASS."""
    return ", ".join(say("{count} {verdict}", count=count, verdict=verdict) for verdict, count in found)


def summary(judgements: Judgements, exit_code: int | None = None) -> str:
    """The closing line: 4 ops, 31 verdicts: 1 REGRESSED, 30 PASS -> fails (exit 2)."""
    found = counts(judgements)
    ended = EXIT_CODES[found.gate] if exit_code is None else exit_code
    return say("{counted} -> {gate} (exit {code})", counted=counted(found), gate=gate_word(found.gate), code=ended)


def gate_word(gate: Gate) -> str:
    """What a gate does, as people read it."""
    known = {Gate.OK: say("ok"), Gate.WARNS: say("warns"), Gate.FAILS: say("fails")}
    return known[gate]


def counted(found: Counts) -> str:
    """Ops and verdicts in words."""
    ops = say("{count:op|ops}", count=found.ops)
    verdicts = say("{count:verdict|verdicts}", count=found.rows)
    if not found.verdicts:
        return say("{ops}, {verdicts}", ops=ops, verdicts=verdicts)
    return say("{ops}, {verdicts}: {tally}", ops=ops, verdicts=verdicts, tally=tally(found.verdicts))


def latest_change(row: Judgement) -> Interval | None:
    """Against the base where there is one; else what the last process saw, free of the first look's luck."""
    duel = row.comparison.duel if row.comparison else None
    if duel:
        return as_ratio(duel.shift)
    screens = row.comparison.screens if row.comparison else ()
    return screens[-1].change if screens else None


def as_ratio(shift: Interval) -> Interval:
    """Of a shift on the log scale: ratio - 1.

    >>> as_ratio(Interval(0.0, 0.0, 0.0)).value
    0.0
    """
    return Interval(math.expm1(shift.value), math.expm1(shift.low), math.expm1(shift.high), shift.confidence)


def verdict_word(verdict: Verdict, gate: Gate | None = None) -> str:
    """In Markdown, bold where it is not fine."""
    return str(verdict) if (gate or verdict.gate) is Gate.OK else f"**{verdict}**"


def rank(verdict: Verdict, gate: Gate | None = None) -> int:
    """0 what fails, 1 what warns, 2 what was agreed on, 3 what is fine and worth saying, 4 the rest."""
    gate = gate or verdict.gate
    if gate is not Gate.OK:
        return [Gate.FAILS, Gate.WARNS].index(gate)
    return 2 if verdict is Verdict.EXPECTED else 4 if verdict in _QUIET else 3


def worst(judgements: Judgements) -> str:
    """The verdicts that the gate follows from, counted: 1 REGRESSED, 2 WRONG."""
    found = verdicts(row for row in rows(judgements) if row.gate is judgements.gate)
    return tally(sorted(found.items(), key=lambda item: list(Verdict).index(item[0])))


def _groups(judged: Iterable[Judgement]) -> list[list[Judgement]]:
    """Most one by one; accuracy by op, what a shard lost by shard; each group at its first one's place."""
    groups: dict[object, list[Judgement]] = {}
    for index, row in enumerate(judged):
        groups.setdefault(_together(row) or index, []).append(row)
    return list(groups.values())


def _together(row: Judgement) -> object:
    """What rows share that stand in one line: accuracy, cases that nothing was run for, kernels that compile alike."""
    why = row.reasons[0] if row.reasons else None
    if why and why.kind in _LOST:
        return why.kind, why.facts.get("shard")
    if row.verdict.gate is not Gate.OK and (row.suite is Suite.ACCURACY or (why and why.kind == "not_timed")):
        return row.op, row.verdict
    if row.suite is Suite.COMPILED and row.case is not None:
        why = _deciding(row)
        return row.op, row.target, row.verdict, why.kind, tuple(sorted(why.facts.items()))
    untimed = row.comparison is None or not row.comparison.measured
    if row.verdict is Verdict.UNCHANGED and row.suite is not Suite.COMPILED and untimed:
        return row.op, row.reasons[0].kind
    return None


def _deciding(row: Judgement) -> Reason:
    """The reason that is told: the first, or, where that only says that nothing is known, why."""
    first, *more = row.reasons
    return more[0] if more and first.kind == "identity_unknown" else first


def _lines(group: list[Judgement]) -> list[Row]:
    first = group[0]
    if first.reasons and first.reasons[0].kind in _LOST:
        return [_lost(group)]
    if len(group) == 1 or (first.suite is Suite.ACCURACY and first.verdict.gate is not Gate.OK):
        return [_accuracy(group) if first.suite is Suite.ACCURACY else _row(first)]
    return [_gathered(group, wording.sentence(_deciding(first)))]


def _accuracy(group: Sequence[Judgement]) -> Row:
    """An op's accuracy in one line: as a whole, else by its worst case; then that its speed was not measured."""
    whole = next((row for row in group if row.suite is Suite.ACCURACY and row.case is None), None)
    cases = [row for row in group if row.suite is Suite.ACCURACY and row.case is not None]
    first = whole or max(cases, key=lambda row: times_allowed(_deciding(row)))
    told = [_sentence(row) for row in (first, *(row for row in group if row.suite is not Suite.ACCURACY))]
    line = replace(_row(first), sentence=" ".join(told))
    return line if whole or len(cases) == 1 else replace(line, case=None, about=_about(cases))


def _lost(group: Sequence[Judgement]) -> Row:
    """A shard that gave no result, with the ops that it was to measure."""
    shard = f"shard {group[0].reasons[0].facts.get('shard')}"
    ops = [row.op for row in group if row.op != shard]
    names = ", ".join(ops[:NAMED])
    more = len(ops) - NAMED
    about = say("{ops} and {count} more", ops=names, count=more) if more > 0 else names
    return replace(_row(group[0]), op=shard, about=about, gathered=max(len(ops), 1))


def _gathered(group: list[Judgement], sentence: str) -> Row:
    first = group[0]
    return Row(
        first.verdict, first.op, None, first.suite, "-", "", "-", "", "-", "-", sentence, len(group), _about(group)
    )


def _about(group: Sequence[Judgement]) -> str:
    first = group[0]
    if len(group) > 1:
        return _about_many(group)
    if first.suite is Suite.COMPILED:
        return say("compiled for {target}", target=first.target)
    if first.case is None and first.verdict in {Verdict.ERROR, Verdict.REMOVED}:
        return say("whole op")
    if first.suite is Suite.ACCURACY:
        return say("accuracy")
    return say("speed") if first.case is None else ""


def _about_many(group: Sequence[Judgement]) -> str:
    first, count = group[0], len(group)
    if first.suite is Suite.COMPILED:
        return say("compiled for {target}, {count} cases", target=first.target, count=count)
    if first.verdict is Verdict.UNCHANGED:
        named = sum(row.case is not None for row in group)
        return say("accuracy and {cases}", cases=cases(named)) if named < count else cases(named)
    return say("accuracy of {count} cases", count=count)


def _sentence(row: Judgement) -> str:
    """The reason that decided, and what an expected entry has to say to it."""
    told = [_deciding(row)] if row.reasons else []
    told += row.reasons[1:2] if told and told[0].kind in _SUMS else []
    told += [reason for reason in row.reasons[1:] if reason.kind in BESIDE]
    return " ".join(wording.sentence(reason) for reason in told)


def _row(row: Judgement) -> Row:
    seen, change = row.comparison, latest_change(row)
    speedup = seen.speedup if seen else None
    return Row(
        verdict=row.verdict,
        op=row.op,
        case=row.case,
        suite=row.suite,
        change=units.percent(change.value if change else None, signed=True),
        change_range=between(units.percent(change.low, signed=True), units.percent(change.high, signed=True))
        if change
        else "",
        speedup=ratio(speedup.value if speedup else None),
        speedup_range=between(ratio(speedup.low), ratio(speedup.high)) if speedup else "",
        kernel=units.time(seen.kernel_us if seen else None),
        reference=units.time(seen.reference_us if seen else None),
        sentence=_sentence(row),
        about=_about([row]),
        warns=row.warns,
    )
