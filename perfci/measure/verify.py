"""Accuracy: is the kernel right? Against the reference in float64, on shapes, values and layouts that break kernels."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfci.core.model import AccuracyCase, Fact, Reason
from perfci.device.seam import Accelerator, Arrays, Inputs, Race, not_interpreted
from perfci.measure.closeness import (
    Errors,
    errors_of,
    excess,
    finiteness,
    first_index,
    relative_l2,
    tolerance,
    within_ratio,
)
from perfci.measure.inputs import Filling, bound_inputs, filled, flat
from perfci.ops.spec import Accuracy, Params, case_id, matches

Host = np.ndarray[Any, Any]
Describe = Callable[[BaseException], Mapping[str, Fact]]

FIXED_SEEDS = (0, 1)
"""Seeds of every run. One more is drawn afresh."""

LEAK_CALLS = 8

VACUOUS = 0.1
"""An absolute tolerance above this share of the answer's root mean square accepts wrong answers too."""

FEW = 8
"""Fewer numbers may all be near 0 by chance."""


@dataclass(frozen=True)
class Check:
    """One call to be verified."""

    params: Params
    values: str
    layout: str
    seed: int
    fresh: bool

    @property
    def case(self) -> str:
        """The case's id."""
        return case_id(self.params)

    def result(self, **fields: Any) -> AccuracyCase:
        """What came of it."""
        return AccuracyCase(self.case, self.values, self.layout, self.seed, self.fresh, **fields)


def checks(suite: Accuracy, seed: int, pattern: str | None) -> Iterator[Check]:
    """Every check of a suite: all cases with several seeds, one of them fresh. Probes with all values and layouts."""
    chosen = [params for params in suite.cases if matches(case_id(params), pattern)]
    for params in chosen:
        for fixed in FIXED_SEEDS:
            yield Check(params, "normal", "contiguous", fixed, fresh=False)
        yield Check(params, "normal", "contiguous", seed, fresh=True)
    if suite.probe_cases is None:
        probes = [*{str(params.get("dtype")): params for params in chosen}.values()]
    else:
        probes = [params for params in suite.probe_cases if matches(case_id(params), pattern)]
    for params in probes:
        for values in suite.values:
            if values != "normal":
                yield Check(params, values, "contiguous", 0, fresh=False)
        for layout in suite.layouts:
            if layout != "contiguous":
                yield Check(params, "normal", layout, 0, fresh=False)


def verify(suite: Accuracy, device: Accelerator, check: Check, describe: Describe) -> AccuracyCase:
    """Make one check. Whatever the kernel does becomes the result's failure."""
    arrays = device.arrays
    try:
        inputs = _make_inputs(suite, arrays, check)
        expected = flat(suite.reference(**arrays.upcast(inputs)))
        made = _Made(suite, arrays, check, inputs, expected, flat(suite.reference(**arrays.copies(inputs))))
    except Exception as error:
        return check.result(failure=Reason("reference_raised", {"case": check.case, **describe(error)}), raised=True)
    try:
        outcome = _call_twice(suite, device, inputs)
    except Exception as error:
        if function := not_interpreted(error):
            return check.result(unchecked=Reason("interpreter_lacks", {"case": check.case, "function": function}))
        kind = "out_of_memory" if device.out_of_memory(error) else "kernel_raised"
        return check.result(failure=Reason(kind, {"case": check.case, **describe(error)}), raised=True)
    failure = next(_find_misshapen(made, outcome), None) or next(_find_misuse(made, outcome), None)
    if failure:
        return check.result(failure=failure)
    outputs = zip(outcome.first, expected, made.plain, strict=True)
    compared = [_compare_numbers(made, actual, wanted, usual) for actual, wanted, usual in outputs]
    result = functools.reduce(_choose_worse, (each.result for each in compared), check.result())
    if result.errors is None or result.reference_errors is None:
        return result
    # The L2 errors are of all outputs together.
    errors = relative_l2(each.errors for each in compared if each.errors)
    usual = relative_l2(each.usual for each in compared if each.usual)
    return dataclasses.replace(
        result,
        errors=dataclasses.replace(result.errors, l2=errors),
        reference_errors=dataclasses.replace(result.reference_errors, l2=usual),
    )


