"""Arrays handed over through memory that two processes map."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.device.numpy_arrays import NumpyArrays
from perfci.ops.recording import UnspelledError, spell, unspell
from perfci.worker.handover import Arena, Lender, borrow


@pytest.fixture
def arena():
    return Arena.create()


def hand_over(arena, arrays, *values):
    """What the other process makes of values, and the lender."""
    lender = Lender(arrays, arena)
    spelled = lender.spell(list(values))
    return borrow(
        spelled, arrays, lambda number: arena.part(lender.lent[number].place, lender.lent[number].size)
    ), lender


def numpy_layouts():
    room = np.arange(48.0)
    yield room
    yield room.reshape(6, 8)[1:5, ::2]
    yield room.reshape(6, 8).T
    yield room[::-3]
    yield np.broadcast_to(room[:1], (5, 4))
    yield np.zeros((0, 3))
    yield np.asfortranarray(np.arange(6.0).reshape(2, 3))
    yield np.arange(5, dtype=np.int8)


@pytest.mark.parametrize("array", [*numpy_layouts()], ids=lambda array: f"{array.dtype}{array.shape}{array.strides}")
def test_an_array_arrives_with_values_and_layout(array, arena):
    (received,), _ = hand_over(arena, NumpyArrays(), array)

    assert np.array_equal(received, array)
    assert (received.strides, received.dtype) == (array.strides, array.dtype)


@pytest.mark.torch
def test_a_tensor_arrives_with_values_and_layout(arena):
    torch = pytest.importorskip("torch")
    from perfci.device.tensors import TorchArrays

    room = torch.arange(48, dtype=torch.float32)
    layouts = [
        room,
        room.view(6, 8)[1:5, ::2],
        room.view(6, 8).t(),
        room[:1].expand(5, 4),
        torch.empty(0, 3),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(4, dtype=torch.float8_e4m3fn),
        torch.tensor(3.0),
    ]
    received, _ = hand_over(arena, TorchArrays("cpu"), *layouts)

    for got, sent in zip(received, layouts, strict=True):
        assert (got.shape, got.stride(), got.dtype) == (sent.shape, sent.stride(), sent.dtype)
        assert torch.equal(got.float(), sent.float())


def test_arrays_that_share_memory_share_it_there_too(arena):
    room = np.arange(8.0)

    (left, right, other), lender = hand_over(arena, NumpyArrays(), room[:4], room[2:6], np.ones(2))

    assert np.shares_memory(left, right)
    assert not np.shares_memory(left, other)
    assert len(lender.lent) == 2


def test_what_the_other_process_writes_is_taken_back_around_the_array_too(arena):
    room = np.zeros(8)
    inner = room[2:6]

    (received,), lender = hand_over(arena, NumpyArrays(), inner)
    received += 1.0
    arena.part(lender.lent[0].place, 8)[:] = np.float64(9.0).tobytes()
    lender.take_back()

    assert room.tolist() == [9.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]


def test_what_lies_outside_the_memory_cannot_be_reached(arena):
    forged = {"array": {"memory": 0, "dtype": "float64", "shape": [100], "strides": [8], "offset": 0}}

    for change in ({}, {"offset": -8, "shape": [1]}, {"strides": [-8], "shape": [3]}):
        value = {"array": forged["array"] | change}
        with pytest.raises((ValueError, TypeError)):
            borrow(value, NumpyArrays(), lambda _: arena.part(0, 64))
    for place, size in ((-1, 4), (0, 1 << 40), (1 << 33, 1)):
        with pytest.raises(ValueError, match="do not fit"):
            arena.part(place, size)


UNSOUND = {
    "addresses of objects": {"dtype": "O"},
    "a record with an address": {"dtype": "O8, i4"},
    "texts": {"dtype": "S8"},
    "times": {"dtype": "M8[s]"},
    "no dtype": {"dtype": "evil"},
    "a negative size": {"shape": [-1]},
    "a size that is no number": {"shape": ["8"]},
    "a number of no memory": {"memory": -1},
    "an address": {"memory": "0x7f"},
    "more than any memory holds": {"shape": [1 << 40], "strides": [0]},
    "strides of another number": {"strides": []},
    "too many axes": {"shape": [1] * 80, "strides": [0] * 80},
}


@pytest.mark.parametrize("change", UNSOUND.values(), ids=UNSOUND)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_an_array_that_no_sound_process_describes_is_refused(kind, change, arena):
    arrays = NumpyArrays()
    if kind == "torch":
        pytest.importorskip("torch")
        from perfci.device.tensors import TorchArrays

        arrays = TorchArrays("cpu")
    sound = {"memory": 0, "dtype": "float64", "shape": [8], "strides": [8 if kind == "numpy" else 1], "offset": 0}
    if kind == "torch" and "shape" in change and len(change["shape"]) == 80:
        pytest.skip("torch takes as many")

    borrow({"array": sound}, arrays, lambda _: bytearray(64))
    with pytest.raises((ValueError, TypeError)):
        borrow({"array": sound | change}, arrays, lambda _: bytearray(64))


def test_an_array_of_objects_is_not_handed_over(arena):
    with pytest.raises(UnspelledError, match="object"):
        hand_over(arena, NumpyArrays(), np.array([None, {}]))


def test_an_object_that_is_no_value_is_not_handed_over(arena):
    with pytest.raises(UnspelledError, match="function"):
        hand_over(arena, NumpyArrays(), lambda: None)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES)
def test_every_plain_value_is_spelled_and_read_back(value):
    def refuse(_):
        return None

    assert repr(unspell(spell(value, refuse), refuse)) == repr(value)
