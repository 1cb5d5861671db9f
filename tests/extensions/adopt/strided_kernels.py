# ruff: noqa: N803
"""Kernels that do something with strides: one takes those of one input for another's."""

import torch
import triton
import triton.language as tl


@triton.jit
def _add(x_ptr, y_ptr, out_ptr, cols, x_row, x_col, y_row, y_col, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + at * x_col, mask=at < cols)
    y = tl.load(y_ptr + row * y_row + at * y_col, mask=at < cols)
    tl.store(out_ptr + row * cols + at, x + y, mask=at < cols)


def add(x: torch.Tensor, y: torch.Tensor):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(x.shape[1])
    _add[(x.shape[0],)](x, y, out, x.shape[1], *x.stride(), *y.stride(), BLOCK=block)
    return out


def add_alike(x: torch.Tensor, y: torch.Tensor):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(x.shape[1])
    _add[(x.shape[0],)](x, y, out, x.shape[1], *x.stride(), *x.stride(), BLOCK=block)
    return out


def add_packed(x: torch.Tensor, y: torch.Tensor):
    assert x.stride(1) == 1 and y.stride(1) == 1, "packed rows"
    return add(x, y)


def add_dense(x: torch.Tensor, y: torch.Tensor):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(x.shape[1])
    _add[(x.shape[0],)](x, y, out, x.shape[1], x.stride()[0], 1, y.stride()[0], 1, BLOCK=block)
    return out
