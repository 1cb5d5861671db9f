# ruff: noqa: N803
"""Kernels with faults that no small case shows, and one without."""

import torch
import triton
import triton.language as tl


@triton.jit
def _along(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr, ROW_AXIS: tl.constexpr):
    row, block = tl.program_id(ROW_AXIS).to(tl.int64), tl.program_id(1 - ROW_AXIS)
    at = block * BLOCK + tl.arange(0, BLOCK)
    mask = (at < cols) & (row < rows)
    tl.store(out_ptr + row * cols + at, tl.load(x_ptr + row * cols + at, mask=mask) * 2, mask=mask)


def rows_second(x: torch.Tensor):
    out = torch.empty_like(x)
    _along[(triton.cdiv(x.shape[1], 128), x.shape[0])](x, out, *x.shape, BLOCK=128, ROW_AXIS=1)
    return out


def rows_first(x: torch.Tensor):
    out = torch.empty_like(x)
    _along[(x.shape[0], triton.cdiv(x.shape[1], 1024))](x, out, *x.shape, BLOCK=1024, ROW_AXIS=0)
    return out


@triton.jit
def _whole_row(x_ptr, out_ptr, stride, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out_ptr + row * stride + at, tl.load(x_ptr + row * stride + at, mask=at < cols) * 2, mask=at < cols)


def whole_rows(x: torch.Tensor):
    out = torch.empty_like(x)
    _whole_row[(x.shape[0],)](x, out, x.shape[1], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def first_columns(x: torch.Tensor):
    out = torch.zeros_like(x)
    _whole_row[(x.shape[0],)](x, out, x.shape[1], x.shape[1], BLOCK=128)
    return out


CONFIGS = [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})]


@triton.autotune(CONFIGS, key=["size"])
@triton.jit
def _in_place(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < size) * 2, mask=at < size)


def in_place(x: torch.Tensor):
    _in_place[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x, x.numel())
    return x


def beside(x: torch.Tensor):
    out = torch.empty_like(x)
    _in_place[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


@triton.jit
def _unmasked(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * 2)


def whole_blocks(x: torch.Tensor):
    out = torch.empty_like(x)
    _unmasked[(triton.cdiv(x.numel(), 256),)](x, out, BLOCK=256)
    return out


def late_blocks(x: torch.Tensor):
    out, block = torch.empty_like(x), 1 if x.numel() < 200 else 64
    _unmasked[(triton.cdiv(x.numel(), block),)](x, out, BLOCK=block)
    return out


@triton.jit
def _tiles(x_ptr, out_ptr, rows, stride, step, BLOCK: tl.constexpr):
    at_rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at_cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = at_cols[None, :] * step + at_rows[:, None] * stride
    mask = (at_rows[:, None] < rows) & (at_cols[None, :] < stride)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) * 2, mask=mask)


def tiles(x: torch.Tensor):
    out = torch.empty_like(x)
    _tiles[(triton.cdiv(x.shape[0], 32), triton.cdiv(x.shape[1], 32))](x, out, *x.shape, 1, BLOCK=32)
    return out


@triton.jit
def _put(x_ptr, places_ptr, out_ptr, x_stride, out_stride, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    place = tl.load(places_ptr + row)
    x = tl.load(x_ptr + row * x_stride + at, mask=at < cols)
    tl.store(out_ptr + place * out_stride + at, x, mask=at < cols)


@triton.jit
def _put_far(x_ptr, places_ptr, out_ptr, x_stride, out_stride, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    place = tl.load(places_ptr + row).to(tl.int64)
    x = tl.load(x_ptr + row * x_stride + at, mask=at < cols)
    tl.store(out_ptr + place * out_stride + at, x, mask=at < cols)


def put(x: torch.Tensor, index: torch.Tensor, out: torch.Tensor):
    """x: [S, D], index: [S], out: [N, D]"""
    _put[(x.shape[0],)](x, index, out, x.stride(0), out.stride(0), x.shape[1], BLOCK=128)
    return out


def put_far(x: torch.Tensor, index: torch.Tensor, out: torch.Tensor):
    """x: [S, D], index: [S], out: [N, D]"""
    _put_far[(x.shape[0],)](x, index, out, x.stride(0), out.stride(0), x.shape[1], BLOCK=128)
    return out


def double(x):
    return x * 2


def double_in_place(x):
    return x.mul_(2)


def put_all(x: torch.Tensor, index: torch.Tensor, out: torch.Tensor):
    """x: [S, D], index: [S], out: [N, D]"""
    out[index.long()] = x
    return out
