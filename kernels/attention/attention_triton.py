"""attention: softmax(q k^T) v, tile by tile under a running maximum, so that no score leaves the processor.

Few queries over many keys, a decoding step, have kernels of their own in attention_parts.py. Configurations of twelve
warps or more are for the kernel in attention_groups.py.
"""

import functools
from pathlib import Path
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import _attention
import _launch
import _tma
from _attention import ADDED, load_rows, mask_from, spans, store_rows
from attention.attention_parts import split
from attention.attention_walk import settled, walk_all
from attention_backward.attention_backward_triton import attention_backward

try:
    from attention import attention_groups
except ImportError:  # a Triton without Gluon, or with an older one
    attention_groups = None

TUNED = Path(__file__).parent / "tuned"


class Config(NamedTuple):
    block_m: int
    """Queries of a program: of one head, or of all that share a key head if keys are split."""
    block_n: int
    """Keys at a time."""
    warps: int
    stages: int
    fill: int = 0
    """Keys are split into at least so many programs for each processor; 0: they are not split."""
    ahead: bool = False
    """For groups of warps: each waits for its next keys before its products are done."""
    persistent: bool = False
    """For groups of warps: one program a processor, which fetches for the next tile while one ends."""


GROUPED = 12
"""Least warps of a configuration whose warps work in groups with a task each: 12 for 128 queries, 16 for 192."""


# For devices without a tuned file: bytes of an element -> padded width, at most -> config.
FALLBACK = {
    2: {64: Config(64, 32, 4, 2), 128: Config(64, 32, 4, 1), 256: Config(32, 32, 4, 1)},
    4: {64: Config(32, 32, 4, 1), 128: Config(32, 16, 4, 1), 256: Config(16, 16, 4, 1)},
}
FALLBACK_ROWS = 16
"""Most rows for which keys are split without a tuned file: the least that a product's tile has."""
FALLBACK_SPLIT = {
    2: {64: Config(16, 64, 4, 2, 4), 128: Config(16, 32, 4, 2, 4), 256: Config(16, 32, 4, 1, 4)},
    4: {64: Config(16, 32, 4, 1, 4), 128: Config(16, 16, 4, 1, 4), 256: Config(16, 16, 4, 1, 4)},
}


@functools.lru_cache(maxsize=4096)
def choose_config(
    queries: int, width: int, itemsize: int, sides: int, extras: int, limits: _launch.Limits, groups: bool = False
) -> Config:
    """Returns the first entry of the tuned file that fits the case; nothing is tuned here.

    `sides`: how many limits a query's sight has; `extras`: 1 with a mask, 2 with dropout, else 0;
    `groups`: groups of warps can do it; otherwise their entries are skipped.
    """
    for entry in _launch.tuned(TUNED, limits.key):
        if "rows_max" in entry:
            continue
        fits = queries <= entry.get("queries_max", queries) and width <= entry["width_max"]
        wanted = sides in entry.get("sides", (sides,)) and extras in entry.get("extras", (extras,))
        able = groups or entry["config"]["warps"] < GROUPED
        if entry["itemsize"] == itemsize and fits and wanted and able:
            return Config(**entry["config"])
    return next(config for most, config in FALLBACK[itemsize].items() if width <= most)


@functools.lru_cache(maxsize=4096)
def choose_split(rows: int, width: int, itemsize: int, limits: _launch.Limits) -> Config | None:
    """Returns how keys are split among programs for so many rows: the first entry with a `rows_max` that fits, or None.

    `rows`: queries times the heads that share a key head.
    """
    entries = [entry for entry in _launch.tuned(TUNED, limits.key) if "rows_max" in entry]
    for entry in entries:
        if entry["itemsize"] == itemsize and rows <= entry["rows_max"] and width <= entry["width_max"]:
            return Config(**entry["config"])
    if entries or rows > FALLBACK_ROWS:
        return None
    return next(config for most, config in FALLBACK_SPLIT[itemsize].items() if width <= most)


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
    """Returns softmax(scale q k^T) v over the keys that each query sees, contiguous, of q's shape and dtype.

    q is (batch, heads, queries, width), k and v are (batch, key heads, keys, width), where the key heads divide the
    heads and each serves the same number of neighbours. float32 (multiplied in full precision), float16 or bfloat16,
    any strides, width 1 to 256. scale is 1 / sqrt(width) if it is None.

    The last query is aligned with the last key. causal hides the keys after a query's place, window = (left, right)
    those more than left before or right after it, mask, bool (batch, keys), those with False. mask may also be
    (batch, heads, queries, keys), each of them or 1: bool, False for a hidden key, or of q's dtype, added to the scaled
    scores. A query without keys, all of them hidden or -inf, gives 0, as in PyTorch from 2.5 on. dropout is the share
    of dropped weights, by seed and place only; the others are divided by the rest.

    Differentiable in q, k and v, once. Raises TypeError for dtypes, ValueError for shapes, devices and numbers.
    """
    _attention.check("attention", q, k, v, mask, window, scale, dropout, seed)
    window = tuple(window)
    if torch.is_grad_enabled() and any(each.requires_grad for each in (q, k, v)):
        return _Attention.apply(q, k, v, mask, causal, window, scale, dropout, seed)
    return _forward(q, k, v, mask, causal, window, scale, dropout, seed)[0]


