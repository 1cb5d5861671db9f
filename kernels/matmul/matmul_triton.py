"""matmul: tiles of the product in grouped order, summed in float32, finished by bias and activation before rounding.

Tiles are copied by descriptor if operands and device allow it, else through pointers. `tuned/<device key>.json` has the
configuration for each shape.
"""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch
import _tma
from _tiles import Config, grouped, halves

TUNED = Path(__file__).parent / "tuned"
# For devices without a tuned file, and for shapes that theirs leaves out: bytes of an element -> config.
FALLBACK = {2: Config(64, 64, 32, 8, 4, 3), 4: Config(64, 32, 16, 8, 4, 2)}
FALLBACK_TMA = Config(128, 128, 64, 8, 4, 3, persistent=True, tma=True, flatten=True)
VECTOR = 16
"""Triton loads vectors if sizes and strides are multiples of this; single elements make large tiles spill."""


@functools.lru_cache(maxsize=4096)
def choose_config(m: int, n: int, k: int, itemsize: int, limits: _launch.Limits, tma: bool = False) -> Config:
    """Returns the first entry of the tuned file that fits the shape; nothing is tuned here.

    Entries with descriptors are for calls that allow them (`tma`). Shapes that cannot be loaded in vectors get no
    entry with pointers, and a shape without an entry the fallback.
    """
    size = {"m": m, "n": n, "k": k}
    vectors = n % VECTOR == k % VECTOR == 0
    for entry in _launch.tuned(TUNED, limits.key) if vectors or tma else ():
        if not (tma if entry["config"].get("tma") else vectors):
            continue
        if entry["itemsize"] == itemsize and all(size[side] <= entry.get(f"{side}_max", size[side]) for side in size):
            return Config(**entry["config"])
    return FALLBACK_TMA if tma else FALLBACK[itemsize]


def matmul(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, activation: str | None = None
) -> torch.Tensor:
    """Returns activation(a @ b + bias), shapes (m, k), (k, n) and (n,), as a contiguous (m, n) tensor of their dtype.

    float32 (multiplied in full precision, no TF32), float16 or bfloat16, summed and finished in float32 and rounded
    once. Any strides, including transposed views. `activation` is one of `_launch.ACTIVATIONS`: gelu is that by erf, to
    4e-5 for 16 bits. Raises TypeError for dtypes, ValueError for shapes, devices or activations that do not fit.
    """
    _launch.check_matmul("matmul", a, b, bias, activation)
    limits = _launch.limits(a.device)
    sides = dense_sides(a, b, limits)
    config = choose_config(a.shape[0], b.shape[1], a.shape[1], a.element_size(), limits, sides is not None)
    return launch(a, b, config, sides, limits, bias, activation)


