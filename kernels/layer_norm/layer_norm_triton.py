"""layer_norm over the last dimension: rows taken whole up to a limit, walked twice in chunks beyond it."""

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
# that weight and bias are loaded once for several.
WHOLE_ROWS = {
    4096: Config(elements=4096, warps=4),
    8192: Config(elements=8192, warps=8),
    16384: Config(elements=16384, warps=16),
    32768: Config(elements=32768, warps=32),
}
LONG_ROWS = Config(elements=16384, warps=16, stages=2, programs=1)
"""For wider rows. One program a processor: the rows in progress have to stay in L2 until they are read again."""

Answer = torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@functools.lru_cache(maxsize=4096)
def choose_tile(rows: int, cols: int, itemsize: int, limits: _launch.Limits) -> Tile:
    """Returns the tile for a shape."""
    return _rows.choose(rows, cols, itemsize, limits, TUNED, WHOLE_ROWS, LONG_ROWS, loads=3)


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    stats: bool = False,
) -> Answer:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimension, contiguous, of x's shape and dtype.

    With `stats` three tensors: the answer, and mean and 1 / sqrt(variance + eps) of each row, float32 of shape
    (*x.shape[:-1], 1). x is float32, float16 or bfloat16, of any rank from 1, with any strides that a matrix of its
    rows can have (not a transposed batch: that needs `.contiguous()`). `weight` and `bias`, each of which may be
    left out, have shape (x.shape[-1],), any stride and x's dtype. Computed in float32 from the differences to the mean,
    never from a difference of squares, and rounded once. Raises TypeError for dtypes, ValueError for shapes, strides,
    devices or a negative eps.
    """
    check(x, weight, bias, eps, stats)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows_shape = (*x.shape[:-1], 1)
    mean = torch.empty(rows_shape, dtype=torch.float32, device=x.device) if stats else None
    rstd = torch.empty(rows_shape, dtype=torch.float32, device=x.device) if stats else None
    if out.numel():
        _launched(x, weight, bias, out, mean, rstd, eps)
    return (out, mean, rstd) if mean is not None and rstd is not None else out


def check(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, stats: bool = False
) -> None:
    """Raises TypeError or ValueError for arguments that `layer_norm` does not take."""
    given = {name: value for name, value in (("x", x), ("weight", weight), ("bias", bias)) if value is not None}
    _launch.check_tensors("layer_norm", **given)
    _launch.check_same_dtype("layer_norm", **given)
    if x.ndim == 0:
        raise ValueError("layer_norm: x is 0-dimensional, but needs at least one dimension")
    for name in given.keys() - {"x"}:
        _launch.check_bias("layer_norm", x, given[name], name)
    if not eps >= 0:
        raise ValueError(f"layer_norm: eps is {eps}, but has to be 0 or more")
    if stats and not x.shape[-1]:
        raise ValueError(f"layer_norm: x has shape {tuple(x.shape)}, but stats need at least one column")


def _launched(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, out: torch.Tensor,
    mean: torch.Tensor | None, rstd: torch.Tensor | None, eps: float,
) -> None:  # fmt: skip
    rows, cols, row_stride, col_stride = _launch.as_rows("layer_norm", x)
    limits = _launch.limits(x.device)
    tile = choose_tile(rows, cols, out.element_size(), limits)
    affine = (weight, 0 if weight is None else weight.stride(0), bias, 0 if bias is None else bias.stride(0))
    tensors = (x, row_stride, col_stride, *affine, out, mean, rstd)
    with _launch.on(x.device):
        if tile.parts > 1:
            _shared_rows(tensors, rows, cols, eps, tile, limits)
        elif tile.lanes:
            _long_rows_kernel[_rows.programs(rows, tile, limits)](
                *tensors, rows, cols, eps,
                LANES=tile.lanes, COLS=tile.cols, EVEN=cols % tile.cols == 0, STAGES=tile.stages,
                DIV_RN=limits.warp_size > 1, **tile.options,
            )  # fmt: skip
        else:
            tiles = _launch.tiles(rows, tile.rows)
            grid = _rows.programs(tiles, tile, limits)
            _rows_kernel[grid](
                *tensors, rows, cols, eps, ROWS=tile.rows, COLS=tile.cols, EVEN=_rows.even(rows, cols, tile),
                AGAIN=tile.again, LOOP=grid[0] < tiles, STAGES=tile.stages, **tile.options,
            )  # fmt: skip


def _shared_rows(tensors: tuple, rows: int, cols: int, eps: float, tile: Tile, limits: _launch.Limits) -> None:
    """Few long rows: their parts' moments by one kernel, the answer by another."""
    x, row_stride, col_stride, *_ = tensors
    empty = torch.empty((2, rows, tile.parts), dtype=torch.float32, device=x.device)
    span = _rows.span(cols, tile)
    _parts_kernel[_launch.grid(rows * tile.parts, 1, limits)](
        x, row_stride, col_stride, empty, rows, cols, tile.parts, span // tile.cols,
        LANES=tile.lanes, COLS=tile.cols, STAGES=tile.stages, DIV_RN=limits.warp_size > 1, **tile.options,
    )  # fmt: skip
    _join_kernel[_launch.grid(rows * _launch.tiles(cols, tile.cols), 1, limits)](
        *tensors, empty, rows, cols, eps, tile.parts, span,
        PARTS=_launch.power_of_two(tile.parts), COLS=tile.cols, DIV_RN=limits.warp_size > 1, **tile.options,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def _rows_kernel(
    x_ptr, row_stride, col_stride, weight_ptr, weight_stride, bias_ptr, bias_stride, out_ptr, mean_ptr, rstd_ptr,
    rows, cols, eps, ROWS: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr, AGAIN: tl.constexpr,
    LOOP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Whole rows at once: each element is read once and written once.

    EVEN: tiles are full. AGAIN: x is not kept for the next pass but loaded again, from L1; with few registers more rows
    are in progress. Its loads have different hints, as the compiler would merge equal ones. LOOP: a program has several
    tiles.
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
        mean = tl.sum(x * (1.0 / COLS), axis=1)  # shrunk by a power of two, as the sum itself might overflow
        if not EVEN:  # divided with correct rounding: ones have mean 1
            mean = tl.div_rn(mean, tl.zeros([ROWS], tl.float32) + cols * (1.0 / COLS))
        if AGAIN:
            x = tl.load(source, mask, None if EVEN else 0.0).to(tl.float32)
        apart = x - mean[:, None]
        if not EVEN:
            apart = tl.where((col < cols)[None, :], apart, 0.0)
        rstd = tl.rsqrt(tl.sum(apart * apart, axis=1) / cols + eps)
        if AGAIN:
            x = tl.load(source, mask, None if EVEN else 0.0, eviction_policy="evict_first").to(tl.float32)
            apart = x - mean[:, None]
        y = apart * rstd[:, None]
        if weight_ptr is not None:
            place = weight_ptr + col.to(tl.int64) * weight_stride
            y *= tl.load(place, some_cols, eviction_policy="evict_last").to(tl.float32)[None, :]
        if bias_ptr is not None:
            place = bias_ptr + col.to(tl.int64) * bias_stride
            y += tl.load(place, some_cols, eviction_policy="evict_last").to(tl.float32)[None, :]
        tl.store(out_ptr + row[:, None] * cols + col[None, :], y.to(out_ptr.dtype.element_ty), mask=mask)
        if mean_ptr is not None:
            tl.store(mean_ptr + row, mean, mask=row < rows)
            tl.store(rstd_ptr + row, rstd, mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def _long_rows_kernel(
    x_ptr, row_stride, col_stride, weight_ptr, weight_stride, bias_ptr, bias_stride, out_ptr, mean_ptr, rstd_ptr,
    rows, cols, eps, LANES: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
    DIV_RN: tl.constexpr,
):  # fmt: skip
    """One row at a time: once for mean and variance, then again to write, from L1 and L2."""
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        source = x_ptr + row * row_stride
        mean, square = _moments(source, col_stride, 0, cols, cols, LANES, COLS, EVEN, STAGES, "evict_last", DIV_RN)
        rstd = tl.rsqrt(square / cols + eps)
        if mean_ptr is not None:
            tl.store(mean_ptr + row, mean)
            tl.store(rstd_ptr + row, rstd)
        for start in tl.range(0, cols, COLS, num_stages=STAGES):
            _write(
                source, col_stride, weight_ptr, weight_stride, bias_ptr, bias_stride, out_ptr + row * cols,
                start, cols, mean, rstd, COLS, EVEN, ".cg",
            )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "parts", "chunks"])
def _parts_kernel(
    x_ptr, row_stride, col_stride, found_ptr, rows, cols, parts, chunks,
    LANES: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr, DIV_RN: tl.constexpr,
):  # fmt: skip
    """Mean and sum of squared differences of each part of each row."""
    for index in range(tl.program_id(0), rows * parts, tl.num_programs(0)):
        row = tl.cast(index // parts, tl.int64)
        first = index % parts * chunks * COLS  # seen to be a multiple of vectors, as a span would not be
        last = tl.minimum(first + chunks * COLS, cols)
        source = x_ptr + row * row_stride
        mean, square = _moments(source, col_stride, first, last, cols, LANES, COLS, False, STAGES, "", DIV_RN)
        tl.store(found_ptr + index, mean)
        tl.store(found_ptr + rows * parts + index, square)


@triton.jit(do_not_specialize=["rows", "parts", "span"])
def _join_kernel(
    x_ptr, row_stride, col_stride, weight_ptr, weight_stride, bias_ptr, bias_stride, out_ptr, mean_ptr, rstd_ptr,
    found_ptr, rows, cols, eps, parts, span, PARTS: tl.constexpr, COLS: tl.constexpr, DIV_RN: tl.constexpr,
):  # fmt: skip
    """One chunk of a row, from the moments of all parts of the row."""
    part = tl.arange(0, PARTS)
    chunks = tl.cdiv(cols, COLS)
    for index in range(tl.program_id(0), rows * chunks, tl.num_programs(0)):
        row = tl.cast(index // chunks, tl.int64)
        own = found_ptr + row * parts + part
        means = tl.load(own, mask=part < parts, other=0.0)
        squares = tl.load(own + rows * parts, mask=part < parts, other=0.0)
        # Clipped, so that parts which do not exist count for nothing.
        counts = tl.maximum(tl.minimum(cols - part.to(tl.int64) * span, span), 0).to(tl.float32)
        mean, square = _joined(counts, means, squares, cols, DIV_RN)
        rstd = tl.rsqrt(square / cols + eps)
        if mean_ptr is not None:
            tl.store(mean_ptr + row, mean, mask=index % chunks == 0)
            tl.store(rstd_ptr + row, rstd, mask=index % chunks == 0)
        _write(
            x_ptr + row * row_stride, col_stride, weight_ptr, weight_stride, bias_ptr, bias_stride,
            out_ptr + row * cols, index % chunks * COLS, cols, mean, rstd, COLS, False, "",
        )  # fmt: skip


@triton.jit
def _moments(
    source, col_stride, first, last, cols,
    LANES: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr, HINT: tl.constexpr,
    DIV_RN: tl.constexpr,
):  # fmt: skip
    """Mean, and sum of squared differences to it, of the columns from `first` to before `last`.

    Each lane keeps its own, and adds a chunk's by Chan, Golub and LeVeque (1979), so threads wait for each other once a
    row, not once a chunk. `last` is `cols`, or a whole number of chunks on.
    EVEN: chunks are full. HINT: how long x stays in the caches.
    """
    DEPTH: tl.constexpr = COLS // LANES
    lane = tl.arange(0, LANES)
    near = tl.arange(0, DEPTH)[:, None] * LANES + lane[None, :]
    mean = tl.zeros([LANES], dtype=tl.float32)
    square = tl.zeros([LANES], dtype=tl.float32)
    for start in tl.range(first, last, COLS, num_stages=STAGES):
        if EVEN:
            mask = None
            place = source + tl.cast(start, tl.int64) * col_stride + near.to(tl.int64) * col_stride
        else:
            mask = start + near < cols
            place = source + (start + near).to(tl.int64) * col_stride
        x = tl.load(place, mask, None if EVEN else 0.0, eviction_policy=HINT).to(tl.float32)
        seen = tl.cast((start - first) // LANES, tl.float32)  # all chunks before this one were full
        own = tl.sum(x * (1.0 / DEPTH), axis=0)
        if EVEN:
            apart = x - own[None, :]
            share = DEPTH / (seen + DEPTH)
        else:
            count = _seen(last - start, lane, LANES, DEPTH)
            own = tl.div_rn(own, tl.maximum(count, 1.0) * (1.0 / DEPTH))
            apart = tl.where(mask, x - own[None, :], 0.0)
            share = count / tl.maximum(seen + count, 1.0)
        delta = own - mean
        mean += delta * share
        square += tl.sum(apart * apart, axis=0) + delta * (seen * share) * delta
    if EVEN:
        counts = tl.zeros([LANES], dtype=tl.float32) + (last - first) // LANES
    else:
        counts = _seen(last - first, lane, LANES, 0)
    return _joined(counts, mean, square, last - first, DIV_RN)


@triton.jit
def _seen(columns, lane, LANES: tl.constexpr, MOST: tl.constexpr):
    """How many of so many columns each lane has; at most MOST, unless that is 0."""
    count = tl.maximum((columns - lane + (LANES - 1)) // LANES, 0)
    if MOST:
        count = tl.minimum(count, MOST)
    return count.to(tl.float32)


@triton.jit
def _joined(counts, means, squares, total, DIV_RN: tl.constexpr):
    """Mean and sum of squared differences of all, from those of disjoint parts.

    DIV_RN: divided by div_rn, which rounds correctly. triton-ascend has it for tensors and not for numbers.
    """
    shrink = tl.exp2(-tl.ceil(tl.log2(tl.cast(total, tl.float32))))  # a power of two, as sums might overflow
    whole = tl.sum(means * (counts * shrink), axis=0)
    mean = tl.div_rn(whole, total * shrink) if DIV_RN else whole / (total * shrink)
    apart = means - mean
    return mean, tl.sum(squares + counts * apart * apart, axis=0)


@triton.jit
def _write(
    source, col_stride, weight_ptr, weight_stride, bias_ptr, bias_stride, target, start, cols, mean, rstd,
    COLS: tl.constexpr, EVEN: tl.constexpr, CACHE: tl.constexpr,
):  # fmt: skip
    """The chunk of the answer from column `start` on. `source` and `target` point at the row's first element.

    CACHE: of weight and bias, ".cg" to bypass L1, which has x.
    """
    near = tl.arange(0, COLS).to(tl.int64)
    begin = tl.cast(start, tl.int64)
    mask = None if EVEN else begin + near < cols
    place = source + begin * col_stride + near * col_stride
    x = tl.load(place, mask, None if EVEN else 0.0, eviction_policy="evict_first").to(tl.float32)
    y = (x - mean) * rstd
    if weight_ptr is not None:
        place = weight_ptr + begin * weight_stride + near * weight_stride
        y *= tl.load(place, mask, None if EVEN else 0.0, cache_modifier=CACHE).to(tl.float32)
    if bias_ptr is not None:
        place = bias_ptr + begin * bias_stride + near * bias_stride
        y += tl.load(place, mask, None if EVEN else 0.0, cache_modifier=CACHE).to(tl.float32)
    tl.store(target + begin + near, y.to(target.dtype.element_ty), mask=mask, cache_modifier=".cs")
