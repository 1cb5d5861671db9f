"""matmul in cuTile: tiles of the product in grouped order, finished by bias and activation before rounding."""

import functools

import cuda.tile as ct
import torch

import _launch

GROUP = 8
"""Rows of tiles walked together, so that their columns of b are in L2."""
LARGE, SMALL, FLOAT32 = (128, 128, 64), (64, 64, 64), (64, 64, 16)
"""Rows, columns and depth of a tile. One of 128 by 256 spills its sums on Hopper: 16 times as slow."""


def matmul(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, activation: str | None = None
) -> torch.Tensor:
    """Returns activation(a @ b + bias), shapes (m, k), (k, n) and (n,), as a contiguous (m, n) tensor of their dtype.

    Arguments, answers and errors are those of matmul_triton.py.
    """
    _launch.check_matmul("matmul", a, b, bias, activation)
    (m, _), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if out.numel() == 0:
        return out
    rows, cols, depth = choose(m, n, a.dtype, _launch.limits(a.device))
    grid = (_launch.tiles(m, rows) * _launch.tiles(n, cols),)
    given = out if bias is None else bias.view(1, n)  # what is not there is not read
    finish = (bias is not None, _launch.ACTIVATIONS.index(activation))
    kernel = _matmul_kernel if all(map(fits, (a, b, out, given))) else _matmul_kernel_64
    with _launch.on(a.device):
        stream = torch.cuda.current_stream(a.device)
        ct.launch(stream, grid, kernel, (a, b, out, given, *finish, rows, cols, depth))
    return out


@functools.lru_cache(maxsize=4096)
def choose(m: int, n: int, dtype: torch.dtype, limits: _launch.Limits) -> tuple[int, int, int]:
    """Returns rows, columns and depth of a tile: large if there are enough of them for most processors."""
    if dtype is torch.float32:
        return FLOAT32
    tiles = _launch.tiles(m, LARGE[0]) * _launch.tiles(n, LARGE[1])
    return LARGE if tiles * 4 >= limits.processors * 3 else SMALL


def fits(x: torch.Tensor) -> bool:
    """Whether offsets have 32 bits and rows are whole vectors of 16 bytes.

    cuTile 1.7 stores a lone row of another length as whole vectors: past its end.
    """
    (rows, cols), (down, along), size = x.shape, x.stride(), x.element_size()
    last = (rows - 1) * down + (cols - 1) * along
    return last < 2**31 and along == 1 and cols * size % 16 == 0 and down * size % 16 == 0


@ct.kernel
def _matmul_kernel(
    a, b, out, bias,
    BIASED: ct.Constant[bool], ACTIVATION: ct.Constant[int],
    ROWS: ct.Constant[int], COLS: ct.Constant[int], DEPTH: ct.Constant[int],
):  # fmt: skip
    """Offsets of 32 bits, with which cuTile copies whole tiles by the tensor memory accelerator."""
    _product(a, b, out, bias, BIASED, ACTIVATION, ROWS, COLS, DEPTH)


@ct.kernel
def _matmul_kernel_64(
    a: ct.IndexedWithInt64, b: ct.IndexedWithInt64, out: ct.IndexedWithInt64, bias: ct.IndexedWithInt64,
    BIASED: ct.Constant[bool], ACTIVATION: ct.Constant[int],
    ROWS: ct.Constant[int], COLS: ct.Constant[int], DEPTH: ct.Constant[int],
):  # fmt: skip
    _product(a, b, out, bias, BIASED, ACTIVATION, ROWS, COLS, DEPTH)


@ct.function
def _product(a, b, out, bias, BIASED, ACTIVATION, ROWS, COLS, DEPTH):
    tiles_m, tiles_n = ct.num_tiles(out, 0, (ROWS, COLS)), ct.num_tiles(out, 1, (ROWS, COLS))
    group = GROUP * tiles_n
    first = ct.bid(0) // group * GROUP
    height = ct.minimum(tiles_m - first, GROUP)
    row, col = first + ct.bid(0) % group % height, ct.bid(0) % group // height
    total = ct.full((ROWS, COLS), 0.0, ct.float32)
    for step in range(ct.num_tiles(a, 1, (ROWS, DEPTH))):
        left = ct.load(a, (row, step), (ROWS, DEPTH), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, (step, col), (DEPTH, COLS), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    if BIASED:
        total = total + ct.astype(ct.load(bias, (0, col), (1, COLS), padding_mode=ct.PaddingMode.ZERO), ct.float32)
    ct.store(out, (row, col), ct.astype(_activated(total, ACTIVATION), out.dtype))


@ct.function
def _activated(x, ACTIVATION):
    """ACTIVATION: a place in `_launch.ACTIVATIONS`."""
    if ACTIVATION == 1:
        x = ct.where(x < 0.0, 0.0, x)  # NaN stays
    if ACTIVATION == 2:
        x = _divided(x, 1.0 + ct.exp(-x))
    if ACTIVATION == 3:
        x = 0.5 * x * (1.0 + _erf(x * 0.7071067811865476))
    if ACTIVATION == 4:
        # 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
        x = _divided(x, 1.0 + ct.exp(-1.5957691216057308 * x * (1.0 + 0.044715 * x * x)))
    return x


@ct.function
def _erf(x):
    """To 1.5e-7 (Abramowitz and Stegun, 1964, 7.1.26), as cuTile has none."""
    size = ct.abs(x)
    t = _divided(1.0, 1.0 + 0.3275911 * size)
    tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    part = 1.0 - tail * ct.exp(-size * size)
    return ct.where(x < 0.0, -part, part)


@ct.function
def _divided(x, y):
    """To 2 ulp, as Triton divides: rounded to the nearest it has a branch for every element, which spills the sums."""
    return ct.truediv(x, y, rounding_mode=ct.RoundingMode.FULL)
