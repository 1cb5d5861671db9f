"""Triton's interpreter, made faster: the same steps on the same numbers, with less of Python around each of them."""

import dataclasses
import functools
import gc
import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, ScanOps, TensorHandle

_binary_op, _np_dtype, _patch_lang = InterpreterBuilder.binary_op, interpreter._get_np_dtype, interpreter._patch_lang
_init_tensor, _init_block = tl.tensor.__init__, tl.block_type.__init__
_reduce_singly, _scan_singly = ReduceOps.generic_reduce, ScanOps.generic_scan
_semantics: Any = type(getattr(interpreter, "interpreter_semantic", None))  # Triton before 3.4 has none
_broadcast: Any = getattr(_semantics, "broadcast_impl_value", None)

_COMPARISONS = {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}
_BITWISE = {np.bitwise_and, np.bitwise_or, np.bitwise_xor}
_OPERATORS = {
    "__add__": np.add, "__radd__": np.add, "__sub__": np.subtract, "__rsub__": np.subtract,
    "__mul__": np.multiply, "__rmul__": np.multiply,
    "__lt__": np.less, "__le__": np.less_equal, "__gt__": np.greater, "__ge__": np.greater_equal,
    "__eq__": np.equal, "__ne__": np.not_equal,
    "__and__": np.bitwise_and, "__or__": np.bitwise_or, "__xor__": np.bitwise_xor,
}  # fmt: skip
_PLAIN = {"fp32": "float32", "fp16": "float16"} | {name: name for name in ("int32", "int64", "uint32", "uint64")}
_INTEGERS = {"int1", "int32", "int64", "uint32", "uint64"}
"""Elements that numpy has too."""
_IS_GIVEN = tl.core.builtin(lambda: None).__code__
"""What builtins are wrapped in, which looks for their last argument alone."""

_BLOCKS: dict[Any, Any] = {}
"""Types of blocks by the identity of their elements' type and by shape."""


def hasten() -> None:
    """Replace what takes most of the interpreter's time here. Raises AttributeError for one that is built otherwise."""
    options = interpreter.interpreter_builder.options
    interpreter._patch_builtin = _patch_builtin
    ReduceOps.generic_reduce, ScanOps.generic_scan = _reduce, _scan
    gc.set_threshold(100_000)  # each step makes objects, few of which lie in circles: looking for those takes 6 %
    # A third of the time: whether integers overflow, which nothing looks at, and a table of dtypes made for each look.
    if hasattr(options, "sanitize_overflow"):
        interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)
    interpreter._get_np_dtype = _find_dtype
    # Another third: types and shapes, made anew at each step of a kernel, and the language, replaced at each call.
    tl.block_type.__new__, tl.block_type.__init__, tl.tensor.__init__ = _find_block, _fill_block, _fill_tensor
    if _broadcast is not None:
        _semantics.broadcast_impl_value = _broadcast_unlike
    if hasattr(interpreter, "_LangPatchScope"):
        interpreter._patch_lang = _patch_lang_once


def _find_dtype(kind: Any, made: dict[str, Any] = {}) -> Any:  # noqa: B006 - what was found before
    name = kind.scalar.name
    if name not in made:
        made[name] = _np_dtype(kind)
    return made[name]


def _find_block(cls: Any, element: Any = None, shape: Any = (), *_rest: Any) -> Any:
    """Return the type of a block that is known already, or an empty one for `_fill_block`."""
    if cls is not tl.block_type:
        return object.__new__(cls)
    if len(_BLOCKS) > 4096:  # each launch has its pointers
        _BLOCKS.clear()
    key = (id(element), *[side.value if isinstance(side, tl.constexpr) else side for side in shape])
    if (block := _BLOCKS.get(key)) is None:
        block = _BLOCKS[key] = object.__new__(cls)
    return block


def _fill_block(block: Any, element: Any, shape: Any) -> None:
    if not hasattr(block, "_is_filled"):
        _init_block(block, element, shape)
        block._is_filled = True  # not where a shape was refused


def _fill_tensor(tensor: Any, handle: Any, kind: Any) -> None:
    """All of a tensor but its handle depends on its type alone."""
    if (made := vars(kind).get("_of_tensors")) is None:
        _init_tensor(tensor, handle, kind)
        kind._of_tensors = {name: value for name, value in vars(tensor).items() if name != "handle"}
    else:
        vars(tensor).update(made, handle=handle)


