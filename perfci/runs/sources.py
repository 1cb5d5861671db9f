"""For a run's report: the thresholds in force for its cases that were earned, relaxed or given on its command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping

from perfci.core.model import PlannedOp, Run
from perfci.core.settings import Settings
from perfci.ops.spec import matches
from perfci.report.past import find_median
from perfci.report.sources import SetBy, SetValue
from perfci.runs import effective_thresholds
from perfci.runs.effective_thresholds import OPTION, InForce
from perfci.thresholds.layers import ALPHA, TAU, Earned, Relaxed, stricter
from perfci.thresholds.limits import Thresholds
from perfci.thresholds.write import show


def list_set_values(run: Run, rules: Settings) -> tuple[SetValue, ...]:
    """Each value that holds for a case of the run and that no file of people's sets as it is. Raises StoredFileError.

    An earned value that something looser or stricter stands above is left out, and so is one without effect.
    """
    found = effective_thresholds.of_run(run, rules)
    lengths = {(op.op, case.case): find_median(case) or 0.0 for op in run.ops for case in op.performance}
    given = (_given(run, key, value, found) for key, value in found.limits.commanded.items())
    relaxed = (_relaxed(op, entry, found) for op in run.plan.ops for entry in _holding(op, found))
    earned = (each for op in run.plan.ops for each in _earned(op, found, lengths))
    return (*given, *relaxed, *earned)


def _cases(op: PlannedOp) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*op.performance, *op.accuracy)))


def _given(run: Run, key: str, value: float, found: InForce) -> SetValue:
    """A value of --threshold, with what the cases of the run would be judged by otherwise."""
    without = dataclasses.replace(found.limits, commanded={})
    cases = [] if key == ALPHA else [(op.op, case) for op in run.plan.ops for case in _cases(op)]
    others: set[float | None] = {without.alpha} if key == ALPHA else set()
    others.update(number for op, case in cases for number in _numbers(without, op, case, key))
    return SetValue(SetBy.GIVEN, key, show(key, value), _ends(key, others), OPTION)


def _ends(key: str, numbers: Collection[float | None]) -> str:
    """The least and the greatest of several values, or the only one."""
    known = sorted(numbers, key=lambda number: (number is None, number or 0.0))
    return " ... ".join(show(key, number) for number in dict.fromkeys((known[0], known[-1]))) if known else ""


def _numbers(limits: Thresholds, op: str, case: str, key: str) -> Iterator[float | None]:
    value = getattr(limits.for_case(op, case), key)
    if key == TAU:
        yield from (tau for _, tau in value)
    else:
        yield value


def _holding(op: PlannedOp, found: InForce) -> Iterator[Relaxed]:
    """Entries that hold on the run's day and device, and are about any of its cases."""
    entries = found.limits.loosened.get(op.op, ())
    return (entry for entry in entries if op.unlisted or any(matches(case, entry.case) for case in _cases(op)))


def _relaxed(op: PlannedOp, entry: Relaxed, found: InForce) -> SetValue:
    bare = dataclasses.replace(found.limits, loosened={}, commanded={})
    mine = [case for case in _cases(op) if matches(case, entry.case)]
    others = {number for case in mine for number in _numbers(bare, op.op, case, entry.key)}
    return SetValue(
        layer=SetBy.RELAXED,
        key=entry.key,
        value=show(entry.key, entry.to) if entry.to is not None else "",
        without=_ends(entry.key, others),
        where=f"{entry.file}:{entry.line}",
        op=op.op,
        case=entry.case or "",
        until=entry.until,
        why=entry.why,
    )


def _earned(op: PlannedOp, found: InForce, lengths: Mapping[tuple[str, str], float]) -> Iterator[SetValue]:
    file = found.earned.by_op.get(op.op)
    if file is None or op.op in found.apart:
        return
    mine = set(_cases(op))
    for record in file.values:
        if record.case in mine:
            written = _number(found.written, record, lengths)
            now = _number(found.limits, record, lengths)
            if now == record.value and stricter(record.key, record.value, written):
                yield _of_record(record, written)


def _number(limits: Thresholds, record: Earned, lengths: Mapping[tuple[str, str], float]) -> float | None:
    """The value of a record's key that its case is judged by; of tau that for the kernel's length in this run."""
    found = limits.for_case(record.op, record.case)
    if record.key == TAU:
        return found.tau_at(lengths.get((record.op, record.case), 0.0))
    value: float | None = getattr(found, record.key)
    return value


def _of_record(record: Earned, written: float | None) -> SetValue:
    return SetValue(
        layer=SetBy.EARNED,
        key=record.key,
        value=show(record.key, record.value),
        without=show(record.key, written),
        where=f"{record.file}:{record.line}",
        op=record.op,
        case=record.case,
        why=record.why,
        runs=record.runs,
        date=record.date or "",
    )
