"""add_rms_norm: a residual sum and the rms_norm of its rows in one kernel, as in each half of a transformer block."""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch
import _rows
from _rows import Config, Tile

TUNED = Path(__file__).parent / "tuned"
# For devices without a tuned file: widest row, a power of two -> config. A thread holds 16 to 32 values of a sum.
WHOLE_ROWS = {
    4096: Config(elements=4096, warps=4),
    8192: Config(elements=8192, warps=8),
    16384: Config(elements=16384, warps=16),
    32768: Config(elements=32768, warps=32),
}
LONG_ROWS = Config(elements=8192, warps=16)
"""For wider rows: elements of a chunk."""


@functools.lru_cache(maxsize=4096)
def choose_tile(rows: int, cols: int, itemsize: int, limits: _launch.Limits) -> Tile:
    """Returns the tile for a shape."""
    return _rows.choose(rows, cols, itemsize, limits, TUNED, WHOLE_ROWS, LONG_ROWS, loads=3)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns total / sqrt(mean(total**2) + eps) * weight over the last dimension, and total = x + residual.

    Both are contiguous, of x's shape and dtype. The total is rounded to the dtype, and the norm is that of the rounded
    total, so that both answers are those of a model that adds first. The norm is computed in float32 and rounded once.
    x and residual have one shape of any rank from 1 and one dtype (float32, float16 or bfloat16), each with any strides
    that a matrix of its rows can have (not a transposed batch: that needs `.contiguous()`). The optional `weight`
    has shape (x.shape[-1],), any stride and x's dtype. Raises TypeError for dtypes, ValueError for shapes, strides,
    devices or a negative eps.
    """
    check(x, residual, weight, eps)
    out, total = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(2))
    if out.numel():
        rows, cols, *strides = _launch.as_rows("add_rms_norm", x)
        strides += _launch.as_rows("add_rms_norm", residual, "residual")[2:]
        weight_stride = 0 if weight is None else weight.stride(0)
        limits = _launch.limits(x.device)
        tile = choose_tile(rows, cols, x.element_size(), limits)
        kernel, own = (_long_rows_kernel, {}) if tile.lanes else (_rows_kernel, {"ROWS": tile.rows})
        grid = _rows.programs(_launch.tiles(rows, tile.rows), tile, limits)
        with _launch.on(x.device):
            kernel[grid](
                x, residual, weight, out, total, *strides, weight_stride, rows, cols, eps,
                COLS=tile.cols, **own, **tile.options,
            )  # fmt: skip
    return out, total


def check(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float) -> None:
    """Raises TypeError or ValueError for arguments that `add_rms_norm` does not support."""
    given = {"x": x, "residual": residual} | ({} if weight is None else {"weight": weight})
    _launch.check_tensors("add_rms_norm", **given)
    _launch.check_same_dtype("add_rms_norm", **given)
    if x.ndim == 0:
        raise ValueError("add_rms_norm: x is 0-dimensional, but needs at least one dimension")
    if residual.shape != x.shape:
        raise ValueError(f"add_rms_norm: residual has shape {tuple(residual.shape)}, but x has {tuple(x.shape)}")
    if weight is not None:
        _launch.check_bias("add_rms_norm", x, weight, "weight")
    if not eps >= 0:
        raise ValueError(f"add_rms_norm: eps is {eps}, but has to be 0 or more")


@triton.jit
def _total(x_ptr, residual_ptr, x_place, residual_place, mask, HINT: tl.constexpr):
    """The sum, rounded to the dtype. HINT: how long what was read stays in the caches."""
    x = tl.load(x_ptr + x_place, mask, 0.0, eviction_policy=HINT)
    residual = tl.load(residual_ptr + residual_place, mask, 0.0, eviction_policy=HINT)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.jit(do_not_specialize=["rows"])
def _rows_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, x_row, x_col, residual_row, residual_col, weight_stride,
    rows, cols, eps, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Whole rows at once: each element is read once and written once."""
    col = tl.arange(0, COLS).to(tl.int64)  # 64 bits, as x may have more than 2**31 elements
    for index in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = (tl.cast(index, tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
        mask = (row < rows) & (col < cols)[None, :]
        total = _total(
            x_ptr, residual_ptr, row * x_row + col * x_col, row * residual_row + col * residual_col, mask, ""
        )
        tl.store(total_ptr + row * cols + col, total, mask=mask)
        wide = total.to(tl.float32)
        y = wide * tl.rsqrt(tl.sum(wide * wide, axis=1) / cols + eps)[:, None]
        if weight_ptr is not None:
            weight = tl.load(weight_ptr + col * weight_stride, col < cols, eviction_policy="evict_last")
            y *= weight.to(tl.float32)
        tl.store(out_ptr + row * cols + col, y.to(total.dtype), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def _long_rows_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, x_row, x_col, residual_row, residual_col, weight_stride,
    rows, cols, eps, COLS: tl.constexpr,
):  # fmt: skip
    """One row at a time: added up for the total and its squares, then again, from L1 and L2, for the norm."""
    near = tl.arange(0, COLS).to(tl.int64)
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        squares = tl.zeros([COLS], dtype=tl.float32)
        for start in range(0, cols, COLS):
            col = start + near
            place, residual_place = row * x_row + col * x_col, row * residual_row + col * residual_col
            total = _total(x_ptr, residual_ptr, place, residual_place, col < cols, "evict_last")
            tl.store(total_ptr + row * cols + col, total, mask=col < cols)
            squares += total.to(tl.float32) * total.to(tl.float32)
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / cols + eps)
        for start in range(0, cols, COLS):
            col = start + near
            place, residual_place = row * x_row + col * x_col, row * residual_row + col * residual_col
            total = _total(x_ptr, residual_ptr, place, residual_place, col < cols, "evict_first")
            y = total.to(tl.float32) * rstd
            if weight_ptr is not None:
                y *= tl.load(weight_ptr + col * weight_stride, col < cols).to(tl.float32)
            tl.store(out_ptr + row * cols + col, y.to(total.dtype), mask=col < cols)
