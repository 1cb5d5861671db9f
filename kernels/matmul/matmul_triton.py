"""matmul: tiles of the product in grouped order, summed in float32; configs by shape from `tuned/<device key>.json`."""

import functools
from pathlib import Path
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import _launch

TUNED = Path(__file__).parent / "tuned"


class Config(NamedTuple):
    block_m: int
    block_n: int
    block_k: int
    group_m: int
    """Rows of tiles walked together, so that their columns of b are found in L2."""
    warps: int
    stages: int
    persistent: bool = False
    """One program a processor, each walking many tiles."""


# For devices without a tuned file, and for shapes that theirs leaves out: bytes of an element -> config.
FALLBACK = {2: Config(64, 64, 32, 8, 4, 3), 4: Config(64, 32, 16, 8, 4, 2)}
VECTOR = 16
"""Triton loads vectors where sizes and strides are multiples of this; elements one by one make large tiles spill."""


@functools.lru_cache(maxsize=4096)
def choose_config(m: int, n: int, k: int, itemsize: int, limits: _launch.Limits) -> Config:
    """The first entry of the device's tuned file whose bounds hold the shape; nothing is ever tuned here.

    Shapes that cannot be loaded in vectors get the fallback.
    """
    size = {"m": m, "n": n, "k": k}
    vectors = n % VECTOR == k % VECTOR == 0
    for entry in _launch.tuned(TUNED, limits.key) if vectors else ():
        if entry["itemsize"] == itemsize and all(size[side] <= entry.get(f"{side}_max", size[side]) for side in size):
            return Config(**entry["config"])
    return FALLBACK[itemsize]


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The matrix product a @ b, shapes (m, k) and (k, n), as a contiguous tensor of their dtype.

    float32 (multiplied in full precision, no TF32), float16 or bfloat16, summed in float32 and rounded once; any
    strides, transposed views among them. Raises TypeError for dtypes, ValueError for shapes or devices that do not go
    together.
    """
    _launch.check_tensors("matmul", a=a, b=b)
    _launch.check_same_dtype("matmul", a=a, b=b)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul: needs shapes (m, k) and (k, n), but a is {tuple(a.shape)} and b {tuple(b.shape)}")
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if out.numel() == 0:
        return out
    limits = _launch.limits(a.device)
    config = choose_config(m, n, k, a.element_size(), limits)
    tiles = _launch.tiles(m, config.block_m) * _launch.tiles(n, config.block_n)
    programs = min(tiles, limits.programs, limits.grid[0], limits.processors if config.persistent else tiles)
    with _launch.on(a.device):
        _matmul_kernel[(programs,)](
            a, b, out, m, n, k, *a.stride(), *b.stride(), tiles,
            BLOCK_M=config.block_m, BLOCK_N=config.block_n, BLOCK_K=config.block_k, GROUP_M=config.group_m,
            EVEN=m % config.block_m == n % config.block_n == k % config.block_k == 0,
            WIDE=max(_reach(a), _reach(b), _reach(out)) >= 2**31,
            LOOP=programs < tiles, num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out


def _reach(matrix: torch.Tensor) -> int:
    """Offset of the last element, and one block's width beyond, in elements."""
    beyond = 256  # widest block
    return sum((size + beyond) * stride for size, stride in zip(matrix.shape, matrix.stride(), strict=True))


@triton.jit(do_not_specialize=["tiles"])
def _matmul_kernel(
    a_ptr, b_ptr, out_ptr, m, n, k, a_row, a_col, b_row, b_col, tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN: tl.constexpr, WIDE: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    if LOOP:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            _one_tile(
                a_ptr, b_ptr, out_ptr, m, n, k, a_row, a_col, b_row, b_col, tile,
                BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, EVEN, WIDE,
            )  # fmt: skip
    else:
        _one_tile(
            a_ptr, b_ptr, out_ptr, m, n, k, a_row, a_col, b_row, b_col, tl.program_id(0),
            BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, EVEN, WIDE,
        )  # fmt: skip


@triton.jit
def _one_tile(
    a_ptr, b_ptr, out_ptr, m, n, k, a_row, a_col, b_row, b_col, tile,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One tile of the product. EVEN: blocks divide the shape, no masks. WIDE: offsets need 64 bits."""
    tile_m, tile_n = _grouped(tile, tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP_M)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_hop = BLOCK_K * a_col
    b_hop = BLOCK_K * b_row
    if WIDE:
        row = row.to(tl.int64)
        col = col.to(tl.int64)
        inner = inner.to(tl.int64)
        a_hop = tl.full((), BLOCK_K, tl.int64) * a_col
        b_hop = tl.full((), BLOCK_K, tl.int64) * b_row
    a_ptrs = a_ptr + row[:, None] * a_row + inner[None, :] * a_col
    b_ptrs = b_ptr + inner[:, None] * b_row + col[None, :] * b_col
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        if EVEN:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            inside = inner < k - start
            a = tl.load(a_ptrs, mask=(row < m)[:, None] & inside[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=inside[:, None] & (col < n)[None, :], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
        a_ptrs += a_hop
        b_ptrs += b_hop
    out_ptrs = out_ptr + row[:, None] * n + col[None, :]
    if EVEN:
        tl.store(out_ptrs, total.to(out_ptr.dtype.element_ty))
    else:
        tl.store(out_ptrs, total.to(out_ptr.dtype.element_ty), mask=(row < m)[:, None] & (col < n)[None, :])


@triton.jit
def _grouped(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Row and column of a tile: down GROUP_M rows, then to the next column."""
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    return first + tile % in_group % height, tile % in_group // height
