"""allgather_matmul: rows are sent to all ranks while the product of those that are there is under way, in one launch.

The first programs write this rank's rows into the workspaces of its peers, block by block, and raise a flag there for
each block. The others compute a tile of the product each: those of this rank's rows first, then those of a peer, once
the flag of their block is raised.
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
    """rows of a tile, and of a block that is sent"""
    block_n: int
    block_k: int
    warps: int
    stages: int
    senders: int
    """programs that send"""
    columns: int
    """that a sender copies at a time"""


LARGE = Config(128, 256, 64, 8, 3, 32, 128)
SMALL = {2: Config(64, 64, 32, 4, 3, 8, 128), 4: Config(32, 32, 32, 4, 2, 8, 64)}
ALIGNMENT = 16
"""Bytes that rows begin at a multiple of, wherever they lie."""


def choose_config(m: int, n: int, k: int, itemsize: int, limits: _launch.Limits) -> Config:
    """Returns the cut for m rows of all ranks, n columns and a depth of k."""
    return LARGE if takes_large(LARGE, m, n, k, itemsize, limits) else SMALL[itemsize]


def allgather_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns the rows of a of all ranks times this rank's b: of shapes (m, k) and (k, n), a tensor (ranks * m, n).

    The ranks are those of torch.distributed's default group, one without it. All have to call it with one m, k and
    dtype: float32 (multiplied in full precision), float16 or bfloat16, summed in float32 and rounded once. The memory
    that rows are sent to stays for the next call. Raises TypeError for dtypes, ValueError for shapes or devices, and
    NotImplementedError for chips on which no rank reaches the memory of another.
    """
    _launch.check_matmul("allgather_matmul", a, b, None, None)
    (m, k), n = a.shape, b.shape[1]
    rank, ranks = _symmetric.find_group()
    out = torch.empty((ranks * m, n), dtype=a.dtype, device=a.device)
    if m * k == 0:
        return out.zero_()
    a = a.contiguous()
    a = a if a.data_ptr() % ALIGNMENT == 0 else a.clone()
    limits = _launch.limits(a.device)
    _symmetric.refuse_apart("allgather_matmul", limits)
    config = choose_config(ranks * m, n, k, a.element_size(), limits)
    rows, cols = _launch.tiles(m, config.block_m), _launch.tiles(n, config.block_n)
    space = _symmetric.workspace("allgather_matmul", a.device, ranks * rows, ranks * m * k * a.element_size())
    senders = min(config.senders, rows) if ranks > 1 else 0
    with _launch.on(a.device):
        _allgather_matmul_kernel[(senders + ranks * rows * cols,)](
            a, b, out, space.addresses, space.state, rank, senders, m, n, k, *b.stride(),
            space.data, space.half, RANKS=ranks, GROUP=GROUP, EVEN=k % config.block_k == 0,
            BLOCK_M=config.block_m, BLOCK_N=config.block_n, BLOCK_K=config.block_k, COLUMNS=config.columns,
            num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rank", "senders"])
def _allgather_matmul_kernel(
    a_ptr, b_ptr, out_ptr, addresses_ptr, state_ptr, rank, senders, m, n, k, b_row_stride, b_col_stride, data, half,
    RANKS: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    calls = tl.load(state_ptr)
    data = data.to(tl.int64) + (calls % 2) * half.to(tl.int64)
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    program = tl.program_id(0)
    if program < senders:
        _send(a_ptr, addresses_ptr, rank, program, senders, m, k, data, calls + 1, RANKS, BLOCK_M, COLUMNS)
    else:
        tile = program - senders
        source = (rank + tile // (tiles_m * tiles_n)) % RANKS
        row, col = grouped(tile % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP)
        # One loop for both: two would need twice the shared memory.
        address, offset = a_ptr.to(tl.int64), tl.where(source == rank, 0, source.to(tl.int64) * m * k)
        if source != rank:
            await_flag(addresses_ptr, rank, source * tiles_m + row, calls + 1)
            address = tl.load(addresses_ptr + rank) + data
        from_ptr = tl.multiple_of(address.to(a_ptr.dtype), 16) + offset
        total = product(
            from_ptr, b_ptr, row, col, m, n, k, k, b_row_stride, b_col_stride, EVEN, BLOCK_M, BLOCK_N, BLOCK_K
        )
        at, inside = locate(row, col, m, n, BLOCK_M, BLOCK_N)
        tl.store(out_ptr + source.to(tl.int64) * m * n + at, total.to(out_ptr.dtype.element_ty), mask=inside)
    end_call(state_ptr, calls + 1)


@triton.jit
def _send(
    a_ptr, addresses_ptr, rank, first, step, m, k, data, call,
    RANKS: tl.constexpr, BLOCK_M: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write blocks of rows to all peers."""
    tiles_m = tl.cdiv(m, BLOCK_M)
    for block in range(first, tiles_m, step):
        rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
        for ahead in range(1, RANKS):
            peer = (rank + ahead) % RANKS
            to_ptr = place(addresses_ptr, peer, data, a_ptr) + rank.to(tl.int64) * m * k
            for start in range(0, k, COLUMNS):
                cols = start + tl.arange(0, COLUMNS)
                at = rows[:, None].to(tl.int64) * k + cols[None, :]
                mask = (rows < m)[:, None] & (cols < k)[None, :]
                tl.store(to_ptr + at, tl.load(a_ptr + at, mask=mask), mask=mask)
            raise_flag(addresses_ptr, peer, rank * tiles_m + block, call)