def verify_rejections(suite: Accuracy, device: Accelerator, describe: Describe) -> Iterator[AccuracyCase]:
    """Inputs that the op declares wrong must raise TypeError or ValueError."""
    for name, make in suite.rejects:
        check = Check({"rejects": name}, "normal", "contiguous", 0, fresh=False)
        try:
            inputs = make(device.arrays.device)
            inspect.signature(suite.kernel).bind(**inputs)
        except Exception as error:
            yield check.result(failure=Reason("reference_raised", {"case": check.case, **describe(error)}), raised=True)
            continue
        try:
            suite.kernel(**inputs)
            yield check.result(failure=Reason("not_rejected", {"what": name}))
        except (TypeError, ValueError):
            yield check.result()
        except Exception as error:
            yield check.result(failure=Reason("rejected_otherwise", {"what": name, **describe(error)}))


def verify_memory(suite: Accuracy, device: Accelerator, seed: int) -> AccuracyCase | None:
    """Calls must leave no device memory behind. None if the device does not report memory."""
    params = suite.cases[-1]
    check = Check(params, "normal", "contiguous", seed, fresh=False)
    inputs = _make_inputs(suite, device.arrays, check)
    if device.arrays.memory_in_use() is None:
        return None
    suite.kernel(**inputs)
    before = device.arrays.memory_in_use() or 0
    for _ in range(LEAK_CALLS):
        suite.kernel(**inputs)
    device.synchronize()
    grown = (device.arrays.memory_in_use() or 0) - before
    leak = Reason("leaks", {"case": check.case, "bytes": grown, "calls": LEAK_CALLS})
    return check.result(failure=leak if grown > 0 else None)


@dataclass(frozen=True)
class _Made:
    """A check's inputs and what is right for them."""

    suite: Accuracy
    arrays: Arrays
    check: Check
    inputs: Inputs
    expected: list[Any]
    """the reference's outputs in float64"""
    plain: list[Any]
    """the reference's outputs in the case's own dtype"""


@dataclass(frozen=True)
class _Outcome:
    """Outputs of two calls on the same inputs, and what became of memory."""

    first: list[Any]
    second: list[Any]
    damaged: int
    changed: tuple[str, ...]
    """inputs that no longer hold what they held"""
    reused: bool
    """the second call gave out memory that the first call's output still holds"""
    races: tuple[Race, ...]


def _make_inputs(suite: Accuracy, arrays: Arrays, check: Check) -> dict[str, Any]:
    made = bound_inputs(suite, check.params, arrays.device, check.seed)
    products = _count_terms(suite, check.params) if suite.uses_dot else 0
    return arrays.placed(filled(made, arrays, Filling(check.values, check.seed, products)), check.layout)


def _count_terms(suite: Accuracy, params: Params) -> int:
    return suite.reduces(**params) if suite.reduces else 1


def _estimate_term(suite: Accuracy, arrays: Arrays, inputs: Inputs) -> float:
    """Size of one term of a sum: its rounding errors are in proportion, and so is atol.

    Only floating-point inputs are summed. Integers are indices, labels or counts, however large.
    """
    if not suite.reduces:
        return 1.0
    given = [arrays.host(value) for value in inputs.values() if arrays.is_array(value) and arrays.dtype_facts(value)]
    sizes = [float(np.abs(values[np.isfinite(values)]).mean()) for values in given if np.isfinite(values).any()]
    size = math.prod(sizes) if suite.uses_dot else max(sizes, default=1.0)
    return max(size, 1.0)


