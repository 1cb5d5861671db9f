"""Tensors without memory, handed on by DLPack, in Python and in C. Structures are those of `dlpack.h`, version 1.3."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

CUDA = 2  # DLDeviceType

_INTEGER, _UNSIGNED, _FLOAT, _BRAIN_FLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6  # DLDataTypeCode
_TYPES = {
    **{f"int{bits}": (_INTEGER, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (_UNSIGNED, bits) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (_FLOAT, bits) for bits in (16, 32, 64)},
    "bfloat16": (_BRAIN_FLOAT, 16), "bool": (_BOOL, 8), "complex64": (_COMPLEX, 64), "complex128": (_COMPLEX, 128),
    "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8), "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}  # fmt: skip

Facts = tuple[int, str, Sequence[int], Sequence[int]]
"""Address, dtype as torch names it, shape, and strides in elements."""


class _Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device", c_int32), ("number", c_int32), ("rank", c_int32), ("code", c_uint8),
                ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("shift", c_uint64)]  # fmt: skip


class _Managed(ctypes.Structure):  # DLManagedTensor
    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("delete", c_void_p)]


class _Versioned(ctypes.Structure):  # DLManagedTensorVersioned
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("delete", c_void_p),
                ("flags", c_uint64), ("tensor", _Tensor)]  # fmt: skip


_alive: dict[int, Any] = {}  # what was handed on and not given back, by address


@ctypes.CFUNCTYPE(None, c_void_p)
def _give_back(managed: int) -> None:
    _alive.pop(managed, None)


_DELETE = ctypes.cast(_give_back, c_void_p).value


def make_capsule(facts: Facts) -> Any:
    """Returns a capsule of a tensor on device 0. Raises BufferError for a dtype that DLPack does not have."""
    tensor, sides = _describe(facts)
    managed = _Managed(tensor, None, _DELETE)
    _alive[ctypes.addressof(managed)] = managed, sides
    return _new_capsule(ctypes.addressof(managed), b"dltensor")


def make_exchange(describe: Callable[[Any], Facts]) -> Any:
    """Returns a capsule with the functions by which C code takes tensors from Python, which `describe` looks into.

    They make no tensors for Python.
    """

    def take(place: int, tensor: int) -> int:
        facts, owner = _look(place)
        described, sides = _describe(facts)
        owner.__dict__["_sides"] = sides  # the tensor is borrowed for as long as its owner lives
        _Tensor.from_address(tensor).__init__(*(getattr(described, name) for name, *_ in _Tensor._fields_))  # type: ignore[misc]
        return 0

    def take_managed(place: int, result: Any) -> int:
        described, sides = _describe(_look(place)[0])
        managed = _Versioned(1, 3, None, _DELETE, 0, described)
        _alive[ctypes.addressof(managed)] = managed, sides
        result[0] = ctypes.addressof(managed)
        return 0

    def stream(_device: int, _number: int, result: Any) -> int:
        result[0] = None  # the default one
        return 0

    def _look(place: int) -> tuple[Facts, Any]:
        owner = ctypes.cast(place, ctypes.py_object).value
        return describe(owner), owner

    functions = (
        _refusing(c_void_p, c_void_p, c_void_p, c_void_p),  # managed_tensor_allocator
        _answering(take_managed, c_void_p, POINTER(c_void_p)),
        _refusing(c_void_p, c_void_p),  # managed_tensor_to_py_object_no_sync
        _answering(take, c_void_p, c_void_p),
        _answering(stream, c_int, c_int32, POINTER(c_void_p)),
    )
    table = (c_uint64 * 7)(1 | 3 << 32, 0, *(ctypes.cast(function, c_void_p).value or 0 for function in functions))
    _alive[ctypes.addressof(table)] = table, functions
    return _new_capsule(ctypes.addressof(table), b"dlpack_exchange_api")


def _answering(function: Callable[..., int], *types: Any) -> Any:
    def answer(*arguments: Any) -> int:
        try:
            return function(*arguments)
        except Exception as error:
            ctypes.pythonapi.PyErr_SetString(ctypes.py_object(BufferError), str(error).encode())
            return -1

    # Python's lock is held: these functions are called like those of Python.
    return ctypes.PYFUNCTYPE(c_int, *types)(answer)


def _refusing(*types: Any) -> Any:
    def refuse(*_: Any) -> int:
        raise BufferError("no tensor can be made without a device")

    return _answering(refuse, *types)


def _describe(facts: Facts) -> tuple[_Tensor, Any]:
    """A tensor, and the memory that its shape and strides are in."""
    address, dtype, shape, strides = facts
    if dtype not in _TYPES:
        raise BufferError(f"DLPack has no {dtype}")
    code, bits = _TYPES[dtype]
    rank = len(shape)
    sides = (c_int64 * (2 * rank))(*shape, *strides)
    first = ctypes.cast(sides, POINTER(c_int64))
    second = ctypes.cast(ctypes.addressof(sides) + 8 * rank, POINTER(c_int64))
    return _Tensor(address, CUDA, 0, rank, code, bits, 1, first, second, 0), sides


def _new_capsule(address: int, name: bytes) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [c_void_p, ctypes.c_char_p, c_void_p]
    return new(address, name, None)
