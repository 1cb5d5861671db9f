"""Suites of a base and of a change compared as data."""

from dataclasses import replace

import numpy as np
import pytest

from perfci.device.fake import FakeDevice, FakeSpec, work
from perfci.measure.suites import describe_suite, find_other_answers, find_slower, find_weaker
from perfci.ops.spec import VALUES, Accuracy, Performance, Quantised, grid

DEVICE = FakeDevice(FakeSpec(), 1)
CASES = grid(rows=[3, 40], dtype=["float32"])


def make_inputs(rows, dtype, device, seed):
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((rows, 50)).astype(dtype), "at": rng.integers(0, 9, rows), "factor": 0.5}


def reference(x, at, factor):
    work(10.0)
    return x * x.dtype.type(factor)


def reject(name, rows):
    return name, lambda device: {"x": np.zeros((rows, 2), np.int32)}


ACCURACY = Accuracy(
    reference,
    reference,
    make_inputs,
    CASES,
    tolerance={"float32": (1e-4, 1e-5)},
    rejects=(reject("integers", 4), reject("nothing", 0)),
    large_cases=grid(rows=[2**31], dtype=["float32"]),
    accelerator_cases=grid(rows=[2**20], dtype=["float32"]),
    quantised=Quantised(lambda **_: {}, grid(rows=[3], scaling=["row"])),
)
PERFORMANCE = Performance(
    reference, reference, make_inputs, CASES, bytes_moved=lambda rows, dtype: rows * 400, flops=lambda rows, dtype: rows
)


def found(accuracy=None, performance=None, **later):
    """What is weaker in suites with these fields, as pairs of what and where."""
    after = replace(ACCURACY, **(accuracy or {})), replace(PERFORMANCE, **(performance or {}))
    reasons = find_weaker((ACCURACY, PERFORMANCE), after, DEVICE)
    return [(reason.kind.removeprefix("weaker_"), reason.facts["what"]) for reason in reasons]


@pytest.mark.parametrize(
    ("accuracy", "performance", "expected"),
    [
        ({"cases": CASES[:1]}, {}, ("fewer", "cases")),
        ({}, {"cases": CASES[1:]}, ("fewer", "cases")),
        ({"values": VALUES[:4]}, {}, ("fewer", "values")),
        ({"layouts": ("contiguous",)}, {}, ("fewer", "layouts")),
        ({"large_cases": ()}, {}, ("fewer", "large cases")),
        ({"accelerator_cases": ()}, {}, ("fewer", "accelerator cases")),
        ({"quantised": None}, {}, ("fewer", "stored tensors")),
        ({"probe_cases": ()}, {}, ("fewer", "probed dtypes")),
        ({"rejects": (reject("integers", 4),)}, {}, ("fewer", "rejects")),
        ({"tolerance": {"float32": (1e-4, 1e-4)}}, {}, ("tolerance", "tolerance")),
        ({"tolerance": {"float32": (1e-3, 0.0)}}, {}, ("tolerance", "tolerance")),
        ({"tolerance_reason": "never mind"}, {}, ("flag", "tolerance")),
        ({"deterministic": False}, {}, ("flag", "flags")),
        ({"uses_dot": True}, {}, ("flag", "flags")),
        ({}, {"cache": "warm"}, ("flag", "flags")),
        ({}, {"flops": None}, ("flag", "numbers")),
        ({"reduces": lambda rows, dtype: 50}, {}, ("number", "numbers")),
        ({"reduces": lambda rows, dtype: 2 if rows == 2**20 else 1}, {}, ("number", "numbers")),
        ({}, {"bytes_moved": lambda rows, dtype: rows * 1600}, ("number", "numbers")),
        ({}, {"bytes_moved": lambda rows, dtype: rows * 200}, ("number", "numbers")),
        ({}, {"flops": lambda rows, dtype: 1}, ("number", "numbers")),
        ({"domain": (0.0, None)}, {}, ("flag", "flags")),
        ({"mutates": ("x",)}, {}, ("flag", "flags")),
        ({}, {"mutates": ("x",)}, ("flag", "flags")),
        ({"probe_cases": CASES[:1]}, {}, ("fewer", "probes")),
    ],
)
def test_whatever_asks_for_less_is_named(accuracy, performance, expected):
    assert found(accuracy, performance) == [expected]


def test_what_asks_for_more_or_says_the_same_otherwise_is_not_weaker():
    stricter = {
        "cases": (*CASES, *grid(rows=[41], dtype=["float32", "float16"])),
        "tolerance": {"float32": (1e-5, 1e-6), "float16": (1e-3, 1e-5)},
        "rejects": (reject("whole numbers", 4), reject("nothing", 0), reject("one", 1)),
        "probe_cases": CASES,
    }
    names = {f"rows={rows},dtype=float32,layer=1": f"rows={rows},dtype=float32" for rows in (3, 40)}

    def take(rows, dtype, device, seed, layer=0):
        return make_inputs(rows, dtype, device, seed)

    renamed = {"cases": grid(rows=[3, 40], dtype=["float32"], layer=[1]), "make_inputs": take}
    moved = {"bytes_moved": lambda rows, dtype, layer: rows * 400, "flops": lambda rows, dtype, layer: rows}
    assert found() == found(stricter) == []
    assert found(renamed, {**renamed, **moved, "renamed": names}) == []


