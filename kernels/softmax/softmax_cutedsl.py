"""softmax over the last dimension in CuTe DSL: whole rows in registers up to a limit, walked twice beyond it."""

import math
import operator
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Float32, Int32, Int64, cute

import _cutedsl
import _launch
import _lines

LONG_ROWS = 16384
"""Columns; wider rows are walked."""
LONG_THREADS, LONG_VALUES = 512, 32
"""Of a long row: threads of a block, and columns of a thread at a time."""
LOG2_E = math.log2(math.e)
_compiled: dict[Any, Any] = {}


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Returns exp(x) / sum(exp(x)) over the last dimension, contiguous, of x's shape and dtype.

    Arguments, answers and errors are those of softmax_triton.py.
    """
    _launch.check_softmax(x)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    rows, cols, row_stride, col_stride = _launch.as_rows("softmax", x)
    vectors = col_stride == 1 and _lines.has_vectors(x, (cols, row_stride))
    if cols > LONG_ROWS:
        limits = _launch.limits(x.device)
        blocks, shape = min(rows, _lines.long_blocks(cols, x.element_size(), limits)), (LONG_VALUES, LONG_THREADS, 1)
    else:
        values, threads = _lines.row_threads(cols)
        shape = values, threads, max(_lines.BLOCK // threads, 1)
        blocks = _launch.tiles(rows, shape[2])
    whole = cols <= LONG_ROWS
    with _launch.on(x.device):
        arguments = (
            _cutedsl.pointer(x), _cutedsl.pointer(out), Int64(rows), Int64(cols), Int64(row_stride), Int64(col_stride),
            Int32(blocks), _cutedsl.stream(x.device),
        )  # fmt: skip
        key = (x.dtype, x.data_ptr() % _launch.VECTOR_BYTES == 0, vectors, whole, shape)
        _cutedsl.compiled(_compiled, key, launch, *arguments, *shape, vectors, whole)(*arguments)
    return out


@cute.jit
def launch(
    x: cute.Pointer, out: cute.Pointer, rows: Int64, cols: Int64, row_stride: Int64, col_stride: Int64,
    blocks: Int32, stream: cuda.CUstream,
    VALUES: cutlass.Constexpr, THREADS: cutlass.Constexpr, HEIGHT: cutlass.Constexpr,
    VECTORS: cutlass.Constexpr, WHOLE: cutlass.Constexpr,
):  # fmt: skip
    kernel = _rows_kernel if WHOLE else _long_rows_kernel
    kernel(x, out, rows, cols, row_stride, col_stride, VALUES, THREADS, HEIGHT, VECTORS).launch(
        grid=[blocks, 1, 1], block=[THREADS, HEIGHT, 1], stream=stream
    )


@cute.kernel
def _rows_kernel(
    x: cute.Pointer, out: cute.Pointer, rows: Int64, cols: Int64, row_stride: Int64, col_stride: Int64,
    VALUES: cutlass.Constexpr, THREADS: cutlass.Constexpr, HEIGHT: cutlass.Constexpr, VECTORS: cutlass.Constexpr,
):  # fmt: skip
    """Each row is read once and written once, by the threads of one y, each with VALUES columns."""
    between = _cutedsl.shared(2)
    _, y, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    wanted = Int64(block) * HEIGHT + y
    row = wanted if wanted < rows else rows - 1  # as all threads of a warp join
    value = _cutedsl.load(
        _cutedsl.at(x, row * row_stride, VECTORS),
        col_stride,
        Int64(0),
        cols,
        Float32(-math.inf),
        VALUES,
        THREADS,
        VECTORS,
    )
    top = value.load().reduce(cute.ReductionOp.MAX, Float32(-math.inf), 0)
    top = _cutedsl.join(top, cute.arch.fmax, Float32(-math.inf), between[0, None], THREADS)
    power = cute.math.exp2((value.load() - top) * LOG2_E, fastmath=True)
    total = power.reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
    total = _cutedsl.join(total, operator.add, Float32(0.0), between[1, None], THREADS)
    value.store(power * (1.0 / total))
    if wanted < rows:
        _cutedsl.store(value, _cutedsl.at(out, row * cols, VECTORS), Int64(0), cols, VALUES, THREADS, VECTORS)


@cute.kernel
def _long_rows_kernel(
    x: cute.Pointer, out: cute.Pointer, rows: Int64, cols: Int64, row_stride: Int64, col_stride: Int64,
    VALUES: cutlass.Constexpr, THREADS: cutlass.Constexpr, HEIGHT: cutlass.Constexpr, VECTORS: cutlass.Constexpr,
):  # fmt: skip
    """One row at a time: once for maximum and sum together, then again to write, from L1 or L2.

    The sum so far is rescaled whenever the maximum grows (online softmax, Milakov and Gimelshein, 2018).
    """
    between = _cutedsl.shared(2)
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    low = Float32(-math.inf)
    row = Int64(block)
    while row < rows:
        source, target = _cutedsl.at(x, row * row_stride, VECTORS), _cutedsl.at(out, row * cols, VECTORS)
        top, total, start = low, Float32(0.0), Int64(0)
        while start < cols:
            value = _cutedsl.load(source, col_stride, start, cols, low, VALUES, THREADS, VECTORS).load()
            higher = cute.arch.fmax(top, value.reduce(cute.ReductionOp.MAX, low, 0))
            shift = Float32(0.0) if higher == low else higher  # -inf - -inf would be NaN
            power = cute.math.exp2((value - shift) * LOG2_E, fastmath=True)
            total = total * cute.math.exp2((top - shift) * LOG2_E, fastmath=True)
            total = total + power.reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
            top = higher
            start += THREADS * VALUES
        highest = _cutedsl.join(top, cute.arch.fmax, low, between[0, None], THREADS)
        highest = Float32(0.0) if highest == low else highest
        total = total * cute.math.exp2((top - highest) * LOG2_E, fastmath=True)
        scale = 1.0 / _cutedsl.join(total, operator.add, Float32(0.0), between[1, None], THREADS)
        start = Int64(0)
        while start < cols:
            again = _cutedsl.load(source, col_stride, start, cols, low, VALUES, THREADS, VECTORS)
            again.store(cute.math.exp2((again.load() - highest) * LOG2_E, fastmath=True) * scale)
            _cutedsl.store(again, target, start, cols, VALUES, THREADS, VECTORS)
            start += THREADS * VALUES
        row += blocks
