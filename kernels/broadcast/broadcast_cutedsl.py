"""broadcast in CuTe DSL: one row, written to every row of the output. Only the row is read."""

from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Float32, Int32, Int64, cute

import _cutedsl
import _launch
import _lines

BLOCK = 256
"""Threads of a block."""
DEPTH = 8
"""Vectors that a thread writes."""
_compiled: dict[Any, Any] = {}


def broadcast(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor of x's shape and dtype with `bias` as each of its rows: out[p, d] = bias[d].

    Arguments, answers and errors are those of broadcast_triton.py.
    """
    _launch.check_broadcast(x, bias)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    cols = x.shape[-1]
    rows = out.numel() // cols
    width = _launch.VECTOR_BYTES // x.element_size()
    vectors = _lines.has_vectors(out, (cols,))
    along = cols // width if vectors else cols
    threads = next((size for size in (256, 128, 64, 32) if along % size == 0), min(_launch.power_of_two(along), BLOCK))
    height, blocks = BLOCK // threads, _launch.tiles(along, threads)
    with _launch.on(x.device):
        arguments = (
            _cutedsl.pointer(bias), _cutedsl.pointer(out), Int64(rows), Int64(cols), Int64(bias.stride(0)),
            Int32(blocks), Int32(_launch.tiles(rows, height * DEPTH) * blocks), _cutedsl.stream(x.device),
        )  # fmt: skip
        shape = threads, height, DEPTH, vectors
        key = (x.dtype, bias.dtype, bias.data_ptr() % _launch.VECTOR_BYTES == 0, shape)
        _cutedsl.compiled(_compiled, key, launch, *arguments, *shape)(*arguments)
    return out


@cute.jit
def launch(
    bias: cute.Pointer, out: cute.Pointer, rows: Int64, cols: Int64, stride: Int64, along: Int32, blocks: Int32,
    stream: cuda.CUstream, THREADS: cutlass.Constexpr, HEIGHT: cutlass.Constexpr, DEPTH: cutlass.Constexpr,
    VECTORS: cutlass.Constexpr,
):  # fmt: skip
    _broadcast_kernel(bias, out, rows, cols, stride, along, THREADS, HEIGHT, DEPTH, VECTORS).launch(
        grid=[blocks, 1, 1], block=[THREADS, HEIGHT, 1], stream=stream
    )


@cute.kernel
def _broadcast_kernel(
    bias: cute.Pointer, out: cute.Pointer, rows: Int64, cols: Int64, stride: Int64, along: Int32,
    THREADS: cutlass.Constexpr, HEIGHT: cutlass.Constexpr, DEPTH: cutlass.Constexpr, VECTORS: cutlass.Constexpr,
):  # fmt: skip
    """A thread keeps one vector of the row, or one element, and writes it to some rows.

    The blocks of a row are neighbours, `along` of them: those that run at once share few rows.
    """
    x, y, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    size = cutlass.const_expr(_cutedsl.vector_size(out, VECTORS))
    col = (Int64(block % along) * THREADS + x) * size
    first = Int64(block // along) * (HEIGHT * DEPTH) + y
    if col < cols:
        value = cute.make_rmem_tensor((size,), out.dtype)
        for j in cutlass.range_constexpr(size):
            given = cute.make_tensor(bias + (col + j) * stride, cute.make_layout(1))[0]
            value[j] = out.dtype(Float32(given))
        for i in cutlass.range_constexpr(DEPTH):
            row = first + i * HEIGHT
            if row < rows:
                place = _cutedsl.at(out, row * cols + col, VECTORS)
                cute.autovec_copy(value, cute.make_tensor(place, cute.make_layout(size)))
