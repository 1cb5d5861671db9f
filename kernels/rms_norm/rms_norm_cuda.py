"""rms_norm over the last dimension in CUDA C++: whole rows in registers, wider ones walked, few wide ones shared."""

import functools
from pathlib import Path
from typing import NamedTuple

import torch

import _cuda
import _launch
import _lines

SOURCE = Path(__file__).with_name("rms_norm.cu")
LONG_ROWS = 16384
"""Columns; wider rows are walked."""
LONG_THREADS, LONG_VALUES = 512, 16
"""Of a long row: threads of a block, and columns of a thread at a time."""
MOST_PARTS = 64
"""Most blocks that share one row."""
SHARING = 2
"""Blocks a processor for shared rows: some compute while others wait for memory."""
SIGNATURE = "PqqPqPPqqfPq"


class Plan(NamedTuple):
    """The launch for a shape."""

    path: str
    """function, or of shared rows the first of its two"""
    kind: tuple[int, str, str]
    """of all functions of the launch: values of a thread, vectors or elements, dtype"""
    grid: tuple[int, int]
    block: tuple[int, int]
    parts: int = 1
    """blocks that share one row"""


@functools.cache
def function(path: str, values: int, kind: str, dtype: str) -> _cuda.Function:
    """Returns a function of the .cu file: its path, values of a thread, vectors or elements, dtype."""
    body, block = f"{path}<{dtype}, {values}, {kind}>", _lines.BLOCK if values == 8 else LONG_THREADS
    return _cuda.Function(SOURCE, f"{path}_{values}_{kind}_{dtype}", SIGNATURE, BODY=body, ELEMENT=dtype, BLOCK=block)


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
        _launched(x, weight, out, rstd, eps)
    return out if rstd is None else (out, rstd)


def _launched(
    x: torch.Tensor, weight: torch.Tensor | None, out: torch.Tensor, rstd: torch.Tensor | None, eps: float
) -> None:
    rows, cols, row_stride, col_stride = _launch.as_rows("rms_norm", x)
    vectors = col_stride == 1 and _lines.has_vectors(x, (cols, row_stride))
    if weight is not None:
        vectors = vectors and weight.stride(0) == 1 and _lines.has_vectors(weight, ())
    plan = choose(rows, cols, x.dtype, vectors, _launch.limits(x.device))
    of_weight = (0, 0) if weight is None else (weight.data_ptr(), weight.stride(0))
    tensors = (
        x.data_ptr(), row_stride, col_stride, *of_weight, out.data_ptr(), 0 if rstd is None else rstd.data_ptr(),
        rows, cols, eps,
    )  # fmt: skip
    with _launch.on(x.device):
        if plan.parts == 1:
            function(plan.path, *plan.kind)(x.device, plan.grid, plan.block, *tensors, 0, 0)
            return
        sums = torch.empty((rows, plan.parts), dtype=torch.float32, device=x.device)
        chunk = LONG_THREADS * LONG_VALUES
        span = _launch.tiles(_launch.tiles(cols, chunk), plan.parts) * chunk
        function(plan.path, *plan.kind)(x.device, plan.grid, plan.block, *tensors, sums.data_ptr(), span)
        grid = (_launch.tiles(cols, chunk), rows)
        function("join_parts", *plan.kind)(x.device, grid, plan.block, *tensors, sums.data_ptr(), plan.parts)


@functools.lru_cache(maxsize=4096)
def choose(rows: int, cols: int, dtype: torch.dtype, vectors: bool, limits: _launch.Limits) -> Plan:
    """Returns the launch for a shape. vectors: rows are made of whole ones."""
    kind = ("vectors" if vectors else "elements", _cuda.NAMES[dtype])
    if cols <= LONG_ROWS:
        values, threads = _lines.row_threads(cols)
        block = threads, max(_lines.BLOCK // threads, 1)
        # As many blocks as run at once: the weight is loaded once for all rows of a block.
        most = limits.processors * (_lines.PROCESSOR_THREADS // (block[0] * block[1]))
        return Plan("whole_rows", (values, *kind), (min(_launch.tiles(rows, block[1]), most), 1), block)
    if rows > limits.processors:
        grid = (min(rows, _lines.long_blocks(cols, dtype.itemsize, limits)), 1)
        return Plan("long_rows", (LONG_VALUES, *kind), grid, (LONG_THREADS, 1))
    chunks = _launch.tiles(cols, LONG_THREADS * LONG_VALUES)
    wanted = min(_launch.tiles(limits.processors * SHARING, rows), MOST_PARTS, chunks)
    parts = _launch.tiles(chunks, _launch.tiles(chunks, wanted))  # none is empty
    if parts == 1:
        return Plan("long_rows", (LONG_VALUES, *kind), (rows, 1), (LONG_THREADS, 1))
    return Plan("parts_of_rows", (LONG_VALUES, *kind), (parts, rows), (LONG_THREADS, 1), parts)
