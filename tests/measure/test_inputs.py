import numpy as np
import pytest

from perfci.device.numpy_arrays import NumpyArrays
from perfci.measure.inputs import bound_inputs, fill_inputs
from perfci.ops.spec import VALUES, Performance, grid

arrays = NumpyArrays()
FLOATS = ["float16", "float32", "float64"]


def fill(values, x, seed=0, products=0):
    return fill_inputs({"x": x}, arrays, values, seed, products)["x"]


def normal(dtype, shape=(40, 50)):
    return np.random.default_rng(9).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("values", [*VALUES, "masked"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (2, 3, 4)])
def test_every_kind_of_values_keeps_shape_and_dtype(values, dtype, shape):
    x = normal(dtype, shape) if shape else np.array(1.0, dtype)

    made = fill(values, x)

    assert isinstance(made, np.ndarray)
    assert (made.shape, made.dtype) == (x.shape, x.dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_each_kind_of_values_is_what_it_is_called(dtype):
    x, info = normal(dtype), np.finfo(dtype)

    assert not fill("zeros", x).any()
    assert (fill("ones", x) == 1).all()
    tiny = np.abs(fill("tiny", x).astype(np.float64))
    assert (tiny >= info.smallest_normal * (1 - info.eps)).all() and (tiny <= 4 * float(info.smallest_normal)).all()
    subnormal = np.abs(fill("subnormal", x))
    assert (subnormal > 0).all() and (subnormal < info.smallest_normal).all()
    large = np.abs(fill("large", x))
    assert np.isfinite(large).all() and (large >= info.max / 8 * (1 - info.eps)).all()


def test_masked_rows_begin_with_infinities_and_end_with_a_number_but_for_the_last_which_has_none():
    x = normal("float32")
    made = fill("masked", x)

    hidden = np.isneginf(made)
    assert (hidden[:, :-1] >= hidden[:, 1:]).all() and len({*hidden.sum(-1)}) > 10
    assert (made[~hidden] == x[~hidden]).all() and not hidden[:-1, -1].any()
    assert hidden[-1].all() and not np.isneginf(fill("masked", x[:1])).all()


def test_mixed_values_meet_in_every_pair():
    x = normal("float32", (40, 50))
    made = fill_inputs({"x": x, "y": x}, arrays, "mixed", 0)

    pairs = {(str(left), str(right)) for left, right in zip(made["x"].flat, made["y"].flat, strict=True)}
    assert len(pairs) == 36 and ("0.0", "nan") in pairs and ("-inf", "-inf") in pairs


def test_no_value_lies_outside_of_the_domain():
    x = np.random.default_rng(9).uniform(-1, 1, (40, 50)).astype("float32")

    for values in VALUES[1:]:
        made = fill_inputs({"x": x}, arrays, values, 0, domain=(-1, None))["x"]
        assert not (made < -1).any(), values
    assert np.isnan(fill_inputs({"x": x}, arrays, "nan", 0, domain=(-1, 1))["x"]).any()


@pytest.mark.parametrize(("values", "special"), [("nan", np.isnan), ("inf", np.isinf)])
def test_some_elements_are_special_and_the_rest_is_untouched(values, special):
    x = normal("float32", (200, 70))

    made = fill(values, x)

    assert special(made).mean() == pytest.approx(1 / 7, abs=0.02)
    np.testing.assert_array_equal(made[~special(made)], x[~special(made)])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("products", [1, 64, 4096])
def test_a_sum_of_products_of_large_values_stays_finite(dtype, products):
    x = normal(dtype)

    made = np.abs(fill("large", x, products=products).astype(np.longdouble))

    assert products * made.max() ** 2 <= np.finfo(dtype).max


def test_a_case_that_does_not_name_a_new_axis_has_the_size_that_make_inputs_gives_it():
    suite = Performance(
        kernel=lambda x: x, reference=lambda x: x,
        make_inputs=lambda rows, device, seed, heads=1: {"x": np.zeros((rows, heads))},
        cases=(*grid(rows=[2]), *grid(rows=[2], heads=[3])),
        bytes_moved=lambda rows, **_: 8 * rows,
    )  # fmt: skip

    assert [bound_inputs(suite, case, "cpu", 0)["x"].shape for case in suite.cases] == [(2, 1), (2, 3)]
    assert [suite.bytes_moved(**case) for case in suite.cases] == [16, 16]
