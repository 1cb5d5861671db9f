"""The verdict table as plain text, for Markdown and terminal alike: what failed first, accuracy gathered by op."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfci import units, wording
from perfci.model import Gate, Interval, Judgement, Judgements, Reason, Run, Suite, Verdict

EXIT_CODES = {Gate.OK: 0, Gate.WARNS: 3, Gate.FAILS: 2}
"""What a run ends with unless it is strict."""

GATE_WORDS = {Gate.OK: "OK", Gate.WARNS: "WARNS", Gate.FAILS: "FAILS"}

ACCURACY_ROWS = 3
"""Most rows of one op's accuracy shown one by one for each verdict; the others are gathered in one row."""

FIRST = frozenset({"rules_changed", "rules_differ", "pins_changed"})
"""Notes on what a change does to the way in which it is judged: they come before all else."""

COMPARED = frozenset({"compared_with", "compared_with_python", "compared_untimed"})
"""Notes without which the verdicts cannot be read: they stand above the table."""

CONFIDENCE = 0.95
"""Of intervals, where nothing else is said."""

_TIMERS = {"activity": "the device's activity records", "event": "event pairs", "virtual": "a virtual clock"}
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
    """verdicts that this line stands for"""
    about: str = ""
    """what it is about within the op, in words, if that is not the case alone; the case follows"""

    @property
    def where(self) -> str:
        """What the verdict is about within the op."""
        return f"{self.about} {self.case or ''}".strip()

    @property
    def quiet(self) -> bool:
        """Whether there is nothing to say about it."""
        return self.verdict in _QUIET and self.suite is not Suite.COMPILED


@dataclass(frozen=True)
class Counts:
    """How many verdicts there are, the gravest first."""

    ops: int
    rows: int
    """judgements: of cases, of an op's accuracy, of an op that failed as a whole"""
    verdicts: tuple[tuple[Verdict, int], ...]
    gate: Gate


def rows(judgements: Judgements) -> tuple[Row, ...]:
    """The lines of the verdict table: what fails, what warns, what is fine but worth saying, the rest."""
    shown = [row for group in _groups(judgements.rows) for row in _lines(group)]
    return tuple(sorted(shown, key=lambda row: rank(row.verdict)))


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
    found = Counter(row.verdict for row in judgements.rows)
    ranked = sorted(found.items(), key=lambda item: (rank(item[0]), list(Verdict).index(item[0])))
    return Counts(len({row.op for row in judgements.rows}), len(judgements.rows), tuple(ranked), judgements.gate)


def tally(found: Iterable[tuple[Verdict, int]]) -> str:
    """Counts in words: 1 REGRESSED, 28 PASS."""
    return ", ".join(f"{count} {verdict}" for verdict, count in found)


def summary(judgements: Judgements, exit_code: int | None = None) -> str:
    """The closing line: 4 ops, 31 verdicts: 1 REGRESSED, 30 PASS -> fails (exit 2)."""
    found = counts(judgements)
    ended = EXIT_CODES[found.gate] if exit_code is None else exit_code
    return f"{counted(found)} -> {found.gate} (exit {ended})"


def counted(found: Counts) -> str:
    """Ops and verdicts in words."""
    verdicts = f": {tally(found.verdicts)}" if found.verdicts else ""
    return f"{number(found.ops, 'op')}, {number(found.rows, 'verdict')}{verdicts}"


