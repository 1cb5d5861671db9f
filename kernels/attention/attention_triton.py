"""attention: softmax(q k^T) v, tile by tile under a running maximum, so that no score leaves the processor.

Few queries over many keys, a decoding step, have their own kernel: its programs split the keys, and a
second kernel combines their results. Configurations of twelve warps or more are for the kernel
in `kernels/_attention_groups.py`.
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
from _attention import kept_of, load_packed, load_rows, seen, shown, spans, store_rows
from attention_backward.attention_backward_triton import attention_backward

try:
    import _attention_groups
except ImportError:  # a Triton without Gluon, or with an older one
    _attention_groups = None

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
LEAST_KEYS = 256
"""Least keys of a part, except for the last one."""
COMBINED = 4096
"""Most values in a program of the combining kernel at a time."""
SCAN = tl.constexpr(1024)
"""Keys of a mask that are searched at a time."""


@functools.lru_cache(maxsize=4096)
def choose_config(
    queries: int, width: int, itemsize: int, sides: int, extras: bool, limits: _launch.Limits, groups: bool = False
) -> Config:
    """Returns the first entry of the tuned file that fits the case; nothing is tuned here.

    `sides`: how many limits a query's sight has; `extras`: a mask or dropout, which need more registers;
    `groups`: groups of warps can do it; otherwise their entries are skipped.
    """
    for entry in _launch.tuned(TUNED, limits.key):
        if "rows_max" in entry:
            continue
        fits = queries <= entry.get("queries_max", queries) and width <= entry["width_max"]
        wanted = sides in entry.get("sides", (sides,)) and entry.get("extras", extras) == extras
        able = groups or entry["config"]["warps"] < GROUPED
        if entry["itemsize"] == itemsize and fits and wanted and able:
            return Config(**entry["config"])
    return next(config for most, config in FALLBACK[itemsize].items() if width <= most)


@functools.lru_cache(maxsize=4096)
def choose_split(rows: int, width: int, itemsize: int, limits: _launch.Limits) -> Config | None:
    """Returns how keys are split among programs for so many rows: the first entry whose `rows_max` fits, or None.

    `rows`: queries times the heads that share a key head.
    """
    entries = [entry for entry in _launch.tuned(TUNED, limits.key) if "rows_max" in entry]
    for entry in entries:
        if entry["itemsize"] == itemsize and rows <= entry["rows_max"] and width <= entry["width_max"]:
            return Config(**entry["config"])
    if entries or rows > FALLBACK_ROWS:
        return None
    return next(config for most, config in FALLBACK_SPLIT[itemsize].items() if width <= most)


class Parts(NamedTuple):
    """How the keys of a call are split."""

    count: int
    keys: int
    """Keys of each part but the last; a multiple of `block_n`."""


def parts(config: Config, tiles: int, keys: int, limits: _launch.Limits) -> Parts:
    """Returns the parts that give each processor `fill` programs, at least one; `tiles` are the programs of one part.

    Only keys that some query can see are split, so no part is empty.
    """
    wanted = min(_launch.tiles(config.fill * limits.matrix_processors, tiles), keys // LEAST_KEYS)
    size = _launch.tiles(_launch.tiles(keys, max(wanted, 1)), config.block_n) * config.block_n
    return Parts(_launch.tiles(keys, size), size)


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
    those more than left before or right after it, mask, bool (batch, keys), those with False. A query without keys
    gives 0. dropout is the share of dropped weights, by seed and place only; the others are divided by the rest.

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
    numbers = (
        _attention.default_scale(width, scale) * _attention.LOG2E, _attention.threshold(dropout), 1 / (1 - dropout),
        seed,
    )  # fmt: skip
    padded = max(_launch.power_of_two(width), 16)
    sides = {"LEFT": sight.left is not None, "RIGHT": sight.right is not None}
    flags = {"WIDTH": width, "PADDED": padded, **sides, "MASK": mask is not None, "DROPOUT": dropout > 0}
    tensors = (q, k, v, out, sums, mask)
    config = choose_split(queries * heads // k.shape[1], padded, q.element_size(), limits)
    with _launch.on(q.device):
        if config is None or not _split(*tensors, config, sight, limits, numbers, flags):
            extras = mask is not None or dropout > 0
            case = queries, padded, q.element_size(), sum(sides.values()), extras, limits
            config = choose_config(*case, not extras and _in_groups(q, k, v, out, sight, padded, limits))
            if config.warps >= GROUPED and not _attention_groups.launch(
                q, k, v, out, sums, numbers[0], sides["RIGHT"], config, limits
            ):
                config = choose_config(*case)
            if config.warps < GROUPED:
                _whole(*tensors, config, sight, limits, numbers, flags)
    return out, sums


def _in_groups(q, k, v, out, sight, padded, limits) -> bool:
    """Returns True if groups of warps can do such a call without mask and dropout on this device."""
    if _attention_groups is None or padded not in _attention_groups.WIDTHS or q.element_size() != 2:
        return False
    if sight.left is not None or sight.right not in (None, 0) or not _attention_groups.available(limits):
        return False
    return not _tma.interpreted(_attention_kernel) and all(map(_attention.describable, (q, k, v, out)))


def _whole(q, k, v, out, sums, mask, config, sight, limits, numbers, flags):
    """Runs programs that own queries of one head and walk all keys that these see."""
    batch, heads, queries, _ = q.shape
    keys, padded = k.shape[2], flags["PADDED"]
    blocks = ((q, config.block_m), (k, config.block_n), (v, config.block_n), (out, config.block_m))
    tma = _tma.available(limits, _attention_kernel) and all(_attention.describable(each) for each, _ in blocks)
    given = [_attention.described(each, rows, padded) if tma else each for each, rows in blocks]
    tiles = _launch.tiles(queries, config.block_m) * batch * heads
    programs = min(tiles, limits.programs, limits.grid[0])
    _attention_kernel[(programs,)](
        *given, sums, mask, *q.stride(), *k.stride(), *v.stride(), *(mask.stride() if mask is not None else (0, 0)),
        tiles, heads, heads // k.shape[1], queries, keys, sight.left or 0, sight.right or 0, *numbers, **flags,
        BLOCK_M=config.block_m, BLOCK_N=config.block_n, TMA=tma, TAIL=keys % config.block_n > 0, LOOP=programs < tiles,
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip


def _split(q, k, v, out, sums, mask, config, sight, limits, numbers, flags):
    """Runs programs that own the queries of all heads of a key head and a part of the keys, and combines their results.

    Returns False and does nothing without two parts or shared keys, as it would gain nothing.
    """
    batch, heads, queries, _ = q.shape
    key_heads, keys = k.shape[1:3]
    group = heads // key_heads
    tiles = _launch.tiles(queries * group, config.block_m) * batch * key_heads
    hidden = max(keys - queries - sight.left, 0) // config.block_n * config.block_n if flags["LEFT"] else 0
    count, size = parts(config, tiles, keys - hidden, limits)
    if count == group == 1:
        return False
    tma = _tma.available(limits, _parts_kernel) and all(map(_attention.describable, (k, v)))
    given = [_attention.described(each, config.block_n, flags["PADDED"]) if tma else each for each in (k, v)]
    found = (out, sums, None) if count == 1 else _scratch(out, count)
    programs = min(tiles * count, limits.programs, limits.grid[0])
    _parts_kernel[(programs,)](
        q, *given, *found, mask,
        *q.stride(), *k.stride(), *v.stride(), *(mask.stride() if mask is not None else (0, 0)),
        tiles * count, count, size, heads, group, queries, keys, sight.left or 0, sight.right or 0, *numbers, **flags,
        BLOCK_M=config.block_m, BLOCK_N=config.block_n, TMA=tma, TAIL=keys % config.block_n > 0, ALONE=count == 1,
        LOOP=programs < tiles * count, num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    if count > 1:
        _combine(*found, out, sums, limits, numbers, flags)
    return True


def _scratch(out, count):
    """Returns float32 memory for the parts' results: output before division, maximum and sum of each query."""
    rows = out.shape[:3].numel()
    numbers = torch.empty((2, count, rows), dtype=torch.float32, device=out.device)
    return torch.empty((count, rows, out.shape[3]), dtype=torch.float32, device=out.device), *numbers


