"""The plain view of verdicts that every format renders: terminal, Markdown, HTML, note, JUnit, metrics."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from perfci.core import units
from perfci.core.model import Gate, Interval, Judgement, Judgements, Reason, Run, Suite, Verdict, choose_look
from perfci.core.wording import join, say, sentence
from perfci.measure.closeness import times_allowed
from perfci.report.text import list_some, strong
from perfci.report.words import count_cases, write_change, write_ends, write_ratio
from perfci.statistics import exact

EXIT_CODES = {Gate.OK: 0, Gate.WARNS: 3, Gate.FAILS: 2}  # exit codes of a run that is not strict

FIRST = {
    "baselines_edited", "baselines_proposed", "cache_changed", "expected_added", "pins_changed", "rules_changed",
    "rules_differ", "rules_gone", "threshold_loosened", "thresholds_carried", "thresholds_given", "weaker_added",
    "weaker_fewer", "weaker_tolerance", "weaker_flag", "weaker_number", "weaker_inputs", "weaker_reference",
    "weaker_answers", "weaker_unknown", "change_interface", "change_logic", "lock_displaced",
}  # fmt: skip
"""Notes on how a change, or a command line, alters its judging, and on a lock that others do not see. They come
before everything else."""

BESIDE = {
    "expected_overdue", "expected_ended", "expected_exceeded", "expected_open",
    "worker_died", "worker_exited", "worker_hung", "worker_killed", "worker_late", "device_gone",
    "model_case", "model_at_most", "model_isolated_win",
}  # fmt: skip
"""Reasons that are shown beside the one that decided: what an entry adds, and how a wrong op ended."""

COMPARED = {"compared_with", "compared_with_python", "compared_again", "compared_release", "compared_untimed"}
"""Notes on what the verdicts are compared with. They are shown above the table."""

MODEL = {f"model_{way}{much}" for way in ("slower", "faster") for much in ("", "_at_most")}
"""Notes on what it costs a model. The head has them."""


def is_model(op: str) -> bool:
    """Whether the rows of an op are those of a model: no op has such a name."""
    return op.startswith("model-")


STATISTICS = {"how_judged", "how_duelled", "common_shift", "tested_by_screen", "tested_by_duel", "environment_named"}
"""Notes on how it was judged, for the report. `find_doubt` makes one line of them."""

CONFIDENCE = 0.95  # confidence of intervals, unless something else is stated
NAMED = 3  # most ops that one row names

_LOST = {"shard_missing", "shard_unfinished"}

_SUMS = {"accuracy_failed", "accuracy_beyond_limits"}
"""Reasons that only count. The reason behind them has what is wrong."""

_FINE = {Verdict.PASS, Verdict.UNCHANGED}


@dataclass(frozen=True)
class VerdictRow:
    """One line of the verdict table. Texts are not escaped yet."""

    verdict: Verdict
    gate: Gate  # what it does to the merge request. The gate may warn although the verdict is fine
    op: str
    case: str | None  # None for the op as a whole
    suite: Suite
    sentence: str
    first: Judgement  # that it is about, or the gravest of several
    about: str = ""  # what it is about within the op, in words, if that is not the case alone
    gathered: int = 1  # number of verdicts in this line: an op's accuracy is one, however many of its cases are wrong
    change: str = "-"
    change_range: str = ""
    speedup: str = "-"
    speedup_range: str = ""
    kernel: str = "-"
    reference: str = "-"
    host: str = "-"  # how long a call keeps it, if a loop of calls waits for the host for half of its time

    @property
    def where(self) -> str:
        """What the verdict is about within the op."""
        return f"{self.about} {self.case or ''}".strip()

    @property
    def marked(self) -> str:
        """The verdict, strong if it is not fine."""
        return str(self.verdict) if self.gate is Gate.OK else strong(self.verdict)

    @property
    def aloud(self) -> bool:
        """Returns whether it is never left out, nor folded."""
        return self.gate is not Gate.OK or self.verdict is Verdict.EXPECTED

    @property
    def quiet(self) -> bool:
        """Whether its verdict is enough."""
        return self.verdict in _FINE and self.suite is not Suite.COMPILED

    @property
    def rank(self) -> int:
        """0 if it fails."""
        return rank(self.verdict, self.gate)


@dataclass(frozen=True)
class Counts:
    """The number of verdicts, the gravest first."""

    ops: int
    rows: int  # verdicts: of cases, of an op's accuracy, of an op that failed as a whole
    verdicts: tuple[tuple[Verdict, int], ...]
    gate: Gate


def find_doubt(judgements: Judgements) -> float | None:
    """Returns the chance of any false alarm in a run at most: alpha for all duels, and each for time and span alone.

    None if no statistical test judged anything.
    """
    shares = {"how_duelled": 1, "how_judged": 2}
    notes = [(shares[note.kind], note.facts.get("alpha")) for note in judgements.notes if note.kind in shares]
    doubt = [share * alpha for share, alpha in notes if isinstance(alpha, float)]  # a stored note may say anything
    return sum(doubt) if doubt else None


def split_notes(judgements: Judgements, run: Run | None) -> tuple[list[str], ...]:
    """Returns the notes by their place: before everything, above the verdicts, and below. Each in the judge's order."""
    no_base = run.plan.base_note if run else None
    first = [note for note in judgements.notes if note.kind in FIRST]
    rest = [note for note in judgements.notes if note.kind not in FIRST]
    above = [note for note in rest if note.kind in COMPARED or note == no_base]
    below = [note for note in rest if note not in above and note.kind not in MODEL]
    return tuple([sentence(note) for note in notes] for notes in (first, above, below))


