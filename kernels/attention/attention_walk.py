"""Common to attention's kernels: the walk over keys under a running maximum, and what becomes of it at the end."""

import triton
import triton.language as tl

from _attention import ADDED, OF_KEYS, kept_of, load_part, load_rows, masked, seen


@triton.jit
def settled(acc, total, top, scale, upscale, HIDES: tl.constexpr, DROPOUT: tl.constexpr):
    """Rows' output and the base-2 logarithms of their sums. HIDES: some may have seen no key."""
    share = total
    if HIDES:
        share = tl.where(total == 0.0, 1.0, total)  # a query that sees no key gives 0
    acc = acc / share[:, None]
    if DROPOUT:
        acc = acc * upscale
    return acc, top * scale + tl.log2(share)


@triton.jit
def walk_all(
    acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_c, factor,
    begin, whole, whole_end, end, which, batch, head, place, queries, keys, left, right, scale, threshold, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """Adds the keys of [begin, end), those of [whole, whole_end) without masks; the mask may hide any."""
    if MASK:
        whole_end = begin
    if LEFT and not MASK:
        acc, total, top = _walk(
            acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_c, factor,
            begin, whole, which, batch, head, place, queries, keys, left, right, scale, threshold, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, True,
        )  # fmt: skip
    if not MASK:
        acc, total, top = _walk(
            acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_c, factor,
            whole, whole_end, which, batch, head, place, queries, keys, left, right, scale, threshold, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, False,
        )  # fmt: skip
    if (RIGHT or TAIL) or MASK:  # triton-ascend takes two at a time
        acc, total, top = _walk(
            acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_c, factor,
            whole_end, end, which, batch, head, place, queries, keys, left, right, scale, threshold, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, True,
        )  # fmt: skip
    return acc, total, top


@triton.jit
def _walk(
    acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_c, factor,
    begin, end, which, batch, head, place, queries, keys, left, right, scale, threshold, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr, HIDES: tl.constexpr,
):  # fmt: skip
    """Adds the keys of [begin, end). which: batch * heads + head of all rows, or of each. HIDES: some may be hidden.

    mask: where a batch's begins, or each row's, and mask_c the step from key to key; or a descriptor, and mask_c the
    first query's row. Scores times factor are what it is added to, and then times `scale`.
    """
    for n in tl.range(begin, end, BLOCK_N):
        k = load_rows(k_from, batch, head, n, keys, k_b, k_h, k_r, k_c, WIDTH, PADDED, BLOCK_N, TMA)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if HIDES:
            key = n + tl.arange(0, BLOCK_N)
            visible = seen(place[:, None], key[None, :], left, right, keys, LEFT, RIGHT)
            if MASK == OF_KEYS:
                visible = visible & (tl.load(mask + key.to(tl.int64) * mask_c, mask=key < keys, other=0) != 0)[None, :]
            elif MASK > ADDED:
                s = masked(s, mask.load([mask_c, n]), factor, MASK)
            elif MASK:
                s = masked(s, load_part(mask[:, None], key[None, :], keys, mask_c), factor, MASK)
            s = tl.where(visible, s, -float("inf"))
        raised = tl.maximum(top, tl.max(s, 1))
        shift = raised
        if HIDES:
            shift = tl.where(raised == -float("inf"), 0.0, raised)  # -inf - -inf would be NaN
        # Scaled after the maximum is subtracted: s * scale - shift * scale is one fused operation, which leaves the
        # product's rounding error, and for a large score that is a power without bounds.
        p = tl.exp2((s - shift[:, None]) * scale)
        fade = tl.exp2((top - shift) * scale)
        total = total * fade + tl.sum(p, 1)
        if DROPOUT:
            query = place - (keys - queries)
            p = tl.where(kept_of(threshold, seed, which, query, n, BLOCK_M, BLOCK_N), p, 0.0)
        v = load_rows(v_from, batch, head, n, keys, v_b, v_h, v_r, v_c, WIDTH, PADDED, BLOCK_N, TMA)
        acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
        top = raised
    return acc, total, top
