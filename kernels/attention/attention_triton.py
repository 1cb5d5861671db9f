"""attention: softmax(q k^T) v, tile by tile under a running maximum, so that no score leaves the processor."""

import functools
from pathlib import Path
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import _attention
import _launch
import _tma
from _attention import kept, load_rows, seen, spans, store_rows
from attention_backward.attention_backward_triton import attention_backward

TUNED = Path(__file__).parent / "tuned"


class Config(NamedTuple):
    block_m: int
    """Queries of a program."""
    block_n: int
    """Keys at a time."""
    warps: int
    stages: int


# For devices without a tuned file: bytes of an element -> padded width, at most -> config.
FALLBACK = {
    2: {64: Config(64, 32, 4, 2), 128: Config(64, 32, 4, 1), 256: Config(32, 32, 4, 1)},
    4: {64: Config(32, 32, 4, 1), 128: Config(32, 16, 4, 1), 256: Config(16, 16, 4, 1)},
}


@functools.lru_cache(maxsize=4096)
def choose_config(queries: int, width: int, itemsize: int, sides: int, extras: bool, limits: _launch.Limits) -> Config:
    """The first entry of the device's tuned file whose bounds hold the case; nothing is ever tuned here.

    `sides`: how many limits a query's sight has; `extras`: a mask or dropout, which need registers of their own.
    """
    for entry in _launch.tuned(TUNED, limits.key):
        fits = queries <= entry.get("queries_max", queries) and width <= entry["width_max"]
        wanted = sides in entry.get("sides", (sides,)) and entry.get("extras", extras) == extras
        if entry["itemsize"] == itemsize and fits and wanted:
            return Config(**entry["config"])
    return next(config for most, config in FALLBACK[itemsize].items() if width <= most)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] = (None, None),
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> torch.Tensor:
    """softmax(scale q k^T) v over the keys that each query sees, as a contiguous tensor of q's shape and dtype.

    q is (batch, heads, queries, width), k and v are (batch, key heads, keys, width), where the key heads divide the
    heads and each serves as many neighbours; float32 (multiplied in full precision), float16 or bfloat16, any strides,
    width 1 to 256. scale is 1 / sqrt(width) where it is None.

    The last query stands beside the last key. causal hides the keys after a query's place, window = (left, right) those
    more than left before or right after it, mask, bool (batch, keys), those where it is False. A query that sees no key
    gives 0. dropout is the share of weights left out, by seed and place alone; the others are divided by what stays.

    Differentiable in q, k and v, once. Raises TypeError for dtypes, ValueError for shapes, devices and numbers.
    """
    _attention.check("attention", q, k, v, mask, window, scale, dropout, seed)
    window = tuple(window)
    if torch.is_grad_enabled() and any(each.requires_grad for each in (q, k, v)):
        return _Attention.apply(q, k, v, mask, causal, window, scale, dropout, seed)
    return _forward(q, k, v, mask, causal, window, scale, dropout, seed)[0]


