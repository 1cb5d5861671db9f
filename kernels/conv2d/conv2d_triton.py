"""conv2d: a product of matrices that is never written out: pixels by (kernel row, kernel column, channel) by outputs.

Channels are innermost in that order, so channels-last tensors are copied in runs of whole channels. If the strides
divide the sides of x, they are copied by descriptor (conv2d_boxes.py). Others go through pointers, here.
`tuned/<device key>.json` has the configuration for each shape. Depthwise convolutions are conv2d_depthwise.py.
"""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch
import _tma
from _tiles import Config, grouped
from conv2d.conv2d_boxes import by_box, has_box
from conv2d.conv2d_depthwise import depthwise
from conv2d.conv2d_tensors import HALF, VECTOR, Pair, Shape, check, empty, far, finished, matrix, packed, store, within

TUNED = Path(__file__).parent / "tuned"

# For devices without a tuned file, and for shapes that theirs leaves out: bytes of an element -> config.
FALLBACK = {2: Config(64, 64, 32, 8, 4, 3), 4: Config(64, 32, 16, 8, 4, 2)}
FALLBACK_TMA = Config(128, 64, 64, 8, 4, 3, tma=True)
WIDEST_BY_THREADS = 128
"""Pixels, and outputs, of a tile that no descriptor writes: addresses spill registers, of one stored as a whole too."""


@functools.lru_cache(maxsize=4096)
def choose_config(shape: Shape, itemsize: int, limits: _launch.Limits, box: bool = False) -> Config:
    """Returns the first entry of the tuned file that fits the shape; nothing is tuned here.

    `box`: the pixels can be copied by descriptor; such calls get the entries with `box`, and no others do. Entries with
    `strided` are for calls with a stride alone, or for those without one if it is false. Where the channels are no
    multiple of `block_k`, calls with a box get the largest one that divides them.
    """
    size = {"pixels": shape.pixels, "outputs": shape.outputs, "terms": shape.terms}
    strided = shape[9:11] != (1, 1)
    chosen = FALLBACK_TMA if box else FALLBACK[itemsize]
    for entry in _launch.tuned(TUNED, limits.key):
        fits = all(size[side] <= entry.get(f"{side}_max", size[side]) for side in size)
        fits = fits and entry.get("strided", strided) == strided
        if fits and entry["itemsize"] == itemsize and entry.get("box", False) == box:
            chosen = Config(**entry["config"])
            break
    return chosen._replace(block_k=min(chosen.block_k, shape.channels & -shape.channels)) if box else chosen


def conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    activation: str | None = None,
) -> torch.Tensor:
    """activation(x convolved with weight, plus bias), summed and finished in float32 and rounded once.

    x is (images, channels, height, width), weight (outputs, channels / groups, height, width), bias (outputs,), of one
    dtype: float32 (multiplied in full precision, no TF32), float16 or bfloat16; any strides. stride, padding (zeros, on
    both sides) and dilation are one number or (along the height, along the width). groups is 1, or the number of
    channels: each is then convolved by itself (depthwise), for one output or several. activation is None or "relu".

    The answer is channels-last if x or weight is, like PyTorch's, else contiguous. 16-bit tensors that are not
    channels-last, or with channels that are no multiple of 8, are first copied to such an order.
    Raises TypeError for dtypes, ValueError for shapes, numbers or devices that do not go together.
    """
    shape = check("conv2d", x, weight, bias, stride, padding, dilation, groups, activation)
    out, last = empty(shape, x, weight)
    if out.numel() == 0:
        return out
    limits = _launch.limits(x.device)
    if groups > 1:
        return depthwise(x, weight, bias, out, shape, activation, last, limits)
    return product(x, weight, bias, out, shape, activation, last, limits, _tma.available(limits, _conv_kernel))


def product(x, weight, bias, out, shape, activation, last, limits, tma) -> torch.Tensor:
    """The convolution of checked arguments, by descriptor only if `tma`."""
    if x.element_size() == 2:
        x, weight = packed(x, dense=False, limits=limits), packed(weight, dense=True, limits=limits)
        shape = shape._replace(channels=x.shape[3])
    else:
        x, weight = x.permute(0, 2, 3, 1), weight.permute(0, 2, 3, 1)
    x, shape = thinned(x, shape)
    flat_x, flat_shape = flattened(x, shape) if last else (x, shape)
    if tma and has_box(flat_x, weight, flat_shape):
        config = choose_config(flat_shape, 2, limits, True)
        if not last or shape.outputs % VECTOR:
            config = _by_threads(config)
        return by_box(flat_x, weight, bias, out, flat_shape, activation, last, config, limits)
    config = choose_config(shape, x.element_size(), limits)
    return by_pointers(x, weight, bias, out, shape, activation, last, config, limits, tma)


