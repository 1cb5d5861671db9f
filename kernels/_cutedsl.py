"""Common to ops in CuTe DSL: rows of tensors in registers, joined by their threads, and compiled launches.

The threads of a row are those of one y of the block, a power of two. A thread's values of a row lie at the columns
`start + (i * threads + thread) * SIZE + j` if rows are made of whole vectors of SIZE, else SIZE is 1 and elements may
lie at any stride. Offsets have 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Float32, Int64, cute
from cutlass.cute.runtime import make_ptr

import _launch

DTYPES = {torch.float32: cutlass.Float32, torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}


@cute.jit
def load(
    row: cute.Pointer, stride: Int64, start: Int64, cols: Int64, other: Float32,
    VALUES: cutlass.Constexpr, THREADS: cutlass.Constexpr, VECTORS: cutlass.Constexpr,
) -> cute.Tensor:  # fmt: skip
    """Returns VALUES values of a row as float32, in registers; those beyond its end are `other`."""
    thread, _, _ = cute.arch.thread_idx()
    size = vector_size(row, VECTORS)
    value = cute.make_rmem_tensor((VALUES,), Float32)
    read = cute.make_rmem_tensor((VALUES,), row.dtype)
    for i in cutlass.range_constexpr(VALUES // size):
        col = start + Int64((i * THREADS + thread) * size)
        if col < cols:
            part = cute.make_tensor(read.iterator + i * size, cute.make_layout(size))
            if cutlass.const_expr(VECTORS):
                cute.autovec_copy(cute.make_tensor(at(row, col, VECTORS), cute.make_layout(size)), part)
            else:
                part[0] = cute.make_tensor(row + col * stride, cute.make_layout(1))[0]
    for i in cutlass.range_constexpr(VALUES // size):
        col = start + Int64((i * THREADS + thread) * size)
        for j in cutlass.range_constexpr(size):
            value[i * size + j] = Float32(read[i * size + j]) if col < cols else other
    return value


@cute.jit
def store(
    value: cute.Tensor, row: cute.Pointer, start: Int64, cols: Int64,
    VALUES: cutlass.Constexpr, THREADS: cutlass.Constexpr, VECTORS: cutlass.Constexpr,
) -> None:  # fmt: skip
    """Rounds and stores VALUES values of a row of neighbours."""
    thread, _, _ = cute.arch.thread_idx()
    size = vector_size(row, VECTORS)
    written = cute.make_rmem_tensor((VALUES,), row.dtype)
    written.store(value.load().to(row.dtype))
    for i in cutlass.range_constexpr(VALUES // size):
        col = start + Int64((i * THREADS + thread) * size)
        if col < cols:
            part = cute.make_tensor(written.iterator + i * size, cute.make_layout(size))
            cute.autovec_copy(part, cute.make_tensor(at(row, col, VECTORS), cute.make_layout(size)))


def vector_size(row: cute.Pointer, vectors: bool) -> int:
    """Returns the elements of a vector, or 1."""
    return _launch.VECTOR_BYTES * 8 // row.dtype.width if vectors else 1


@cute.jit
def at(x: cute.Pointer, offset: Int64, VECTORS: cutlass.Constexpr) -> cute.Pointer:
    """Returns a pointer so many elements on, to a whole vector if rows are made of them."""
    return x + cute.assume(offset, divby=vector_size(x, VECTORS))


@cute.jit
def join(
    value: Float32, operation: cutlass.Constexpr, neutral: Float32, between: cute.Tensor, THREADS: cutlass.Constexpr
) -> Float32:
    """Joins one number of each of a row's threads; all get the answer, and all of the block have to call it.

    A row of more than a warp is alone in its block; `between` has a place in shared memory for each of its warps.
    """
    value = cute.arch.warp_reduction(value, operation, threads_in_group=min(THREADS, 32))
    if cutlass.const_expr(THREADS > 32):
        thread, _, _ = cute.arch.thread_idx()
        lane, warp = thread % 32, thread // 32
        if lane == 0:
            between[warp] = value
        cute.arch.sync_threads()
        other = neutral
        if lane < THREADS // 32:
            other = between[lane]
        value = cute.arch.warp_reduction(other, operation, threads_in_group=32)
    return value


@cute.jit
def shared(joins: cutlass.Constexpr) -> cute.Tensor:
    """Returns places in shared memory for so many joins: one for each warp that a block can have."""
    return cutlass.utils.SmemAllocator().allocate_tensor(Float32, cute.make_layout((joins, 32)))


def pointer(tensor: torch.Tensor) -> Any:
    """Returns a tensor's address with its type, which counts as aligned to vectors if it is."""
    address = tensor.data_ptr()
    align = _launch.VECTOR_BYTES if address % _launch.VECTOR_BYTES == 0 else tensor.element_size()
    return make_ptr(DTYPES[tensor.dtype], address, cute.AddressSpace.gmem, assumed_align=align)


def stream(device: torch.device) -> cuda.CUstream:
    """Returns torch's current stream."""
    return cuda.CUstream(torch.cuda.current_stream(device).cuda_stream)


def compiled(cache: dict[Any, Any], key: Any, launch: Callable[..., None], *arguments: Any) -> Callable[..., None]:
    """Returns a launch that is compiled for the types of these arguments, once for each key."""
    if key not in cache:
        cache[key] = cute.compile(launch, *arguments)
    return cache[key]
