"""How the ops that reduce rows cut them: whole rows in registers, or a walk along a long row in chunks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import _launch

MOST_PARTS = 64
"""Most programs that share one row; another kernel merges their results."""
SHARING = 2
"""Programs a processor for shared rows, unless a configuration has more."""


class Config(NamedTuple):
    """One entry's `config` of a tuned file."""

    elements: int
    """Values that a program works on at a time. Rows up to this width are in registers; longer ones are walked."""
    warps: int
    stages: int = 1
    """Tiles that load while one is computed; 1: only its own."""
    programs: int = 0
    """Programs a processor, each taking many tiles or rows; 0: one program each."""
    again: bool = False
    """Whole rows are loaded again for each pass, from L1, instead of kept in registers."""
    max_registers: int = 0
    """Most registers of a thread; 0: the compiler decides."""
    sharing: int = SHARING
    """Programs a processor for shared rows: some compute while others wait for memory."""


class Tile(NamedTuple):
    """The work of one program at a time."""

    rows: int
    cols: int
    """Columns at a time: a whole row's width, or one chunk of a long row."""
    warps: int
    stages: int
    programs: int
    lanes: int
    """0: whole rows. Otherwise neighbouring columns of a chunk, one vector for each thread."""
    parts: int
    """Programs that share one row, if there are at most as many rows as processors."""
    again: bool = False
    max_registers: int = 0

    @property
    def options(self) -> dict[str, int]:
        """Launch options of the tile for Triton."""
        return {"num_warps": self.warps, **({"maxnreg": self.max_registers} if self.max_registers else {})}


def choose(
    rows: int, cols: int, itemsize: int, limits: _launch.Limits,
    tuned: Path, table: Mapping[int, Config], long: Config, loads: int, held: int = 1,
) -> Tile:  # fmt: skip
    """Returns the tile for a shape: from the tuned file, else from the op's table (widest row -> config), else `long`.

    Always of powers of two, so that there are few to compile. The tuned file chooses by `rows`, `width` (a row's
    columns up to the next power of two) and `itemsize`. `loads` is how many tensors are loaded for each tile. On a
    chip without registers a tile has the device's `tile_elements` only if `held` is 1, of more values half or less.
    """
    width = _launch.power_of_two(cols)
    tuned_config = _launch.config(tuned, limits, rows=rows, width=width, itemsize=itemsize)
    config = (
        Config(**tuned_config) if tuned_config else next((table[most] for most in sorted(table) if width <= most), long)
    )
    most = limits.tile_elements if limits.registers else limits.tile_elements // held
    if width > min(config.elements, most):
        return _walk(rows, cols, itemsize, limits, most, config if config.elements < width else long, loads)
    share = _launch.power_of_two(_launch.tiles(rows, limits.processors))  # so that every processor has a row
    tile_rows = max(min(config.elements // width, share), 1)
    ahead = _ahead(tile_rows * width, itemsize, limits, loads)
    stages = min(config.stages, ahead + 1)
    return Tile(tile_rows, width, config.warps, stages, config.programs, 0, 1, config.again, config.max_registers)


def _ahead(elements: int, itemsize: int, limits: _launch.Limits, loads: int) -> int:
    """Returns how many tiles can be loaded ahead, into shared memory."""
    return limits.shared_bytes // (elements * itemsize * loads)


def _walk(
    rows: int, cols: int, itemsize: int, limits: _launch.Limits, most: int, config: Config, loads: int
) -> Tile:  # fmt: skip
    elements = min(config.elements, most)
    lanes = min(config.warps * limits.warp_size * _launch.VECTOR_BYTES // itemsize, elements)
    ahead = _ahead(elements, itemsize, limits, loads)
    stages = min(config.stages, ahead + 1)
    tile = Tile(1, elements, config.warps, stages, config.programs, lanes, 1, max_registers=config.max_registers)
    if rows > limits.processors:
        return tile
    chunks = _launch.tiles(cols, elements)
    wanted = min(_launch.tiles(limits.processors * config.sharing, rows), MOST_PARTS, chunks)
    return tile._replace(parts=_launch.tiles(chunks, _launch.tiles(chunks, wanted)))


def span(cols: int, tile: Tile) -> int:
    """Returns the columns of one part of a row: whole chunks, and no part is empty."""
    return _launch.tiles(_launch.tiles(cols, tile.cols), tile.parts) * tile.cols


def even(rows: int, cols: int, tile: Tile) -> bool:
    """True if whole rows fill all tiles, so nothing needs a mask."""
    return cols == tile.cols and rows % tile.rows == 0


def programs(tiles: int, tile: Tile, limits: _launch.Limits) -> tuple[int, ...]:
    """Returns the grid of a kernel that loops over its tiles."""
    return _launch.grid(min(tiles, limits.processors * tile.programs) if tile.programs else tiles, 1, limits)
