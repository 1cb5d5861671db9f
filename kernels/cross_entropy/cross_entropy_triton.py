"""cross_entropy: logits are read once, and probabilities are never written.

A row's loss needs its maximum, the sum of its exponentials and the target's logit. Short rows stay in registers.
Long ones are walked with a running maximum. If rows are few and long, several programs share one.
"""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch
import _rows
from _rows import Config, Tile

TUNED = Path(__file__).parent / "tuned"
REDUCTIONS = ("none", "mean", "sum")
# For devices without a tuned file: widest row, a power of two -> config. Rows are read once, so none has to be kept.
WHOLE_ROWS = {
    2048: Config(elements=2048, warps=4, programs=12),
    4096: Config(elements=4096, warps=8, programs=5),
}
LONG_ROWS = Config(elements=8192, warps=8, programs=4)
STEP = 1024
"""Programs with sums that are added up at a time."""
LEAST = tl.constexpr(-3.4028234663852886e38)
"""Where a running maximum begins: finite, so that rows of -inf do not give NaN in between."""


@functools.lru_cache(maxsize=4096)
def choose_tile(rows: int, cols: int, itemsize: int, limits: _launch.Limits) -> Tile:
    """Returns the tile for a shape."""
    return _rows.choose(rows, cols, itemsize, limits, TUNED, WHOLE_ROWS, LONG_ROWS, loads=1)


