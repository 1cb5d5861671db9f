"""Common to the attention ops: checks of their arguments, which keys a query sees, dropout's places, loads of rows.

A query's place is its number plus keys - queries, so the last query is aligned with the last key.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import _launch
import _tma

WIDEST = 256
"""Largest width of a head."""
LOG2E = math.log2(math.e)
DROPOUT_STEPS = 2**31
"""Dropout's probability is rounded to a multiple of one over this: 31 bits of each random word are compared."""

OF_KEYS, OF_PLACES, ADDED = tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
"""Kinds of masks: the keys that all queries of a batch see, those that each query sees, numbers added to scores."""
TILED = tl.constexpr(2)
"""On top of the last two kinds: the mask is a descriptor of tiles, see `tiled`."""
LOWEST = tl.constexpr(-2e38)
"""Scores below it have no base-2 logarithm in float32, and gradients of 0."""

Window = tuple[int | None, int | None]


class Sight(NamedTuple):
    """How far a query sees from its place; None: all keys."""

    left: int | None
    right: int | None


# --- arguments --------------------------------------------------------------------------------------------------------


def check(
    op: str, q: Any, k: Any, v: Any, mask: Any, window: Any, scale: float | None, dropout: float, seed: int
) -> None:
    """Raises TypeError for other types and dtypes, ValueError for wrong shapes, devices and numbers."""
    _launch.check_tensors(op, q=q, k=k, v=v)
    _launch.check_same_dtype(op, q=q, k=k, v=v)
    shapes = f"q is {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}"
    if not (q.ndim == k.ndim == v.ndim == 4 and k.shape == v.shape and q.shape[::3] == k.shape[::3]):
        wanted = "(batch, heads, queries, width) for q and (batch, key heads, keys, width) for k and v"
        raise ValueError(f"{op}: needs shapes {wanted}, but {shapes}")
    if not 1 <= q.shape[3] <= WIDEST:
        raise ValueError(f"{op}: a head is {q.shape[3]} wide, but has to be 1 to {WIDEST}")
    if q.shape[1] % max(k.shape[1], 1) or (q.shape[1] and not k.shape[1]):
        raise ValueError(f"{op}: the heads of k and v have to divide those of q, but {shapes}")
    if mask is not None:
        _check_mask(op, mask, q, k)
    _check_numbers(op, window, scale, dropout, seed)


def _check_mask(op: str, mask: Any, q: torch.Tensor, k: torch.Tensor) -> None:
    dtypes = (torch.bool, q.dtype) if isinstance(mask, torch.Tensor) and mask.ndim == 4 else (torch.bool,)
    if not isinstance(mask, torch.Tensor) or mask.dtype not in dtypes:
        given = f"{mask.dtype} {tuple(mask.shape)}" if isinstance(mask, torch.Tensor) else f"a {type(mask).__name__}"
        wanted = f"torch.bool, True if a key is seen, or with four dimensions {q.dtype}, added to the scores"
        raise TypeError(f"{op}: mask is {given}, but has to be a tensor of {wanted}")
    sizes = (*q.shape[:3], k.shape[2])
    fits = mask.ndim == 4 and all(has in {1, size} for has, size in zip(mask.shape, sizes, strict=True))
    if not (fits or mask.shape == (sizes[0], sizes[3])) or mask.device != q.device:
        wanted = f"{(sizes[0], sizes[3])}, batch and keys, or {sizes}, any of which may be 1"
        raise ValueError(f"{op}: mask is {tuple(mask.shape)} on {mask.device}, but needs {wanted}, on {q.device}")
    if mask.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{op}: mask needs a gradient, but has none. Detach it")


def _check_numbers(op: str, window: Any, scale: float | None, dropout: float, seed: int) -> None:
    sides = isinstance(window, tuple | list) and len(window) == 2
    if not sides or not all(side is None or (isinstance(side, int) and side >= 0) for side in window):
        raise ValueError(f"{op}: window is {window!r}, but has to be (left, right), each None or a number of keys")
    if scale is not None and not (0 < scale < math.inf):
        raise ValueError(f"{op}: scale is {scale}, but has to be above 0 and finite")
    if not 0 <= dropout < 1:
        raise ValueError(f"{op}: dropout is {dropout}, but has to be 0 or more and below 1")
    if not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ValueError(f"{op}: seed is {seed!r}, but has to be a whole number from 0 to 2**63 - 1")


def sight(queries: int, keys: int, causal: bool, window: Window) -> Sight:
    """Returns both limits of a query's sight; None for one that hides nothing at these sizes.

    >>> sight(4, 9, True, (3, None)), sight(1, 9, True, (None, None)), sight(4, 4, False, (3, 3))
    (Sight(left=3, right=0), Sight(left=None, right=None), Sight(left=None, right=None))
    """
    left, right = window
    right = 0 if causal else right
    return Sight(
        None if left is None or left >= keys - 1 else left, None if right is None or right >= queries - 1 else right
    )


def default_scale(width: int, scale: float | None) -> float:
    """Returns the given scale, or 1 / sqrt(width)."""
    return 1 / math.sqrt(width) if scale is None else float(scale)


