"""The accuracy part of an op's section: failures first, then errors by dtype."""

from collections.abc import Iterator, Sequence

from perfci.core.model import AccuracyCase, ErrorStats, OpRun
from perfci.core.wording import say, sentence
from perfci.report import words
from perfci.report.text import code, phrase, plain
from perfci.report.view import Section, Table, make_table

FAILURES = 10  # most failing cases listed one by one

LIMITS = frozenset({"checked_errors_overall", "checked_errors_in_places"})
"""Reasons of cases that passed their checks and are less exact than thresholds ask for."""


def describe_failures(op: OpRun) -> Iterator[str]:
    """Returns a sentence for each failing case, with the inputs of its first failing check. Counts the others."""
    failed = [check for check in op.accuracy if check.failure]
    first = list({check.case: check for check in reversed(failed)}.values())[::-1][:FAILURES]
    for check in first:
        why = plain(sentence(check.failure)) if check.failure else ""
        facts = {"case": code(check.case), "values": plain(check.values), "layout": plain(check.layout), "why": why}
        yield say("{case} ({values} values, {layout}, seed {seed}): {why}", seed=check.seed, **facts)
    if rest := len(failed) - len(first):
        yield say("{count:more accuracy check|more accuracy checks} failed; run.json holds them all.", count=rest)


def make_parts(op: OpRun) -> Iterator[Section]:
    """Returns the table of errors by dtype."""
    name = plain(op.op, 80)
    note = phrase(
        "Errors against the float64 reference, the worst of all checks with ordinary values. *reference's*: the "
        "largest error of the reference itself, computed in the same dtype. *L2*: the norm of the error over that of "
        "the float64 reference."
    )
    yield Section(say("{op}: accuracy", op=name), (note,), table=_tabulate_errors(op.accuracy))


def _find_dtype(case: str) -> str:
    """Returns the dtype that a case id names.

    >>> _find_dtype("rows=7,dtype=float16"), _find_dtype("n=1"), _find_dtype("rejects=an integer")
    ('float16', '-', 'bad input')
    """
    if case.startswith("rejects="):
        return say("bad input")
    return next((part.removeprefix("dtype=") for part in case.split(",") if part.startswith("dtype=")), "-")


def _tabulate_errors(checks: Sequence[AccuracyCase]) -> Table:
    groups: dict[str, list[AccuracyCase]] = {}
    for check in checks:
        groups.setdefault(_find_dtype(check.case), []).append(check)
    shown = []
    for dtype, group in groups.items():
        # Ordinary errors are invisible beside those of the largest numbers that a dtype holds.
        ordinary = [check for check in group if check.values == "normal"]
        errors = [check.errors for check in ordinary if check.errors]
        references = [check.reference_errors for check in ordinary if check.reference_errors]
        shown.append((
            plain(dtype),
            str(len({check.case for check in group})),
            str(sum(check.unchecked is None for check in group)),
            str(sum(check.failure is not None for check in group)),
            str(sum(check.unchecked is not None for check in group)),
            find_worst(errors, "max_abs"),
            find_worst(references, "max_abs"),
            *(find_worst(errors, name) for name in ("p99_abs", "max_rel", "l2")),
            _write_tolerances(ordinary),
        ))  # fmt: skip
    heads = (
        "dtype | cases: | checks: | failed: | not checked: | max abs error: | reference's: | p99 abs: | max rel: | "
        "L2: | tolerance (rtol, atol):"
    )
    return make_table(heads, shown)


def find_worst(errors: Sequence[ErrorStats], name: str) -> str:
    """Writes the largest of an error's figure, a dash if none is known."""
    known = [value for error in errors if (value := getattr(error, name)) is not None]
    return words.write_number(max(known, default=None))


def _write_tolerances(group: list[AccuracyCase]) -> str:
    """Writes the tolerances in force. `atol` widens with the number of terms in a sum, so it may be a range."""
    shown = []
    for values in ([check.rtol for check in group], [check.atol for check in group]):
        known = [value for value in values if value is not None]
        ends = dict.fromkeys(f"{value:.3g}" for value in (min(known), max(known))) if known else ["-"]
        shown.append(words.write_range(*ends) if len(ends) == 2 else "".join(ends))
    return "-" if shown == ["-", "-"] else ", ".join(shown)
