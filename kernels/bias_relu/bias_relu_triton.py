"""bias_relu: add a row and cut off below zero, in one pass over memory."""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch

TUNED = Path(__file__).parent / "tuned"
# Bytes that each processor has to read, at most -> bytes and warps of one tile. Small inputs get small tiles, so that
# every processor has one; large ones get tiles with several 16-byte loads in flight a thread.
TILES = (
    (8 * 1024, 2 * 1024, 4),
    (None, 8 * 1024, 4),
)
ROW_BYTES = 2 * 1024
"""Widest row of a tile: 16 bytes a thread, so that one vector of the bias in registers serves all rows of the tile."""


@functools.lru_cache(maxsize=4096)
def choose_tile(rows: int, cols: int, itemsize: int, limits: _launch.Limits) -> _launch.Tile:
    """The tile for a shape."""
    return _launch.pointwise_tile(rows, cols, itemsize, limits, TILES, ROW_BYTES, TUNED)


def bias_relu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """max(x + bias, 0) as a contiguous tensor of x's shape and dtype; NaN stays NaN, as in torch.relu.

    x has any rank from 1 on and any strides that a matrix of its rows can have (not, say, a transposed batch: that
    needs `.contiguous()`). `bias` has shape (x.shape[-1],), any stride and x's dtype: float32, float16 or bfloat16.
    The sum is rounded once, from float32. Raises TypeError for dtypes, ValueError for shapes, strides or devices.
    """
    _launch.check_tensors("bias_relu", x=x, bias=bias)
    _launch.check_same_dtype("bias_relu", x=x, bias=bias)
    _launch.check_bias("bias_relu", x, bias)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    rows, cols, row_stride, col_stride = _launch.as_rows("bias_relu", x)
    limits = _launch.limits(x.device)
    tile = choose_tile(rows, cols, out.element_size(), limits)
    grid = _launch.grid(_launch.tiles(rows, tile.rows), _launch.tiles(cols, tile.cols), limits)
    with _launch.on(x.device):
        _bias_relu_kernel[grid](
            x, bias, out, rows, cols, row_stride, col_stride, bias.stride(0),
            ROWS=tile.rows, COLS=tile.cols, num_warps=tile.warps,
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows"])
def _bias_relu_kernel(
    x_ptr, bias_ptr, out_ptr, rows, cols, row_stride, col_stride, bias_stride, ROWS: tl.constexpr, COLS: tl.constexpr
):
    # 64 bits from the start, as an input may have more than 2**31 elements.
    col = tl.program_id(1).to(tl.int64) * COLS + tl.arange(0, COLS)
    step = tl.num_programs(0).to(tl.int64) * ROWS
    bias = tl.load(bias_ptr + col * bias_stride, mask=col < cols, other=0.0).to(tl.float32)
    for first in range(tl.program_id(0).to(tl.int64) * ROWS, rows, step):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        mask = (row < rows)[:, None] & (col < cols)[None, :]
        x = tl.load(x_ptr + row[:, None] * row_stride + col[None, :] * col_stride, mask=mask, other=0.0)
        y = x.to(tl.float32) + bias[None, :]
        y = tl.where(y < 0, 0.0, y)  # no comparison with NaN holds, so NaN stays
        tl.store(out_ptr + row[:, None] * cols + col[None, :], y.to(out_ptr.dtype.element_ty), mask=mask)
