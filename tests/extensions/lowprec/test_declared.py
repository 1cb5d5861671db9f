"""What ops declare, in every way in which it can be wrong."""

import numpy as np
import pytest

from perfci.core.model import AccuracyCase
from perfci.core.wording import sentence
from perfci.extensions.lowprec.declared import list_stored_cases
from perfci.ops.spec import Accuracy, Quantised, Stored, grid
from tests.extensions.lowprec.storage_examples import CASES, E4M3, measured, normal, sound, stored

ONE = grid(scaling=["tensor"], dtype=[E4M3])
X = np.ones((4, 8))
GOOD = stored(normal(rows=4, cols=8))


def given(**changed):
    parts = {"original": GOOD.original, "values": GOOD.values, "scale": GOOD.scale, "group": GOOD.group, "dtype": E4M3}
    return lambda scaling, dtype, device, seed: {"x": Stored(**(parts | changed))}


def refused(store):
    """The one failed check that comes of a declaration."""
    (tensor,) = measured(store, ONE)
    assert isinstance(tensor, AccuracyCase), tensor
    assert tensor.failure
    assert tensor.failure.facts["case"] == tensor.case
    text = sentence(tensor.failure)
    assert text.startswith(("The function", "stored=")) and text.endswith(".")
    return tensor


def test_every_tensor_of_every_case_is_recorded_under_an_id_of_its_own():
    tensors = sound()

    assert len(tensors) == 12 == len({tensor.case for tensor in tensors})
    first = tensors[0]
    assert first.case == "stored=a,scaling=tensor,dtype=float8_e4m3fn"
    assert (first.tensor, first.mode, first.dtype, first.family) == ("a", "tensor", E4M3, "stored=a")
    assert {tensor.mode for tensor in tensors} == {"tensor", "row", "group"}
    assert (first.groups, first.scale_bytes) == (1, 4)
    assert {tensor.groups for tensor in tensors if tensor.mode == "group"} == {64 * 8}


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        (None, 12), ("stored=a,*", 6), ("stored=a", 6), ("scaling=row", 4), ("scaling=row,stored=b", 2), ("rows=1", 0),
        ("stored=c", 0), ("stored=a,scaling=tensor,dtype=float8_e5m2", 1),
    ],
)  # fmt: skip
def test_a_case_pattern_chooses_tensors_too(pattern, count):
    assert len(measured(pattern=pattern)) == count


@pytest.mark.parametrize(
    ("pattern", "count"), [(None, 6), ("stored=a,*", 6), ("scaling=row", 2), ("rows=1", 0), ("stored=a", 6)]
)
def test_the_plan_knows_the_cases_but_not_the_tensors(pattern, count):
    suite = Accuracy(None, None, None, (), quantised=Quantised(lambda: None, CASES))

    assert len(list_stored_cases(suite, pattern)) == count
    assert list_stored_cases(Accuracy(None, None, None, ()), pattern) == ()


@pytest.mark.parametrize(
    ("kind", "store"),
    [
        ("stored_nothing", lambda **_: {}),
        ("stored_type", lambda **_: {"x": X}),
        ("stored_name", lambda **_: {"a,b": GOOD}),
        ("stored_type", given(scale=0.5)),
        ("stored_shape", given(original=GOOD.original[:, :4])),
        ("stored_shape", given(original=np.ones((0, 8)), values=np.ones((0, 8)))),
        ("stored_wide", given(dtype="float32")),
        ("stored_dtype", given(original=GOOD.original.astype(np.int64))),
        ("stored_dtype", given(scale=np.array([[1]]))),
        ("stored_group", given(group=(1,))),
        ("stored_group", given(group=(0, 8))),
        ("stored_group", given(scale=np.ones(8), group=None)),
        ("stored_group", given(scale=np.ones((4, 3)), group=(1, 4))),
        ("stored_group", given(scale=np.ones((1, 1)), group=(1, 4))),
        ("stored_unheld", given(values=GOOD.original)),
        ("stored_not_finite", given(original=np.full((4, 8), np.nan))),
    ],
)  # fmt: skip
def test_each_breach_of_what_is_declared_is_an_error_in_a_sentence(kind, store):
    tensor = refused(store)

    assert (tensor.failure.kind, tensor.raised) == (kind, True)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("stored_scale_value", {"scale": np.array([[np.nan]])}),
        ("stored_scale_value", {"scale": np.array([[0.0]])}),
        ("stored_overflowed", {"values": np.where(np.arange(32).reshape(4, 8) == 3, np.nan, GOOD.values)}),
        ("stored_overflowed", {"values": np.where(np.arange(32).reshape(4, 8) == 3, np.inf, GOOD.values)}),
    ],
)
def test_what_the_ops_quantisation_does_wrong_is_wrong(kind, changes):
    tensor = refused(given(**changes))

    assert (tensor.failure.kind, tensor.raised) == (kind, False)


def test_a_function_that_draws_without_the_seed_is_refused():
    rng = np.random.default_rng(0)

    def store(scaling, dtype, device, seed):
        return {"x": stored(rng.normal(size=(4, 8)))}

    assert refused(store).failure.kind == "stored_differs"


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_scale_may_have_any_shape_of_one_element(shape):
    (tensor,) = measured(given(scale=GOOD.scale.reshape(shape), group=None), ONE)

    assert tensor.groups == 1
    assert tensor.errors == one_by_one().errors


def one_by_one():
    (tensor,) = measured(given(), ONE)
    return tensor