def _broadcast_unlike(semantics: Any, left: Any, right: Any) -> tuple[Any, Any]:
    """Leave tensors of one shape as they are. Triton's takes long to find that out."""
    one, other = (getattr(operand.type, "shape", None) for operand in (left, right))
    if getattr(one, "values", one) == getattr(other, "values", other):
        return left, right
    return _broadcast(semantics, left, right)


def _patch_lang_once(function: Any) -> Any:
    """Have a kernel see the interpreter's language. A function that it calls finds it so, and need not name it."""
    seen = [module for module in function.__globals__.values() if module is tl or module is tl.core] or [tl]
    is_launch = any(tl.core.is_builtin(module.load) for module in seen)
    if is_launch:
        # A helper of a file that does not import the language compiles, and is refused here alone.
        function.__globals__.setdefault("_triton_language", tl)
        _launch.scope = _patch_lang(function)
    for name in _aliases(function) if isinstance(function, types.FunctionType) else ():
        if tl.core.is_builtin(function.__globals__[name]):
            _launch.scope.set_attr(_Names(function.__globals__), name, _bind_member(function.__globals__[name]))
    return _launch.scope if is_launch else interpreter._LangPatchScope()


_launch = types.SimpleNamespace(scope=None)
"""What gives the language back after the launch under way. Triton forgets that of a helper"""


