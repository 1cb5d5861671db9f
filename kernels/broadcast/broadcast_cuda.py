"""broadcast in CUDA C++: one row, written to every row of the output. Only the row is read."""

import functools
from pathlib import Path
from typing import NamedTuple

import torch

import _cuda
import _launch
import _lines

SOURCE = Path(__file__).with_name("broadcast.cu")
BLOCK = 256
"""Threads of a block."""
DEPTH = 8
"""Rows that a thread writes, at most; fewer if the output is small, so that every processor has blocks."""


class Plan(NamedTuple):
    """The launch for a shape."""

    words: tuple[str, str, str]
    """function, dtypes of the output and of the bias"""
    grid: tuple[int, int]
    block: tuple[int, int]
    blocks: int = 0
    """blocks of a row"""
    depth: int = 0
    """rows of a thread"""


@functools.cache
def function(path: str, dtype: str, bias: str) -> _cuda.Function:
    """Returns a function of the .cu file: whole_vectors or any_rows, for dtypes of the output and of the bias."""
    return _cuda.Function(SOURCE, f"{path}_{dtype}_{bias}", "PPqqqqi", BODY=path, ELEMENT=dtype, BIAS=bias)


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
    with _launch.on(x.device):
        function(*plan.words)(
            x.device, plan.grid, plan.block, bias.data_ptr(), out.data_ptr(), rows, cols, bias.stride(0), plan.blocks,
            plan.depth,
        )  # fmt: skip
    return out


@functools.lru_cache(maxsize=4096)
def choose(rows: int, cols: int, dtype: torch.dtype, bias: torch.dtype, vectors: bool, limits: _launch.Limits) -> Plan:
    """Returns the launch for a shape. vectors: the output's rows are made of whole ones."""
    dtypes, width = (_cuda.NAMES[dtype], _cuda.NAMES[bias]), _launch.VECTOR_BYTES // dtype.itemsize
    if not vectors:
        blocks = min(_launch.tiles(rows * cols, BLOCK * width), limits.grid[0])
        return Plan(("any_rows", *dtypes), (blocks, 1), (BLOCK, 1))
    along = cols // width
    threads = next((size for size in (256, 128, 64, 32) if along % size == 0), min(_launch.power_of_two(along), BLOCK))
    down, blocks = BLOCK // threads, _launch.tiles(along, threads)
    most = max(limits.grid[0] // blocks, 1)  # blocks down a column
    depth = max(1, min(DEPTH, rows // down * blocks // (8 * limits.processors)), _launch.tiles(rows, down * most))
    grid = _launch.tiles(rows, down * depth) * blocks
    return Plan(("whole_vectors", *dtypes), (grid, 1), (threads, down), blocks, depth)
