"""Timed outputs are held against the float64 reference, with the reference's own error as the measure."""

from __future__ import annotations

import numpy as np
import pytest

from perfci.device.numpy_arrays import NumpyArrays
from perfci.outputs import wrong_output
from perfci.spec import Performance

INPUTS = {"x": np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)}


def double(x):
    return 2 * x


def found(output, reference=double):
    suite = Performance(double, reference, lambda device, seed: INPUTS, [{"n": 1}])
    return wrong_output(suite, NumpyArrays(), {"n": 1}, INPUTS, output)


def test_a_right_output_has_nothing_wrong():
    assert found(double(**INPUTS)) is None


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        (3 * INPUTS["x"], "timed_output_wrong"),
        (np.full_like(INPUTS["x"], np.nan), "timed_output_wrong"),
        (double(**INPUTS)[:2], "wrong_shape"),
        (double(**INPUTS).astype(np.float16), "wrong_dtype"),
        ((double(**INPUTS), double(**INPUTS)), "wrong_count"),
    ],
)
def test_a_wrong_output_is_named(output, kind):
    assert found(output).kind == kind


def test_an_error_of_at_most_twice_the_reference_s_own_passes():
    def rough(x):
        return 2 * x + (0.01 if x.dtype == np.float32 else 0)

    assert found(double(**INPUTS) + np.float32(0.015), rough) is None
    assert found(double(**INPUTS) + np.float32(0.025), rough).kind == "timed_output_wrong"


def test_a_reference_that_overflows_in_its_own_dtype_excuses_nothing():
    def overflowing(x):
        return np.where(x == x.max(), np.inf, 2 * x).astype(x.dtype) if x.dtype == np.float32 else 2 * x

    assert found(3 * INPUTS["x"], overflowing).kind == "timed_output_wrong"
