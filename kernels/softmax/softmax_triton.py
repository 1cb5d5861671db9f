"""softmax over the last dimension: rows held in registers up to a limit, walked twice in chunks beyond it."""

import functools
from pathlib import Path
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import _launch

TUNED = Path(__file__).parent / "tuned"


class Tile(NamedTuple):
    rows: int
    cols: int
    """Columns at a time: a whole row, or one chunk of a long one."""
    warps: int
    long: bool = False
    stages: int = 1
    """Tiles whose loads are under way while one is computed; 1: none but its own."""
    programs: int | None = None
    """Programs a processor, each walking many tiles; None: one program a tile."""


# Width of a row (a power of two), at most -> elements of a tile at least, warps, stages, programs a processor. A short
# row shares its tile with others. Of the widest a processor holds only one at a time, so the next one is loaded ahead.
WHOLE_ROWS = (
    (2048, 2048, 4, 1, None),
    (4096, 4096, 4, 1, None),
    (8192, 8192, 8, 1, None),
    (16384, 16384, 16, 1, None),
    (32768, 32768, 32, 3, 2),
)
LONG_ROWS = Tile(rows=1, cols=8192, warps=16, long=True)
"""For rows wider than all of these, or than the device's `tile_elements`."""


@functools.lru_cache(maxsize=4096)
def choose_tile(rows: int, cols: int, itemsize: int, limits: _launch.Limits) -> Tile:
    """The tile for a shape; always of powers of two, so that there are few of them to compile.

    A row wider than the `elements` of the device's tuned file is walked in chunks of so many.
    """
    width = _launch.power_of_two(cols)
    sizes = WHOLE_ROWS
    if config := _launch.config(TUNED, limits, rows=rows, width=width, itemsize=itemsize):
        elements, warps, stages, programs = (config[name] for name in ("elements", "warps", "stages", "programs"))
        if elements < width:
            return Tile(1, elements, warps, long=True, stages=stages)
        sizes = ((width, elements, warps, stages, programs or None),)
    for most, elements, warps, stages, programs in sizes:
        if width <= min(most, limits.tile_elements):
            share = _launch.power_of_two(
                _launch.tiles(rows, limits.processors)
            )  # so that no processor goes without a row
            ahead = limits.shared_bytes // (width * itemsize)  # rows loaded ahead wait in shared memory
            tile_rows = max(min(elements // width, share), 1)
            return Tile(tile_rows, width, warps, False, min(stages, ahead + 1), programs)
    return LONG_ROWS


def softmax(x: torch.Tensor) -> torch.Tensor:
    """exp(x) / sum(exp(x)) over the last dimension, as a contiguous tensor of x's shape and dtype.

    x is float32, float16 or bfloat16, of any rank from 1 on, with any strides that a matrix of its rows can have (not,
    say, a transposed batch: that needs `.contiguous()`). Computed in float32 from the row's maximum, so that nothing
    overflows; as in torch.softmax a row with NaN or +inf, or of -inf alone, gives NaN. Raises TypeError for another
    dtype, ValueError for shapes and strides.
    """
    _launch.check_tensors("softmax", x=x)
    if x.ndim == 0:
        raise ValueError("softmax: x is 0-dimensional, but needs at least one dimension")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    rows, cols, row_stride, col_stride = _launch.as_rows("softmax", x)
    limits = _launch.limits(x.device)
    tile = choose_tile(rows, cols, out.element_size(), limits)
    kernel = _long_rows_kernel if tile.long else _rows_kernel
    tiles = _launch.tiles(rows, tile.rows)
    grid = _launch.grid(min(tiles, limits.processors * tile.programs) if tile.programs else tiles, 1, limits)
    with _launch.on(x.device):
        kernel[grid](
            x, out, rows, cols, row_stride, col_stride,
            ROWS=tile.rows, COLS=tile.cols, STAGES=tile.stages, num_warps=tile.warps,
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows"])
def _rows_kernel(
    x_ptr, out_ptr, rows, cols, row_stride, col_stride,
    ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Whole rows at once: each element is read once and written once."""
    col = tl.arange(0, COLS)
    step = tl.num_programs(0).to(tl.int64) * ROWS  # 64 bits, as x may have more than 2**31 elements
    for first in tl.range(tl.program_id(0).to(tl.int64) * ROWS, rows, step, num_stages=STAGES):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        mask = (row < rows)[:, None] & (col < cols)[None, :]
        source = x_ptr + row[:, None] * row_stride + col[None, :].to(tl.int64) * col_stride
        x = tl.load(source, mask=mask, other=-float("inf")).to(tl.float32)
        power = tl.exp(x - tl.max(x, axis=1)[:, None])
        y = power * (1.0 / tl.sum(power, axis=1))[:, None]
        tl.store(out_ptr + row[:, None] * cols + col[None, :], y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def _long_rows_kernel(
    x_ptr, out_ptr, rows, cols, row_stride, col_stride,
    ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One row a time in chunks: a walk for maximum and sum together, and one to write, which loads the row again."""
    tl.static_assert(ROWS == 1)
    chunk = tl.arange(0, COLS)
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        source = x_ptr + row * row_stride
        # Online softmax (Milakov and Gimelshein, 2018): the sum so far is rescaled whenever the maximum grows.
        top = -float("inf")
        total = 0.0
        for start in tl.range(0, cols, COLS, num_stages=STAGES):
            col = start + chunk
            x = tl.load(source + col.to(tl.int64) * col_stride, mask=col < cols, other=-float("inf")).to(tl.float32)
            new_top = tl.maximum(top, tl.max(x, axis=0))
            shift = tl.where(new_top == -float("inf"), 0.0, new_top)  # -inf - -inf would be NaN
            total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift), axis=0)
            top = new_top
        shift = tl.where(top == -float("inf"), 0.0, top)
        scale = 1.0 / total
        for start in tl.range(0, cols, COLS, num_stages=STAGES):
            col = start + chunk
            x = tl.load(source + col.to(tl.int64) * col_stride, mask=col < cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - shift) * scale
            tl.store(out_ptr + row * cols + col, y.to(out_ptr.dtype.element_ty), mask=col < cols)
