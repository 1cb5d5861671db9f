"""Accuracy: is the kernel right? Against the reference in float64, on shapes, values and layouts that break kernels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfci.closeness import beyond, error_stats, finiteness, first_index, tolerance, within_ratio
from perfci.device.seam import Accelerator, Arrays, Inputs
from perfci.inputs import Filling, bound_inputs, filled, flat
from perfci.model import AccuracyCase, ErrorStats, Reason
from perfci.spec import Accuracy, Params, case_id, matches

Host = np.ndarray[Any, Any]
Describe = Callable[[BaseException], Mapping[str, Any]]

FIXED_SEEDS = (0, 1)
"""Seeds of every run; one more is drawn afresh."""

LEAK_CALLS = 8

_LOW_PRECISION = ("bfloat16", "float8")


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
    """Every check of a suite: all cases with several seeds, one of them fresh; probes with all values and layouts."""
    chosen = [params for params in suite.cases if matches(case_id(params), pattern)]
    for params in chosen:
        for fixed in FIXED_SEEDS:
            yield Check(params, "normal", "contiguous", fixed, fresh=False)
        yield Check(params, "normal", "contiguous", seed, fresh=True)
    for params in _probes(suite, chosen, pattern):
        for values in suite.values:
            if values != "normal":
                yield Check(params, values, "contiguous", 0, fresh=False)
        for layout in suite.layouts:
            if layout != "contiguous":
                yield Check(params, "normal", layout, 0, fresh=False)


def verify(suite: Accuracy, device: Accelerator, check: Check, describe: Describe) -> AccuracyCase:
    """Make one check; whatever the kernel does becomes the result's failure."""
    if device.info.kind == "cpu" and suite.uses_dot and any(name in check.case for name in _LOW_PRECISION):
        return check.result(unchecked=Reason("interpreter_dot", {"case": check.case}))
    try:
        inputs = _inputs(suite, device.arrays, check)
        expected, plain = _references(suite, device.arrays, inputs)
    except Exception as error:
        return check.result(failure=Reason("reference_raised", {"case": check.case, **describe(error)}), raised=True)
    try:
        outcome = _call_twice(suite, device, inputs)
    except Exception as error:
        kind = "out_of_memory" if device.out_of_memory(error) else "kernel_raised"
        return check.result(failure=Reason(kind, {"case": check.case, **describe(error)}), raised=True)
    return _judged(suite, device.arrays, check, inputs, outcome, expected, plain)


def verify_rejections(suite: Accuracy, device: Accelerator, describe: Describe) -> Iterator[AccuracyCase]:
    """Inputs that the op declares wrong must raise TypeError or ValueError."""
    for name, make in suite.rejects:
        check = Check({"rejects": name}, "normal", "contiguous", 0, fresh=False)
        try:
            suite.kernel(**make(device.arrays.device))
            yield check.result(failure=Reason("not_rejected", {"what": name}))
        except (TypeError, ValueError):
            yield check.result()
        except Exception as error:
            yield check.result(failure=Reason("rejected_otherwise", {"what": name, **describe(error)}))


def verify_memory(suite: Accuracy, device: Accelerator, seed: int) -> AccuracyCase | None:
    """Calls must leave no device memory behind; None where memory can't be told."""
    params = suite.cases[-1]
    check = Check(params, "normal", "contiguous", seed, fresh=False)
    inputs = _inputs(suite, device.arrays, check)
    suite.kernel(**inputs)
    before = device.arrays.memory_in_use()
    if before is None:
        return None
    for _ in range(LEAK_CALLS):
        suite.kernel(**inputs)
    device.synchronize()
    grown = (device.arrays.memory_in_use() or 0) - before
    leak = Reason("leaks", {"case": check.case, "bytes": grown, "calls": LEAK_CALLS})
    return check.result(failure=leak if grown > 0 else None)


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


