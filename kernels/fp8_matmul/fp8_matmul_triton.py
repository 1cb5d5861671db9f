"""fp8_matmul: float8 matrices multiplied in tensor cores, scaled per tensor, row and column, block or channel group.

Tiles are copied by descriptor if both operands are dense along k, else through pointers. `tuned/<device key>.json` has
the configuration for each shape. Those of twelve warps are for the kernel in `kernels/_fp8_blocks.py`.
"""

import functools
from pathlib import Path

import torch
import triton
import triton.language as tl

import _launch
import _tma
from _tiles import Config, grouped, halves

try:
    import _fp8_blocks
except ImportError:  # a Triton without Gluon, or with an older one
    _fp8_blocks = None

TUNED = Path(__file__).parent / "tuned"
DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
OUT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
BLOCK = 128
"""Values along k that share a scale if scales are per block; in b also along n."""

GROUPS = (64, 32, 16, 8, 4)
"""Channels, that is values along k, that share a scale in a row of a or a column of b if scales are per group."""

GROUPED = 12
"""Warps of a configuration whose warps work in groups."""

FUSED_ROWS = 64
"""Rows of a up to which groups are scaled within the product. Beyond, both operands are scaled first, each once."""

KINDS = ("fast", "precise", "block", "group", "bfloat16", "tf32")
"""How sums are kept. Tensor cores sum float8 products in about 14 bits. fast, for bfloat16: they keep the whole sum, as
with torch._scaled_mm's use_fast_accum. precise, for float16 and float32: what they summed in one step along k, of BLOCK
or fewer, is added up in float32. block: the same, times the block's scales. group: groups are smaller than a step of
tensor cores, so values are scaled first, and multiplied in bfloat16 if the answer is, else in tf32. bfloat16 and tf32:
operands that are scaled already."""

# For devices without a tuned file, and for shapes that theirs leaves out.
FALLBACK = Config(64, 64, 64, 8, 8, 3)
FALLBACK_TMA = Config(128, 128, 128, 8, 8, 3, persistent=True, tma=True, flatten=True)
FALLBACK_SCALED = FALLBACK_TMA._replace(block_k=32)
SCALE_ROWS, SCALE_COLS, SCALE_WARPS = 16, 256, 4


@functools.lru_cache(maxsize=4096)
def choose_config(m: int, n: int, k: int, kind: str, limits: _launch.Limits, tma: bool = False) -> Config:
    """Returns the first entry of the tuned file that fits kind and shape; nothing is tuned here.

    Entries with descriptors are for calls that allow them (`tma`), and no others for those. Those of groups of warps
    are skipped if this device, this Triton or its interpreter has none.
    """
    size = {"m": m, "n": n, "k": k}
    groups = _in_groups(limits)
    for entry in _launch.tuned(TUNED, limits.key):
        fits = all(size[side] <= entry.get(f"{side}_max", size[side]) for side in size)
        config = entry["config"]
        if fits and entry["kind"] == kind and bool(config.get("tma")) == tma and (groups or config["warps"] != GROUPED):
            return Config(**config)
    if tma:
        return FALLBACK_SCALED if kind in {"bfloat16", "tf32"} else FALLBACK_TMA
    return FALLBACK


def _in_groups(limits: _launch.Limits) -> bool:
    """Whether warps can work in groups with a task each."""
    return _fp8_blocks is not None and not _tma.interpreted(_fp8_tma_kernel) and _fp8_blocks.available(limits)