def _call_twice(suite: Accuracy, device: Accelerator, inputs: Inputs) -> _Outcome:
    arrays = device.arrays
    kept = arrays.copies(inputs)
    with arrays.watch_allocations("nan") as watch, device.watch_races() as races:
        first = flat(suite.kernel(**inputs))
        device.synchronize()
    copies = list(arrays.copies(dict(enumerate(first))).values())
    with arrays.watch_allocations("value") as again:
        second = flat(suite.kernel(**inputs))
        device.synchronize()
    damaged = watch.damaged() + again.damaged()
    changed = tuple(
        name for name, value in inputs.items() if arrays.is_array(value) and not arrays.same_bits(value, kept[name])
    )
    reused = any(
        arrays.is_array(left) and arrays.is_array(right) and arrays.overlap(left, right)
        for left, right in zip(first, second, strict=False)
    )
    return _Outcome(copies, second, damaged, changed, reused, tuple(races))


@dataclass(frozen=True)
class _Numbers:
    """One output's."""

    result: AccuracyCase
    errors: Errors | None = None
    """None without a tolerance, as for integers"""
    usual: Errors | None = None
    """of the reference in the case's own dtype"""


def _find_misshapen(made: _Made, outcome: _Outcome) -> Iterator[Reason]:
    """Number, type, shape, dtype, device and density of the outputs. Only the first fault is of interest."""
    case, arrays, wanted = made.check.case, made.arrays, made.plain
    # The second call's are the kernel's own. Of the first there are copies, which are dense.
    for outputs in (outcome.first, outcome.second):
        if len(outputs) != len(wanted):
            yield Reason("wrong_count", {"case": case, "got": len(outputs), "expected": len(wanted)})
        for got, due in zip(outputs, wanted, strict=True):
            # A type of the kernel's own could put the work off until somebody looks.
            if not arrays.is_array(got) or type(got) is not type(due):
                yield Reason("wrong_type", {"case": case, "got": type(got).__name__})
            seen, right = arrays.facts(got), arrays.facts(due)
            for name in ("shape", "dtype", "device"):
                if getattr(seen, name) != getattr(right, name):
                    two = {"got": str(getattr(seen, name)), "expected": str(getattr(right, name))}
                    yield Reason(f"wrong_{name}", {"case": case, **two})
            if right.dense and not seen.dense:
                yield Reason("wrong_strides", {"case": case})


def _find_misuse(made: _Made, outcome: _Outcome) -> Iterator[Reason]:
    """What the calls did to memory that is not their output, and what of that they left out. The gravest first."""
    case, arrays = made.check.case, made.arrays
    if outcome.changed:
        yield Reason("input_changed", {"case": case, "inputs": ", ".join(outcome.changed)})
    given = [value for value in made.inputs.values() if arrays.is_array(value)]
    if any(arrays.overlap(output, value) for output in outcome.second for value in given):
        yield Reason("output_aliases_input", {"case": case})
    if outcome.reused:
        yield Reason("output_reused", {"case": case})
    for first, second in zip(outcome.first, outcome.second, strict=True):
        if found := _find_difference(made, first, second):
            yield found
    if outcome.damaged:
        yield Reason("wrote_outside", {"case": case, "zones": outcome.damaged})
    for race in outcome.races:
        pair = {"first": race.programs[0], "second": race.programs[1]}
        yield Reason("race", {"case": case, "kind": race.kind, "count": race.addresses, **pair})


def _find_difference(made: _Made, first: Any, second: Any) -> Reason | None:
    """How two calls on the same inputs differ.

    Elements that still hold what each call's memory was filled with were never written. Others come from a race.
    """
    arrays = made.arrays
    if arrays.same_bits(first, second):
        return None
    left, right = arrays.host(first), arrays.host(second)
    unwritten = np.isnan(left) & arrays.is_filler(second)
    if unwritten.any():
        return Reason("not_written", _locate(made.check, unwritten))
    differing = (left != right) & ~(np.isnan(left) & np.isnan(right))
    return Reason("differs_from_itself", _locate(made.check, differing)) if made.suite.deterministic else None


def _locate(check: Check, mask: Host) -> dict[str, Fact]:
    index = str(first_index(mask)) if mask.any() else "-"
    return {"case": check.case, "count": int(mask.sum()), "index": index}


