"""Attention's forward pass, width 64, 128 or 256 and 16 bits, on Hopper: warps in groups of four, each with a task.

One group only copies: queries once a tile, then keys and values block by block. Two or three attend, 64 queries of the
tile each. While one computes exponentials, tensor cores multiply for another, and also the products of its own last
weights with their values.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
)

import _launch
from _groups import available, descriptor
from attention.attention_groups_attend import attend, blocks_seen, next_stage, unit_at

__all__ = ["ROWS", "WIDTHS", "available", "launch"]

WIDTHS = (64, 128, 256)
"""Padded widths of a head."""
ROWS = 64
"""Queries of a group; a tile has so many for each group that attends."""
REGISTERS = {2: 240, 3: 160}
"""Registers of a thread, by how many groups attend. Four warps that copy keep 24, or 32.

At width 128 they hold 64 scores and 64 of the output, at 256 and 64 keys 32 and 128, weights and the rest.
"""


def launch(q, k, v, out, sums, scale, causal, config, limits) -> bool:
    """Writes attention's output and sums. Returns False and does nothing if there are more tiles than programs.

    scale: times log2(e). causal: a query sees keys up to its place, else all. config: block_m, queries of a tile (128
    or 192), block_n, keys of a block (32 to 128), stages of these (two or more), `ahead` (each group waits for the next
    keys before its products are done) and `persistent`. Triton raises for more than shared memory holds.

    If lengths end within blocks, a program still has one tile at width 256 and with 192 queries: registers have no
    room for a loop of tiles with such masks.
    """
    (batch, heads, queries, _), (_, key_heads, keys, width) = q.shape, k.shape
    padded, block, groups = _launch.power_of_two(width), config.block_n, config.block_m // ROWS
    uneven = causal and (block < ROWS or (keys - queries) % block > 0)
    tail = not causal and keys % block > 0
    at_once = tiles_at_once(padded, groups, uneven or tail) if config.persistent else 0
    along = _launch.tiles(queries, config.block_m)
    units = batch * heads * (_launch.tiles(along, 2) if causal and at_once else along)
    if batch * heads * along > min(limits.programs, limits.grid[0]):
        return False
    programs = min(units, limits.processors) if at_once else units
    near = heads_at_once(keys, heads // key_heads, width * q.element_size(), limits) if causal else 1
    _attention_group_kernel[(programs,)](
        *(descriptor(each, 1, 1, rows, padded) for each, rows in ((q, ROWS), (k, block), (v, block), (out, ROWS))),
        sums, queries, keys, heads, heads // key_heads, batch * heads, near, units, scale,
        GROUPS=groups, WIDTH=padded, BLOCK=block, STAGES=config.stages, CAUSAL=causal, UNEVEN=uneven, TAIL=tail,
        AHEAD=config.ahead, LOOP=at_once, REGISTERS=REGISTERS[groups], num_warps=4,
    )  # fmt: skip
    return True


def tiles_at_once(padded: int, groups: int, ragged: bool) -> int:
    """Tiles with queries that are in shared memory in a loop, including the next tile's; 0: no loop."""
    if ragged and (padded > 128 or groups > 2):
        return 0
    return 1 if padded > 128 else 2


