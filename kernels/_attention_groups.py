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
    warpgroup_mma,
    warpgroup_mma_wait,
)

import _launch
from _groups import available, descriptor, grouped

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
    """Tiles whose queries are in shared memory in a loop, including the next tile's; 0: no loop."""
    if ragged and (padded > 128 or groups > 2):
        return 0
    return 1 if padded > 128 else 2


def heads_at_once(keys: int, share: int, row_bytes: int, limits: _launch.Limits) -> int:
    """Heads whose tiles take turns, longest first: as many as leave half of the shared cache to others."""
    return max(limits.l2_bytes // 2 // (2 * keys * row_bytes), 1) * share


@gluon.jit(do_not_specialize=["queries", "keys", "heads", "share", "all_heads", "near", "units"])
def _attention_group_kernel(
    q, k, v, out, sums, queries, keys, heads, share, all_heads, near, units, scale,
    GROUPS: gl.constexpr, WIDTH: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    UNEVEN: gl.constexpr, TAIL: gl.constexpr, AHEAD: gl.constexpr, LOOP: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """GROUPS: that attend. UNEVEN: a tile of queries, or a group's share of it, may end within a block of keys.

    TAIL: the keys do, and nothing else hides them. LOOP: a program has several units of work, see `_unit`, and room
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
                (_attend, (given, 0, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP)),
                (_attend, (given, 1, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP)),
                (_copy, (q, k, v, buffers, barriers, sizes, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, LOOP)),
            ],
            [4, 1],
            [REGISTERS, 504 - 2 * REGISTERS],  # three groups of four warps share 65536 registers: 168 a thread
        )
    else:
        gl.warp_specialize(
            [
                (_attend, (given, 0, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP)),
                (_attend, (given, 1, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP)),
                (_attend, (given, 2, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP)),
                (_copy, (q, k, v, buffers, barriers, sizes, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, LOOP)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, 512 - 3 * REGISTERS],  # four groups: 128 a thread
        )


# --- which work -------------------------------------------------------------------------------------------------------


@gluon.jit
def _unit(unit, sizes, TILE: gl.constexpr, CAUSAL: gl.constexpr, LOOP: gl.constexpr):
    """A head, the tile that the unit begins with, and how many tiles it has.

    A loop that shares causal work evenly has a long and a short tile, which together see the same number of keys as any
    other two, or the tile in the middle. Otherwise one tile, and the longest of `near` heads come first, as the
    processors that are ready first take the next.
    """
    queries, _, _, _, all_heads, near, _ = sizes
    along = gl.cdiv(queries, TILE)
    if CAUSAL and LOOP:
        pairs = gl.cdiv(along, 2)
        low = unit % pairs
        return unit // pairs, along - 1 - low, gl.where(2 * low + 1 == along, 1, 2)
    head, place = grouped(unit, all_heads, along, near)
    return head, along - 1 - place, gl.to_tensor(1)


@gluon.jit
def _blocks(row, queries, keys, ROWS: gl.constexpr, BLOCK: gl.constexpr, CAUSAL: gl.constexpr):
    """Blocks of keys that ROWS queries from `row` see, at least one, and how many of these all of them see whole."""
    blocks = gl.cdiv(keys, BLOCK)
    whole = keys // BLOCK
    if CAUSAL:
        end = row + keys - queries + ROWS
        blocks = gl.maximum(gl.minimum(blocks, gl.cdiv(gl.maximum(end, 0), BLOCK)), 1)
        whole = gl.maximum(end - (ROWS - 1), 0) // BLOCK
    return blocks, whole


@gluon.jit
def _next(stage, parity, STAGES: gl.constexpr):
    wrapped = stage + 1 == STAGES
    return gl.where(wrapped, 0, stage + 1), gl.where(wrapped, parity ^ 1, parity)


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
            head, tile, count = _unit(unit, sizes, TILE, CAUSAL, LOOP)
            for part in range(count):
                row = gl.where(part == 0, tile, gl.cdiv(queries, TILE) - 1 - tile) * TILE
                stage, parity = _copy_tile(
                    q, k, v, buffers, barriers, sizes, head, row, turn, stage, parity,
                    GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, LOOP,
                )  # fmt: skip
                turn += 1
    else:
        head, tile, _ = _unit(gl.program_id(0), sizes, TILE, CAUSAL, LOOP)
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
    blocks, _ = _blocks(row, queries, keys, GROUPS * 64, BLOCK, CAUSAL)
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
        stage, parity = _next(stage, parity, STAGES)
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


# --- attending --------------------------------------------------------------------------------------------------------


@gluon.jit
def _attend(
    given, GROUP: gl.constexpr, GROUPS: gl.constexpr, WIDTH: gl.constexpr, BLOCK: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, UNEVEN: gl.constexpr, TAIL: gl.constexpr, AHEAD: gl.constexpr,
    LOOP: gl.constexpr,
):  # fmt: skip
    """Queries GROUP * 64 and on of every tile."""
    _, _, _, _, sizes, _ = given
    queries, _, _, _, _, _, units = sizes
    TILE: gl.constexpr = GROUPS * 64
    if LOOP:
        turn = gl.to_tensor(0)
        stage = gl.to_tensor(0)
        parity = gl.to_tensor(0)
        for unit in range(gl.program_id(0), units, gl.num_programs(0)):
            head, tile, count = _unit(unit, sizes, TILE, CAUSAL, LOOP)
            for part in range(count):
                row = gl.where(part == 0, tile, gl.cdiv(queries, TILE) - 1 - tile) * TILE
                stage, parity = _attend_tile(
                    given, head, row, turn, stage, parity,
                    GROUP, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP,
                )  # fmt: skip
                turn += 1
    else:
        head, tile, _ = _unit(gl.program_id(0), sizes, TILE, CAUSAL, LOOP)
        _attend_tile(
            given, head, tile * TILE, gl.to_tensor(0), gl.to_tensor(0), gl.to_tensor(0),
            GROUP, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP,
        )  # fmt: skip
    tma.store_wait(0)


@gluon.jit
def _attend_tile(
    given, head, row, turn, stage, parity, GROUP: gl.constexpr,
    GROUPS: gl.constexpr, WIDTH: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    UNEVEN: gl.constexpr, TAIL: gl.constexpr, AHEAD: gl.constexpr, LOOP: gl.constexpr,
):  # fmt: skip
    """The last block of keys comes first: only it, and with UNEVEN the one before, may need a mask."""
    buffers, barriers, out, sums, sizes, scale = given
    queries, keys, heads, _, _, _, _ = sizes
    q_tiles, k_tiles, v_tiles = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK, 16])
    OUTPUT: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, WIDTH, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, OUTPUT, 2)
    HIDES: gl.constexpr = CAUSAL or TAIL
    blocks, whole = _blocks(row, queries, keys, GROUPS * 64, BLOCK, CAUSAL)
    row += GROUP * 64
    place = row + keys - queries
    if CAUSAL and GROUPS * 64 > BLOCK:
        blocks, whole, stage, parity = _own_blocks(
            blocks, row, queries, keys, barriers, stage, parity, BLOCK, STAGES, CAUSAL
        )
    buffer = turn % LOOP * GROUPS + GROUP if LOOP else GROUP
    own = q_tiles.index(buffer).reshape((64, WIDTH))
    mbarrier.wait(q_full.index(buffer), turn // LOOP % 2 if LOOP else 0)
    mbarrier.wait(k_full.index(stage), parity)
    nothing = gl.zeros([64, BLOCK], gl.float32, SCORES)
    scores = warpgroup_mma(own, _turned(k_tiles, stage, WIDTH, BLOCK), nothing, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, deps=[scores])
    mbarrier.arrive(k_empty.index(stage), count=1)
    if LOOP == 2:  # the last output has left its buffer by now
        tma.store_wait(0)
        mbarrier.arrive(q_empty.index((turn + 1) % 2 * GROUPS + GROUP), count=1, pred=turn > 0)
    if HIDES:
        scores = _masked(scores, place, (blocks - 1) * BLOCK, keys, SCORES, BLOCK, CAUSAL)
    top = gl.max(scores, 1)
    shift = gl.where(top == -float("inf"), 0.0, top) if CAUSAL else top  # -inf - -inf would be NaN
    weights = _exp2((scores - gl.expand_dims(shift, 1)) * scale)
    norm = gl.sum(weights, 1)
    total = gl.zeros([64, WIDTH], gl.float32, OUTPUT)
    left = gl.convert_layout(weights.to(q_tiles.dtype), WEIGHTS)
    if AHEAD:
        after, parity_after = _next(stage, parity, STAGES)
        mbarrier.wait(k_full.index(after), parity_after, pred=blocks > 1)
    begin = gl.to_tensor(1)
    if UNEVEN:
        total, left, norm, top, stage, parity = _walk(
            total, left, norm, top, stage, parity, own, buffers, barriers, place, keys, blocks, begin, blocks - whole,
            scale, SCORES, OUTPUT, WEIGHTS, WIDTH, BLOCK, STAGES, CAUSAL, AHEAD, True, GROUPS < 3,
        )  # fmt: skip
        begin = gl.maximum(blocks - whole, 1)
    total, left, norm, top, stage, parity = _walk(
        total, left, norm, top, stage, parity, own, buffers, barriers, place, keys, blocks, begin, blocks,
        scale, SCORES, OUTPUT, WEIGHTS, WIDTH, BLOCK, STAGES, CAUSAL, AHEAD, False, True,
    )  # fmt: skip
    mbarrier.wait(v_full.index(stage), parity)
    values = v_tiles.index(stage).reshape((BLOCK, WIDTH))
    total = warpgroup_mma(left, values, total, is_async=True)
    total = warpgroup_mma_wait(0, deps=[total])
    mbarrier.arrive(v_empty.index(stage), count=1)
    _write(
        total, norm, top, own, q_tiles.index(buffer), out, sums, head, heads, row, queries, scale,
        SCORES, OUTPUT, CAUSAL,
    )  # fmt: skip
    if LOOP == 1:
        tma.store_wait(0)
        mbarrier.arrive(q_empty.index(buffer), count=1)
    return _next(stage, parity, STAGES)


@gluon.jit
def _own_blocks(
    copied, row, queries, keys, barriers, stage, parity, BLOCK: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr
):  # fmt: skip
    """As `_blocks`, but for a group's queries only. It skips the last copied blocks, of which they see nothing.

    Each is released unread once it has arrived: before that its buffer may still belong to another block.
    """
    _, _, k_full, k_empty, v_full, v_empty = barriers
    blocks, whole = _blocks(row, queries, keys, 64, BLOCK, CAUSAL)
    for _ in range(copied - blocks):
        mbarrier.wait(k_full.index(stage), parity)
        mbarrier.arrive(k_empty.index(stage), count=1)
        mbarrier.wait(v_full.index(stage), parity)
        mbarrier.arrive(v_empty.index(stage), count=1)
        stage, parity = _next(stage, parity, STAGES)
    return blocks, whole, stage, parity


@gluon.jit
def _write(
    total, norm, top, own, tile, out, sums, head, heads, row, queries, scale,
    SCORES: gl.constexpr, OUTPUT: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Writes a group's output, through its queries' buffer, and its sums."""
    if CAUSAL:
        norm = gl.where(norm == 0.0, 1.0, norm)  # a query that sees no key gives 0
    total = total / _beside(norm, OUTPUT)
    query = row + gl.arange(0, 64, layout=gl.SliceLayout(1, SCORES))
    gl.store(sums + head.to(gl.int64) * queries + query, top * scale + gl.log2(norm), mask=query < queries)
    own.store(total.to(tile.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(out, [head // heads, head % heads, row, 0], tile)


@gluon.jit
def _walk(
    total, left, norm, top, stage, parity, own, buffers, barriers, place, keys, blocks, begin, end, scale,
    SCORES: gl.constexpr, OUTPUT: gl.constexpr, WEIGHTS: gl.constexpr, WIDTH: gl.constexpr, BLOCK: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, AHEAD: gl.constexpr, HIDES: gl.constexpr, PAIRED: gl.constexpr,
):  # fmt: skip
    """Blocks number `begin` to `end`, counted from the last. Every query sees a key of each, if it sees any.

    Not so if a block is shorter than a group's queries. left: weights of the block before, not yet multiplied.
    HIDES: some keys are hidden. PAIRED: scores and the product of the block before run together, which takes
    more registers than a third group leaves for masks.
    """
    _, k_tiles, v_tiles = buffers
    _, _, k_full, k_empty, v_full, v_empty = barriers
    nothing = gl.zeros([64, BLOCK], gl.float32, SCORES)
    for turn in range(begin, end):
        before = stage
        parity_before = parity
        stage, parity = _next(stage, parity, STAGES)
        if not AHEAD:
            mbarrier.wait(k_full.index(stage), parity)
        if PAIRED:
            scores = warpgroup_mma(own, _turned(k_tiles, stage, WIDTH, BLOCK), nothing, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index(before), parity_before)
        values = v_tiles.index(before).reshape((BLOCK, WIDTH))
        total = warpgroup_mma(left, values, total, is_async=True)
        if PAIRED:
            scores = warpgroup_mma_wait(1, deps=[scores])
        else:
            total, left = warpgroup_mma_wait(0, deps=[total, left])
            mbarrier.arrive(v_empty.index(before), count=1)
            scores = warpgroup_mma(own, _turned(k_tiles, stage, WIDTH, BLOCK), nothing, use_acc=False, is_async=True)
            scores = warpgroup_mma_wait(0, deps=[scores])
        mbarrier.arrive(k_empty.index(stage), count=1)
        if HIDES:
            scores = _masked(scores, place, (blocks - 1 - turn) * BLOCK, keys, SCORES, BLOCK, CAUSAL)
        raised = gl.maximum(top, gl.max(scores, 1))
        # Scaled after the maximum is subtracted, for large scores: one fused operation would leave what a product was
        # rounded by.
        shift = gl.where(raised == -float("inf"), 0.0, raised) if HIDES and BLOCK < 64 else raised
        weights = _exp2((scores - gl.expand_dims(shift, 1)) * scale)
        fade = _exp2((top - shift) * scale)
        top = raised
        norm = norm * fade + gl.sum(weights, 1)
        if AHEAD:  # for the next turn: the assembler then does not wait for the products before the exponentials
            after, parity_after = _next(stage, parity, STAGES)
            mbarrier.wait(k_full.index(after), parity_after, pred=turn + 1 < blocks)
        if PAIRED:
            total, left = warpgroup_mma_wait(0, deps=[total, left])
            mbarrier.arrive(v_empty.index(before), count=1)
        total = total * _beside(fade, OUTPUT)
        left = gl.convert_layout(weights.to(k_tiles.dtype), WEIGHTS)
    return total, left, norm, top, stage, parity


@gluon.jit
def _turned(tiles, stage, WIDTH: gl.constexpr, BLOCK: gl.constexpr):
    return tiles.index(stage).reshape((BLOCK, WIDTH)).permute((1, 0))


@gluon.jit
def _beside(each, OUTPUT: gl.constexpr):
    """One number a query, in the layout of its output: threads have the same queries there and in its scores."""
    return gl.expand_dims(gl.convert_layout(each, gl.SliceLayout(1, OUTPUT)), 1)


@gluon.jit
def _masked(scores, place, first, keys, SCORES: gl.constexpr, BLOCK: gl.constexpr, CAUSAL: gl.constexpr):
    """Scores of keys from `first` for queries from this place, -inf for hidden keys. No place is beyond the keys."""
    key = gl.expand_dims(first + gl.arange(0, BLOCK, layout=gl.SliceLayout(0, SCORES)), 0)
    if CAUSAL:
        own = gl.expand_dims(place + gl.arange(0, 64, layout=gl.SliceLayout(1, SCORES)), 1)
        return gl.where(own >= key, scores, -float("inf"))
    return gl.where(key < keys, scores, -float("inf"))


@gluon.jit
def _exp2(x):
    """Exactly here, not behind the next wait: the products of the block before continue in the meantime."""
    return gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], gl.float32, is_pure=False, pack=1)
