"""matmul in CUDA C++: tiles of the product in grouped order, finished by bias and activation before rounding."""

import functools
from pathlib import Path
from typing import NamedTuple

import torch

import _cuda
import _launch
import _lines

SOURCE = Path(__file__).with_name("matmul.cu")
SIGNATURE = "PqqPqqPPqqqqi"


class Tile(NamedTuple):
    """A tile of the product, by blocks of 64 of k."""

    name: str
    rows: int
    cols: int
    warp: int
    """rows and columns of a warp"""
    stages: int
    """blocks of a and b in shared memory"""
    threads: int
    shared: int
    """bytes of shared memory"""


LARGE = Tile("large", 128, 256, 64, 4, 256, 4 * (128 + 256) * 64 * 2)
SMALL = Tile("small", 64, 64, 32, 4, 128, 4 * (64 + 64) * 64 * 2)
ELEMENTS = Tile("elements", 64, 64, 32, 2, 128, 2 * (64 + 64) * 64 * 2)
FLOAT32 = Tile("", 64, 64, 0, 0, 256, 0)


@functools.cache
def function(tile: Tile, sides: str, dtype: torch.dtype) -> _cuda.Function:
    """Returns a function of the .cu file. sides: what `_dense_side` says of a and b, nothing if it does not matter."""
    element = _cuda.NAMES[dtype]
    name = "_".join(filter(None, ("product", tile.name, sides, element)))
    body = "product_float32"
    if tile is not FLOAT32:
        sizes = (tile.rows, tile.cols, tile.warp, tile.warp, tile.stages)
        lines = [str(side != "c").lower() for side in sides or "rr"]
        body = f"product<{', '.join(map(str, (element, *sizes, *lines, str(bool(sides)).lower())))}>"
    return _cuda.Function(SOURCE, name, SIGNATURE, tile.shared, BODY=body, ELEMENT=element, BLOCK=tile.threads)


def matmul(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, activation: str | None = None
) -> torch.Tensor:
    """Returns activation(a @ b + bias), shapes (m, k), (k, n) and (n,), as a contiguous (m, n) tensor of their dtype.

    Arguments, answers and errors are those of matmul_triton.py.
    """
    _launch.check_matmul("matmul", a, b, bias, activation)
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if out.numel() == 0:
        return out
    tile, sides = choose(m, n, a.dtype, _dense_side(a), _dense_side(b), _launch.limits(a.device))
    grid = (_launch.tiles(m, tile.rows) * _launch.tiles(n, tile.cols), 1)
    of_bias = (0, 0) if bias is None else (bias.data_ptr(), bias.stride(0))
    with _launch.on(a.device):
        function(tile, sides, a.dtype)(
            a.device, grid, (tile.threads, 1), a.data_ptr(), *a.stride(), b.data_ptr(), *b.stride(), out.data_ptr(),
            of_bias[0], of_bias[1], m, n, k, _launch.ACTIVATIONS.index(activation),
        )  # fmt: skip
    return out


@functools.lru_cache(maxsize=4096)
def choose(m: int, n: int, dtype: torch.dtype, of_a: str, of_b: str, limits: _launch.Limits) -> tuple[Tile, str]:
    """Returns the tile for a shape, and what `_dense_side` says of a and b if the tile's function depends on it."""
    if dtype is torch.float32:
        return FLOAT32, ""
    if not of_a or not of_b:
        return ELEMENTS, ""
    # Large tiles need fewer bytes for a product, if there are enough of them for most processors.
    tiles = _launch.tiles(m, LARGE.rows) * _launch.tiles(n, LARGE.cols)
    is_large = LARGE.shared <= limits.shared_bytes and tiles * 4 >= limits.processors * 3
    return LARGE if is_large else SMALL, of_a + of_b


def _dense_side(matrix: torch.Tensor) -> str:
    """Returns r if neighbours of a row lie side by side, c if those of a column do; nothing if vectors cannot be read.

    All lines of the matrix have to begin at a whole vector.
    """
    for side, name in ((1, "r"), (0, "c")):
        if matrix.stride(side) == 1 and _lines.has_vectors(matrix, (matrix.stride(1 - side),)):
            return name
    return ""
