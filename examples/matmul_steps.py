"""The steps from a naive product to the op's kernel, each selectable, to time what it gains.

`examples/time_matmul_steps.py` prints their times side by side; docs/ops/matmul.md explains them.
"""

import _launch
import torch
import triton
import triton.language as tl
from matmul_baseline import ACTIVATIONS
from matmul_triton import Config, choose_config, dense_sides, launch, matmul

VARIANTS = ("naive", "tiled", "pipelined", "autotuned", "persistent", "tma", "fused")
"""In the order of development."""

TILED = {2: Config(64, 64, 32, 1, 4, 1), 4: Config(64, 32, 16, 1, 4, 1)}
"""Bytes of an element -> tiles in row order, each loaded when it is needed."""

PIPELINED = {2: Config(128, 128, 64, 8, 4, 3), 4: Config(64, 64, 16, 8, 4, 3)}
"""Larger tiles in grouped order, copied while those before them are multiplied."""

NAIVE_TILE = 32


def matmul_step(
    a: torch.Tensor, b: torch.Tensor, variant: str, bias: torch.Tensor | None = None, activation: str | None = None
) -> torch.Tensor:
    """Returns activation(a @ b + bias) like `matmul`, by one of VARIANTS.

    naive: one column of a times one row of b after another, without tensor cores. tiled: tensor cores on small tiles.
    pipelined: larger tiles in grouped order, copied ahead. autotuned: tile sizes by shape, from the tuned file.
    persistent: one program a processor. tma: tiles copied by descriptor. fused: bias and activation in the kernel,
    which is `matmul` itself. With all others PyTorch applies them to the rounded product.

    Raises ValueError for an unknown variant, and for `tma` if operands or device allow no descriptors.
    """
    if variant not in VARIANTS:
        raise ValueError(f"matmul_step: variant is {variant!r}, but has to be one of {', '.join(map(repr, VARIANTS))}")
    if variant == "fused":
        return matmul(a, b, bias, activation)
    _launch.check_matmul("matmul_step", a, b, bias, activation)
    product = _naive(a, b) if variant == "naive" else _product(a, b, variant)
    return ACTIVATIONS[activation](product if bias is None else product + bias)


def step_config(m: int, n: int, k: int, itemsize: int, variant: str, limits: _launch.Limits) -> Config:
    """The configuration of a variant other than naive and fused."""
    if variant in {"tiled", "pipelined"}:
        return (TILED if variant == "tiled" else PIPELINED)[itemsize]
    config = choose_config(m, n, k, itemsize, limits, variant == "tma")
    return config if variant == "tma" else config._replace(persistent=variant == "persistent")


def _product(a: torch.Tensor, b: torch.Tensor, variant: str) -> torch.Tensor:
    limits = _launch.limits(a.device)
    sides = dense_sides(a, b, limits) if variant == "tma" else None
    if variant == "tma" and sides is None:
        raise ValueError(
            "matmul_step: variant tma needs a device with tensor descriptors, Triton 3.4 or newer, float16 or "
            "bfloat16, a and b with one stride of 1, and base, other stride and rows of the output in multiples of "
            "16 bytes, but "
            f"a is {a.dtype} with strides {a.stride()} and b has {b.stride()} on {a.device}. "
            "Use fused, which needs none"
        )
    config = step_config(a.shape[0], b.shape[1], a.shape[1], a.element_size(), variant, limits)
    return launch(a, b, config, sides, limits)


def _naive(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = _launch.tiles(m, NAIVE_TILE), _launch.tiles(n, NAIVE_TILE)
    if out.numel():
        with _launch.on(a.device):
            _naive_kernel[grid](a, b, out, m, n, k, *a.stride(), *b.stride(), TILE=NAIVE_TILE, num_warps=4)
    return out


@triton.jit
def _naive_kernel(a_ptr, b_ptr, out_ptr, m, n, k, a_row, a_col, b_row, b_col, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    col = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    a_ptrs = a_ptr + row * a_row
    b_ptrs = b_ptr + col * b_col
    for _ in range(k):
        a = tl.load(a_ptrs, mask=row < m, other=0.0).to(tl.float32)
        b = tl.load(b_ptrs, mask=col < n, other=0.0).to(tl.float32)
        total += a[:, None] * b[None, :]
        a_ptrs += a_col
        b_ptrs += b_row
    mask = (row < m)[:, None] & (col < n)[None, :]
    tl.store(out_ptr + row[:, None] * n + col[None, :], total.to(out_ptr.dtype.element_ty), mask=mask)
