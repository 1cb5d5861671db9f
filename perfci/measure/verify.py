"""Accuracy: is the kernel right? Against the reference in float64, on shapes, values and layouts that break kernels."""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfci.core.model import AccuracyCase, Fact, Reason, as_fact
from perfci.core.model.basics import worst
from perfci.device.arrays import Arrays, Damage, Inputs
from perfci.device.seam import OUTSIDE, Accelerator, LateError, Race, find_cause, not_interpreted
from perfci.measure import closeness
from perfci.measure.bench import Describe
from perfci.measure.closeness import Deviation, Standard, find_growth, relative_l2
from perfci.measure.inputs import bound_inputs, call_exact, call_fresh, fill_inputs
from perfci.measure.suspect import calls_reference
from perfci.ops.backends import BACKENDS
from perfci.ops.spec import SEARCHED, Accuracy, Params, case_id, list_inputs, matches

FIXED_SEEDS = (0, 1)  # Seeds of every run. One more is drawn afresh.

LEFT = "search_left"  # kind of what takes too long in the interpreter
LEAK_CALLS = 8

STEPS = 16  # that an answer of integers spans at least, if its tolerance is to hold

DRAWS, MOST_BY_CHANCE = 8, 4.0  # further draws of inputs, where the error of one is so many times what is allowed

NUDGES = 4  # draws of inputs that are off by rounding: one alone may move an answer by nothing

MOST_CUT = 1 << 18  # elements of inputs from which a wrong answer's missing end is looked for

MOST_MOVED = 2.0**-13  # of an answer that one unit of float32 in its inputs moves: exp(64) moves by 2^-17


@dataclass(frozen=True)
class Check:
    """One call to be verified."""

    params: Params
    values: str
    layout: str
    seed: int
    fresh: bool
    constants: tuple[float, ...] = ()  # numbers that the values `constants` lie around

    @property
    def case(self) -> str:
        """The case's id."""
        return case_id(self.params)

    @property
    def name(self) -> tuple[str, str, str, int]:
        """Its key."""
        return self.case, self.values, self.layout, self.seed

    def result(self, **fields: Any) -> AccuracyCase:
        """The outcome."""
        return AccuracyCase(self.case, self.values, self.layout, self.seed, self.fresh, **fields)


