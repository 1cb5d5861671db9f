"""The plain view of verdicts that every format renders: terminal, Markdown, HTML, note, JUnit, metrics.

`make_rows` gives one `VerdictRow` a line, the gravest first. Its texts are plain and not escaped. `split_notes` gives
the sentences about the run as a whole, by where they belong. `count_all` and `count_verdicts` count. `write_summary`,
`write_counts`, `write_tally`, `write_worst` and `name_gate` put counts and gates into words. `find_change` is the
change that a verdict is about, `to_ratio` a shift as ratio - 1, `rank` the order of verdicts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from perfci.core import units
from perfci.core.model import Gate, Interval, Judgement, Judgements, Reason, Run, Suite, Verdict
from perfci.core.wording import say, sentence
from perfci.measure.closeness import times_allowed
from perfci.report.text import list_some, strong
from perfci.report.words import count_cases, write_range, write_ratio

EXIT_CODES = {Gate.OK: 0, Gate.WARNS: 3, Gate.FAILS: 2}
"""What a run ends with unless it is strict."""

FIRST = frozenset(
    {
        "baselines_edited",
        "baselines_proposed",
        "cache_changed",
        "expected_added",
        "pins_changed",
        "rules_changed",
        "rules_differ",
        "rules_gone",
        "threshold_loosened",
        "thresholds_carried",
        "thresholds_given",
    }
)
"""Notes on what a change, or a command line, does to the way in which it is judged: they come before all else."""

BESIDE = frozenset({"expected_overdue", "expected_ended", "expected_exceeded", "expected_open"})
"""Reasons that stand beside the one that decided."""

COMPARED = frozenset(
    {"compared_with", "compared_with_python", "compared_again", "compared_release", "compared_untimed"}
)
"""Notes without which the verdicts cannot be read: they stand above the table."""

CONFIDENCE = 0.95
"""Of intervals, unless something else is stated."""

NAMED = 3
"""Most ops that one row names."""

_LOST = frozenset({"shard_missing", "shard_unfinished"})

_SUMS = frozenset({"accuracy_failed", "accuracy_beyond_limits"})
"""Reasons that only count: the next one is what is wrong."""

_QUIET = frozenset({Verdict.PASS, Verdict.UNCHANGED})


@dataclass(frozen=True)
class VerdictRow:
    """One line of the verdict table. Texts are as they come, not yet escaped."""

    verdict: Verdict
    op: str
    case: str | None
    """None for the op as a whole"""
    suite: Suite
    sentence: str
    change: str = "-"
    change_range: str = ""
    speedup: str = "-"
    speedup_range: str = ""
    kernel: str = "-"
    reference: str = "-"
    gathered: int = 1
    """verdicts that this line stands for: the accuracy of an op is one, however many of its cases are wrong"""
    about: str = ""
    """what it is about within the op, in words, if that is not the case alone. The case follows"""
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
    def marked(self) -> str:
        """The verdict, strong if it is not fine."""
        return str(self.verdict) if self.gate is Gate.OK else strong(self.verdict)

    @property
    def aloud(self) -> bool:
        """Whether it is never left out, nor folded away."""
        return self.gate is not Gate.OK or self.verdict is Verdict.EXPECTED

    @property
    def quiet(self) -> bool:
        """Whether its reason adds nothing."""
        return self.verdict in _QUIET and self.suite is not Suite.COMPILED

    @property
    def ranged_change(self) -> str:
        """The change with its interval."""
        if not self.change_range:
            return self.change
        return say("{value} ({interval})", value=self.change, interval=self.change_range)

    @property
    def ranged_speedup(self) -> str:
        """The speedup with its interval."""
        if not self.speedup_range:
            return self.speedup
        return say("{value} ({interval})", value=self.speedup, interval=self.speedup_range)


@dataclass(frozen=True)
class Counts:
    """How many verdicts there are, the gravest first."""

    ops: int
    rows: int
    """verdicts: of cases, of an op's accuracy, of an op that failed as a whole"""
    verdicts: tuple[tuple[Verdict, int], ...]
    gate: Gate


@dataclass(frozen=True)
class RunNotes:
    """Sentences about the run as a whole, by where they belong."""

    first: tuple[str, ...]
    """before everything: how a change alters its own judging"""
    above: tuple[str, ...]
    """above the verdicts: what they are against"""
    below: tuple[str, ...]


