"""Tensor descriptors, by which the tensor memory accelerator copies whole tiles, made at little cost.

Needs only torch and triton. A descriptor is made on each call. Its cached parts depend on shape, strides and size of
an element, never on an address.
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
    """Returns True if this Triton and this device have descriptors; Triton's interpreter needs no device for them."""
    return TensorDescriptor is not None and (limits.descriptors or interpreted(kernel))


def interpreted(kernel: Any) -> bool:
    """Returns True if a jitted kernel runs in Triton's interpreter."""
    return not isinstance(kernel, triton.runtime.JITFunction)


def dense_side(matrix: torch.Tensor) -> int | None:
    """Returns the side along which a matrix's elements are neighbours, 1 if row-major; None if no descriptor fits."""
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
    """Returns a descriptor of tiles of rows x cols of a matrix with this `dense_side`; of its transpose if that is 0.

    Elements beyond an edge are read as 0 and never written. `dense_side` has made TensorDescriptor's checks, which
    take more than half of the time (2.9 us on one host, 1.2 us without).
    """
    shape, strides, block = [*matrix.shape], [*matrix.stride()], [rows, cols]
    if side == 0:
        shape.reverse()
        strides.reverse()
        block.reverse()
    return described(matrix, shape, strides, block)


def described(base: torch.Tensor, shape: list[int], strides: list[int], block: list[int]) -> Any:
    """Returns a descriptor of tiles of `block`; makes none of TensorDescriptor's own checks, as its callers did."""
    made = TensorDescriptor.__new__(TensorDescriptor)
    made.base, made.shape, made.strides, made.block_shape = base, shape, strides, block
    return made
