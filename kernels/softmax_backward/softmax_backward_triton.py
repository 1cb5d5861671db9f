"""softmax_backward over the last dimension: rows taken whole up to a limit, walked twice in chunks beyond it."""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch
import _rows
from _rows import Config, Tile

TUNED = Path(__file__).parent / "tuned"
# For devices without a tuned file: widest row, a power of two -> config. A short row shares its tile with others.
WHOLE_ROWS = {
    2048: Config(elements=2048, warps=4),
    4096: Config(elements=4096, warps=8),
    8192: Config(elements=8192, warps=16),
    16384: Config(elements=16384, warps=32),
}
LONG_ROWS = Config(elements=8192, warps=16, programs=1)
"""For wider rows. One program a processor: the rows in progress have to stay in L2 until they are read again."""


@functools.lru_cache(maxsize=4096)
def choose_tile(rows: int, cols: int, itemsize: int, limits: _launch.Limits) -> Tile:
    """Returns the tile for a shape; rows are not shared, however few."""
    return _rows.choose(rows, cols, itemsize, limits, TUNED, WHOLE_ROWS, LONG_ROWS, loads=2)._replace(parts=1)


def softmax_backward(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Returns y * (grad - sum(grad * y)) over the last dimension, contiguous: the gradient of softmax's x.

    y is softmax's answer, `grad` its gradient, of y's shape and dtype: float32, float16 or bfloat16, of any rank from
    1, each with any strides that a matrix of its rows can have (not a transposed batch: that needs
    `.contiguous()`). Computed in float32 and rounded once. Raises TypeError for dtypes, ValueError for shapes,
    strides or devices.
    """
    _launch.check_tensors("softmax_backward", grad=grad, y=y)
    _launch.check_same_dtype("softmax_backward", grad=grad, y=y)
    if y.ndim == 0:
        raise ValueError("softmax_backward: y is 0-dimensional, but needs at least one dimension")
    if grad.shape != y.shape:
        raise ValueError(
            f"softmax_backward: grad has shape {tuple(grad.shape)}, but y of shape {tuple(y.shape)} needs the same"
        )
    out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    if out.numel() == 0:
        return out
    rows, cols, *strides = _launch.as_rows("softmax_backward", grad, "grad")
    tensors = (grad, *strides, y, *_launch.as_rows("softmax_backward", y, "y")[2:], out, rows, cols)
    limits = _launch.limits(y.device)
    tile = choose_tile(rows, cols, out.element_size(), limits)
    tiles = _launch.tiles(rows, tile.rows)
    grid = _rows.programs(tiles, tile, limits)
    with _launch.on(y.device):
        if tile.lanes:
            _long_rows_kernel[grid](
                *tensors, COLS=tile.cols, EVEN=cols % tile.cols == 0, STAGES=tile.stages, **tile.options
            )
        else:
            _rows_kernel[grid](
                *tensors, ROWS=tile.rows, COLS=tile.cols, EVEN=_rows.even(rows, cols, tile), AGAIN=tile.again,
                LOOP=grid[0] < tiles, STAGES=tile.stages, **tile.options,
            )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows"])
def _rows_kernel(
    grad_ptr, grad_stride, grad_step, y_ptr, y_stride, y_step, out_ptr, rows, cols,
    ROWS: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr, AGAIN: tl.constexpr, LOOP: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Whole rows at once: each element is read once and written once. Strides are of rows, steps of columns.

    EVEN: tiles are full. AGAIN: grad and y are not kept for the second pass but loaded again, from L1. Its loads have
    different hints, as the compiler would merge equal ones. LOOP: a program has several tiles.
    """
    step = tl.num_programs(0).to(tl.int64) * ROWS  # 64 bits, as there may be more than 2**31 elements
    tiles = tl.cdiv(tl.cdiv(rows, ROWS) - tl.program_id(0), tl.num_programs(0)) if LOOP else 1
    col = tl.arange(0, COLS)[None, :].to(tl.int64)
    for index in tl.range(0, tiles, num_stages=STAGES):
        row = (tl.program_id(0).to(tl.int64) * ROWS + index * step + tl.arange(0, ROWS))[:, None]
        mask = None if EVEN else (row < rows) & (col < cols)
        grad_at, y_at = grad_ptr + row * grad_stride + col * grad_step, y_ptr + row * y_stride + col * y_step
        grad, y = _loaded(grad_at, y_at, mask, "evict_last" if AGAIN else "")
        total = tl.sum(grad * y, axis=1)[:, None]
        if AGAIN:
            grad, y = _loaded(grad_at, y_at, mask, "evict_first")
        tl.store(out_ptr + row * cols + col, (y * (grad - total)).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def _long_rows_kernel(
    grad_ptr, grad_stride, grad_step, y_ptr, y_stride, y_step, out_ptr, rows, cols,
    COLS: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One row at a time: once for the sum, then again to write, from L1 and L2. EVEN: chunks are full."""
    near = tl.arange(0, COLS)
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        products = tl.zeros([COLS], dtype=tl.float32)
        for start in tl.range(0, cols, COLS, num_stages=STAGES):
            col = tl.cast(start, tl.int64) + near
            grad_at, y_at = grad_ptr + row * grad_stride + col * grad_step, y_ptr + row * y_stride + col * y_step
            grad, y = _loaded(grad_at, y_at, None if EVEN else col < cols, "evict_last")
            products += grad * y
        total = tl.sum(products, axis=0)
        for start in tl.range(0, cols, COLS, num_stages=STAGES):
            col = tl.cast(start, tl.int64) + near
            mask = None if EVEN else col < cols
            grad_at, y_at = grad_ptr + row * grad_stride + col * grad_step, y_ptr + row * y_stride + col * y_step
            grad, y = _loaded(grad_at, y_at, mask, "evict_first")
            out = (y * (grad - total)).to(out_ptr.dtype.element_ty)
            tl.store(out_ptr + row * cols + col, out, mask=mask, cache_modifier=".cs")


@triton.jit
def _loaded(grad_at, y_at, mask, HINT: tl.constexpr):
    """Returns grad and y in float32, 0 where masked. HINT: how long they stay in the caches."""
    other = None if mask is None else 0.0
    grad = tl.load(grad_at, mask, other, eviction_policy=HINT).to(tl.float32)
    return grad, tl.load(y_at, mask, other, eviction_policy=HINT).to(tl.float32)
