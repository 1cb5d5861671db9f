"""A chain's state: what stages take and return by name."""

import numpy as np
import pytest

from perfci.device.numpy_arrays import NumpyArrays
from perfci.extensions.lab.chains.runs import StageError, name_outputs, take_arguments
from perfci.extensions.lab.chains.spec import Stage

ARRAYS = NumpyArrays()
WHERE = {"chain": "block", "case": "rows=2"}
X, W = np.ones((2, 3), np.float32), np.ones((3, 4), np.float16)


def stage(function, name="out", **fields):
    return Stage(name, function, function, **fields)


@pytest.mark.parametrize("fields", [{}, {"takes": {"x": "x", "w": "weight"}}])
def test_a_name_that_is_nowhere_is_told_with_those_that_are_there(fields):
    first = stage(lambda x, w: x, **fields)

    with pytest.raises(StageError) as error:
        take_arguments(first, first.kernel, {"x": X}, WHERE)
    assert error.value.reason.kind == "chain_name_missing"
    assert error.value.reason.facts["known"] == "x"


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (None, "NoneType"),
        ((X, X), "tuple"),
        ({}, "{}"),
        ({"q": X, "k": 3}, "{q: ndarray, k: int}"),
        ({"a b": X}, "{a b: ndarray}"),
    ],
)
def test_anything_but_tensors_with_names_is_refused(output, told):
    with pytest.raises(StageError) as error:
        name_outputs(stage(len), output, ARRAYS, WHERE)
    assert error.value.reason.facts["got"] == told
