import math
import os

import numpy as np
import pytest

from perfci.ops.spec import LAYOUTS

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("torch")

import torch

from perfci.device import tensors
from perfci.device.arrays import Damage
from perfci.device.tensors import GUARD_BYTES, TorchArrays
from perfci.measure.closeness import find_mismatch
from perfci.measure.inputs import call_exact

pytestmark = pytest.mark.torch

arrays = TorchArrays("cpu")

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, *FLOAT8)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
SHAPES = ((), (1,), (5,), (0,), (3, 4), (2, 0), (0, 3), (2, 3, 4), (2, 1, 3, 2))


def counted(shape, dtype):
    return torch.arange(math.prod(shape), dtype=torch.float32).remainder(16).reshape(shape).to(dtype)


def room_of(tensor):
    """All of a guarded tensor's memory."""
    return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())


def test_a_reference_that_mixes_float32_into_float64_answers_in_float64():
    inputs = arrays.upcast({"x": torch.rand(3, 3)})

    (answer,) = call_exact(lambda x: x.float() @ x + torch.ones(3), inputs, arrays, ())

    assert answer.dtype == torch.float64
    assert torch.equal(answer, inputs["x"] @ inputs["x"] + 1)


# --- guards around what a kernel allocates ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.complex64, torch.complex128])
@pytest.mark.parametrize("filler", ["nan", "value"])
@pytest.mark.parametrize(
    ("places", "side"),
    [((-1,), "before the start"), ((10,), "past the end"), ((12, 10), "past the end"), ((-7, 10), "past either end")],
)
def test_a_write_past_either_end_of_an_output_is_seen_with_how_far_it_reaches(dtype, filler, places, side):
    guard = GUARD_BYTES // dtype.itemsize
    with arrays.watch_allocations(filler) as watch:
        out = torch.empty(10, dtype=dtype)
        out.copy_(counted((10,), dtype))
    assert watch.find_damage() == Damage()

    for place in places:
        room_of(out)[guard + place] = 3

    damage = watch.find_damage()
    assert damage == Damage(len({place > 0 for place in places}), max(0, -min(places)), max(0, max(places) - 9))
    assert (damage.facts["side"], damage.facts["far"]) == (side, max(damage.before, damage.after))


def test_a_write_that_reaches_the_far_end_of_a_zone_is_seen_too():
    guard = GUARD_BYTES // 4
    with arrays.watch_allocations("nan") as watch:
        first, second = torch.empty(10), torch.empty(4)
    room_of(first)[0] = room_of(second)[-1] = 3.0

    assert watch.find_damage() == Damage(2, guard, guard)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
def test_an_element_that_nobody_writes_differs_between_two_calls(dtype):
    outputs = []
    for filler in ("nan", "value"):
        with arrays.watch_allocations(filler):
            out = torch.empty(4, dtype=dtype)
            out[:3] = 1
        outputs.append(out)

    assert not arrays.same_bits(*outputs)
    assert arrays.same_bits(*(out[:3].clone() for out in outputs))


@pytest.mark.parametrize(
    "make",
    [
        torch.empty_like,
        lambda x: x.new_empty((3, 4)),
        lambda x: torch.empty_strided((3, 4), (1, 3)),
        lambda x: x.new_empty_strided((3, 4), (8, 2)),
        lambda x: torch.empty((3, 4), memory_format=torch.contiguous_format),
        lambda x: torch.empty_permuted((3, 4), (1, 0)),
    ],
)
def test_every_way_to_make_a_tensor_empty_is_guarded(make):
    x = torch.ones(3, 4)
    plain = make(x)

    with arrays.watch_allocations("nan") as watch:
        out = make(x)
    room_of(out)[0] = 1.0

    assert out.isnan().all()
    assert (out.shape, out.stride(), out.dtype) == (plain.shape, plain.stride(), plain.dtype)
    assert watch.find_damage().zones == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(3, 4),
        lambda: torch.zeros_like(torch.ones(3, 4)),
        lambda: torch.ones(3, 4),
        lambda: torch.full((3, 4), 2.5),
        lambda: torch.full_like(torch.ones(3, 4), 2.5),
        lambda: torch.ones(3, 4).new_zeros(3, 4),
    ],
)
def test_memory_that_torch_fills_is_guarded_and_keeps_its_values(make):
    plain = make()

    with arrays.watch_allocations("nan") as watch:
        out = make()
    assert arrays.same_bits(out, plain)
    room_of(out)[0] = 1.0

    assert watch.find_damage().zones == 1


# --- inputs in every layout -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.bool], ids=str)
def test_placed_inputs_keep_their_values_in_every_layout(layout, shape, dtype):
    x = counted(shape, dtype)

    placed = arrays.place({"x": x, "k": 3}, layout)

    expected = x[:1].expand(shape) if layout == "expanded" and shape and shape[0] else x
    assert arrays.same_bits(placed["x"], expected)
    assert (tuple(placed["x"].shape), placed["k"]) == (shape, 3)
    assert not arrays.overlap(placed["x"], x)