def _probes(suite: Accuracy, chosen: Sequence[Params], pattern: str | None) -> Sequence[Params]:
    if suite.probe_cases is not None:
        return [params for params in suite.probe_cases if matches(case_id(params), pattern)]
    by_dtype = {str(params.get("dtype")): params for params in chosen}
    return list(by_dtype.values())


def _inputs(suite: Accuracy, arrays: Arrays, check: Check) -> dict[str, Any]:
    made = bound_inputs(suite, check.params, arrays.device, check.seed)
    products = _terms(suite, check.params) if suite.uses_dot else 0
    return arrays.placed(filled(made, arrays, Filling(check.values, check.seed, products)), check.layout)


def _term_size(suite: Accuracy, arrays: Arrays, inputs: Inputs) -> float:
    """How large one term of a sum is, where an output sums: its rounding errors are in proportion, and so is atol."""
    if not suite.reduces:
        return 1.0
    given = [arrays.host(value) for value in inputs.values() if arrays.is_array(value)]
    sizes = [float(np.abs(values[np.isfinite(values)]).mean()) for values in given if np.isfinite(values).any()]
    size = math.prod(sizes) if suite.uses_dot else max(sizes, default=1.0)
    return max(size, 1.0)


def _terms(suite: Accuracy, params: Params) -> int:
    return suite.reduces(**params) if suite.reduces else 1


def _references(suite: Accuracy, arrays: Arrays, inputs: Inputs) -> tuple[list[Any], list[Any]]:
    return flat(suite.reference(**arrays.upcast(inputs))), flat(suite.reference(**arrays.copies(inputs)))


def _call_twice(suite: Accuracy, device: Accelerator, inputs: Inputs) -> _Outcome:
    arrays = device.arrays
    kept = arrays.copies(inputs)
    with arrays.watch_allocations("nan") as watch:
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
    return _Outcome(copies, second, damaged, changed, reused)


def _judged(
    suite: Accuracy,
    arrays: Arrays,
    check: Check,
    inputs: Inputs,
    outcome: _Outcome,
    expected: list[Any],
    plain: list[Any],
) -> AccuracyCase:
    failure = _form(arrays, check, outcome, plain) or _memory(suite, arrays, check, inputs, outcome)
    if failure:
        return check.result(failure=failure)
    terms, size = _terms(suite, check.params), _term_size(suite, arrays, inputs)
    result = check.result()
    for actual, wanted, usual in zip(outcome.first, expected, plain, strict=True):
        result = _worse(result, _numbers(suite, arrays, check, actual, wanted, usual, (terms, size)))
    return result


def _form(arrays: Arrays, check: Check, outcome: _Outcome, plain: list[Any]) -> Reason | None:
    """Number, type, shape, dtype, device and density of the outputs."""
    if len(outcome.first) != len(plain):
        facts = {"case": check.case, "got": len(outcome.first), "expected": len(plain)}
        return Reason("wrong_count", facts)
    for got, wanted in zip(outcome.first, plain, strict=True):
        if not arrays.is_array(got):
            return Reason("wrong_type", {"case": check.case, "got": type(got).__name__})
        seen, right = arrays.facts(got), arrays.facts(wanted)
        for name in ("shape", "dtype", "device"):
            if getattr(seen, name) != getattr(right, name):
                facts = {"case": check.case, "got": str(getattr(seen, name)), "expected": str(getattr(right, name))}
                return Reason(f"wrong_{name}", facts)
        if right.dense and not seen.dense:
            return Reason("wrong_strides", {"case": check.case})
    return None


