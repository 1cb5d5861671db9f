"""The work of a group of warps of attention_groups.py on the blocks that are copied for it."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from _groups import grouped

# --- which work -------------------------------------------------------------------------------------------------------


@gluon.jit
def unit_at(unit, sizes, TILE: gl.constexpr, CAUSAL: gl.constexpr, LOOP: gl.constexpr):
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
def blocks_seen(row, queries, keys, ROWS: gl.constexpr, BLOCK: gl.constexpr, CAUSAL: gl.constexpr):
    """Blocks of keys that ROWS queries from `row` see, at least one, and how many of these all of them see whole."""
    blocks = gl.cdiv(keys, BLOCK)
    whole = keys // BLOCK
    if CAUSAL:
        end = row + keys - queries + ROWS
        blocks = gl.maximum(gl.minimum(blocks, gl.cdiv(gl.maximum(end, 0), BLOCK)), 1)
        whole = gl.maximum(end - (ROWS - 1), 0) // BLOCK
    return blocks, whole


@gluon.jit
def next_stage(stage, parity, STAGES: gl.constexpr):
    wrapped = stage + 1 == STAGES
    return gl.where(wrapped, 0, stage + 1), gl.where(wrapped, parity ^ 1, parity)


# --- attending --------------------------------------------------------------------------------------------------------


@gluon.jit
def attend(
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
            head, tile, count = unit_at(unit, sizes, TILE, CAUSAL, LOOP)
            for part in range(count):
                row = gl.where(part == 0, tile, gl.cdiv(queries, TILE) - 1 - tile) * TILE
                stage, parity = _attend_tile(
                    given, head, row, turn, stage, parity,
                    GROUP, GROUPS, WIDTH, BLOCK, STAGES, CAUSAL, UNEVEN, TAIL, AHEAD, LOOP,
                )  # fmt: skip
                turn += 1
    else:
        head, tile, _ = unit_at(gl.program_id(0), sizes, TILE, CAUSAL, LOOP)
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
    blocks, whole = blocks_seen(row, queries, keys, GROUPS * 64, BLOCK, CAUSAL)
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
        after, parity_after = next_stage(stage, parity, STAGES)
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
    return next_stage(stage, parity, STAGES)


@gluon.jit
def _own_blocks(
    copied, row, queries, keys, barriers, stage, parity, BLOCK: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr
):  # fmt: skip
    """As `blocks_seen`, but for a group's queries only. It skips the last copied blocks, of which they see nothing.

    Each is released unread once it has arrived: before that its buffer may still belong to another block.
    """
    _, _, k_full, k_empty, v_full, v_empty = barriers
    blocks, whole = blocks_seen(row, queries, keys, 64, BLOCK, CAUSAL)
    for _ in range(copied - blocks):
        mbarrier.wait(k_full.index(stage), parity)
        mbarrier.arrive(k_empty.index(stage), count=1)
        mbarrier.wait(v_full.index(stage), parity)
        mbarrier.arrive(v_empty.index(stage), count=1)
        stage, parity = next_stage(stage, parity, STAGES)
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
        stage, parity = next_stage(stage, parity, STAGES)
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
            after, parity_after = next_stage(stage, parity, STAGES)
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
