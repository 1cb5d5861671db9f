"""matmul in TileLang: tiles of the product by tensor cores, finished by bias and activation before rounding."""

import functools
from typing import Any, NamedTuple

import tilelang.language as T
import torch

import _launch
import _lines
import _tilelang

MOST_BLOCKS = 65535
"""Along a grid's second side."""
FARTHEST = 2**39
"""Elements between lines that a descriptor can have, of 16 bits."""
PANEL = 8
"""Columns of tiles walked together, so that their rows of a are in L2."""


class Tile(NamedTuple):
    """A tile of the product."""

    rows: int
    cols: int
    depth: int
    """of k at a time"""
    stages: int
    """blocks of a and b in shared memory"""
    threads: int


LARGE, SMALL, ELEMENTS = Tile(128, 256, 64, 3, 256), Tile(64, 64, 128, 4, 128), Tile(64, 64, 64, 1, 128)
FLOAT32 = Tile(64, 64, 16, 1, 256)


class Plan(NamedTuple):
    """All that a program is compiled for."""

    tile: Tile
    dtype: torch.dtype
    of_a: str
    of_b: str
    """what `_dense_side` says of a and b; nothing: elements lie anywhere"""


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
    plan = choose(m, n, k, a.dtype, _dense_side(a), _dense_side(b), _launch.limits(a.device))
    left, right = (x.t() if side == "c" else x for x, side in ((a, plan.of_a), (b, plan.of_b)))
    strides = (left.stride(0), right.stride(0)) if plan.of_a else ()
    # What is not there has no elements, and is not read.
    added = _nothing(a.dtype, a.device) if bias is None else bias
    with _launch.on(a.device):
        compiled(plan)(left, right, added, out, _launch.ACTIVATIONS.index(activation), *strides)
    return out


@functools.lru_cache(maxsize=64)
def _nothing(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device=device)


@functools.lru_cache(maxsize=4096)
def choose(m: int, n: int, k: int, dtype: torch.dtype, of_a: str, of_b: str, limits: _launch.Limits) -> Plan:
    """Returns the tile for a shape, large if there are enough of them for most processors, and its program."""
    if dtype is torch.float32:
        return Plan(FLOAT32, dtype, "", "")
    tiles = _launch.tiles(m, LARGE.rows) * _launch.tiles(n, LARGE.cols)
    tile = LARGE if tiles * 4 >= limits.processors * 3 else SMALL
    if not of_a or not of_b or n % 8 or k == 0 or _launch.tiles(m, tile.rows) > MOST_BLOCKS:
        return Plan(ELEMENTS, dtype, "", "")
    return Plan(tile, dtype, of_a, of_b)


def _dense_side(matrix: torch.Tensor) -> str:
    """Returns r if neighbours of a row lie side by side, c if those of a column do; nothing if no descriptor fits.

    All lines of the matrix have to begin at a whole vector.
    """
    for side, name in ((1, "r"), (0, "c")):
        step = matrix.stride(1 - side)
        if matrix.stride(side) == 1 and 0 < step < FARTHEST and _lines.has_vectors(matrix, (step,)):
            return name
    return ""


@functools.cache
def compiled(plan: Plan) -> Any:
    """Returns a program as it is launched."""
    return _tilelang.compiled(program(plan))


def program(plan: Plan) -> Any:
    """Returns the program of a plan."""
    return (_by_tensors if plan.of_a else _by_elements)(plan)


def _divided(x: Any, y: Any) -> Any:
    """To 2 ulp, and 0 where y is over 2^126. Rounded to the nearest, a division has a branch for every element."""
    return T.call_extern("float32", "__fdividef", x, y)


@T.macro
def _finish(total, bias, first, activation, height, width):
    """Adds the bias, of the columns from `first` on, and applies the activation, a place in `_launch.ACTIVATIONS`."""
    if bias.shape[0] > 0:
        for i, j in T.Parallel(height, width):
            total[i, j] = total[i, j] + T.if_then_else(
                first + j < bias.shape[0], T.cast(bias[first + j], "float32"), 0.0
            )
    if activation == 1:
        for i, j in T.Parallel(height, width):
            total[i, j] = T.if_then_else(total[i, j] < 0.0, 0.0, total[i, j])  # NaN stays
    if activation == 2:
        for i, j in T.Parallel(height, width):
            total[i, j] = _divided(total[i, j], 1.0 + T.exp(-total[i, j]))
    if activation == 3:
        for i, j in T.Parallel(height, width):
            total[i, j] = 0.5 * total[i, j] * (1.0 + T.erf(total[i, j] * 0.7071067811865476))
    if activation == 4:
        # 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
        for i, j in T.Parallel(height, width):
            total[i, j] = _divided(
                total[i, j],
                1.0 + T.exp(-1.5957691216057308 * total[i, j] * (1.0 + 0.044715 * total[i, j] * total[i, j])),
            )