def make_rows(judgements: Judgements) -> tuple[VerdictRow, ...]:
    """The lines of the verdict table: what fails, what warns, what is fine but worth knowing, the rest.

    Most judgements have a line each. Accuracy is gathered by op, what a shard lost by shard.
    """
    groups: dict[object, list[Judgement]] = {}
    for index, row in enumerate(judgements.rows):
        groups.setdefault(_find_group(row) or index, []).append(row)
    return tuple(sorted(map(_make_row, groups.values()), key=lambda row: rank(row.verdict, row.gate)))


def split_notes(judgements: Judgements, run: Run | None = None) -> RunNotes:
    """The notes in three parts, each in the judge's order."""
    missing = run.plan.base_note if run else None
    found: dict[str, list[str]] = {"first": [], "above": [], "below": []}
    for note in judgements.notes:
        above = note.kind in COMPARED or note == missing
        place = "first" if note.kind in FIRST else "above" if above else "below"
        found[place].append(sentence(note))
    return RunNotes(*(tuple(sentences) for sentences in found.values()))


# --- counts -----------------------------------------------------------------------------------------------------------


def count_verdicts(shown: Iterable[VerdictRow]) -> Counter[Verdict]:
    """How many verdicts of each kind these lines stand for."""
    found = Counter[Verdict]()
    for row in shown:
        found[row.verdict] += row.gathered
    return found


def count_all(judgements: Judgements) -> Counts:
    """What the summary line states."""
    found = count_verdicts(make_rows(judgements))
    ranked = sorted(found.items(), key=lambda item: (rank(item[0]), list(Verdict).index(item[0])))
    # "shard 1/2" stands in the place of an op, whose name is that of a function.
    ops = {row.op for row in judgements.rows if " " not in row.op}
    return Counts(len(ops), found.total(), tuple(ranked), judgements.gate)


def write_tally(found: Iterable[tuple[Verdict, int]]) -> str:
    """Counts in words: 1 REGRESSED, 28 PASS."""
    return ", ".join(say("{count} {verdict}", count=count, verdict=verdict) for verdict, count in found)


def write_counts(found: Counts) -> str:
    """Ops and verdicts in words."""
    ops = say("{count:op|ops}", count=found.ops)
    verdicts = say("{count:verdict|verdicts}", count=found.rows)
    if not found.verdicts:
        return say("{ops}, {verdicts}", ops=ops, verdicts=verdicts)
    return say("{ops}, {verdicts}: {tally}", ops=ops, verdicts=verdicts, tally=write_tally(found.verdicts))


def write_summary(judgements: Judgements, exit_code: int | None = None) -> str:
    """The closing line: 4 ops, 31 verdicts: 1 REGRESSED, 30 PASS -> fails (exit 2)."""
    found = count_all(judgements)
    ended = EXIT_CODES[found.gate] if exit_code is None else exit_code
    counted = write_counts(found)
    return say("{counted} -> {gate} (exit {code})", counted=counted, gate=name_gate(found.gate), code=ended)


def write_worst(judgements: Judgements) -> str:
    """The verdicts that the gate follows from, counted: 1 REGRESSED, 2 WRONG."""
    found = count_verdicts(row for row in make_rows(judgements) if row.gate is judgements.gate)
    return write_tally(sorted(found.items(), key=lambda item: list(Verdict).index(item[0])))


def name_gate(gate: Gate) -> str:
    """What a gate does, as people read it."""
    return {Gate.OK: say("ok"), Gate.WARNS: say("warns"), Gate.FAILS: say("fails")}[gate]


def rank(verdict: Verdict, gate: Gate | None = None) -> int:
    """0 what fails, 1 what warns, 2 what was agreed on, 3 what is fine and worth knowing, 4 the rest."""
    gate = gate or verdict.gate
    if gate is not Gate.OK:
        return [Gate.FAILS, Gate.WARNS].index(gate)
    return 2 if verdict is Verdict.EXPECTED else 4 if verdict in _QUIET else 3


# --- numbers ----------------------------------------------------------------------------------------------------------


def find_change(row: Judgement) -> Interval | None:
    """Against the base if there is one, else what the last process saw, free of the first look's luck."""
    duel = row.comparison.duel if row.comparison else None
    if duel:
        return to_ratio(duel.shift)
    screens = row.comparison.screens if row.comparison else ()
    return screens[-1].change if screens else None


def to_ratio(shift: Interval) -> Interval:
    """A shift on the log scale as ratio - 1.

    >>> to_ratio(Interval(0.0, 0.0, 0.0)).value
    0.0
    """
    return Interval(math.expm1(shift.value), math.expm1(shift.low), math.expm1(shift.high), shift.confidence)


# --- rows -------------------------------------------------------------------------------------------------------------