def laid(mask: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor, scale: float) -> tuple[Any, tuple[Any, ...], int]:
    """Returns the mask, what kernels need to read it and its kind, 0 if there is none.

    These are its steps from batch to batch, head to head, query to query and key to key, 0 where it is broadcast, and
    the scale of scores that it is added to. What a kind has no need of is None, and no argument of a compiled kernel.
    """
    if mask is None:
        return None, (0, None, None, 0, None), 0
    mask = (mask if mask.ndim == 4 else mask[:, None, None]).expand(*q.shape[:3], k.shape[2])
    steps = [0 if size == 1 else step for size, step in zip(mask.shape, mask.stride(), strict=True)]
    if mask.dtype != torch.bool:
        return mask, (*steps, scale), ADDED.value
    if steps[1] or steps[2]:
        return mask, (*steps, None), OF_PLACES.value
    return mask, (steps[0], None, None, steps[3], None), OF_KEYS.value


def tiled(
    mask: torch.Tensor | None, steps: tuple[Any, ...], kind: int, rows: int, keys: int
) -> tuple[Any, tuple[Any, ...], int]:
    """Returns what `laid` returned, with a descriptor of tiles of so many queries and keys in the place of the mask.

    The descriptor has all rows of the mask below each other, and the steps from batch to batch and from head to head
    count rows. If no descriptor fits, as for queries that share a row, nothing changes.
    """
    by_batch, by_head, row, key, factor = steps
    if kind <= OF_KEYS.value or key != 1 or not row or by_batch % row or by_head % row:
        return mask, steps, kind
    by_batch, by_head = by_batch // row, by_head // row
    height = (mask.shape[0] - 1) * by_batch + (mask.shape[1] - 1) * by_head + mask.shape[2]
    flat = mask.view(torch.uint8) if mask.dtype == torch.bool else mask
    flat = flat.as_strided((height, mask.shape[3]), (row, 1))
    if _tma.dense_side(flat) != 1:
        return mask, steps, kind
    return _tma.descriptor(flat, 1, rows, keys), (by_batch, by_head, None, None, factor), kind + TILED.value


def threshold(dropout: float) -> int:
    """Words below this are dropped."""
    return min(round(dropout * DROPOUT_STEPS), DROPOUT_STEPS - 1)


# --- loading ----------------------------------------------------------------------------------------------------------


def describable(tensor: torch.Tensor) -> bool:
    """Returns True if a descriptor can describe it: 16-byte aligned rows without gaps between their elements."""
    size = tensor.element_size()
    *outer, last = tensor.stride()
    if last != 1 or tensor.data_ptr() % _tma.ALIGNMENT or max(tensor.shape) >= _tma.FARTHEST:
        return False
    return all(0 < step * size < _tma.LONGEST_STRIDE and step * size % _tma.ALIGNMENT == 0 for step in outer)


def described(tensor: torch.Tensor, rows: int, padded: int) -> Any:
    """A descriptor, of what is `describable`, of tiles of so many rows of one head, padded with zeros."""
    return _tma.described(tensor, [*tensor.shape], [*tensor.stride()], [1, 1, rows, padded])