def _memory(suite: Accuracy, arrays: Arrays, check: Check, inputs: Inputs, outcome: _Outcome) -> Reason | None:
    """What the calls did to memory that is not their output, and whether they wrote all of it."""
    if outcome.changed:
        return Reason("input_changed", {"case": check.case, "inputs": ", ".join(outcome.changed)})
    if outcome.reused:
        return Reason("output_reused", {"case": check.case})
    given = [value for value in inputs.values() if arrays.is_array(value)]
    for first, second in zip(outcome.first, outcome.second, strict=True):
        if any(arrays.overlap(second, value) for value in given):
            return Reason("output_aliases_input", {"case": check.case})
        left, right = arrays.host(first), arrays.host(second)
        unwritten = np.isnan(left) & arrays.is_filler(second) if left.dtype.kind == "f" else np.zeros(0, bool)
        if unwritten.any():
            facts = {"case": check.case, "count": int(unwritten.sum()), "index": str(first_index(unwritten))}
            return Reason("not_written", facts)
        if suite.deterministic and not arrays.same_bits(first, second):
            differing = (left != right) & ~(np.isnan(left) & np.isnan(right))
            facts = {"case": check.case, "count": int(differing.sum()), "index": str(first_index(differing))}
            return Reason("differs_from_itself", facts)
    if outcome.damaged:
        return Reason("wrote_outside", {"case": check.case, "zones": outcome.damaged})
    return None


def _numbers(
    suite: Accuracy, arrays: Arrays, check: Check, actual: Any, wanted: Any, usual: Any, terms: tuple[int, float]
) -> AccuracyCase:
    """One output's numbers against the float64 reference."""
    dtype = arrays.facts(actual).dtype
    rtol, atol = tolerance(dtype, suite.tolerance, terms[0])
    atol *= terms[1]
    got, right, common = arrays.host(actual), arrays.host(wanted), arrays.host(usual)
    if got.dtype.kind != "f":
        same = got == common
        failure = None if same.all() else Reason("wrong_values", _exact(check, got, common, same))
        return check.result(failure=failure, rtol=0.0, atol=0.0)
    rounded = arrays.rounded(right, actual)
    kinds = finiteness(got)
    misplaced = (kinds != finiteness(rounded)) & (kinds != finiteness(common))
    errors, usual_errors = error_stats(got, right), error_stats(common, right)
    result = check.result(errors=errors, reference_errors=usual_errors, rtol=rtol, atol=atol)
    if misplaced.any():
        where = first_index(misplaced)
        facts = {"count": int(misplaced.sum()), "got": str(got[where]), "expected": str(rounded[where])}
        return dataclasses.replace(
            result, failure=Reason("not_finite", {"case": check.case, "index": str(where), **facts})
        )
    if beyond(got, right, rtol, atol) == 0 or within_ratio(errors, usual_errors):
        return result
    return dataclasses.replace(result, failure=_too_far(check, got, right, rtol, atol, errors, usual_errors))


def _too_far(
    check: Check, got: Host, right: Host, rtol: float, atol: float, errors: ErrorStats, usual: ErrorStats
) -> Reason:
    where = errors.worst_index
    facts = {
        "case": check.case,
        "count": beyond(got, right, rtol, atol),
        "size": int(got.size),
        "index": str(where),
        "got": float(got[where]),
        "expected": float(right[where]),
        "error": errors.max_abs,
        "usual_error": usual.max_abs,
        "rtol": rtol,
        "atol": atol,
    }
    return Reason("wrong_values", facts)


def _exact(check: Check, got: Host, right: Host, same: Host) -> dict[str, Any]:
    where = first_index(~same)
    count = int((~same).sum())
    values = {"got": float(got[where]), "expected": float(right[where])}
    error = abs(values["got"] - values["expected"])
    return {
        "case": check.case, "count": count, "size": int(got.size), "index": str(where), **values,
        "error": error, "usual_error": 0.0, "rtol": 0.0, "atol": 0.0,
    }  # fmt: skip


def _worse(left: AccuracyCase, right: AccuracyCase) -> AccuracyCase:
    """Of two outputs of one call, the failed one, else the one with the larger error."""
    if left.failure or (left.errors and right.errors and (left.errors.max_abs or 0) > (right.errors.max_abs or 0)):
        return left
    return right