# --- counts -----------------------------------------------------------------------------------------------------------


def count_verdicts(shown: Iterable[VerdictRow]) -> Counter[Verdict]:
    """Returns how many verdicts of each kind these lines have."""
    verdicts = Counter[Verdict]()
    for row in shown:
        verdicts[row.verdict] += row.gathered
    return verdicts


def count_all(judgements: Judgements) -> Counts:
    """Returns the counts of the summary line."""
    verdicts = count_verdicts(make_rows(judgements))
    ranked = sorted(verdicts.items(), key=lambda item: (rank(item[0]), list(Verdict).index(item[0])))
    # A lost shard, "shard 1/2", has a blank in its name. An op has none.
    ops = {row.op for row in judgements.rows if " " not in row.op and not is_model(row.op)}
    return Counts(len(ops), verdicts.total(), tuple(ranked), judgements.gate)


def write_tally(counts: Iterable[tuple[Verdict, int]]) -> str:
    """Writes counts in words: 1 REGRESSED, 28 PASS."""
    return ", ".join(say("{count} {verdict}", count=count, verdict=verdict) for verdict, count in counts)


def write_counts(counts: Counts) -> str:
    """Writes the number of ops and verdicts in words."""
    ops = say("{count:op|ops}", count=counts.ops)
    verdicts = say("{count:verdict|verdicts}", count=counts.rows)
    if not counts.verdicts:
        return say("{ops}, {verdicts}", ops=ops, verdicts=verdicts)
    return say("{ops}, {verdicts}: {tally}", ops=ops, verdicts=verdicts, tally=write_tally(counts.verdicts))


def write_summary(judgements: Judgements, exit_code: int | None = None) -> str:
    """Writes the closing line: 4 ops, 31 verdicts: 1 REGRESSED, 30 PASS -> fails (exit 2)."""
    summary = count_all(judgements)
    code = EXIT_CODES[summary.gate] if exit_code is None else exit_code
    return say(
        "{counted} -> {gate} (exit {code})", counted=write_counts(summary), gate=name_gate(summary.gate), code=code
    )


def name_gate(gate: Gate) -> str:
    """Returns the name of a gate in the reader's language."""
    return {Gate.OK: say("ok"), Gate.WARNS: say("warns"), Gate.FAILS: say("fails")}[gate]


def rank(verdict: Verdict, gate: Gate | None = None) -> int:
    """Returns 0 if it fails, 1 if it warns, 2 if it was agreed on, 3 if it is fine and worth knowing, 4 otherwise."""
    gate = gate or verdict.gate
    if gate is not Gate.OK:
        return [Gate.FAILS, Gate.WARNS].index(gate)
    return 2 if verdict is Verdict.EXPECTED else 4 if verdict in _FINE else 3


# --- numbers ----------------------------------------------------------------------------------------------------------


def find_change(row: Judgement) -> Interval | None:
    """Returns the change against the base, else against the baseline."""
    seen = row.comparison
    if seen and seen.duel:
        return exact.to_ratio(seen.duel.shift)
    return choose_look(seen.screens).change if seen and seen.screens else None