def fp8_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:
    """The product of a * scale_a and b * scale_b, shapes (m, k) and (k, n), as a contiguous tensor of `out_dtype`.

    a and b are float8_e4m3fn or float8_e5m2, each with any strides; fastest where k is dense in both, b being the
    transpose of a row-major (n, k). Scales are float32: one of each tensor ((), (1,) or (1, 1)), of rows of a (m, 1)
    and columns of b (1, n), one of both kinds, both per block: (m, ceil(k / 128)) and (ceil(k / 128), ceil(n / 128)),
    or both per group of channels: (m, ceil(k / group)) and (ceil(k / group), n), with groups of their own from GROUPS.
    Sums are kept as KINDS says. Raises TypeError for dtypes, ValueError for shapes or devices.
    """
    groups = _check(a, b, scale_a, scale_b, out_dtype)
    scale_a, scale_b = (each.contiguous() if _reach(each) >= 2**31 else each for each in (scale_a, scale_b))
    limits = _launch.limits(a.device)
    if not limits.float8:
        raise ValueError(f"fp8_matmul: {limits.key} has no tensor cores for float8. Multiply in bfloat16 there")
    (m, k), n = a.shape, b.shape[1]
    whole = "fast" if out_dtype is torch.bfloat16 else "precise"
    kind = whole if not groups else "block" if groups == (BLOCK, BLOCK) else "group"
    if kind == "group" and m > FUSED_ROWS and n:
        rounded = out_dtype is torch.bfloat16 and not _tma.interpreted(_fp8_tma_kernel)
        kind, operand = ("bfloat16", torch.bfloat16) if rounded else ("tf32", torch.float32)
        a = _scaled_copy(a, scale_a, groups[0], operand, limits)
        b = _scaled_copy(b.t(), scale_b.t(), groups[1], operand, limits).t()
        k = a.shape[1]
    tma = kind != "group" and _along_k(a, b, out_dtype, limits)
    return _launched(a, b, scale_a, scale_b, out_dtype, kind, groups, choose_config(m, n, k, kind, limits, tma), limits)


def _launched(a, b, scale_a, scale_b, out_dtype, kind, groups, config, limits) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=out_dtype, device=a.device)
    if out.numel() == 0:
        return out
    tiles = _launch.tiles(m, config.block_m) * _launch.tiles(n, config.block_n)
    programs = min(tiles, limits.programs, limits.grid[0], limits.processors if config.persistent else tiles)
    blocks = bool(groups)
    scales = (*_scale_strides(scale_a, blocks), *_scale_strides(scale_b, blocks))
    block_m, block_n, block_k = config[:3]
    shared = {
        "BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": config.group_m, "KIND": kind,
        "WIDEN": _tma.interpreted(_fp8_tma_kernel), "num_warps": config.warps, "num_stages": config.stages,
    }  # fmt: skip
    with _launch.on(a.device):
        if config.warps == GROUPED:
            _fp8_blocks.launch(a, b, out, scale_a, scale_b, scales, config, programs, tiles, limits)
        elif config.tma:
            _fp8_tma_kernel[(programs,)](
                _tma.descriptor(a, 1, block_m, block_k), _tma.descriptor(b, 0, block_k, block_n),
                _tma.descriptor(out, 1, block_m, block_n // config.split), scale_a, scale_b, m, n, k, *scales, tiles,
                SPLIT=config.split, FLATTEN=config.flatten, **shared,
            )  # fmt: skip
        else:
            group_a, group_b = groups if kind == "group" else (BLOCK, BLOCK)
            rounded = kind == "group" and out_dtype is torch.bfloat16 and not shared["WIDEN"]
            _fp8_pointer_kernel[(programs,)](
                a, b, out, scale_a, scale_b, m, n, k, *a.stride(), *b.stride(), *scales, tiles,
                GROUP_A=group_a, GROUP_B=group_b, OPERAND=tl.bfloat16 if rounded else tl.float32, **shared,
            )  # fmt: skip
    return out


def _scaled_copy(x, scale, group: int, dtype: torch.dtype, limits: _launch.Limits) -> torch.Tensor:
    """Returns x (rows, k) times its groups' scales (rows, ceil(k / group)), and zeros up to rows of whole vectors."""
    rows, k = x.shape
    copy = torch.empty((rows, _launch.tiles(k, 8) * 8), dtype=dtype, device=x.device)
    tiles = _launch.tiles(rows, SCALE_ROWS) * _launch.tiles(k, SCALE_COLS)
    if tiles:
        with _launch.on(x.device):
            _scale_kernel[_launch.grid(tiles, 1, limits)](
                x, scale, copy, rows, k, copy.shape[1], *x.stride(), *scale.stride(), tiles, GROUP=group,
                ROWS=SCALE_ROWS, COLS=SCALE_COLS, WIDEN=_tma.interpreted(_fp8_tma_kernel), num_warps=SCALE_WARPS,
            )  # fmt: skip
    return copy


# --- arguments --------------------------------------------------------------------------------------------------------


def _check(a, b, scale_a, scale_b, out_dtype) -> tuple[int, int] | None:
    """Values along k that share a scale of a and of b, None if all do. BLOCK for both: scales are per block.

    Raises TypeError or ValueError for arguments that do not fit together.
    """
    for name, tensor in (("a", a), ("b", b), ("scale_a", scale_a), ("scale_b", scale_b)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"fp8_matmul: {name} is a {type(tensor).__name__}, but has to be a torch.Tensor")
        allowed = (torch.float32,) if "scale" in name else DTYPES
        if tensor.dtype not in allowed:
            known = " or ".join(map(str, allowed))
            raise TypeError(f"fp8_matmul: {name} has dtype {tensor.dtype}, but has to have {known}")
        if tensor.device != a.device:
            raise ValueError(
                f"fp8_matmul: {name} lies on {tensor.device}, but a on {a.device}, and all have to be there"
            )
    if out_dtype not in OUT_DTYPES:
        known = ", ".join(map(str, OUT_DTYPES))
        raise TypeError(f"fp8_matmul: out_dtype is {out_dtype}, but has to be one of {known}")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"fp8_matmul: needs shapes (m, k) and (k, n), but a is {tuple(a.shape)} and b {tuple(b.shape)}"
        )
    return _groups(*a.shape, b.shape[1], scale_a.shape, scale_b.shape)