def _combine(found, tops, totals, out, sums, limits, numbers, flags):
    """Returns many parts of one row a program, or several rows if there are few parts and enough rows."""
    count, rows, width = found.shape
    values = min(COMBINED, limits.tile_elements) // flags["PADDED"]
    at_once = min(_launch.power_of_two(count), values)
    share = max(rows // (2 * limits.processors), 1)
    block = min(values // at_once, 1 << share.bit_length() - 1)
    tiles = _launch.tiles(rows, block)
    scale, _, upscale, _ = numbers
    _combine_kernel[_launch.grid(tiles, 1, limits)](
        found, tops, totals, out, sums, tiles, rows, count, scale, upscale, WIDTH=width, PADDED=flags["PADDED"],
        ROWS=block, PARTS=at_once, HIDES=flags["LEFT"] or flags["RIGHT"] or flags["MASK"], DROPOUT=flags["DROPOUT"],
        num_warps=4,
    )  # fmt: skip


# --- queries of one head, all keys ------------------------------------------------------------------------------------


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
    acc, total, top = _walk_all(
        acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
        begin, whole, whole_end, end, which, batch, head // group, place, queries, keys, left, right,
        scale, threshold, seed, WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL,
    )  # fmt: skip
    acc, top = _settled(acc, total, top, scale, upscale, (LEFT or RIGHT) or MASK, DROPOUT)
    row = first + tl.arange(0, BLOCK_M)
    tl.store(sums + tl.cast(which, tl.int64) * queries + row, top, mask=row < queries)
    store_rows(out, acc, batch, head, heads, first, queries, WIDTH, PADDED, BLOCK_M, TMA)


# --- queries of all heads of a key head, a part of the keys -----------------------------------------------------------


@triton.jit(do_not_specialize=["tiles", "parts", "size", "queries", "keys", "left", "right", "threshold", "seed"])
def _parts_kernel(
    q, k, v, out, sums, totals, mask, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
    tiles, parts, size, heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    TAIL: tl.constexpr, ALONE: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    if LOOP:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            _one_part(
                q, k, v, out, sums, totals, mask,
                q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
                tile, tiles, parts, size, heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
                WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL, ALONE,
            )  # fmt: skip
    else:
        _one_part(
            q, k, v, out, sums, totals, mask,
            q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c, tl.program_id(0),
            tiles, parts, size, heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL, ALONE,
        )  # fmt: skip


@triton.jit
def _one_part(
    q_from, k_from, v_from, out, sums, totals, mask,
    q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
    tile, tiles, parts, size, heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    TAIL: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """BLOCK_M of the rows of one key head, one head's queries after another's, and `size` keys of those that any sees.

    ALONE: these are all keys, and out and sums are the op's own. Otherwise the combining kernel needs of each part
    the output before division, the largest score instead of sums, and the sum of exponentials, totals.
    """
    rows = group * queries
    blocks = tl.cdiv(rows, BLOCK_M)
    first = tile % blocks * BLOCK_M
    part = tile // blocks % parts
    which = tile // blocks // parts
    key_heads = heads // group
    batch = which // key_heads
    head = which % key_heads
    row = first + tl.arange(0, BLOCK_M)
    q = load_packed(q_from, batch, head * group, first, queries, rows, q_b, q_h, q_r, q_c, WIDTH, PADDED, BLOCK_M)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, PADDED), tl.float32)
    begin, whole, whole_end, end = spans(keys - queries, queries, left, right, keys, BLOCK_N, LEFT, RIGHT, TAIL)
    begin += part * size
    end = tl.minimum(begin + size, end)
    if MASK:
        begin, end = shown(mask + tl.cast(batch, tl.int64) * mask_b, mask_c, begin, end, BLOCK_N, SCAN)
    whole = tl.minimum(tl.maximum(whole, begin), end)
    whole_end = tl.minimum(tl.maximum(whole_end, whole), end)
    acc, total, top = _walk_all(
        acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
        begin, whole, whole_end, end, which * group + row // queries, batch, head, row % queries + keys - queries,
        queries, keys, left, right, scale, threshold, seed,
        WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL,
    )  # fmt: skip
    groups = tiles // blocks // parts
    place = tl.cast(part * groups + which, tl.int64) * rows + row
    if ALONE:
        acc, top = _settled(acc, total, top, scale, upscale, (LEFT or RIGHT) or MASK, DROPOUT)
    else:
        tl.store(totals + place, total, mask=row < rows)
    tl.store(sums + place, top, mask=row < rows)
    store_rows(out, acc, part, which, groups, first, rows, WIDTH, PADDED, BLOCK_M, False)


@triton.jit(do_not_specialize=["tiles", "rows", "parts"])
def _combine_kernel(
    found, tops, totals, out, sums, tiles, rows, parts, scale, upscale,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr,
    HIDES: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """ROWS queries' output from all parts', PARTS at a time in their order: two calls give the same bits."""
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        first = tile * ROWS
        row = first + tl.arange(0, ROWS)
        col = tl.arange(0, PADDED)
        top = tl.full((ROWS,), -float("inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        acc = tl.zeros((ROWS, PADDED), tl.float32)
        for n in tl.range(0, parts, PARTS):
            part = n + tl.arange(0, PARTS)
            place = part.to(tl.int64)[:, None] * rows + row[None, :]
            inside = (part < parts)[:, None] & (row < rows)[None, :]
            tile_top = tl.load(tops + place, mask=inside, other=-float("inf"))
            tile_total = tl.load(totals + place, mask=inside, other=0.0)
            values = tl.load(
                found + place[:, :, None] * WIDTH + col[None, None, :],
                mask=inside[:, :, None] & (col < WIDTH)[None, None, :], other=0.0,
            )  # fmt: skip
            raised = tl.maximum(top, tl.max(tile_top, 0))
            shift = tl.where(raised == -float("inf"), 0.0, raised)  # -inf - -inf would be NaN
            fade = tl.exp2((top - shift) * scale)
            weight = tl.exp2((tile_top - shift[None, :]) * scale)
            total = total * fade + tl.sum(tile_total * weight, 0)
            acc = acc * fade[:, None] + tl.sum(values * weight[:, :, None], 0)
            top = raised
        acc, top = _settled(acc, total, top, scale, upscale, HIDES, DROPOUT)
        tl.store(sums + row, top, mask=row < rows)
        store_rows(out, acc, 0, 0, 1, first, rows, WIDTH, PADDED, ROWS, False)


# --- what they share --------------------------------------------------------------------------------------------------


@triton.jit
def _settled(acc, total, top, scale, upscale, HIDES: tl.constexpr, DROPOUT: tl.constexpr):
    """Rows' output and the base-2 logarithms of their sums. HIDES: some may have seen no key."""
    share = total
    if HIDES:
        share = tl.where(total == 0.0, 1.0, total)  # a query that sees no key gives 0
    acc = acc / share[:, None]
    if DROPOUT:
        acc = acc * upscale
    return acc, top * scale + tl.log2(share)


@triton.jit
def _walk_all(
    acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
    begin, whole, whole_end, end, which, batch, head, place, queries, keys, left, right, scale, threshold, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """Adds the keys of [begin, end), those of [whole, whole_end) without masks; the mask may hide any."""
    if MASK:
        whole_end = begin
    if LEFT and not MASK:
        acc, total, top = _walk(
            acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
            begin, whole, which, batch, head, place, queries, keys, left, right, scale, threshold, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, True,
        )  # fmt: skip
    if not MASK:
        acc, total, top = _walk(
            acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
            whole, whole_end, which, batch, head, place, queries, keys, left, right, scale, threshold, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, False,
        )  # fmt: skip
    if (RIGHT or TAIL) or MASK:  # triton-ascend takes two at a time
        acc, total, top = _walk(
            acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
            whole_end, end, which, batch, head, place, queries, keys, left, right, scale, threshold, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, True,
        )  # fmt: skip
    return acc, total, top


@triton.jit
def _walk(
    acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_c,
    begin, end, which, batch, head, place, queries, keys, left, right, scale, threshold, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr, HIDES: tl.constexpr,
):  # fmt: skip
    """Adds the keys of [begin, end). which: batch * heads + head of all rows, or of each. HIDES: some may be hidden."""
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
