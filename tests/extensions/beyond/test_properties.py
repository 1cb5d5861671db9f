"""What a suite states beyond its cases: rows that stand alone, permutations, answers that stay."""

import subprocess
import sys

import numpy as np
import pytest

from perfci.device.fake import FakeDevice, FakeSpec
from perfci.extensions.beyond.properties import check_properties, propose
from perfci.ops.spec import Accuracy, grid

CASES = grid(rows=[6], cols=[9], dtype=["float32"])


def describe(error):
    return {"error": type(error).__name__, "message": str(error), "file": "op.py", "line": 1}


def make_inputs(rows, cols, dtype, device, seed):
    return {"x": np.random.default_rng(seed).standard_normal((rows, cols)).astype(dtype)}


def sum_rows(x):
    return x.sum(axis=-1, dtype=np.float64).astype(x.dtype)


def sum_in_splits(x):
    """Another order of summation where there are few rows, as kernels have that split long rows."""
    if len(x) > 4:
        return x.sum(axis=-1)
    return np.float32(x[:, ::2].sum(axis=-1)) + x[:, 1::2].sum(axis=-1)


def suite(kernel, reference=None, **stated):
    return Accuracy(kernel, reference or sum_rows, make_inputs, cases=CASES, **stated)


def check(kernel, reference=None, **stated):
    device = FakeDevice(FakeSpec(), 1)
    return list(check_properties(suite(kernel, reference, **stated), device, None, describe))


def test_a_row_that_depends_on_its_batch_is_found():
    (result,) = check(sum_in_splits, invariant=("rows",))

    assert result.failure.kind == "row_depends"
    assert result.failure.facts["how"] == "alone"


def test_rows_that_stand_alone_are_right():
    (result,) = check(sum_rows, invariant=("rows",))

    assert result.failure is result.unchecked is None


@pytest.mark.parametrize(
    ("kernel", "how"),
    [
        (lambda x: sum_rows(x) + np.arange(len(x), dtype=x.dtype) // 5, "alone"),
        (lambda x: sum_rows(x) * (1 + (len(x) > 6)), "among more"),
        (lambda x: sum_rows(x) + (x[0, 0] == make_inputs(1, 9, "float32", "", 0)["x"][0, 0]), "alone"),
    ],
)
def test_a_place_and_a_number_of_rows_that_matter_are_found(kernel, how):
    (result,) = check(kernel, invariant=("rows",))

    assert result.failure.facts["how"] == how


def test_a_row_that_depends_on_a_batch_as_large_as_a_literal_of_the_kernel_is_found():
    (result,) = check(lambda x: sum_rows(x) * np.float32(1 + 1e-6 * (len(x) >= 700)), invariant=("rows",))

    assert (result.failure.facts["how"], result.failure.facts["size"] > 700) == ("among more", True)


@pytest.mark.parametrize(("divisor", "size"), [(7, 112), (9, 90), (16, 112)])
def test_a_row_that_depends_on_what_divides_its_batch_is_found(divisor, size):
    (result,) = check(lambda x: sum_rows(x) * np.float32(1 + 1e-6 * (len(x) % divisor == 0)), invariant=("rows",))

    assert (result.failure.facts["how"], result.failure.facts["size"]) == ("among more", size)


def test_an_answer_that_follows_no_permutation_is_found():
    def weighs_places(x):
        return sum_rows(x * np.arange(x.shape[1], dtype=x.dtype))

    assert check(weighs_places, weighs_places, permutes=("cols",))[0].failure.kind == "not_permuted"
    assert check(sum_rows, permutes=("cols", "rows"))[0].failure is None


def test_an_answer_that_changes_as_input_is_found():
    def relu(x):
        return np.maximum(x, 0)

    assert check(relu, relu, idempotent=True)[0].failure is None
    assert check(lambda x: 2 * x, relu, idempotent=True)[0].failure.kind == "not_idempotent"


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        ({"invariant": ("cols",)}, "an output has no axis of cols"),
        ({"invariant": ("dtype",)}, "dtype is no size of the case"),
        ({"idempotent": True}, "no input has the form of the output"),
    ],
)
def test_what_a_case_cannot_show_is_said(stated, why):
    (result,) = check(sum_rows, **stated)

    assert (result.failure, result.unchecked.facts["why"]) == (None, why)


def test_a_kernel_that_raises_for_one_row_is_an_error():
    def wants_many(x):
        if len(x) < 2:
            raise ValueError("too few")
        return sum_rows(x)

    (result,) = check(wants_many, invariant=("rows",))

    assert (result.raised, result.failure.kind) == (True, "property_raised")


def test_properties_that_hold_are_proposed_as_lines_of_a_suite():
    device = FakeDevice(FakeSpec(), 1)

    assert propose(suite(sum_rows), device, CASES[0]) == ['invariant=("rows",),', 'permutes=("rows", "cols"),']
    assert propose(suite(sum_in_splits), device, CASES[0]) == ['permutes=("rows", "cols"),']
    assert propose(suite(lambda x: np.maximum(x, 0), lambda x: np.maximum(x, 0)), device, CASES[0])[-1] == (
        "idempotent=True,"
    )


@pytest.fixture
def stated(project):
    project.edit(
        "scale", "accuracy", "    make_inputs=make_inputs,", '    make_inputs=make_inputs, invariant=("rows",),'
    )
    return project


def test_a_check_makes_what_the_suite_states(stated):
    checks = [len(stated.check("--suite", "accuracy", "--op", "scale").rows), stated.run_record().ops[0].accuracy[-1]]

    assert checks[1].case == "rows=5,cols=31,dtype=float32"
    assert checks[1].failure is None


def test_an_op_with_rows_that_depend_on_their_batch_is_wrong(stated):
    stated.edit("scale", "triton", "return out", "return out if len(x) in {1, 5, 7, 64} else np.nextafter(out, 9)")
    answer = stated.check("--suite", "accuracy", "--op", "scale")

    assert answer.code == 2
    assert answer.verdicts("scale") == {"WRONG"}
    assert "do not stand alone" in answer.out
    least = stated.run_record().ops[0].accuracy[-1]
    lines = least.failure.facts["python"]
    shown = subprocess.run([sys.executable, "-c", lines], cwd=stated.root, capture_output=True, text=True, check=True)
    assert least.case == "rows=1,cols=1,dtype=float32"
    assert "row_depends" in shown.stdout
