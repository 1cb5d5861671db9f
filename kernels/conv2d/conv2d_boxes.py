"""conv2d by descriptor: a tile is a box of images, rows and columns, without masks, as the padding is filled in."""

import functools
import math

import torch
import triton
import triton.language as tl

import _launch
import _tma
from _tiles import grouped, halves
from conv2d.conv2d_tensors import VECTOR, finished, matrix, store

LEAST_CHANNELS = 32
"""A run of fewer channels, 64 bytes, would leave a descriptor's copies mostly empty."""


def has_box(x: torch.Tensor, weight: torch.Tensor, shape) -> bool:
    """Whether both can be copied by descriptor: pixels in boxes, and channels in whole tiles."""
    if x.element_size() != 2 or x.data_ptr() % _tma.ALIGNMENT or shape.pixels >= _tma.FARTHEST:
        return False
    fits = shape.channels % LEAST_CHANNELS == 0 and _sides(x.shape, x.stride(), shape[9:11]) is not None
    return fits and matrix(weight) is not None


@functools.lru_cache(maxsize=4096)
def _sides(sizes, steps, strides) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns sizes and strides of the descriptor of a packed 16-bit x; None if none fits, like `_tma.dense_side`.

    With a stride: (images, rows / stride, row of a stride, columns / stride, columns of a stride and their channels).
    All that one place of the kernel meets lies at one row and column of a stride, so that a box of it has no gaps. What
    is beyond an edge is read as 0 only where strides divide the sides: the last row of a stride would begin elsewhere.
    """
    if strides != (1, 1):
        (images, high, wide, channels), (image, row, col, unit), (down, right) = sizes, steps, strides
        if high % down or wide % right:
            return None
        sizes = images, high // down, down, wide // right, (right - 1) * col + channels
        steps = image, row * down, row, col * right, unit
    aligned = all(0 < 2 * step < _tma.LONGEST_STRIDE and 2 * step % _tma.ALIGNMENT == 0 for step in steps[:-1])
    return (sizes, steps) if aligned and max(sizes) < _tma.FARTHEST else None


@functools.lru_cache(maxsize=4096)
def box(images: int, high: int, wide: int, pixels: int) -> tuple[int, int, int]:
    """Images, rows and columns, powers of two, of the boxes of so many pixels that cover a batch with least waste.

    >>> box(32, 28, 28, 128), box(1, 1, 1000, 128), box(256, 7, 7, 128)
    ((8, 4, 4), (1, 1, 128), (128, 1, 1))
    """
    sides = [2**i for i in range(pixels.bit_length())]
    boxes = [(pixels // (row * col), row, col) for row in sides for col in sides if row * col <= pixels]
    return min(boxes, key=lambda box: (_cover((images, high, wide), box), -box[2], -box[1]))


def _cover(sizes: tuple[int, ...], boxes: tuple[int, ...]) -> int:
    return math.prod(map(_launch.tiles, sizes, boxes))


def _part(tile: tuple[int, int, int], split: int) -> tuple[int, int, int]:
    """The box that a tile is stored in: all of it, or half along its first side of several pixels."""
    images, high, wide = tile
    if images > 1:
        return images // split, high, wide
    return (1, high // split, wide) if high > 1 else (1, 1, wide // split)


def by_box(x, weight, bias, out, shape, activation, last, config, limits) -> torch.Tensor:
    """The convolution of packed tensors, copied by descriptor.

    Weights are the product's left side. Triton multiplies one that was reshaped, as a box of pixels is, from registers,
    and loads the next into them while it may still be read; a right side is multiplied directly from the copy.
    """
    tile = box(shape.images, shape.out_high, shape.out_wide, config.block_m)
    tiles_m = _cover((shape.images, shape.out_high, shape.out_wide), tile)
    tiles = tiles_m * _launch.tiles(shape.outputs, config.block_n)
    programs = min(tiles, limits.programs, limits.grid[0], limits.processors if config.persistent else tiles)
    by_tma = last and shape.outputs % VECTOR == 0 and out.data_ptr() % _tma.ALIGNMENT == 0
    target = out
    if by_tma:
        sizes = [shape.images, shape.out_high, shape.out_wide, shape.outputs]
        steps = [math.prod(sizes[side:]) for side in (1, 2, 3, 4)]
        target = _tma.described(out, sizes, steps, [*_part(tile, config.split), config.block_n])
    strided = shape[9:11] != (1, 1)
    block = [*tile[:2], 1, tile[2], config.block_k] if strided else [*tile, config.block_k]
    with _launch.on(x.device):
        _box_kernel[(programs,)](
            _tma.described(x, *map(list, _sides(x.shape, x.stride(), shape[9:11])), block),
            _tma.descriptor(matrix(weight), 1, config.block_n, config.block_k), target, bias,
            0 if bias is None else bias.stride(0), tiles, tiles_m, shape.images, shape.out_high, shape.out_wide,
            shape.outputs, *shape[11:], CHANNELS=shape.channels, TAPS=shape.taps_high * shape.taps_wide,
            TAPS_WIDE=shape.taps_wide, DOWN=shape.stride_high, RIGHT=shape.stride_wide,
            NEXT=x.stride(2) if strided else 0, BOX_N=tile[0], BOX_H=tile[1], BOX_W=tile[2], BLOCK_N=config.block_n,
            BLOCK_K=config.block_k, GROUP_M=config.group_m, SPLIT=config.split, FLATTEN=config.flatten, TMA_OUT=by_tma,
            LAST=last, RELU=activation == "relu", LOOP=programs < tiles,
            num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["tiles", "tiles_m"])
def _box_kernel(
    x, weight, out, bias, bias_step, tiles, tiles_m, images, out_high, out_wide, outputs,
    pad_high, pad_wide, apart_high, apart_wide,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, TAPS_WIDE: tl.constexpr, DOWN: tl.constexpr, RIGHT: tl.constexpr,
    NEXT: tl.constexpr, BOX_N: tl.constexpr, BOX_H: tl.constexpr, BOX_W: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT: tl.constexpr,
    FLATTEN: tl.constexpr, TMA_OUT: tl.constexpr, LAST: tl.constexpr, RELU: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    if LOOP:
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
            _box_tile(
                x, weight, out, bias, bias_step, tile, tiles_m, images, out_high, out_wide, outputs,
                pad_high, pad_wide, apart_high, apart_wide, CHANNELS, TAPS, TAPS_WIDE, DOWN, RIGHT, NEXT,
                BOX_N, BOX_H, BOX_W, BLOCK_N, BLOCK_K, GROUP_M, SPLIT, TMA_OUT, LAST, RELU,
            )  # fmt: skip
    else:
        _box_tile(
            x, weight, out, bias, bias_step, tl.program_id(0), tiles_m, images, out_high, out_wide, outputs,
            pad_high, pad_wide, apart_high, apart_wide, CHANNELS, TAPS, TAPS_WIDE, DOWN, RIGHT, NEXT,
            BOX_N, BOX_H, BOX_W, BLOCK_N, BLOCK_K, GROUP_M, SPLIT, TMA_OUT, LAST, RELU,
        )  # fmt: skip


@triton.jit
def _box_tile(
    x, weight, out, bias, bias_step, tile, tiles_m, images, out_high, out_wide, outputs,
    pad_high, pad_wide, apart_high, apart_wide,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, TAPS_WIDE: tl.constexpr, DOWN: tl.constexpr, RIGHT: tl.constexpr,
    NEXT: tl.constexpr, BOX_N: tl.constexpr, BOX_H: tl.constexpr, BOX_W: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT: tl.constexpr, TMA_OUT: tl.constexpr, LAST: tl.constexpr,
    RELU: tl.constexpr,
):  # fmt: skip
    """The outputs of BOX_N images by BOX_H rows by BOX_W columns. Places beyond x's edges, the padding, are read as 0.

    DOWN, RIGHT: the strides. NEXT: from a column of x to the next, if there is one. TMA_OUT: out is a descriptor.
    """
    PIXELS: tl.constexpr = BOX_N * BOX_H * BOX_W
    RUNS: tl.constexpr = CHANNELS // BLOCK_K
    tile_m, tile_n = grouped(tile, tiles_m, tl.cdiv(outputs, BLOCK_N), GROUP_M)
    boxes_wide = tl.cdiv(out_wide, BOX_W)
    boxes_high = tl.cdiv(out_high, BOX_H)
    image = tile_m // (boxes_wide * boxes_high) * BOX_N
    high = tile_m // boxes_wide % boxes_high * BOX_H
    wide = tile_m % boxes_wide * BOX_W
    col = tile_n * BLOCK_N
    total = tl.zeros((BLOCK_N, PIXELS), dtype=tl.float32)
    for step in range(TAPS * RUNS):
        tap = step // RUNS
        row_at = tap // TAPS_WIDE * apart_high - pad_high
        col_at = tap % TAPS_WIDE * apart_wide - pad_wide
        channel = step % RUNS * BLOCK_K
        if DOWN == 1 and RIGHT == 1:
            pixels = x.load([image, high + row_at, wide + col_at, channel])
        else:
            row_in, col_in = _rest(row_at, DOWN), _rest(col_at, RIGHT)
            row_at = high + (row_at - row_in) // DOWN
            col_at = wide + (col_at - col_in) // RIGHT
            pixels = x.load([image, row_at, row_in, col_at, col_in * NEXT + channel])
        factors = weight.load([col, step * BLOCK_K])
        total = tl.dot(factors, pixels.reshape(PIXELS, BLOCK_K).T, total)
    if SPLIT == 1:
        _store_box(
            out, total, image, high, wide, col, images, out_high, out_wide, outputs, bias, bias_step,
            BOX_N, BOX_H, BOX_W, BLOCK_N, TMA_OUT, LAST, RELU,
        )  # fmt: skip
    else:
        first, second = halves(total, BLOCK_N, PIXELS)
        HALF_N: tl.constexpr = BOX_N // 2 if BOX_N > 1 else BOX_N
        HALF_H: tl.constexpr = BOX_H // 2 if BOX_N == 1 and BOX_H > 1 else BOX_H
        HALF_W: tl.constexpr = BOX_W // 2 if BOX_N == 1 and BOX_H == 1 else BOX_W
        _store_box(
            out, first, image, high, wide, col, images, out_high, out_wide, outputs, bias, bias_step,
            HALF_N, HALF_H, HALF_W, BLOCK_N, TMA_OUT, LAST, RELU,
        )  # fmt: skip
        _store_box(
            out, second, image + BOX_N - HALF_N, high + BOX_H - HALF_H, wide + BOX_W - HALF_W, col,
            images, out_high, out_wide, outputs, bias, bias_step,
            HALF_N, HALF_H, HALF_W, BLOCK_N, TMA_OUT, LAST, RELU,
        )  # fmt: skip


@triton.jit
def _rest(place, STEP: tl.constexpr):
    """What is left of a place, one before the edge too, above the multiple of STEP below it; % alone truncates."""
    return (place % STEP + STEP) % STEP


@triton.jit
def _store_box(
    out, total, image, high, wide, col, images, out_high, out_wide, outputs, bias, bias_step,
    BOX_N: tl.constexpr, BOX_H: tl.constexpr, BOX_W: tl.constexpr, BLOCK_N: tl.constexpr,
    TMA_OUT: tl.constexpr, LAST: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Finishes and writes sums of (outputs, pixels of a box)."""
    cols = col + tl.arange(0, BLOCK_N)
    total = finished(total.T, cols, outputs, bias, bias_step, RELU)
    if TMA_OUT:
        out.store([image, high, wide, col], total.to(out.dtype).reshape(BOX_N, BOX_H, BOX_W, BLOCK_N))
    else:
        place = tl.arange(0, BOX_N * BOX_H * BOX_W)
        of_image = image + place // (BOX_H * BOX_W)
        of_row = high + place // BOX_W % BOX_H
        of_col = wide + place % BOX_W
        inside = (of_image < images) & (of_row < out_high) & (of_col < out_wide)
        plane = tl.cast(out_high, tl.int64) * out_wide
        at = of_row.to(tl.int64) * out_wide + of_col
        store(out, total, of_image, at, inside, cols, outputs, plane, LAST)
