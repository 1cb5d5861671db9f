"""A wrong case is shrunk to the smallest one, and printed as lines of Python that run."""

import math
import subprocess
import sys
import time

import numpy as np
import pytest

from perfci.core.model import AccuracyCase
from perfci.device.fake import FakeDevice, FakeSpec
from perfci.extensions.beyond.least import AGAIN, Filling, Shrinker, list_smaller
from perfci.ops.spec import VALUES, Accuracy, grid


def describe(error):
    return {"error": type(error).__name__, "message": str(error)}


def make_inputs(rows, cols, dtype, device, seed):
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((rows, cols)).astype(dtype), "y": rng.standard_normal(cols).astype(dtype)}


def add(x, y):
    return x + y


def shrink(kernel, values="normal", layout="contiguous", uses_dot=False, **params):
    case = {"rows": 33, "cols": 100, "dtype": "float16", **params}
    cases = grid(**{name: [value] for name, value in case.items()})
    suite = Accuracy(kernel, add, make_inputs, cases, uses_dot=uses_dot)
    wrong = AccuracyCase(",".join(f"{name}={value}" for name, value in case.items()), values, layout, 0)
    return Shrinker(suite, FakeDevice(FakeSpec(), 1), wrong, describe, time.monotonic() + 30).shrink()


def test_sizes_and_dtype_shrink_to_what_the_fault_needs():
    def loses_column_64(x, y):
        answer = x + y
        answer[:, 64:65] = 0
        return answer

    least = shrink(loses_column_64)

    assert least.check.params == {"rows": 1, "cols": 65, "dtype": "float32"}
    assert least.fillings == {"x": Filling(1.0), "y": Filling(1.0)}


def test_a_fault_in_one_dtype_keeps_it():
    least = shrink(lambda x, y: x + y + (x.dtype == np.float16))

    assert least.check.params == {"rows": 1, "cols": 1, "dtype": "float16"}


def test_a_product_keeps_its_dtype_as_float32_would_be_multiplied_as_tf32():
    assert shrink(lambda x, y: x - y, uses_dot=True).check.params["dtype"] == "float16"


def test_one_value_is_left_where_the_fault_needs_one():
    def clips_large(x, y):
        return np.where(np.abs(x) > 2.5, np.sign(x) * 2.5, x).astype(x.dtype) + y

    least = shrink(clips_large)
    ((place, value),) = least.fillings["x"].others.items()

    assert abs(value) > 2.5
    assert least.fillings["y"] == Filling(1.0)
    assert place < (33, 100)


def test_values_and_layout_become_plain_where_the_fault_does_not_need_them():
    least = shrink(lambda x, y: x - y, values="cancellation", layout="contiguous")

    assert (least.check.values, least.check.layout, least.check.seed) == ("normal", "contiguous", 0)
    assert "cancellation" in VALUES


def test_a_layout_that_the_fault_needs_stays():
    def ignores_strides(x, y):
        return add(x, y) + (x.strides[-1] != x.itemsize)

    assert shrink(ignores_strides, layout="strided").check.layout == "strided"


def test_a_fault_that_does_not_show_again_gives_nothing():
    assert shrink(add) is None


def test_a_fault_that_shows_seldom_is_called_for_again():
    calls = []

    def is_wrong_at_times(x, y):
        calls.append(1)
        return x + y + (len(calls) % (2 * AGAIN - 2) == 0)

    assert shrink(is_wrong_at_times) is not None


def test_a_value_that_the_suite_does_not_have_is_written_out():
    def loses_nan(x, y):
        return np.nan_to_num(x, nan=0.0) + y

    least = shrink(loses_nan, values="nan")

    (value,) = least.fillings["x"].others.values()

    assert math.isnan(value)
    assert least.fillings["y"] == Filling(1.0)


def test_smaller_sizes_come_in_order_and_flags_stay():
    assert list(list_smaller(True)) == []
    assert list(list_smaller(3)) == [1, 2]
    assert next(list_smaller((4, 5))) == (5,)


@pytest.fixture
def wrong(project):
    project.edit("scale", "triton", "return ", "return 2 * ")
    return project.check("--suite", "accuracy", "--op", "scale")


def test_the_least_case_of_a_check_is_stored_with_lines_that_run(project, wrong):
    (least,) = (
        case
        for op in project.run_record().ops
        for case in op.accuracy
        if case.failure and "python" in case.failure.facts
    )
    lines = least.failure.facts["python"]
    run = subprocess.run([sys.executable, "-c", lines], cwd=project.root, capture_output=True, text=True, check=True)
    got, expected = map(float, run.stdout.split())

    assert wrong.code == 2
    assert least.failure.kind == "least_wrong"
    assert len(lines.splitlines()) == 5
    assert got == 2 * expected


def test_the_lines_are_printed_unbroken(project, wrong):
    answer = project.perfci("check", "--device", "fake", "--suite", "accuracy", "--op", "scale")
    lines = next(
        case.failure.facts["python"]
        for case in project.run_record().ops[0].accuracy
        if case.failure and "python" in case.failure.facts
    )

    assert lines in answer.out