def test_layouts_have_the_strides_that_their_names_promise():
    x = counted((3, 4), torch.float32)

    strides = [arrays.place({"x": x}, layout)["x"].stride() for layout in LAYOUTS]

    assert strides == [(4, 1), (8, 2), (0, 1), (20, 1)]


@pytest.mark.parametrize("layout", ["strided", "pitched"])
def test_no_two_inputs_of_one_shape_are_laid_out_alike(layout):
    made = arrays.place({name: torch.ones(3, 8) for name in "xyz"}, layout)
    assert len({tensor.stride() for tensor in made.values()}) == 3


def test_gaps_between_rows_hold_nan_and_rows_stay_aligned():
    x = arrays.place({"x": torch.ones(3, 24, dtype=torch.float16)}, "pitched")["x"]

    beside = x.as_strided((2, 40 - 24), (40, 1), x.storage_offset() + 24)

    assert beside.isnan().all()
    assert all(row.data_ptr() % 16 == 0 for row in x)


# --- comparisons ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.complex128], ids=str)
def test_same_bits_sees_the_sign_of_zero_and_takes_nan_for_itself(dtype):
    nan = torch.tensor([math.nan, 1.0]).to(dtype)
    zeros = torch.zeros(3).to(dtype)

    assert arrays.same_bits(nan, nan.clone())
    assert not arrays.same_bits(zeros, torch.full((3,), -0.0).to(dtype))
    assert not arrays.same_bits(zeros, zeros.reshape(3, 1))
    assert not arrays.same_bits(zeros, torch.zeros(3, dtype=torch.int32))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("make", "strides"),
    [
        (lambda x: x, (4, 1)),
        (lambda x: x.mT, (1, 4)),
        (lambda x: x[:, ::2].mT, (2, 4)),
        (lambda x: x[:1, :3].as_strided((1, 3), (1 << 20, 1)), (1 << 20, 1)),
        (lambda x: x[:1].expand(3, 4), (4, 1)),
    ],
    ids=["row-major", "transposed", "with gaps", "of one row far from the next", "of one row"],
)
def test_an_operand_keeps_its_strides_whatever_it_is_filled_with(make, strides, dtype):
    given = make(counted((3, 4), dtype))
    values = np.arange(given.numel(), dtype=np.float64).reshape(tuple(given.shape)) % 8

    filled = arrays.like(values, given)
    placed = arrays.place({"x": filled}, "contiguous")["x"]

    np.testing.assert_array_equal(arrays.host(filled), values)
    assert arrays.same_bits(placed, filled)
    assert filled.dtype == dtype and filled.stride() == placed.stride() == strides


# --- other values in the same memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_refilling_changes_the_values_and_neither_memory_nor_version(dtype):
    strided = counted((3, 8), dtype)[:, ::2]
    inputs = {"x": counted((5,), dtype), "ys": [strided, 3], "k": 3}
    before = [(tensor.data_ptr(), tensor._version, tensor.stride()) for tensor in (inputs["x"], strided)]
    fresh = {"x": counted((6,), dtype)[1:], "ys": [counted((3, 5), dtype)[:, 1:], 3], "k": 3}

    arrays.refill(inputs, fresh)

    assert arrays.same_bits(inputs["x"], fresh["x"]) and arrays.same_bits(strided, fresh["ys"][0])
    assert [(tensor.data_ptr(), tensor._version, tensor.stride()) for tensor in (inputs["x"], strided)] == before


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
@pytest.mark.parametrize("value", [0.0, 1.0, 100.0, math.nan])
def test_spoiling_makes_one_element_wrong_beyond_every_tolerance(dtype, shape, value):
    if not dtype.is_floating_point and math.isnan(value):
        value = 1.0
    array = torch.full(shape, value, dtype=torch.float32).to(dtype)
    before = array.clone()

    arrays.spoil(array)

    assert find_mismatch(array, before, 0.1, 0.1).count == 1


# --- where numbers are compared ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool, torch.complex64])
@pytest.mark.parametrize("make", [lambda full: full, lambda full: full.T, lambda full: full[::2, :4]])
def test_a_stain_makes_few_elements_of_an_outputs_memory_wrong_beyond_every_tolerance(dtype, make):
    full = torch.full((32, 8), 3).to(dtype)
    output, before = make(full), full.clone()

    arrays.stain(output, 2, 16)

    stained = full.view(-1)[1::8] if dtype.is_complex else full.view(-1)[2::16]
    stained = torch.view_as_real(stained)[:, 0][::1] if dtype.is_complex else stained
    change = (stained.double() - before.flatten()[0].real.double()).abs()
    assert int((full != before).sum()) == stained.numel()
    assert change.min() >= (3 / 6 if dtype.is_floating_point or dtype.is_complex else 1)


def test_few_numbers_are_compared_on_the_host_and_many_where_they_are():
    few, many = torch.ones(8, device="meta"), torch.ones(tensors.FEW + 1, device="meta")

    assert TorchArrays("meta").compared(many).device.type == "meta"
    assert TorchArrays("meta", reference_device="cpu").compared(torch.ones(tensors.FEW + 1)).device.type == "cpu"
    with pytest.raises(NotImplementedError):  # a copy to the host, which this device cannot make
        TorchArrays("meta").compared(few)