INPUTS = {
    "zeros": lambda given: {**given, "x": given["x"] * 0},
    "one value": lambda given: {**given, "x": np.full_like(given["x"], 0.3)},
    "few indices": lambda given: {**given, "at": given["at"] // 9},
    "a narrow range": lambda given: {**given, "x": given["x"] / 10},
    "a factor without effect": lambda given: {**given, "factor": 0},
    "another factor": lambda given: {**given, "factor": 0.25},
    "one row": lambda given: {**given, "x": given["x"][:1]},
    "another dtype": lambda given: {**given, "x": given["x"].astype(np.float16)},
    "other strides": lambda given: {**given, "x": np.asfortranarray(given["x"])},
    "sorted": lambda given: {**given, "x": np.sort(given["x"].ravel()).reshape(given["x"].shape)},
    "a wider range": lambda given: {**given, "x": given["x"] * 4},
    "an input less": lambda given: {name: value for name, value in given.items() if name != "factor"},
    "an input more": lambda given: {**given, "flag": True},
}


@pytest.mark.parametrize("change", INPUTS.values(), ids=INPUTS)
def test_other_inputs_of_the_same_seed_are_weaker(change):
    def reference(x, at, factor=0.5, flag=False):
        return x

    changed = {"make_inputs": lambda **case: change(make_inputs(**case)), "reference": reference}
    assert found(changed) == [("inputs", "inputs")]


def test_inputs_without_the_nan_of_the_base_are_weaker():
    def with_nan(**case):
        given = make_inputs(**case)
        given["x"][:, ::7] = np.nan
        return given

    before = replace(ACCURACY, make_inputs=with_nan)
    reasons = list(find_weaker((before, PERFORMANCE), (ACCURACY, PERFORMANCE), DEVICE))

    assert [(reason.facts["name"], reason.facts["before"]) for reason in reasons] == [("x", "24 NaN")]


def test_inputs_that_are_the_same_for_every_seed_are_weaker():
    assert (
        found({"make_inputs": lambda rows, dtype, device, seed: make_inputs(rows, dtype, device, 5)})
        == [("inputs", "inputs")] * 2
    )  # x and at


def test_a_new_argument_with_the_value_that_it_has_by_itself_is_not_weaker():
    def reference(x, at, factor, flag=False):
        return x

    changed = {"make_inputs": lambda **case: {**make_inputs(**case), "flag": False}, "reference": reference}
    assert found(changed) == []


def test_other_random_inputs_are_as_good():
    def other(rows, dtype, device, seed):
        return make_inputs(rows, dtype, device, seed + 1)

    assert found({"make_inputs": other}, {"make_inputs": other}) == []


def test_references_are_compared_by_their_answers_and_by_their_form():
    def answer(change):
        return find_other_answers(ACCURACY, replace(ACCURACY, reference=change), DEVICE.arrays)

    assert answer(lambda x, at, factor: factor * x) is None
    other = answer(lambda x, at, factor: np.where(np.isnan(x), 0, x) * x.dtype.type(factor))
    assert (other.kind, other.facts["values"]) == ("answers_differ", "nan")
    assert answer(lambda x, at, factor: (x * factor).astype(np.float64)).kind == "answers_formed"
    assert answer(lambda x, at, factor: x[:, 1:] * x.dtype.type(factor)).kind == "answers_formed"
    assert answer(lambda x, at, factor: x[999]).kind == "answers_raise"


def test_a_reference_that_takes_longer_is_named_and_a_faster_one_is_not():
    def claims(us):
        def slow(x, at, factor):
            work(us)
            return x

        return replace(PERFORMANCE, reference=slow)

    inputs = make_inputs(3, "float32", "fake", 1)
    slower = find_slower(PERFORMANCE, claims(20.0), inputs, "rows=3", DEVICE)
    assert (slower.kind, slower.facts["before"], slower.facts["after"]) == ("weaker_reference", 10.0, 20.0)
    assert find_slower(PERFORMANCE, claims(10.5), inputs, "rows=3", DEVICE) is None
    assert find_slower(PERFORMANCE, claims(5.0), inputs, "rows=3", DEVICE) is None


def test_a_suite_is_the_same_whatever_its_kernel_and_wherever_its_functions_lie():
    def other(x, at, factor):
        return x

    assert describe_suite(ACCURACY) == describe_suite(replace(ACCURACY, kernel=other))
    assert describe_suite(ACCURACY) != describe_suite(replace(ACCURACY, reference=other))
