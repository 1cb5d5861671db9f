"""Is a timed output right? Compared where it lies on the device: it may be as large as the device's memory allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from perfci.core.model import ErrorStats, Fact, Reason
from perfci.core.model.closeness import worst
from perfci.device.seam import Arrays, Inputs
from perfci.measure.closeness import RATIO, Errors, Norm, errors_of, relative_l2, tolerance
from perfci.measure.inputs import flat
from perfci.ops.spec import Params, Performance, case_id


@dataclass(frozen=True)
class Checked:
    """An output that was held against the reference."""

    failure: Reason | None = None
    """what is wrong with it"""
    errors: ErrorStats | None = None
    """against float64, of several outputs each figure at its worst but `l2`, which is of all together; None where it is
    wrong, and where no output is of a floating-point type"""


def wrong_output(suite: Performance, arrays: Arrays, params: Params, inputs: Inputs, output: Any) -> Reason | None:
    """What is wrong with an output, held against float64 and the reference's usual error; None if nothing is."""
    return _held(suite, arrays, params, inputs, output, None)


def checked_output(suite: Performance, arrays: Arrays, params: Params, inputs: Inputs, output: Any) -> Checked:
    """The same, and how exact it is: both from one computation of the reference."""
    found: list[Errors] = []
    failure = _held(suite, arrays, params, inputs, output, found)
    if failure or not found:
        return Checked(failure)
    return Checked(None, replace(worst([each.stats for each in found]), l2=relative_l2(found)))


def _held(
    suite: Performance, arrays: Arrays, params: Params, inputs: Inputs, output: Any, errors: list[Errors] | None
) -> Reason | None:
    case = case_id(params)
    terms = suite.reduces(**params) if suite.reduces else 1
    expected, plain = flat(suite.reference(**arrays.upcast(inputs))), flat(suite.reference(**inputs))
    given = flat(output)
    if len(given) != len(plain):
        return Reason("wrong_count", {"case": case, "got": len(given), "expected": len(plain)})
    for actual, wanted, usual in zip(given, expected, plain, strict=True):
        if failure := _misshapen(arrays, case, actual, usual):
            return failure
        rtol, atol = tolerance(arrays.facts(actual).dtype, suite.tolerance, terms)
        found = arrays.mismatch(actual, wanted, rtol, atol)
        if found.count and found.worst_abs > RATIO * _usual_error(arrays, usual, wanted):
            where: dict[str, Fact] = {"case": case, "count": found.count, "index": str(found.worst_index)}
            if (odd := _unfinite(arrays, inputs)) and not math.isfinite(found.worst_abs):
                return Reason("timed_inputs_unfinite", {**where, **odd})
            return Reason("timed_output_wrong", {**where, "error": found.worst_abs, "rtol": rtol, "atol": atol})
        if errors is not None and arrays.dtype_facts(actual):
            errors.append(_errors(arrays, actual, wanted))
    return None


def _errors(arrays: Arrays, actual: Any, wanted: Any) -> Errors:
    found = arrays.deviation(actual, wanted)
    if found is None:
        return errors_of(arrays.host(actual), arrays.host(wanted))
    return Errors(found.stats, Norm(found.error, 1.0), Norm(found.exact, 1.0))


def _misshapen(arrays: Arrays, case: str, actual: Any, usual: Any) -> Reason | None:
    """Fewer elements or a narrower dtype than the reference gives would be less work."""
    if type(actual) is not type(usual):
        return Reason("wrong_type", {"case": case, "got": type(actual).__name__})
    seen, right = arrays.facts(actual), arrays.facts(usual)
    for name, got, wanted in (("shape", seen.shape, right.shape), ("dtype", seen.dtype, right.dtype)):
        if got != wanted:
            return Reason(f"wrong_{name}", {"case": case, "got": str(got), "expected": str(wanted)})
    return None


def _unfinite(arrays: Arrays, inputs: Inputs) -> dict[str, Fact] | None:
    """The first input with infinities or NaN, and how many; on such values kernels may well differ."""
    for name, value in inputs.items():
        if arrays.is_array(value) and (many := arrays.unfinite(value)):
            return {"name": name, "values": many}
    return None


def _usual_error(arrays: Arrays, usual: Any, wanted: Any) -> float:
    """Largest error of the reference in the case's own dtype; nothing where it is infinite, which would allow all."""
    error = arrays.mismatch(usual, wanted, 0.0, 0.0).worst_abs
    return error if math.isfinite(error) else 0.0
