"""broadcast in TileLang: one row, written to every row of the output. Only the row is read."""

import functools
from typing import Any, NamedTuple

import tilelang.language as T
import torch

import _launch
import _lines
import _tilelang

BLOCK = 128
"""Threads of a block."""
MOST_BLOCKS = 65535
"""Along a grid's second side."""
DEPTHS = ((64 * 1024, 2), (None, 8))
"""Bytes that each processor writes, at most -> vectors that a thread writes."""


class Plan(NamedTuple):
    """All that a program is compiled for."""

    dtype: torch.dtype
    bias: torch.dtype
    vectors: bool
    along: int
    """vectors of a tile's row, each a thread's"""
    rows: int
    """of a tile"""


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
    plan = choose(rows, cols, x.dtype, bias.dtype, _lines.has_vectors(out, (cols,)), _launch.limits(x.device))
    size, step = _tilelang.vector_size(plan.vectors, x.dtype), bias.stride(0)
    tiles = _launch.tiles(rows, plan.rows)
    blocks = min(tiles, MOST_BLOCKS)
    given, written = bias.as_strided((cols // size, size), (size * step, step)), out.view(rows, cols // size, size)
    with _launch.on(x.device):
        compiled(plan)(given, written, blocks, _launch.tiles(tiles, blocks))
    return out


@functools.lru_cache(maxsize=4096)
def choose(rows: int, cols: int, dtype: torch.dtype, bias: torch.dtype, vectors: bool, limits: _launch.Limits) -> Plan:
    """Returns the tile for a shape. vectors: the output's rows are made of whole ones."""
    across = cols // _tilelang.vector_size(vectors, dtype)
    along = next((size for size in (128, 64, 32) if across % size == 0), min(_launch.power_of_two(across), BLOCK))
    share = rows * cols * dtype.itemsize / limits.processors
    depth = next(depth for most, depth in DEPTHS if most is None or share <= most)
    return Plan(dtype, bias, vectors, along, BLOCK // along * depth)


@functools.cache
def compiled(plan: Plan) -> Any:
    """Returns a program as it is launched."""
    return _tilelang.compiled(program(plan))


def program(plan: Plan) -> Any:
    """Returns the program of a plan: a block keeps its part of the row, and writes it to some rows.

    The blocks of a row are neighbours: those that run at once share few rows.
    """
    rows, vectors, wide, step = (T.dynamic(name, "int64") for name in ("rows", "vectors", "wide", "step"))
    size, dtype = _tilelang.vector_size(plan.vectors, plan.dtype), _tilelang.NAMES[plan.dtype]
    along, height = plan.along, plan.rows
    of_bias = T.StridedTensor((vectors, size), (wide, step), _tilelang.NAMES[plan.bias])
    of_out = T.Tensor((rows, vectors, size), dtype)

    @T.prim_func
    def broadcast_rows(bias: of_bias, out: of_out, blocks: T.int32, turns: T.int32):
        with T.Kernel(T.ceildiv(vectors, along), blocks, threads=BLOCK) as (part, block):
            value = T.alloc_shared((along, size), dtype)
            for j, k in T.Parallel(along, size):
                if part * along + j < vectors:
                    value[j, k] = T.cast(T.cast(bias[part * along + j, k], "float32"), dtype)
            for turn in T.serial(turns):
                row = (T.cast(turn, "int64") * blocks + block) * height
                for i, j, k in T.Parallel(height, along, size):
                    if (row + i < rows) & (part * along + j < vectors):
                        out[row + i, part * along + j, k] = value[j, k]

    return broadcast_rows