def dense_sides(a: torch.Tensor, b: torch.Tensor, limits: _launch.Limits) -> tuple[int, int] | None:
    """Returns the sides along which elements of a and b are neighbours if tiles can be copied by descriptor, else None.

    The output, with rows that are n long, needs one too.
    """
    if a.dtype is torch.float32 or b.shape[1] % 8 or not _tma.available(limits, _tma_kernel):
        return None
    of_a, of_b = _tma.dense_side(a), _tma.dense_side(b)
    return None if of_a is None or of_b is None else (of_a, of_b)


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    config: Config,
    sides: tuple[int, int] | None,
    limits: _launch.Limits,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """The product of checked arguments by one configuration; `sides` are those of `dense_sides`."""
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if out.numel() == 0:
        return out
    tiles = _launch.tiles(m, config.block_m) * _launch.tiles(n, config.block_n)
    programs = min(tiles, limits.programs, limits.grid[0], limits.processors if config.persistent else tiles)
    bias_step = 0 if bias is None else bias.stride(0)
    if activation == "gelu" and out.dtype is not torch.float32:
        activation = "gelu_half"
    if config.tma and sides and not out.data_ptr() % _tma.ALIGNMENT:
        block_m, block_n, block_k = config[:3]
        with _launch.on(a.device):
            _tma_kernel[(programs,)](
                _tma.descriptor(a, sides[0], block_m, block_k), _tma.descriptor(b, sides[1], block_k, block_n),
                _tma.descriptor(out, 1, block_m, block_n // config.split), bias, m, n, k, bias_step, tiles,
                BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=config.group_m,
                A_ROWS=sides[0] == 1, B_ROWS=sides[1] == 1, SPLIT=config.split, FLATTEN=config.flatten,
                ACTIVATION=activation, LOOP=programs < tiles, num_warps=config.warps, num_stages=config.stages,
            )  # fmt: skip
        return out
    with _launch.on(a.device):
        _matmul_kernel[(programs,)](
            a, b, out, bias, m, n, k, *a.stride(), *b.stride(), bias_step, tiles,
            BLOCK_M=config.block_m, BLOCK_N=config.block_n, BLOCK_K=config.block_k, GROUP_M=config.group_m,
            EVEN=m % config.block_m == n % config.block_n == k % config.block_k == 0,
            WIDE=max(_reach(a), _reach(b), _reach(out)) >= 2**31, ACTIVATION=activation,
            LOOP=programs < tiles, num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out


def _reach(matrix: torch.Tensor) -> int:
    """Offset of the last element, and one block's width beyond, in elements."""
    beyond = 256  # widest block
    return sum((size + beyond) * stride for size, stride in zip(matrix.shape, matrix.stride(), strict=True))


# --- tiles through pointers -------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["tiles"])
def _matmul_kernel(
    a_ptr, b_ptr, out_ptr, bias_ptr, m, n, k, a_row, a_col, b_row, b_col, bias_step, tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN: tl.constexpr, WIDE: tl.constexpr, ACTIVATION: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    if LOOP:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            _one_tile(
                a_ptr, b_ptr, out_ptr, bias_ptr, m, n, k, a_row, a_col, b_row, b_col, bias_step, tile,
                BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, EVEN, WIDE, ACTIVATION,
            )  # fmt: skip
    else:
        _one_tile(
            a_ptr, b_ptr, out_ptr, bias_ptr, m, n, k, a_row, a_col, b_row, b_col, bias_step, tl.program_id(0),
            BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, EVEN, WIDE, ACTIVATION,
        )  # fmt: skip


@triton.jit
def _one_tile(
    a_ptr, b_ptr, out_ptr, bias_ptr, m, n, k, a_row, a_col, b_row, b_col, bias_step, tile,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN: tl.constexpr, WIDE: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """One tile of the product. EVEN: blocks divide the shape, no masks. WIDE: offsets need 64 bits."""
    tile_m, tile_n = grouped(tile, tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP_M)
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
    total = _finished(total, col, n, bias_ptr, bias_step, ACTIVATION)
    out_ptrs = out_ptr + row[:, None] * n + col[None, :]
    if EVEN:
        tl.store(out_ptrs, total.to(out_ptr.dtype.element_ty))
    else:
        tl.store(out_ptrs, total.to(out_ptr.dtype.element_ty), mask=(row < m)[:, None] & (col < n)[None, :])


# --- tiles by descriptor ----------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["tiles"])
def _tma_kernel(
    a, b, out, bias_ptr, m, n, k, bias_step, tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROWS: tl.constexpr, B_ROWS: tl.constexpr, SPLIT: tl.constexpr, FLATTEN: tl.constexpr,
    ACTIVATION: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    """A_ROWS, B_ROWS: the descriptor is of a row-major matrix, else of a transpose."""
    if LOOP:
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
            _tma_tile(
                a, b, out, bias_ptr, m, n, k, bias_step, tile,
                BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, A_ROWS, B_ROWS, SPLIT, ACTIVATION,
            )  # fmt: skip
    else:
        _tma_tile(
            a, b, out, bias_ptr, m, n, k, bias_step, tl.program_id(0),
            BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, A_ROWS, B_ROWS, SPLIT, ACTIVATION,
        )  # fmt: skip


@triton.jit
def _tma_tile(
    a, b, out, bias_ptr, m, n, k, bias_step, tile,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROWS: tl.constexpr, B_ROWS: tl.constexpr, SPLIT: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = grouped(tile, tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP_M)
    row = tile_m * BLOCK_M
    col = tile_n * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(k, BLOCK_K)):
        inner = step * BLOCK_K
        left = a.load([row, inner]) if A_ROWS else a.load([inner, row]).T
        right = b.load([inner, col]) if B_ROWS else b.load([col, inner]).T
        total = tl.dot(left, right, total)
    part: tl.constexpr = BLOCK_N // SPLIT
    cols = col + tl.arange(0, part)
    first, second = halves(total, BLOCK_M, BLOCK_N) if SPLIT == 2 else (total, None)
    out.store([row, col], _finished(first, cols, n, bias_ptr, bias_step, ACTIVATION).to(out.dtype))
    if SPLIT == 2:
        second = _finished(second, cols + part, n, bias_ptr, bias_step, ACTIVATION)
        out.store([row, col + part], second.to(out.dtype))


# --- what both share --------------------------------------------------------------------------------------------------


@triton.jit
def _finished(total, col, n, bias_ptr, bias_step, ACTIVATION: tl.constexpr):
    """Sums of the columns `col` with bias and activation, in float32."""
    if bias_ptr is not None:
        total += tl.load(bias_ptr + col * bias_step, mask=col < n, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == "relu":
        total = tl.where(total < 0, 0.0, total)  # NaN stays
    elif ACTIVATION == "silu":
        total = total / (1 + tl.exp(-total))
    elif ACTIVATION == "gelu":
        total = 0.5 * total * (1 + tl.erf(total * 0.7071067811865476))
    elif ACTIVATION == "gelu_half":
        # The normal distribution less 1/2 as an odd polynomial, fitted so that x times its error is at most 4e-5. It
        # grows beyond 1/2, where it is clipped, so large x stay as they are, or become 0.
        square = total * total
        p = 4.1978021753097394e-11 * square - 4.249396390321181e-09
        p = p * square + 1.90241522091128e-07
        p = p * square - 5.00656824442558e-06
        p = p * square + 8.712277485756204e-05
        p = p * square - 0.0010714235249906778
        p = p * square + 0.009695294313132763
        p = p * square - 0.06615586578845978
        p = p * square + 0.398802250623703
        total = total * (0.5 + tl.clamp(total * p, -0.5, 0.5))
    elif ACTIVATION == "gelu_tanh":
        # 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
        total = total / (1 + tl.exp(-1.5957691216057308 * total * (1 + 0.044715 * total * total)))
    return total