def number(count: int, noun: str, nouns: str | None = None) -> str:
    """A count with its noun.

    >>> number(1, "case"), number(2, "case"), number(0, "launch", "launches")
    ('1 case', '2 cases', '0 launches')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {nouns or noun + 's'}"


def timed_by(timer: str | None) -> str:
    """How launches were timed, as the end of a sentence.

    >>> timed_by("event"), timed_by(None)
    (', timed by event pairs', '')
    """
    return f", timed by {_TIMERS.get(timer, timer)}" if timer else ""


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


def ratio(value: float | None) -> str:
    """A speedup.

    >>> ratio(1.6234), ratio(None)
    ('1.62x', '-')
    """
    return "-" if value is None else f"{units.significant(value)}x"


def speedup(interval: Interval | None) -> str:
    """A speedup with its interval.

    >>> speedup(Interval(1.62, 1.58, 1.66))
    '1.62x (1.58x to 1.66x)'
    """
    return f"{ratio(interval.value)} ({ratio(interval.low)} to {ratio(interval.high)})" if interval else "-"


def verdict_word(verdict: Verdict) -> str:
    """In Markdown, bold where it is not fine."""
    return str(verdict) if verdict.gate is Gate.OK else f"**{verdict}**"


def rank(verdict: Verdict) -> int:
    """0 what fails, 1 what warns, 2 what is fine and worth saying, 3 the rest."""
    if verdict.gate is not Gate.OK:
        return [Gate.FAILS, Gate.WARNS].index(verdict.gate)
    return 3 if verdict in _QUIET else 2


def _groups(judged: Iterable[Judgement]) -> list[list[Judgement]]:
    """Most one by one; accuracy, and what was not timed, by op; each group at its first one's place."""
    groups: dict[object, list[Judgement]] = {}
    for index, row in enumerate(judged):
        groups.setdefault(_together(row) or index, []).append(row)
    return list(groups.values())


def _together(row: Judgement) -> object:
    """What rows share that stand in one line: accuracy, cases that nothing was run for, kernels that compile alike."""
    if row.suite is Suite.ACCURACY and row.case is not None:
        return row.op, row.suite, row.verdict
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
    if len(group) == 1:
        return [_row(first)]
    if first.suite is not Suite.ACCURACY or first.verdict is Verdict.UNCHANGED:
        return [_gathered(group, wording.sentence(_deciding(first)))]
    if first.verdict.gate is Gate.OK:
        return [_gathered(group, f"{len(group)} accuracy cases are right.")]
    rest = group[ACCURACY_ROWS:]
    more = (
        [
            _gathered(
                rest, f"{len(rest)} more accuracy cases are {first.verdict}; the report and `perfci show` have them."
            )
        ]
        if rest
        else []
    )
    return [*(_row(row) for row in group[:ACCURACY_ROWS]), *more]


def _gathered(group: list[Judgement], sentence: str) -> Row:
    first = group[0]
    return Row(
        first.verdict, first.op, None, first.suite, "-", "", "-", "", "-", "-", sentence, len(group), _about(group)
    )


def _about(group: Sequence[Judgement]) -> str:
    first, many = group[0], len(group) > 1
    if first.suite is Suite.COMPILED:
        return f"compiled for {first.target}{f', {len(group)} cases' if many else ''}"
    if many and first.verdict is Verdict.UNCHANGED:
        cases = sum(row.case is not None for row in group)
        return " and ".join([*(["accuracy"] if cases < len(group) else []), number(cases, "case")])
    if many:
        return f"accuracy of {len(group)} cases"
    if first.case is None and first.verdict in {Verdict.ERROR, Verdict.REMOVED}:
        return "whole op"
    if first.suite is Suite.ACCURACY:
        return "accuracy"
    return "speed" if first.case is None else ""


def _row(row: Judgement) -> Row:
    seen, change = row.comparison, latest_change(row)
    speedup = seen.speedup if seen else None
    return Row(
        verdict=row.verdict,
        op=row.op,
        case=row.case,
        suite=row.suite,
        change=units.percent(change.value if change else None, signed=True),
        change_range=f"{units.percent(change.low, signed=True)} to {units.percent(change.high, signed=True)}"
        if change
        else "",
        speedup=ratio(speedup.value if speedup else None),
        speedup_range=f"{ratio(speedup.low)} to {ratio(speedup.high)}" if speedup else "",
        kernel=units.time(seen.kernel_us if seen else None),
        reference=units.time(seen.reference_us if seen else None),
        sentence=wording.sentence(_deciding(row)) if row.reasons else "",
        about=_about([row]),
    )
