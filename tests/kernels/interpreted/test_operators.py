"""Operators that go straight to numpy give values and types that Triton's interpreter gives without them."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

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
