"""The accuracy part of an op's section: failures first, then errors by dtype, then what was not checked and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from perfci.core import units
from perfci.core.model import AccuracyCase, ErrorStats, Fact, OpRun
from perfci.core.wording import say, sentence
from perfci.report import words
from perfci.report.text import code, phrase, plain
from perfci.report.view import Part, Table, make_table

FAILURES = 10
"""Most failing cases listed one by one."""

LIMITS = frozenset({"checked_errors_overall", "checked_errors_in_places"})
"""Reasons of cases that passed their checks and are less exact than thresholds ask for."""

BAD_INPUT = "bad input"
"""In the place of a dtype, for checks that the kernel refuses what it cannot take."""

_ERRORS = ("mean_abs", "p50_abs", "p90_abs", "p99_abs", "max_rel", "mean_rel", "rmse", "l2")
"""Fields of `ErrorStats` in the order of their columns."""


def describe_failures(op: OpRun) -> Iterator[str]:
    """A sentence a failing case, with the inputs of its first failing check. The others are counted."""
    failed = [check for check in op.accuracy if check.failure]
    first = list({check.case: check for check in reversed(failed)}.values())[::-1][:FAILURES]
    for check in first:
        facts: dict[str, Fact] = {
            "case": code(check.case),
            "values": plain(check.values),
            "layout": plain(check.layout),
            "seed": check.seed,
            "why": plain(sentence(check.failure)) if check.failure else "",
        }
        if check.fresh:
            yield say("{case} ({values} values, {layout}, seed {seed}, drawn for this run): {why}", **facts)
        else:
            yield say("{case} ({values} values, {layout}, seed {seed}): {why}", **facts)
    if rest := len(failed) - len(first):
        yield say("{count:more accuracy check|more accuracy checks} failed; run.json holds them all.", count=rest)


def make_parts(op: OpRun) -> tuple[Part, ...]:
    """The table by dtype and the table of what was left unchecked."""
    name = plain(op.op, 80)
    note = phrase(
        "Errors against the float64 reference, the worst of all checks with ordinary values. *reference's*: the "
        "largest error of the reference itself, computed in the same dtype."
    )
    if any(check.errors and check.errors.l2 is not None and check.values == "normal" for check in op.accuracy):
        note = phrase("{note} *L2*: the norm of the error over that of the float64 reference.", note=note)
    found = Counter(
        (name_dtype(find_dtype(check.case)), sentence(check.unchecked)) for check in op.accuracy if check.unchecked
    )
    unchecked = ((plain(dtype), str(count), plain(why)) for (dtype, why), count in found.items())
    return (
        Part(say("{op}: accuracy", op=name), note, _tabulate_dtypes(op.accuracy)),
        Part(say("{op}: not checked", op=name), "", make_table("dtype | checks: | why", unchecked)),
    )


def find_dtype(case: str) -> str:
    """The dtype that a case id names.

    >>> find_dtype("rows=7,dtype=float16"), find_dtype("n=1"), find_dtype("rejects=an integer")
    ('float16', '-', 'bad input')
    """
    if case.startswith("rejects="):
        return BAD_INPUT
    return next((part.removeprefix("dtype=") for part in case.split(",") if part.startswith("dtype=")), "-")


def name_dtype(dtype: str) -> str:
    """A dtype as a reader sees it, not yet escaped."""
    return say("bad input") if dtype == BAD_INPUT else dtype


def _tabulate_dtypes(checks: Sequence[AccuracyCase]) -> Table:
    groups: dict[str, list[AccuracyCase]] = {}
    for check in checks:
        groups.setdefault(find_dtype(check.case), []).append(check)
    heads = (
        "dtype | cases: | checks: | failed: | not checked: | max abs error: | reference's: | mean abs: | p50 abs: | "
        "p90 abs: | p99 abs: | max rel: | mean rel: | RMSE: | L2: | tolerance (rtol, atol):"
    )
    rows = [_make_row(dtype, group) for dtype, group in groups.items()]
    if all(row[-2] == "-" for row in rows):  # runs of before the L2 error was measured
        heads, rows = heads.replace(" | L2:", ""), [(*row[:-2], row[-1]) for row in rows]
    return make_table(heads, rows)


def _make_row(dtype: str, group: list[AccuracyCase]) -> tuple[str, ...]:
    # Beside the largest and smallest numbers that a dtype holds, ordinary errors would not be seen.
    ordinary = [check for check in group if check.values == "normal"]
    errors = [check.errors for check in ordinary if check.errors]
    references = [check.reference_errors for check in ordinary if check.reference_errors]
    return (
        plain(name_dtype(dtype)),
        str(len({check.case for check in group})),
        str(sum(check.unchecked is None for check in group)),
        str(sum(check.failure is not None for check in group)),
        str(sum(check.unchecked is not None for check in group)),
        _find_worst(errors, "max_abs"),
        _find_worst(references, "max_abs"),
        *(_find_worst(errors, name) for name in _ERRORS),
        _write_tolerances(ordinary),
    )


def _find_worst(errors: Iterable[ErrorStats], name: str) -> str:
    found = [value for value in (getattr(error, name) for error in errors) if value is not None]
    return units.significant(max(found)) if found else "-"


def _write_tolerances(group: list[AccuracyCase]) -> str:
    """The tolerances in force. `atol` widens with the number of terms summed, so it may span a range."""
    shown = []
    for name in ("rtol", "atol"):
        values = {value for check in group if (value := getattr(check, name)) is not None}
        ends = sorted({f"{value:.3g}" for value in (min(values), max(values))}, key=float) if values else ["-"]
        shown.append(words.write_range(*ends) if len(ends) == 2 else ends[0])
    return "-" if shown == ["-", "-"] else ", ".join(shown)