def checks(suite: Accuracy, seed: int, pattern: str | None) -> Iterator[Check]:
    """Every check of a suite: all cases with several seeds, one of them fresh. Probes with all values and layouts.

    The second seed's inputs lie in memory otherwise, in one of the layouts by turns: a case may be alone on its path.
    Of several inputs one alone does, by turns: where all strides are alike, no one sees that one is used for another.
    """
    # Not expanded: of several leading axes it makes rows that no one stride leads through, which an op may refuse.
    others = [layout for layout in suite.layouts if layout not in {"contiguous", "expanded"}] or ["contiguous"]
    alone = [f" {name}" for name in list_inputs(suite.reference)]
    alone = alone if len(alone) > 1 else [""]
    for number, params in enumerate(suite.cases):
        of_one = alone[number // len(others) % len(alone)] if others != ["contiguous"] else ""
        if matches(case_id(params), pattern):
            yield Check(params, "normal", "contiguous", FIXED_SEEDS[0], fresh=False)
            yield Check(params, "normal", others[number % len(others)] + of_one, FIXED_SEEDS[1], fresh=False)
            yield Check(params, "normal", "contiguous", seed, fresh=True)
    for number, params in enumerate(list_probes(suite, pattern)):
        ways = [(values, "contiguous") for values in suite.values if values != "normal"]
        ways += [("normal", layout) for layout in suite.layouts if layout != "contiguous"]
        if "expanded" in suite.layouts and len(alone) > 1:
            ways += [("normal", f"expanded{one}") for one in (alone if number == 0 else [])]
        yield from (Check(params, values, layout, 0, fresh=False) for values, layout in ways)


def list_probes(suite: Accuracy, pattern: str | None) -> list[Params]:
    """Returns the cases that get all values and layouts."""
    cases = suite.cases if suite.probe_cases is None else suite.probe_cases
    probes = [params for params in cases if matches(case_id(params), pattern)]
    return probes if suite.probe_cases is not None else [*{str(probe.get("dtype")): probe for probe in probes}.values()]


def verify(
    suite: Accuracy,
    device: Accelerator,
    check: Check,
    describe: Describe,
    base: Callable[..., Any] | None = None,
    *,
    bounded: bool = False,
) -> AccuracyCase:
    """Make one check. Whatever the kernel does becomes the result's failure. base: the kernel as it was before.

    bounded: calls are interrupted by LateError, which is no failure then. Anyone may raise one of that name.
    """
    arrays = device.arrays
    try:
        inputs = make_inputs(suite, arrays, check)
        expected = call_exact(suite.reference, arrays.upcast(inputs), arrays, suite.mutates)
        copies = arrays.copies(inputs)
        plain = call_fresh(suite.reference, copies, arrays, suite.mutates)
        device.synchronize()  # an error of its launches would be taken for the kernel's, which is called next
    except Exception as error:
        return check.result(failure=Reason("reference_raised", {"case": check.case, **describe(error)}), raised=True)
    try:
        calls = _call_twice(suite, device, check, inputs)
    except Exception as error:
        if device.info.kind == "cpu" and (function := not_interpreted(error)):
            kind = "interpreter_lacks"
            if base is not None:
                with suppress(Exception):  # a base that runs shows that the change alone needs such a function
                    base(**inputs)
                    kind = "interpreter_lacks_now"
            return check.result(unchecked=Reason(kind, {"case": check.case, "function": function}))
        if bounded and device.info.kind == "cpu" and find_cause(error, LateError):
            return check.result(unchecked=Reason(LEFT, {"case": check.case, "count": 1}))
        kind = "out_of_memory" if device.out_of_memory(error) else "kernel_raised"
        if kind == "kernel_raised" and device.is_lost(error):
            kind = "device_lost"
        return check.result(failure=Reason(kind, {"case": check.case, **describe(error)}), raised=True)
    lends = _overlap(arrays, plain, copies)
    failure = next(_find_misshapen(calls, plain), None)
    if failure and failure.kind == "wrong_strides":  # an operator of torch may keep an input's gaps, which copies lack
        with suppress(Exception):
            failure = next(_find_misshapen(calls, call_fresh(suite.reference, inputs, arrays, suite.mutates)), None)
    failure = failure or next(_find_misuse(calls, lends=lends), None)
    if failure:
        return check.result(failure=failure)
    outputs = list(zip(calls.first, expected, plain, strict=True))
    compared = [_compare_numbers(calls, *output) for output in outputs]
    if any(one.failure and one.failure.kind == "wrong_values" for one, _, _ in compared):
        with suppress(Exception):  # a reference that refuses such inputs
            moved = call_exact(suite.reference, _nudge(arrays, inputs), arrays, suite.mutates)
            compared = [_compare_numbers(calls, *output, other) for output, other in zip(outputs, moved, strict=True)]
    result = functools.reduce(_choose_worse, (one for one, _, _ in compared), check.result())
    if result.failure and result.failure.kind == "wrong_values":
        left_out = _find_left_out(calls)
        result = replace(result, failure=replace(result.failure, facts={**result.failure.facts, **left_out}))
    if calls.idle and not result.failure:
        return replace(result, unchecked=Reason("launches_nothing", {"case": check.case}))
    if result.errors is None or result.reference_errors is None:
        return result
    # The L2 errors are of all outputs together.
    errors, usual = (relative_l2(filter(None, column)) for column in list(zip(*compared, strict=True))[1:])
    shares = [one.errors.of_allowed for one, _, _ in compared if one.errors]
    share = max((share for share in shares if share is not None), default=0.0)
    result = replace(
        result,
        errors=replace(result.errors, l2=errors, of_allowed=None if None in shares else share),
        reference_errors=replace(result.reference_errors, l2=usual),
    )
    searched, fault = check.values in SEARCHED, result.failure.kind if result.failure else None
    if base is not None and not fault and (check.fresh or searched):
        return _find_less_exact(calls, base, expected, plain, result)
    if base is None and searched and fault in {None, "wrong_values"}:
        return _find_less_exact(calls, None, expected, plain, replace(result, failure=None))
    return result


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


def verify_answers(suite: Accuracy, device: Accelerator) -> AccuracyCase | None:
    """A suite with right answers that are all one number sees little of what a kernel computes. None if they differ.

    None too for an op that takes no arrays, as torch.ones: no inputs would change its answer.
    """
    numbers = set[str]()
    for params in suite.cases:
        check = Check(params, "normal", "contiguous", FIXED_SEEDS[0], fresh=False)
        try:
            inputs = make_inputs(suite, device.arrays, check)
            if not any(map(device.arrays.is_array, inputs.values())):
                return None
            outputs = call_fresh(suite.reference, inputs, device.arrays, suite.mutates)
        except Exception:
            return None  # which the check of this case reports
        numbers |= {str(value) for output in outputs for value in np.unique(device.arrays.host(output))[:2]}
        if len(numbers) > 1:
            return None
    facts: dict[str, Fact] = {"cases": len(suite.cases), "value": min(numbers, default="-")}
    return check.result(unchecked=Reason("vacuous_answers", facts)) if numbers else None


def verify_work(suite: Accuracy, device: Accelerator) -> Iterator[AccuracyCase]:
    """Report where torch's operations do the reference's work in the kernel. Timing finds that alone."""
    for params in list_probes(suite, None) if suite.backend not in {"torch", "helion"} else ():
        check = Check(params, "normal", "contiguous", FIXED_SEEDS[0], fresh=False)
        with suppress(Exception):  # which the check of this case reports
            inputs, seen = make_inputs(suite, device.arrays, check), []
            for function in (suite.kernel, suite.reference):
                with device.capture_work() as capture:
                    function(**device.arrays.copies(inputs))
                seen.append(capture.identity(""))
            if operation := calls_reference(*seen):
                yield check.result(unchecked=Reason("calls_reference", {"case": check.case, "operation": operation}))


def verify_memory(suite: Accuracy, device: Accelerator, seed: int) -> AccuracyCase | None:
    """Calls must leave no device memory behind. None if the device does not report memory."""
    params = suite.cases[-1]
    check = Check(params, "normal", "contiguous", seed, fresh=False)
    inputs = make_inputs(suite, device.arrays, check)
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


def _find_less_exact(
    calls: _Calls, base: Callable[..., Any] | None, expected: list[Any], plain: list[Any], result: AccuracyCase
) -> AccuracyCase:
    """Returns the result, as a failure if the kernel is less exact than the base's on the same inputs.

    Without a base the reference takes its place, and only what is beyond the tolerance is a failure, unless the suite
    states why the kernel is less exact.
    """
    arrays, suite = calls.arrays, calls.suite
    shapes = [arrays.facts(value).shape for value in calls.inputs.values() if arrays.is_array(value)]
    largest = max(map(closeness.find_largest_size, calls.floats), default=0.0)
    try:
        others = call_fresh(base, calls.inputs, arrays, suite.mutates) if base else plain
        if [arrays.facts(other) for other in others] != [arrays.facts(answer) for answer in plain]:
            return result
    except Exception as error:  # a base that cannot be called is none to compare with
        late = Reason(LEFT, {"case": calls.check.case, "count": 1}) if find_cause(error, LateError) else None
        return replace(result, unchecked=late or result.unchecked)
    if base and (
        deviations := [
            closeness.errors_of(arrays.compared(other), arrays.compared(wanted))
            for other, wanted in zip(others, expected, strict=True)
            if arrays.dtype_facts(other)
        ]
    ):
        errors = replace(worst([deviation.stats for deviation in deviations]), l2=relative_l2(deviations))
        result = replace(result, base_errors=errors)
    for place, (actual, other, wanted, usual) in enumerate(zip(calls.first, others, expected, plain, strict=True)):
        if (facts := arrays.dtype_facts(actual)) is None:
            continue
        head, before, right, common = map(arrays.compared, (actual, other, wanted, usual))
        # A sum has no more terms than the longest axis, or than there are inputs to each output.
        inputs = sum(map(math.prod, shapes)) // max(math.prod(head.shape), 1)
        terms = max(calls.terms, inputs, *(max(shape, default=1) for shape in shapes))
        rtol, atol = closeness.tolerance(facts.name, suite.tolerance, calls.terms)
        stated = suite.tolerance_reason is not None and facts.name in (suite.tolerance or {})
        if base is None and stated:
            continue
        wide = closeness.widen(head), closeness.widen(right)
        if not base and not (closeness.excess(*wide, rtol, atol * calls.term) > 0).any():
            continue
        compared, moved = (head, before, right, common, facts, terms, largest), []
        if find_growth(*compared):  # by chance, where terms cancel? Then rounding the inputs moves the answer as far
            for seed in range(NUDGES):
                nudged = _nudge(arrays, calls.inputs, np.random.default_rng(seed))
                moved.append(arrays.compared(call_exact(suite.reference, nudged, arrays, suite.mutates)[place]))
        if moved and (grown := find_growth(*compared, moved)):
            whose = as_fact("the base's kernel") if base else as_fact("the reference in this dtype")
            reason = Reason("less_exact", {"case": calls.check.case, "whose": whose, **grown})
            return replace(result, unchecked=reason) if stated else replace(result, failure=reason)
    return result


@dataclass(frozen=True)
class _Calls:
    """Two calls of the kernel on the same inputs: their outputs, and what became of memory."""

    suite: Accuracy
    arrays: Arrays
    check: Check
    inputs: Inputs
    first: list[Any]  # copies of the first call's outputs
    second: list[Any]  # the kernel's own. The first call's, if there was no second one
    damage: Damage  # to guard zones
    changed: tuple[str, ...]  # inputs that no longer hold what they held
    reused: bool  # the second call gave out memory that the first call's output still holds
    races: tuple[Race, ...]
    idle: bool  # no Triton kernel was launched, though no input is empty and there was something to do

    @property
    def terms(self) -> int:
        """How many terms an element of the output sums."""
        return self.suite.reduces(**self.check.params) if self.suite.reduces else 1

    @property
    def floats(self) -> list[Any]:
        """Inputs of floating-point types, where they are compared. Integers are indices or counts, and not summed."""
        arrays = self.arrays
        floats = (value for value in self.inputs.values() if arrays.is_array(value) and arrays.dtype_facts(value))
        return [*map(arrays.compared, floats)]

    @functools.cached_property
    def redrawn(self) -> list[list[tuple[Any, Any]]]:
        """The reference's outputs for other draws of the inputs, in their dtype and in float64."""
        arrays, suite, draws = self.arrays, self.suite, list[list[tuple[Any, Any]]]()
        with suppress(Exception):  # a seed whose inputs the reference refuses
            for seed in range(1, DRAWS + 1):
                made = make_inputs(suite, arrays, replace(self.check, seed=self.check.seed + seed))
                plain = call_fresh(suite.reference, made, arrays, suite.mutates)
                both = plain, call_exact(suite.reference, arrays.upcast(made), arrays, suite.mutates)
                draws.append([*zip(*(map(arrays.compared, side) for side in both), strict=True)])
        return draws

    @functools.cached_property
    def term(self) -> float:
        """Size of one term of a sum, to which atol is in proportion."""
        if not self.suite.reduces:
            return 1.0
        sizes = [size for value in self.floats if (size := closeness.find_mean_size(value)) is not None]
        size = math.prod(sizes) if self.suite.uses_dot else max(sizes, default=1.0)
        return max(size, 1.0)


def make_inputs(suite: Accuracy, arrays: Arrays, check: Check) -> dict[str, Any]:
    """The inputs of a check, with its values and in its layout."""
    made = bound_inputs(suite, check.params, arrays.device, check.seed)
    terms = suite.reduces(**check.params) if suite.reduces else 1
    products = terms if suite.uses_dot else 0
    filled = fill_inputs(made, arrays, check.values, check.seed, products, check.constants, suite.domain)
    return arrays.place(filled, check.layout)


def _nudge(arrays: Arrays, inputs: Inputs, rng: np.random.Generator | None = None) -> dict[str, Any]:
    """Inputs in float64, each number smaller by one unit in the last place of float32, with rng up to one off.

    How far the answer moves is what kernels may be off by that compute in float32: exp(64) by 64 such units.
    """
    nudged = arrays.upcast(inputs)
    for name, value in nudged.items():
        if arrays.is_array(value) and arrays.dtype_facts(value):
            numbers = arrays.host(value)
            steps = rng.uniform(-1.0, 1.0, numbers.shape) if rng else -1.0
            nudged[name] = arrays.like(numbers * (1 + steps * 2.0**-23), value)
    return nudged


def _call_twice(suite: Accuracy, device: Accelerator, check: Check, inputs: Inputs) -> _Calls:
    arrays = device.arrays
    kept = arrays.copies(inputs)
    with arrays.watch_allocations("nan") as watch, device.watch_races() as races, device.record_kernels() as kernels:
        first = call_fresh(suite.kernel, inputs, arrays, suite.mutates)
        device.synchronize()
    copies, damage = list(arrays.copies(dict(enumerate(first))).values()), watch.find_damage()
    second = first
    if not _says_all(device, check, first):
        # A kernel could look whether its memory was filled. With the fresh seed it is as it comes.
        with nullcontext() if check.fresh else arrays.watch_allocations("value") as again:
            second = call_fresh(suite.kernel, inputs, arrays, suite.mutates)
            device.synchronize()
        damage = damage.join(again.find_damage()) if again else damage
    changed = tuple(
        name for name, value in inputs.items() if arrays.is_array(value) and not arrays.same_bits(value, kept[name])
    )
    reused = second is not first and any(
        arrays.is_array(left) and arrays.is_array(right) and arrays.overlap(left, right)
        for left, right in zip(first, second, strict=False)
    )
    sizes = [[arrays.nbytes(value) for value in side if arrays.is_array(value)] for side in (inputs.values(), first)]
    of_triton = BACKENDS[suite.backend].uses_triton
    idle = of_triton and kernels is not None and not kernels and any(sizes[1]) and all(sizes[0])
    return _Calls(suite, arrays, check, inputs, copies, second, damage, changed, reused, tuple(races), idle)


def _says_all(device: Accelerator, check: Check, outputs: list[Any]) -> bool:
    """Whether a second call would show nothing: in the interpreter, which runs programs in one order each time.

    Each case is called twice with its first seed, and with the fresh one. In numbers that are finite nothing is left of
    what memory was filled with.
    """
    if device.info.kind != "cpu" or check.fresh or check.name[1:] == ("normal", "contiguous", FIXED_SEEDS[0]):
        return False
    arrays = device.arrays
    floats = [array for array in outputs if arrays.is_array(array) and arrays.dtype_facts(array)]
    return len(floats) == len(outputs) and not any(map(closeness.count_unfinite, map(arrays.compared, floats)))


def _find_misshapen(calls: _Calls, wanted: list[Any]) -> Iterator[Reason]:
    """Number, type, shape, dtype, device and density of the outputs. Only the first fault is of interest."""
    case, arrays = calls.check.case, calls.arrays
    # The second call's are the kernel's own. Of the first there are copies, which are dense.
    for outputs in (calls.first, calls.second):
        if len(outputs) != len(wanted):
            yield Reason("wrong_count", {"case": case, "got": len(outputs), "expected": len(wanted)})
        if not wanted:  # nothing to compare: neither returned an array, and no argument is declared as written into
            yield Reason("wrong_type", {"case": case, "got": "NoneType"})
        for got, due in zip(outputs, wanted, strict=True):
            # A type of the kernel's could put the work off until the answer is read.
            if not arrays.is_array(got) or type(got) is not type(due):
                yield Reason("wrong_type", {"case": case, "got": type(got).__name__})
            seen, right = arrays.facts(got), arrays.facts(due)
            for name in ("shape", "dtype", "device"):
                if getattr(seen, name) != getattr(right, name):
                    two = {"got": str(getattr(seen, name)), "expected": str(getattr(right, name))}
                    yield Reason(f"wrong_{name}", {"case": case, **two})
            if right.dense and not seen.dense:
                yield Reason("wrong_strides", {"case": case})


def _overlap(arrays: Arrays, outputs: Sequence[Any], inputs: Inputs) -> bool:
    given = [value for value in inputs.values() if arrays.is_array(value)]
    return any(arrays.overlap(output, value) for output in outputs if arrays.is_array(output) for value in given)


def _find_misuse(calls: _Calls, *, lends: bool) -> Iterator[Reason]:
    """Faults in memory outside and inside the calls' output. The gravest first.

    lends: the reference gives an input, or a view of one, as torch's contiguous may.
    """
    case, arrays = calls.check.case, calls.arrays
    if calls.changed:
        yield Reason("input_changed", {"case": case, "inputs": ", ".join(calls.changed)})
    if not lends and _overlap(arrays, calls.second, calls.inputs):
        yield Reason("output_aliases_input", {"case": case})
    if calls.reused and not lends:
        yield Reason("output_reused", {"case": case})
    if calls.damage.zones:  # before what it does to other elements: to race, and to leave some out
        yield Reason("wrote_outside", {"case": case, **calls.damage.facts})
    for race in calls.races:
        if race.kind == OUTSIDE:
            place = {**race.facts, "case": case, "program": race.programs[0]}
            yield Reason("used_outside", {**place, "count": race.addresses})
    for first, second in zip(calls.first, calls.second, strict=True):
        if arrays.same_bits(first, second):
            continue
        left, right = arrays.host(first), arrays.host(second)
        # Elements that still hold what each call's memory was filled with were never written. Others come from a race.
        unwritten = np.isnan(left) & arrays.is_filler(second)
        if unwritten.any():
            yield Reason("not_written", _locate(case, unwritten))
        elif calls.suite.deterministic:
            differing = (left != right) & ~(np.isnan(left) & np.isnan(right))
            yield Reason("differs_from_itself", _locate(case, differing))
    for race in calls.races:
        pair = {"first": race.programs[0], "second": race.programs[1]}
        yield Reason("race", {"case": case, "kind": race.kind, "count": race.addresses, **pair})


def _locate(case: str, mask: Any) -> dict[str, Fact]:
    index = str(closeness.first_index(mask)) if mask.any() else "-"
    return {"case": case, "count": int(mask.sum()), "index": index}


def _compare_numbers(
    calls: _Calls, actual: Any, wanted: Any, usual: Any, moved: Any = None
) -> tuple[AccuracyCase, Deviation | None, Deviation | None]:
    """Returns one output's result, and its errors and the reference's against float64. None for integers.

    An integer is right if it is the reference's, in the inputs' dtype or in float64, or at most atol from the latter:
    where a kernel rounds to whole numbers, the reference's rounding in a narrow dtype is not the kernel's.

    moved: the reference's answer for nudged inputs.
    """
    arrays, check, suite = calls.arrays, calls.check, calls.suite
    got, right, common = map(arrays.compared, (actual, wanted, usual))
    if (limits := arrays.dtype_facts(actual)) is None:
        _, step = closeness.tolerance(arrays.facts(actual).dtype, suite.tolerance, 1)
        # Of an answer of few numbers, such as a mask, a step would be everything.
        spread = float(right.max()) - float(right.min()) if step and math.prod(right.shape) else 0.0
        step = step if spread >= STEPS * step else 0.0
        result, far = check.result(rtol=0.0, atol=step), closeness.excess(closeness.widen(got), right, 0.0, step) > 0
        differing = (got != common) & (got != right) & (far if step else True)
        failure = _find_farthest(result, got, right, differing * 1.0, int) if differing.any() else None
        return replace(result, failure=failure), None, None
    dtype = arrays.facts(actual).dtype
    rtol, atol = closeness.tolerance(dtype, suite.tolerance, calls.terms)
    right = closeness.keep_limits(right, common)
    errors, usual_errors = closeness.errors_of(got, right), closeness.errors_of(common, right)
    atol *= calls.term
    if check.values in {"normal", "edges"} and dtype not in (suite.tolerance or {}):
        atol = closeness.bound_atol(atol, errors.exact, usual_errors.stats, limits)
    standard = Standard(
        right,
        closeness.round_like(right, got),
        common,
        usual_errors.stats,
        rtol,
        atol,
        bool(suite.reduces),
        closeness.PEAK_RATIOS.get(dtype, closeness.RATIO),
        infinite=check.values in {"inf", "one infinity"},
    )
    if moved is not None:
        standard = replace(standard, slack=_find_slack(arrays.compared(moved), right))
    share = standard.find_share(got)
    if 1 < share < MOST_BY_CHANCE and standard.peak == closeness.RATIO:
        place = next(place for place, output in enumerate(calls.first) if output is actual)
        standard = replace(standard, others=[pair[place] for pair in calls.redrawn])
        share = standard.find_share(got)
    stats = replace(errors.stats, of_allowed=share if share <= 1 else None)
    result = check.result(errors=stats, reference_errors=usual_errors.stats, rtol=rtol, atol=atol)
    if share > 1:
        misplaced = standard.misplaced(got)
        if misplaced.any():
            at = closeness.first_index(misplaced)
            values: dict[str, Fact] = {"got": str(float(got[at])), "expected": str(float(standard.rounded[at]))}
            failure = Reason("not_finite", {**_locate(check.case, misplaced), **values})
        else:
            over = closeness.excess(closeness.widen(got), right, rtol, atol + standard.slack)
            failure = _find_farthest(result, got, right, over, float)
        result = replace(result, failure=failure)
    # perfci chose the size of all other values, and another seed makes a tolerance no wider.
    # Nor does it say something where all terms cancel, and the reference is off by more than its answer.
    elif check.values == "normal" and check.seed == FIXED_SEEDS[0] and (usual_errors.stats.rmse or 0.0) < errors.exact:
        rms = errors.exact
        stated = suite.tolerance_reason is not None and dtype in (suite.tolerance or {})
        if broken := closeness.find_accepted(standard, got, dtype, rms, stated=stated):
            facts: dict[str, Fact] = {
                "case": check.case,
                "broken": broken,
                "atol": atol,
                "rtol": rtol,
                "rms": rms,
                "dtype": dtype,
            }
            result = replace(result, unchecked=Reason("vacuous", facts))
    return result, errors, usual_errors


@np.errstate(invalid="ignore", over="ignore")
def _find_slack(moved: Any, right: Any) -> Any:
    """How far nudged inputs move each element of the answer.

    Where it jumps, as trunc does at whole numbers, the input's side is not the kernel's to choose.
    """
    lib = closeness.library(right)
    slack = lib.abs(closeness.widen(moved) - right)
    return lib.where(lib.isfinite(slack) & (slack <= MOST_MOVED * lib.abs(right)), slack, 0.0)


def _find_farthest(result: AccuracyCase, got: Any, right: Any, over: Any, number: type[int | float]) -> Reason:
    """Names the element farthest beyond what it is allowed. The largest error may be that of a large value."""
    at = closeness.find_index(int(over.argmax()), over)
    count = int((over > 0).sum())
    value, expected = number(got[at]), number(right[at])
    usual = result.reference_errors.max_abs if result.reference_errors else 0.0
    facts: dict[str, Fact] = {"case": result.case, "count": count, "size": math.prod(got.shape), "index": str(at)}
    values = {"got": value, "expected": expected, "error": abs(value - expected)}
    return Reason("wrong_values", {**facts, **values, "usual_error": usual, "rtol": result.rtol, "atol": result.atol})


def _find_left_out(calls: _Calls) -> dict[str, Fact]:
    """The parameter along which the kernel's answer is the reference's without the last inputs, and how many.

    Nothing if it was not looked for: once a case is enough. An empty name if there is no such parameter.
    """
    arrays, check = calls.arrays, calls.check
    lengths = {name: arrays.facts(array).shape for name, array in calls.inputs.items() if arrays.is_array(array)}
    first = (check.values, check.layout, check.seed) == ("normal", "contiguous", FIXED_SEEDS[0])
    if not first or sum(map(math.prod, lengths.values())) > MOST_CUT:
        return {}
    for name, size in check.params.items():
        axes = [
            (argument, axis)
            for argument, shape in lengths.items()
            for axis, length in enumerate(shape)
            if length == size
        ]
        rests = (size % 2**power for power in range(14)) if axes and type(size) is int else ()
        for rest in dict.fromkeys((1, *rests) if rests else ()):
            if 0 < rest < size and _answers_alike(calls, _cut(calls.inputs, axes, size - rest)):
                return {"left_out": name, "left": rest}
    return {"left_out": ""}


def _cut(inputs: Inputs, axes: list[tuple[str, int]], length: int) -> dict[str, Any]:
    """The inputs with only so many elements along these axes of theirs."""
    cut = dict(inputs)
    for name, axis in axes:
        cut[name] = cut[name][(slice(None),) * axis + (slice(length),)]
    return cut


def _answers_alike(calls: _Calls, inputs: Inputs) -> bool:
    """Whether the kernel's answer begins as the reference's for other inputs, which may be shorter."""
    arrays, suite = calls.arrays, calls.suite
    try:
        others = call_exact(suite.reference, arrays.upcast(inputs), arrays, suite.mutates)
    except Exception:  # inputs that the reference refuses
        return False
    for actual, other in zip(calls.first, others, strict=True):
        got, right = arrays.host(actual), arrays.host(other)
        if not right.size or got.ndim != right.ndim or any(map(operator.lt, got.shape, right.shape)):
            return False
        got = got[tuple(map(slice, right.shape))]
        rtol, atol = closeness.tolerance(arrays.facts(actual).dtype, suite.tolerance, calls.terms)
        over = closeness.excess(got, right, rtol, atol * calls.term)
        if (over > 0).any() or not np.array_equal(np.isfinite(got), np.isfinite(right)):
            return False
    return True


def _choose_worse(left: AccuracyCase, right: AccuracyCase) -> AccuracyCase:
    """Of two outputs of one call, the first that failed, else the first unchecked, else that of the larger error."""
    if left.failure or right.failure:
        return left if left.failure else right
    if left.unchecked or right.unchecked:
        return left if left.unchecked else right
    if left.errors and (not right.errors or (left.errors.max_abs or 0) > (right.errors.max_abs or 0)):
        return left
    return right
