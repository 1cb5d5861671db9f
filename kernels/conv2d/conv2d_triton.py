"""conv2d: a product of matrices that is never written out: pixels by (kernel row, kernel column, channel) by outputs.

Channels are innermost in that order, so channels-last tensors are copied in runs of whole channels. If the strides
divide the sides of x, they are copied by descriptor, whose tile is a box of pixels and which fills in the padding.
Others go through pointers. `tuned/<device key>.json` has the configuration for each shape.

Depthwise convolutions are no product: each thread multiplies the pixels of its own channels, walking down a strip.
"""

import functools
from pathlib import Path
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import _launch
import _tma
from _tiles import Config, grouped, halves

TUNED = Path(__file__).parent / "tuned"
ACTIVATIONS = (None, "relu")
Pair = int | tuple[int, int]

# For devices without a tuned file, and for shapes that theirs leaves out: bytes of an element -> config.
FALLBACK = {2: Config(64, 64, 32, 8, 4, 3), 4: Config(64, 32, 16, 8, 4, 2)}
FALLBACK_TMA = Config(128, 64, 64, 8, 4, 3, tma=True)
VECTOR = 8
"""16-bit values of one access of 16 bytes. Channels are padded to a multiple of it, or to HALF if there are no more."""
HALF = 4
WIDEST_BY_THREADS = 128
"""Pixels, and outputs, of a tile that no descriptor writes: addresses spill registers, of one stored as a whole too."""
LEAST_TMA_CHANNELS = 32
"""A run of fewer channels, 64 bytes, would leave a descriptor's copies mostly empty."""
SWEPT_TAPS = 7
"""Along a side of the largest depthwise kernel whose weights a thread holds beside its sums without spilling."""
SWEPT_STRIDE = 2
FEW_TAPS = 9
"""So few weights that a thread has those of two channels, and reads them without a copy."""
SWEEP_WARPS = 4


class Shape(NamedTuple):
    """Sizes and steps of a convolution; along the height, then along the width."""

    images: int
    channels: int
    high: int
    wide: int
    outputs: int
    taps_high: int
    taps_wide: int
    out_high: int
    out_wide: int
    stride_high: int
    stride_wide: int
    pad_high: int
    pad_wide: int
    apart_high: int
    """dilation"""
    apart_wide: int

    @property
    def pixels(self) -> int:
        """Of all outputs."""
        return self.images * self.out_high * self.out_wide

    @property
    def terms(self) -> int:
        """That an output adds up, of a convolution without groups."""
        return self.channels * self.taps_high * self.taps_wide


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
    channels-last, or whose channels are no multiple of 8, are first copied to such an order.
    Raises TypeError for dtypes, ValueError for shapes, numbers or devices that do not go together.
    """
    shape = check("conv2d", x, weight, bias, stride, padding, dilation, groups, activation)
    last = channels_last(x.shape, x.stride()) or channels_last(weight.shape, weight.stride())
    out = empty(shape, x, last)
    if out.numel() == 0:
        return out
    limits = _launch.limits(x.device)
    if groups > 1:
        return _depthwise(x, weight, bias, out, shape, activation, last, limits)
    return _product(x, weight, bias, out, shape, activation, last, limits, _tma.available(limits, _box_kernel))


# --- arguments --------------------------------------------------------------------------------------------------------


def check(
    op: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
    activation: str | None,
) -> Shape:
    """Returns the shape. Raises TypeError or ValueError in the name of `op` for what `conv2d` does not support."""
    tensors = {"x": x, "weight": weight} if bias is None else {"x": x, "weight": weight, "bias": bias}
    _launch.check_tensors(op, **tensors)
    _launch.check_same_dtype(op, **tensors)
    if activation not in ACTIVATIONS:
        raise ValueError(f"{op}: activation is {activation!r}, but has to be None or 'relu'")
    steps = (tuple(each) if isinstance(each, list) else each for each in (stride, padding, dilation))
    shape = _shape(op, x.shape, weight.shape, *steps, groups)
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"{op}: bias has shape {tuple(bias.shape)}, but weight of shape {tuple(weight.shape)} needs {shape[4:5]}"
        )
    return shape


@functools.lru_cache(maxsize=4096)
def _shape(
    op: str, of_x: torch.Size, of_weight: torch.Size, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Shape:
    given = f"x is {tuple(of_x)}, weight {tuple(of_weight)} and groups {groups}"
    strides, pads, apart = (
        _pair(op, name, value, least)
        for name, value, least in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1))
    )
    if len(of_x) != 4 or len(of_weight) != 4:
        wanted = "(images, channels, height, width) and (outputs, channels / groups, height, width)"
        raise ValueError(f"{op}: needs shapes {wanted}, but {given}")
    channels, outputs, taps = of_x[1], of_weight[0], of_weight[2:]
    if not isinstance(groups, int) or groups not in {1, channels}:
        raise ValueError(f"{op}: groups has to be 1 or the number of channels (depthwise), but {given}")
    if not min(channels, outputs, *taps) or of_weight[1] * groups != channels or outputs % groups:
        wanted = "channels / groups has to be above 0 and the same in both, and groups to divide the outputs"
        raise ValueError(f"{op}: {wanted}, but {given}")
    out = [
        (size + 2 * pad - step * (tap - 1) - 1) // by + 1
        for size, pad, step, tap, by in zip(of_x[2:], pads, apart, taps, strides, strict=True)
    ]
    if min(out) < 1:
        reach = tuple(step * (tap - 1) + 1 for step, tap in zip(apart, taps, strict=True))
        padded = tuple(size + 2 * pad for size, pad in zip(of_x[2:], pads, strict=True))
        raise ValueError(f"{op}: the kernel reaches over {reach} pixels, but the padded x has only {padded}; {given}")
    return Shape(*of_x, outputs, *taps, *out, *strides, *pads, *apart)


def _pair(op: str, name: str, value: Pair, least: int) -> tuple[int, int]:
    both = (value, value) if isinstance(value, int) else value
    fits = isinstance(both, tuple) and len(both) == 2
    if not fits or not all(isinstance(each, int) and each >= least for each in both):
        raise ValueError(f"{op}: {name} is {value!r}, but has to be a whole number of {least} or more, or two of them")
    return both


@functools.lru_cache(maxsize=4096)
def channels_last(shape: torch.Size, strides: tuple[int, ...]) -> bool:
    """Whether channels are innermost, by PyTorch's rule, which takes what could be either for contiguous."""
    least = 0
    for side in (1, 3, 2, 0):
        ambiguous = side == 0 and least == strides[1]
        if shape[side] == 0 or strides[side] < max(least, side == 1) or ambiguous:
            return False
        least = strides[side] * shape[side]
    return True


