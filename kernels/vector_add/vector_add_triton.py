"""vector_add: the sum of two tensors in one pass over memory. Dense ones are walked as one long row."""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch
from _tiles import by_rows

TUNED = Path(__file__).parent / "tuned"
# Bytes of the output that each processor writes, at most -> bytes and warps of one tile. Small inputs get small tiles,
# so that every processor has one; large ones get tiles with several 16-byte loads in flight a thread.
TILES = (
    (8 * 1024, 2 * 1024, 4),
    (None, 8 * 1024, 4),
)
ROW_BYTES = 2 * 1024
"""Widest row of a tile: 16 bytes a thread."""


@functools.lru_cache(maxsize=4096)
def choose_tile(rows: int, cols: int, itemsize: int, limits: _launch.Limits) -> _launch.Tile:
    """Returns the tile for a shape; a dense tensor is cut as if it were rows of ROW_BYTES."""
    return _launch.pointwise_tile(rows, cols, itemsize, limits, TILES, ROW_BYTES, TUNED)


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Returns x + y as a contiguous tensor of their shape and dtype.

    Both have one shape, of any rank, and one dtype: float32, float16 or bfloat16. Strides are any that a matrix of
    their rows can have (not a transposed batch: that needs `.contiguous()`). The sum is rounded once, from
    float32. Raises TypeError for dtypes, ValueError for shapes, strides or devices.
    """
    _launch.check_tensors("vector_add", x=x, y=y)
    _launch.check_same_dtype("vector_add", x=x, y=y)
    if x.shape != y.shape:
        raise ValueError(f"vector_add: x has shape {tuple(x.shape)}, but y {tuple(y.shape)}; both have to be the same")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    limits = _launch.limits(x.device)
    with _launch.on(x.device):
        if x.is_contiguous() and y.is_contiguous():
            _add_flat(x, y, out, limits)
        else:
            _add_rows(x, y, out, limits)
    return out


def _add_flat(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, limits: _launch.Limits) -> None:
    size = out.numel()
    cols = ROW_BYTES // out.element_size()
    tile = choose_tile(_launch.tiles(size, cols), cols, out.element_size(), limits)
    elements = tile.rows * tile.cols
    grid = _launch.grid(_launch.tiles(size, elements), 1, limits)
    _flat_kernel[grid](x, y, out, size, SIZE=elements, num_warps=tile.warps)


def _add_rows(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, limits: _launch.Limits) -> None:
    rows, cols, *x_strides = _launch.as_rows("vector_add", x)
    _, _, *y_strides = _launch.as_rows("vector_add", y, "y")
    tile = choose_tile(rows, cols, out.element_size(), limits)
    grid = _launch.grid(_launch.tiles(rows, tile.rows), _launch.tiles(cols, tile.cols), limits)
    _rows_kernel[grid](
        x, y, out, rows, cols, *x_strides, *y_strides, ROWS=tile.rows, COLS=tile.cols, num_warps=tile.warps
    )


@triton.jit(do_not_specialize=["size"])
def _flat_kernel(x_ptr, y_ptr, out_ptr, size, SIZE: tl.constexpr):
    step = tl.num_programs(0).to(tl.int64) * SIZE  # 64 bits, as there may be more than 2**31 elements
    for first in range(tl.program_id(0).to(tl.int64) * SIZE, size, step):
        # Only the last tile has a mask, so all others are copied in whole vectors, whatever the size.
        if first + SIZE <= size:
            at = first + tl.arange(0, SIZE)
            total = tl.load(x_ptr + at).to(tl.float32) + tl.load(y_ptr + at).to(tl.float32)
            tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty))
        else:
            for start in range(first, size, SIZE // 8):  # in eighths: a mask for each element needs registers
                at = start + tl.arange(0, SIZE // 8)
                x = tl.load(x_ptr + at, mask=at < size, other=0.0).to(tl.float32)
                y = tl.load(y_ptr + at, mask=at < size, other=0.0).to(tl.float32)
                tl.store(out_ptr + at, (x + y).to(out_ptr.dtype.element_ty), mask=at < size)


@triton.jit(do_not_specialize=["rows"])
def _rows_kernel(
    x_ptr, y_ptr, out_ptr, rows, cols, x_row_stride, x_col_stride, y_row_stride, y_col_stride,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    start, step, col = by_rows(cols, ROWS, COLS)
    for first in range(start, rows, step):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        mask = (row < rows)[:, None] & (col < cols)[None, :]
        x = tl.load(x_ptr + row[:, None] * x_row_stride + col[None, :] * x_col_stride, mask=mask, other=0.0)
        y = tl.load(y_ptr + row[:, None] * y_row_stride + col[None, :] * y_col_stride, mask=mask, other=0.0)
        total = x.to(tl.float32) + y.to(tl.float32)
        tl.store(out_ptr + row[:, None] * cols + col[None, :], total.to(out_ptr.dtype.element_ty), mask=mask)
