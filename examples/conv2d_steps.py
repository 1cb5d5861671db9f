"""The ways to convolve that lead to the op's own, each selectable: what every one of them gains can be timed."""

import _launch
import _tma
import torch
import triton
import triton.language as tl
from conv2d.conv2d_boxes import has_box
from conv2d.conv2d_tensors import Pair, Shape, channels_last, check, empty, packed
from conv2d_triton import conv2d, flattened, product, thinned
from matmul.matmul_triton import matmul

VARIANTS = ("im2col", "pointers", "boxes")
"""In the order of development."""

BLOCK_M, BLOCK_K = 64, 64


def conv2d_step(
    x: torch.Tensor,
    weight: torch.Tensor,
    variant: str,
    bias: torch.Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    activation: str | None = None,
) -> torch.Tensor:
    """Returns what `conv2d` returns, by one of VARIANTS.

    im2col: a matrix of every output pixel's neighbourhood is written out, then multiplied by `matmul`, whose answer is
    copied if it has to be contiguous. pointers: the matrix is never written, and pixels are loaded through pointers.
    boxes: pixels are copied by descriptor, which is `conv2d` itself.

    Raises ValueError for an unknown variant, for groups, and for `boxes` if tensors or device allow no descriptors.
    """
    if variant not in VARIANTS:
        raise ValueError(f"conv2d_step: variant is {variant!r}, but has to be one of {', '.join(map(repr, VARIANTS))}")
    shape = check("conv2d_step", x, weight, bias, stride, padding, dilation, groups, activation)
    if groups != 1:
        raise ValueError(f"conv2d_step: groups is {groups}, but has to be 1. Use conv2d, which takes depthwise ones")
    limits = _launch.limits(x.device)
    if variant == "boxes":
        return _boxes(x, weight, bias, shape, limits, (stride, padding, dilation, groups, activation))
    if variant == "im2col":
        last = channels_last(x.shape, x.stride()) or channels_last(weight.shape, weight.stride())
        return _by_columns(x, weight, bias, shape, activation, last, limits)
    out, last = empty(shape, x, weight)
    return product(x, weight, bias, out, shape, activation, last, limits, False) if out.numel() else out


def _boxes(x, weight, bias, shape: Shape, limits: _launch.Limits, how):
    described = x.dtype is not torch.float32 and _tma.available(limits, _columns_kernel)
    if described and x.numel():
        inner, factors = packed(x, dense=False, limits=limits), packed(weight, dense=True, limits=limits)
        inner, flat = flattened(*thinned(inner, shape._replace(channels=inner.shape[3])))
        described = has_box(inner, factors, flat)
    if not described:
        raise ValueError(
            "conv2d_step: variant boxes needs a device with tensor descriptors, Triton 3.4 or newer, float16 or "
            "bfloat16, channels in multiples of 32, and a height and a width that the stride divides, but x is "
            f"{x.dtype} {tuple(x.shape)} on {x.device} with stride {how[0]}. Use pointers, which needs none"
        )
    return conv2d(x, weight, bias, *how)


def _by_columns(x, weight, bias, shape: Shape, activation: str | None, last: bool, limits: _launch.Limits):
    columns = torch.empty((shape.pixels, shape.terms), dtype=x.dtype, device=x.device)
    tiles_k = _launch.tiles(shape.terms, BLOCK_K)
    tiles = _launch.tiles(shape.pixels, BLOCK_M) * tiles_k
    if columns.numel():
        with _launch.on(x.device):
            _columns_kernel[(min(tiles, limits.programs, limits.grid[0]),)](
                x, columns, tiles, tiles_k, shape.pixels, shape.out_high * shape.out_wide, shape.high, shape.wide,
                shape.out_wide, *shape[9:], *x.stride(), CHANNELS=shape.channels,
                TAPS=shape.taps_high * shape.taps_wide, TAPS_WIDE=shape.taps_wide, BLOCK_M=BLOCK_M, BLOCK_K=BLOCK_K,
                num_warps=4,
            )  # fmt: skip
    factors = weight.permute(0, 2, 3, 1).reshape(shape.outputs, shape.terms)
    product = matmul(columns, factors.t(), bias, activation)
    rows = product.view(shape.images, shape.out_high, shape.out_wide, shape.outputs).permute(0, 3, 1, 2)
    return rows if last else rows.contiguous()


@triton.jit(do_not_specialize=["tiles"])
def _columns_kernel(
    x, columns, tiles, tiles_k, pixels, plane, high, wide, out_wide,
    stride_high, stride_wide, pad_high, pad_wide, apart_high, apart_wide, x_n, x_c, x_h, x_w,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, TAPS_WIDE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rows are output pixels, columns (kernel row, kernel column, channel); the padding's are 0."""
    TERMS: tl.constexpr = TAPS * CHANNELS
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = tl.cast(tile // tiles_k, tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
        k = tile % tiles_k * BLOCK_K + tl.arange(0, BLOCK_K)
        tap = k // CHANNELS
        place = row % plane
        row_at = (place // out_wide * stride_high - pad_high)[:, None] + (tap // TAPS_WIDE * apart_high)[None, :]
        col_at = (place % out_wide * stride_wide - pad_wide)[:, None] + (tap % TAPS_WIDE * apart_wide)[None, :]
        known = (row < pixels)[:, None] & (tap < TAPS)[None, :]
        inside = known & (row_at >= 0) & (row_at < high) & (col_at >= 0) & (col_at < wide)
        channel = (k % CHANNELS).to(tl.int64) * x_c
        source = x + (row // plane * x_n)[:, None] + row_at * x_h + col_at * x_w + channel[None, :]
        values = tl.load(source, mask=inside, other=0.0)
        tl.store(columns + row[:, None] * TERMS + k[None, :], values, mask=known)