def attention_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] = (None, None),
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention's output and its sums, which attention_backward asks for; not differentiable by itself.

    sums is float32 (batch, heads, queries): the base-2 logarithm of the sum of a query's exponentials before dropout,
    log2(sum(exp(scale q k^T))); -inf for a query that sees no key.
    """
    _attention.check("attention", q, k, v, mask, window, scale, dropout, seed)
    return _forward(q, k, v, mask, causal, tuple(window), scale, dropout, seed)


class _Attention(torch.autograd.Function):
    """attention, with attention_backward for its gradients."""

    @staticmethod
    def forward(ctx, q, k, v, mask, causal, window, scale, dropout, seed):
        out, sums = _forward(q, k, v, mask, causal, window, scale, dropout, seed)
        ctx.save_for_backward(q, k, v, out, sums, mask)
        ctx.numbers = causal, window, scale, dropout, seed
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        q, k, v, out, sums, mask = ctx.saved_tensors
        return *attention_backward(q, k, v, out, sums, grad, mask, *ctx.numbers), *(None,) * 6


def _forward(q, k, v, mask, causal, window, scale, dropout, seed):
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    sums = torch.empty((batch, heads, queries), dtype=torch.float32, device=q.device)
    if out.numel() == 0 or keys == 0:
        return out.zero_(), sums.fill_(-torch.inf)
    left, right = _attention.sight(queries, keys, causal, window)
    limits = _launch.limits(q.device)
    padded = max(_launch.power_of_two(width), 16)
    sides, extras = (left is not None) + (right is not None), mask is not None or dropout > 0
    config = choose_config(queries, padded, q.element_size(), sides, extras, limits)
    blocks = ((q, config.block_m), (k, config.block_n), (v, config.block_n), (out, config.block_m))
    tma = _tma.available(limits, _attention_kernel) and all(_attention.describable(each) for each, _ in blocks)
    given = [_attention.described(each, rows, padded) if tma else each for each, rows in blocks]
    tiles = _launch.tiles(queries, config.block_m) * batch * heads
    programs = min(tiles, limits.programs, limits.grid[0])
    with _launch.on(q.device):
        _attention_kernel[(programs,)](
            *given, sums, mask, *q.stride(), *k.stride(), *v.stride(), *(mask.stride() if mask is not None else (0, 0)),
            tiles, heads, heads // k.shape[1], queries, keys, left or 0, right or 0,
            _attention.default_scale(width, scale) * _attention.LOG2E, _attention.threshold(dropout), 1 / (1 - dropout),
            seed, WIDTH=width, PADDED=padded, BLOCK_M=config.block_m, BLOCK_N=config.block_n, TMA=tma,
            LEFT=left is not None, RIGHT=right is not None, MASK=mask is not None, DROPOUT=dropout > 0,
            TAIL=keys % config.block_n > 0, LOOP=programs < tiles, num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out, sums


@triton.jit(do_not_specialize=["tiles", "queries", "keys", "left", "right", "threshold", "seed"])
def _attention_kernel(
    q, k, v, out, sums, mask, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
    tiles, heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    TAIL: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    if LOOP:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            _one_tile(
                q, k, v, out, sums, mask, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
                tile, heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
                WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL,
            )  # fmt: skip
    else:
        _one_tile(
            q, k, v, out, sums, mask, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
            tl.program_id(0), heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL,
        )  # fmt: skip


@triton.jit
def _one_tile(
    q_from, k_from, v_from, out, sums, mask, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
    tile, heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """BLOCK_M queries of one head. top and total are each row's largest score and sum of exponentials so far."""
    blocks = tl.cdiv(queries, BLOCK_M)
    which = tile // blocks
    block = tile % blocks
    if RIGHT:
        block = blocks - 1 - block  # those that see most keys begin first
    batch = which // heads
    head = which % heads
    first = block * BLOCK_M
    q = load_rows(q_from, batch, head, first, queries, q_b, q_h, q_r, q_c, WIDTH, PADDED, BLOCK_M, TMA)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, PADDED), tl.float32)
    begin, whole, whole_end, end = spans(first + keys - queries, BLOCK_M, left, right, keys, BLOCK_N, LEFT, RIGHT, TAIL)
    if MASK:
        whole_end = begin
    if LEFT and not MASK:
        acc, total, top = _walk(
            acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
            begin, whole, which, batch, head // group, first, queries, keys, left, right, scale, threshold, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, True,
        )  # fmt: skip
    if not MASK:
        acc, total, top = _walk(
            acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
            whole, whole_end, which, batch, head // group, first, queries, keys, left, right, scale, threshold, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, False,
        )  # fmt: skip
    if (RIGHT or TAIL) or MASK:  # triton-ascend takes two at a time
        acc, total, top = _walk(
            acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
            whole_end, end, which, batch, head // group, first, queries, keys, left, right, scale, threshold, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, True,
        )  # fmt: skip
    share = total
    if (LEFT or RIGHT) or MASK:
        share = tl.where(total == 0.0, 1.0, total)  # a query that sees no key gives 0
    acc = acc / share[:, None]
    if DROPOUT:
        acc = acc * upscale
    row = first + tl.arange(0, BLOCK_M)
    tl.store(sums + tl.cast(which, tl.int64) * queries + row, top * scale + tl.log2(share), mask=row < queries)
    store_rows(out, acc, batch, head, heads, first, queries, WIDTH, PADDED, BLOCK_M, TMA)


@triton.jit
def _walk(
    acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
    begin, end, which, batch, head, first, queries, keys, left, right, scale, threshold, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr, HIDES: tl.constexpr,
):  # fmt: skip
    """Adds the keys of [begin, end). HIDES: some may be hidden from some queries."""
    place = first + keys - queries + tl.arange(0, BLOCK_M)
    for n in tl.range(begin, end, BLOCK_N):
        k = load_rows(k_from, batch, head, n, keys, k_b, k_h, k_r, k_c, WIDTH, PADDED, BLOCK_N, TMA)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if HIDES:
            key = n + tl.arange(0, BLOCK_N)
            visible = seen(place[:, None], key[None, :], left, right, keys, LEFT, RIGHT)
            if MASK:
                row = mask + tl.cast(batch, tl.int64) * mask_b
                visible = visible & (tl.load(row + key.to(tl.int64) * mask_c, mask=key < keys, other=0) != 0)[None, :]
            s = tl.where(visible, s, -float("inf"))
        raised = tl.maximum(top, tl.max(s, 1))
        shift = raised
        if HIDES:
            shift = tl.where(raised == -float("inf"), 0.0, raised)  # -inf - -inf would be NaN
        # Scaled after the maximum is taken off: s * scale - shift * scale is one fused operation, which leaves what the
        # product was rounded by, and of a large score that is a power without bounds.
        p = tl.exp2((s - shift[:, None]) * scale)
        fade = tl.exp2((top - shift) * scale)
        total = total * fade + tl.sum(p, 1)
        if DROPOUT:
            p = tl.where(kept(threshold, seed, which, first, n, BLOCK_M, BLOCK_N), p, 0.0)
        v = load_rows(v_from, batch, head, n, keys, v_b, v_h, v_r, v_c, WIDTH, PADDED, BLOCK_N, TMA)
        acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
        top = raised
    return acc, total, top
