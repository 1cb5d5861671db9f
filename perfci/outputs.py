"""Is a timed output right? Compared where it lies on the device: it may be as large as the device's memory allows."""

from __future__ import annotations

import math
from typing import Any

from perfci.closeness import RATIO, tolerance
from perfci.device.seam import Arrays, Inputs
from perfci.inputs import flat
from perfci.model import Fact, Reason
from perfci.spec import Params, Performance, case_id


def wrong_output(suite: Performance, arrays: Arrays, params: Params, inputs: Inputs, output: Any) -> Reason | None:
    """What is wrong with an output, held against float64 and the reference's usual error; None if nothing is."""
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
            return Reason("timed_output_wrong", {**where, "error": found.worst_abs, "rtol": rtol, "atol": atol})
    return None


def _misshapen(arrays: Arrays, case: str, actual: Any, usual: Any) -> Reason | None:
    """Fewer elements or a narrower dtype than the reference gives would be less work."""
    if type(actual) is not type(usual):
        return Reason("wrong_type", {"case": case, "got": type(actual).__name__})
    seen, right = arrays.facts(actual), arrays.facts(usual)
    for name, got, wanted in (("shape", seen.shape, right.shape), ("dtype", seen.dtype, right.dtype)):
        if got != wanted:
            return Reason(f"wrong_{name}", {"case": case, "got": str(got), "expected": str(wanted)})
    return None


def _usual_error(arrays: Arrays, usual: Any, wanted: Any) -> float:
    """Largest error of the reference in the case's own dtype; nothing where it is infinite, which would allow all."""
    error = arrays.mismatch(usual, wanted, 0.0, 0.0).worst_abs
    return error if math.isfinite(error) else 0.0
