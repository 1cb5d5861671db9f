"""conv2d of each channel by itself, which is no product: each thread multiplies the pixels of its own channels."""

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import _launch
from conv2d.conv2d_tensors import VECTOR, Shape, far, finished, packed, rectified, store, within

SWEPT_TAPS = 7
"""Along a side of the largest depthwise kernel whose weights a thread holds beside its sums without spilling."""
SWEPT_STRIDE = 2
FEW_TAPS = 9
"""So few weights that a thread has those of two channels, and reads them without a copy."""
SWEEP_WARPS = 4


def depthwise(x, weight, bias, out, shape, activation, last, limits) -> torch.Tensor:
    """Every output's channel alone: no product of matrices."""
    # If a pixel's channels are neighbours, walking down strips loads each pixel once, not once for every tap.
    sweep = choose_sweep(shape, limits) if last and x.stride(1) == 1 else None
    if sweep is not None:
        return _swept(x, weight, bias, out, shape, activation, sweep, limits)
    inner = x.stride(1) == 1  # loads are of neighbours; a mismatch with `last` only costs speed
    block_m = min(_launch.power_of_two(shape.pixels), 512)
    block_c = min(_launch.power_of_two(shape.outputs), 64 if inner else 512 // block_m)
    block_m = 2048 // block_c if inner else block_m
    block_m = _launch.fitting(block_m * block_c, 200, limits) // block_c
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
            WIDE=far(x, weight, out, shape), num_warps=4,
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
        x_n, x_h, x_w = tl.cast(x_n, tl.int64), tl.cast(x_h, tl.int64), tl.cast(x_w, tl.int64)
        w_o, w_h, w_w = tl.cast(w_o, tl.int64), tl.cast(w_h, tl.int64), tl.cast(w_w, tl.int64)
        x_c, plane, outputs = tl.cast(x_c, tl.int64), tl.cast(plane, tl.int64), tl.cast(outputs, tl.int64)
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
            inside = within(row_at + down, col_at + right, high, wide) & valid
            pixel = tl.load(
                (starts + (down * x_h + right * x_w) * UNIT)[:, None] + (col // TIMES * x_c)[None, :],
                mask=inside[:, None] & known[None, :], other=0.0,
            )  # fmt: skip
            factor = tl.load(
                weight + col * w_o + (tap // TAPS_WIDE * w_h + tap % TAPS_WIDE * w_w), mask=known, other=0.0
            )
            total += pixel.to(tl.float32) * factor.to(tl.float32)[None, :]
        total = finished(total, col, outputs, bias, bias_step, RELU)
        store(out, total, image, place, valid, col, outputs, plane, LAST)


# --- down a strip -----------------------------------------------------------------------------------------------------


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
    """Returns the sweep with the last program that ends first with little work; None if strips are not possible.

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


def _sweeps(shape, limits, cols: int, each: int, registers: int, live: int) -> list[tuple[int, Sweep]]:
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
    sweeps = []
    for rows in {_launch.tiles(shape.out_high, parts) for parts in range(1, min(shape.out_high, 64) + 1)}:
        programs = across * _launch.tiles(shape.out_high, rows)
        waves = _launch.tiles(programs, limits.processors * fitting)
        sweeps.append((waves * fitting * (rows + live + 2), Sweep(cols, strips, channels, rows, programs)))
    return sweeps


def _swept(x, weight, bias, out, shape, activation, sweep, limits) -> torch.Tensor:
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
            WIDE=far(x, weight, out, shape), num_warps=SWEEP_WARPS,
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
        tile, out_wide = tl.cast(tile, tl.int64), tl.cast(out_wide, tl.int64)
        x_n, x_h = tl.cast(x_n, tl.int64), tl.cast(x_h, tl.int64)
        w_o, w_h, w_w = tl.cast(w_o, tl.int64), tl.cast(w_h, tl.int64), tl.cast(w_w, tl.int64)
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
            total = rectified(total)
        total = total.to(target.dtype.element_ty)
        if j >= ENDS:
            tl.store(target + j * OUTPUTS, total, mask=known & (left + j < out_wide))
        elif PARTIAL:
            tl.store(target + j * OUTPUTS, total, mask=known)
        else:
            tl.store(target + j * OUTPUTS, total)
