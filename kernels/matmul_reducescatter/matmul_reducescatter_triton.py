"""matmul_reducescatter: tiles are sent to the ranks that need them as soon as they are summed, in one launch.

The first programs compute tiles of the rows of peers, write them into the peers' workspaces and raise a flag there for
each. The last ones compute the tiles of this rank's rows, wait for those of all peers, and add them in a fixed order.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

import _launch
import _symmetric
from _product import GROUP, locate, product, takes_large
from _symmetric import await_flag, end_call, place, raise_flag
from _tiles import grouped


class Config(NamedTuple):
    """How a launch is cut."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int


LARGE = Config(128, 256, 64, 8, 3)
SMALL = {2: Config(64, 64, 32, 4, 3), 4: Config(32, 32, 32, 4, 2)}


def choose_config(m: int, n: int, k: int, itemsize: int, limits: _launch.Limits) -> Config:
    """Returns the cut for m rows of all ranks, n columns and this rank's depth of k."""
    return LARGE if takes_large(LARGE, m, n, k, itemsize, limits) else SMALL[itemsize]


def matmul_reducescatter(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns this rank's rows of the sum of all ranks' a @ b: of shapes (m, k) and (k, n), a tensor (m / ranks, n).

    The ranks are those of torch.distributed's default group, one without it. All have to call it with one m, n and
    dtype: float32 (multiplied in full precision), float16 or bfloat16. What a peer sends is rounded, as its dtype has
    it. Sums are in float32, and rounded once more. The memory that tiles are sent to stays for the next call. Raises
    TypeError for dtypes, ValueError for shapes or devices, and for rows that are no multiple of the ranks, and
    NotImplementedError for chips on which no rank reaches the memory of another.
    """
    _launch.check_matmul("matmul_reducescatter", a, b, None, None)
    (rows, k), n = a.shape, b.shape[1]
    rank, ranks = _symmetric.find_group()
    if rows % ranks:
        raise ValueError(f"matmul_reducescatter: {rows} rows cannot be divided among {ranks} ranks")
    m = rows // ranks
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if out.numel() == 0:
        return out
    limits = _launch.limits(a.device)
    _symmetric.refuse_apart("matmul_reducescatter", limits)
    config = choose_config(rows, n, k, a.element_size(), limits)
    tiles = _launch.tiles(m, config.block_m) * _launch.tiles(n, config.block_n)
    space = _symmetric.workspace("matmul_reducescatter", a.device, ranks * tiles, rows * n * a.element_size())
    with _launch.on(a.device):
        _matmul_reducescatter_kernel[(ranks * tiles,)](
            a.contiguous(), b, out, space.addresses, space.state, rank, m, n, k, *b.stride(), space.data, space.half,
            RANKS=ranks, GROUP=GROUP, EVEN=k % config.block_k == 0,
            BLOCK_M=config.block_m, BLOCK_N=config.block_n, BLOCK_K=config.block_k,
            num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rank"])
def _matmul_reducescatter_kernel(
    a_ptr, b_ptr, out_ptr, addresses_ptr, state_ptr, rank, m, n, k, b_row_stride, b_col_stride, data, half,
    RANKS: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    calls = tl.load(state_ptr)
    data = data.to(tl.int64) + (calls % 2) * half.to(tl.int64)
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    tiles = tiles_m * tiles_n
    part, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    target = (rank + 1 + part) % RANKS  # this rank's rows come last
    row, col = grouped(tile, tiles_m, tiles_n, GROUP)
    total = product(
        a_ptr + target.to(tl.int64) * m * k, b_ptr, row, col, m, n, k, k, b_row_stride, b_col_stride,
        EVEN, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    at, inside = locate(row, col, m, n, BLOCK_M, BLOCK_N)
    if part < RANKS - 1:
        to_ptr = place(addresses_ptr, target, data, out_ptr) + rank.to(tl.int64) * m * n
        tl.store(to_ptr + at, total.to(out_ptr.dtype.element_ty), mask=inside)
        raise_flag(addresses_ptr, target, rank * tiles + tile, calls + 1)
    else:
        for ahead in range(1, RANKS):
            source = (rank + ahead) % RANKS
            await_flag(addresses_ptr, rank, source * tiles + tile, calls + 1)
            sent_ptr = place(addresses_ptr, rank, data, out_ptr) + source.to(tl.int64) * m * n
            total += tl.load(sent_ptr + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=inside)
    end_call(state_ptr, calls + 1)
