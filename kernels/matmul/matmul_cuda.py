"""matmul in CUDA C++: tiles of the product in grouped order, finished by bias and activation before rounding."""

import functools
from pathlib import Path

import torch

import _cuda
import _launch
import _lines

SOURCE = Path(__file__).with_name("matmul.cu")
SIGNATURE = "PqqPqqPPqqqqi"
# Rows, columns and threads of a tile, and the shared memory of its blocks of a and b, of 64 of k each.
LARGE = (128, 256, 256, 4 * (128 + 256) * 64 * 2)
SMALL = (64, 64, 128, 4 * (64 + 64) * 64 * 2)
ELEMENTS = (64, 64, 128, 2 * (64 + 64) * 64 * 2)
FLOAT32 = (64, 64, 256, 0)


@functools.cache
def function(name: str, shared: int) -> _cuda.Function:
    """Returns a function of the .cu file."""
    return _cuda.Function(SOURCE, name, SIGNATURE, shared)


def matmul(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, activation: str | None = None
) -> torch.Tensor:
    """Returns activation(a @ b + bias), shapes (m, k), (k, n) and (n,), as a contiguous (m, n) tensor of their dtype.

    float32 (multiplied in full precision, no TF32), float16 or bfloat16, summed and finished in float32 and rounded
    once. Any strides, including transposed views. `activation` is one of `_launch.ACTIVATIONS`: gelu is that by erf.
    Raises TypeError for dtypes, ValueError for shapes, devices or activations that do not fit.
    """
    _launch.check_matmul("matmul", a, b, bias, activation)
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if out.numel() == 0:
        return out
    name, grid, threads, shared = choose(m, n, a.dtype, _dense_side(a), _dense_side(b), _launch.limits(a.device))
    of_bias = (0, 0) if bias is None else (bias.data_ptr(), bias.stride(0))
    with _launch.on(a.device):
        function(name, shared)(
            a.device, grid, threads, a.data_ptr(), *a.stride(), b.data_ptr(), *b.stride(), out.data_ptr(),
            of_bias[0], of_bias[1], m, n, k, _launch.ACTIVATIONS.index(activation),
        )  # fmt: skip
    return out


@functools.lru_cache(maxsize=4096)
def choose(
    m: int, n: int, dtype: torch.dtype, of_a: str, of_b: str, limits: _launch.Limits
) -> tuple[str, tuple[int, int], tuple[int, int], int]:
    """Returns function, grid, block and shared memory for a shape and what `_dense_side` says of a and b."""
    if dtype is torch.float32:
        tile, kind = FLOAT32, ""
    elif not of_a or not of_b:
        tile, kind = ELEMENTS, "elements_"
    else:
        # Large tiles need fewer bytes for a product, if there are enough of them for most processors.
        tiles = _launch.tiles(m, LARGE[0]) * _launch.tiles(n, LARGE[1])
        is_large = LARGE[3] <= limits.shared_bytes and tiles * 4 >= limits.processors * 3
        tile, kind = (LARGE, f"large_{of_a}{of_b}_") if is_large else (SMALL, f"small_{of_a}{of_b}_")
    rows, cols, threads, shared = tile
    grid = (_launch.tiles(m, rows) * _launch.tiles(n, cols), 1)
    return f"product_{kind}{_cuda.NAMES[dtype]}", grid, (threads, 1), shared


def _dense_side(matrix: torch.Tensor) -> str:
    """Returns r if neighbours of a row lie side by side, c if those of a column do; nothing if vectors cannot be read.

    All lines of the matrix have to begin at a whole vector.
    """
    for side, name in ((1, "r"), (0, "c")):
        if matrix.stride(side) == 1 and _lines.has_vectors(matrix, (matrix.stride(1 - side),)):
            return name
    return ""
