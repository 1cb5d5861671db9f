# ruff: noqa: N803
"""Kernels whose suites have to declare something: a step of integers, int8 inputs, the layouts that they take."""

import torch
import triton
import triton.language as tl


@triton.jit
def _quantise(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0).to(tl.float32)
    x = x * (127.0 / tl.maximum(tl.max(tl.abs(x), 0), 1e-10))
    x = tl.where(x >= 0, tl.floor(x + 0.5), tl.ceil(x - 0.5))
    tl.store(out_ptr + row * cols + at, x.to(tl.int8), mask=at < cols)


def quantise(x: torch.Tensor):
    out = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    _quantise[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def quantise_reference(x):
    x = x * (127.0 / x.abs().amax(-1, keepdim=True).clamp(min=1e-10))
    return (x.sign() * (x.abs() + 0.5).floor()).to(torch.int8)


@triton.jit
def _multiply(a_ptr, b_ptr, out_ptr, rows, inner, cols, BLOCK: tl.constexpr):
    row, col, at = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK, tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.int32)
    for start in range(0, inner, BLOCK):
        a_mask = (row + at[:, None] < rows) & (start + at[None, :] < inner)
        b_mask = (start + at[:, None] < inner) & (col + at[None, :] < cols)
        a = tl.load(a_ptr + (row + at[:, None]) * inner + start + at[None, :], mask=a_mask, other=0)
        b = tl.load(b_ptr + (start + at[:, None]) * cols + col + at[None, :], mask=b_mask, other=0)
        total += tl.dot(a, b)
    mask = (row + at[:, None] < rows) & (col + at[None, :] < cols)
    tl.store(out_ptr + (row + at[:, None]) * cols + col + at[None, :], total, mask=mask)


def multiply(a, scale, b):
    assert scale.is_floating_point()
    out = torch.empty((a.shape[0], b.shape[1]), dtype=torch.int32, device=a.device)
    grid = (triton.cdiv(a.shape[0], 32), triton.cdiv(b.shape[1], 32))
    _multiply[grid](a, b, out, a.shape[0], a.shape[1], b.shape[1], BLOCK=32)
    return out * scale[:, None]


def multiply_reference(a, scale, b):
    return (a.to(torch.int32) @ b.to(torch.int32)) * scale[:, None]


@triton.jit
def _widen(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < size).to(tl.float32) * 2, mask=at < size)


def double_in_float32(x: torch.Tensor):
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    _widen[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out


def double_reference(x):
    return x * 2
