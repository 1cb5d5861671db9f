"""softmax over the last dimension in CUDA C++: whole rows in registers up to a limit, walked twice beyond it."""

import functools
from pathlib import Path

import torch

import _cuda
import _launch
import _lines

SOURCE = Path(__file__).with_name("softmax.cu")
LONG_ROWS = 16384
"""Columns; wider rows are walked."""
LONG_THREADS = 512
"""Of a long row; enough for two blocks a processor."""


@functools.cache
def function(path: str, values: int, kind: str, dtype: str) -> _cuda.Function:
    """Returns a function of the .cu file: whole_rows or long_rows, values of a thread, vectors or elements."""
    body, block = f"{path}<{dtype}, {values}, {kind}>", _lines.BLOCK if values == 8 else LONG_THREADS
    return _cuda.Function(SOURCE, f"{path}_{values}_{kind}_{dtype}", "PPqqqq", BODY=body, ELEMENT=dtype, BLOCK=block)


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
    words, grid, block = choose(rows, cols, x.dtype, vectors, _launch.limits(x.device))
    with _launch.on(x.device):
        function(*words)(
            x.device, grid, block, x.data_ptr(), out.data_ptr(), rows, cols, row_stride, col_stride
        )  # fmt: skip
    return out


@functools.lru_cache(maxsize=4096)
def choose(
    rows: int, cols: int, dtype: torch.dtype, vectors: bool, limits: _launch.Limits
) -> tuple[tuple[str, int, str, str], tuple[int, int], tuple[int, int]]:
    """Returns function, grid and block for a shape. vectors: rows are made of whole ones."""
    kind = ("vectors" if vectors else "elements", _cuda.NAMES[dtype])
    if cols > LONG_ROWS:
        blocks = min(rows, _lines.long_blocks(cols, dtype.itemsize, limits))
        return ("long_rows", 32, *kind), (blocks, 1), (LONG_THREADS, 1)
    values, threads = _lines.row_threads(cols)
    block = threads, max(_lines.BLOCK // threads, 1)
    return ("whole_rows", values, *kind), (min(_launch.tiles(rows, block[1]), limits.grid[0]), 1), block
