"""bias_relu: adds a row and replaces values below zero, in one pass over memory."""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch
from _tiles import by_rows

TUNED = Path(__file__).parent / "tuned"
# Bytes that each processor has to read, at most -> bytes and warps of one tile. Small inputs get small tiles, so that
# every processor has one; large ones get tiles with several 16-byte loads in flight a thread.
TILES = (
    (8 * 1024, 2 * 1024, 4),
    (None, 8 * 1024, 4),
)
ROW_BYTES = 2 * 1024
"""Widest row of a tile: 16 bytes a thread, so that one vector of the bias in registers serves all rows of the tile."""
NARROW = 2**30 - 2**20
"""Elements below which places, and one step of a loop beyond the last, fit into 32 bits."""


@functools.lru_cache(maxsize=4096)
def choose_tile(rows: int, cols: int, itemsize: int, limits: _launch.Limits) -> _launch.Tile:
    """Returns the tile for a shape."""
    return _launch.pointwise_tile(rows, cols, itemsize, limits, TILES, ROW_BYTES, TUNED)


def bias_relu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Returns max(x + bias, 0), contiguous, of x's shape and dtype. NaN stays NaN, as in torch.relu.

    x has any rank from 1 and any strides that a matrix of its rows can have (not a transposed batch: that
    needs `.contiguous()`). `bias` has shape (x.shape[-1],), any stride and x's dtype: float32, float16 or bfloat16.
    The sum is rounded once, from float32. Raises TypeError for dtypes, ValueError for shapes, strides or devices.
    """
    _launch.check_tensors("bias_relu", x=x, bias=bias)
    _launch.check_same_dtype("bias_relu", x=x, bias=bias)
    _launch.check_bias("bias_relu", x, bias)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    limits = _launch.limits(x.device)
    with _launch.on(x.device):
        if x.is_contiguous() and bias.is_contiguous() and x.shape[-1] < NARROW:
            _flat(x, bias, out, limits)
        else:
            _rows(x, bias, out, limits)
    return out


def _flat(x: torch.Tensor, bias: torch.Tensor, out: torch.Tensor, limits: _launch.Limits) -> None:
    size, cols, itemsize = out.numel(), x.shape[-1], out.element_size()
    tile = choose_tile(size // cols, cols, itemsize, limits)
    elements = tile.rows * tile.cols
    vector = _launch.VECTOR_BYTES // itemsize
    tiles = _launch.tiles(size, elements)
    grid = _launch.grid(tiles, 1, limits)
    _flat_kernel[grid](
        x, bias, out, size, cols, SIZE=elements, VECTOR=vector if cols % vector == 0 else 1,
        WRAPS=elements > cols, WIDE=size >= NARROW, LOOP=grid[0] < tiles, num_warps=tile.warps,
    )  # fmt: skip


def _rows(x: torch.Tensor, bias: torch.Tensor, out: torch.Tensor, limits: _launch.Limits) -> None:
    rows, cols, row_stride, col_stride = _launch.as_rows("bias_relu", x)
    tile = choose_tile(rows, cols, out.element_size(), limits)
    grid = _launch.grid(_launch.tiles(rows, tile.rows), _launch.tiles(cols, tile.cols), limits)
    _rows_kernel[grid](
        x, bias, out, rows, cols, row_stride, col_stride, bias.stride(0),
        ROWS=tile.rows, COLS=tile.cols, num_warps=tile.warps,
    )  # fmt: skip


@triton.jit
def _added(x, bias):
    """The answer for values of any dtype, in float32."""
    y = x.to(tl.float32) + bias.to(tl.float32)
    return tl.where(y < 0, 0.0, y)  # no comparison with NaN is true, so NaN stays


@triton.jit(do_not_specialize=["size"])
def _flat_kernel(
    x_ptr, bias_ptr, out_ptr, size, cols,
    SIZE: tl.constexpr, VECTOR: tl.constexpr, WRAPS: tl.constexpr, WIDE: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    """VECTOR: neighbouring values of the bias at any start, as cols is a multiple of it.

    WRAPS: a tile may reach over the end of a row more than once. WIDE: places need 64 bits. LOOP: there are more tiles
    than programs.
    """
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    if WIDE:
        program = program.to(tl.int64)
        programs = programs.to(tl.int64)
    if LOOP:
        for first in range(program * SIZE, size, programs * SIZE):
            _flat_tile(x_ptr, bias_ptr, out_ptr, first, size, cols, SIZE, VECTOR, WRAPS)
    else:
        _flat_tile(x_ptr, bias_ptr, out_ptr, program * SIZE, size, cols, SIZE, VECTOR, WRAPS)


@triton.jit
def _flat_tile(
    x_ptr, bias_ptr, out_ptr, first, size, cols, SIZE: tl.constexpr, VECTOR: tl.constexpr, WRAPS: tl.constexpr
):
    # Only the last tile has a mask, so all others are copied in whole vectors, whatever the size.
    if first + SIZE <= size:
        at = tl.arange(0, SIZE)
        col = (first % cols).to(tl.int32) + at
        col = col % cols if WRAPS else tl.where(col < cols, col, col - cols)
        bias = tl.load(bias_ptr + tl.max_contiguous(tl.multiple_of(col, [VECTOR]), [VECTOR]))
        y = _added(tl.load(x_ptr + first + at), bias)
        tl.store(out_ptr + first + at, y.to(out_ptr.dtype.element_ty))
    else:
        for start in range(first, size, SIZE // 8):  # in eighths: a mask for each element needs registers
            at = start + tl.arange(0, SIZE // 8)
            x = tl.load(x_ptr + at, mask=at < size, other=0.0)
            y = _added(x, tl.load(bias_ptr + at % cols, mask=at < size, other=0.0))
            tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=at < size)


@triton.jit(do_not_specialize=["rows"])
def _rows_kernel(
    x_ptr, bias_ptr, out_ptr, rows, cols, row_stride, col_stride, bias_stride, ROWS: tl.constexpr, COLS: tl.constexpr
):
    start, step, col = by_rows(cols, ROWS, COLS)
    bias = tl.load(bias_ptr + col * bias_stride, mask=col < cols, other=0.0)
    for first in range(start, rows, step):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        mask = (row < rows)[:, None] & (col < cols)[None, :]
        x = tl.load(x_ptr + row[:, None] * row_stride + col[None, :] * col_stride, mask=mask, other=0.0)
        y = _added(x, bias[None, :])
        tl.store(out_ptr + row[:, None] * cols + col[None, :], y.to(out_ptr.dtype.element_ty), mask=mask)
