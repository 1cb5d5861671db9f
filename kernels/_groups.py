"""Common to kernels with warps that work in groups with a task each, on Hopper: their devices, and descriptors.

They are written in Gluon, a language that comes with Triton and can express the groups and what each waits for.
Triton's interpreter does not support it.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

import _launch

RELEASES = ((3, 6), (3, 7))
"""Releases of Triton that this was tried with: Gluon is experimental and changes."""
_TRIED = tuple(int(number) for number in re.findall(r"\d+", triton.__version__)[:2]) in RELEASES

_TYPES = {
    torch.float8_e4m3fn: gl.float8e4nv,
    torch.float8_e5m2: gl.float8e5,
    torch.bfloat16: gl.bfloat16,
    torch.float16: gl.float16,
    torch.float32: gl.float32,
}
BARRIER_BYTES = 1024
"""More than the barriers in shared memory take."""


def available(limits: _launch.Limits) -> bool:
    """Returns True if the device has these tensor cores and the installed Triton has this language."""
    return _TRIED and limits.target == "sm_90"


def descriptor(tensor: torch.Tensor, *block: int) -> Any:
    """Returns a descriptor of tiles of a tensor; `_tma.dense_side` or a similar check was made already."""
    made = TensorDescriptor.__new__(TensorDescriptor)
    made.base, made.shape, made.strides = tensor, [*tensor.shape], [*tensor.stride()]
    made.block_shape, made.layout, made.padding = [*block], _layout(block, tensor.dtype), "zero"
    return made


@functools.cache
def _layout(block: tuple[int, ...], dtype: torch.dtype) -> Any:
    return gl.NVMMASharedLayout.get_default_for([*block], _TYPES[dtype])


@gluon.jit
def grouped(tile, tiles_m, tiles_n, height):
    """As `_tiles.grouped`."""
    in_group = height * tiles_n
    first = tile // in_group * height
    here = gl.minimum(tiles_m - first, height)
    return first + tile % in_group % here, tile % in_group // here
