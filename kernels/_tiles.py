"""How matrices are cut into tiles: the configuration of a product's launch, and the orders that tiles are walked in."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl


class Config(NamedTuple):
    """One entry's `config` of a tuned file."""

    block_m: int
    block_n: int
    block_k: int
    group_m: int
    """Rows of tiles walked together, so that their columns of b are in L2."""
    warps: int
    stages: int
    persistent: bool = False
    """One program a processor, each walking many tiles."""
    tma: bool = False
    """Tiles are copied by descriptor."""
    split: int = 1
    """1 or 2: parts in which a tile is stored, through shared memory, of which large tiles leave little."""
    flatten: bool = False
    """The loop over tiles is merged with the one over k: the next tile loads while one is stored."""


@triton.jit
def grouped(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Row and column of a tile: down GROUP_M rows, then to the next column."""
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    return first + tile % in_group % height, tile % in_group // height


@triton.jit
def halves(total, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The left and the right half of a tile of ROWS x COLS."""
    return tl.split(tl.permute(tl.reshape(total, (ROWS, 2, COLS // 2)), (0, 2, 1)))


@triton.jit
def by_rows(cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """A program's first row, rows from one of its tiles to the next, and its columns, if neighbours share rows.

    In 64 bits, as there may be more than 2**31 elements.
    """
    along = tl.cdiv(cols, COLS)
    first = (tl.program_id(0) // along).to(tl.int64) * ROWS
    step = (tl.num_programs(0) // along).to(tl.int64) * ROWS
    return first, step, (tl.program_id(0) % along).to(tl.int64) * COLS + tl.arange(0, COLS)