def attention_forward(q, k, v, mask=None, causal=False, window=(None, None), scale=None, dropout=0.0, seed=0):
    """Returns attention's output and its sums, for attention_backward; not differentiable by itself.

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
    sight, limits = _attention.sight(queries, keys, causal, window), _launch.limits(q.device)
    if limits.descriptors and k.stride(3) != 1:
        # ptxas of CUDA 12.8, which Triton 3.6 has, multiplies v by another tile's descriptor for wgmma behind
        # keys that are loaded element by element: wrong answers or an illegal address on an H200. 12.9 does not.
        k = k.contiguous()
    scale = _attention.default_scale(width, scale)
    mask, steps, kind = _attention.laid(mask, q, k, scale)
    of_scores = 1.0 if kind == _attention.ADDED else scale
    numbers = of_scores * _attention.LOG2E, _attention.threshold(dropout), 1 / (1 - dropout), seed
    padded = max(_launch.power_of_two(width), 16)
    sides = {"LEFT": sight.left is not None, "RIGHT": sight.right is not None}
    flags = {"WIDTH": width, "PADDED": padded, **sides, "MASK": kind, "DROPOUT": dropout > 0}
    tensors = (q, k, v, out, sums, mask, steps)
    config = choose_split(queries * heads // k.shape[1], padded, q.element_size(), limits)
    with _launch.on(q.device):
        if config is None or not split(*tensors, config, sight, limits, numbers, flags):
            extras = 2 if dropout else min(kind, 1)
            case = queries, padded, q.element_size(), sum(sides.values()), extras, limits
            config = choose_config(*case, not extras and _in_groups(q, k, v, out, sight, padded, limits))
            if config.warps >= GROUPED and not attention_groups.launch(
                q, k, v, out, sums, numbers[0], sides["RIGHT"], config, limits
            ):
                config = choose_config(*case)
            if config.warps < GROUPED:
                _whole(*tensors, config, sight, limits, numbers, flags)
    return out, sums


def _in_groups(q, k, v, out, sight, padded, limits) -> bool:
    """Returns True if groups of warps can do such a call without mask and dropout on this device."""
    if attention_groups is None or padded not in attention_groups.WIDTHS or q.element_size() != 2:
        return False
    if sight.left is not None or sight.right not in (None, 0) or not attention_groups.available(limits):
        return False
    return not _tma.interpreted(_attention_kernel) and all(map(_attention.describable, (q, k, v, out)))


def _whole(q, k, v, out, sums, mask, steps, config, sight, limits, numbers, flags):
    """Runs programs that own queries of one head and walk all keys that these see."""
    batch, heads, queries, _ = q.shape
    keys, padded = k.shape[2], flags["PADDED"]
    blocks = ((q, config.block_m), (k, config.block_n), (v, config.block_n), (out, config.block_m))
    tma = _tma.available(limits, _attention_kernel) and all(_attention.describable(each) for each, _ in blocks)
    given = [_attention.described(each, rows, padded) if tma else each for each, rows in blocks]
    if tma:
        mask, steps, kind = _attention.tiled(mask, steps, flags["MASK"], config.block_m, config.block_n)
        flags = {**flags, "MASK": kind}
    tiles = _launch.tiles(queries, config.block_m) * batch * heads
    programs = min(tiles, limits.programs, limits.grid[0])
    _attention_kernel[(programs,)](
        *given, sums, mask, *q.stride(), *k.stride(), *v.stride(), *steps,
        tiles, heads, heads // k.shape[1], queries, keys, sight.left or 0, sight.right or 0, *numbers, **flags,
        BLOCK_M=config.block_m, BLOCK_N=config.block_n, TMA=tma, TAIL=keys % config.block_n > 0, LOOP=programs < tiles,
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip


@triton.jit(do_not_specialize=["tiles", "queries", "keys", "left", "right", "threshold", "seed"])
def _attention_kernel(
    q, k, v, out, sums, mask,
    q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_h, mask_r, mask_c, factor,
    tiles, heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    TAIL: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    if LOOP:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            _one_tile(
                q, k, v, out, sums, mask,
                q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_h, mask_r, mask_c, factor,
                tile, heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
                WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL,
            )  # fmt: skip
    else:
        _one_tile(
            q, k, v, out, sums, mask,
            q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_h, mask_r, mask_c, factor,
            tl.program_id(0), heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL,
        )  # fmt: skip


@triton.jit
def _one_tile(
    q_from, k_from, v_from, out, sums, mask,
    q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_h, mask_r, mask_c, factor,
    tile, heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """BLOCK_M queries of one head. top and total are each row's largest score and sum of exponentials so far."""
    blocks = tl.cdiv(queries, BLOCK_M)
    which = tile // blocks
    block = tile % blocks
    if RIGHT:
        block = blocks - 1 - block  # those with most keys begin first
    batch = which // heads
    head = which % heads
    first = block * BLOCK_M
    q = load_rows(q_from, batch, head, first, queries, q_b, q_h, q_r, q_c, WIDTH, PADDED, BLOCK_M, TMA)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, PADDED), tl.float32)
    begin, whole, whole_end, end = spans(first + keys - queries, BLOCK_M, left, right, keys, BLOCK_N, LEFT, RIGHT, TAIL)
    place = first + keys - queries + tl.arange(0, BLOCK_M)
    if MASK > ADDED:
        mask_c = batch * mask_b + head * mask_h + first
    elif MASK:
        query = first + tl.arange(0, BLOCK_M)
        mask = mask_from(mask, batch, head, query, queries, mask_b, mask_h, mask_r, MASK)
    acc, total, top = walk_all(
        acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_c, factor,
        begin, whole, whole_end, end, which, batch, head // group, place, queries, keys, left, right,
        scale, threshold, seed, WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL,
    )  # fmt: skip
    acc, top = settled(acc, total, top, scale, upscale, (LEFT or RIGHT) or MASK, DROPOUT)
    row = first + tl.arange(0, BLOCK_M)
    tl.store(sums + tl.cast(which, tl.int64) * queries + row, top, mask=row < queries)
    store_rows(out, acc, batch, head, heads, first, queries, WIDTH, PADDED, BLOCK_M, TMA)
