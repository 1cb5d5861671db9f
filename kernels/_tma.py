"""Tensor descriptors, by which the tensor memory accelerator copies whole tiles: who may have one, made at little cost.

Needs torch and triton alone. A descriptor is made on each call, from nothing that outlives it: what is cached goes by
shape, strides and size of an element, never by address.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton

import _launch

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # Triton before 3.4
    TensorDescriptor = None

ALIGNMENT = 16
"""Bytes that base and strides are multiples of: CUDA Driver API, cuTensorMapEncodeTiled."""

FARTHEST = 2**31 - 2**10
"""Most elements along a side: tiles are addressed in 32 bits, and the last one reaches beyond the edge."""

LONGEST_STRIDE = 2**40
"""Bytes that a stride is below: cuTensorMapEncodeTiled."""


def available(limits: _launch.Limits, kernel: Any) -> bool:
    """Whether this Triton and this device have descriptors; Triton's interpreter does without the device's."""
    return TensorDescriptor is not None and (limits.descriptors or interpreted(kernel))


def interpreted(kernel: Any) -> bool:
    """Whether a jitted kernel runs in Triton's interpreter."""
    return not isinstance(kernel, triton.runtime.JITFunction)


def dense_side(matrix: torch.Tensor) -> int | None:
    """The side of a matrix along which its elements are neighbours, 1 of a row-major one; None: no descriptor fits."""
    if matrix.data_ptr() % ALIGNMENT:
        return None
    return _dense_side(*matrix.shape, *matrix.stride(), matrix.element_size())


@functools.lru_cache(maxsize=4096)
def _dense_side(rows: int, cols: int, row_stride: int, col_stride: int, itemsize: int) -> int | None:
    if not 0 < min(rows, cols) <= max(rows, cols) < FARTHEST:
        return None
    for side, unit, stride in ((1, col_stride, row_stride), (0, row_stride, col_stride)):
        if unit == 1 and 0 < stride * itemsize < LONGEST_STRIDE and stride * itemsize % ALIGNMENT == 0:
            return side
    return None


def descriptor(matrix: torch.Tensor, side: int, rows: int, cols: int) -> Any:
    """A descriptor of tiles of rows x cols of a matrix whose `dense_side` is `side`; of its transpose where that is 0.

    Elements beyond an edge are read as 0 and never written. TensorDescriptor's own checks, more than half of what it
    takes to make one (2.9 us on one host, 1.2 us without), are those that `dense_side` has made.
    """
    shape, strides, block = [*matrix.shape], [*matrix.stride()], [rows, cols]
    if side == 0:
        shape.reverse()
        strides.reverse()
        block.reverse()
    made = TensorDescriptor.__new__(TensorDescriptor)
    made.base, made.shape, made.strides, made.block_shape = matrix, shape, strides, block
    return made