def thinned(x: torch.Tensor, shape: Shape) -> tuple[torch.Tensor, Shape]:
    """A stride over single pixels leaves the others out."""
    by = shape.stride_high, shape.stride_wide
    if by == (1, 1) or shape[5:7] != (1, 1) or shape[11:13] != (0, 0):
        return x, shape
    view = x[:, :: by[0], :: by[1]]
    return view, shape._replace(high=view.shape[1], wide=view.shape[2], stride_high=1, stride_wide=1)


def _by_threads(config: Config) -> Config:
    """The same if no descriptor writes the answer: a smaller tile, in two parts, and nothing else in its program."""
    sides = {"block_m": min(config.block_m, WIDEST_BY_THREADS), "block_n": min(config.block_n, WIDEST_BY_THREADS)}
    return config._replace(**sides, split=2, persistent=False, flatten=False)


def flattened(x: torch.Tensor, shape: Shape) -> tuple[torch.Tensor, Shape]:
    """A convolution of single pixels, without gaps or borders, is one of a single row of pixels: a plain product."""
    if shape[5:7] != (1, 1) or shape[9:13] != (1, 1, 0, 0) or not x.is_contiguous():
        return x, shape
    pixels = shape.pixels
    flat = shape._replace(images=1, high=1, wide=pixels, out_high=1, out_wide=pixels)
    return x.view(1, 1, pixels, x.shape[3]), flat


# --- pixels through pointers ------------------------------------------------------------------------------------------


