"""Attention's forward pass, width 128 and 16 bits, on Hopper: twelve warps in three groups, each with a task.

One group only copies: queries once a tile, then keys and values block by block. Two attend, 64 queries of the tile
each; while one computes exponentials, tensor cores multiply for the other, and the products of its own last weights
with their values are under way too.
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

__all__ = ["PADDED", "ROWS", "available", "launch"]

PADDED = 128
"""Padded width of a head."""
ROWS = 128
"""Queries of a tile, and keys of a block."""
REGISTERS = 240
"""Of a thread that attends: 64 scores, 64 of the output, weights and the rest; four warps that copy keep 24."""


def launch(q, k, v, out, sums, scale, causal, config, limits) -> bool:
    """Writes attention's output and sums; False, and nothing done, where there are more tiles than programs.

    scale: times log2(e). causal: a query sees keys up to its place, else all. config: its stages (two or three; two if
    persistent), `ahead` (each group waits for the next keys before its products are done) and `persistent`.
    """
    (batch, heads, queries, _), (_, key_heads, keys, width) = q.shape, k.shape
    along = _launch.tiles(queries, ROWS)
    units = batch * heads * (_launch.tiles(along, 2) if causal and config.persistent else along)
    if batch * heads * along > min(limits.programs, limits.grid[0]):
        return False
    programs = min(units, limits.processors) if config.persistent else units
    near = heads_at_once(keys, heads // key_heads, width * q.element_size(), limits) if causal else 1
    _attention_group_kernel[(programs,)](
        *(descriptor(each, 1, 1, rows, PADDED) for each, rows in ((q, 64), (k, ROWS), (v, ROWS), (out, 64))), sums,
        queries, keys, heads, heads // key_heads, batch * heads, near, units, scale,
        STAGES=config.stages, CAUSAL=causal, UNEVEN=causal and (keys - queries) % ROWS > 0, TAIL=keys % ROWS > 0,
        AHEAD=config.ahead, LOOP=config.persistent, REGISTERS=REGISTERS, num_warps=4,
    )  # fmt: skip
    return True


def heads_at_once(keys: int, share: int, row_bytes: int, limits: _launch.Limits) -> int:
    """Heads whose tiles take turns, the longest of all first: as many as leave half of the shared cache to others."""
    return max(limits.l2_bytes // 2 // (2 * keys * row_bytes), 1) * share


@gluon.jit(do_not_specialize=["queries", "keys", "heads", "share", "all_heads", "near", "units"])
def _attention_group_kernel(
    q, k, v, out, sums, queries, keys, heads, share, all_heads, near, units, scale,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, UNEVEN: gl.constexpr, TAIL: gl.constexpr, AHEAD: gl.constexpr,
    LOOP: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """UNEVEN: a tile of queries ends within a block of keys. LOOP: a program has several units of work, see `_unit`."""
    # A tile's queries, in a loop beside those of the next one; its output leaves from there too.
    TURNS: gl.constexpr = 2 if LOOP else 1
    q_tiles = gl.allocate_shared_memory(q.dtype, [2 * TURNS, 1, 1, 64, 128], q.layout)
    k_tiles = gl.allocate_shared_memory(k.dtype, [STAGES, 1, 1, 128, 128], k.layout)
    v_tiles = gl.allocate_shared_memory(v.dtype, [STAGES, 1, 1, 128, 128], v.layout)
    # A buffer is full when it has arrived, and empty when all groups that read it have.
    q_full = gl.allocate_shared_memory(gl.int64, [2 * TURNS, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [2 * TURNS, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for buffer in gl.static_range(2 * TURNS):
        mbarrier.init(q_full.index(buffer), count=1)
        mbarrier.init(q_empty.index(buffer), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(v_full.index(stage), count=1)
        mbarrier.init(k_empty.index(stage), count=2)
        mbarrier.init(v_empty.index(stage), count=2)
    fence_async_shared()
    buffers = (q_tiles, k_tiles, v_tiles)
    barriers = (q_full, q_empty, k_full, k_empty, v_full, v_empty)
    sizes = (queries, keys, heads, share, all_heads, near, units)
    gl.warp_specialize(
        [
            (_attend, (buffers, barriers, out, sums, sizes, scale, 0, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP)),
            (_attend, (buffers, barriers, out, sums, sizes, scale, 1, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP)),
            (_copy, (q, k, v, buffers, barriers, sizes, STAGES, CAUSAL, LOOP)),
        ],
        [4, 1],
        [REGISTERS, 504 - 2 * REGISTERS],  # three groups of four warps share 65536 registers: 168 a thread
    )


# --- which work -------------------------------------------------------------------------------------------------------


@gluon.jit
def _unit(unit, sizes, CAUSAL: gl.constexpr, LOOP: gl.constexpr):
    """A head, the tile that the unit begins with, and how many tiles it has.

    One; in a loop of programs that share out causal work evenly, a long and a short one that together see the same
    number of keys as any others, or the tile in the middle. Else the longest of `near` heads come first, as the
    processors that are ready first take what is next.
    """
    queries, _, _, _, all_heads, near, _ = sizes
    along = gl.cdiv(queries, 128)
    if CAUSAL and LOOP:
        pairs = gl.cdiv(along, 2)
        low = unit % pairs
        return unit // pairs, along - 1 - low, gl.where(2 * low + 1 == along, 1, 2)
    head, place = grouped(unit, all_heads, along, near)
    return head, along - 1 - place, gl.to_tensor(1)


@gluon.jit
def _blocks(row, queries, keys, CAUSAL: gl.constexpr):
    """Blocks of keys that the tile of queries from `row` on sees, one at least, and how many all of them see whole."""
    blocks = gl.cdiv(keys, 128)
    whole = keys // 128
    if CAUSAL:
        end = row + keys - queries + 128
        blocks = gl.maximum(gl.minimum(blocks, gl.cdiv(gl.maximum(end, 0), 128)), 1)
        whole = gl.maximum(end - 127, 0) // 128
    return blocks, whole


@gluon.jit
def _next(stage, parity, STAGES: gl.constexpr):
    wrapped = stage + 1 == STAGES
    return gl.where(wrapped, 0, stage + 1), gl.where(wrapped, parity ^ 1, parity)


# --- copying ----------------------------------------------------------------------------------------------------------


@gluon.jit
def _copy(q, k, v, buffers, barriers, sizes, STAGES: gl.constexpr, CAUSAL: gl.constexpr, LOOP: gl.constexpr):
    """All that the other two groups need, in their order, each into its buffer as soon as that is empty."""
    queries, _, _, _, _, _, units = sizes
    if LOOP:
        turn = gl.to_tensor(0)
        stage = gl.to_tensor(0)
        parity = gl.to_tensor(1)  # as if all had been emptied before
        for unit in range(gl.program_id(0), units, gl.num_programs(0)):
            head, tile, count = _unit(unit, sizes, CAUSAL, LOOP)
            for part in range(count):
                row = gl.where(part == 0, tile, gl.cdiv(queries, 128) - 1 - tile) * 128
                stage, parity = _copy_tile(
                    q, k, v, buffers, barriers, sizes, head, row, turn, stage, parity, STAGES, CAUSAL, LOOP
                )
                turn += 1
    else:
        head, tile, _ = _unit(gl.program_id(0), sizes, CAUSAL, LOOP)
        _copy_tile(
            q, k, v, buffers, barriers, sizes, head, tile * 128, gl.to_tensor(0), gl.to_tensor(0), gl.to_tensor(1),
            STAGES, CAUSAL, LOOP,
        )  # fmt: skip


@gluon.jit
def _copy_tile(
    q, k, v, buffers, barriers, sizes, head, row, turn, stage, parity,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, LOOP: gl.constexpr,
):  # fmt: skip
    queries, keys, heads, share, _, _, _ = sizes
    q_tiles, k_tiles, v_tiles = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    batch = head // heads
    head = head % heads
    for group in gl.static_range(2):
        buffer = turn % 2 * 2 + group if LOOP else group
        if LOOP:
            mbarrier.wait(q_empty.index(buffer), turn // 2 % 2 ^ 1)
        arrived = q_full.index(buffer)
        mbarrier.expect(arrived, 64 * 128 * 2)
        tma.async_copy_global_to_shared(q, [batch, head, row + group * 64, 0], arrived, q_tiles.index(buffer))
    head = head // share
    blocks, _ = _blocks(row, queries, keys, CAUSAL)
    for turned in range(blocks):
        first = (blocks - 1 - turned) * 128
        mbarrier.wait(k_empty.index(stage), parity)
        mbarrier.expect(k_full.index(stage), 128 * 128 * 2)
        tma.async_copy_global_to_shared(k, [batch, head, first, 0], k_full.index(stage), k_tiles.index(stage))
        mbarrier.wait(v_empty.index(stage), parity)
        mbarrier.expect(v_full.index(stage), 128 * 128 * 2)
        tma.async_copy_global_to_shared(v, [batch, head, first, 0], v_full.index(stage), v_tiles.index(stage))
        stage, parity = _next(stage, parity, STAGES)
    return stage, parity


# --- attending --------------------------------------------------------------------------------------------------------


@gluon.jit
def _attend(
    buffers, barriers, out, sums, sizes, scale, GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    UNEVEN: gl.constexpr, TAIL: gl.constexpr, AHEAD: gl.constexpr, LOOP: gl.constexpr,
):  # fmt: skip
    """Queries GROUP * 64 and on of every tile."""
    queries, _, _, _, _, _, units = sizes
    if LOOP:
        turn = gl.to_tensor(0)
        stage = gl.to_tensor(0)
        parity = gl.to_tensor(0)
        for unit in range(gl.program_id(0), units, gl.num_programs(0)):
            head, tile, count = _unit(unit, sizes, CAUSAL, LOOP)
            for part in range(count):
                row = gl.where(part == 0, tile, gl.cdiv(queries, 128) - 1 - tile) * 128
                stage, parity = _attend_tile(
                    buffers, barriers, out, sums, sizes, scale, head, row, turn, stage, parity,
                    GROUP, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP,
                )  # fmt: skip
                turn += 1
    else:
        head, tile, _ = _unit(gl.program_id(0), sizes, CAUSAL, LOOP)
        _attend_tile(
            buffers, barriers, out, sums, sizes, scale, head, tile * 128,
            gl.to_tensor(0), gl.to_tensor(0), gl.to_tensor(0),
            GROUP, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP,
        )  # fmt: skip
    tma.store_wait(0)


@gluon.jit
def _attend_tile(
    buffers, barriers, out, sums, sizes, scale, head, row, turn, stage, parity, GROUP: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, UNEVEN: gl.constexpr, TAIL: gl.constexpr, AHEAD: gl.constexpr,
    LOOP: gl.constexpr,
):  # fmt: skip
    """The last block of keys comes first: it, and UNEVEN the one before, are those that may have to be masked."""
    queries, keys, heads, _, _, _, _ = sizes
    q_tiles, k_tiles, v_tiles = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 128, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, SCORES, 2)
    HIDES: gl.constexpr = CAUSAL or TAIL
    blocks, whole = _blocks(row, queries, keys, CAUSAL)
    row += GROUP * 64
    place = row + keys - queries
    buffer = turn % 2 * 2 + GROUP if LOOP else GROUP
    own = q_tiles.index(buffer).reshape((64, 128))
    mbarrier.wait(q_full.index(buffer), turn // 2 % 2 if LOOP else 0)
    mbarrier.wait(k_full.index(stage), parity)
    nothing = gl.zeros([64, 128], gl.float32, SCORES)
    scores = warpgroup_mma(own, _turned(k_tiles, stage), nothing, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, deps=[scores])
    mbarrier.arrive(k_empty.index(stage), count=1)
    if LOOP:  # the output before has left its buffer meanwhile
        tma.store_wait(0)
        mbarrier.arrive(q_empty.index((turn + 1) % 2 * 2 + GROUP), count=1, pred=turn > 0)
    if HIDES:
        scores = _masked(scores, place, (blocks - 1) * 128, keys, SCORES, CAUSAL)
    top = gl.max(scores, 1)
    shift = gl.where(top == -float("inf"), 0.0, top) if CAUSAL else top  # -inf - -inf would be NaN
    weights = _exp2((scores - gl.expand_dims(shift, 1)) * scale)
    norm = gl.sum(weights, 1)
    total = gl.zeros([64, 128], gl.float32, SCORES)
    left = gl.convert_layout(weights.to(q_tiles.dtype), WEIGHTS)
    if AHEAD:
        after, parity_after = _next(stage, parity, STAGES)
        mbarrier.wait(k_full.index(after), parity_after, pred=blocks > 1)
    begin = gl.to_tensor(1)
    if UNEVEN:
        total, left, norm, top, stage, parity = _walk(
            total, left, norm, top, stage, parity, own, buffers, barriers, place, keys, blocks, begin, blocks - whole,
            scale, SCORES, WEIGHTS, STAGES, CAUSAL, AHEAD, True,
        )  # fmt: skip
        begin = gl.maximum(blocks - whole, 1)
    total, left, norm, top, stage, parity = _walk(
        total, left, norm, top, stage, parity, own, buffers, barriers, place, keys, blocks, begin, blocks,
        scale, SCORES, WEIGHTS, STAGES, CAUSAL, AHEAD, False,
    )  # fmt: skip
    mbarrier.wait(v_full.index(stage), parity)
    values = v_tiles.index(stage).reshape((128, 128))
    total = warpgroup_mma(left, values, total, is_async=True)
    total = warpgroup_mma_wait(0, deps=[total])
    mbarrier.arrive(v_empty.index(stage), count=1)
    if CAUSAL:
        norm = gl.where(norm == 0.0, 1.0, norm)  # a query that sees no key gives 0
    total = total / gl.expand_dims(norm, 1)
    query = row + gl.arange(0, 64, layout=gl.SliceLayout(1, SCORES))
    gl.store(sums + head.to(gl.int64) * queries + query, top * scale + gl.log2(norm), mask=query < queries)
    own.store(total.to(q_tiles.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(out, [head // heads, head % heads, row, 0], q_tiles.index(buffer))
    return _next(stage, parity, STAGES)


@gluon.jit
def _walk(
    total, left, norm, top, stage, parity, own, buffers, barriers, place, keys, blocks, begin, end, scale,
    SCORES: gl.constexpr, WEIGHTS: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, AHEAD: gl.constexpr,
    HIDES: gl.constexpr,
):  # fmt: skip
    """Blocks number `begin` to `end` from the last one on, of each of which every query sees a key, if it sees any.

    left: weights of the block before, not yet multiplied. HIDES: some keys are hidden.
    """
    _, k_tiles, v_tiles = buffers
    _, _, k_full, k_empty, v_full, v_empty = barriers
    nothing = gl.zeros([64, 128], gl.float32, SCORES)
    for turn in range(begin, end):
        before = stage
        parity_before = parity
        stage, parity = _next(stage, parity, STAGES)
        if not AHEAD:
            mbarrier.wait(k_full.index(stage), parity)
        scores = warpgroup_mma(own, _turned(k_tiles, stage), nothing, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index(before), parity_before)
        values = v_tiles.index(before).reshape((128, 128))
        total = warpgroup_mma(left, values, total, is_async=True)
        scores = warpgroup_mma_wait(1, deps=[scores])
        mbarrier.arrive(k_empty.index(stage), count=1)
        if HIDES:
            scores = _masked(scores, place, (blocks - 1 - turn) * 128, keys, SCORES, CAUSAL)
        raised = gl.maximum(top, gl.max(scores, 1))
        # Scaled after the maximum is taken off, for large scores: one fused operation would leave what a product was
        # rounded by.
        weights = _exp2((scores - gl.expand_dims(raised, 1)) * scale)
        fade = _exp2((top - raised) * scale)
        top = raised
        norm = norm * fade + gl.sum(weights, 1)
        if AHEAD:  # for the next turn: the assembler then does not wait for the products before the exponentials
            after, parity_after = _next(stage, parity, STAGES)
            mbarrier.wait(k_full.index(after), parity_after, pred=turn + 1 < blocks)
        total, left = warpgroup_mma_wait(0, deps=[total, left])
        mbarrier.arrive(v_empty.index(before), count=1)
        total = total * gl.expand_dims(fade, 1)
        left = gl.convert_layout(weights.to(k_tiles.dtype), WEIGHTS)
    return total, left, norm, top, stage, parity


@gluon.jit
def _turned(tiles, stage):
    return tiles.index(stage).reshape((128, 128)).permute((1, 0))


@gluon.jit
def _masked(scores, place, first, keys, SCORES: gl.constexpr, CAUSAL: gl.constexpr):
    """Scores of keys from `first` on for queries from this place on, -inf where hidden. No place is beyond the keys."""
    key = gl.expand_dims(first + gl.arange(0, 128, layout=gl.SliceLayout(0, SCORES)), 0)
    if CAUSAL:
        own = gl.expand_dims(place + gl.arange(0, 64, layout=gl.SliceLayout(1, SCORES)), 1)
        return gl.where(own >= key, scores, -float("inf"))
    return gl.where(key < keys, scores, -float("inf"))


@gluon.jit
def _exp2(x):
    """At this very place, not behind the wait that follows: the products of the block before go on meanwhile."""
    return gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], gl.float32, is_pure=False, pack=1)