def _find_group(row: Judgement) -> object:
    """What rows share that stand in one line: accuracy, cases that nothing was run for, kernels that compile alike."""
    why = row.reasons[0] if row.reasons else None
    if why and why.kind in _LOST:
        return why.kind, why.facts.get("shard")
    if row.verdict.gate is not Gate.OK and (row.suite is Suite.ACCURACY or (why and why.kind == "not_timed")):
        return row.op, row.verdict
    if row.suite is Suite.COMPILED and row.case is not None:
        why = _find_decisive(row)
        return row.op, row.target, row.verdict, why.kind, tuple(sorted(why.facts.items()))
    untimed = row.comparison is None or not row.comparison.measured
    if row.verdict is Verdict.UNCHANGED and row.suite is not Suite.COMPILED and untimed:
        return row.op, row.reasons[0].kind
    return None


def _find_decisive(row: Judgement) -> Reason:
    """The reason that is shown: the first, or why nothing is known if the first only states that."""
    first, *more = row.reasons
    return more[0] if more and first.kind == "identity_unknown" else first


def _make_row(group: list[Judgement]) -> VerdictRow:
    first = group[0]
    if first.reasons and first.reasons[0].kind in _LOST:
        # A shard that gave no result, with the ops that it was to measure.
        shard = f"shard {first.reasons[0].facts.get('shard')}"
        ops = [row.op for row in group if row.op != shard]
        about = list_some(ops, NAMED)
        return replace(_make_single_row(first), op=shard, about=about, gathered=max(len(ops), 1))
    failing_accuracy = first.suite is Suite.ACCURACY and first.verdict.gate is not Gate.OK
    if len(group) > 1 and not failing_accuracy:
        why, about = sentence(_find_decisive(first)), _describe_group(group)
        return VerdictRow(first.verdict, first.op, None, first.suite, why, gathered=len(group), about=about)
    if first.suite is not Suite.ACCURACY:
        return _make_single_row(first)
    # An op's accuracy as a whole, else by its worst case. Then that its speed was not measured.
    whole = next((row for row in group if row.suite is Suite.ACCURACY and row.case is None), None)
    cases = [row for row in group if row.suite is Suite.ACCURACY and row.case is not None]
    worst = whole or max(cases, key=lambda row: times_allowed(_find_decisive(row)))
    shown = (worst, *(row for row in group if row.suite is not Suite.ACCURACY))
    line = replace(_make_single_row(worst), sentence=" ".join(map(_write_reasons, shown)))
    return line if whole or len(cases) == 1 else replace(line, case=None, about=_describe_group(cases))


def _describe_group(group: Sequence[Judgement]) -> str:
    """What a line is about within its op."""
    first, count = group[0], len(group)
    if first.suite is Suite.COMPILED:
        if count == 1:
            return say("compiled for {target}", target=first.target)
        return say("compiled for {target}, {count} cases", target=first.target, count=count)
    if count > 1 and first.verdict is Verdict.UNCHANGED:
        named = sum(row.case is not None for row in group)
        return say("accuracy and {cases}", cases=count_cases(named)) if named < count else count_cases(named)
    if count > 1:
        return say("accuracy of {count} cases", count=count)
    if first.case is None and first.verdict in {Verdict.ERROR, Verdict.REMOVED}:
        return say("whole op")
    if first.suite is Suite.ACCURACY:
        return say("accuracy")
    return say("speed") if first.case is None else ""


def _write_reasons(row: Judgement) -> str:
    """The reason that decided, and what an expected entry adds to it."""
    shown = [_find_decisive(row)] if row.reasons else []
    shown += row.reasons[1:2] if shown and shown[0].kind in _SUMS else []
    shown += [reason for reason in row.reasons[1:] if reason.kind in BESIDE]
    return " ".join(map(sentence, shown))


def _make_single_row(row: Judgement) -> VerdictRow:
    seen, change = row.comparison, find_change(row)
    speedup = seen.speedup if seen else None
    made = VerdictRow(
        verdict=row.verdict,
        op=row.op,
        case=row.case,
        suite=row.suite,
        sentence=_write_reasons(row),
        change=units.percent(change.value if change else None, signed=True),
        speedup=write_ratio(speedup.value if speedup else None),
        kernel=units.time(seen.kernel_us if seen else None),
        reference=units.time(seen.reference_us if seen else None),
        about=_describe_group([row]),
        warns=row.warns,
    )
    if change:
        ends = (units.percent(end, signed=True) for end in (change.low, change.high))
        made = replace(made, change_range=write_range(*ends))
    if speedup:
        made = replace(made, speedup_range=write_range(write_ratio(speedup.low), write_ratio(speedup.high)))
    return made
