"""rms_norm over the last dimension: rows taken whole up to a limit, walked twice in chunks beyond it."""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch
import _rows
from _rows import Config, Tile

TUNED = Path(__file__).parent / "tuned"
# For devices without a tuned file: widest row, a power of two -> config. A short row shares its tile with others, so
# that the weight is loaded once for several. Of the widest a processor holds few, so the next is loaded ahead.
WHOLE_ROWS = {
    4096: Config(elements=4096, warps=4),
    8192: Config(elements=8192, warps=8),
    16384: Config(elements=16384, warps=16),
    32768: Config(elements=32768, warps=32, stages=2, programs=1),
}
LONG_ROWS = Config(elements=16384, warps=16, stages=2, programs=1)
"""For wider rows. One program a processor: the rows in progress have to stay in L2 until they are read again."""


@functools.lru_cache(maxsize=4096)
def choose_tile(rows: int, cols: int, itemsize: int, limits: _launch.Limits) -> Tile:
    """Returns the tile for a shape."""
    return _rows.choose(rows, cols, itemsize, limits, TUNED, WHOLE_ROWS, LONG_ROWS, loads=2)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6, stats: bool = False
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Returns x / sqrt(mean(x**2) + eps) * weight over the last dimension, contiguous, of x's shape and dtype.

    With `stats` two tensors: the answer, and 1 / sqrt(mean(x**2) + eps) of each row, float32 of shape
    (*x.shape[:-1], 1). x is float32, float16 or bfloat16, of any rank from 1, with any strides that a matrix of its
    rows can have (not a transposed batch: that needs `.contiguous()`). The optional `weight` has shape
    (x.shape[-1],), any stride and x's dtype. Computed in float32 and rounded once. Raises TypeError for dtypes,
    ValueError for shapes, strides, devices or a negative eps.
    """
    _launch.check_rms_norm(x, weight, eps, stats)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rstd = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device) if stats else None
    if out.numel():
        _launched(x, weight, out, rstd, eps)
    return out if rstd is None else (out, rstd)


def _launched(
    x: torch.Tensor, weight: torch.Tensor | None, out: torch.Tensor, rstd: torch.Tensor | None, eps: float
) -> None:
    rows, cols, row_stride, col_stride = _launch.as_rows("rms_norm", x)
    limits = _launch.limits(x.device)
    tile = choose_tile(rows, cols, out.element_size(), limits)
    tensors = (x, row_stride, col_stride, weight, 0 if weight is None else weight.stride(0), out, rstd)
    with _launch.on(x.device):
        if tile.parts > 1:
            _shared_rows(tensors, rows, cols, eps, tile, limits)
        elif tile.lanes:
            _long_rows_kernel[_rows.programs(rows, tile, limits)](
                *tensors, rows, cols, eps,
                LANES=tile.lanes, COLS=tile.cols, EVEN=cols % tile.cols == 0, STAGES=tile.stages, **tile.options,
            )  # fmt: skip
        else:
            tiles = _launch.tiles(rows, tile.rows)
            grid = _rows.programs(tiles, tile, limits)
            _rows_kernel[grid](
                *tensors, rows, cols, eps, ROWS=tile.rows, COLS=tile.cols, EVEN=_rows.even(rows, cols, tile),
                AGAIN=tile.again, LOOP=grid[0] < tiles, STAGES=tile.stages, **tile.options,
            )  # fmt: skip


def _shared_rows(tensors: tuple, rows: int, cols: int, eps: float, tile: Tile, limits: _launch.Limits) -> None:
    """Few long rows: their parts' sums by one kernel, the answer by another."""
    x, row_stride, col_stride, *_ = tensors
    empty = torch.empty((rows, tile.parts), dtype=torch.float32, device=x.device)
    _parts_kernel[_launch.grid(rows * tile.parts, 1, limits)](
        x, row_stride, col_stride, empty, rows, cols, tile.parts, _rows.span(cols, tile) // tile.cols,
        LANES=tile.lanes, COLS=tile.cols, STAGES=tile.stages, **tile.options,
    )  # fmt: skip
    _join_kernel[_launch.grid(rows * _launch.tiles(cols, tile.cols), 1, limits)](
        *tensors, empty, rows, cols, eps, tile.parts,
        PARTS=_launch.power_of_two(tile.parts), COLS=tile.cols, **tile.options,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def _rows_kernel(
    x_ptr, row_stride, col_stride, weight_ptr, weight_stride, out_ptr, rstd_ptr, rows, cols, eps,
    ROWS: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr, AGAIN: tl.constexpr, LOOP: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Whole rows at once: each element is read once and written once.

    EVEN: tiles are full. AGAIN: x is not kept for the second pass but loaded again, from L1; with few registers more
    rows are in progress. Its loads have different hints, as the compiler would merge equal ones. LOOP: a program has
    several tiles.
    """
    step = tl.num_programs(0).to(tl.int64) * ROWS  # 64 bits, as x may have more than 2**31 elements
    tiles = tl.cdiv(tl.cdiv(rows, ROWS) - tl.program_id(0), tl.num_programs(0)) if LOOP else 1
    col = tl.arange(0, COLS)
    some_cols = None if EVEN else col < cols
    for index in tl.range(0, tiles, num_stages=STAGES):
        row = tl.program_id(0).to(tl.int64) * ROWS + index * step + tl.arange(0, ROWS)
        mask = None if EVEN else (row < rows)[:, None] & (col < cols)[None, :]
        source = x_ptr + row[:, None] * row_stride + col[None, :].to(tl.int64) * col_stride
        x = tl.load(source, mask, None if EVEN else 0.0, eviction_policy="evict_last" if AGAIN else "").to(tl.float32)
        rstd = tl.rsqrt(tl.sum(x * x, axis=1) / cols + eps)
        if AGAIN:
            x = tl.load(source, mask, None if EVEN else 0.0, eviction_policy="evict_first").to(tl.float32)
        y = x * rstd[:, None]
        if weight_ptr is not None:
            place = weight_ptr + col.to(tl.int64) * weight_stride
            y *= tl.load(place, some_cols, eviction_policy="evict_last").to(tl.float32)[None, :]
        tl.store(out_ptr + row[:, None] * cols + col[None, :], y.to(out_ptr.dtype.element_ty), mask=mask)
        if rstd_ptr is not None:
            tl.store(rstd_ptr + row, rstd, mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def _long_rows_kernel(
    x_ptr, row_stride, col_stride, weight_ptr, weight_stride, out_ptr, rstd_ptr, rows, cols, eps,
    LANES: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One row at a time: once for the squares, then again to write, from L1 and L2."""
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        source = x_ptr + row * row_stride
        square = _squares(source, col_stride, 0, cols, cols, LANES, COLS, EVEN, STAGES, "evict_last")
        rstd = tl.rsqrt(square / cols + eps)
        if rstd_ptr is not None:
            tl.store(rstd_ptr + row, rstd)
        for start in tl.range(0, cols, COLS, num_stages=STAGES):
            _write(
                source, col_stride, weight_ptr, weight_stride, out_ptr + row * cols, start, cols, rstd,
                COLS, EVEN, ".cg",
            )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "parts", "chunks"])