def heads_at_once(keys: int, share: int, row_bytes: int, limits: _launch.Limits) -> int:
    """Heads with tiles that take turns, longest first: as many as leave half of the shared cache to others."""
    return max(limits.l2_bytes // 2 // (2 * keys * row_bytes), 1) * share


@gluon.jit(do_not_specialize=["queries", "keys", "heads", "share", "all_heads", "near", "units"])
def _attention_group_kernel(
    q, k, v, out, sums, queries, keys, heads, share, all_heads, near, units, scale,
    GROUPS: gl.constexpr, WIDTH: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    UNEVEN: gl.constexpr, TAIL: gl.constexpr, AHEAD: gl.constexpr, LOOP: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """GROUPS: that attend. UNEVEN: a tile of queries, or a group's share of it, may end within a block of keys.

    TAIL: the keys do, and nothing else hides them. LOOP: a program has several units of work, see `unit_at`, and room
    for the queries of so many tiles; 0: it has one unit.
    """
    # A tile's queries, in a loop also those of the next one; its output is written from there too.
    BUFFERS: gl.constexpr = 2 * GROUPS if LOOP == 2 else GROUPS
    q_tiles = gl.allocate_shared_memory(q.dtype, [BUFFERS, 1, 1, 64, WIDTH], q.layout)
    k_tiles = gl.allocate_shared_memory(k.dtype, [STAGES, 1, 1, BLOCK, WIDTH], k.layout)
    v_tiles = gl.allocate_shared_memory(v.dtype, [STAGES, 1, 1, BLOCK, WIDTH], v.layout)
    # A buffer is full when it has arrived, and empty when all groups that read it have.
    q_full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for buffer in gl.static_range(BUFFERS):
        mbarrier.init(q_full.index(buffer), count=1)
        mbarrier.init(q_empty.index(buffer), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(v_full.index(stage), count=1)
        mbarrier.init(k_empty.index(stage), count=GROUPS)
        mbarrier.init(v_empty.index(stage), count=GROUPS)
    fence_async_shared()
    buffers = (q_tiles, k_tiles, v_tiles)
    barriers = (q_full, q_empty, k_full, k_empty, v_full, v_empty)
    sizes = (queries, keys, heads, share, all_heads, near, units)
    given = (buffers, barriers, out, sums, sizes, scale)
    if GROUPS == 2:
        gl.warp_specialize(
            [
                (attend, (given, 0, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP)),
                (attend, (given, 1, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP)),
                (_copy, (q, k, v, buffers, barriers, sizes, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, LOOP)),
            ],
            [4, 1],
            [REGISTERS, 504 - 2 * REGISTERS],  # three groups of four warps share 65536 registers: 168 a thread
        )
    else:
        gl.warp_specialize(
            [
                (attend, (given, 0, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP)),
                (attend, (given, 1, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP)),
                (attend, (given, 2, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP)),
                (_copy, (q, k, v, buffers, barriers, sizes, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, LOOP)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, 512 - 3 * REGISTERS],  # four groups: 128 a thread
        )


# --- copying ----------------------------------------------------------------------------------------------------------


@gluon.jit
def _copy(
    q, k, v, buffers, barriers, sizes,
    GROUPS: gl.constexpr, WIDTH: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    LOOP: gl.constexpr,
):  # fmt: skip
    """Copies everything that the other groups need, in their order, each into its buffer as soon as that is empty."""
    queries, _, _, _, _, _, units = sizes
    TILE: gl.constexpr = GROUPS * 64
    if LOOP:
        turn = gl.to_tensor(0)
        stage = gl.to_tensor(0)
        parity = gl.to_tensor(1)  # as if all had been emptied before
        for unit in range(gl.program_id(0), units, gl.num_programs(0)):
            head, tile, count = unit_at(unit, sizes, TILE, CAUSAL, LOOP)
            for part in range(count):
                row = gl.where(part == 0, tile, gl.cdiv(queries, TILE) - 1 - tile) * TILE
                stage, parity = _copy_tile(
                    q, k, v, buffers, barriers, sizes, head, row, turn, stage, parity,
                    GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, LOOP,
                )  # fmt: skip
                turn += 1
    else:
        head, tile, _ = unit_at(gl.program_id(0), sizes, TILE, CAUSAL, LOOP)
        _copy_tile(
            q, k, v, buffers, barriers, sizes, head, tile * TILE, gl.to_tensor(0), gl.to_tensor(0), gl.to_tensor(1),
            GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, LOOP,
        )  # fmt: skip


@gluon.jit
def _copy_tile(
    q, k, v, buffers, barriers, sizes, head, row, turn, stage, parity,
    GROUPS: gl.constexpr, WIDTH: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    LOOP: gl.constexpr,
):  # fmt: skip
    queries, keys, heads, share, _, _, _ = sizes
    _, k_tiles, v_tiles = buffers
    _, _, k_full, k_empty, v_full, v_empty = barriers
    batch = head // heads
    own = head % heads
    if LOOP != 1:
        _copy_queries(q, buffers, barriers, batch, own, row, turn, GROUPS, WIDTH, LOOP)
    head = own // share
    blocks, _ = blocks_seen(row, queries, keys, GROUPS * 64, BLOCK, CAUSAL)
    for turned in range(blocks):
        first = (blocks - 1 - turned) * BLOCK
        mbarrier.wait(k_empty.index(stage), parity)
        mbarrier.expect(k_full.index(stage), BLOCK * WIDTH * 2)
        tma.async_copy_global_to_shared(k, [batch, head, first, 0], k_full.index(stage), k_tiles.index(stage))
        if LOOP == 1:  # noqa: SIM102 - these keys come before the last tile's output is written
            if turned == 0:  # apart, as it is known at run time
                _copy_queries(q, buffers, barriers, batch, own, row, turn, GROUPS, WIDTH, LOOP)
        mbarrier.wait(v_empty.index(stage), parity)
        mbarrier.expect(v_full.index(stage), BLOCK * WIDTH * 2)
        tma.async_copy_global_to_shared(v, [batch, head, first, 0], v_full.index(stage), v_tiles.index(stage))
        stage, parity = next_stage(stage, parity, STAGES)
    return stage, parity


@gluon.jit
def _copy_queries(
    q, buffers, barriers, batch, head, row, turn, GROUPS: gl.constexpr, WIDTH: gl.constexpr, LOOP: gl.constexpr
):  # fmt: skip
    q_tiles, _, _ = buffers
    q_full, q_empty, _, _, _, _ = barriers
    for group in gl.static_range(GROUPS):
        buffer = turn % LOOP * GROUPS + group if LOOP else group
        if LOOP:
            mbarrier.wait(q_empty.index(buffer), turn // LOOP % 2 ^ 1)
        arrived = q_full.index(buffer)
        mbarrier.expect(arrived, 64 * WIDTH * 2)
        tma.async_copy_global_to_shared(q, [batch, head, row + group * 64, 0], arrived, q_tiles.index(buffer))