def empty(shape: Shape, x: torch.Tensor, last: bool) -> torch.Tensor:
    """Memory for the answer."""
    images, outputs, high, wide = shape.images, shape.outputs, shape.out_high, shape.out_wide
    if last:
        return torch.empty((images, high, wide, outputs), dtype=x.dtype, device=x.device).permute(0, 3, 1, 2)
    return torch.empty((images, outputs, high, wide), dtype=x.dtype, device=x.device)


# --- channels innermost -----------------------------------------------------------------------------------------------


def packed(x: torch.Tensor, dense: bool, limits: _launch.Limits) -> torch.Tensor:
    """A tensor (a, channels, b, c) as (a, b, c, channels), in whole vectors; copied only if necessary.

    Copies are dense, their channels padded with zeros. `dense`: what is not copied has to be dense too.
    """
    turned = x.permute(0, 2, 3, 1)
    whole = all(size % VECTOR == 0 for size in (x.shape[1], *turned.stride()[:3]))
    if x.stride(1) == 1 and whole and x.data_ptr() % 16 == 0 and (not dense or turned.is_contiguous()):
        return turned
    first, channels, high, wide = x.shape
    unit = HALF if channels <= HALF else VECTOR
    padded = _launch.tiles(channels, unit) * unit
    copy = torch.empty((first, high, wide, padded), dtype=x.dtype, device=x.device)
    block_c = min(_launch.power_of_two(padded), 64)
    block_s = 4096 // block_c
    rows = first * high * wide
    tiles = _launch.tiles(rows, block_s) * _launch.tiles(padded, block_c)
    with _launch.on(x.device):
        _pack_kernel[(min(tiles, limits.programs, limits.grid[0]),)](
            x, copy, tiles, rows, channels, high * wide, wide, *x.stride(), PADDED=padded,
            LINEAR=x.stride(2) == x.stride(3) * wide, WIDE=max(_reach(x), copy.numel()) + 2**20 >= 2**31,
            BLOCK_S=block_s, BLOCK_C=block_c, num_warps=4,
        )  # fmt: skip
    return copy


