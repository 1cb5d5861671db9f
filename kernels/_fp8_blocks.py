"""Products of float8 matrices scaled per block of 128, on Hopper: twelve warps in three groups, each with a task.

One group only copies strips of 128 values of k. Two multiply, 64 rows of the tile each, 64 columns at a time. Two
such parts run at once: while a group scales and adds up one part, tensor cores compute the next.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

import _launch
from _groups import BARRIER_BYTES, available, descriptor, grouped

__all__ = ["available", "launch"]

REGISTERS = 240
"""Registers of a thread that multiplies: 128 sums, two parts of 32, 16 for a strip's rows, others. Copying takes 24."""


def launch(a, b, out, scale_a, scale_b, strides, config, programs, tiles, limits) -> None:
    """Multiplies a (m, k) by b (k, n), k dense in both, into out (m, n), which is row-major.

    strides: of scale_a and scale_b. config: tiles of 128 x 128 or 128 x 256, and stages, two or more, as a group keeps
    a strip until it has begun the next.
    """
    (m, k), n, wide = a.shape, b.shape[1], config.block_n == 256
    stages, buffers = room(config, out.element_size(), limits)
    _fp8_block_kernel[(programs,)](
        descriptor(a, 128, 128), descriptor(b.t(), 128, 128), descriptor(out, 64, 64), scale_a, scale_b, m, n, k,
        *strides, tiles,
        STAGES=stages, BUFFERS=buffers, WIDE=wide, GROUP_M=config.group_m, REGISTERS=REGISTERS, num_warps=4,
    )  # fmt: skip


