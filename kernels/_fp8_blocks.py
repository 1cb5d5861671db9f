"""Products of float8 matrices scaled per block of 128, on Hopper: twelve warps in three groups, each with a task.

One group only copies strips of 128 values of k. Two multiply, 64 rows of the tile each; while one scales what tensor
cores summed and adds it up in registers, they serve the other. In Gluon, a language that comes with Triton, since there
the groups, and what each waits for, can be written down.
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

REGISTERS = 232
"""Of a thread that multiplies: 128 sums, 64 of the strip and the rest; four warps that copy keep 40."""


def launch(a, b, out, scale_a, scale_b, strides, config, programs, tiles, limits) -> None:
    """Multiplies a (m, k) by b (k, n), k dense in both, into out (m, n), which is row-major.

    strides: of scale_a and scale_b. config: tiles of 128 x 128 or 128 x 256.
    """
    (m, k), n, wide = a.shape, b.shape[1], config.block_n == 256
    stages, buffers = room(config, out.element_size(), limits)
    _fp8_block_kernel[(programs,)](
        descriptor(a, 128, 128), descriptor(b.t(), 128, 128), descriptor(out, 64, 128), scale_a, scale_b, m, n, k,
        *strides, tiles,
        STAGES=stages, BUFFERS=buffers, WIDE=wide, GROUP_M=config.group_m, REGISTERS=REGISTERS, num_warps=4,
    )  # fmt: skip


def room(config, itemsize: int, limits: _launch.Limits) -> tuple[int, int]:
    """Stages of strips, and buffers in which a group's outputs, of `itemsize` bytes, wait to be written.

    Each half of a tile has a buffer of its own where that costs none of the stages that the config names; wide outputs
    may leave room for fewer stages.
    """
    free, strips = limits.shared_bytes - BARRIER_BYTES, 128 * (128 + config.block_n)
    halves = config.block_n // 128
    buffers = halves if free - halves * 2 * 64 * 128 * itemsize >= config.stages * strips else 1
    return min(config.stages, (free - buffers * 2 * 64 * 128 * itemsize) // strips), buffers


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
    outputs = gl.allocate_shared_memory(out.dtype, [2 * BUFFERS, 64, 128], out.layout)
    # A stage is full when its strips have arrived, its right one apart, and empty when both groups have used it.
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
def _copy(a, b, strips, m, n, k, tiles, STAGES: gl.constexpr, WIDE: gl.constexpr, GROUP_M: gl.constexpr):
    """Every strip of every tile, each into the next stage as soon as that is empty."""
    a_strips, b_strips, right_strips, full, right_full, empty = strips
    BLOCK_N: gl.constexpr = 256 if WIDE else 128
    stage = 0
    parity = 1  # as if it had been emptied before
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, gl.cdiv(m, 128), gl.cdiv(n, BLOCK_N), GROUP_M)
        for step in range(gl.cdiv(k, 128)):
            mbarrier.wait(empty.index(stage), parity)
            mbarrier.expect(full.index(stage), 2 * 128 * 128)
            tma.async_copy_global_to_shared(a, [tile_m * 128, step * 128], full.index(stage), a_strips.index(stage))
            tma.async_copy_global_to_shared(b, [tile_n * BLOCK_N, step * 128], full.index(stage), b_strips.index(stage))
            if WIDE:
                arrived = right_full.index(stage)
                mbarrier.expect(arrived, 128 * 128)
                place = [tile_n * BLOCK_N + 128, step * 128]
                tma.async_copy_global_to_shared(b, place, arrived, right_strips.index(stage))
            stage += 1
            if stage == STAGES:
                stage = 0
                parity ^= 1


@gluon.jit
def _multiply(
    strips, outputs, out, scales, m, n, k, tiles,
    GROUP: gl.constexpr, STAGES: gl.constexpr, BUFFERS: gl.constexpr, WIDE: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    """Rows GROUP * 64 and on of every tile."""
    a_strips, b_strips, right_strips, full, right_full, empty = strips
    scale_a, scale_b, scale_a_row, scale_a_k, scale_b_k, scale_b_col = scales
    BLOCK_N: gl.constexpr = 256 if WIDE else 128
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 128, 32])
    nothing = gl.zeros([64, 128], gl.float32, LAYOUT)
    stage = 0
    parity = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, gl.cdiv(m, 128), gl.cdiv(n, BLOCK_N), GROUP_M)
        first_row = tile_m * 128 + GROUP * 64
        first_col = tile_n * BLOCK_N
        row = first_row + gl.arange(0, 64, layout=gl.SliceLayout(1, LAYOUT))
        a_scales = scale_a + row.to(gl.int64) * scale_a_row
        b_scales = scale_b + (first_col // 128).to(gl.int64) * scale_b_col
        left = gl.zeros([64, 128], gl.float32, LAYOUT)
        right = gl.zeros([64, 128], gl.float32, LAYOUT)
        for _ in range(gl.cdiv(k, 128)):
            of_a = gl.load(a_scales, mask=row < m, other=0.0)
            of_b = gl.load(b_scales)
            if WIDE:
                of_right = gl.load(b_scales + scale_b_col, mask=first_col + 128 < n, other=0.0)
            mbarrier.wait(full.index(stage), parity)
            rows = a_strips.index(stage).slice(GROUP * 64, 64, 0)
            part = warpgroup_mma(rows, b_strips.index(stage).permute((1, 0)), nothing, use_acc=False, is_async=True)
            part = warpgroup_mma_wait(0, deps=[part])
            if WIDE:
                left = _added(left, part, of_a * of_b)
                mbarrier.wait(right_full.index(stage), parity)
                cols = right_strips.index(stage).permute((1, 0))
                part = warpgroup_mma(rows, cols, nothing, use_acc=False, is_async=True)
                part = warpgroup_mma_wait(0, deps=[part])
                mbarrier.arrive(empty.index(stage), count=1)
                right = _added(right, part, of_a * of_right)
            else:
                mbarrier.arrive(empty.index(stage), count=1)
                left = _added(left, part, of_a * of_b)
            a_scales += scale_a_k
            b_scales += scale_b_k
            stage += 1
            if stage == STAGES:
                stage = 0
                parity ^= 1
        tma.store_wait(0)  # the last tile has left its buffers
        _store(out, first_row, first_col, left, outputs.index(GROUP * BUFFERS))
        if WIDE:
            if BUFFERS == 1:
                tma.store_wait(0)
            _store(out, first_row, first_col + 128, right, outputs.index(GROUP * BUFFERS + BUFFERS - 1))
    tma.store_wait(0)


@gluon.jit
def _added(total, part, scales):
    """The sum of total and part * scales, at this very place: behind the next product, registers would be spilled."""
    scales = gl.expand_dims(scales, 1).broadcast_to(part.shape)
    return gl.inline_asm_elementwise(
        "fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", [part, scales, total], gl.float32, is_pure=False, pack=1
    )


@gluon.jit
def _store(out, row, col, values, buffer):
    buffer.store(values.to(out.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(out, [row, col], buffer)
