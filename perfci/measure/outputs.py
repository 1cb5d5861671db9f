"""Is a timed output right? Compared on the device: it may be as large as the device's memory allows."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perfci.core.model import ErrorStats, Fact, Reason
from perfci.core.model.basics import worst
from perfci.device.arrays import Arrays, Inputs
from perfci.measure.closeness import (
    PEAK_RATIOS,
    RATIO,
    Deviation,
    count_unfinite,
    errors_of,
    find_mismatch,
    relative_l2,
    share_of_usual,
    sort_errors,
    tolerance,
)
from perfci.measure.inputs import call_exact, call_fresh, flat
from perfci.ops.spec import Params, Performance, case_id


def wrong_output(
    suite: Performance,
    arrays: Arrays,
    params: Params,
    inputs: Inputs,
    output: Any,
    errors: list[ErrorStats] | None = None,
    dtypes: list[str] | None = None,
    right: Sequence[Any] = (),
) -> Reason | None:
    """Returns what is wrong with an output, None if nothing.

    errors: gets the errors of an output that is right. dtypes: of the reference's outputs, if they are known. An empty
    list gets them. right: arrays that count as right, so that the same bits need no reference unless errors are wanted.
    """
    deviations: list[Deviation] | None = None if errors is None else []
    if deviations is None and dtypes and _are_same(arrays, flat(output), right, dtypes):
        return None
    failure = _compare(suite, arrays, params, inputs, output, deviations, [] if dtypes is None else dtypes)
    if errors is not None and deviations and not failure:
        errors.append(replace(worst([deviation.stats for deviation in deviations]), l2=relative_l2(deviations)))
    return failure


def _compare(
    suite: Performance,
    arrays: Arrays,
    params: Params,
    inputs: Inputs,
    output: Any,
    errors: list[Deviation] | None,
    dtypes: list[str],
) -> Reason | None:
    case = case_id(params)
    terms = suite.reduces(**params) if suite.reduces else 1
    mutates, given, plain = suite.mutates or (), flat(output), list[Any]()
    if errors is None and dtypes and _is_exact(suite):
        plain = call_fresh(suite.reference, inputs, arrays, mutates)
        if _are_same(arrays, given, plain, dtypes):
            return None
    expected = call_exact(suite.reference, arrays.upcast(inputs), arrays, mutates)
    if not dtypes:
        plain = call_fresh(suite.reference, inputs, arrays, mutates)
        dtypes += [arrays.facts(array).dtype if arrays.is_array(array) else "" for array in plain]
    if len(given) != len(expected) or not expected:
        return Reason("wrong_count", {"case": case, "got": len(given), "expected": len(expected)})
    for index, (actual, wanted, dtype) in enumerate(zip(given, expected, dtypes, strict=True)):
        # Fewer elements or a narrower dtype than the reference gives would be less work.
        if type(actual) is not type(wanted):
            return Reason("wrong_type", {"case": case, "got": type(actual).__name__})
        seen, shape = arrays.facts(actual), arrays.facts(wanted).shape
        for name, got, due in (("shape", seen.shape, shape), ("dtype", seen.dtype, dtype)):
            if got != due:
                return Reason(f"wrong_{name}", {"case": case, "got": str(got), "expected": str(due)})
        rtol, atol = tolerance(seen.dtype, suite.tolerance, terms)
        got, right = arrays.compared(actual), arrays.compared(wanted)
        mismatch = find_mismatch(got, right, rtol, atol)
        share = mismatch.share
        if mismatch.count:
            plain = plain or call_fresh(suite.reference, inputs, arrays, mutates)
            common, summed = arrays.compared(plain[index]), bool(suite.reduces)
            ours = sort_errors(got, right, rtol, atol, summed=summed)
            usual = sort_errors(common, right, 0.0, 0.0, summed=summed)
            share = share_of_usual(ours, usual, PEAK_RATIOS.get(seen.dtype, RATIO))
            if not math.isfinite(mismatch.worst_abs) or share > 1:
                where: dict[str, Fact] = {"case": case, "count": mismatch.count, "index": str(mismatch.worst_index)}
                if (odd := _find_unfinite(arrays, inputs)) and not math.isfinite(mismatch.worst_abs):
                    return Reason("timed_inputs_unfinite", {**where, **odd})
                return Reason("timed_output_wrong", {**where, "error": mismatch.worst_abs, "rtol": rtol, "atol": atol})
        if errors is not None and arrays.dtype_facts(actual):
            deviation = errors_of(got, right)
            errors.append(replace(deviation, stats=replace(deviation.stats, of_allowed=share)))
    return None


def _is_exact(suite: Performance) -> bool:
    """Whether the suite tolerates no error, of any dtype."""
    return bool(suite.tolerance) and not any(map(any, (suite.tolerance or {}).values()))


def _are_same(arrays: Arrays, given: Sequence[Any], right: Sequence[Any], dtypes: Sequence[str]) -> bool:
    """Whether outputs in the reference's dtypes are these arrays, bit for bit."""
    return len(given) == len(right) == len(dtypes) and all(
        type(actual) is type(wanted) and arrays.facts(actual).dtype == dtype and arrays.same_bits(actual, wanted)
        for actual, wanted, dtype in zip(given, right, dtypes, strict=True)
    )


def _find_unfinite(arrays: Arrays, inputs: Inputs) -> dict[str, Fact] | None:
    """The first input with infinities or NaN, and how many. On such values kernels may well differ."""
    for name, value in inputs.items():
        if arrays.is_array(value) and (many := count_unfinite(arrays.compared(value))):
            return {"name": name, "values": many}
    return None