@triton.jit(do_not_specialize=["tiles"])
def _pack_kernel(
    x, copy, tiles, rows, channels, plane, wide, x_n, x_c, x_h, x_w,
    PADDED: tl.constexpr, LINEAR: tl.constexpr, WIDE: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """LINEAR: one stride walks all places of a plane. WIDE: offsets need 64 bits."""
    along: tl.constexpr = (PADDED + BLOCK_C - 1) // BLOCK_C
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        first = tile // along
        channel = tile % along * BLOCK_C + tl.arange(0, BLOCK_C)
        if WIDE:
            first = tl.cast(first, tl.int64)
            channel = channel.to(tl.int64)
        row = first * BLOCK_S + tl.arange(0, BLOCK_S)
        place = row % plane
        if LINEAR:
            offset = row // plane * x_n + place * x_w
        else:
            offset = row // plane * x_n + place // wide * x_h + place % wide * x_w
        known = row < rows
        source = x + (channel * x_c)[:, None] + offset[None, :]
        values = tl.load(source, mask=(channel < channels)[:, None] & known[None, :], other=0.0)
        target = copy + (row * PADDED)[:, None] + channel[None, :]
        tl.store(target, tl.trans(values), mask=known[:, None] & (channel < PADDED)[None, :])


# --- the product ------------------------------------------------------------------------------------------------------


def _product(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    shape: Shape,
    activation: str | None,
    last: bool,
    limits: _launch.Limits,
    tma: bool,
) -> torch.Tensor:
    """The convolution of checked arguments, by descriptor only if `tma`."""
    if x.element_size() == 2:
        x, weight = packed(x, dense=False, limits=limits), packed(weight, dense=True, limits=limits)
        shape = shape._replace(channels=x.shape[3])
    else:
        x, weight = x.permute(0, 2, 3, 1), weight.permute(0, 2, 3, 1)
    x, shape = _thinned(x, shape)
    flat_x, flat_shape = _flattened(x, shape) if last else (x, shape)
    if tma and _has_box(flat_x, weight, flat_shape):
        config = choose_config(flat_shape, 2, limits, True)
        if not last or shape.outputs % VECTOR:
            config = _by_threads(config)
        return by_box(flat_x, weight, bias, out, flat_shape, activation, last, config, limits)
    config = choose_config(shape, x.element_size(), limits)
    return by_pointers(x, weight, bias, out, shape, activation, last, config, limits, tma)


def _thinned(x: torch.Tensor, shape: Shape) -> tuple[torch.Tensor, Shape]:
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


def _flattened(x: torch.Tensor, shape: Shape) -> tuple[torch.Tensor, Shape]:
    """A convolution of single pixels, without gaps or borders, is one of a single row of pixels: a plain product."""
    if shape[5:7] != (1, 1) or shape[9:13] != (1, 1, 0, 0) or not x.is_contiguous():
        return x, shape
    pixels = shape.pixels
    flat = shape._replace(images=1, high=1, wide=pixels, out_high=1, out_wide=pixels)
    return x.view(1, 1, pixels, x.shape[3]), flat


def _has_box(x: torch.Tensor, weight: torch.Tensor, shape: Shape) -> bool:
    """Whether both can be copied by descriptor: pixels in boxes, and channels in whole tiles."""
    if x.element_size() != 2 or x.data_ptr() % _tma.ALIGNMENT or shape.pixels >= _tma.FARTHEST:
        return False
    fits = shape.channels % LEAST_TMA_CHANNELS == 0 and _sides(x.shape, x.stride(), shape[9:11]) is not None
    return fits and _matrix(weight) is not None


@functools.lru_cache(maxsize=4096)
def _sides(
    sizes: tuple[int, ...], steps: tuple[int, ...], strides: tuple[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
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


def _matrix(weight: torch.Tensor) -> torch.Tensor | None:
    """Returns weights as rows of one output each, if a descriptor fits them."""
    matrix = weight.view(weight.shape[0], -1) if weight.is_contiguous() else None
    return matrix if matrix is not None and _tma.dense_side(matrix) == 1 else None


def _described(base: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], block: list[int]):
    """A descriptor of boxes; without TensorDescriptor's own checks, as `_tma.descriptor`."""
    made = _tma.TensorDescriptor.__new__(_tma.TensorDescriptor)
    made.base, made.shape, made.strides, made.block_shape = base, [*sizes], [*strides], block
    return made


@functools.lru_cache(maxsize=4096)
def box(images: int, high: int, wide: int, pixels: int) -> tuple[int, int, int]:
    """Images, rows and columns, powers of two, of the boxes of so many pixels that cover a batch with least waste.

    >>> box(32, 28, 28, 128), box(1, 1, 1000, 128), box(256, 7, 7, 128)
    ((8, 4, 4), (1, 1, 128), (128, 1, 1))
    """
    sides = [2**i for i in range(pixels.bit_length())]
    boxes = [(pixels // (row * col), row, col) for row in sides for col in sides if row * col <= pixels]
    covered = {each: _cover((images, high, wide), each) for each in boxes}
    return min(boxes, key=lambda each: (covered[each], -each[2], -each[1]))


def _part(tile: tuple[int, int, int], split: int) -> tuple[int, int, int]:
    """The box that a tile is stored in: all of it, or half along its first side of several pixels."""
    images, high, wide = tile
    if images > 1:
        return images // split, high, wide
    return (1, high // split, wide) if high > 1 else (1, 1, wide // split)


def _cover(sizes: tuple[int, ...], blocks: tuple[int, ...]) -> int:
    count = 1
    for size, block in zip(sizes, blocks, strict=True):
        count *= _launch.tiles(size, block)
    return count


def by_box(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    shape: Shape,
    activation: str | None,
    last: bool,
    config: Config,
    limits: _launch.Limits,
) -> torch.Tensor:
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
        sizes = shape.images, shape.out_high, shape.out_wide, shape.outputs
        steps = sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1
        target = _described(out, sizes, steps, [*_part(tile, config.split), config.block_n])
    strided = shape[9:11] != (1, 1)
    block = [*tile[:2], 1, tile[2], config.block_k] if strided else [*tile, config.block_k]
    with _launch.on(x.device):
        _box_kernel[(programs,)](
            _described(x, *_sides(x.shape, x.stride(), shape[9:11]), block),
            _tma.descriptor(_matrix(weight), 1, config.block_n, config.block_k), target, bias,
            0 if bias is None else bias.stride(0), tiles, tiles_m, shape.images, shape.out_high, shape.out_wide,
            shape.outputs, *shape[11:], CHANNELS=shape.channels, TAPS=shape.taps_high * shape.taps_wide,
            TAPS_WIDE=shape.taps_wide, DOWN=shape.stride_high, RIGHT=shape.stride_wide,
            NEXT=x.stride(2) if strided else 0, BOX_N=tile[0], BOX_H=tile[1], BOX_W=tile[2], BLOCK_N=config.block_n,
            BLOCK_K=config.block_k, GROUP_M=config.group_m, SPLIT=config.split, FLATTEN=config.flatten, TMA_OUT=by_tma,
            LAST=last, RELU=activation == "relu", LOOP=programs < tiles,
            num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out


def by_pointers(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    shape: Shape,
    activation: str | None,
    last: bool,
    config: Config,
    limits: _launch.Limits,
    tma: bool,
) -> torch.Tensor:
    """The convolution of tensors with channels innermost, pixels copied through pointers; any strides.

    Weights are copied by descriptor if `tma`, the config asks for it, and they allow it.
    """
    matrix = _matrix(weight) if tma and config.tma and x.element_size() == 2 else None
    tiles_m = _launch.tiles(shape.pixels, config.block_m)
    tiles = tiles_m * _launch.tiles(shape.outputs, config.block_n)
    programs = min(tiles, limits.programs, limits.grid[0], limits.processors if config.persistent else tiles)
    unit = VECTOR if _in_units(x, weight, VECTOR) else HALF if _in_units(x, weight, HALF) else 1
    steps = [step // unit for step in (*x.stride()[:3], *weight.stride()[:3])]
    given = weight if matrix is None else _tma.descriptor(matrix, 1, config.block_n, config.block_k)
    with _launch.on(x.device):
        _conv_kernel[(programs,)](
            x, given, out, bias, 0 if bias is None else bias.stride(0), tiles, shape.pixels,
            shape.out_high * shape.out_wide, shape.high, shape.wide, shape.out_wide, shape.outputs, *shape[9:],
            *steps, x.stride(3), weight.stride(3), UNIT=unit, CHANNELS=shape.channels,
            TAPS=shape.taps_high * shape.taps_wide, TAPS_WIDE=shape.taps_wide,
            MIXED=shape.channels % config.block_k > 0,
            BLOCK_M=config.block_m, BLOCK_N=config.block_n, BLOCK_K=config.block_k, GROUP_M=config.group_m,
            TMA=matrix is not None, LAST=last, RELU=activation == "relu", WIDE=_far(x, weight, out, shape),
            LOOP=programs < tiles, num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out


def _in_units(x: torch.Tensor, weight: torch.Tensor, unit: int) -> bool:
    """True if channels come in aligned runs of so many: strides in such units let the compiler know."""
    if x.stride(3) != 1 or weight.stride(3) != 1 or x.shape[3] % unit:
        return False
    return all(step % unit == 0 for step in (*x.stride()[:3], *weight.stride()[:3]))


def _far(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, shape: Shape) -> bool:
    """True if offsets need 64 bits, including those of the padding and of the last tile's places beyond the edge."""
    border = shape.pad_high * x.stride(1) + shape.pad_wide * x.stride(2)
    reach = max(_reach(x) + 2 * border, _reach(weight) + 256 * weight.stride(0), _reach(out))
    return max(reach, (shape.pixels + 256) * (shape.outputs + 256)) >= 2**31


def _reach(tensor: torch.Tensor) -> int:
    return sum(size * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))


# --- pixels by descriptor ---------------------------------------------------------------------------------------------


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
    total = _finished(total.T, cols, outputs, bias, bias_step, RELU)
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
        _store(out, total, of_image, at, inside, cols, outputs, plane, LAST)


# --- pixels through pointers ------------------------------------------------------------------------------------------


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
        x_n = tl.cast(x_n, tl.int64)
        x_h = tl.cast(x_h, tl.int64)
        x_w = tl.cast(x_w, tl.int64)
        x_c = tl.cast(x_c, tl.int64)
        w_o = tl.cast(w_o, tl.int64)
        w_c = tl.cast(w_c, tl.int64)
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
            inside = _within(row_at[:, None] + down[None, :], col_at[:, None] + right[None, :], high, wide)
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
            inside = _within(row_at + down, col_at + right, high, wide) & valid
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
    total = _finished(total, col, outputs, bias, bias_step, RELU)
    if WIDE:
        plane = tl.cast(plane, tl.int64)
        outputs = tl.cast(outputs, tl.int64)
    _store(out, total, image, place, valid, col, outputs, plane, LAST)


# --- what both share --------------------------------------------------------------------------------------------------


@triton.jit
def _within(row, col, high, wide):
    """Whether a place of x is no padding."""
    return (row >= 0) & (row < high) & (col >= 0) & (col < wide)


@triton.jit
def _finished(total, col, outputs, bias, bias_step, RELU: tl.constexpr):
    """Sums of the outputs `col` with bias and activation, in float32."""
    if bias is not None:
        total += tl.load(bias + col * bias_step, mask=col < outputs, other=0.0).to(tl.float32)[None, :]
    if RELU:
        total = _rectified(total)
    return total


@triton.jit
def _rectified(total):
    return tl.where(total < 0, 0.0, total)  # NaN stays


@triton.jit
def _store(out, total, image, place, valid, col, outputs, plane, LAST: tl.constexpr):
    """Writes a tile of (pixels, outputs); place: a pixel's place in its plane. Neighbours in memory go together."""
    total = total.to(out.dtype.element_ty)
    if LAST:
        target = out + ((image * plane + place) * outputs)[:, None] + col[None, :]
        tl.store(target, total, mask=valid[:, None] & (col < outputs)[None, :])
    else:
        target = out + (col * plane)[:, None] + (image * outputs * plane + place)[None, :]
        tl.store(target, tl.trans(total), mask=(col < outputs)[:, None] & valid[None, :])


# --- each channel by itself -------------------------------------------------------------------------------------------


def _depthwise(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    shape: Shape,
    activation: str | None,
    last: bool,
    limits: _launch.Limits,
) -> torch.Tensor:
    """Every output's own channel alone: no product of matrices."""
    # If a pixel's channels are neighbours, walking down strips loads each pixel once, not once for every tap.
    sweep = choose_sweep(shape, limits) if last and x.stride(1) == 1 else None
    if sweep is not None:
        return _swept(x, weight, bias, out, shape, activation, sweep, limits)
    inner = x.stride(1) == 1  # loads are of neighbours; a mismatch with `last` only costs speed
    block_m = min(_launch.power_of_two(shape.pixels), 512)
    block_c = min(_launch.power_of_two(shape.outputs), 64 if inner else 512 // block_m)
    block_m = 2048 // block_c if inner else block_m
    tiles = _launch.tiles(shape.pixels, block_m) * _launch.tiles(shape.outputs, block_c)
    programs = min(tiles, limits.programs, limits.grid[0])
    x, weight = x.permute(0, 2, 3, 1), weight.permute(0, 2, 3, 1)
    unit = VECTOR if x.stride(3) == 1 and all(step % VECTOR == 0 for step in x.stride()[:3]) else 1
    with _launch.on(x.device):
        _depthwise_kernel[(programs,)](
            x, weight, out, bias, 0 if bias is None else bias.stride(0), tiles, shape.pixels,
            shape.out_high * shape.out_wide, shape.high, shape.wide, shape.out_wide, shape.outputs, *shape[9:],
            *(step // unit for step in x.stride()[:3]), *weight.stride()[:3], x.stride(3),
            UNIT=unit, TIMES=shape.outputs // shape.channels, TAPS=shape.taps_high * shape.taps_wide,
            TAPS_WIDE=shape.taps_wide, BLOCK_M=block_m, BLOCK_C=block_c, LAST=last, RELU=activation == "relu",
            WIDE=_far(x, weight, out, shape), num_warps=4,
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["tiles"])
def _depthwise_kernel(
    x, weight, out, bias, bias_step, tiles, pixels, plane, high, wide, out_wide, outputs,
    stride_high, stride_wide, pad_high, pad_wide, apart_high, apart_wide, x_n, x_h, x_w, w_o, w_h, w_w, x_c,
    UNIT: tl.constexpr, TIMES: tl.constexpr, TAPS: tl.constexpr, TAPS_WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr, LAST: tl.constexpr, RELU: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """TIMES: outputs of each channel. UNIT, WIDE: as in the product's kernel."""
    of_outputs = tl.cdiv(outputs, BLOCK_C)
    if WIDE:
        x_n = tl.cast(x_n, tl.int64)
        x_h = tl.cast(x_h, tl.int64)
        x_w = tl.cast(x_w, tl.int64)
        x_c = tl.cast(x_c, tl.int64)
        plane = tl.cast(plane, tl.int64)
        outputs = tl.cast(outputs, tl.int64)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = tile // of_outputs * BLOCK_M + tl.arange(0, BLOCK_M)
        if WIDE:
            row = tl.cast(tile // of_outputs, tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
        col = tile % of_outputs * BLOCK_C + tl.arange(0, BLOCK_C)
        image = row // plane
        place = row % plane
        row_at = place // out_wide * stride_high - pad_high
        col_at = place % out_wide * stride_wide - pad_wide
        valid = row < pixels
        known = col < outputs
        starts = x + (image * x_n + row_at * x_h + col_at * x_w) * UNIT
        total = tl.zeros((BLOCK_M, BLOCK_C), dtype=tl.float32)
        for tap in range(TAPS):
            down = tap // TAPS_WIDE * apart_high
            right = tap % TAPS_WIDE * apart_wide
            inside = _within(row_at + down, col_at + right, high, wide) & valid
            pixel = tl.load(
                (starts + (down * x_h + right * x_w) * UNIT)[:, None] + (col // TIMES * x_c)[None, :],
                mask=inside[:, None] & known[None, :], other=0.0,
            )  # fmt: skip
            factor = tl.load(
                weight + col * w_o + (tap // TAPS_WIDE * w_h + tap % TAPS_WIDE * w_w), mask=known, other=0.0
            )
            total += pixel.to(tl.float32) * factor.to(tl.float32)[None, :]
        total = _finished(total, col, outputs, bias, bias_step, RELU)
        _store(out, total, image, place, valid, col, outputs, plane, LAST)


# --- each channel by itself, down a strip -----------------------------------------------------------------------------


class Sweep(NamedTuple):
    """How a depthwise convolution is cut: into strips of neighbouring columns, each walked from top to bottom."""

    cols: int
    """columns of outputs in a strip, all of them one thread's"""
    strips: int
    """side by side in a program"""
    channels: int
    """of a program"""
    rows: int
    """of outputs that a program walks down"""
    programs: int


@functools.lru_cache(maxsize=4096)
def choose_sweep(shape: Shape, limits: _launch.Limits) -> Sweep | None:
    """Returns the sweep whose last program ends first with little work; None if strips are not possible.

    They do not for several outputs of a channel, for gaps, for padding that hides whole rows of outputs, for kernels
    and strides that ask for too many registers and instructions, on devices without registers, and before Triton 3.3,
    which has no tuples.
    """
    plain = shape.outputs == shape.channels and shape[13:] == (1, 1) and shape.pad_high < shape.taps_high
    small = max(shape[5:7]) <= SWEPT_TAPS and max(shape[9:11]) <= SWEPT_STRIDE
    if not hasattr(tl, "tuple") or not limits.registers or not plain or not small:
        return None
    taps, live = shape.taps_high * shape.taps_wide, _launch.tiles(shape.taps_high, shape.stride_high)
    each = 2 if taps <= FEW_TAPS else 1
    along = {cols: _launch.tiles(shape.out_wide, cols) for cols in range(1, 9)}
    reads = {cols: (cols - 1) * shape.stride_wide + shape.taps_wide for cols in along}
    # Instructions: about three for a pixel that comes or an output that goes, beside those that multiply.
    work = {cols: cols * taps + 3 * (reads[cols] + cols) + 20 for cols in along}
    least = min(along[cols] * work[cols] for cols in along)
    timed = [
        (rows * work[cols], sweep)
        for cols in along
        if along[cols] * work[cols] <= 1.02 * least
        for rows, sweep in _sweeps(shape, limits, cols, each, each * (live * cols + taps + reads[cols]) + 40, live)
    ]
    best = min(timed)[1]
    return best if best.programs <= min(limits.programs, limits.grid[0]) else None


def _sweeps(
    shape: Shape, limits: _launch.Limits, cols: int, each: int, registers: int, live: int
) -> list[tuple[int, Sweep]]:
    """Sweeps of so many columns in parts of every size, each behind the rows that pass until the last one ends.

    registers: of a thread, about, with 40 for addresses and what is on its way.
    """
    channels = min(_launch.power_of_two(shape.channels), 32 * each)
    if channels == 64 and 0 < shape.channels % 64 <= 32:  # the last program's would be half empty
        channels = 32
    strips = 32 * SWEEP_WARPS * each // channels
    across = _launch.tiles(shape.images * _launch.tiles(shape.out_wide, cols), strips)
    across *= _launch.tiles(shape.channels, channels)
    fitting = max(limits.registers // (32 * SWEEP_WARPS * registers), 1)
    found = []
    for rows in {_launch.tiles(shape.out_high, parts) for parts in range(1, min(shape.out_high, 64) + 1)}:
        programs = across * _launch.tiles(shape.out_high, rows)
        waves = _launch.tiles(programs, limits.processors * fitting)
        found.append((waves * fitting * (rows + live + 2), Sweep(cols, strips, channels, rows, programs)))
    return found


def _swept(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    shape: Shape,
    activation: str | None,
    sweep: Sweep,
    limits: _launch.Limits,
) -> torch.Tensor:
    """A depthwise convolution of channels-last tensors, by strips."""
    x, weight = x.permute(0, 2, 3, 1), weight.transpose(0, 1)
    few = shape.taps_high * shape.taps_wide <= FEW_TAPS
    # Weights of one tap are a kernel apart; those of many taps are read from a copy in which they are neighbours.
    weight = weight.permute(0, 2, 3, 1) if few else packed(weight, dense=True, limits=limits)
    unit = 2 if all(step % 2 == 0 for step in x.stride()[:3]) else 1
    along, count = _launch.tiles(shape.out_wide, sweep.cols), (sweep.cols - 1) * shape.stride_wide + shape.taps_wide
    last = (along - 1) * sweep.cols
    with _launch.on(x.device):
        _sweep_kernel[(sweep.programs,)](
            x, weight, out, bias, 0 if bias is None else bias.stride(0), shape.images * along, along,
            _launch.tiles(shape.out_high, sweep.rows), sweep.rows, shape.high, shape.wide, shape.out_high,
            shape.out_wide, shape.pad_high, *(step // unit for step in x.stride()[:2]), weight.stride(3),
            *weight.stride()[1:3],
            UNIT=unit, NEXT=x.stride(2), OUTPUTS=shape.outputs, TAPS_HIGH=shape.taps_high, TAPS_WIDE=shape.taps_wide,
            DOWN=shape.stride_high, RIGHT=shape.stride_wide, PAD=shape.pad_wide,
            SURE=min(count, shape.wide + shape.pad_wide - last * shape.stride_wide), ENDS=shape.out_wide - last,
            COLS=sweep.cols, STRIPS=sweep.strips, BLOCK_C=sweep.channels, RELU=activation == "relu",
            WIDE=_far(x, weight, out, shape), num_warps=SWEEP_WARPS,
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=[
    "bias_step", "strips", "along", "parts", "rows", "high", "wide", "out_high", "out_wide", "pad_high", "x_n", "x_h",
])  # fmt: skip
def _sweep_kernel(
    x, weight, out, bias, bias_step, strips, along, parts, rows, high, wide, out_high, out_wide, pad_high,
    x_n, x_h, w_o, w_h, w_w,
    UNIT: tl.constexpr, NEXT: tl.constexpr, OUTPUTS: tl.constexpr, TAPS_HIGH: tl.constexpr, TAPS_WIDE: tl.constexpr,
    DOWN: tl.constexpr, RIGHT: tl.constexpr, PAD: tl.constexpr, SURE: tl.constexpr, ENDS: tl.constexpr,
    COLS: tl.constexpr, STRIPS: tl.constexpr, BLOCK_C: tl.constexpr, RELU: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """STRIPS strips of COLS columns by BLOCK_C channels, down `rows` rows of outputs.

    A thread holds one or two channels of a strip: their weights, and the sums of the outputs that need the current
    row of x, oldest row first. Each pixel is loaded and converted once, and multiplied by every tap.

    strips: in all; along: of a row; parts: that the rows come in. NEXT: from a pixel of x to the next. x_n, x_h are in
    UNIT elements. SURE: every strip's pixels from the PADth up to this one lie in x, ENDS: and outputs up to this one.
    WIDE: offsets need 64 bits.
    """
    LIVE: tl.constexpr = (TAPS_HIGH + DOWN - 1) // DOWN
    BLOCKS: tl.constexpr = (OUTPUTS + BLOCK_C - 1) // BLOCK_C
    PARTIAL: tl.constexpr = OUTPUTS % BLOCK_C > 0
    tile = tl.program_id(0)
    if WIDE:
        tile = tl.cast(tile, tl.int64)
        x_n = tl.cast(x_n, tl.int64)
        x_h = tl.cast(x_h, tl.int64)
        w_o = tl.cast(w_o, tl.int64)
        w_h = tl.cast(w_h, tl.int64)
        w_w = tl.cast(w_w, tl.int64)
        out_wide = tl.cast(out_wide, tl.int64)
    whole = tl.zeros((STRIPS, BLOCK_C), dtype=tl.int32)
    col = tile % BLOCKS * BLOCK_C + tl.arange(0, BLOCK_C)[None, :] + whole
    tile = tile // BLOCKS
    begin = tile % parts * rows
    end = tl.minimum(begin + rows, out_high)
    strip = tile // parts * STRIPS + tl.arange(0, STRIPS)[:, None] + whole
    strip = tl.minimum(strip, strips - 1)  # beyond the edge the last one is done again
    left = strip % along * COLS
    image = strip // along
    known = col < OUTPUTS
    factors = ()
    for tap in tl.static_range(TAPS_HIGH * TAPS_WIDE):
        at = weight + col * w_o + (tap // TAPS_WIDE * w_h + tap % TAPS_WIDE * w_w)
        factors += (_where_known(at, known, PARTIAL).to(tl.float32),)
    added = None
    if bias is not None:
        added = _where_known(bias + col * bias_step, known, PARTIAL).to(tl.float32)
    # Rows of x above its edge add nothing, nor do those below it: steps begin and end at the edges.
    first = tl.maximum(begin, pad_high // DOWN)
    last = tl.minimum(end + (LIVE - 1), (high - 1 + pad_high) // DOWN + 1)
    start = x + (image * x_n * UNIT + (left * RIGHT - PAD) * NEXT + col) + (first * DOWN - pad_high) * x_h * UNIT
    target = out + ((image * out_high * out_wide + left) * OUTPUTS + col) + (first - LIVE) * out_wide * OUTPUTS
    sums = ()
    for _ in tl.static_range(LIVE * COLS):
        sums += (tl.zeros((STRIPS, BLOCK_C), dtype=tl.float32),)
    if DOWN == 1:
        ahead = _pixels(start, left * RIGHT, known, wide, NEXT, COLS, TAPS_WIDE, RIGHT, PAD, SURE, PARTIAL)
    for step in range(first, last):
        if DOWN == 1:  # the next row comes while this one is summed
            pixels = ahead
            start += tl.where(step + 1 < last, x_h * UNIT, 0)
            ahead = _pixels(start, left * RIGHT, known, wide, NEXT, COLS, TAPS_WIDE, RIGHT, PAD, SURE, PARTIAL)
        if step - LIVE >= begin:
            _store_sums(target, sums, left, known, out_wide, added, 0, OUTPUTS, ENDS, COLS, PARTIAL, RELU)
        target += out_wide * OUTPUTS
        sums = _moved_up(sums, LIVE, COLS)
        if DOWN == 1:
            sums = _summed(sums, pixels, factors, 0, TAPS_HIGH, TAPS_WIDE, DOWN, RIGHT, LIVE, COLS)
        else:
            for phase in tl.static_range(DOWN):
                if phase < TAPS_HIGH:
                    row = step * DOWN + (phase - pad_high)
                    inside = known & (row >= 0) & (row < high)
                    pixels = _pixels(start, left * RIGHT, inside, wide, NEXT, COLS, TAPS_WIDE, RIGHT, PAD, SURE, True)
                    sums = _summed(sums, pixels, factors, phase, TAPS_HIGH, TAPS_WIDE, DOWN, RIGHT, LIVE, COLS)
                start += x_h * UNIT
    for i in tl.static_range(LIVE):
        row = last - LIVE + i
        if (row >= begin) & (row < end):
            _store_sums(target, sums, left, known, out_wide, added, i * COLS, OUTPUTS, ENDS, COLS, PARTIAL, RELU)
        target += out_wide * OUTPUTS


@triton.jit
def _where_known(at, known, PARTIAL: tl.constexpr):
    """Values at known places, 0 elsewhere; without masks if all are known."""
    return tl.load(at, mask=known, other=0.0) if PARTIAL else tl.load(at)


@triton.jit
def _pixels(
    start, left, known, wide,
    NEXT: tl.constexpr, COLS: tl.constexpr, TAPS_WIDE: tl.constexpr, RIGHT: tl.constexpr, PAD: tl.constexpr,
    SURE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """A tuple of the pixels of a row under a strip's kernels, as they are stored."""
    loaded = ()
    for k in tl.static_range((COLS - 1) * RIGHT + TAPS_WIDE):
        inside = known
        if k < PAD:
            inside = inside & (left + (k - PAD) >= 0)
        if k >= SURE:
            inside = inside & (left + (k - PAD) < wide)
        loaded += (_where_known(start + k * NEXT, inside, MASKED or (k < PAD or k >= SURE)),)
    return loaded


@triton.jit
def _moved_up(sums, LIVE: tl.constexpr, COLS: tl.constexpr):
    """Sums with the oldest row gone, and a new one begun."""
    moved = ()
    for i in tl.static_range((LIVE - 1) * COLS):
        moved += (sums[COLS + i],)
    for i in tl.static_range(COLS):
        moved += (tl.zeros_like(sums[i]),)
    return moved


@triton.jit
def _summed(
    sums, pixels, factors,
    PHASE: tl.constexpr, TAPS_HIGH: tl.constexpr, TAPS_WIDE: tl.constexpr, DOWN: tl.constexpr, RIGHT: tl.constexpr,
    LIVE: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Sums with a row of pixels added, the one of its step by PHASE; the newest row is at its kernel's top."""
    wide = ()
    for k in tl.static_range((COLS - 1) * RIGHT + TAPS_WIDE):
        wide += (pixels[k].to(tl.float32),)
    for k in tl.static_range(TAPS_WIDE):
        longer = ()
        for i in tl.static_range(LIVE):
            for j in tl.static_range(COLS):
                total = sums[i * COLS + j]
                if PHASE + (LIVE - 1 - i) * DOWN < TAPS_HIGH:
                    total += wide[j * RIGHT + k] * factors[(PHASE + (LIVE - 1 - i) * DOWN) * TAPS_WIDE + k]
                longer += (total,)
        sums = longer
    return sums


@triton.jit
def _store_sums(
    target, sums, left, known, out_wide, bias,
    FROM: tl.constexpr, OUTPUTS: tl.constexpr, ENDS: tl.constexpr, COLS: tl.constexpr, PARTIAL: tl.constexpr,
    RELU: tl.constexpr,
):  # fmt: skip
    """Finishes and writes a row of a strip's outputs."""
    for j in tl.static_range(COLS):
        total = sums[FROM + j]
        if bias is not None:
            total += bias
        if RELU:
            total = _rectified(total)
        total = total.to(target.dtype.element_ty)
        if j >= ENDS:
            tl.store(target + j * OUTPUTS, total, mask=known & (left + j < out_wide))
        elif PARTIAL:
            tl.store(target + j * OUTPUTS, total, mask=known)
        else:
            tl.store(target + j * OUTPUTS, total)
