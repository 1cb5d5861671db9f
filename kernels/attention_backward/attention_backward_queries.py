"""The kernel for dq. Its programs own queries and walk the keys that they see."""

import triton
import triton.language as tl

from _attention import ADDED, LOWEST, OF_KEYS, kept, load_part, load_rows, mask_from, masked, seen, spans, store_rows


@triton.jit(do_not_specialize=["tiles", "left", "right", "threshold", "seed"])
def _queries_kernel(
    q, k, v, grad, dq, sums, delta, mask, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c,
    grad_b, grad_h, grad_r, grad_c, mask_b, mask_h, mask_r, mask_c, factor,
    tiles, heads, group, queries, keys, left, right, scale2, scale, threshold, upscale, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    TAIL: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    if LOOP:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            _query_tile(
                q, k, v, grad, dq, sums, delta, mask, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c,
                grad_b, grad_h, grad_r, grad_c, mask_b, mask_h, mask_r, mask_c, factor,
                tile, heads, group, queries, keys, left, right, scale2, scale, threshold, upscale, seed,
                WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL,
            )  # fmt: skip
    else:
        _query_tile(
            q, k, v, grad, dq, sums, delta, mask, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c,
            grad_b, grad_h, grad_r, grad_c, mask_b, mask_h, mask_r, mask_c, factor,
            tl.program_id(0), heads, group, queries, keys, left, right, scale2, scale, threshold, upscale, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL,
        )  # fmt: skip


@triton.jit
def _query_tile(
    q_from, k_from, v_from, grad_from, dq_to, sums, delta, mask,
    q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, grad_b, grad_h, grad_r, grad_c,
    mask_b, mask_h, mask_r, mask_c, factor,
    tile, heads, group, queries, keys, left, right, scale2, scale, threshold, upscale, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """BLOCK_M queries of one head."""
    blocks = tl.cdiv(queries, BLOCK_M)
    which = tile // blocks
    block = tile % blocks
    if RIGHT:
        block = blocks - 1 - block  # those with most keys begin first
    batch = which // heads
    head = which % heads
    first = block * BLOCK_M
    row = first + tl.arange(0, BLOCK_M)
    q = load_rows(q_from, batch, head, first, queries, q_b, q_h, q_r, q_c, WIDTH, PADDED, BLOCK_M, TMA)
    grad = load_rows(
        grad_from, batch, head, first, queries, grad_b, grad_h, grad_r, grad_c, WIDTH, PADDED, BLOCK_M, TMA
    )
    base = tl.cast(which, tl.int64) * queries
    log = tl.load(sums + base + row, mask=row < queries, other=float("inf"))
    taken = tl.load(delta + base + row, mask=row < queries, other=0.0)
    dq = tl.zeros((BLOCK_M, PADDED), tl.float32)
    begin, whole, whole_end, end = spans(first + keys - queries, BLOCK_M, left, right, keys, BLOCK_N, LEFT, RIGHT, TAIL)
    if MASK:
        whole_end = begin
    if MASK > ADDED:
        mask_c = batch * mask_b + head * mask_h + first
    elif MASK:
        mask = mask_from(mask, batch, head, row, queries, mask_b, mask_h, mask_r, MASK)
    if LEFT and not MASK:
        dq = _walk_keys(
            dq, q, grad, log, taken, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_c, factor,
            begin, whole, which, batch, head // group, first, queries, keys, left, right, scale2, threshold, upscale,
            seed, WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, True,
        )  # fmt: skip
    if not MASK:
        dq = _walk_keys(
            dq, q, grad, log, taken, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_c, factor,
            whole, whole_end, which, batch, head // group, first, queries, keys, left, right, scale2, threshold,
            upscale, seed, WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, False,
        )  # fmt: skip
    if (RIGHT or TAIL) or MASK:  # triton-ascend takes two at a time
        dq = _walk_keys(
            dq, q, grad, log, taken, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_c, factor,
            whole_end, end, which, batch, head // group, first, queries, keys, left, right, scale2, threshold,
            upscale, seed, WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, True,
        )  # fmt: skip
    store_rows(dq_to, dq * scale, batch, head, heads, first, queries, WIDTH, PADDED, BLOCK_M, TMA)


@triton.jit
def _walk_keys(
    dq, q, grad, log, taken, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_c, factor,
    begin, end, which, batch, head, first, queries, keys, left, right, scale2, threshold, upscale, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr, HIDES: tl.constexpr,
):  # fmt: skip
    """Adds the keys of [begin, end), as tiles (queries, keys). HIDES: some may be hidden from some queries.

    mask and mask_c as in attention's `_walk`.
    """
    place = first + keys - queries + tl.arange(0, BLOCK_M)
    for n in tl.range(begin, end, BLOCK_N):
        k = load_rows(k_from, batch, head, n, keys, k_b, k_h, k_r, k_c, WIDTH, PADDED, BLOCK_N, TMA)
        v = load_rows(v_from, batch, head, n, keys, v_b, v_h, v_r, v_c, WIDTH, PADDED, BLOCK_N, TMA)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if MASK > ADDED:
            s = masked(s, mask.load([mask_c, n]), factor, MASK)
        elif MASK > OF_KEYS:
            s = masked(s, load_part(mask[:, None], (n + tl.arange(0, BLOCK_N))[None, :], keys, mask_c), factor, MASK)
        p = tl.exp2(s * scale2 - log[:, None])
        if HIDES:
            key = n + tl.arange(0, BLOCK_N)
            visible = seen(place[:, None], key[None, :], left, right, keys, LEFT, RIGHT)
            if MASK == OF_KEYS:
                visible = visible & (tl.load(mask + key.to(tl.int64) * mask_c, mask=key < keys, other=0) != 0)[None, :]
            elif MASK:
                visible = visible & ~(s <= LOWEST)
            p = tl.where(visible, p, 0.0)
        dp = tl.dot(grad, tl.trans(v), input_precision="ieee")
        if DROPOUT:
            dp = tl.where(kept(threshold, seed, which, first, n, BLOCK_M, BLOCK_N), dp * upscale, 0.0)
        ds = p * (dp - taken[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    return dq
