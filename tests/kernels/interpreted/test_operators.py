"""Operators that go straight to numpy give values and types that Triton's interpreter gives without them."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import ReduceOps, ScanOps, TensorHandle

from perfci.extensions.interpreter import speed

ELEMENTS = ("int1", "int8", "int32", "uint32", "int64", "float16", "float32")
SHAPES = ((), (4,), (2, 1), (2, 4), (8, 4))
NUMBERS = (0, 1, -3, 2**31, 2**40, 0.0, -0.0, 0.1, 1e39, float("nan"), True, tl.constexpr(2), tl.constexpr(2.5))


@pytest.fixture
def usual(monkeypatch):
    """Operators as Triton has them."""
    with monkeypatch.context() as patched:
        patched.setattr(speed, "_shorten", lambda name, bound: bound)
        return {name: speed._bind.__wrapped__(tl.tensor, name) for name in speed._OPERATORS}


def tensor(element, shape):
    kind = getattr(tl, element)
    # The interpreter holds a scalar as an array of one element.
    values = np.linspace(-3, 5, max(int(np.prod(shape)), 1)).reshape(shape or (1,))
    values.flat[-1] = 0.1
    handle = TensorHandle(values.astype(interpreter._get_np_dtype(kind)), kind)
    return tl.tensor(handle, tl.block_type(kind, list(shape)) if shape else kind)


def pointers(shape):
    kind = tl.pointer_type(tl.float32)
    handle = TensorHandle(np.arange(max(int(np.prod(shape)), 1), dtype=np.uint64).reshape(shape or (1,)), kind)
    return tl.tensor(handle, tl.block_type(kind, list(shape)) if shape else kind)


def answer(operator, left, right):
    try:
        result = operator(left, right)
    except Exception as error:
        return type(error)
    return str(result.type), str(result.dtype), result.handle.data.dtype, result.handle.data.tolist()


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("name", speed._OPERATORS)
def test_a_short_way_changes_neither_value_nor_type(name, usual):
    lefts = [tensor(element, shape) for element in ELEMENTS for shape in SHAPES] + [pointers(()), pointers((2, 4))]
    patches = interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl}))
    try:
        for left, right in itertools.product(lefts, [*lefts, *NUMBERS]):
            told = (str(left.type), str(getattr(right, "type", right)))
            assert repr(answer(getattr(tl.tensor, name), left, right)) == repr(answer(usual[name], left, right)), told
    finally:
        patches.restore()


CALLS = []


@triton.jit
def later_of_the_largest(value, place, other, other_place):
    CALLS.append(1)
    is_later = (other > value) | ((other == value) & (other_place > place))
    return tl.where(is_later, other, value), tl.where(is_later, other_place, place)


@triton.jit
def branching(value, place, other, other_place):
    return later_of_the_largest(value, place, other, other_place) if place < other_place else (value, place)


@triton.jit
def follow_largest(x_ptr, out_ptr, combine: tl.constexpr, axis: tl.constexpr, rows: tl.constexpr, cols: tl.constexpr):
    places = tl.arange(0, rows)[:, None] * cols + tl.arange(0, cols)[None, :]
    x = tl.load(x_ptr + places)
    values, indices = tl.associative_scan((x, places), axis, combine)
    tl.store(out_ptr + places, values)
    tl.store(out_ptr + rows * cols + places, indices)
    values, indices = tl.associative_scan((x, places), axis, combine, reverse=True)
    tl.store(out_ptr + 2 * rows * cols + places, indices)
    _, index = tl.reduce((x, places), axis, combine, keep_dims=True)
    tl.store(out_ptr + 3 * rows * cols + places, values * 0 + index)
    _, index = tl.reduce((tl.ravel(x), tl.ravel(places)), 0, combine)
    tl.store(out_ptr + 4 * rows * cols, index)


@pytest.mark.parametrize("combine", [later_of_the_largest, branching])
@pytest.mark.parametrize("axis", [0, 1])
def test_functions_of_reductions_and_scans_are_called_for_blocks_and_give_what_they_give_for_elements(
    monkeypatch, axis, combine
):
    x = torch.randint(0, 5, (4, 32), generator=torch.Generator().manual_seed(1)).float()
    answers = []
    for changed in (False, True):
        out = torch.zeros(5, 4, 32)
        if changed:
            monkeypatch.setattr(ReduceOps, "generic_reduce", speed._reduce_singly)
            monkeypatch.setattr(ScanOps, "generic_scan", speed._scan_singly)
        del CALLS[:]
        follow_largest[(1,)](x, out, combine, axis, 4, 32)
        answers.append((out, len(CALLS)))
    (blocks, few), (single, many) = answers
    assert torch.equal(blocks, single)
    assert (few < 40 < 400 < many) == (combine is later_of_the_largest)