@functools.lru_cache(maxsize=4096)
def _groups(m: int, k: int, n: int, of_a: torch.Size, of_b: torch.Size) -> tuple[int, int] | None:
    of_k, of_n = _launch.tiles(k, BLOCK), _launch.tiles(n, BLOCK)
    one = {(), (1,), (1, 1)}
    if of_a in {*one, (m, 1)} and of_b in {*one, (1, n)}:
        return None
    if of_a == (m, of_k) and of_b == (of_k, of_n):
        return BLOCK, BLOCK
    # Of sizes that are powers of two only those of at least k give the same number of groups, one, and mean the same.
    found_a = next((group for group in GROUPS if of_a == (m, _launch.tiles(k, group))), None)
    found_b = next((group for group in GROUPS if of_b == (_launch.tiles(k, group), n)), None)
    if found_a and found_b:
        return found_a, found_b
    raise ValueError(
        f"fp8_matmul: scale_a has shape {tuple(of_a)} and scale_b {tuple(of_b)}, but a ({m}, {k}) and b ({k}, {n}) "
        f"need one element or ({m}, 1) and one or (1, {n}), ({m}, {of_k}) and ({of_k}, {of_n}) for blocks of {BLOCK}, "
        f"or for groups of 4 to 64 ({m}, ceil({k} / group)) and (ceil({k} / group), {n})"
    )


def _reach(scale: torch.Tensor) -> int:
    """Elements from the first to the last. Kernels multiply places of scales in 32 bits."""
    return sum((size - 1) * step for size, step in zip(scale.shape, scale.stride(), strict=True))


def _scale_strides(scale: torch.Tensor, blocks: bool) -> tuple[int, int]:
    """Strides of a scale's rows and columns; 0 along a side that shares one."""
    if scale.ndim < 2:
        return 0, 0
    row, col = scale.stride()
    return (row, col) if blocks else (row * (scale.shape[0] > 1), col * (scale.shape[1] > 1))


def _along_k(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype, limits: _launch.Limits) -> bool:
    """Whether tiles can be copied by descriptor.

    Tensor cores take float8 from shared memory only with k dense. Rows of the output are multiples of 16 bytes.
    """
    if b.shape[1] * out_dtype.itemsize % _tma.ALIGNMENT or not _tma.available(limits, _fp8_tma_kernel):
        return False
    return _tma.dense_side(a) == 1 and _tma.dense_side(b) == 0


