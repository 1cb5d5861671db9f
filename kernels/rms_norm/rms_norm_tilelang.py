"""rms_norm over the last dimension in TileLang: whole rows in registers, wider ones walked, few wide ones shared.

Not all cases of its suites have run on a GPU yet.
"""

import functools
from typing import Any, NamedTuple

import tilelang.language as T
import torch

import _launch
import _lines
import _tilelang

WHOLE_ROW = 16384
"""Columns; wider rows are walked."""
LONG_THREADS = 1024
"""Of a walked row: a processor has one block, so that the rows in progress stay in L2 until they are read again."""
PART_THREADS = 256
"""Of a shared row."""
LONG_VALUES = 16
"""Of a thread at a time, in a row that is walked or shared."""
MOST_PARTS = 64
"""Most blocks that share one row."""
SHARING = 4
"""Blocks a processor for shared rows: some compute while others wait for memory."""


class Plan(NamedTuple):
    """All that a program is compiled for."""

    path: str
    """whole, long, parts or join"""
    dtype: torch.dtype
    vectors: bool
    rows: int
    """of a block"""
    lanes: int
    """threads of a row"""
    values: int
    """of a row, for a thread at a time"""


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6, stats: bool = False
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Returns x / sqrt(mean(x**2) + eps) * weight over the last dimension, contiguous, of x's shape and dtype.

    Arguments, answers and errors are those of rms_norm_triton.py.
    """
    _launch.check_rms_norm(x, weight, eps, stats)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rstd = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device) if stats else None
    if out.numel():
        _launched(x, weight, out, rstd, float(eps))
    return out if rstd is None else (out, rstd)


def _launched(
    x: torch.Tensor, weight: torch.Tensor | None, out: torch.Tensor, rstd: torch.Tensor | None, eps: float
) -> None:
    rows, cols, row_stride, col_stride = _launch.as_rows("rms_norm", x)
    limits = _launch.limits(x.device)
    vectors = col_stride == 1 and _lines.has_vectors(x, (cols, row_stride))
    if weight is not None:
        vectors = vectors and weight.stride(0) == 1 and _lines.has_vectors(weight, ())
    size = _tilelang.vector_size(vectors, x.dtype)
    across = cols // size
    given = _tilelang.as_vectors(x, size, rows, cols, row_stride, col_stride)
    # What is not there has no elements, and is neither read nor written.
    scale = _nothing(x.dtype, x.device).view(0, size)
    if weight is not None:
        scale = weight.as_strided((across, size), (size * weight.stride(0), 1))
    roots = _nothing(torch.float32, x.device) if rstd is None else rstd.view(rows)
    tensors = (given, scale, out.view(rows, across, size), roots)
    with _launch.on(x.device):
        plan = choose(cols, x.dtype, vectors)
        chunks = _launch.tiles(cols, PART_THREADS * LONG_VALUES)
        wanted = min(_launch.tiles(limits.processors * SHARING, rows), MOST_PARTS, chunks)
        if plan.path == "whole" or rows > limits.processors or wanted == 1:
            compiled(plan)(*tensors, eps)
            return
        each = _launch.tiles(chunks, wanted)
        parts = _launch.tiles(chunks, each)  # none is empty
        sums = torch.empty((rows, parts), dtype=torch.float32, device=x.device)
        compiled(Plan("parts", x.dtype, vectors, 1, PART_THREADS, LONG_VALUES))(given, sums, each)
        compiled(Plan("join", x.dtype, vectors, 1, PART_THREADS, LONG_VALUES))(*tensors, sums, eps)


@functools.lru_cache(maxsize=64)
def _nothing(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device=device)


@functools.lru_cache(maxsize=4096)
def choose(cols: int, dtype: torch.dtype, vectors: bool) -> Plan:
    """Returns the program for a row's length, unless few rows are shared. vectors: rows are made of whole ones."""
    if cols > WHOLE_ROW:
        return Plan("long", dtype, vectors, 1, LONG_THREADS, LONG_VALUES)
    values, lanes = _tilelang.row_threads(cols)
    return Plan("whole", dtype, vectors, max(_lines.BLOCK // lanes, 1), lanes, values)


@functools.cache
def compiled(plan: Plan) -> Any:
    """Returns a program as it is launched."""
    return _tilelang.compiled(program(plan))


def program(plan: Plan) -> Any:
    """Returns the program of a plan."""
    return {"whole": _whole_rows, "long": _long_rows, "parts": _parts, "join": _join}[plan.path](plan)


def _tensors(plan: Plan) -> tuple[Any, Any, Any, Any, int]:
    """Returns the types of x, weight, output and statistics, and the elements of a vector."""
    names = "rows", "vectors", "row_stride", "weights", "weight_stride", "roots"
    rows, vectors, row_stride, weights, weight_stride, roots = (T.dynamic(name, "int64") for name in names)
    size, dtype = _tilelang.vector_size(plan.vectors, plan.dtype), _tilelang.NAMES[plan.dtype]
    of_x = T.StridedTensor(
        (rows, vectors, size), (row_stride, size if plan.vectors else T.dynamic("col_stride", "int64"), 1), dtype
    )
    of_weight = T.StridedTensor((weights, size), (size if plan.vectors else weight_stride, 1), dtype)
    return of_x, of_weight, T.Tensor((rows, vectors, size), dtype), T.Tensor((roots,), "float32"), size


def _whole_rows(plan: Plan) -> Any:
    """Each element is read once and written once; a thread has neighbours `lanes` vectors apart."""
    of_x, of_weight, of_out, of_rstd, size = _tensors(plan)
    rows, vectors, _ = of_out.shape
    (weights, _), (roots,) = of_weight.shape, of_rstd.shape
    height, lanes, values, dtype = plan.rows, plan.lanes, plan.values, of_out.dtype

    @T.prim_func
    def rms_norm_whole_rows(x: of_x, weight: of_weight, out: of_out, rstd: of_rstd, eps: T.float32):
        with T.Kernel(T.ceildiv(rows, height), threads=height * lanes) as block:
            T.assume(x.strides[0] % size == 0)
            value = T.alloc_fragment((height, lanes, values), "float32")
            square = T.alloc_fragment((height, lanes, values), "float32")
            joined = T.alloc_fragment((height, lanes), "float32")
            root = T.alloc_fragment((height,), "float32")
            for d, i, j, k in T.Parallel(values // size, height, lanes, size):
                value[i, j, d * size + k] = T.if_then_else(
                    (block * height + i < rows) & (d * lanes + j < vectors),
                    T.cast(x[block * height + i, d * lanes + j, k], "float32"),
                    0.0,
                )
            for i, j, k in T.Parallel(height, lanes, values):
                square[i, j, k] = value[i, j, k] * value[i, j, k]
            T.reduce_sum(square, joined, dim=2)
            T.reduce_sum(joined, root, dim=1)
            for i in T.Parallel(height):
                root[i] = T.rsqrt(root[i] / T.cast(vectors * size, "float32") + eps)
            for i in T.Parallel(height):
                if (block * height + i < rows) & (block * height + i < roots):
                    rstd[block * height + i] = root[i]
            for d, i, j, k in T.Parallel(values // size, height, lanes, size):
                if (block * height + i < rows) & (d * lanes + j < vectors):
                    out[block * height + i, d * lanes + j, k] = T.cast(
                        value[i, j, d * size + k]
                        * root[i]
                        * T.if_then_else(d * lanes + j < weights, T.cast(weight[d * lanes + j, k], "float32"), 1.0),
                        dtype,
                    )

    return rms_norm_whole_rows


def _long_rows(plan: Plan) -> Any:
    """A row each: once for the squares, then again to write, from L2.

    Each thread adds up its own squares, so threads wait for each other once a row, not once a chunk.
    """
    of_x, of_weight, of_out, of_rstd, size = _tensors(plan)
    rows, vectors, _ = of_out.shape
    (weights, _), (roots,) = of_weight.shape, of_rstd.shape
    lanes, values, dtype = plan.lanes, plan.values, of_out.dtype
    along = values // size * lanes  # vectors of a chunk

    @T.prim_func
    def rms_norm_long_rows(x: of_x, weight: of_weight, out: of_out, rstd: of_rstd, eps: T.float32):
        with T.Kernel(rows, threads=lanes) as row:
            T.assume(x.strides[0] % size == 0)
            square = T.alloc_fragment((lanes, values), "float32")
            joined = T.alloc_fragment((lanes,), "float32")
            root = T.alloc_fragment((1,), "float32")
            T.fill(square, 0.0)
            for chunk in T.serial(T.ceildiv(vectors, along)):
                for d, j, k in T.Parallel(values // size, lanes, size):
                    if chunk * along + d * lanes + j < vectors:
                        square[j, d * size + k] = square[j, d * size + k] + T.cast(
                            x[row, chunk * along + d * lanes + j, k], "float32"
                        ) * T.cast(x[row, chunk * along + d * lanes + j, k], "float32")
            T.reduce_sum(square, joined, dim=1)
            T.reduce_sum(joined, root, dim=0)
            for i in T.Parallel(1):
                root[i] = T.rsqrt(root[i] / T.cast(vectors * size, "float32") + eps)
            for i in T.Parallel(1):
                if row < roots:
                    rstd[row + i] = root[i]
            for chunk in T.serial(T.ceildiv(vectors, along)):
                for d, j, k in T.Parallel(values // size, lanes, size):
                    if chunk * along + d * lanes + j < vectors:
                        out[row, chunk * along + d * lanes + j, k] = T.cast(
                            T.cast(x[row, chunk * along + d * lanes + j, k], "float32")
                            * root[0]
                            * T.if_then_else(
                                chunk * along + d * lanes + j < weights,
                                T.cast(weight[chunk * along + d * lanes + j, k], "float32"),
                                1.0,
                            ),
                            dtype,
                        )

    return rms_norm_long_rows


def _parts(plan: Plan) -> Any:
    """The sum of the squares of one part of a row, of `each` chunks."""
    of_x, _, _, _, size = _tensors(plan)
    rows, vectors, _ = of_x.shape
    parts = T.dynamic("parts", "int64")
    of_sums = T.Tensor((rows, parts), "float32")
    lanes, values = plan.lanes, plan.values
    along = values // size * lanes

    @T.prim_func
    def rms_norm_parts(x: of_x, sums: of_sums, each: T.int32):
        with T.Kernel(parts, rows, threads=lanes) as (part, row):
            T.assume(x.strides[0] % size == 0)
            square = T.alloc_fragment((lanes, values), "float32")
            joined = T.alloc_fragment((lanes,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.fill(square, 0.0)
            for turn in T.serial(each):
                for d, j, k in T.Parallel(values // size, lanes, size):
                    if (part * each + turn) * along + d * lanes + j < vectors:
                        square[j, d * size + k] = square[j, d * size + k] + T.cast(
                            x[row, (part * each + turn) * along + d * lanes + j, k], "float32"
                        ) * T.cast(x[row, (part * each + turn) * along + d * lanes + j, k], "float32")
            T.reduce_sum(square, joined, dim=1)
            T.reduce_sum(joined, total, dim=0)
            for i in T.Parallel(1):
                sums[row, part + i] = total[i]

    return rms_norm_parts


def _join(plan: Plan) -> Any:
    """One chunk of a row, from the sums of all parts of the row."""
    of_x, of_weight, of_out, of_rstd, size = _tensors(plan)
    rows, vectors, _ = of_out.shape
    (weights, _), (roots,) = of_weight.shape, of_rstd.shape
    parts = T.dynamic("parts", "int64")
    of_sums = T.Tensor((rows, parts), "float32")
    lanes, values, dtype = plan.lanes, plan.values, of_out.dtype
    along = values // size * lanes

    @T.prim_func
    def rms_norm_join(x: of_x, weight: of_weight, out: of_out, rstd: of_rstd, sums: of_sums, eps: T.float32):
        with T.Kernel(T.ceildiv(vectors, along), rows, threads=lanes) as (chunk, row):
            T.assume(x.strides[0] % size == 0)
            part = T.alloc_fragment((MOST_PARTS,), "float32")
            root = T.alloc_fragment((1,), "float32")
            for i in T.Parallel(MOST_PARTS):
                part[i] = T.if_then_else(i < parts, sums[row, i], 0.0)
            T.reduce_sum(part, root, dim=0)
            for i in T.Parallel(1):
                root[i] = T.rsqrt(root[i] / T.cast(vectors * size, "float32") + eps)
            for i in T.Parallel(1):
                if (chunk == 0) & (row < roots):
                    rstd[row + i] = root[i]
            for d, j, k in T.Parallel(values // size, lanes, size):
                if chunk * along + d * lanes + j < vectors:
                    out[row, chunk * along + d * lanes + j, k] = T.cast(
                        T.cast(x[row, chunk * along + d * lanes + j, k], "float32")
                        * root[0]
                        * T.if_then_else(
                            chunk * along + d * lanes + j < weights,
                            T.cast(weight[chunk * along + d * lanes + j, k], "float32"),
                            1.0,
                        ),
                        dtype,
                    )

    return rms_norm_join