def _compare_numbers(made: _Made, actual: Any, wanted: Any, usual: Any) -> _Numbers:
    """One output's numbers against the float64 reference, and against the reference in the case's own dtype."""
    arrays, check = made.arrays, made.check
    got, right, common = arrays.host(actual), arrays.host(wanted), arrays.host(usual)
    if got.dtype.kind != "f":
        return _Numbers(_compare_exactly(check, got, common))
    dtype = arrays.facts(actual).dtype
    rtol, atol = tolerance(dtype, made.suite.tolerance, _count_terms(made.suite, check.params))
    atol *= _estimate_term(made.suite, arrays, made.inputs)
    errors, usual_errors = errors_of(got, right), errors_of(common, right)
    result = check.result(errors=errors.stats, reference_errors=usual_errors.stats, rtol=rtol, atol=atol)
    over = excess(got, right, rtol, atol)
    failure = _find_misplaced(check, got, common, arrays.rounded(right, actual))
    if not failure and (over > 0).any() and not within_ratio(errors.stats, usual_errors.stats):
        failure = _find_farthest(result, got, right, over)
    if failure:
        return _Numbers(dataclasses.replace(result, failure=failure), errors, usual_errors)
    rms = errors.exact.rms(errors.stats.count) if errors.stats.count else math.inf
    stated = made.suite.tolerance_reason and dtype in (made.suite.tolerance or {})
    # perfci chose the size of all other values.
    if check.values == "normal" and atol > VACUOUS * rms and not stated:
        sound = (excess(got, right, rtol, VACUOUS * rms) <= 0).all() or within_ratio(errors.stats, usual_errors.stats)
        if not sound or (rms > 0 and errors.stats.count >= FEW):
            facts: dict[str, Fact] = {"case": check.case, "atol": atol, "rms": rms, "dtype": dtype}
            result = dataclasses.replace(result, unchecked=Reason("tolerance_vacuous", facts))
    return _Numbers(result, errors, usual_errors)


def _find_misplaced(check: Check, got: Host, common: Host, rounded: Host) -> Reason | None:
    """NaN or an infinity that neither the rounded float64 answer nor the reference has, or the other way round."""
    wrong = (finiteness(got) != finiteness(rounded)) & (finiteness(got) != finiteness(common))
    if not wrong.any():
        return None
    where = first_index(wrong)
    return Reason("not_finite", {**_locate(check, wrong), "got": str(got[where]), "expected": str(rounded[where])})


def _find_farthest(result: AccuracyCase, got: Host, right: Host, over: Host) -> Reason:
    """Names the element farthest beyond what it is allowed. The largest error may be that of a large value."""
    assert result.reference_errors is not None
    where = tuple(int(i) for i in np.unravel_index(int(over.argmax()), over.shape))
    count = int((over > 0).sum())
    facts: dict[str, Fact] = {"case": result.case, "count": count, "size": int(got.size), "index": str(where)}
    values = {"got": float(got[where]), "expected": float(right[where]), "error": float(abs(got[where] - right[where]))}
    allowed = {"usual_error": result.reference_errors.max_abs, "rtol": result.rtol, "atol": result.atol}
    return Reason("wrong_values", {**facts, **values, **allowed})


def _compare_exactly(check: Check, got: Host, right: Host) -> AccuracyCase:
    """Integers and booleans have no tolerance."""
    wrong = got != right
    if not wrong.any():
        return check.result(rtol=0.0, atol=0.0)
    where = first_index(wrong)
    values = {"got": int(got[where]), "expected": int(right[where])}
    numbers = {"error": abs(values["got"] - values["expected"]), "usual_error": 0.0, "rtol": 0.0, "atol": 0.0}
    facts = {**_locate(check, wrong), "size": int(got.size), **values, **numbers}
    return check.result(failure=Reason("wrong_values", facts), rtol=0.0, atol=0.0)


def _choose_worse(left: AccuracyCase, right: AccuracyCase) -> AccuracyCase:
    """Of two outputs of one call, the first that failed, else the first unchecked, else that of the larger error."""
    if left.failure or right.failure:
        return left if left.failure else right
    if left.unchecked or right.unchecked:
        return left if left.unchecked else right
    if left.errors and (not right.errors or (left.errors.max_abs or 0) > (right.errors.max_abs or 0)):
        return left
    return right
