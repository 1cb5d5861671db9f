import numpy as np
import pytest

from perfci.device.numpy_arrays import NumpyArrays
from perfci.ops.spec import LAYOUTS

arrays = NumpyArrays()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (0,), (3, 4), (2, 0), (2, 3, 4), (2, 1, 3, 2)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "bool"])
def test_placed_inputs_keep_their_values_in_every_layout(layout, shape, dtype):
    x = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)

    placed = arrays.placed({"x": x, "k": 3}, layout)

    expected = np.broadcast_to(x[:1], shape) if layout == "expanded" and shape and shape[0] else x
    np.testing.assert_array_equal(placed["x"], expected)
    assert (placed["x"].shape, placed["x"].dtype, placed["k"]) == (shape, x.dtype, 3)
    assert not np.shares_memory(placed["x"], x)


def test_a_strided_input_has_nan_in_its_gaps_and_a_contiguous_one_around_it():
    x = np.ones((2, 3), np.float32)

    strided = arrays.placed({"x": x}, "strided")["x"]
    room = arrays.placed({"x": x}, "contiguous")["x"].base

    assert strided.strides == (24, 8)
    assert np.isnan(strided.base[strided.base != 1]).all()
    assert np.isnan(room[:64]).all() and np.isnan(room[-64:]).all()


def test_an_expanded_input_has_stride_0():
    assert arrays.placed({"x": np.ones((4, 2))}, "expanded")["x"].strides[0] == 0


def test_elements_that_are_never_written_hold_nan_in_one_call_and_the_filler_in_the_next():
    with arrays.watch_allocations("nan"):
        first = [np.empty(4, np.float16), np.empty_like(np.ones((2, 2)))]
    with arrays.watch_allocations("value"):
        second = np.empty(4, np.float32)

    assert all(np.isnan(array).all() for array in first)
    assert arrays.is_filler(second).all()
    assert np.empty.__name__ == "empty"


def test_the_allocators_are_put_back_when_the_kernel_raises():
    before = np.empty, np.empty_like

    with pytest.raises(RuntimeError), arrays.watch_allocations("nan"):
        raise RuntimeError

    assert (np.empty, np.empty_like) == before


def test_a_mismatch_is_counted_and_the_worst_element_named():
    actual = np.array([[1, 2, 3], [4, 5.5, 9]], np.float32)
    expected = np.array([[1, 2, 3], [4, 5, 6]], np.float64)

    found = arrays.mismatch(actual, expected, 0.0, 0.1)

    assert (found.count, found.worst_abs, found.worst_index) == (2, 3.0, (1, 2))
    assert arrays.mismatch(actual, expected, 0.0, 4.0).count == 0
    assert arrays.mismatch(actual, expected, 0.5, 0.0).count == 0


@pytest.mark.parametrize(
    ("actual", "expected", "count"),
    [
        (np.nan, np.nan, 0),
        (np.inf, np.inf, 0),
        (np.inf, 1e300, 0),
        (np.nan, 1.0, 1),
        (1.0, np.nan, 1),
        (np.inf, 1.0, 1),
        (np.inf, -np.inf, 1),
        (1.0, np.inf, 1),
    ],
)
def test_what_is_not_finite_must_agree_after_rounding_to_the_dtype(actual, expected, count):
    found = arrays.mismatch(np.array([actual], np.float32), np.array([expected]), 1.0, 1.0)

    assert (found.count, found.worst_abs) == (count, np.inf if count else 0.0)


def test_same_bits_tells_zeros_nans_and_dtypes_apart():
    assert arrays.same_bits(np.array([np.nan, 1.0]), np.array([np.nan, 1.0]))
    assert not arrays.same_bits(np.array([0.0]), np.array([-0.0]))
    assert not arrays.same_bits(np.zeros(2, np.float32), np.zeros(2, np.int32))
    assert not arrays.same_bits(np.zeros((2, 1)), np.zeros((1, 2)))


