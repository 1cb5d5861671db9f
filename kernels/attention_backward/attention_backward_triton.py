"""attention_backward: attention's gradients, its weights computed again tile by tile; no atomic adds, so repeatable."""

import functools
from pathlib import Path
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import _attention
import _launch
import _tma
from _attention import LOWEST, OF_KEYS, kept, load_rows, mask_from, masked, seen, spans, store_rows

TUNED = Path(__file__).parent / "tuned"


class Config(NamedTuple):
    block_m: int
    """Queries at a time, or of a program."""
    block_n: int
    """Keys of a program, or at a time."""
    warps: int
    stages: int


class Configs(NamedTuple):
    keys: Config
    """For the kernel for dk and dv, whose programs own keys."""
    queries: Config
    """For the kernel for dq, whose programs own queries."""


# For devices without a tuned file: bytes of an element -> padded width, at most -> config of either kernel.
FALLBACK = {
    2: {64: Config(32, 32, 4, 1), 128: Config(32, 32, 4, 1), 256: Config(16, 16, 4, 1)},
    4: {64: Config(32, 32, 4, 1), 128: Config(16, 16, 4, 1), 256: Config(16, 16, 4, 1)},
}
DELTA_ROWS = 32
"""Rows of a program of the kernel that sums out * grad."""


@functools.lru_cache(maxsize=4096)
def choose_configs(width: int, itemsize: int, sides: int, extras: bool, limits: _launch.Limits) -> Configs:
    """Returns the first entry of the tuned file that fits the case; nothing is tuned here.

    `sides`: how many limits a query's sight has; `extras`: a mask or dropout, which need more registers.
    """
    for entry in _launch.tuned(TUNED, limits.key):
        wanted = sides in entry.get("sides", (sides,)) and entry.get("extras", extras) == extras
        if entry["itemsize"] == itemsize and width <= entry["width_max"] and wanted:
            return Configs(Config(**entry["config"]["keys"]), Config(**entry["config"]["queries"]))
    fallback = next(config for most, config in FALLBACK[itemsize].items() if width <= most)
    return Configs(fallback, fallback)


