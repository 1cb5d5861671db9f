"""rms_norm over the last dimension in CuTe DSL: whole rows in registers, wider ones walked, few wide ones shared."""

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
LONG_THREADS, LONG_VALUES = 512, 16
"""Of a long row: threads of a block, and columns of a thread at a time."""
MOST_PARTS = 64
"""Most blocks that share one row."""
SHARING = 2
"""Blocks a processor for shared rows: some compute while others wait for memory."""
_compiled: dict[Any, Any] = {}


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
        with _launch.on(x.device):
            _launched(x, weight, out, rstd, eps)
    return out if rstd is None else (out, rstd)


def _launched(
    x: torch.Tensor, weight: torch.Tensor | None, out: torch.Tensor, rstd: torch.Tensor | None, eps: float
) -> None:
    rows, cols, row_stride, col_stride = _launch.as_rows("rms_norm", x)
    vectors = col_stride == 1 and _lines.has_vectors(x, (cols, row_stride))
    if weight is not None:
        vectors = vectors and weight.stride(0) == 1 and _lines.has_vectors(weight, ())
    limits, stream = _launch.limits(x.device), _cutedsl.stream(x.device)
    has = (weight is not None, rstd is not None)
    # What is not there is neither read nor written; something has to stand in its place.
    given = (out if weight is None else weight, out if rstd is None else rstd)
    aligned = tuple(tensor.data_ptr() % _launch.VECTOR_BYTES == 0 for tensor in (x, *given))
    of_x = (Int64(rows), Int64(cols), Int64(row_stride), Int64(col_stride))
    tensors = (
        _cutedsl.pointer(x), *map(_cutedsl.pointer, (given[0], out, given[1])), *of_x,
        Int64(0 if weight is None else weight.stride(0)), Float32(eps),
    )  # fmt: skip
    key = (x.dtype, aligned, vectors, has)
    chunks = _launch.tiles(cols, LONG_THREADS * LONG_VALUES)
    wanted = min(_launch.tiles(limits.processors * SHARING, rows), MOST_PARTS, chunks)
    if cols <= LONG_ROWS or rows > limits.processors or wanted == 1:
        whole = cols <= LONG_ROWS
        shape = (LONG_VALUES, LONG_THREADS, 1)
        blocks = min(rows, _lines.long_blocks(cols, x.element_size(), limits))
        if whole:
            values, threads = _lines.row_threads(cols)
            shape = values, threads, max(_lines.BLOCK // threads, 1)
            # As many blocks as run at once: the weight is loaded once for all rows of a block.
            most = limits.processors * (_lines.PROCESSOR_THREADS // (threads * shape[2]))
            blocks = min(_launch.tiles(rows, shape[2]), most)
        arguments = (*tensors, Int32(blocks), stream)
        made = _cutedsl.compiled(_compiled, (key, shape, whole), launch, *arguments, *shape, vectors, whole, *has)
        made(*arguments)
        return
    each = _launch.tiles(chunks, wanted)
    parts = _launch.tiles(chunks, each)  # none is empty
    sums = torch.empty((rows, parts), dtype=torch.float32, device=x.device)
    span = Int64(each * LONG_THREADS * LONG_VALUES)
    first = (tensors[0], _cutedsl.pointer(sums), *of_x, span, Int32(parts), Int32(rows), stream)
    _cutedsl.compiled(_compiled, (key, "parts"), launch_parts, *first, vectors)(*first)
    second = (*tensors, _cutedsl.pointer(sums), Int32(parts), Int32(chunks), stream)
    _cutedsl.compiled(_compiled, (key, "join"), launch_join, *second, vectors, *has)(*second)


# --- whole rows, and long ones by one block ---------------------------------------------------------------------------


@cute.jit
def launch(
    x: cute.Pointer, weight: cute.Pointer, out: cute.Pointer, rstd: cute.Pointer,
    rows: Int64, cols: Int64, row_stride: Int64, col_stride: Int64, weight_stride: Int64, eps: Float32,
    blocks: Int32, stream: cuda.CUstream,
    VALUES: cutlass.Constexpr, THREADS: cutlass.Constexpr, HEIGHT: cutlass.Constexpr,
    VECTORS: cutlass.Constexpr, WHOLE: cutlass.Constexpr, WEIGHTED: cutlass.Constexpr, STATS: cutlass.Constexpr,
):  # fmt: skip
    kernel = _rows_kernel if WHOLE else _long_rows_kernel
    kernel(
        x, weight, out, rstd, rows, cols, row_stride, col_stride, weight_stride, eps,
        VALUES, THREADS, HEIGHT, VECTORS, WEIGHTED, STATS,
    ).launch(grid=[blocks, 1, 1], block=[THREADS, HEIGHT, 1], stream=stream)  # fmt: skip


@cute.kernel
def _rows_kernel(
    x: cute.Pointer, weight: cute.Pointer, out: cute.Pointer, rstd: cute.Pointer,
    rows: Int64, cols: Int64, row_stride: Int64, col_stride: Int64, weight_stride: Int64, eps: Float32,
    VALUES: cutlass.Constexpr, THREADS: cutlass.Constexpr, HEIGHT: cutlass.Constexpr,
    VECTORS: cutlass.Constexpr, WEIGHTED: cutlass.Constexpr, STATS: cutlass.Constexpr,
):  # fmt: skip
    """Each row is read once and written once, by the threads of one y, each with VALUES columns."""
    between = _cutedsl.shared(2)
    thread, y, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    scale = _scale(weight, weight_stride, Int64(0), cols, VALUES, THREADS, VECTORS, WEIGHTED)
    first, turn = Int64(block) * HEIGHT, Int32(0)
    while first < rows:
        wanted = first + y
        row = wanted if wanted < rows else rows - 1  # as all threads of a warp join
        value = _cutedsl.load(
            _cutedsl.at(x, row * row_stride, VECTORS),
            col_stride,
            Int64(0),
            cols,
            Float32(0.0),
            VALUES,
            THREADS,
            VECTORS,
        )
        root = _root(_squares(value), cols, eps, between[turn, None], THREADS)
        turn = 1 - turn
        if wanted < rows:
            value.store(value.load() * root * scale.load())
            _cutedsl.store(value, _cutedsl.at(out, row * cols, VECTORS), Int64(0), cols, VALUES, THREADS, VECTORS)
            if cutlass.const_expr(STATS):
                if thread == 0:
                    cute.make_tensor(rstd + row, cute.make_layout(1))[0] = root
        first += Int64(blocks) * HEIGHT


@cute.kernel
def _long_rows_kernel(
    x: cute.Pointer, weight: cute.Pointer, out: cute.Pointer, rstd: cute.Pointer,
    rows: Int64, cols: Int64, row_stride: Int64, col_stride: Int64, weight_stride: Int64, eps: Float32,
    VALUES: cutlass.Constexpr, THREADS: cutlass.Constexpr, HEIGHT: cutlass.Constexpr,
    VECTORS: cutlass.Constexpr, WEIGHTED: cutlass.Constexpr, STATS: cutlass.Constexpr,
):  # fmt: skip
    """One row at a time: once for the squares, then again to write, from L1 or L2."""
    between = _cutedsl.shared(2)
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    row, turn = Int64(block), Int32(0)
    while row < rows:
        source = _cutedsl.at(x, row * row_stride, VECTORS)
        squares, start = Float32(0.0), Int64(0)
        while start < cols:
            squares += _squares(_cutedsl.load(source, col_stride, start, cols, Float32(0.0), VALUES, THREADS, VECTORS))
            start += THREADS * VALUES
        root = _root(squares, cols, eps, between[turn, None], THREADS)
        turn = 1 - turn
        if cutlass.const_expr(STATS):
            if thread == 0:
                cute.make_tensor(rstd + row, cute.make_layout(1))[0] = root
        start = Int64(0)
        while start < cols:
            _write_chunk(
                source, col_stride, weight, weight_stride, _cutedsl.at(out, row * cols, VECTORS), start, cols, root,
                VALUES, THREADS, VECTORS, WEIGHTED,
            )  # fmt: skip
            start += THREADS * VALUES
        row += blocks


# --- rows shared between blocks ---------------------------------------------------------------------------------------


@cute.jit
def launch_parts(
    x: cute.Pointer, sums: cute.Pointer, rows: Int64, cols: Int64, row_stride: Int64, col_stride: Int64,
    span: Int64, parts: Int32, height: Int32, stream: cuda.CUstream, VECTORS: cutlass.Constexpr,
):  # fmt: skip
    _parts_kernel(x, sums, cols, row_stride, col_stride, span, VECTORS).launch(
        grid=[parts, height, 1], block=[LONG_THREADS, 1, 1], stream=stream
    )


@cute.kernel
def _parts_kernel(
    x: cute.Pointer, sums: cute.Pointer, cols: Int64, row_stride: Int64, col_stride: Int64, span: Int64,
    VECTORS: cutlass.Constexpr,
):  # fmt: skip
    """The sum of the squares of one part of a row, `span` columns."""
    between = _cutedsl.shared(1)
    thread, _, _ = cute.arch.thread_idx()
    part, row, _ = cute.arch.block_idx()
    parts, _, _ = cute.arch.grid_dim()
    source = _cutedsl.at(x, Int64(row) * row_stride, VECTORS)
    start = Int64(part) * span
    last = start + span
    last = last if last < cols else cols
    squares = Float32(0.0)
    while start < last:
        squares += _squares(
            _cutedsl.load(source, col_stride, start, last, Float32(0.0), LONG_VALUES, LONG_THREADS, VECTORS)
        )
        start += LONG_THREADS * LONG_VALUES
    squares = _cutedsl.join(squares, operator.add, Float32(0.0), between[0, None], LONG_THREADS)
    if thread == 0:
        cute.make_tensor(sums + (Int64(row) * parts + part), cute.make_layout(1))[0] = squares


@cute.jit
def launch_join(
    x: cute.Pointer, weight: cute.Pointer, out: cute.Pointer, rstd: cute.Pointer,
    rows: Int64, cols: Int64, row_stride: Int64, col_stride: Int64, weight_stride: Int64, eps: Float32,
    sums: cute.Pointer, parts: Int32, chunks: Int32, stream: cuda.CUstream,
    VECTORS: cutlass.Constexpr, WEIGHTED: cutlass.Constexpr, STATS: cutlass.Constexpr,
):  # fmt: skip
    _join_kernel(
        x, weight, out, rstd, cols, row_stride, col_stride, weight_stride, eps, sums, parts, VECTORS, WEIGHTED, STATS
    ).launch(grid=[chunks, Int32(rows), 1], block=[LONG_THREADS, 1, 1], stream=stream)


@cute.kernel
def _join_kernel(
    x: cute.Pointer, weight: cute.Pointer, out: cute.Pointer, rstd: cute.Pointer,
    cols: Int64, row_stride: Int64, col_stride: Int64, weight_stride: Int64, eps: Float32,
    sums: cute.Pointer, parts: Int32,
    VECTORS: cutlass.Constexpr, WEIGHTED: cutlass.Constexpr, STATS: cutlass.Constexpr,
):  # fmt: skip
    """One chunk of a row, from the sums of all parts of the row."""
    thread, _, _ = cute.arch.thread_idx()
    chunk, row, _ = cute.arch.block_idx()
    squares, part = Float32(0.0), thread % 32
    while part < parts:
        squares += cute.make_tensor(sums + (Int64(row) * parts + part), cute.make_layout(1))[0]
        part += 32
    squares = cute.arch.warp_reduction(squares, operator.add, threads_in_group=32)
    root = cute.math.rsqrt(squares / Float32(cols) + eps)
    if cutlass.const_expr(STATS):
        if thread == 0 and chunk == 0:
            cute.make_tensor(rstd + Int64(row), cute.make_layout(1))[0] = root
    _write_chunk(
        _cutedsl.at(x, Int64(row) * row_stride, VECTORS), col_stride, weight, weight_stride,
        _cutedsl.at(out, Int64(row) * cols, VECTORS),
        Int64(chunk) * (LONG_THREADS * LONG_VALUES), cols, root, LONG_VALUES, LONG_THREADS, VECTORS, WEIGHTED,
    )  # fmt: skip


# --- what all share ---------------------------------------------------------------------------------------------------


@cute.jit
def _squares(value: cute.Tensor) -> Float32:
    """The sum of the squares of a thread's values."""
    loaded = value.load()
    return (loaded * loaded).reduce(cute.ReductionOp.ADD, Float32(0.0), 0)


@cute.jit
def _root(squares: Float32, cols: Int64, eps: Float32, between: cute.Tensor, THREADS: cutlass.Constexpr) -> Float32:
    """1 / root of a row, from its threads' sums of squares."""
    squares = _cutedsl.join(squares, operator.add, Float32(0.0), between, THREADS)
    return cute.math.rsqrt(squares / Float32(cols) + eps)


@cute.jit
def _scale(
    weight: cute.Pointer, stride: Int64, start: Int64, cols: Int64,
    VALUES: cutlass.Constexpr, THREADS: cutlass.Constexpr, VECTORS: cutlass.Constexpr, WEIGHTED: cutlass.Constexpr,
) -> cute.Tensor:  # fmt: skip
    """The weight of a thread's columns; 1 without a weight."""
    if cutlass.const_expr(WEIGHTED):
        scale = _cutedsl.load(weight, stride, start, cols, Float32(0.0), VALUES, THREADS, VECTORS)
    else:
        scale = cute.make_rmem_tensor((VALUES,), Float32)
        scale.fill(1.0)
    return scale


@cute.jit
def _write_chunk(
    source: cute.Pointer, col_stride: Int64, weight: cute.Pointer, weight_stride: Int64, target: cute.Pointer,
    start: Int64, cols: Int64, root: Float32,
    VALUES: cutlass.Constexpr, THREADS: cutlass.Constexpr, VECTORS: cutlass.Constexpr, WEIGHTED: cutlass.Constexpr,
):  # fmt: skip
    value = _cutedsl.load(source, col_stride, start, cols, Float32(0.0), VALUES, THREADS, VECTORS)
    scale = _scale(weight, weight_stride, start, cols, VALUES, THREADS, VECTORS, WEIGHTED)
    value.store(value.load() * root * scale.load())
    _cutedsl.store(value, target, start, cols, VALUES, THREADS, VECTORS)
