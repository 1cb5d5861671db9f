"""broadcast: one row, written to every row of the output. Only the row is read."""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch
from _tiles import by_rows

TUNED = Path(__file__).parent / "tuned"
# Bytes that each processor has to write, at most -> bytes and warps of one tile. Small outputs get small tiles, so that
# every processor has one; large ones get tiles that pay for starting a program.
TILES = (
    (8 * 1024, 2 * 1024, 4),
    (64 * 1024, 8 * 1024, 4),
    (None, 16 * 1024, 4),
)
ROW_BYTES = 2 * 1024
"""Widest row of a tile: 16 bytes a thread, so that one vector of the bias in registers serves all rows of the tile."""


@functools.lru_cache(maxsize=4096)
def choose_tile(rows: int, cols: int, itemsize: int, limits: _launch.Limits) -> _launch.Tile:
    """Returns the tile for a shape."""
    return _launch.pointwise_tile(rows, cols, itemsize, limits, TILES, ROW_BYTES, TUNED)


def broadcast(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor of x's shape and dtype with `bias` as each of its rows: out[p, d] = bias[d].

    x supplies shape, dtype and device and is never read. It may have any rank from 1, and any strides. `bias` has
    shape (x.shape[-1],) and any stride. Both are float32, float16 or bfloat16; a bias of another dtype is rounded to
    x's. Raises TypeError for another dtype, ValueError for shapes or devices that do not go together.
    """
    _launch.check_broadcast(x, bias)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    cols = x.shape[-1]
    rows = out.numel() // cols
    limits = _launch.limits(x.device)
    tile = choose_tile(rows, cols, out.element_size(), limits)
    grid = _launch.grid(_launch.tiles(rows, tile.rows), _launch.tiles(cols, tile.cols), limits)
    with _launch.on(x.device):
        _broadcast_kernel[grid](
            bias, out, rows, cols, bias.stride(0), ROWS=tile.rows, COLS=tile.cols,
            LOOP=grid[0] < _launch.tiles(rows, tile.rows) * _launch.tiles(cols, tile.cols), num_warps=tile.warps,
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows"])
def _broadcast_kernel(
    bias_ptr, out_ptr, rows, cols, bias_stride, ROWS: tl.constexpr, COLS: tl.constexpr, LOOP: tl.constexpr
):
    """LOOP: there are more tiles than programs."""
    start, step, col = by_rows(cols, ROWS, COLS)
    value = tl.load(bias_ptr + col * bias_stride, mask=col < cols).to(out_ptr.dtype.element_ty)
    tile = tl.broadcast_to(value[None, :], (ROWS, COLS))
    if LOOP:
        for first in range(start, rows, step):
            _write(out_ptr, tile, first, rows, cols, col, ROWS)
    else:
        _write(out_ptr, tile, start, rows, cols, col, ROWS)


@triton.jit
def _write(out_ptr, tile, first, rows, cols, col, ROWS: tl.constexpr):
    row = first + tl.arange(0, ROWS).to(tl.int64)
    mask = (row < rows)[:, None] & (col < cols)[None, :]
    tl.store(out_ptr + row[:, None] * cols + col[None, :], tile, mask=mask)