def by_pointers(x, weight, bias, out, shape, activation, last, config, limits, tma) -> torch.Tensor:
    """The convolution of tensors with channels innermost, pixels copied through pointers; any strides.

    Weights are copied by descriptor if `tma`, the config asks for it, and they allow it.
    """
    rows = matrix(weight) if tma and config.tma and x.element_size() == 2 else None
    tiles_m = _launch.tiles(shape.pixels, config.block_m)
    tiles = tiles_m * _launch.tiles(shape.outputs, config.block_n)
    programs = min(tiles, limits.programs, limits.grid[0], limits.processors if config.persistent else tiles)
    unit = VECTOR if _in_units(x, weight, VECTOR) else HALF if _in_units(x, weight, HALF) else 1
    steps = [step // unit for step in (*x.stride()[:3], *weight.stride()[:3])]
    given = weight if rows is None else _tma.descriptor(rows, 1, config.block_n, config.block_k)
    with _launch.on(x.device):
        _conv_kernel[(programs,)](
            x, given, out, bias, 0 if bias is None else bias.stride(0), tiles, shape.pixels,
            shape.out_high * shape.out_wide, shape.high, shape.wide, shape.out_wide, shape.outputs, *shape[9:],
            *steps, x.stride(3), weight.stride(3), UNIT=unit, CHANNELS=shape.channels,
            TAPS=shape.taps_high * shape.taps_wide, TAPS_WIDE=shape.taps_wide,
            MIXED=shape.channels % config.block_k > 0,
            BLOCK_M=config.block_m, BLOCK_N=config.block_n, BLOCK_K=config.block_k, GROUP_M=config.group_m,
            TMA=rows is not None, LAST=last, RELU=activation == "relu", WIDE=far(x, weight, out, shape),
            LOOP=programs < tiles, num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out


def _in_units(x: torch.Tensor, weight: torch.Tensor, unit: int) -> bool:
    """True if channels come in aligned runs of so many: strides in such units let the compiler know."""
    if x.stride(3) != 1 or weight.stride(3) != 1 or x.shape[3] % unit:
        return False
    return all(step % unit == 0 for step in (*x.stride()[:3], *weight.stride()[:3]))


@triton.jit(do_not_specialize=["tiles"])
def _conv_kernel(
    x, weight, out, bias, bias_step, tiles, pixels, plane, high, wide, out_wide, outputs,
    stride_high, stride_wide, pad_high, pad_wide, apart_high, apart_wide,
    x_n, x_h, x_w, w_o, w_h, w_w, x_c, w_c,
    UNIT: tl.constexpr, CHANNELS: tl.constexpr, TAPS: tl.constexpr, TAPS_WIDE: tl.constexpr, MIXED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, TMA: tl.constexpr,
    LAST: tl.constexpr, RELU: tl.constexpr, WIDE: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    if LOOP:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            _one_tile(
                x, weight, out, bias, bias_step, tile, pixels, plane, high, wide, out_wide, outputs,
                stride_high, stride_wide, pad_high, pad_wide, apart_high, apart_wide,
                x_n, x_h, x_w, w_o, w_h, w_w, x_c, w_c, UNIT, CHANNELS, TAPS, TAPS_WIDE, MIXED,
                BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, TMA, LAST, RELU, WIDE,
            )  # fmt: skip
    else:
        _one_tile(
            x, weight, out, bias, bias_step, tl.program_id(0), pixels, plane, high, wide, out_wide, outputs,
            stride_high, stride_wide, pad_high, pad_wide, apart_high, apart_wide,
            x_n, x_h, x_w, w_o, w_h, w_w, x_c, w_c, UNIT, CHANNELS, TAPS, TAPS_WIDE, MIXED,
            BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, TMA, LAST, RELU, WIDE,
        )  # fmt: skip


@triton.jit
def _one_tile(
    x, weight, out, bias, bias_step, tile, pixels, plane, high, wide, out_wide, outputs,
    stride_high, stride_wide, pad_high, pad_wide, apart_high, apart_wide,
    x_n, x_h, x_w, w_o, w_h, w_w, x_c, w_c,
    UNIT: tl.constexpr, CHANNELS: tl.constexpr, TAPS: tl.constexpr, TAPS_WIDE: tl.constexpr, MIXED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, TMA: tl.constexpr,
    LAST: tl.constexpr, RELU: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """BLOCK_M output pixels by BLOCK_N outputs. Strides are in UNIT elements. MIXED: a step spans parts of taps.

    WIDE: offsets need 64 bits. TMA: weight is a descriptor.
    """
    tile_m, tile_n = grouped(tile, tl.cdiv(pixels, BLOCK_M), tl.cdiv(outputs, BLOCK_N), GROUP_M)
    first = tile_m * BLOCK_M
    if WIDE:
        first = tl.cast(tile_m, tl.int64) * BLOCK_M
        x_n, x_h, x_w = tl.cast(x_n, tl.int64), tl.cast(x_h, tl.int64), tl.cast(x_w, tl.int64)
        x_c, w_c = tl.cast(x_c, tl.int64), tl.cast(w_c, tl.int64)
        w_o, w_h, w_w = tl.cast(w_o, tl.int64), tl.cast(w_h, tl.int64), tl.cast(w_w, tl.int64)
    row = first + tl.arange(0, BLOCK_M)
    col = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    image = row // plane
    place = row % plane
    row_at = place // out_wide * stride_high - pad_high
    col_at = place % out_wide * stride_wide - pad_wide
    valid = row < pixels
    starts = x + (image * x_n + row_at * x_h + col_at * x_w) * UNIT
    w_starts = weight
    if not TMA:
        w_starts = weight + col * (w_o * UNIT)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(TAPS * CHANNELS, BLOCK_K)):
        if MIXED:
            k = step * BLOCK_K + inner
            tap = k // CHANNELS
            channel = k % CHANNELS
            down = tap // TAPS_WIDE * apart_high
            right = tap % TAPS_WIDE * apart_wide
            inside = within(row_at[:, None] + down[None, :], col_at[:, None] + right[None, :], high, wide)
            inside = inside & valid[:, None] & (tap < TAPS)[None, :]
            pixel = tl.load(
                starts[:, None] + ((down * x_h + right * x_w) * UNIT + channel * x_c)[None, :], mask=inside, other=0.0
            )
        else:
            runs: tl.constexpr = CHANNELS // BLOCK_K
            tap = step // runs
            channel = step % runs * BLOCK_K + inner
            down = tap // TAPS_WIDE * apart_high
            right = tap % TAPS_WIDE * apart_wide
            inside = within(row_at + down, col_at + right, high, wide) & valid
            pixel = tl.load(
                (starts + (down * x_h + right * x_w) * UNIT)[:, None] + (channel * x_c)[None, :],
                mask=inside[:, None], other=0.0,
            )  # fmt: skip
        if TMA:
            factor = weight.load([tile_n * BLOCK_N, step * BLOCK_K]).T
        else:
            at = (tap // TAPS_WIDE * w_h + tap % TAPS_WIDE * w_w) * UNIT + channel * w_c
            known = (col < outputs)[None, :]
            if MIXED:
                known = known & (tap < TAPS)[:, None]
            factor = tl.load(w_starts[None, :] + at[:, None], mask=known, other=0.0)
        total = tl.dot(pixel, factor, total, input_precision="ieee")
    total = finished(total, col, outputs, bias, bias_step, RELU)
    if WIDE:
        plane, outputs = tl.cast(plane, tl.int64), tl.cast(outputs, tl.int64)
    store(out, total, image, place, valid, col, outputs, plane, LAST)