class _Names:
    """A file's names as attributes."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.__dict__ = names


@functools.cache
def _aliases(function: Any) -> tuple[str, ...]:
    """Names of its file that stand for functions of the language, as `exp2 = tl.exp2`."""
    names = function.__code__.co_names
    return tuple(name for name in names if tl.core.is_builtin(function.__globals__.get(name)))


def _patch_builtin(package: Any, *rest: Any) -> None:
    """Have the interpreter do what a package's functions do.

    Triton's looks for them at every launch and every call of a function, which takes a third of the time.
    """
    names = _builtins(package)
    # A function that a kernel calls finds all of them replaced.
    if names and tl.core.is_builtin(getattr(package, names[0])):
        for name in names:
            if _broadcast is None:
                interpreter._patch_attr(package, name, getattr(package, name), *rest)
            else:
                rest[-1].set_attr(package, name, _bind(package, name))


@functools.cache
def _builtins(package: Any) -> tuple[str, ...]:
    return tuple(name for name, member in inspect.getmembers(package) if tl.core.is_builtin(member))


@functools.cache
def _bind(package: Any, name: str) -> Callable[..., Any]:
    bound = _bind_member(getattr(package, name))
    return _shorten(name, bound) if package is tl.tensor and name in _OPERATORS else bound


@functools.cache
def _bind_member(member: Any) -> Callable[..., Any]:
    """A builtin of the language, with the interpreter's semantics as its last argument."""
    semantics = interpreter.interpreter_semantic
    if getattr(member, "__code__", None) is _IS_GIVEN:
        member = member.__wrapped__

    def bound(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantics
        return member(*args, **kwargs)

    return bound


def _shorten(name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that goes straight to numpy where nothing has to be converted. Triton's takes ten times as long."""
    compute, reversed_ = _OPERATORS[name], name.startswith("__r")
    compares, kinds = compute in _COMPARISONS, _INTEGERS if compute in _BITWISE else _PLAIN

    def operator(left: Any, right: Any) -> Any:
        kind, value = left.type, right.value if type(right) is tl.constexpr else right
        element = kind.scalar
        is_pointer = name == "__add__" and element.is_ptr()
        if not (is_pointer or element.name in kinds):
            return usual(left, right)
        if type(value) is not tl.tensor:
            other, handle = kind, _constant(value, "int32" if is_pointer else element.name, compares)
        else:
            other, handle = value.type, value.handle
            pair = element.name, other.scalar.name
            if pair == ("int64", "int32"):
                handle = TensorHandle(handle.data.astype(np.int64), element)
            elif pair[1] not in ({"int32", "int64"} if is_pointer else {pair[0]}):
                handle = None
        if handle is None:
            return usual(left, right)
        try:
            if is_pointer:
                result = interpreter.interpreter_builder.create_addptr(left.handle, handle)
            else:
                pair = (handle, left.handle) if reversed_ else (left.handle, handle)
                result = _binary_op(interpreter.interpreter_builder, *pair, compute)
        except ValueError:  # shapes that do not go together, of which Triton's message has more
            return usual(left, right)
        if compares or other is not kind:
            block = kind.is_block() or other.is_block()
            element = tl.int1 if compares else element
            kind = tl.block_type(element, list(result.data.shape)) if block else element
        return tl.tensor(result, kind)

    return operator


def _constant(value: Any, kind: str, compares: bool) -> Any:
    """A number as an operand beside a tensor, or None if it makes another type of that."""
    if type(value) not in {int, float} or kind not in _PLAIN or kind.startswith("u") or (compares and kind == "fp16"):
        return None
    if not kind.startswith("fp") and (type(value) is float or not -(2**31) <= value < 2**31):
        return None
    element = getattr(tl, _PLAIN[kind])
    return TensorHandle(np.array([value or 0], _PLAIN[kind]), element)


def _reduce(reduction: Any, tensors: Any) -> list[Any]:
    """A reduction by a kernel's own function, which gets neighbours as blocks. Triton calls it for each element."""
    axis, kinds = reduction.axis, [tensor.dtype for tensor in tensors]
    blocks = [tensor.handle.data if axis is not None else tensor.handle.data.reshape(-1) for tensor in tensors]
    blocks = [np.moveaxis(block, axis or 0, -1) for block in blocks]
    try:
        while blocks[0].shape[-1] > 1:
            blocks = _combine(reduction, kinds, [block[..., ::2] for block in blocks], [b[..., 1::2] for b in blocks])
    except InterpreterError:  # it branches on its arguments
        return cast("list[Any]", _reduce_singly(reduction, tensors))
    kept = [1 if axis in (None, place) else side for place, side in enumerate(tensors[0].handle.data.shape)]
    blocks = [block.reshape(kept) if reduction.keep_dims else block[..., 0] for block in blocks]
    return [reduction.to_tensor(block, kind) for block, kind in zip(blocks, kinds, strict=True)]


def _scan(scan: Any, tensors: Any) -> list[Any]:
    """As `_reduce`: of each element and that 1 before it, then of those results and that 2 before, 4, 8."""
    kinds, blocks = [tensor.dtype for tensor in tensors], [np.moveaxis(t.handle.data, scan.axis, -1) for t in tensors]
    size, step = blocks[0].shape[-1], 1
    try:
        while step < size:
            joined = _combine(scan, kinds, [np.roll(block, step, -1) for block in blocks], blocks)
            pairs = zip(joined, blocks, strict=True)
            blocks, step = [np.where(np.arange(size) >= step, one, block) for one, block in pairs], 2 * step
    except InterpreterError:
        return cast("list[Any]", _scan_singly(scan, tensors))
    pairs = zip(blocks, kinds, strict=True)
    return [scan.to_tensor(np.ascontiguousarray(np.moveaxis(block, -1, scan.axis)), kind) for block, kind in pairs]


@contextmanager
def _refusing_branches() -> Iterator[None]:
    """What asks for the truth of a block raises inside. Triton's interpreter has one, that of all its elements."""
    usual = tl.tensor.__bool__

    def refuse(condition: Any) -> bool:
        if condition.handle.data.size > 1:
            raise ValueError
        return bool(usual(condition))

    tl.tensor.__bool__ = refuse
    try:
        yield
    finally:
        tl.tensor.__bool__ = usual


def _combine(call: Any, kinds: list[Any], earlier: list[Any], later: list[Any]) -> list[Any]:
    with _refusing_branches(), np.errstate(all="ignore"):  # a scan leaves out what its first lanes give
        made = call.combine_fn(*map(call.to_tensor, (*earlier, *later), (*kinds, *kinds)))
    listed = made if isinstance(made, tuple) else (made,)
    values = (one.handle.data if isinstance(one, tl.tensor) else one for one in listed)
    return [np.broadcast_to(one, block.shape).astype(block.dtype) for one, block in zip(values, later, strict=True)]