# --- scaling first ----------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["tiles"])
def _scale_kernel(
    x, scale, copy, rows, k, padded, x_row, x_col, scale_row, scale_col, tiles,
    GROUP: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """padded: columns of the copy, zeros beyond k."""
    along = tl.cdiv(padded, COLS)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = (tl.cast(tile // along, tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
        col = (tile % along * COLS + tl.arange(0, COLS))[None, :]
        group = (tile % along * (COLS // GROUP) + tl.arange(0, COLS // GROUP))[None, :]
        inside = (row < rows) & (col < k)
        values = tl.load(x + row * x_row + col.to(tl.int64) * x_col, mask=inside, other=0.0)
        there = (row < rows) & (group * GROUP < k)
        factor = tl.load(scale + row * scale_row + group.to(tl.int64) * scale_col, mask=there, other=0.0)
        values = _wide(values, WIDEN).reshape(ROWS, COLS // GROUP, GROUP) * factor[:, :, None]
        values = tl.where(inside, values.reshape(ROWS, COLS), 0.0)  # the last group's scale may be infinite
        tl.store(copy + row * padded + col, values.to(copy.dtype.element_ty), mask=(row < rows) & (col < padded))


# --- tiles by descriptor ----------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["tiles"])
def _fp8_tma_kernel(
    a, b, out, scale_a, scale_b, m, n, k, scale_a_row, scale_a_k, scale_b_k, scale_b_col, tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, KIND: tl.constexpr,
    WIDEN: tl.constexpr, SPLIT: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    """The descriptor of b is that of its transpose."""
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        tile_m, tile_n = grouped(tile, tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP_M)
        first_row = tile_m * BLOCK_M
        first_col = tile_n * BLOCK_N
        row = (first_row + tl.arange(0, BLOCK_M)).to(tl.int64)
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(tl.cdiv(k, BLOCK_K)):
            inner = step * BLOCK_K
            left = a.load([first_row, inner])
            right = b.load([first_col, inner]).T
            total = _summed(
                total, left, right, inner // 128, row, first_col, m, scale_a, scale_b,
                scale_a_row, scale_a_k, scale_b_k, scale_b_col, BLOCK_N, BLOCK_K, KIND, WIDEN,
            )  # fmt: skip
        if SPLIT == 1:
            col = first_col + tl.arange(0, BLOCK_N)
            total = _scaled(total, row, col, m, n, scale_a, scale_b, scale_a_row, scale_b_col, KIND)
            out.store([first_row, first_col], total.to(out.dtype))
        else:
            half: tl.constexpr = BLOCK_N // 2
            col = first_col + tl.arange(0, half)
            left_half, right_half = halves(total, BLOCK_M, BLOCK_N)
            left_half = _scaled(left_half, row, col, m, n, scale_a, scale_b, scale_a_row, scale_b_col, KIND)
            out.store([first_row, first_col], left_half.to(out.dtype))
            right_half = _scaled(right_half, row, col + half, m, n, scale_a, scale_b, scale_a_row, scale_b_col, KIND)
            out.store([first_row, first_col + half], right_half.to(out.dtype))


# --- tiles through pointers -------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["tiles"])
def _fp8_pointer_kernel(
    a, b, out, scale_a, scale_b, m, n, k, a_row, a_col, b_row, b_col,
    scale_a_row, scale_a_k, scale_b_k, scale_b_col, tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, KIND: tl.constexpr,
    WIDEN: tl.constexpr, GROUP_A: tl.constexpr, GROUP_B: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """For groups of channels. GROUP_A, GROUP_B: values along k that share a scale. OPERAND: dtype of scaled values."""
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        tile_m, tile_n = grouped(tile, tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP_M)
        first_col = tile_n * BLOCK_N
        row = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
        col = first_col.to(tl.int64) + tl.arange(0, BLOCK_N)
        inside = tl.arange(0, BLOCK_K).to(tl.int64)
        a_ptrs = a + row[:, None] * a_row + inside[None, :] * a_col
        b_ptrs = b + inside[:, None] * b_row + col[None, :] * b_col
        a_hop = tl.full((), BLOCK_K, tl.int64) * a_col
        b_hop = tl.full((), BLOCK_K, tl.int64) * b_row
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for inner in range(0, k, BLOCK_K):
            left = tl.load(a_ptrs, mask=(row < m)[:, None] & (inside < k - inner)[None, :], other=0.0)
            right = tl.load(b_ptrs, mask=(inside < k - inner)[:, None] & (col < n)[None, :], other=0.0)
            if KIND == "group":
                group_a = inner // GROUP_A + tl.arange(0, BLOCK_K // GROUP_A)
                group_b = inner // GROUP_B + tl.arange(0, BLOCK_K // GROUP_B)
                there_a = (row < m)[:, None] & (group_a * GROUP_A < k)[None, :]
                there_b = (group_b * GROUP_B < k)[:, None] & (col < n)[None, :]
                of_a = tl.load(
                    scale_a + row[:, None] * scale_a_row + group_a[None, :].to(tl.int64) * scale_a_k, there_a, 0.0
                )
                of_b = tl.load(
                    scale_b + group_b[:, None].to(tl.int64) * scale_b_k + col[None, :] * scale_b_col, there_b, 0.0
                )
                left = _wide(left, WIDEN).reshape(BLOCK_M, BLOCK_K // GROUP_A, GROUP_A) * of_a[:, :, None]
                right = _wide(right, WIDEN).reshape(BLOCK_K // GROUP_B, GROUP_B, BLOCK_N) * of_b[:, None, :]
                # 0 beyond k, where the last group's scale may be infinite.
                left = tl.where((inside < k - inner)[None, :], left.reshape(BLOCK_M, BLOCK_K), 0.0).to(OPERAND)
                right = tl.where((inside < k - inner)[:, None], right.reshape(BLOCK_K, BLOCK_N), 0.0).to(OPERAND)
                total = tl.dot(left, right, total, input_precision="ieee" if WIDEN else "tf32")
            else:
                total = _summed(
                    total, left, right, inner // 128, row, first_col, m, scale_a, scale_b,
                    scale_a_row, scale_a_k, scale_b_k, scale_b_col, BLOCK_N, BLOCK_K, KIND, WIDEN,
                )  # fmt: skip
            a_ptrs += a_hop
            b_ptrs += b_hop
        total = _scaled(total, row, col, m, n, scale_a, scale_b, scale_a_row, scale_b_col, KIND)
        mask = (row < m)[:, None] & (col < n)[None, :]
        tl.store(out + row[:, None] * n + col[None, :], total.to(out.dtype.element_ty), mask=mask)


# --- what both share --------------------------------------------------------------------------------------------------


@triton.jit
def _summed(
    total, left, right, block, row, first_col, m, scale_a, scale_b,
    scale_a_row, scale_a_k, scale_b_k, scale_b_col,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, KIND: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """The sums with the products of one step along k, which is within one block of 128 if those are scaled.

    WIDEN: multiplied in float32, for Triton's interpreter, whose float8 arithmetic is none.
    """
    if KIND == "bfloat16" or KIND == "tf32":  # noqa: PLR1714  Triton knows no sets
        return tl.dot(left, right, total, input_precision="ieee" if WIDEN else "tf32")
    if WIDEN:
        left = _widened(left)
        right = _widened(right)
    if KIND == "fast":
        return tl.dot(left, right, total, input_precision="ieee")
    if KIND == "precise":
        return tl.dot(left, right, total, input_precision="ieee", max_num_imprecise_acc=BLOCK_K)
    of_a = tl.load(scale_a + row * scale_a_row + block * scale_a_k, mask=row < m, other=0.0)
    tl.static_assert(KIND != "block" or BLOCK_N <= 128, "the columns of a tile are of one block")
    of_b = tl.load(scale_b + block * scale_b_k + (first_col // 128) * scale_b_col)
    return total + tl.dot(left, right, input_precision="ieee") * (of_a * of_b)[:, None]


@triton.jit
def _wide(values, WIDEN: tl.constexpr):
    return _widened(values) if WIDEN else values.to(tl.float32)


@triton.jit
def _widened(values):
    """float8 as float32, since the interpreter treats NaN and infinity as numbers."""
    wide = values.to(tl.float32)
    bits = values.to(tl.uint8, bitcast=True)
    if values.dtype == tl.float8e5:
        infinite = tl.where(bits == 124, float("inf"), -float("inf"))
        wide = tl.where((bits & 127) == 124, infinite, wide)
        return tl.where((bits & 127) > 124, float("nan"), wide)
    return tl.where((bits & 127) == 127, float("nan"), wide)


@triton.jit
def _scaled(total, row, col, m, n, scale_a, scale_b, scale_a_row, scale_b_col, KIND: tl.constexpr):
    """Sums times the scales of their rows and columns, if not applied yet."""
    if KIND == "fast" or KIND == "precise":  # noqa: PLR1714  Triton knows no sets
        of_a = tl.load(scale_a + row * scale_a_row, mask=row < m, other=0.0)
        of_b = tl.load(scale_b + col * scale_b_col, mask=col < n, other=0.0)
        total = total * of_a[:, None] * of_b[None, :]
    return total
