"""The kernel for dk and dv. Its programs own keys and walk the queries that see them."""

import triton
import triton.language as tl

from _attention import ADDED, LOWEST, OF_KEYS, kept, load_part, load_rows, mask_from, masked, seen, spans, store_rows


@triton.jit(do_not_specialize=["tiles", "left", "right", "threshold", "seed"])
def _keys_kernel(
    q, k, v, grad, dk, dv, sums, delta, mask, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c,
    grad_b, grad_h, grad_r, grad_c, mask_b, mask_h, mask_r, mask_c, factor,
    tiles, heads, group, queries, keys, left, right, scale2, scale, threshold, upscale, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    """scale2: scale times log2(e). upscale: dropout's factor of the weights that stay."""
    if LOOP:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            _key_tile(
                q, k, v, grad, dk, dv, sums, delta, mask, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c,
                grad_b, grad_h, grad_r, grad_c, mask_b, mask_h, mask_r, mask_c, factor,
                tile, heads, group, queries, keys, left, right, scale2, scale, threshold, upscale, seed,
                WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT,
            )  # fmt: skip
    else:
        _key_tile(
            q, k, v, grad, dk, dv, sums, delta, mask, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c,
            grad_b, grad_h, grad_r, grad_c, mask_b, mask_h, mask_r, mask_c, factor,
            tl.program_id(0), heads, group, queries, keys, left, right, scale2, scale, threshold, upscale, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT,
        )  # fmt: skip


@triton.jit
def _key_tile(
    q_from, k_from, v_from, grad_from, dk_to, dv_to, sums, delta, mask,
    q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, grad_b, grad_h, grad_r, grad_c,
    mask_b, mask_h, mask_r, mask_c, factor,
    tile, heads, group, queries, keys, left, right, scale2, scale, threshold, upscale, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """BLOCK_N keys of one key head: the queries of all its heads one after another, so that nothing is added twice."""
    blocks = tl.cdiv(keys, BLOCK_N)
    which = tile // blocks
    first = tile % blocks * BLOCK_N
    key_heads = heads // group
    batch = which // key_heads
    key_head = which % key_heads
    k = load_rows(k_from, batch, key_head, first, keys, k_b, k_h, k_r, k_c, WIDTH, PADDED, BLOCK_N, TMA)
    v = load_rows(v_from, batch, key_head, first, keys, v_b, v_h, v_r, v_c, WIDTH, PADDED, BLOCK_N, TMA)
    dk = tl.zeros((BLOCK_N, PADDED), tl.float32)
    dv = tl.zeros((BLOCK_N, PADDED), tl.float32)
    begin, whole, whole_end, end = spans(
        first - (keys - queries), BLOCK_N, right, left, queries, BLOCK_M, RIGHT, LEFT, False
    )
    for member in tl.range(0, group):
        head = key_head * group + member
        if RIGHT:
            dk, dv = _walk_queries(
                dk, dv, k, v, q_from, grad_from, sums, delta, q_b, q_h, q_r, q_c, grad_b, grad_h, grad_r, grad_c,
                mask, mask_b, mask_h, mask_r, mask_c, factor,
                begin, whole, batch, head, heads, first, queries, keys, left, right, scale2, threshold, upscale, seed,
                WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, True,
            )  # fmt: skip
        dk, dv = _walk_queries(
            dk, dv, k, v, q_from, grad_from, sums, delta, q_b, q_h, q_r, q_c, grad_b, grad_h, grad_r, grad_c,
            mask, mask_b, mask_h, mask_r, mask_c, factor,
            whole, whole_end, batch, head, heads, first, queries, keys, left, right, scale2, threshold, upscale, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, False,
        )  # fmt: skip
        if LEFT:
            dk, dv = _walk_queries(
                dk, dv, k, v, q_from, grad_from, sums, delta, q_b, q_h, q_r, q_c, grad_b, grad_h, grad_r, grad_c,
                mask, mask_b, mask_h, mask_r, mask_c, factor,
                whole_end, end, batch, head, heads, first, queries, keys, left, right, scale2, threshold, upscale, seed,
                WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, True,
            )  # fmt: skip
    if MASK == OF_KEYS:  # a hidden key's row is its own: nothing that went into it went anywhere else
        key = first + tl.arange(0, BLOCK_N)
        place = mask + tl.cast(batch, tl.int64) * mask_b + key.to(tl.int64) * mask_c
        visible = (tl.load(place, mask=key < keys, other=0) != 0)[:, None]
        dk = tl.where(visible, dk, 0.0)
        dv = tl.where(visible, dv, 0.0)
    if DROPOUT:
        dv = dv * upscale
    store_rows(dv_to, dv, batch, key_head, key_heads, first, keys, WIDTH, PADDED, BLOCK_N, TMA)
    store_rows(dk_to, dk * scale, batch, key_head, key_heads, first, keys, WIDTH, PADDED, BLOCK_N, TMA)


@triton.jit
def _walk_queries(
    dk, dv, k, v, q_from, grad_from, sums, delta, q_b, q_h, q_r, q_c, grad_b, grad_h, grad_r, grad_c,
    mask, mask_b, mask_h, mask_r, mask_c, factor,
    begin, end, batch, head, heads, first, queries, keys, left, right, scale2, threshold, upscale, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr, HIDES: tl.constexpr,
):  # fmt: skip
    """Adds the queries of [begin, end), as tiles (keys, queries). HIDES: some may not see some of the keys."""
    key = first + tl.arange(0, BLOCK_N)
    which = batch * heads + head
    base = tl.cast(which, tl.int64) * queries
    for m in tl.range(begin, end, BLOCK_M):
        row = m + tl.arange(0, BLOCK_M)
        q = load_rows(q_from, batch, head, m, queries, q_b, q_h, q_r, q_c, WIDTH, PADDED, BLOCK_M, TMA)
        s = tl.dot(k, tl.trans(q), input_precision="ieee")
        # Rows beyond the last query weigh nothing: exp2(-inf).
        log = tl.load(sums + base + row, mask=row < queries, other=float("inf"))
        if MASK > ADDED:
            part = mask.load([batch * mask_b + head * mask_h + m, first])
            s = masked(s, tl.trans(part), factor, MASK)
        elif MASK > OF_KEYS:
            each = mask_from(mask, batch, head, row, queries, mask_b, mask_h, mask_r, MASK)
            s = masked(s, load_part(each[None, :], key[:, None], keys, mask_c), factor, MASK)
        p = tl.exp2(s * scale2 - log[None, :])
        if MASK > OF_KEYS:
            p = tl.where(s <= LOWEST, 0.0, p)
        if HIDES:
            visible = seen((row + keys - queries)[None, :], key[:, None], left, right, keys, LEFT, RIGHT)
            p = tl.where(visible, p, 0.0)
        grad = load_rows(
            grad_from, batch, head, m, queries, grad_b, grad_h, grad_r, grad_c, WIDTH, PADDED, BLOCK_M, TMA
        )
        if DROPOUT:
            stays = tl.trans(kept(threshold, seed, which, m, first, BLOCK_M, BLOCK_N))
            dv = tl.dot(tl.where(stays, p, 0.0).to(grad.dtype), grad, dv, input_precision="ieee")
        else:
            dv = tl.dot(p.to(grad.dtype), grad, dv, input_precision="ieee")
        dp = tl.dot(v, tl.trans(grad), input_precision="ieee")
        if DROPOUT:
            dp = tl.where(stays, dp * upscale, 0.0)
        taken = tl.load(delta + base + row, mask=row < queries, other=0.0)
        ds = p * (dp - taken[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
    return dk, dv
