"""Tensors without memory, handed on by DLPack. Structures are those of `dlpack.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
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


class _Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device", c_int32), ("number", c_int32), ("rank", c_int32), ("code", c_uint8),
                ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("shift", c_uint64)]  # fmt: skip


class _Managed(ctypes.Structure):
    pass


_Delete = ctypes.CFUNCTYPE(None, POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", c_void_p), ("delete", _Delete)]

_alive: dict[int, Any] = {}  # what was handed on and not given back, by address


@_Delete
def _give_back(managed: Any) -> None:
    _alive.pop(ctypes.addressof(managed.contents), None)


def make_capsule(address: int, dtype: str, shape: Sequence[int], strides: Sequence[int]) -> Any:
    """Returns a capsule of a tensor on device 0. dtype: as torch names it. strides: of elements.

    Raises BufferError for a dtype that DLPack does not have.
    """
    if dtype not in _TYPES:
        raise BufferError(f"DLPack has no {dtype}")
    code, bits = _TYPES[dtype]
    rank = len(shape)
    sides = (c_int64 * (2 * rank))(*shape, *strides)
    first = ctypes.cast(sides, POINTER(c_int64))
    second = ctypes.cast(ctypes.addressof(sides) + 8 * rank, POINTER(c_int64))
    tensor = _Tensor(address, CUDA, 0, rank, code, bits, 1, first, second, 0)
    managed = _Managed(tensor, None, _give_back)
    _alive[ctypes.addressof(managed)] = managed, sides
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [c_void_p, ctypes.c_char_p, c_void_p]
    return new(ctypes.addressof(managed), b"dltensor", None)
