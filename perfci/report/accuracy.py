"""The accuracy part of an op's section: failures first, then errors by dtype, then what was not checked and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from perfci import units, wording
from perfci.model import AccuracyCase, ErrorStats, OpRun, Reason
from perfci.report.text import code, inline
from perfci.report.view import Part, Table

FAILURES = 10
"""Most failing cases told one by one."""

_COLUMNS = (
    "dtype",
    "cases",
    "checks",
    "failed",
    "not checked",
    "max abs error",
    "reference's",
    "mean abs",
    "p50 abs",
    "p90 abs",
    "p99 abs",
    "max rel",
    "mean rel",
    "RMSE",
    "tolerance (rtol, atol)",
)


def failures(op: OpRun) -> tuple[str, ...]:
    """A sentence a failing case, with the inputs of its first failing check; the others are counted."""
    failed = [(check, check.failure) for check in op.accuracy if check.failure]
    first = list({check.case: (check, reason) for check, reason in reversed(failed)}.values())[::-1][:FAILURES]
    told = [_failure(check, reason) for check, reason in first]
    rest = len(failed) - len(first)
    return (*told, f"{rest} more accuracy checks failed; run.json holds them all.") if rest else tuple(told)


def parts(op: OpRun) -> tuple[Part, ...]:
    """The table by dtype and the table of what was left unchecked."""
    name = inline(op.op, 80)
    note = (
        "Errors against the float64 reference, the worst of all checks with ordinary values. *reference's*: the "
        "largest error of the reference itself, computed in the same dtype."
    )
    return (
        Part(f"{name}: accuracy", note, _by_dtype(op.accuracy)),
        Part(f"{name}: not checked", "", _unchecked(op.accuracy)),
    )


def dtype_of(case: str) -> str:
    """The dtype that a case id names.

    >>> dtype_of("rows=7,dtype=float16"), dtype_of("n=1"), dtype_of("rejects=an integer")
    ('float16', '-', 'bad input')
    """
    if case.startswith("rejects="):
        return "bad input"
    return next((part.removeprefix("dtype=") for part in case.split(",") if part.startswith("dtype=")), "-")


def _failure(case: AccuracyCase, reason: Reason) -> str:
    seed = f"seed {case.seed}{', drawn for this run' if case.fresh else ''}"
    inputs = f"{inline(case.values)} values, {inline(case.layout)}, {seed}"
    return f"{code(case.case)} ({inputs}): {inline(wording.sentence(reason))}"


def _by_dtype(checks: Sequence[AccuracyCase]) -> Table:
    groups: dict[str, list[AccuracyCase]] = {}
    for check in checks:
        groups.setdefault(dtype_of(check.case), []).append(check)
    return Table(_COLUMNS, tuple(_row(dtype, group) for dtype, group in groups.items()), frozenset(_COLUMNS[1:]))


def _row(dtype: str, group: list[AccuracyCase]) -> tuple[str, ...]:
    # Beside the largest and smallest numbers that a dtype holds, ordinary errors would not be seen.
    ordinary = [check for check in group if check.values == "normal"]
    errors = [check.errors for check in ordinary if check.errors]
    references = [check.reference_errors for check in ordinary if check.reference_errors]
    return (
        inline(dtype),
        str(len({check.case for check in group})),
        str(sum(check.unchecked is None for check in group)),
        str(sum(check.failure is not None for check in group)),
        str(sum(check.unchecked is not None for check in group)),
        _worst(errors, "max_abs"),
        _worst(references, "max_abs"),
        _worst(errors, "mean_abs"),
        _worst(errors, "p50_abs"),
        _worst(errors, "p90_abs"),
        _worst(errors, "p99_abs"),
        _worst(errors, "max_rel"),
        _worst(errors, "mean_rel"),
        _worst(errors, "rmse"),
        _tolerance(ordinary),
    )


def _worst(errors: Iterable[ErrorStats], name: str) -> str:
    found = [value for value in (getattr(error, name) for error in errors) if value is not None]
    return units.significant(max(found)) if found else "-"


def _tolerance(group: list[AccuracyCase]) -> str:
    """The tolerances in force; atol widens with the number of terms summed, so it may span a range."""
    rtols, atols = [{getattr(c, n) for c in group if getattr(c, n) is not None} for n in ("rtol", "atol")]
    return f"{_span(rtols)}, {_span(atols)}" if rtols or atols else "-"


def _span(values: set[float]) -> str:
    ends = sorted({f"{value:.3g}" for value in (min(values), max(values))}, key=float) if values else ["-"]
    return " to ".join(ends)


def _unchecked(checks: Iterable[AccuracyCase]) -> Table:
    found = Counter((dtype_of(check.case), wording.sentence(check.unchecked)) for check in checks if check.unchecked)
    shown = tuple((inline(dtype), str(count), inline(why)) for (dtype, why), count in found.items())
    return Table(("dtype", "checks", "why"), shown, frozenset({"checks"}))
