"""The steps from separate kernels to the op's own, each selectable, to measure what it gains in time and memory.

`examples/time_attention_steps.py` prints both side by side; docs/ops/attention.md explains them.
"""

import _attention
import _launch
import torch
import triton
import triton.language as tl
from _attention import load_rows, seen, store_rows
from attention_triton import attention
from softmax.softmax_triton import softmax

VARIANTS = ("kernels", "fused", "flash")
"""In the order of development."""

BLOCKS = {2: (64, 64), 4: (32, 32)}
"""Bytes of an element -> rows and columns of a tile."""
DEPTH = 32
"""Terms that a tile of a product adds up at a time."""


def attention_step(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, variant: str, causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """Returns what `attention` returns, by one of VARIANTS.

    kernels: scores, their softmax and the product with v are three kernels, with queries x keys numbers of each head in
    memory, twice. fused: one kernel walks the keys twice, for each query's maximum and sum and then for the product,
    with a third product instead of scores in memory. flash: one walk under a running maximum, `attention` itself.

    Raises ValueError for an unknown variant, and for queries that would see no key.
    """
    if variant not in VARIANTS:
        variants = ", ".join(map(repr, VARIANTS))
        raise ValueError(f"attention_step: variant is {variant!r}, but has to be one of {variants}")
    _attention.check("attention_step", q, k, v, None, (None, None), scale, 0.0, 0)
    if q.shape[2] > k.shape[2] and (causal or not k.shape[2]):
        raise ValueError(f"attention_step: {q.shape[2]} queries have {k.shape[2]} keys, which some of them do not see")
    if variant == "flash" or not q.numel():
        return attention(q, k, v, causal=causal, scale=scale)
    scale = _attention.default_scale(q.shape[3], scale)
    if variant == "kernels":
        weights = softmax(_product(q, k.mT, scale, causal))
        return _product(weights, v, 1.0, False)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    rows, cols = BLOCKS[q.element_size()]
    with _launch.on(q.device):
        _two_walks_kernel[_launch.tiles(q.shape[2], rows), q.shape[0] * q.shape[1]](
            q, k, v, out, *q.stride(), *k.stride(), *v.stride(), q.shape[1], q.shape[1] // k.shape[1], q.shape[2],
            k.shape[2], scale * _attention.LOG2E, WIDTH=q.shape[3], PADDED=max(_launch.power_of_two(q.shape[3]), 16),
            CAUSAL=causal, BLOCK_M=rows, BLOCK_N=cols, num_warps=4,
        )  # fmt: skip
    return out


def _product(a: torch.Tensor, b: torch.Tensor, scale: float, causal: bool) -> torch.Tensor:
    """Returns scale a b for each head, -inf above the diagonal that ends in the last corner if causal.

    b may have fewer heads.
    """
    (batch, heads, m, k), n = a.shape, b.shape[3]
    out = torch.empty((batch, heads, m, n), dtype=a.dtype, device=a.device)
    rows, cols = BLOCKS[a.element_size()]
    with _launch.on(a.device):
        _product_kernel[_launch.tiles(m, rows) * _launch.tiles(n, cols), batch * heads](
            a, b, out, *a.stride(), *b.stride(), heads, heads // b.shape[1], m, n, k, scale,
            CAUSAL=causal, BLOCK_M=rows, BLOCK_N=cols, BLOCK_K=DEPTH, num_warps=4,
        )  # fmt: skip
    return out


@triton.jit
def _product_kernel(
    a, b, out, a_b, a_h, a_r, a_c, b_b, b_h, b_r, b_c, heads, group, m, n, k, scale,
    CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    which = tl.program_id(1).to(tl.int64)
    batch = which // heads
    head = which % heads
    along = tl.cdiv(n, BLOCK_N)
    row = (tl.program_id(0) // along * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    col = (tl.program_id(0) % along * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    inner = tl.arange(0, BLOCK_K).to(tl.int64)
    left = a + batch * a_b + head * a_h + row * a_r
    right = b + batch * b_b + head // group * b_h + col * b_c
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, k, BLOCK_K):
        x = tl.load(left + (first + inner)[None, :] * a_c, mask=(row < m) & (first + inner < k)[None, :], other=0.0)
        y = tl.load(right + (first + inner)[:, None] * b_r, mask=(col < n) & (first + inner < k)[:, None], other=0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
    total = total * scale
    if CAUSAL:
        total = tl.where(col <= row + n - m, total, -float("inf"))
    tl.store(out + (which * m + row) * n + col, total.to(out.dtype.element_ty), mask=(row < m) & (col < n))


@triton.jit
def _two_walks_kernel(
    q, k, v, out, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, heads, group, queries, keys, scale,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """BLOCK_M queries of one head. scale: times log2(e)."""
    batch = tl.program_id(1) // heads
    head = tl.program_id(1) % heads
    first = tl.program_id(0) * BLOCK_M
    place = (first + keys - queries + tl.arange(0, BLOCK_M))[:, None]
    end = tl.minimum(keys, first + keys - queries + BLOCK_M) if CAUSAL else keys
    own = load_rows(q, batch, head, first, queries, q_b, q_h, q_r, q_c, WIDTH, PADDED, BLOCK_M, False)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for n in range(0, end, BLOCK_N):
        s = _scores(own, k, n, place, batch, head // group, keys, k_b, k_h, k_r, k_c, WIDTH, PADDED, CAUSAL, BLOCK_N)
        raised = tl.maximum(top, tl.max(s, 1))
        total = total * tl.exp2((top - raised) * scale) + tl.sum(tl.exp2((s - raised[:, None]) * scale), 1)
        top = raised
    acc = tl.zeros((BLOCK_M, PADDED), tl.float32)
    for n in range(0, end, BLOCK_N):
        s = _scores(own, k, n, place, batch, head // group, keys, k_b, k_h, k_r, k_c, WIDTH, PADDED, CAUSAL, BLOCK_N)
        values = load_rows(v, batch, head // group, n, keys, v_b, v_h, v_r, v_c, WIDTH, PADDED, BLOCK_N, False)
        weights = tl.exp2((s - top[:, None]) * scale) / total[:, None]
        acc = tl.dot(weights.to(values.dtype), values, acc, input_precision="ieee")
    store_rows(out, acc, batch, head, heads, first, queries, WIDTH, PADDED, BLOCK_M, False)


@triton.jit
def _scores(
    own, k, first, place, batch, head, keys, k_b, k_h, k_r, k_c,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Of BLOCK_N keys from `first` on; -inf if hidden."""
    tile = load_rows(k, batch, head, first, keys, k_b, k_h, k_r, k_c, WIDTH, PADDED, BLOCK_N, False)
    visible = seen(place, (first + tl.arange(0, BLOCK_N))[None, :], 0, 0, keys, False, CAUSAL)
    return tl.where(visible, tl.dot(own, tl.trans(tile), input_precision="ieee"), -float("inf"))