# --- rows -------------------------------------------------------------------------------------------------------------


def make_rows(judgements: Judgements) -> tuple[VerdictRow, ...]:
    """Returns the lines of the verdict table, the gravest first. Judgements with one meaning for an op share a line."""
    groups: dict[object, list[Judgement]] = {}
    for index, row in enumerate(judgements.rows):
        groups.setdefault(_find_group(row) or index, []).append(row)
    return tuple(sorted(map(_make_row, groups.values()), key=lambda row: row.rank))


def _find_group(row: Judgement) -> object:
    """Returns what the judgements of one line share. None if the judgement has a separate line."""
    why = row.reasons[0] if row.reasons else None
    if why and why.kind in _LOST:
        return why.kind, why.facts.get("shard")
    if row.verdict.gate is not Gate.OK and (row.suite is Suite.ACCURACY or (why and why.kind == "not_timed")):
        return row.op, row.verdict
    if row.suite is Suite.COMPILED:
        why = _find_decisive(row)
        return row.case and (row.op, row.target, row.verdict, why.kind, tuple(sorted(why.facts.items())))
    if why and row.verdict is Verdict.UNCHANGED and not (row.comparison and row.comparison.measured):
        return row.op, why.kind
    return None


def _find_decisive(row: Judgement) -> Reason:
    """Returns the reason that is shown: the first, or why nothing is known if the first only states that."""
    first, *more = row.reasons
    return more[0] if more and first.kind == "identity_unknown" else first


def _make_row(group: list[Judgement]) -> VerdictRow:
    first = group[0]
    if first.reasons and first.reasons[0].kind in _LOST:
        # A shard that gave no result, with the ops that it was to measure.
        shard = f"shard {first.reasons[0].facts.get('shard')}"
        ops = [row.op for row in group if row.op != shard]
        return replace(_make_single_row(first), op=shard, about=list_some(ops, NAMED), gathered=max(len(ops), 1))
    if first.verdict.gate is not Gate.OK and first.suite is Suite.ACCURACY:
        # An op's accuracy as a whole, or by its worst case. Then that its speed was not measured.
        checks = [row for row in group if row.suite is Suite.ACCURACY]
        worst = max(checks, key=lambda row: (row.case is None, times_allowed(_find_decisive(row))))
        shown = (worst, *(row for row in group if row.suite is not Suite.ACCURACY))
        line = replace(_make_single_row(worst), sentence=join(map(_write_reasons, shown)))
        gathered = worst.case is not None and len(checks) > 1
        return replace(line, case=None, about=_describe_group(checks)) if gathered else line
    if len(group) == 1:
        return _make_single_row(first)
    why = sentence(_find_decisive(first))
    return VerdictRow(
        first.verdict, first.gate, first.op, None, first.suite, why, first, _describe_group(group), len(group)
    )


def _describe_group(group: Sequence[Judgement]) -> str:
    """Returns what a line is about within its op."""
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
    if first.suite in {Suite.ACCURACY, Suite.SUITES}:
        return say("accuracy") if first.suite is Suite.ACCURACY else say("suites")
    if first.case is None:
        return say("by its ops") if is_model(first.op) else say("speed")
    return ""


def _write_reasons(row: Judgement) -> str:
    """Writes the reason that decided, and what an expected entry adds to it."""
    if not row.reasons:
        return ""
    shown = [_find_decisive(row)]
    shown += row.reasons[1:2] if shown[0].kind in _SUMS else []
    shown += [reason for reason in row.reasons[1:] if reason.kind in BESIDE]
    return join(map(sentence, shown))


def _make_single_row(row: Judgement) -> VerdictRow:
    seen, change = row.comparison, find_change(row)
    host = seen.host if seen else None
    speedup = seen.speedup if seen else None
    return VerdictRow(
        verdict=row.verdict,
        gate=row.gate,
        op=row.op,
        case=row.case,
        suite=row.suite,
        sentence=_write_reasons(row),
        first=row,
        about=_describe_group([row]),
        change=write_change(change.value if change else None),
        change_range=write_ends(change, write_change),
        speedup=write_ratio(speedup.value if speedup else None),
        speedup_range=write_ends(speedup, write_ratio),
        kernel=units.time(seen.kernel_us if seen else None),
        reference=units.time(seen.reference_us if seen else None),
        host=units.time(host.host_us if host and host.host_us > host.loop_us / 2 else None),
    )
