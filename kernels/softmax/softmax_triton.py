"""softmax over the last dimension: rows taken whole up to a limit, walked twice in chunks beyond it."""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch
import _rows
from _rows import Config, Tile

TUNED = Path(__file__).parent / "tuned"
# For devices without a tuned file: widest row, a power of two -> config. A short row shares its tile with others. Of
# the widest a processor holds only one at a time, so the next one is loaded ahead.
WHOLE_ROWS = {
    2048: Config(elements=2048, warps=4),
    4096: Config(elements=4096, warps=4),
    8192: Config(elements=8192, warps=8),
    16384: Config(elements=16384, warps=16),
    32768: Config(elements=32768, warps=32, stages=3, programs=2),
}
LONG_ROWS = Config(elements=8192, warps=16, programs=1)
"""For wider rows. One program a processor: the rows in progress have to stay in L2 until they are read again."""


@functools.lru_cache(maxsize=4096)
def choose_tile(rows: int, cols: int, itemsize: int, limits: _launch.Limits) -> Tile:
    """Returns the tile for a shape; rows are not shared, however few."""
    return _rows.choose(rows, cols, itemsize, limits, TUNED, WHOLE_ROWS, LONG_ROWS, loads=1)._replace(parts=1)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Returns exp(x) / sum(exp(x)) over the last dimension, contiguous, of x's shape and dtype.

    x is float32, float16 or bfloat16, of any rank from 1, with any strides that a matrix of its rows can have (not,
    say, a transposed batch: that needs `.contiguous()`). Computed in float32 from the row's maximum, so nothing
    overflows. As in torch.softmax a row with NaN or +inf, or with -inf only, gives NaN. Raises TypeError for another
    dtype, ValueError for shapes and strides.
    """
    _launch.check_softmax(x)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    rows, cols, row_stride, col_stride = _launch.as_rows("softmax", x)
    limits = _launch.limits(x.device)
    tile = choose_tile(rows, cols, out.element_size(), limits)
    tiles = _launch.tiles(rows, tile.rows)
    grid = _rows.programs(tiles, tile, limits)
    with _launch.on(x.device):
        if tile.lanes:
            _long_rows_kernel[grid](
                x, out, rows, cols, row_stride, col_stride,
                LANES=tile.lanes, COLS=tile.cols, EVEN=cols % tile.cols == 0, STAGES=tile.stages, **tile.options,
            )  # fmt: skip
        else:
            _rows_kernel[grid](
                x, out, rows, cols, row_stride, col_stride,
                ROWS=tile.rows, COLS=tile.cols, EVEN=_rows.even(rows, cols, tile), AGAIN=tile.again,
                LOOP=grid[0] < tiles, STAGES=tile.stages, **tile.options,
            )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows"])
def _rows_kernel(
    x_ptr, out_ptr, rows, cols, row_stride, col_stride,
    ROWS: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr, AGAIN: tl.constexpr, LOOP: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Whole rows at once: each element is read once and written once.

    EVEN: tiles are full. AGAIN: x is not kept for the next pass but loaded again, from L1; with few registers more rows
    are in progress. Its loads have different hints, as the compiler would merge equal ones. LOOP: a program has several
    tiles.
    """
    step = tl.num_programs(0).to(tl.int64) * ROWS  # 64 bits, as x may have more than 2**31 elements
    tiles = tl.cdiv(tl.cdiv(rows, ROWS) - tl.program_id(0), tl.num_programs(0)) if LOOP else 1
    col = tl.arange(0, COLS)
    other = None if EVEN else -float("inf")
    for index in tl.range(0, tiles, num_stages=STAGES):
        row = tl.program_id(0).to(tl.int64) * ROWS + index * step + tl.arange(0, ROWS)
        mask = None if EVEN else (row < rows)[:, None] & (col < cols)[None, :]
        source = x_ptr + row[:, None] * row_stride + col[None, :].to(tl.int64) * col_stride
        x = tl.load(source, mask, other, eviction_policy="evict_last" if AGAIN else "").to(tl.float32)
        top = tl.max(x, axis=1)[:, None]
        if AGAIN:
            x = tl.load(source, mask, other).to(tl.float32)
        power = tl.exp(x - top)
        scale = 1.0 / tl.sum(power, axis=1)
        if AGAIN:
            power = tl.exp(tl.load(source, mask, other, eviction_policy="evict_first").to(tl.float32) - top)
        y = power * scale[:, None]
        tl.store(out_ptr + row[:, None] * cols + col[None, :], y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def _long_rows_kernel(
    x_ptr, out_ptr, rows, cols, row_stride, col_stride,
    LANES: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One row at a time: once for maximum and sum together, then again to write, from L1 and L2.

    Each lane keeps its maximum and sum, so threads wait for each other once a row, not once a chunk.
    EVEN: chunks are full.
    """
    DEPTH: tl.constexpr = COLS // LANES
    near = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    other = None if EVEN else -float("inf")
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        source = x_ptr + row * row_stride
        # Online softmax (Milakov and Gimelshein, 2018): the sum so far is rescaled whenever the maximum grows.
        top = tl.full([LANES], -float("inf"), dtype=tl.float32)
        total = tl.zeros([LANES], dtype=tl.float32)
        for start in tl.range(0, cols, COLS, num_stages=STAGES):
            place = source + tl.cast(start, tl.int64) * col_stride + near.to(tl.int64) * col_stride
            mask = None if EVEN else start + near < cols
            x = tl.load(place, mask, other, eviction_policy="evict_last").to(tl.float32)
            new_top = tl.maximum(top, tl.max(x, axis=0))
            shift = tl.where(new_top == -float("inf"), 0.0, new_top)  # -inf - -inf would be NaN
            total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift[None, :]), axis=0)
            top = new_top
        highest = tl.max(top, axis=0)
        highest = tl.where(highest == -float("inf"), 0.0, highest)
        scale = 1.0 / tl.sum(total * tl.exp(top - highest), axis=0)
        for start in tl.range(0, cols, COLS, num_stages=STAGES):
            place = source + tl.cast(start, tl.int64) * col_stride + near.to(tl.int64) * col_stride
            mask = None if EVEN else start + near < cols
            x = tl.load(place, mask, other, eviction_policy="evict_first").to(tl.float32)
            y = (tl.exp(x - highest) * scale).to(out_ptr.dtype.element_ty)
            tl.store(out_ptr + row * cols + start + near, y, mask=mask, cache_modifier=".cs")
