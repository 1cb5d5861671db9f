"""How blocks of threads share rows, in languages that have threads: CUDA C++ and CuTe DSL."""

from __future__ import annotations

from collections.abc import Iterable

import torch

import _launch

BLOCK = 128
"""Threads of a block, if a row does not take more."""
PROCESSOR_THREADS = 2048
"""Most threads that run on a processor at once."""


def has_vectors(x: torch.Tensor, sizes: Iterable[int]) -> bool:
    """Returns whether x begins at a whole vector, and so do its rows: `sizes` are their lengths, in elements."""
    vector = _launch.VECTOR_BYTES // x.element_size()
    return x.data_ptr() % _launch.VECTOR_BYTES == 0 and not any(size % vector for size in sizes)


def row_threads(cols: int) -> tuple[int, int]:
    """Returns how many values of a row each thread takes, and how many threads. The latter is a power of two.

    Rows of up to 1024 columns stay within a warp, whose threads need not wait for another.
    """
    width = _launch.power_of_two(cols)
    values = 8 if width <= 256 else 32 if width in (1024, 16384) else 16
    return values, max(width // values, 1)


def long_blocks(cols: int, itemsize: int, limits: _launch.Limits) -> int:
    """Returns how many blocks walk long rows at once: a row has to stay in L2 until it is read again."""
    return limits.processors * max(1, min(4, limits.l2_bytes * 2 // 3 // (limits.processors * cols * itemsize)))