@triton.jit
def load_rows(
    source, batch, head, first, rows, step_b, step_h, step_r, step_c,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """BLOCK rows of one head from `first` on, (BLOCK, PADDED), zeros beyond its edges. TMA: source is a descriptor."""
    if TMA:
        tile = source.load([batch, head, first, 0]).reshape(BLOCK, PADDED)
    else:
        row = first + tl.arange(0, BLOCK)
        col = tl.arange(0, PADDED)
        base = source + tl.cast(batch, tl.int64) * step_b + tl.cast(head, tl.int64) * step_h
        inside = (row < rows)[:, None]
        if WIDTH < PADDED:
            inside = inside & (col < WIDTH)[None, :]
        place = row.to(tl.int64)[:, None] * step_r + col.to(tl.int64)[None, :] * step_c
        tile = tl.load(base + place, mask=inside, other=0.0)
    return tile


@triton.jit
def load_packed(
    source, batch, head, first, queries, rows, step_b, step_h, step_r, step_c,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK of the `rows` rows that the heads from `head` on have together, one head's queries after another's."""
    row = first + tl.arange(0, BLOCK)
    col = tl.arange(0, PADDED)
    inside = (row < rows)[:, None]
    if WIDTH < PADDED:
        inside = inside & (col < WIDTH)[None, :]
    base = source + tl.cast(batch, tl.int64) * step_b
    place = (head + row // queries).to(tl.int64) * step_h + (row % queries).to(tl.int64) * step_r
    return tl.load(base + place[:, None] + col.to(tl.int64)[None, :] * step_c, mask=inside, other=0.0)


@triton.jit
def store_rows(
    target, tile, batch, head, heads, first, rows,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """The counterpart for a contiguous output; writes nothing beyond its edges."""
    if TMA:
        target.store([batch, head, first, 0], tile.to(target.dtype).reshape(1, 1, BLOCK, PADDED))
    else:
        row = first + tl.arange(0, BLOCK)
        col = tl.arange(0, PADDED)
        inside = (row < rows)[:, None]
        if WIDTH < PADDED:
            inside = inside & (col < WIDTH)[None, :]
        base = target + (tl.cast(batch, tl.int64) * heads + head) * rows * WIDTH
        place = row.to(tl.int64)[:, None] * WIDTH + col[None, :]
        tl.store(base + place, tile.to(target.dtype.element_ty), mask=inside)


# --- what is seen -----------------------------------------------------------------------------------------------------


@triton.jit
def spans(
    place, count, before, after, size,
    STEP: tl.constexpr, BEFORE: tl.constexpr, AFTER: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """Partners of the places from `place` on, `count` of them, in tiles of STEP: (begin, whole, whole_end, end).

    No place sees partners outside [begin, end). All places see tiles inside [whole, whole_end), which therefore need
    no masks. A place sees the partners from `before` before it (if BEFORE) to `after` after it (if AFTER), of `size`.
    TAIL: the last tile needs a mask, as STEP may not divide the size.
    """
    begin = 0
    whole = 0
    end = size
    whole_end = size
    if BEFORE:
        begin = tl.maximum(place - before, 0) // STEP * STEP
        whole = tl.cdiv(tl.maximum(place + count - 1 - before, 0), STEP) * STEP
    if AFTER:
        end = tl.minimum(tl.maximum(place + count + after, 0), size)
        whole_end = tl.minimum(tl.maximum(place + 1 + after, 0), size)
    if AFTER or TAIL:
        whole_end = whole_end // STEP * STEP
    if BEFORE:
        whole = tl.minimum(whole, end)
        whole_end = tl.maximum(whole_end, whole)
    return begin, whole, whole_end, end


@triton.jit
def seen(place, key, left, right, keys, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """True where queries at these places see these keys; both shapes broadcast."""
    visible = key < keys
    if LEFT:
        visible = visible & (key >= place - left)
    if RIGHT:
        visible = visible & (key <= place + right)
    return visible


@triton.jit
def mask_from(mask, batch, head, query, queries, step_b, step_h, step_r, MASK: tl.constexpr):
    """Where a batch's mask of keys begins, or where each query's mask does; beyond the last query at the last one's."""
    start = mask + tl.cast(batch, tl.int64) * step_b
    if MASK > OF_KEYS:
        place = tl.minimum(query, queries - 1).to(tl.int64)
        start = start + tl.cast(head, tl.int64) * step_h + place * step_r
    return start


@triton.jit
def masked(s, part, factor, MASK: tl.constexpr):
    """Scores under their part of a mask of places. Those that it is added to are times factor first."""
    if MASK == ADDED or MASK == ADDED + TILED:
        return s * factor + part.to(tl.float32)
    return tl.where(part != 0, s, -float("inf"))


@triton.jit
def load_part(from_rows, key, keys, step):
    """The part of a mask of places for these keys. Both shapes of from_rows, see `mask_from`, and key broadcast."""
    return tl.load(from_rows + key.to(tl.int64) * step, mask=key < keys, other=0)


@triton.jit
def shown(mask, step, begin, end, STEP: tl.constexpr, SCAN: tl.constexpr):
    """The part of [begin, end) from the first to the last True of a row of the mask, (first, last + 1), SCAN at a time.

    begin is a multiple of STEP, and so is the returned begin. Without any True the part is empty.
    """
    first = end
    last = begin
    for n in tl.range(begin, end, SCAN):
        key = n + tl.arange(0, SCAN)
        on = tl.load(mask + key.to(tl.int64) * step, mask=key < end, other=0) != 0
        first = tl.minimum(first, tl.min(tl.where(on, key, end), 0))
        last = tl.maximum(last, tl.max(tl.where(on, key + 1, begin), 0))
    return first // STEP * STEP, last


@triton.jit
def kept(threshold, seed, which, first_row, first_col, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Which weights of a tile dropout keeps, (ROWS, COLS), for queries from first_row and keys from first_col."""
    return kept_of(threshold, seed, which, first_row + tl.arange(0, ROWS), first_col, ROWS, COLS)


@triton.jit
def kept_of(threshold, seed, which, query, first_col, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The same of any queries, (ROWS,), of one head or of a head each: `which` is a number or (ROWS,) of them.

    Philox 4x32-10 (Salmon and others, 2011) of the counter (query, key // 4, batch * heads + head, 0) and the seed
    gives the words of four keys. A weight stays if its word's upper 31 bits reach the threshold.
    """
    quad = first_col // 4 + tl.arange(0, COLS // 4)
    none = tl.zeros((ROWS, COLS // 4), tl.int32)
    of_row = (tl.zeros((ROWS,), tl.int32) + which)[:, None]
    first, second, third, fourth = tl.philox(seed, none + query[:, None], none + quad[None, :], none + of_row, none)
    words = tl.join(tl.join(first, third), tl.join(second, fourth))
    return (tl.reshape(words, (ROWS, COLS)) >> 1).to(tl.int32) >= threshold
