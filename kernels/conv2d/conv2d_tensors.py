"""Common to the ways to convolve: what arguments go together, how tensors lie in memory, and how tiles are finished."""

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import _launch
import _tma

ACTIVATIONS = (None, "relu")
Pair = int | tuple[int, int]
VECTOR = 8
"""16-bit values of one access of 16 bytes. Channels are padded to a multiple of it, or to HALF if there are no more."""
HALF = 4


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


def check(op, x, weight, bias, stride, padding, dilation, groups, activation) -> Shape:
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
def _shape(op, of_x, of_weight, stride, padding, dilation, groups) -> Shape:
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


# --- order in memory --------------------------------------------------------------------------------------------------


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


def empty(shape: Shape, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """Memory for the answer, and whether it is channels-last: if one of the two is, as PyTorch's."""
    images, outputs, high, wide = shape.images, shape.outputs, shape.out_high, shape.out_wide
    if channels_last(x.shape, x.stride()) or channels_last(weight.shape, weight.stride()):
        return torch.empty((images, high, wide, outputs), dtype=x.dtype, device=x.device).permute(0, 3, 1, 2), True
    return torch.empty((images, outputs, high, wide), dtype=x.dtype, device=x.device), False


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
    block_s = _launch.fitting(4096, 128, limits) // block_c
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


def matrix(weight: torch.Tensor) -> torch.Tensor | None:
    """Returns weights as rows of one output each, if a descriptor fits them."""
    matrix = weight.view(weight.shape[0], -1) if weight.is_contiguous() else None
    return matrix if matrix is not None and _tma.dense_side(matrix) == 1 else None


def far(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, shape: Shape) -> bool:
    """True if offsets need 64 bits, including those of the padding and of the last tile's places beyond the edge."""
    border = shape.pad_high * x.stride(1) + shape.pad_wide * x.stride(2)
    reach = max(_reach(x) + 2 * border, _reach(weight) + 256 * weight.stride(0), _reach(out))
    return max(reach, (shape.pixels + 256) * (shape.outputs + 256)) >= 2**31


def _reach(tensor: torch.Tensor) -> int:
    return sum(size * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))


# --- tiles ------------------------------------------------------------------------------------------------------------


@triton.jit
def within(row, col, high, wide):
    """Whether a place of x is no padding."""
    return (row >= 0) & (row < high) & (col >= 0) & (col < wide)


@triton.jit
def finished(total, col, outputs, bias, bias_step, RELU: tl.constexpr):
    """Sums of the outputs `col` with bias and activation, in float32."""
    if bias is not None:
        total += tl.load(bias + col * bias_step, mask=col < outputs, other=0.0).to(tl.float32)[None, :]
    if RELU:
        total = rectified(total)
    return total


@triton.jit
def rectified(total):
    return tl.where(total < 0, 0.0, total)  # NaN stays


@triton.jit
def store(out, total, image, place, valid, col, outputs, plane, LAST: tl.constexpr):
    """Writes a tile of (pixels, outputs); place: a pixel's place in its plane. Neighbours in memory go together."""
    total = total.to(out.dtype.element_ty)
    if LAST:
        target = out + ((image * plane + place) * outputs)[:, None] + col[None, :]
        tl.store(target, total, mask=valid[:, None] & (col < outputs)[None, :])
    else:
        target = out + (col * plane)[:, None] + (image * outputs * plane + place)[None, :]
        tl.store(target, tl.trans(total), mask=(col < outputs)[:, None] & valid[None, :])