def attention_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    sums: torch.Tensor,
    grad: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] = (None, None),
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns (dq, dk, dv), the gradients of attention(q, k, v, ...) for its output's grad; contiguous, of q's dtype.

    out is attention's output, of q's shape, and sums, float32 (batch, heads, queries), the base-2 logarithm of each
    query's sum of exponentials: -inf if it sees no key, and its gradients are 0. The other arguments are attention's,
    including the seed if there is dropout. Any strides. Raises TypeError for dtypes, ValueError for shapes,
    devices and numbers.
    """
    _check(q, k, v, out, sums, grad)
    _attention.check("attention_backward", q, k, v, mask, window, scale, dropout, seed)
    batch, heads, queries, width = q.shape
    key_heads, keys = k.shape[1:3]
    dq, dk, dv = (torch.empty(each.shape, dtype=each.dtype, device=each.device) for each in (q, k, v))
    if q.numel() == 0 or k.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    left, right = _attention.sight(queries, keys, causal, tuple(window))
    limits = _launch.limits(q.device)
    padded = max(_launch.power_of_two(width), 16)
    sides, extras = (left is not None) + (right is not None), mask is not None or dropout > 0
    configs = choose_configs(padded, q.element_size(), sides, extras, limits)
    tma = _tma.available(limits, _keys_kernel) and all(map(_attention.describable, (q, k, v, dq, dk, dv)))
    if tma and not _attention.describable(grad):
        grad = grad.contiguous()  # often expanded from one number
    sums = sums.contiguous()
    delta = torch.empty(sums.shape, dtype=sums.dtype, device=sums.device)
    scale = _attention.default_scale(width, scale)
    mask, mask_steps, kind = _attention.laid(mask, q, k, scale)
    steps = (*q.stride(), *k.stride(), *v.stride(), *grad.stride(), *mask_steps)
    of_scores = 1.0 if kind == _attention.ADDED else scale
    numbers = (
        heads, heads // key_heads, queries, keys, left or 0, right or 0, of_scores * _attention.LOG2E, scale,
        _attention.threshold(dropout), 1 / (1 - dropout), seed,
    )  # fmt: skip

    def launch(kernel, config, own, tiles, outputs, **more):
        sides = {"m": config.block_m, "n": config.block_n}
        given = [(q, "m"), (k, "n"), (v, "n"), (grad, "m"), *((each, own) for each in outputs)]
        sources = [_attention.described(each, sides[side], padded) if tma else each for each, side in given]
        programs = min(tiles, limits.programs, limits.grid[0])
        kernel[(programs,)](
            *sources, sums, delta, mask, *steps, tiles, *numbers, WIDTH=width, PADDED=padded, BLOCK_M=config.block_m,
            BLOCK_N=config.block_n, TMA=tma, LEFT=left is not None, RIGHT=right is not None, MASK=kind,
            DROPOUT=dropout > 0, LOOP=programs < tiles, num_warps=config.warps, num_stages=config.stages, **more,
        )  # fmt: skip

    tiles = _launch.tiles(queries, DELTA_ROWS) * batch * heads
    with _launch.on(q.device):
        _delta_kernel[_launch.grid(tiles, 1, limits)](
            out, grad, delta, *out.stride(), *grad.stride(), tiles, heads, queries,
            WIDTH=width, PADDED=padded, ROWS=DELTA_ROWS, num_warps=4,
        )  # fmt: skip
        by_keys, by_queries = configs
        tiles = _launch.tiles(keys, by_keys.block_n) * batch * key_heads
        launch(_keys_kernel, by_keys, "n", tiles, (dk, dv))
        tiles = _launch.tiles(queries, by_queries.block_m) * batch * heads
        launch(_queries_kernel, by_queries, "m", tiles, (dq,), TAIL=keys % by_queries.block_n > 0)
    return dq, dk, dv


def _check(q, k, v, out, sums, grad):
    op = "attention_backward"
    _launch.check_tensors(op, q=q, k=k, v=v, out=out, sums=sums, grad=grad)
    _launch.check_same_dtype(op, q=q, k=k, v=v, out=out, grad=grad)
    if sums.dtype != torch.float32:
        raise TypeError(f"{op}: sums has {sums.dtype}, but has to be float32")
    for name, tensor, shape in (("out", out, q.shape), ("grad", grad, q.shape), ("sums", sums, q.shape[:3])):
        if tensor.shape != shape:
            raise ValueError(f"{op}: {name} has shape {tuple(tensor.shape)}, but needs {tuple(shape)}")


@triton.jit(do_not_specialize=["tiles"])
def _delta_kernel(
    out, grad, delta, out_b, out_h, out_r, out_c, grad_b, grad_h, grad_r, grad_c, tiles, heads, queries,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """sum(out * grad) of each query, which is subtracted from every weight's gradient, as the weights sum to one."""
    blocks = tl.cdiv(queries, ROWS)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        which = tile // blocks
        first = tile % blocks * ROWS
        batch = which // heads
        head = which % heads
        x = load_rows(out, batch, head, first, queries, out_b, out_h, out_r, out_c, WIDTH, PADDED, ROWS, False)
        y = load_rows(grad, batch, head, first, queries, grad_b, grad_h, grad_r, grad_c, WIDTH, PADDED, ROWS, False)
        row = first + tl.arange(0, ROWS)
        total = tl.sum(x.to(tl.float32) * y.to(tl.float32), 1)
        tl.store(delta + tl.cast(which, tl.int64) * queries + row, total, mask=row < queries)


# --- dk and dv --------------------------------------------------------------------------------------------------------


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
        if MASK > OF_KEYS:
            each = mask_from(mask, batch, head, row, queries, mask_b, mask_h, mask_r, MASK)
            s = masked(s, each[None, :], key[:, None], keys, mask_c, factor, MASK)
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


# --- dq ---------------------------------------------------------------------------------------------------------------


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
    """Adds the keys of [begin, end), as tiles (queries, keys). HIDES: some may be hidden from some queries."""
    place = first + keys - queries + tl.arange(0, BLOCK_M)
    for n in tl.range(begin, end, BLOCK_N):
        k = load_rows(k_from, batch, head, n, keys, k_b, k_h, k_r, k_c, WIDTH, PADDED, BLOCK_N, TMA)
        v = load_rows(v_from, batch, head, n, keys, v_b, v_h, v_r, v_c, WIDTH, PADDED, BLOCK_N, TMA)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if MASK > OF_KEYS:
            s = masked(s, mask[:, None], (n + tl.arange(0, BLOCK_N))[None, :], keys, mask_c, factor, MASK)
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
