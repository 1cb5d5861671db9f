"""gelu: x times the normal distribution function of x, exact or by tanh, in one pass over memory."""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch
from _tiles import by_rows

TUNED = Path(__file__).parent / "tuned"
APPROXIMATIONS = ("none", "tanh")
# Bytes that each processor has to read, at most -> bytes and warps of one tile. Small inputs get small tiles, so that
# every processor has one; large ones get tiles with several 16-byte loads in flight a thread.
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


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Returns x * Phi(x) as a contiguous tensor of x's shape and dtype; Phi is the normal distribution function.

    `approximate` is "none", or "tanh" for x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3))). x is float32, float16 or
    bfloat16, of any rank, with any strides that a matrix of its rows can have (not a transposed batch: that needs
    `.contiguous()`). Computed in float32 and rounded once. -inf gives NaN, as in torch. Raises TypeError for
    another dtype, ValueError for strides or for another `approximate`.
    """
    _launch.check_tensors("gelu", x=x)
    if approximate not in APPROXIMATIONS:
        raise ValueError(f"gelu: approximate is {approximate!r}, but has to be 'none' or 'tanh'")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    limits = _launch.limits(x.device)
    with _launch.on(x.device):
        if x.is_contiguous():
            _gelu_flat(x, out, approximate == "tanh", limits)
        else:
            _gelu_rows(x, out, approximate == "tanh", limits)
    return out


def _gelu_flat(x: torch.Tensor, out: torch.Tensor, tanh: bool, limits: _launch.Limits) -> None:
    size = out.numel()
    cols = ROW_BYTES // out.element_size()
    tile = choose_tile(_launch.tiles(size, cols), cols, out.element_size(), limits)
    elements = tile.rows * tile.cols
    grid = _launch.grid(_launch.tiles(size, elements), 1, limits)
    _flat_kernel[grid](x, out, size, TANH=tanh, SIZE=elements, num_warps=tile.warps)


def _gelu_rows(x: torch.Tensor, out: torch.Tensor, tanh: bool, limits: _launch.Limits) -> None:
    rows, cols, row_stride, col_stride = _launch.as_rows("gelu", x)
    tile = choose_tile(rows, cols, out.element_size(), limits)
    grid = _launch.grid(_launch.tiles(rows, tile.rows), _launch.tiles(cols, tile.cols), limits)
    _rows_kernel[grid](
        x, out, rows, cols, row_stride, col_stride, TANH=tanh, ROWS=tile.rows, COLS=tile.cols, num_warps=tile.warps
    )


@triton.jit
def _gelu(x, TANH: tl.constexpr):
    """The gelu of float32 values."""
    if TANH:
        # 1 + tanh(u) is 2 / (1 + exp(-2 u)), which cancels nothing for negative x: -2 u log2(e) as a polynomial.
        y = x / (1.0 + tl.exp2(x * (-2.302208198 - 0.1029432396 * x * x)))
    else:
        # Phi(-z) = 2**p(z), a polynomial fitted to log2 Phi(-z) from 0 to 6.2 (docs/ops/gelu.md); beyond, p falls on.
        # The library's erf takes twice as many instructions, more than there is time for at the speed of memory, and
        # 1 + erf cancels in the left tail.
        z = tl.abs(x)
        p = -2.862897297006839e-08
        p = p * z + 8.587022648498532e-07
        p = p * z - 1.0994890544679947e-05
        p = p * z + 7.661186828045174e-05
        p = p * z - 0.00027956345002166927
        p = p * z - 2.5803446987993084e-06
        p = p * z + 0.006953724194318056
        p = p * z - 0.05244853347539902
        p = p * z - 0.4592176079750061
        p = p * z - 1.1511046886444092
        tail = tl.exp2(p * z - 1.0)
        y = x * tl.where(x < 0, tail, 1.0 - tail)
    return y


@triton.jit(do_not_specialize=["size"])
def _flat_kernel(x_ptr, out_ptr, size, TANH: tl.constexpr, SIZE: tl.constexpr):
    step = tl.num_programs(0).to(tl.int64) * SIZE  # 64 bits, as there may be more than 2**31 elements
    for first in range(tl.program_id(0).to(tl.int64) * SIZE, size, step):
        # Only the last tile has a mask, so all others are copied in whole vectors, whatever the size.
        if first + SIZE <= size:
            at = first + tl.arange(0, SIZE)
            y = _gelu(tl.load(x_ptr + at).to(tl.float32), TANH)
            tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty))
        else:
            for start in range(first, size, SIZE // 8):  # in eighths: a mask for each element needs registers
                at = start + tl.arange(0, SIZE // 8)
                y = _gelu(tl.load(x_ptr + at, mask=at < size, other=0.0).to(tl.float32), TANH)
                tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=at < size)


@triton.jit(do_not_specialize=["rows"])
def _rows_kernel(
    x_ptr, out_ptr, rows, cols, row_stride, col_stride, TANH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):
    start, step, col = by_rows(cols, ROWS, COLS)
    for first in range(start, rows, step):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        mask = (row < rows)[:, None] & (col < cols)[None, :]
        x = tl.load(x_ptr + row[:, None] * row_stride + col[None, :] * col_stride, mask=mask, other=0.0)
        y = _gelu(x.to(tl.float32), TANH)
        tl.store(out_ptr + row[:, None] * cols + col[None, :], y.to(out_ptr.dtype.element_ty), mask=mask)