def _parts_kernel(
    x_ptr, row_stride, col_stride, found_ptr, rows, cols, parts, chunks,
    LANES: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sum of the squares of each part of each row."""
    for index in range(tl.program_id(0), rows * parts, tl.num_programs(0)):
        row = tl.cast(index // parts, tl.int64)
        first = index % parts * chunks * COLS  # seen to be a multiple of vectors, as a span would not be
        last = tl.minimum(first + chunks * COLS, cols)
        square = _squares(x_ptr + row * row_stride, col_stride, first, last, cols, LANES, COLS, False, STAGES, "")
        tl.store(found_ptr + index, square)


@triton.jit(do_not_specialize=["rows", "parts"])
def _join_kernel(
    x_ptr, row_stride, col_stride, weight_ptr, weight_stride, out_ptr, rstd_ptr, found_ptr, rows, cols, eps, parts,
    PARTS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """One chunk of a row, from the sums of all parts of the row."""
    part = tl.arange(0, PARTS)
    chunks = tl.cdiv(cols, COLS)
    for index in range(tl.program_id(0), rows * chunks, tl.num_programs(0)):
        row = tl.cast(index // chunks, tl.int64)
        square = tl.sum(tl.load(found_ptr + row * parts + part, mask=part < parts, other=0.0), axis=0)
        rstd = tl.rsqrt(square / cols + eps)
        if rstd_ptr is not None:
            tl.store(rstd_ptr + row, rstd, mask=index % chunks == 0)
        source, target = x_ptr + row * row_stride, out_ptr + row * cols
        start = index % chunks * COLS
        _write(source, col_stride, weight_ptr, weight_stride, target, start, cols, rstd, COLS, False, "")


@triton.jit
def _squares(
    source, col_stride, first, last, cols,
    LANES: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    """Sum of the squares of the columns from `first` to before `last`.

    Each lane adds up its own, so threads wait for each other once a row, not once a chunk. `last` is `cols`, or
    a whole number of chunks on. EVEN: chunks are full. HINT: how long x stays in the caches.
    """
    DEPTH: tl.constexpr = COLS // LANES
    near = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    square = tl.zeros([LANES], dtype=tl.float32)
    for start in tl.range(first, last, COLS, num_stages=STAGES):
        if EVEN:
            mask = None
            place = source + tl.cast(start, tl.int64) * col_stride + near.to(tl.int64) * col_stride
        else:
            mask = start + near < cols
            place = source + (start + near).to(tl.int64) * col_stride
        x = tl.load(place, mask, None if EVEN else 0.0, eviction_policy=HINT).to(tl.float32)
        square += tl.sum(x * x, axis=0)
    return tl.sum(square, axis=0)


@triton.jit
def _write(
    source, col_stride, weight_ptr, weight_stride, target, start, cols, rstd,
    COLS: tl.constexpr, EVEN: tl.constexpr, CACHE: tl.constexpr,
):  # fmt: skip
    """The chunk of the answer from column `start` on. `source` and `target` point at the row's first element.

    CACHE: of the weight, ".cg" to bypass L1, which has x.
    """
    near = tl.arange(0, COLS).to(tl.int64)
    begin = tl.cast(start, tl.int64)
    mask = None if EVEN else begin + near < cols
    place = source + begin * col_stride + near * col_stride
    x = tl.load(place, mask, None if EVEN else 0.0, eviction_policy="evict_first").to(tl.float32)
    y = x * rstd
    if weight_ptr is not None:
        place = weight_ptr + begin * weight_stride + near * weight_stride
        y *= tl.load(place, mask, None if EVEN else 0.0, cache_modifier=CACHE).to(tl.float32)
    tl.store(target + begin + near, y.to(target.dtype.element_ty), mask=mask, cache_modifier=".cs")
