"""The accuracy part of an op's section: failures first, then errors by dtype, then what was not checked and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from perfci.core import units, wording
from perfci.core.model import AccuracyCase, ErrorStats, Fact, OpRun, Reason
from perfci.core.wording import say
from perfci.report import words
from perfci.report.text import code, inline
from perfci.report.view import Part, Table

FAILURES = 10
"""Most failing cases told one by one."""

LIMITS = frozenset({"checked_errors_overall", "checked_errors_in_places"})
"""Reasons of cases that passed their checks and are less exact than thresholds ask for."""


def failures(op: OpRun) -> tuple[str, ...]:
    """A sentence a failing case, with the inputs of its first failing check; the others are counted."""
    failed = [(check, check.failure) for check in op.accuracy if check.failure]
    first = list({check.case: (check, reason) for check, reason in reversed(failed)}.values())[::-1][:FAILURES]
    told = [_failure(check, reason) for check, reason in first]
    rest = len(failed) - len(first)
    more = say("{count:more accuracy check|more accuracy checks} failed; run.json holds them all.", count=rest)
    return (*told, more) if rest else tuple(told)


def parts(op: OpRun) -> tuple[Part, ...]:
    """The table by dtype and the table of what was left unchecked."""
    name = inline(op.op, 80)
    note = say(
        "Errors against the float64 reference, the worst of all checks with ordinary values. *reference's*: the "
        "largest error of the reference itself, computed in the same dtype."
    )
    if any(_errors(check, "l2") is not None for check in op.accuracy):
        note = say("{note} *L2*: the norm of the error over that of the float64 reference.", note=note)
    return (
        Part(say("{op}: accuracy", op=name), note, _by_dtype(op.accuracy)),
        Part(say("{op}: not checked", op=name), "", _unchecked(op.accuracy)),
    )


BAD_INPUT = "bad input"
"""In the place of a dtype, for checks that the kernel refuses what it cannot take."""


def dtype_of(case: str) -> str:
    """The dtype that a case id names.

    >>> dtype_of("rows=7,dtype=float16"), dtype_of("n=1"), dtype_of("rejects=an integer")
    ('float16', '-', 'bad input')
    """
    if case.startswith("rejects="):
        return BAD_INPUT
    return next((part.removeprefix("dtype=") for part in case.split(",") if part.startswith("dtype=")), "-")


def dtype_word(dtype: str) -> str:
    """A dtype as a reader sees it, not yet escaped."""
    return say("bad input") if dtype == BAD_INPUT else dtype


def _failure(case: AccuracyCase, reason: Reason) -> str:
    facts: dict[str, Fact] = {
        "case": code(case.case),
        "values": inline(case.values),
        "layout": inline(case.layout),
        "seed": case.seed,
        "why": inline(wording.sentence(reason)),
    }
    if case.fresh:
        return say("{case} ({values} values, {layout}, seed {seed}, drawn for this run): {why}", **facts)
    return say("{case} ({values} values, {layout}, seed {seed}): {why}", **facts)


def _by_dtype(checks: Sequence[AccuracyCase]) -> Table:
    groups: dict[str, list[AccuracyCase]] = {}
    for check in checks:
        groups.setdefault(dtype_of(check.case), []).append(check)
    columns = (
        say("dtype"),
        say("cases"),
        say("checks"),
        say("failed"),
        say("not checked"),
        say("max abs error"),
        say("reference's"),
        say("mean abs"),
        say("p50 abs"),
        say("p90 abs"),
        say("p99 abs"),
        say("max rel"),
        say("mean rel"),
        say("RMSE"),
        say("L2"),
        say("tolerance (rtol, atol)"),
    )
    table = Table(columns, tuple(_row(dtype, group) for dtype, group in groups.items()), frozenset(columns[1:]))
    return _without(table, say("L2")) if all(row[_L2] == "-" for row in table.rows) else table


_L2 = -2
"""Place of the L2 error in a row; runs of before it was measured have none."""


def _without(table: Table, column: str) -> Table:
    kept = [index for index, name in enumerate(table.columns) if name != column]
    cells = tuple(tuple(row[index] for index in kept) for row in table.rows)
    return Table(tuple(table.columns[index] for index in kept), cells, table.right)


def _row(dtype: str, group: list[AccuracyCase]) -> tuple[str, ...]:
    # Beside the largest and smallest numbers that a dtype holds, ordinary errors would not be seen.
    ordinary = [check for check in group if check.values == "normal"]
    errors = [check.errors for check in ordinary if check.errors]
    references = [check.reference_errors for check in ordinary if check.reference_errors]
    return (
        inline(dtype_word(dtype)),
        str(len({check.case for check in group})),
        str(sum(check.unchecked is None for check in group)),
        str(sum(check.failure is not None for check in group)),
        str(sum(check.unchecked is not None for check in group)),
        _worst(errors, "max_abs"),
        _worst(references, "max_abs"),
        *(_worst(errors, name) for name in _ERRORS),
        _tolerance(ordinary),
    )


_ERRORS = ("mean_abs", "p50_abs", "p90_abs", "p99_abs", "max_rel", "mean_rel", "rmse", "l2")
"""Fields of `ErrorStats` in the order of their columns."""


def _errors(check: AccuracyCase, name: str) -> float | None:
    return getattr(check.errors, name) if check.errors and check.values == "normal" else None


def _worst(errors: Iterable[ErrorStats], name: str) -> str:
    found = [value for value in (getattr(error, name) for error in errors) if value is not None]
    return units.significant(max(found)) if found else "-"


def _tolerance(group: list[AccuracyCase]) -> str:
    """The tolerances in force; atol widens with the number of terms summed, so it may span a range."""
    rtols, atols = [{getattr(c, n) for c in group if getattr(c, n) is not None} for n in ("rtol", "atol")]
    return f"{_span(rtols)}, {_span(atols)}" if rtols or atols else "-"


def _span(values: set[float]) -> str:
    ends = sorted({f"{value:.3g}" for value in (min(values), max(values))}, key=float) if values else ["-"]
    return words.between(*ends) if len(ends) == 2 else ends[0]


def _unchecked(checks: Iterable[AccuracyCase]) -> Table:
    found = Counter(
        (dtype_word(dtype_of(check.case)), wording.sentence(check.unchecked)) for check in checks if check.unchecked
    )
    shown = tuple((inline(dtype), str(count), inline(why)) for (dtype, why), count in found.items())
    columns = (say("dtype"), say("checks"), say("why"))
    return Table(columns, shown, frozenset(columns[1:2]))
