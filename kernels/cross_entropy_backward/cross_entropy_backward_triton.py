"""cross_entropy_backward: logits are read once and gradients written once, each element by itself."""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch
from _tiles import by_rows

TUNED = Path(__file__).parent / "tuned"
REDUCTIONS = ("none", "mean", "sum")
# Bytes that each processor has to read, at most -> bytes and warps of one tile.
TILES = ((8 * 1024, 2 * 1024, 4), (None, 8 * 1024, 4))
ROW_BYTES = 2 * 1024
"""Widest row of a tile: 16 bytes a thread."""
FEWEST = 256
"""Classes of dense logits from which on a tile may begin and end within a row."""
COUNTS = 32
"""Most programs that count the rows of a mean: every other program adds up what they found."""
STEP = 1024
"""Targets that a program counts at a time."""


@functools.lru_cache(maxsize=4096)
def choose_tile(rows: int, cols: int, itemsize: int, limits: _launch.Limits) -> _launch.Tile:
    """Returns the tile for a shape; dense logits are cut as if they were rows of ROW_BYTES."""
    return _launch.pointwise_tile(rows, cols, itemsize, limits, TILES, ROW_BYTES, TUNED)


def cross_entropy_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    logsumexp: torch.Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Returns the gradient of cross_entropy's logits x, (rows, classes) or (classes,), for its loss's grad.

    With p = exp(x - logsumexp) and label_smoothing s a row's is (p - s / classes - (1 - s) at the target) * grad, for a
    mean divided by the rows that count. Rows with the target `ignore_index` get 0. `grad` has x's dtype and the loss's
    shape: that of `target` if `reduction` is "none", () if it is "sum" or "mean". `logsumexp` is log(sum(exp(x))) of
    each row: float32, of target's shape. `target` holds int64 class numbers, shape x.shape[:-1].

    x is float32, float16 or bfloat16, of any strides. The answer is contiguous, of x's shape and dtype, computed in
    float32 and rounded once. A target that is no class gives its row NaN, since an error would make every call wait for
    the device. Raises TypeError for dtypes, ValueError for shapes, devices, reduction or label_smoothing.
    """
    check(grad, x, target, logsumexp, reduction, label_smoothing)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        with _launch.on(x.device):
            _launched(grad, x, target, logsumexp, out, ignore_index, reduction, float(label_smoothing))
    return out


def check(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, logsumexp: torch.Tensor, reduction: str,
    label_smoothing: float,
) -> None:  # fmt: skip
    """Raises TypeError or ValueError for arguments that `cross_entropy_backward` does not take."""
    op = "cross_entropy_backward"
    _launch.check_tensors(op, grad=grad, x=x, logsumexp=logsumexp)
    _launch.check_same_dtype(op, grad=grad, x=x)
    if logsumexp.dtype != torch.float32:
        raise TypeError(f"{op}: logsumexp has dtype {logsumexp.dtype}, but has to be float32")
    if not isinstance(target, torch.Tensor) or target.dtype != torch.int64:
        given = target.dtype if isinstance(target, torch.Tensor) else type(target).__name__
        raise TypeError(f"{op}: target is of {given}, but has to be a tensor of int64 class numbers")
    if target.device != x.device:
        raise ValueError(f"{op}: all tensors have to lie on one device, but x on {x.device}, target on {target.device}")
    if x.ndim not in {1, 2} or not x.shape[-1]:
        raise ValueError(f"{op}: x has shape {tuple(x.shape)}, but has to be (rows, classes) or (classes,)")
    if reduction not in REDUCTIONS:
        raise ValueError(f"{op}: reduction is {reduction!r}, but has to be 'none', 'mean' or 'sum'")
    lead = x.shape[:-1]
    needed = {"target": lead, "logsumexp": lead, "grad": lead if reduction == "none" else ()}
    for name, tensor in (("target", target), ("logsumexp", logsumexp), ("grad", grad)):
        if tensor.shape != needed[name]:
            raise ValueError(
                f"{op}: {name} has shape {tuple(tensor.shape)}, but x of shape {tuple(x.shape)} needs "
                f"{tuple(needed[name])}"
            )
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"{op}: label_smoothing is {label_smoothing}, but has to lie between 0 and 1")


def _launched(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, logsumexp: torch.Tensor, out: torch.Tensor,
    ignore_index: int, reduction: str, smoothing: float,
) -> None:  # fmt: skip
    rows, cols, itemsize = target.numel(), x.shape[-1], x.element_size()
    limits = _launch.limits(x.device)
    grad_step, target_step, sum_step = (each.stride(0) if each.ndim else 0 for each in (grad, target, logsumexp))
    counts = None
    if reduction == "mean":
        (counters,) = _launch.grid(min(_launch.tiles(rows, STEP), COUNTS), 1, limits)
        counts = torch.empty((counters,), dtype=torch.float32, device=x.device)
        _count_kernel[(counters,)](target, target_step, ignore_index, counts, rows, STEP=STEP, num_warps=4)
    of_rows = (grad, grad_step, target, target_step, logsumexp, sum_step, ignore_index,
               counts, 0 if counts is None else len(counts))  # fmt: skip
    constants = {"SMOOTH": smoothing != 0, "COUNTS": COUNTS}
    if x.is_contiguous() and cols >= FEWEST and limits.warp_size > 1:  # an NPU has no vectors of a thread
        wide = ROW_BYTES // itemsize
        tile = choose_tile(_launch.tiles(rows * cols, wide), wide, itemsize, limits)
        # A tile has elements of two rows at most.
        size = min(tile.rows * tile.cols, _launch.power_of_two(cols + 1) // 2)
        warps = max(min(tile.warps, size * itemsize // (limits.warp_size * _launch.VECTOR_BYTES)), 1)
        _flat_kernel[_launch.grid(_launch.tiles(rows * cols, size), 1, limits)](
            *of_rows, x, out, rows, cols, smoothing, SIZE=size, num_warps=warps, **constants
        )
        return
    tile = choose_tile(rows, cols, itemsize, limits)
    _rows_kernel[_launch.grid(_launch.tiles(rows, tile.rows), _launch.tiles(cols, tile.cols), limits)](
        *of_rows, x, x.stride(0) if x.ndim == 2 else 0, x.stride(-1), out, rows, cols, smoothing,
        ROWS=tile.rows, COLS=tile.cols, num_warps=tile.warps, **constants,
    )  # fmt: skip


@triton.jit(do_not_specialize=["ignore_index", "rows"])
def _count_kernel(target_ptr, target_step, ignore_index, counts_ptr, rows, STEP: tl.constexpr):
    """How many of its rows count, of each program."""
    count = tl.zeros([STEP], dtype=tl.float32)
    for first in range(tl.program_id(0) * STEP, rows, tl.num_programs(0) * STEP):
        row = tl.cast(first, tl.int64) + tl.arange(0, STEP)
        label = tl.load(target_ptr + row * target_step, mask=row < rows, other=ignore_index)
        count += (label != ignore_index).to(tl.float32)
    tl.store(counts_ptr + tl.program_id(0), tl.sum(count, axis=0))


@triton.jit(do_not_specialize=["ignore_index", "counters", "rows"])
def _flat_kernel(
    grad_ptr, grad_step, target_ptr, target_step, sum_ptr, sum_step, ignore_index, counts_ptr, counters,
    x_ptr, out_ptr, rows, cols, smoothing, SIZE: tl.constexpr, SMOOTH: tl.constexpr, COUNTS: tl.constexpr,
):  # fmt: skip
    """Dense logits of any number of classes, in whole vectors: a tile begins in one row and may end in the next."""
    share = _share(counts_ptr, counters, COUNTS)
    total = tl.cast(rows, tl.int64) * cols
    step = tl.num_programs(0).to(tl.int64) * SIZE  # 64 bits, as x may have more than 2**31 elements
    for first in range(tl.program_id(0).to(tl.int64) * SIZE, total, step):
        # Only the last tile has a mask, so all others are copied in whole vectors.
        if first + SIZE <= total:
            _run(grad_ptr, grad_step, target_ptr, target_step, sum_ptr, sum_step, ignore_index, x_ptr, out_ptr, share,
                 first, total, cols, smoothing, SIZE, True, SMOOTH)  # fmt: skip
        else:
            for start in range(first, total, SIZE // 8):  # in eighths: a mask for each element needs registers
                _run(grad_ptr, grad_step, target_ptr, target_step, sum_ptr, sum_step, ignore_index, x_ptr, out_ptr,
                     share, start, total, cols, smoothing, SIZE // 8, False, SMOOTH)  # fmt: skip


@triton.jit
def _run(
    grad_ptr, grad_step, target_ptr, target_step, sum_ptr, sum_step, ignore_index, x_ptr, out_ptr, share,
    first, total, cols, smoothing, SIZE: tl.constexpr, FULL: tl.constexpr, SMOOTH: tl.constexpr,
):  # fmt: skip
    """Elements of a row and perhaps of the next, from `first` on. FULL: none is beyond `total`."""
    near = tl.arange(0, SIZE)
    row = first // cols
    behind = (row + 1) * cols  # where the next row begins
    label, log_sum, weight, keep = _row(
        grad_ptr, grad_step, target_ptr, target_step, sum_ptr, sum_step, ignore_index, row, True, share, cols
    )
    next_label, next_sum, next_weight, next_keep = _row(
        grad_ptr, grad_step, target_ptr, target_step, sum_ptr, sum_step, ignore_index, row + 1, behind < total, share,
        cols,
    )  # fmt: skip
    left = (behind - first).to(tl.int32)
    later = near >= left
    col = tl.where(later, near - left, near + (cols - left))
    label, log_sum = tl.where(later, next_label, label), tl.where(later, next_sum, log_sum)
    weight, kept = tl.where(later, next_weight, weight), tl.where(later, next_keep, keep)
    # One mask for all elements of a full tile, so that vectors stay whole. What is beyond `total` is of no row.
    x = tl.load(x_ptr + first + near, mask=keep | next_keep if FULL else kept, other=0.0).to(tl.float32)
    y = _gradient(x, col, label, log_sum, weight, kept, cols, smoothing, SMOOTH)
    tl.store(out_ptr + first + near, y.to(out_ptr.dtype.element_ty), mask=None if FULL else first + near < total)


@triton.jit(do_not_specialize=["ignore_index", "counters", "rows"])
def _rows_kernel(
    grad_ptr, grad_step, target_ptr, target_step, sum_ptr, sum_step, ignore_index, counts_ptr, counters,
    x_ptr, x_stride, x_step, out_ptr, rows, cols, smoothing,
    ROWS: tl.constexpr, COLS: tl.constexpr, SMOOTH: tl.constexpr, COUNTS: tl.constexpr,
):  # fmt: skip
    """Logits of any strides, and few classes."""
    share = _share(counts_ptr, counters, COUNTS)
    start, step, col = by_rows(cols, ROWS, COLS)
    for first in range(start, rows, step):
        row = first + tl.arange(0, ROWS)[:, None].to(tl.int64)
        label, log_sum, weight, keep = _row(
            grad_ptr, grad_step, target_ptr, target_step, sum_ptr, sum_step, ignore_index, row, row < rows, share, cols
        )
        inside = (row < rows) & (col < cols)[None, :]
        x = tl.load(x_ptr + row * x_stride + col[None, :] * x_step, mask=inside & keep, other=0.0).to(tl.float32)
        y = _gradient(x, col[None, :], label, log_sum, weight, keep, cols, smoothing, SMOOTH)
        tl.store(out_ptr + row * cols + col[None, :], y.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _share(counts_ptr, counters, COUNTS: tl.constexpr):
    """What part of the grad is each row's: 1, or of a mean 1 / rows that count."""
    share = 1.0
    if counts_ptr is not None:
        place = tl.arange(0, COUNTS)
        share = 1.0 / tl.sum(tl.load(counts_ptr + place, mask=place < counters, other=0.0), axis=0)
    return share


@triton.jit
def _row(
    grad_ptr, grad_step, target_ptr, target_step, sum_ptr, sum_step, ignore_index, row, exists, share, cols
):  # fmt: skip
    """Target (-1 if it is no class), logsumexp and weight of rows, and whether they count."""
    label = tl.load(target_ptr + row * target_step, mask=exists, other=ignore_index)
    keep = label != ignore_index
    inside = (label >= 0) & (label < cols)
    weight = tl.load(grad_ptr + row * grad_step, mask=keep, other=0.0).to(tl.float32) * share
    log_sum = tl.load(sum_ptr + row * sum_step, mask=keep, other=0.0)
    return tl.where(inside, label, -1).to(tl.int32), log_sum, tl.where(inside, weight, float("nan")), keep


@triton.jit
def _gradient(x, col, label, log_sum, weight, keep, cols, smoothing, SMOOTH: tl.constexpr):
    """The gradients of logits in columns `col`; 0 if not kept."""
    y = tl.exp(x - log_sum)
    if SMOOTH:
        y -= smoothing / cols
    y -= tl.where(col == label, 1.0 - smoothing, 0.0)
    return tl.where(keep, y * weight, 0.0)