def room(config, itemsize: int, limits: _launch.Limits) -> tuple[int, int]:
    """Stages of strips, and buffers in which a group's parts, outputs of `itemsize` bytes, wait to be written.

    Each part has its buffer if that costs none of the config's stages, otherwise there are two.
    Wide outputs may leave room for fewer stages.
    """
    free, strips, buffer = limits.shared_bytes - BARRIER_BYTES, 128 * (128 + config.block_n), 64 * 64 * itemsize
    parts = config.block_n // 64
    buffers = parts if free - 2 * parts * buffer >= config.stages * strips else 2
    return min(config.stages, (free - 2 * buffers * buffer) // strips), buffers


@gluon.jit(do_not_specialize=["tiles"])
def _fp8_block_kernel(
    a, b, out, scale_a, scale_b, m, n, k, scale_a_row, scale_a_k, scale_b_k, scale_b_col, tiles,
    STAGES: gl.constexpr, BUFFERS: gl.constexpr, WIDE: gl.constexpr, GROUP_M: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """The descriptor of b is that of its transpose. WIDE: a tile has 256 columns, as two halves."""
    a_strips = gl.allocate_shared_memory(a.dtype, [STAGES, 128, 128], a.layout)
    b_strips = gl.allocate_shared_memory(b.dtype, [STAGES, 128, 128], b.layout)
    right_strips = b_strips
    if WIDE:
        right_strips = gl.allocate_shared_memory(b.dtype, [STAGES, 128, 128], b.layout)
    outputs = gl.allocate_shared_memory(out.dtype, [2 * BUFFERS, 64, 64], out.layout)
    # A stage is full when its strips have arrived (the right one counts apart), and empty when both groups used it.
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    right_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(right_full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    fence_async_shared()
    strips = (a_strips, b_strips, right_strips, full, right_full, empty)
    scales = (scale_a, scale_b, scale_a_row, scale_a_k, scale_b_k, scale_b_col)
    gl.warp_specialize(
        [
            (_multiply, (strips, outputs, out, scales, m, n, k, tiles, 0, STAGES, BUFFERS, WIDE, GROUP_M)),
            (_multiply, (strips, outputs, out, scales, m, n, k, tiles, 1, STAGES, BUFFERS, WIDE, GROUP_M)),
            (_copy, (a, b, strips, m, n, k, tiles, STAGES, WIDE, GROUP_M)),
        ],
        [4, 1],
        [REGISTERS, 504 - 2 * REGISTERS],  # three groups of four warps share 65536 registers: 168 a thread
    )


@gluon.jit
def _rounds(k):
    """Of two strips each. One beyond k is all zeros, and so are its scales."""
    return gl.cdiv(k, 256)


@gluon.jit
def _next(stage, parity, STAGES: gl.constexpr):
    wrapped = stage + 1 == STAGES
    return gl.where(wrapped, 0, stage + 1), gl.where(wrapped, parity ^ 1, parity)


# --- copying ----------------------------------------------------------------------------------------------------------


@gluon.jit
def _copy(a, b, strips, m, n, k, tiles, STAGES: gl.constexpr, WIDE: gl.constexpr, GROUP_M: gl.constexpr):
    """Copies every strip of every tile into the next stage as soon as that is empty."""
    a_strips, b_strips, right_strips, full, right_full, empty = strips
    BLOCK_N: gl.constexpr = 256 if WIDE else 128
    stage = gl.to_tensor(0)
    parity = gl.to_tensor(1)  # as if it had been emptied before
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, gl.cdiv(m, 128), gl.cdiv(n, BLOCK_N), GROUP_M)
        for step in range(2 * _rounds(k)):
            mbarrier.wait(empty.index(stage), parity)
            mbarrier.expect(full.index(stage), 2 * 128 * 128)
            tma.async_copy_global_to_shared(a, [tile_m * 128, step * 128], full.index(stage), a_strips.index(stage))
            tma.async_copy_global_to_shared(b, [tile_n * BLOCK_N, step * 128], full.index(stage), b_strips.index(stage))
            if WIDE:
                arrived = right_full.index(stage)
                mbarrier.expect(arrived, 128 * 128)
                place = [tile_n * BLOCK_N + 128, step * 128]
                tma.async_copy_global_to_shared(b, place, arrived, right_strips.index(stage))
            stage, parity = _next(stage, parity, STAGES)


# --- multiplying ------------------------------------------------------------------------------------------------------


@gluon.jit
def _multiply(
    strips, outputs, out, scales, m, n, k, tiles,
    GROUP: gl.constexpr, STAGES: gl.constexpr, BUFFERS: gl.constexpr, WIDE: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    """Rows GROUP * 64 and on of every tile, in two or four parts of 64 columns."""
    BLOCK_N: gl.constexpr = 256 if WIDE else 128
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 32])
    # What tensor cores summed last, in two sets of registers by turns. Passed from product to product but never
    # added to, so that all of them use the same registers.
    even = gl.zeros([64, 64], gl.float32, LAYOUT)
    odd = gl.zeros([64, 64], gl.float32, LAYOUT)
    stage = gl.to_tensor(0)
    parity = gl.to_tensor(0)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, gl.cdiv(m, 128), gl.cdiv(n, BLOCK_N), GROUP_M)
        row = tile_m * 128 + GROUP * 64
        col = tile_n * BLOCK_N
        sums, even, odd, stage, parity = _summed(
            strips, scales, row, col, m, n, k, even, odd, stage, parity, GROUP, STAGES, WIDE, LAYOUT
        )
        for part in gl.static_range(BLOCK_N // 64):
            buffer = outputs.index(GROUP * BUFFERS + part % BUFFERS)
            tma.store_wait(BUFFERS - 1)  # so many parts before, another has left it
            buffer.store(sums[part].to(out.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(out, [row, col + part * 64], buffer)
    tma.store_wait(0)


@gluon.jit
def _summed(
    strips, scales, row, col, m, n, k, even, odd, stage, parity,
    GROUP: gl.constexpr, STAGES: gl.constexpr, WIDE: gl.constexpr, LAYOUT: gl.constexpr,
):  # fmt: skip
    """The sums of a group's part of a tile.

    Within a round, of two strips, some product always runs. If one also ran from round to round, the assembler would
    wait for each single one.
    """
    a_strips, b_strips, _, full, _, empty = strips
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, LAYOUT, 4)
    steps = gl.cdiv(k, 128)
    places = _places(scales, row, col, m, n, WIDE, LAYOUT)
    ahead = _scales(places, True)
    sums = (
        gl.zeros([64, 64], gl.float32, LAYOUT), gl.zeros([64, 64], gl.float32, LAYOUT),
        gl.zeros([64, 64], gl.float32, LAYOUT), gl.zeros([64, 64], gl.float32, LAYOUT),
    )  # fmt: skip
    for turn in range(_rounds(k)):
        now = ahead
        places, ahead = _ahead(places, scales, 2 * turn + 1 < steps)
        mbarrier.wait(full.index(stage), parity)
        own = a_strips.index(stage).slice(GROUP * 64, 64, 0).load(OPERAND)
        even_product = _product(own, b_strips, stage, 0, even)
        sums, even, odd_product = _parts(strips, own, stage, parity, now, sums, even_product, odd, WIDE)

        before = stage
        last = now
        stage, parity = _next(stage, parity, STAGES)
        now = ahead
        places, ahead = _ahead(places, scales, 2 * turn + 2 < steps)
        mbarrier.wait(full.index(stage), parity)
        rows = a_strips.index(stage).slice(GROUP * 64, 64, 0)
        even_product = _product(rows, b_strips, stage, 0, even)  # registers still hold the rows of the strip before
        odd = warpgroup_mma_wait(1, deps=[odd_product])
        mbarrier.arrive(empty.index(before), count=1)
        sums = _last_added(sums, odd, last, WIDE)
        own = rows.load(OPERAND)
        sums, even, odd_product = _parts(strips, own, stage, parity, now, sums, even_product, odd, WIDE)

        odd = warpgroup_mma_wait(0, deps=[odd_product])
        mbarrier.arrive(empty.index(stage), count=1)
        sums = _last_added(sums, odd, now, WIDE)
        stage, parity = _next(stage, parity, STAGES)
    return sums, even, odd, stage, parity


@gluon.jit
def _parts(strips, own, stage, parity, scales, sums, even_product, odd, WIDE: gl.constexpr):
    """Adds up all parts of a strip but the last. The first one runs already, and the last one runs at the end."""
    _, b_strips, right_strips, _, right_full, _ = strips
    of_a, of_b, of_right = scales
    sum0, sum1, sum2, sum3 = sums
    odd_product = _product(own, b_strips, stage, 64, odd)
    even = warpgroup_mma_wait(1, deps=[even_product])
    sum0 = _added(sum0, even, of_a * of_b)
    if WIDE:
        mbarrier.wait(right_full.index(stage), parity)
        even_product = _product(own, right_strips, stage, 0, even)
        odd = warpgroup_mma_wait(1, deps=[odd_product])
        sum1 = _added(sum1, odd, of_a * of_b)
        odd_product = _product(own, right_strips, stage, 64, odd)
        even = warpgroup_mma_wait(1, deps=[even_product])
        sum2 = _added(sum2, even, of_a * of_right)
    return (sum0, sum1, sum2, sum3), even, odd_product


@gluon.jit
def _product(rows, strips, stage, COL: gl.constexpr, part):
    """Starts the product of rows and columns COL to COL + 64 of a strip, into the registers of `part`."""
    cols = strips.index(stage).slice(COL, 64, 0).permute((1, 0))
    return warpgroup_mma(rows, cols, part, use_acc=False, is_async=True)


@gluon.jit
def _last_added(sums, part, scales, WIDE: gl.constexpr):
    of_a, of_b, of_right = scales
    sum0, sum1, sum2, sum3 = sums
    if WIDE:
        sum3 = _added(sum3, part, of_a * of_right)
    else:
        sum1 = _added(sum1, part, of_a * of_b)
    return sum0, sum1, sum2, sum3


@gluon.jit
def _added(total, part, scales):
    """The sum of total and part * scales, exactly here: behind the next product registers would spill."""
    scales = gl.expand_dims(scales, 1).broadcast_to(part.shape)
    return gl.inline_asm_elementwise(
        "fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", [part, scales, total], gl.float32, is_pure=False, pack=1
    )


# --- scales -----------------------------------------------------------------------------------------------------------


@gluon.jit
def _places(scales, row, col, m, n, WIDE: gl.constexpr, LAYOUT: gl.constexpr):
    """Addresses of the first strip's scales: of rows and of the left and right halves.

    Rows beyond m, which are never written, take the last row's, and a half beyond n takes the other's.
    """
    scale_a, scale_b, scale_a_row, _, _, scale_b_col = scales
    rows = gl.minimum(row + gl.arange(0, 64, layout=gl.SliceLayout(1, LAYOUT)), m - 1)
    of_left = scale_b + (col // 128).to(gl.int64) * scale_b_col
    to_right = gl.where(WIDE and col + 128 < n, scale_b_col, 0)
    return scale_a + rows.to(gl.int64) * scale_a_row, of_left, to_right


@gluon.jit
def _scales(places, there):
    of_rows, of_left, to_right = places
    return (
        gl.load(of_rows, mask=there, other=0.0),
        gl.load(of_left, mask=there, other=0.0),
        gl.load(of_left + to_right, mask=there, other=0.0),
    )


@gluon.jit
def _ahead(places, scales, there):
    """The next strip's scales, if it is there: the assembler multiplies them before it begins a strip's products.

    Addresses do not move beyond the last strip; otherwise the assembler would spill registers.
    """
    _, _, _, scale_a_k, scale_b_k, _ = scales
    of_rows, of_left, to_right = places
    hop = gl.where(there, 1, 0)
    places = (of_rows + hop * scale_a_k, of_left + hop * scale_b_k, to_right)
    return places, _scales(places, there)
