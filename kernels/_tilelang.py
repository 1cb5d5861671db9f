"""Common to ops in TileLang: compiled programs, and rows as vectors.

A tensor's rows are passed as (rows, vectors, SIZE), SIZE being the elements of VECTOR_BYTES if each row is made of
whole vectors, else 1: what has a SIZE that the compiler knows is loaded at once. All shapes and strides are symbols of
64 bits, so a program is compiled once for each dtype and tile, and not for each shape.
"""

from __future__ import annotations

from typing import Any

import tilelang
import torch
from tilelang import tvm

import _launch

NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def compiled(program: Any) -> Any:
    """Returns the function that launches a program on torch's current stream, compiled for the present device."""
    return tilelang.compile(program)


def compile_for(program: Any, target: str) -> Any:
    """Returns a program compiled for a target such as sm_90, without a device. TileLang wants nvcc for that."""
    arch = f"{target}a" if target.startswith(("sm_9", "sm_10", "sm_12")) else target
    with tvm.target.Target({"kind": "cuda", "arch": arch}) as chosen:
        return tilelang.compile(program, target=chosen)


def vector_size(vectors: bool, dtype: torch.dtype) -> int:
    """Returns the elements of a vector, or 1."""
    return _launch.VECTOR_BYTES // dtype.itemsize if vectors else 1


def as_vectors(x: torch.Tensor, size: int, rows: int, cols: int, row_stride: int, col_stride: int) -> torch.Tensor:
    """Returns a view (rows, vectors, size) of a matrix; a size of 1 allows any strides."""
    return x.as_strided((rows, cols // size, size), (row_stride, size * col_stride, 1))


def row_threads(cols: int) -> tuple[int, int]:
    """Returns how many values of a row each thread takes, and how many threads. The latter is a power of two.

    Threads are few, as TileLang joins those of several warps by halves, with two barriers each.
    """
    width = _launch.power_of_two(cols)
    values = 8 if width <= 256 else 16 if width == 512 else 32
    return values, max(width // values, 1)
