"""softmax over the last dimension in TileLang: whole rows in registers up to a limit, walked twice beyond it.

Not all cases of its suites have run on a GPU yet.
"""

import functools
from typing import Any, NamedTuple

import tilelang.language as T
import torch

import _launch
import _lines
import _tilelang

LONG_ROWS = 16384
"""Columns; wider rows are walked."""
LONG_THREADS = 1024
"""Of a long row: a processor has one block, so that the rows in progress stay in L2 until they are read again."""
LONG_VALUES = 16
"""Of a thread at a time."""
LOG2_E = 1.4426950408889634


class Plan(NamedTuple):
    """The launch for a shape, and all that its program is compiled for."""

    dtype: torch.dtype
    vectors: bool
    rows: int
    """of a block; 0: it walks one row"""
    lanes: int
    """threads of a row"""
    values: int
    """of a row, for a thread at a time"""


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
    plan = choose(cols, x.dtype, vectors)
    size = _tilelang.vector_size(vectors, x.dtype)
    given = _tilelang.as_vectors(x, size, rows, cols, row_stride, col_stride)
    written = out.view(rows, cols // size, size)
    with _launch.on(x.device):
        compiled(plan)(given, written)
    return out


@functools.lru_cache(maxsize=4096)
def choose(cols: int, dtype: torch.dtype, vectors: bool) -> Plan:
    """Returns the launch for a shape. vectors: rows are made of whole ones."""
    if cols > LONG_ROWS:
        return Plan(dtype, vectors, 0, LONG_THREADS, LONG_VALUES)
    values, lanes = _tilelang.row_threads(cols)
    return Plan(dtype, vectors, max(_lines.BLOCK // lanes, 1), lanes, values)


@functools.cache
def compiled(plan: Plan) -> Any:
    """Returns a program as it is launched."""
    return _tilelang.compiled(program(plan))


def program(plan: Plan) -> Any:
    """Returns the program of a plan."""
    return _whole_rows(plan) if plan.rows else _long_rows(plan)


def _tensors(plan: Plan) -> tuple[Any, Any, int]:
    """Returns the types of x and of the output, and the elements of a vector."""
    rows, vectors, row_stride = (T.dynamic(name, "int64") for name in ("rows", "vectors", "row_stride"))
    size, dtype = _tilelang.vector_size(plan.vectors, plan.dtype), _tilelang.NAMES[plan.dtype]
    col_stride = size if plan.vectors else T.dynamic("col_stride", "int64")
    x = T.StridedTensor((rows, vectors, size), (row_stride, col_stride, 1), dtype)
    return x, T.Tensor((rows, vectors, size), dtype), size


def _whole_rows(plan: Plan) -> Any:
    """Each element is read once and written once; a thread has neighbours `lanes` vectors apart."""
    of_x, of_out, size = _tensors(plan)
    rows, vectors, _ = of_out.shape
    height, lanes, values, dtype = plan.rows, plan.lanes, plan.values, of_out.dtype

    @T.prim_func
    def softmax_whole_rows(x: of_x, out: of_out):
        with T.Kernel(T.ceildiv(rows, height), threads=height * lanes) as block:
            T.assume(x.strides[0] % size == 0)
            power = T.alloc_fragment((height, lanes, values), "float32")
            rounded = T.alloc_fragment((height, lanes, values), dtype)
            joined = T.alloc_fragment((height, lanes), "float32")
            top = T.alloc_fragment((height,), "float32")
            total = T.alloc_fragment((height,), "float32")
            for d, i, j, k in T.Parallel(values // size, height, lanes, size):
                power[i, j, d * size + k] = T.if_then_else(
                    (block * height + i < rows) & (d * lanes + j < vectors),
                    T.cast(x[block * height + i, d * lanes + j, k], "float32"),
                    -T.infinity("float32"),
                )
            T.reduce_max(power, joined, dim=2)
            T.reduce_max(joined, top, dim=1)
            for i, j, k in T.Parallel(height, lanes, values):
                power[i, j, k] = T.exp2((power[i, j, k] - top[i]) * LOG2_E)
            T.reduce_sum(power, joined, dim=2)
            T.reduce_sum(joined, total, dim=1)
            for i in T.Parallel(height):
                total[i] = 1.0 / total[i]
            for i, j, k in T.Parallel(height, lanes, values):
                rounded[i, j, k] = T.cast(power[i, j, k] * total[i], dtype)
            for d, i, j, k in T.Parallel(values // size, height, lanes, size):
                if (block * height + i < rows) & (d * lanes + j < vectors):
                    out[block * height + i, d * lanes + j, k] = rounded[i, j, d * size + k]

    return softmax_whole_rows


def _long_rows(plan: Plan) -> Any:
    """A row each: once for maximum and sum together, then again to write, from L2.

    Each thread keeps a maximum and a sum, so threads wait for each other once a row, not once a chunk. The sum so far
    is rescaled whenever the maximum grows (online softmax, Milakov and Gimelshein, 2018).
    """
    of_x, of_out, size = _tensors(plan)
    rows, vectors, _ = of_out.shape
    lanes, values, dtype = plan.lanes, plan.values, of_out.dtype
    along = values // size * lanes  # vectors of a chunk

    @T.prim_func
    def softmax_long_rows(x: of_x, out: of_out):
        with T.Kernel(rows, threads=lanes) as row:
            T.assume(x.strides[0] % size == 0)
            power = T.alloc_fragment((lanes, values), "float32")
            joined = T.alloc_fragment((lanes,), "float32")
            top = T.alloc_fragment((lanes,), "float32")
            shift = T.alloc_fragment((lanes,), "float32")
            total = T.alloc_fragment((lanes,), "float32")
            highest = T.alloc_fragment((1,), "float32")
            scale = T.alloc_fragment((1,), "float32")
            T.fill(top, -T.infinity("float32"))
            T.fill(total, 0.0)
            for chunk in T.serial(T.ceildiv(vectors, along)):
                for d, j, k in T.Parallel(values // size, lanes, size):
                    power[j, d * size + k] = T.if_then_else(
                        chunk * along + d * lanes + j < vectors,
                        T.cast(x[row, chunk * along + d * lanes + j, k], "float32"),
                        -T.infinity("float32"),
                    )
                T.reduce_max(power, joined, dim=1)
                for j in T.Parallel(lanes):
                    joined[j] = T.max(joined[j], top[j])
                    shift[j] = T.if_then_else(joined[j] == -T.infinity("float32"), 0.0, joined[j])
                    total[j] = total[j] * T.exp2((top[j] - shift[j]) * LOG2_E)
                    top[j] = joined[j]
                for j, k in T.Parallel(lanes, values):
                    power[j, k] = T.exp2((power[j, k] - shift[j]) * LOG2_E)
                T.reduce_sum(power, joined, dim=1)
                for j in T.Parallel(lanes):
                    total[j] = total[j] + joined[j]
            T.reduce_max(top, highest, dim=0)
            for i in T.Parallel(1):
                highest[i] = T.if_then_else(highest[i] == -T.infinity("float32"), 0.0, highest[i])
            for j in T.Parallel(lanes):
                total[j] = total[j] * T.exp2((top[j] - highest[0]) * LOG2_E)
            T.reduce_sum(total, scale, dim=0)
            for i in T.Parallel(1):
                scale[i] = 1.0 / scale[i]
            for chunk in T.serial(T.ceildiv(vectors, along)):
                for d, j, k in T.Parallel(values // size, lanes, size):
                    if chunk * along + d * lanes + j < vectors:
                        out[row, chunk * along + d * lanes + j, k] = T.cast(
                            T.exp2((T.cast(x[row, chunk * along + d * lanes + j, k], "float32") - highest[0]) * LOG2_E)
                            * scale[0],
                            dtype,
                        )

    return softmax_long_rows