def _by_tensors(plan: Plan) -> Any:
    """Whole tiles are copied by descriptor. a and b are passed so that their rows are dense."""
    m, n, k = (T.dynamic(name, "int32") for name in ("m", "n", "k"))  # coordinates of descriptors have 32 bits
    of_bias, bias_stride = T.dynamic("of_bias", "int64"), T.dynamic("bias_stride", "int64")
    # Passed as numbers, as a tensor with a side of 1 can come with another stride.
    a_step, b_step = T.dynamic("a_stride", "int64"), T.dynamic("b_stride", "int64")
    tile, dtype = plan.tile, _tilelang.NAMES[plan.dtype]
    turned_a, turned_b = plan.of_a == "c", plan.of_b == "c"
    rows, cols, depth = tile.rows, tile.cols, tile.depth
    type_a = T.StridedTensor((k, m) if turned_a else (m, k), (a_step, 1), dtype)
    type_b = T.StridedTensor((n, k) if turned_b else (k, n), (b_step, 1), dtype)
    type_bias, type_out = T.StridedTensor((of_bias,), (bias_stride,), dtype), T.Tensor((m, n), dtype)

    @T.prim_func
    def matmul_by_tensors(
        a: type_a, b: type_b, bias: type_bias, out: type_out, activation: T.int32, a_stride: a_step, b_stride: b_step
    ):
        with T.Kernel(T.ceildiv(n, cols), T.ceildiv(m, rows), threads=tile.threads) as (tile_n, tile_m):
            T.assume(a_stride % 8 == 0)
            T.assume(b_stride % 8 == 0)
            T.assume(n % 8 == 0)
            left = T.alloc_shared((depth, rows) if turned_a else (rows, depth), dtype)
            right = T.alloc_shared((cols, depth) if turned_b else (depth, cols), dtype)
            total = T.alloc_fragment((rows, cols), "float32")
            rounded = T.alloc_shared((rows, cols), dtype)
            T.use_swizzle(PANEL)
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(k, depth), num_stages=tile.stages):
                if turned_a:
                    T.copy(a[step * depth, tile_m * rows], left)
                else:
                    T.copy(a[tile_m * rows, step * depth], left)
                if turned_b:
                    T.copy(b[tile_n * cols, step * depth], right)
                else:
                    T.copy(b[step * depth, tile_n * cols], right)
                T.gemm(left, right, total, transpose_A=turned_a, transpose_B=turned_b)
            _finish(total, bias, tile_n * cols, activation, rows, cols)
            T.copy(total, rounded)
            T.copy(rounded, out[tile_m * rows, tile_n * cols])

    return matmul_by_tensors


def _by_elements(plan: Plan) -> Any:
    """Elements may lie anywhere. float32 is multiplied by threads, as tensor cores would round it to TF32."""
    m, n, k, of_bias, bias_stride, a_row, a_col, b_row, b_col = (
        T.dynamic(name, "int64")
        for name in ("m", "n", "k", "of_bias", "bias_stride", "a_row", "a_col", "b_row", "b_col")
    )
    tile, dtype = plan.tile, _tilelang.NAMES[plan.dtype]
    rows, cols, depth, exact = tile.rows, tile.cols, tile.depth, plan.dtype is torch.float32
    type_a, type_b = T.StridedTensor((m, k), (a_row, a_col), dtype), T.StridedTensor((k, n), (b_row, b_col), dtype)
    type_bias, type_out = T.StridedTensor((of_bias,), (bias_stride,), dtype), T.Tensor((m, n), dtype)

    @T.prim_func
    def matmul_by_elements(a: type_a, b: type_b, bias: type_bias, out: type_out, activation: T.int32):
        with T.Kernel(T.ceildiv(m, rows), T.ceildiv(n, cols), threads=tile.threads) as (tile_m, tile_n):
            left = T.alloc_shared((rows, depth), dtype)
            right = T.alloc_shared((depth, cols), dtype)
            total = T.alloc_fragment((rows, cols), "float32")
            T.clear(total)
            for step in T.serial(T.ceildiv(k, depth)):
                for i, j in T.Parallel(rows, depth):
                    left[i, j] = T.if_then_else(
                        (tile_m * rows + i < m) & (step * depth + j < k), a[tile_m * rows + i, step * depth + j], 0
                    )
                for i, j in T.Parallel(depth, cols):
                    right[i, j] = T.if_then_else(
                        (step * depth + i < k) & (tile_n * cols + j < n), b[step * depth + i, tile_n * cols + j], 0
                    )
                if exact:
                    for inner in T.serial(depth):
                        for i, j in T.Parallel(rows, cols):
                            total[i, j] = total[i, j] + left[i, inner] * right[inner, j]
                else:
                    T.gemm(left, right, total)
            _finish(total, bias, tile_n * cols, activation, rows, cols)
            for i, j in T.Parallel(rows, cols):
                if (tile_m * rows + i < m) & (tile_n * cols + j < n):
                    out[tile_m * rows + i, tile_n * cols + j] = T.cast(total[i, j], dtype)

    return matmul_by_elements
