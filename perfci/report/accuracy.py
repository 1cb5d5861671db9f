"""The accuracy part of an op's section: failures first, then the errors of every case."""

import math
from collections.abc import Iterable, Iterator, Sequence

from perfci.core import units
from perfci.core.model import AccuracyCase, ErrorStats, OpRun
from perfci.core.model.measured import ORDINARY
from perfci.core.wording import say, sentence
from perfci.report import words
from perfci.report.text import code, phrase, plain
from perfci.report.view import Section, Table, make_table

FAILURES = 10  # most failing cases listed one by one
GREW = 1.5  # times as large as before from which an L2 error is shown though it passes
FEWEST = 1000  # elements with an L2 error that is not chance

LIMITS = frozenset({"checked_errors_overall", "checked_errors_in_places"})
"""Reasons of cases that passed their checks and are less exact than thresholds ask for."""


def describe_failures(op: OpRun) -> Iterator[str]:
    """Returns a sentence for each failing case, with the inputs of its first failing check. Counts the others."""
    failed = [check for check in op.accuracy if check.failure]
    first = list({check.case: check for check in reversed(failed)}.values())[::-1][:FAILURES]
    for check in first:
        why = plain(sentence(check.failure)) if check.failure else ""
        named = check.failure and check.failure.facts.get("case") == check.case  # by its sentence
        facts = {"values": plain(check.values), "layout": plain(check.layout)}
        inputs = say("{values} values, {layout}, seed {seed}", seed=check.seed, **facts)
        yield f"{inputs if named else f'{code(check.case)}, {inputs}'}: {why}"
    if rest := len(failed) - len(first):
        yield say("{count:more accuracy check|more accuracy checks} failed; run.json holds them all.", count=rest)


# --- precision that was lost ------------------------------------------------------------------------------------------

Pair = tuple[str, ErrorStats | None, ErrorStats | None]  # a case, its errors now and before


def find_growth(now: ErrorStats | None, before: ErrorStats | None) -> float:
    """How many times as large as before an L2 error is, 0.0 if that is not to be shown. Infinite beside none."""
    if not now or not before or min(now.count, before.count) < FEWEST or not now.l2 or before.l2 is None:
        return 0.0
    grown = now.l2 / before.l2 if before.l2 else math.inf
    return grown if grown >= GREW else 0.0


def describe_losses(pairs: Iterable[Pair], than: str) -> Iterator[str]:
    """Returns a sentence for each case that passes and is less exact than before, the worst first."""
    grown: dict[str, tuple[float, ErrorStats, ErrorStats]] = {}
    for case, now, before in pairs:
        growth = find_growth(now, before)
        if now and before and growth > grown.get(case, (0.0,))[0]:
            grown[case] = growth, now, before
    worst = sorted(grown.items(), key=lambda entry: -entry[1][0])
    for case, (_, now, before) in worst[:FAILURES]:
        yield say(
            "{case} passes, less exact than {than}: L2 error {now:n}, was {before:n}; {share:%} of what is allowed.",
            case=code(case), than=than, now=now.l2, before=before.l2, share=now.of_allowed,
        )  # fmt: skip
    if (rest := len(worst) - FAILURES) > 0:
        yield say("Less exact as well: {count:case|cases}.", count=rest)


def compare_with_base(op: OpRun) -> Iterator[str]:
    """Returns what passes and is less exact than the base's kernel on the same inputs."""
    pairs = ((check.case, check.errors, check.base_errors) for check in op.accuracy if not check.failure)
    return describe_losses(pairs, say("with the base's kernel on the same inputs"))


# --- the errors of every case -----------------------------------------------------------------------------------------


def make_parts(op: OpRun) -> Iterator[Section]:
    """Returns the table of errors."""
    note = phrase(
        "Errors against the float64 reference, the worst of a case's checks with ordinary values, or of its timed "
        "outputs. *reference's*: the largest error of the reference itself, computed in the same dtype. *L2*: the norm "
        "of the error over that of the float64 reference. *of allowed*: the largest error of all checks as a share of "
        "the tolerance, or, beyond that, of what the reference's errors allow. The nearest to it come first."
    )
    yield Section(say("{op}: accuracy", op=plain(op.op, 80)), (note,), table=_tabulate_errors(op))


def _tabulate_errors(op: OpRun) -> Table:
    groups: dict[str, list[AccuracyCase]] = {}
    for check in op.accuracy:
        name = say("bad input") if check.case.startswith("rejects=") else code(check.case)
        groups.setdefault(name, []).append(check)
    rows = [(find_nearest(group), _write_row(name, group)) for name, group in groups.items()]
    for case in op.performance:
        if case.errors:
            name, share = say("{case}, timed", case=code(case.case)), case.errors.of_allowed
            figures = _write_errors([case.errors], [])
            rows.append(((share or 0.0, ""), (name, "-", "-", "-", *figures, units.percent(share), "-")))
    heads = (
        "case | checks: | failed: | not checked: | max abs error: | reference's: | max rel: | L2: | of allowed: | "
        "tolerance (rtol, atol):"
    )
    return make_table(heads, (row for _, row in sorted(rows, key=lambda row: -row[0][0])))


def find_nearest(checks: Iterable[AccuracyCase]) -> tuple[float, str]:
    """Returns the largest share of what is allowed, and the kind of values that it is of. 0.0 if none is known."""
    nearest = ((check.errors.of_allowed or 0.0, check.values) for check in checks if check.errors)
    return max(nearest, default=(0.0, ""))


def _write_row(name: str, group: Sequence[AccuracyCase]) -> tuple[str, ...]:
    failed, unchecked = (
        sum(bool(reason) for reason in reasons)
        for reasons in zip(*((check.failure, check.unchecked) for check in group), strict=True)
    )
    # Ordinary errors are invisible beside those of the largest numbers that a dtype holds.
    ordinary = [check for check in group if check.values == ORDINARY]
    errors = [check.errors for check in ordinary if check.errors]
    share, values = find_nearest(group)
    row = any(check.errors and check.errors.of_allowed is not None for check in group)
    allowed = units.percent(share) if row else "-"
    return (
        name,
        str(len(group) - unchecked),
        str(failed or "-"),
        str(unchecked or "-"),
        *_write_errors(errors, [check.reference_errors for check in ordinary if check.reference_errors]),
        allowed if values == ORDINARY or not row or not share else f"{allowed} ({plain(values)})",
        _write_tolerances(ordinary),
    )


def _write_errors(errors: Sequence[ErrorStats], references: Sequence[ErrorStats]) -> tuple[str, ...]:
    return (
        _write_worst(errors, "max_abs"),
        _write_worst(references, "max_abs"),
        *(_write_worst(errors, name) for name in ("max_rel", "l2")),
    )


def _write_worst(errors: Sequence[ErrorStats], name: str) -> str:
    """Writes the largest of an error's figure, a dash if none is known."""
    worst = [value for error in errors if (value := getattr(error, name)) is not None]
    return words.write_number(max(worst, default=None))


def _write_tolerances(group: list[AccuracyCase]) -> str:
    """Writes the tolerances in force. `atol` widens with the number of terms in a sum, so it may be a range."""
    shown = []
    for values in ([check.rtol for check in group], [check.atol for check in group]):
        present = [value for value in values if value is not None]
        ends = dict.fromkeys(f"{value:.3g}" for value in (min(present), max(present))) if present else ["-"]
        shown.append(words.write_range(*ends) if len(ends) == 2 else "".join(ends))
    return "-" if shown == ["-", "-"] else ", ".join(shown)
