"""attention_backward: attention's gradients, its weights computed again tile by tile; no atomic adds, so repeatable."""

import functools
from pathlib import Path
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import _attention
import _launch
import _tma
from _attention import load_rows
from attention_backward.attention_backward_keys import _keys_kernel
from attention_backward.attention_backward_queries import _queries_kernel

TUNED = Path(__file__).parent / "tuned"


class Config(NamedTuple):
    block_m: int
    """Queries at a time, or of a program."""
    block_n: int
    """Keys of a program, or at a time."""
    warps: int
    stages: int


class Configs(NamedTuple):
    keys: Config
    """For the kernel for dk and dv, whose programs own keys."""
    queries: Config
    """For the kernel for dq, whose programs own queries."""


# For devices without a tuned file: bytes of an element -> padded width, at most -> config of either kernel.
FALLBACK = {
    2: {64: Config(32, 32, 4, 1), 128: Config(32, 32, 4, 1), 256: Config(16, 16, 4, 1)},
    4: {64: Config(32, 32, 4, 1), 128: Config(16, 16, 4, 1), 256: Config(16, 16, 4, 1)},
}
DELTA_ROWS = 32
"""Rows of a program of the kernel that sums out * grad."""


@functools.lru_cache(maxsize=4096)
def choose_configs(width: int, itemsize: int, sides: int, extras: int, limits: _launch.Limits) -> Configs:
    """Returns the first entry of the tuned file that fits the case; nothing is tuned here.

    `sides`: how many limits a query's sight has; `extras`: 1 with a mask, 2 with dropout, else 0.
    """
    for entry in _launch.tuned(TUNED, limits.key):
        wanted = sides in entry.get("sides", (sides,)) and extras in entry.get("extras", (extras,))
        if entry["itemsize"] == itemsize and width <= entry["width_max"] and wanted:
            return Configs(Config(**entry["config"]["keys"]), Config(**entry["config"]["queries"]))
    fallback = next(config for most, config in FALLBACK[itemsize].items() if width <= most)
    return Configs(fallback, fallback)


def attention_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    sums: torch.Tensor,
    grad: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] = (None, None),
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns (dq, dk, dv), the gradients of attention(q, k, v, ...) for its output's grad; contiguous, of q's dtype.

    out is attention's output, of q's shape, and sums, float32 (batch, heads, queries), the base-2 logarithm of each
    query's sum of exponentials: -inf if it sees no key, and its gradients are 0. The other arguments are attention's,
    including the seed if there is dropout. Any strides. Raises TypeError for dtypes, ValueError for shapes,
    devices and numbers.
    """
    _check(q, k, v, out, sums, grad)
    _attention.check("attention_backward", q, k, v, mask, window, scale, dropout, seed)
    batch, heads, queries, width = q.shape
    key_heads, keys = k.shape[1:3]
    dq, dk, dv = (torch.empty(each.shape, dtype=each.dtype, device=each.device) for each in (q, k, v))
    if q.numel() == 0 or k.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    left, right = _attention.sight(queries, keys, causal, tuple(window))
    limits = _launch.limits(q.device)
    padded = max(_launch.power_of_two(width), 16)
    sides, extras = (left is not None) + (right is not None), 2 if dropout else int(mask is not None)
    configs = choose_configs(padded, q.element_size(), sides, extras, limits)
    tma = _tma.available(limits, _keys_kernel) and all(map(_attention.describable, (q, k, v, dq, dk, dv)))
    if tma and not _attention.describable(grad):
        grad = grad.contiguous()  # often expanded from one number
    sums = sums.contiguous()
    delta = torch.empty(sums.shape, dtype=sums.dtype, device=sums.device)
    scale = _attention.default_scale(width, scale)
    laid = _attention.laid(mask, q, k, scale)
    steps = (*q.stride(), *k.stride(), *v.stride(), *grad.stride())
    of_scores = 1.0 if laid[2] == _attention.ADDED else scale
    numbers = (
        heads, heads // key_heads, queries, keys, left or 0, right or 0, of_scores * _attention.LOG2E, scale,
        _attention.threshold(dropout), 1 / (1 - dropout), seed,
    )  # fmt: skip

    def launch(kernel, config, own, tiles, outputs, **more):
        sides = {"m": config.block_m, "n": config.block_n}
        given = [(q, "m"), (k, "n"), (v, "n"), (grad, "m"), *((output, own) for output in outputs)]
        sources = [_attention.described(each, sides[side], padded) if tma else each for each, side in given]
        mask, mask_steps, kind = _attention.tiled(*laid, config.block_m, config.block_n) if tma else laid
        programs = min(tiles, limits.programs, limits.grid[0])
        kernel[(programs,)](
            *sources, sums, delta, mask, *steps, *mask_steps, tiles, *numbers, WIDTH=width, PADDED=padded,
            BLOCK_M=config.block_m, BLOCK_N=config.block_n, TMA=tma, LEFT=left is not None, RIGHT=right is not None,
            MASK=kind, DROPOUT=dropout > 0, LOOP=programs < tiles,
            num_warps=config.warps, num_stages=config.stages, **more,
        )  # fmt: skip

    tiles = _launch.tiles(queries, DELTA_ROWS) * batch * heads
    with _launch.on(q.device):
        _delta_kernel[_launch.grid(tiles, 1, limits)](
            out, grad, delta, *out.stride(), *grad.stride(), tiles, heads, queries,
            WIDTH=width, PADDED=padded, ROWS=DELTA_ROWS, num_warps=4,
        )  # fmt: skip
        by_keys, by_queries = configs
        tiles = _launch.tiles(keys, by_keys.block_n) * batch * key_heads
        launch(_keys_kernel, by_keys, "n", tiles, (dk, dv))
        tiles = _launch.tiles(queries, by_queries.block_m) * batch * heads
        launch(_queries_kernel, by_queries, "m", tiles, (dq,), TAIL=keys % by_queries.block_n > 0)
    return dq, dk, dv


def _check(q, k, v, out, sums, grad):
    op = "attention_backward"
    _launch.check_tensors(op, q=q, k=k, v=v, out=out, sums=sums, grad=grad)
    _launch.check_same_dtype(op, q=q, k=k, v=v, out=out, grad=grad)
    if sums.dtype != torch.float32:
        raise TypeError(f"{op}: sums has {sums.dtype}, but has to be float32")
    for name, tensor, shape in (("out", out, q.shape), ("grad", grad, q.shape), ("sums", sums, q.shape[:3])):
        if tensor.shape != shape:
            raise ValueError(f"{op}: {name} has shape {tuple(tensor.shape)}, but needs {tuple(shape)}")


@triton.jit(do_not_specialize=["tiles"])
def _delta_kernel(
    out, grad, delta, out_b, out_h, out_r, out_c, grad_b, grad_h, grad_r, grad_c, tiles, heads, queries,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """sum(out * grad) of each query, which is subtracted from every weight's gradient, as the weights sum to one."""
    blocks = tl.cdiv(queries, ROWS)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        which = tile // blocks
        first = tile % blocks * ROWS
        batch = which // heads
        head = which % heads
        x = load_rows(out, batch, head, first, queries, out_b, out_h, out_r, out_c, WIDTH, PADDED, ROWS, False)
        y = load_rows(grad, batch, head, first, queries, grad_b, grad_h, grad_r, grad_c, WIDTH, PADDED, ROWS, False)
        row = first + tl.arange(0, ROWS)
        total = tl.sum(x.to(tl.float32) * y.to(tl.float32), 1)
        tl.store(delta + tl.cast(which, tl.int64) * queries + row, total, mask=row < queries)