def test_facts_say_whether_an_array_is_dense():
    x = np.ones((4, 6), np.float16)

    assert arrays.facts(x).dense and not arrays.facts(x[:, ::2]).dense and not arrays.facts(x.T).dense
    assert (arrays.facts(x).shape, arrays.facts(x).dtype) == ((4, 6), "float16")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dtype_facts_are_numpys(dtype):
    facts = arrays.dtype_facts(np.ones(1, dtype))

    info = np.finfo(dtype)
    assert (facts.largest, facts.epsilon) == (info.max, info.eps)
    assert arrays.dtype_facts(np.ones(1, np.int64)) is None


def test_rounding_and_upcasting_keep_what_they_should():
    half = np.ones(1, np.float16)

    assert arrays.rounded(np.array([1e9, 1 / 3]), half).tolist() == [np.inf, float(np.float16(1 / 3))]
    assert arrays.upcast({"x": half, "k": 2})["x"].dtype == np.float64
    assert arrays.upcast({"i": np.ones(2, np.int32)})["i"].dtype == np.int32


def test_like_gives_an_array_even_of_a_single_number():
    made = arrays.like(np.float64(3), np.array(1.0, np.float32))

    assert isinstance(made, np.ndarray) and made.shape == () and made.dtype == np.float32


def test_refilling_changes_the_values_and_neither_the_buffers_nor_their_layout():
    strided = np.zeros((3, 8), np.float32)[:, ::2]
    inputs = {"x": np.ones(4), "ys": [strided, 3], "k": 3}
    places = [value.ctypes.data for value in (inputs["x"], strided)]

    arrays.refill(inputs, {"x": np.full(4, 2.0), "ys": [np.full((3, 4), 5, np.float32), 3], "k": 3})

    assert inputs["x"].tolist() == [2.0] * 4 and (strided == 5).all()
    assert [value.ctypes.data for value in (inputs["x"], strided)] == places
    assert strided.strides == (32, 8)


@pytest.mark.parametrize(
    "fresh",
    [
        {"x": np.full(4, 2.0), "y": np.full(3, 2.0), "k": 3},
        {"x": np.full(4, 2.0), "y": np.full(2, 2.0, np.float32), "k": 3},
        {"x": np.full(4, 2.0), "k": 3},
        {"x": np.full(4, 2.0), "y": 7, "k": 3},
        {"x": np.full(4, 2.0), "y": np.full(2, 2.0), "k": 4},
    ],
    ids=["another shape", "another dtype", "not there", "no array", "another length"],
)
def test_values_that_do_not_fit_change_nothing_since_values_of_one_call_belong_together(fresh):
    inputs = {"x": np.ones(4), "y": np.ones(2), "k": 3}

    arrays.refill(inputs, fresh)

    assert inputs["x"].tolist() == [1.0] * 4 and inputs["y"].tolist() == [1.0] * 2


def test_a_buffer_that_cannot_be_written_or_stands_for_several_elements_is_left_alone():
    frozen, windows = np.ones((2, 3)), np.lib.stride_tricks.as_strided(np.ones(3), (2, 3), (0, 8))
    frozen.flags.writeable = False
    for left in (np.broadcast_to(np.ones(3), (2, 3)), frozen, windows):
        inputs = {"x": np.ones(2), "y": left}

        arrays.refill(inputs, {"x": np.full(2, 2.0), "y": np.full((2, 3), 2.0)})

        assert inputs["x"].tolist() == [1.0] * 2 and (left == 1).all()


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("value", [0, 1, 100, np.nan, np.inf])
def test_spoiling_makes_one_element_wrong_beyond_every_tolerance(shape, dtype, value):
    array = np.full(shape, value if dtype.startswith("float") or np.isfinite(value) else 255, np.float64).astype(dtype)
    before = array.copy()

    arrays.spoil(array)

    assert arrays.mismatch(array, before, 0.1, 0.1).count == 1


def test_nothing_can_be_spoiled_in_an_empty_array():
    array = np.ones((0, 3))

    arrays.spoil(array)

    assert array.shape == (0, 3)
