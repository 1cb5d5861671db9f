"""One tile of a matrix product through pointers, summed in float32, and when its tiles are large."""

from typing import Protocol

import triton
import triton.language as tl

import _launch

GROUP = 8
"""Rows of tiles walked together, so that their columns of b are in L2."""
VECTOR = 16
"""Lengths that are multiples of this are copied in vectors."""
TILES = 100
"""As many large tiles keep most processors of a large GPU at work."""


class Cut(Protocol):
    """How a launch is cut, of an op's Config."""

    block_m: int
    block_n: int
    block_k: int
    stages: int


def takes_large(large: Cut, m: int, n: int, k: int, itemsize: int, limits: _launch.Limits) -> bool:
    """Whether a product of m rows, n columns and a depth of k has large tiles, of elements of 2 bytes."""
    fits = 2 * large.stages * (large.block_m + large.block_n) * large.block_k <= limits.shared_bytes
    many = _launch.tiles(m, large.block_m) * _launch.tiles(n, large.block_n) >= TILES
    whole = n % VECTOR == k % VECTOR == 0
    return itemsize == 2 and fits and many and whole


@triton.jit
def product(
    a_ptr, b_ptr, row, col, m, n, k, a_row_stride, b_row_stride, b_col_stride,
    EVEN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The tile at a row and a column of tiles of a (m, k), with rows that are dense, times b (k, n).

    EVEN: k is a multiple of BLOCK_K. Float32 is multiplied in full precision.
    """
    rows, cols = row * BLOCK_M + tl.arange(0, BLOCK_M), col * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    # Rows and columns outside are read from inside, and never stored.
    a_at = a_ptr + (rows % m)[:, None].to(tl.int64) * a_row_stride + depth[None, :]
    b_at = b_ptr + depth[:, None] * b_row_stride + (cols % n)[None, :].to(tl.int64) * b_col_stride
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        if EVEN:
            a, b = tl.load(a_at), tl.load(b_at)
        else:
            inside = depth < k - start
            a = tl.load(a_at, mask=inside[None, :], other=0.0)
            b = tl.load(b_at, mask=inside[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
        a_at += BLOCK_K
        b_at += BLOCK_K * b_row_stride
    return total


@triton.jit
def locate(row, col, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Where a tile's elements lie in a dense matrix (m, n), and which of them there are."""
    rows, cols = row * BLOCK_M + tl.arange(0, BLOCK_M), col * BLOCK_N + tl.arange(0, BLOCK_N)
    return rows[:, None].to(tl.int64) * n + cols[None, :], (rows < m)[:, None] & (cols < n)[None, :]