def cross_entropy(
    x: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Returns -log softmax(x)[target] of each row of x (rows, classes), or of one row x (classes,), in x's dtype.

    `target` holds int64 class numbers, shape x.shape[:-1]. Rows with the target `ignore_index` count for nothing and
    are not read. With `label_smoothing` s a row's loss is (1 - s) times that, plus s times the mean over all classes.
    `reduction` is "none" (shape of target), "sum", or "mean" over the rows that count (NaN if none does).

    x is float32, float16 or bfloat16, of any strides, computed in float32 from the row's maximum and rounded once. A
    target that is no class gives NaN, since an error would make every call wait for the device. Raises
    TypeError for dtypes, ValueError for shapes, devices, reduction or label_smoothing.
    """
    check(x, target, reduction, label_smoothing)
    out = torch.empty(target.shape if reduction == "none" else (), dtype=x.dtype, device=x.device)
    if target.numel():
        _launched(x, target, out, ignore_index, reduction, float(label_smoothing))
        return out
    return out.fill_(float("nan") if reduction == "mean" else 0.0)


def check(x: torch.Tensor, target: torch.Tensor, reduction: str, label_smoothing: float) -> None:
    """Raises TypeError or ValueError for arguments that `cross_entropy` does not take."""
    _launch.check_tensors("cross_entropy", x=x)
    if not isinstance(target, torch.Tensor) or target.dtype != torch.int64:
        given = target.dtype if isinstance(target, torch.Tensor) else type(target).__name__
        raise TypeError(f"cross_entropy: target is of {given}, but has to be a tensor of int64 class numbers")
    if x.ndim not in {1, 2}:
        raise ValueError(f"cross_entropy: x has shape {tuple(x.shape)}, but has to be (rows, classes) or (classes,)")
    if target.shape != x.shape[:-1]:
        raise ValueError(
            f"cross_entropy: target has shape {tuple(target.shape)}, but x of shape {tuple(x.shape)} needs "
            f"{tuple(x.shape[:-1])}"
        )
    if target.device != x.device:
        raise ValueError(
            f"cross_entropy: all tensors have to lie on one device, but x on {x.device}, target on {target.device}"
        )
    if not x.shape[-1]:
        raise ValueError(f"cross_entropy: x has shape {tuple(x.shape)}, but needs at least one class")
    if reduction not in REDUCTIONS:
        raise ValueError(f"cross_entropy: reduction is {reduction!r}, but has to be 'none', 'mean' or 'sum'")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing is {label_smoothing}, but has to lie between 0 and 1")


def _launched(
    x: torch.Tensor, target: torch.Tensor, out: torch.Tensor, ignore_index: int, reduction: str, smoothing: float
) -> None:
    rows = target.numel()
    cols, row_stride = x.shape[-1], x.stride(0) if x.ndim == 2 else 0
    limits = _launch.limits(x.device)
    tile = choose_tile(rows, cols, x.element_size(), limits)
    labels = (target, target.stride(0) if target.ndim else 0, ignore_index)
    source = (x, row_stride, x.stride(-1), *labels)
    with _launch.on(x.device):
        if tile.parts > 1:
            _shared_rows(source, out, rows, cols, smoothing, reduction, tile, limits)
            return
        grid = _rows.programs(_launch.tiles(rows, tile.rows), tile, limits)
        # Each program's sum of losses and number of rows that count; one more kernel adds them up, always in one order.
        sums = None if reduction == "none" else torch.empty((2, grid[0]), dtype=torch.float32, device=x.device)
        losses = out if sums is None else None
        if tile.lanes:
            _long_rows_kernel[grid](
                *source, losses, sums, rows, cols, smoothing, SMOOTH=smoothing != 0, ALIGN=_aligned(x),
                LANES=tile.lanes, COLS=tile.cols, STAGES=tile.stages, num_warps=tile.warps,
            )  # fmt: skip
        else:
            unit = _unit(x)
            _rows_kernel[grid](
                x, row_stride // unit, x.stride(-1), *labels, losses, sums, rows, cols // unit, smoothing,
                SMOOTH=smoothing != 0, UNIT=unit, ROWS=tile.rows, COLS=tile.cols, STAGES=tile.stages,
                num_warps=tile.warps,
            )  # fmt: skip
        if sums is not None:
            _total_kernel[(1,)](sums, out, grid[0], MEAN=reduction == "mean", STEP=STEP, num_warps=4)


def _shared_rows(
    source: tuple, out: torch.Tensor, rows: int, cols: int, smoothing: float, reduction: str, tile: Tile,
    limits: _launch.Limits,
) -> None:  # fmt: skip
    """Few long rows: maximum and sum of each part by one kernel, the losses and their total by another."""
    empty = torch.empty((3, rows, tile.parts), dtype=torch.float32, device=out.device)
    _parts_kernel[_launch.grid(rows * tile.parts, 1, limits)](
        *source, empty, rows, cols, tile.parts, _rows.span(cols, tile), SMOOTH=smoothing != 0,
        ALIGN=_aligned(source[0]), LANES=tile.lanes, COLS=tile.cols, STAGES=tile.stages, num_warps=tile.warps,
    )  # fmt: skip
    parts = _launch.power_of_two(tile.parts)
    _join_kernel[(1,)](
        *source, empty, out, rows, cols, tile.parts, smoothing,
        SMOOTH=smoothing != 0, REDUCTION=reduction, ROWS=max(2048 // parts, 1), PARTS=parts, num_warps=8,
    )  # fmt: skip


def _aligned(x: torch.Tensor) -> int:
    """Columns of a vector, at whose multiples the chunks of a long row begin; 1 if elements are not neighbours."""
    return _launch.VECTOR_BYTES // x.element_size() if x.stride(-1) == 1 else 1


def _unit(x: torch.Tensor) -> int:
    """Columns of a vector if all rows are whole vectors, else 1. Triton itself recognises only multiples of 16."""
    vector = _aligned(x)
    row_stride = x.stride(0) if x.ndim == 2 else 0
    return vector if x.shape[-1] % vector == row_stride % vector == 0 else 1


@triton.jit
def _base(x_ptr, place, keep):
    """The first logits of rows, from which their means are counted: 1e5 and 1e5 + 1 have a mean of 1e5 and a half."""
    base = tl.load(x_ptr + place, mask=keep, other=0.0).to(tl.float32)
    return tl.where(tl.abs(base) < float("inf"), base, 0.0)


@triton.jit
def _loss(x_ptr, row, row_stride, col_stride, label, keep, top, total, above, cols, smoothing, SMOOTH: tl.constexpr):
    """Losses of rows, from largest logit, sum of exponentials from there and mean above `_base`; 0 if not kept."""
    inside = (label >= 0) & (label < cols)
    picked = tl.load(x_ptr + row * row_stride + label * col_stride, mask=keep & inside, other=0.0).to(tl.float32)
    below = top - picked  # before the logarithm is added: logits may be large, their differences are not
    if SMOOTH:
        base = _base(x_ptr, row * row_stride, keep)
        below = (1.0 - smoothing) * below + smoothing * (top - base - above)
    loss = tl.where(inside, tl.log(total) + below, float("nan"))
    return tl.where(keep, loss, 0.0)


@triton.jit(do_not_specialize=["ignore_index", "rows"])
def _rows_kernel(
    x_ptr, row_units, col_stride, target_ptr, target_stride, ignore_index, loss_ptr, sums_ptr, rows, units, smoothing,
    SMOOTH: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Whole rows at once; row stride and columns come counted in units of UNIT columns."""
    row_stride = row_units * UNIT
    cols = units * UNIT
    col = tl.arange(0, COLS)
    step = tl.num_programs(0).to(tl.int64) * ROWS  # 64 bits, as x may have more than 2**31 elements
    losses = tl.zeros([ROWS], dtype=tl.float32)
    counts = tl.zeros([ROWS], dtype=tl.float32)
    for first in tl.range(tl.program_id(0).to(tl.int64) * ROWS, rows, step, num_stages=STAGES):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        label = tl.load(target_ptr + row * target_stride, mask=row < rows, other=0)
        keep = (row < rows) & (label != ignore_index)
        mask = keep[:, None] & (col < cols)[None, :]
        source = x_ptr + row[:, None] * row_stride + col[None, :].to(tl.int64) * col_stride
        x = tl.load(source, mask=mask, other=-float("inf")).to(tl.float32)
        top = tl.maximum(tl.max(x, axis=1), LEAST)
        total = tl.sum(tl.exp(x - top[:, None]), axis=1)
        above = top
        if SMOOTH:
            base = _base(x_ptr, row * row_stride, keep)
            above = tl.sum(tl.where(mask, (x - base[:, None]) * (1.0 / cols), 0.0), axis=1)
        loss = _loss(
            x_ptr, row, row_stride, col_stride, label, keep, top, total, above, cols, smoothing, SMOOTH
        )  # fmt: skip
        if loss_ptr is not None:
            tl.store(loss_ptr + row, loss.to(loss_ptr.dtype.element_ty), mask=row < rows)
        losses += loss
        counts += keep.to(tl.float32)
    if sums_ptr is not None:
        tl.store(sums_ptr + tl.program_id(0), tl.sum(losses, axis=0))
        tl.store(sums_ptr + tl.num_programs(0) + tl.program_id(0), tl.sum(counts, axis=0))


@triton.jit(do_not_specialize=["ignore_index", "rows"])
def _long_rows_kernel(
    x_ptr, row_stride, col_stride, target_ptr, target_stride, ignore_index, loss_ptr, sums_ptr, rows, cols, smoothing,
    SMOOTH: tl.constexpr, ALIGN: tl.constexpr, LANES: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One row at a time, in chunks."""
    losses = 0.0
    counts = 0.0
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        label = tl.load(target_ptr + row * target_stride)
        loss = 0.0
        if label != ignore_index:
            top, total, above = _walked(
                x_ptr, row * row_stride, col_stride, 0, cols, cols, SMOOTH, ALIGN, LANES, COLS, STAGES
            )
            loss = _loss(
                x_ptr, row, row_stride, col_stride, label, label != ignore_index, top, total, above, cols, smoothing,
                SMOOTH,
            )  # fmt: skip
            counts += 1.0
        if loss_ptr is not None:
            tl.store(loss_ptr + row, loss.to(loss_ptr.dtype.element_ty))
        losses += loss
    if sums_ptr is not None:
        tl.store(sums_ptr + tl.program_id(0), losses)
        tl.store(sums_ptr + tl.num_programs(0) + tl.program_id(0), counts)


@triton.jit(do_not_specialize=["ignore_index", "rows", "parts", "span"])
def _parts_kernel(
    x_ptr, row_stride, col_stride, target_ptr, target_stride, ignore_index, found_ptr, rows, cols, parts, span,
    SMOOTH: tl.constexpr, ALIGN: tl.constexpr, LANES: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Maximum, sum of exponentials from there, and share of the mean above `_base`, of each part of rows that count."""
    for index in range(tl.program_id(0), rows * parts, tl.num_programs(0)):
        row = tl.cast(index // parts, tl.int64)
        if tl.load(target_ptr + row * target_stride) != ignore_index:
            first = index % parts * span
            last = tl.minimum(first + span, cols)
            top, total, above = _walked(
                x_ptr, row * row_stride, col_stride, first, last, cols, SMOOTH, ALIGN, LANES, COLS, STAGES
            )
            tl.store(found_ptr + index, top)
            tl.store(found_ptr + rows * parts + index, total)
            tl.store(found_ptr + 2 * rows * parts + index, above)


@triton.jit(do_not_specialize=["ignore_index", "rows", "parts"])
def _join_kernel(
    x_ptr, row_stride, col_stride, target_ptr, target_stride, ignore_index, found_ptr, out_ptr,
    rows, cols, parts, smoothing,
    SMOOTH: tl.constexpr, REDUCTION: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The losses of all rows from those of their parts, and their total; one program, as rows are few."""
    part = tl.arange(0, PARTS)
    losses = tl.zeros([ROWS], dtype=tl.float32)
    counts = tl.zeros([ROWS], dtype=tl.float32)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        label = tl.load(target_ptr + row * target_stride, mask=row < rows, other=0)
        keep = (row < rows) & (label != ignore_index)
        mask = keep[:, None] & (part < parts)[None, :]
        own = found_ptr + row[:, None] * parts + part[None, :]
        tops = tl.load(own, mask=mask, other=LEAST)
        top = tl.max(tops, axis=1)
        totals = tl.load(own + rows * parts, mask=mask, other=0.0)
        total = tl.sum(totals * tl.exp(tops - top[:, None]), axis=1)
        above = tl.sum(tl.load(own + 2 * rows * parts, mask=mask, other=0.0), axis=1)
        loss = _loss(
            x_ptr, row, row_stride, col_stride, label, keep, top, total, above, cols, smoothing, SMOOTH
        )  # fmt: skip
        if REDUCTION == "none":
            tl.store(out_ptr + row, loss.to(out_ptr.dtype.element_ty), mask=row < rows)
        losses += loss
        counts += keep.to(tl.float32)
    if REDUCTION != "none":
        answer = tl.sum(losses, axis=0)
        if REDUCTION == "mean":
            answer /= tl.sum(counts, axis=0)
        tl.store(out_ptr, answer.to(out_ptr.dtype.element_ty))


@triton.jit(do_not_specialize=["programs"])
def _total_kernel(sums_ptr, out_ptr, programs, MEAN: tl.constexpr, STEP: tl.constexpr):
    """The total of all programs, or the mean of their rows."""
    losses = tl.zeros([STEP], dtype=tl.float32)
    counts = tl.zeros([STEP], dtype=tl.float32)
    for first in range(0, programs, STEP):
        at = first + tl.arange(0, STEP)
        losses += tl.load(sums_ptr + at, mask=at < programs, other=0.0)
        counts += tl.load(sums_ptr + programs + at, mask=at < programs, other=0.0)
    answer = tl.sum(losses, axis=0)
    if MEAN:
        answer /= tl.sum(counts, axis=0)
    tl.store(out_ptr, answer.to(out_ptr.dtype.element_ty))


@triton.jit
def _walked(
    x_ptr, start, col_stride, first, last, cols,
    SMOOTH: tl.constexpr, ALIGN: tl.constexpr, LANES: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Maximum, sum of exponentials from there, share of the mean above `_base`, of columns `first` to before `last`.

    `start` is the place of the row's first element. Each lane keeps its maximum and sum, the sum rescaled
    when the maximum grows (Milakov and Gimelshein, 2018): threads wait for each other once a row, and a chunk costs one
    exponential an element and one a lane. Chunks begin at whole vectors in memory, before the row's first column if
    need be, and are loaded without masks, whatever the number of classes; what is left at both ends goes one vector a
    lane.
    """
    DEPTH: tl.constexpr = COLS // LANES
    lane = tl.arange(0, LANES)[None, :]
    place = tl.arange(0, DEPTH)[:, None] * LANES + lane
    top = tl.full([LANES], LEAST, dtype=tl.float32)
    total = tl.zeros([LANES], dtype=tl.float32)
    above = tl.zeros([LANES], dtype=tl.float32)
    share = 1.0 / cols
    base = _base(x_ptr, start, True) if SMOOTH else 0.0
    at = start + first * col_stride
    vector = at // ALIGN * ALIGN  # counted in elements from x_ptr: a whole vector in memory if x_ptr is one
    skipped = (at - vector).to(tl.int32)
    size = last - first + skipped
    begin = tl.where(skipped > 0, LANES, 0)
    end = begin + tl.maximum(size - begin, 0) // COLS * COLS
    if skipped > 0:
        mask = (lane >= skipped) & (lane < size)
        x = tl.load(x_ptr + vector + lane.to(tl.int64) * col_stride, mask=mask, other=-float("inf")).to(tl.float32)
        top, total, above = _more(x, mask, top, total, above, base, share, SMOOTH, True)
    for chunk in tl.range(begin, end, COLS, num_stages=STAGES):
        x = tl.load(x_ptr + vector + (chunk + place).to(tl.int64) * col_stride).to(tl.float32)
        top, total, above = _more(x, place < COLS, top, total, above, base, share, SMOOTH, False)
    for rest in range(end, size, LANES):
        mask = rest + lane < size
        x = tl.load(x_ptr + vector + (rest + lane).to(tl.int64) * col_stride, mask=mask, other=-float("inf"))
        top, total, above = _more(x.to(tl.float32), mask, top, total, above, base, share, SMOOTH, True)
    best = tl.max(top, axis=0)
    return best, tl.sum(total * tl.exp(top - best), axis=0), tl.sum(above, axis=0)


@triton.jit
def _more(x, mask, top, total, above, base, share, SMOOTH: tl.constexpr, MASKED: tl.constexpr):
    """Each lane's maximum, sum and share of the mean above `base`, with one more chunk."""
    new = tl.maximum(top, tl.max(x, axis=0))
    total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new[None, :]), axis=0)
    if SMOOTH:
        part = (x - base) * share  # a sum of logits themselves might overflow
        above += tl.sum(tl.where(mask, part, 0.0) if MASKED else part, axis=0)
    return new, total, above
