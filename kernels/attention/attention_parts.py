"""attention for few queries over many keys: programs own the queries of all heads of a key head and a part of the keys.

A second kernel combines their results.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

import _attention
import _launch
import _tma
from _attention import OF_KEYS, load_packed, mask_from, shown, spans, store_rows
from attention.attention_walk import settled, walk_all

LEAST_KEYS = 256
"""Least keys of a part, except for the last one."""
COMBINED = 4096
"""Most values in a program of the combining kernel at a time."""
SCAN = tl.constexpr(1024)
"""Keys of a mask that are searched at a time."""


class Parts(NamedTuple):
    """How the keys of a call are split."""

    count: int
    keys: int
    """Keys of each part but the last; a multiple of `block_n`."""


def parts(config, tiles: int, keys: int, limits: _launch.Limits) -> Parts:
    """Returns the parts that give each processor `fill` programs, at least one; `tiles` are the programs of one part.

    Only keys that some query can see are split, so no part is empty.
    """
    wanted = min(_launch.tiles(config.fill * limits.matrix_processors, tiles), keys // LEAST_KEYS)
    size = _launch.tiles(_launch.tiles(keys, max(wanted, 1)), config.block_n) * config.block_n
    return Parts(_launch.tiles(keys, size), size)


def split(q, k, v, out, sums, mask, steps, config, sight, limits, numbers, flags):
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
    outputs = (out, sums, None) if count == 1 else _scratch(out, count)
    programs = min(tiles * count, limits.programs, limits.grid[0])
    _parts_kernel[(programs,)](
        q, *given, *outputs, mask, *q.stride(), *k.stride(), *v.stride(), *steps,
        tiles * count, count, size, heads, group, queries, keys, sight.left or 0, sight.right or 0, *numbers, **flags,
        BLOCK_M=config.block_m, BLOCK_N=config.block_n, TMA=tma, TAIL=keys % config.block_n > 0, ALONE=count == 1,
        LOOP=programs < tiles * count, num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    if count > 1:
        _combine(*outputs, out, sums, limits, numbers, flags)
    return True


def _scratch(out, count):
    """Returns float32 memory for the parts' results: output before division, maximum and sum of each query."""
    rows = out.shape[:3].numel()
    numbers = torch.empty((2, count, rows), dtype=torch.float32, device=out.device)
    return torch.empty((count, rows, out.shape[3]), dtype=torch.float32, device=out.device), *numbers


def _combine(partial, tops, totals, out, sums, limits, numbers, flags):
    """Returns many parts of one row a program, or several rows if there are few parts and enough rows."""
    count, rows, width = partial.shape
    values = min(COMBINED, limits.tile_elements) // flags["PADDED"]
    at_once = min(_launch.power_of_two(count), values)
    share = max(rows // (2 * limits.processors), 1)
    block = min(values // at_once, 1 << share.bit_length() - 1)
    tiles = _launch.tiles(rows, block)
    scale, _, upscale, _ = numbers
    _combine_kernel[_launch.grid(tiles, 1, limits)](
        partial, tops, totals, out, sums, tiles, rows, count, scale, upscale, WIDTH=width, PADDED=flags["PADDED"],
        ROWS=block, PARTS=at_once, HIDES=flags["LEFT"] or flags["RIGHT"] or flags["MASK"] > 0, DROPOUT=flags["DROPOUT"],
        num_warps=4,
    )  # fmt: skip


@triton.jit(do_not_specialize=["tiles", "parts", "size", "queries", "keys", "left", "right", "threshold", "seed"])
def _parts_kernel(
    q, k, v, out, sums, totals, mask,
    q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_h, mask_r, mask_c, factor,
    tiles, parts, size, heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr,
    TAIL: tl.constexpr, ALONE: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    if LOOP:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            _one_part(
                q, k, v, out, sums, totals, mask,
                q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_h, mask_r, mask_c, factor,
                tile, tiles, parts, size, heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
                WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL, ALONE,
            )  # fmt: skip
    else:
        _one_part(
            q, k, v, out, sums, totals, mask,
            q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_h, mask_r, mask_c, factor,
            tl.program_id(0),
            tiles, parts, size, heads, group, queries, keys, left, right, scale, threshold, upscale, seed,
            WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL, ALONE,
        )  # fmt: skip


@triton.jit
def _one_part(
    q_from, k_from, v_from, out, sums, totals, mask,
    q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_b, mask_h, mask_r, mask_c, factor,
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
        own = head * group + tl.minimum(row, rows - 1) // queries
        mask = mask_from(mask, batch, own, row % queries, queries, mask_b, mask_h, mask_r, MASK)
    if MASK == OF_KEYS:
        begin, end = shown(mask, mask_c, begin, end, BLOCK_N, SCAN)
    whole = tl.minimum(tl.maximum(whole, begin), end)
    whole_end = tl.minimum(tl.maximum(whole_end, whole), end)
    acc, total, top = walk_all(
        acc, total, top, q, k_from, v_from, mask, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c, mask_c, factor,
        begin, whole, whole_end, end, which * group + row // queries, batch, head, row % queries + keys - queries,
        queries, keys, left, right, scale, threshold, seed,
        WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, LEFT, RIGHT, MASK, DROPOUT, TAIL,
    )  # fmt: skip
    groups = tiles // blocks // parts
    place = tl.cast(part * groups + which, tl.int64) * rows + row
    if ALONE:
        acc, top = settled(acc, total, top, scale, upscale, (LEFT or RIGHT) or MASK, DROPOUT)
    else:
        tl.store(totals + place, total, mask=row < rows)
    tl.store(sums + place, top, mask=row < rows)
    store_rows(out, acc, part, which, groups, first, rows, WIDTH, PADDED, BLOCK_M, False)


@triton.jit(do_not_specialize=["tiles", "rows", "parts"])
def _combine_kernel(
    partial, tops, totals, out, sums, tiles, rows, parts, scale, upscale,
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
                partial + place[:, :, None] * WIDTH + col[None, None, :],
                mask=inside[:, :, None] & (col < WIDTH)[None, None, :], other=0.0,
            )  # fmt: skip
            raised = tl.maximum(top, tl.max(tile_top, 0))
            shift = tl.where(raised == -float("inf"), 0.0, raised)  # -inf - -inf would be NaN
            fade = tl.exp2((top - shift) * scale)
            weight = tl.exp2((tile_top - shift[None, :]) * scale)
            total = total * fade + tl.sum(tile_total * weight, 0)
            acc = acc * fade[:, None] + tl.sum(values * weight[:, :, None], 0)
            top = raised
        acc, top = settled(acc, total, top, scale, upscale, HIDES, DROPOUT)
        tl.store(sums + row, top, mask=row < rows)
        store_rows(out, acc, 0, 0, 1, first, rows, WIDTH, PADDED, ROWS, False)
