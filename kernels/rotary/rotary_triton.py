"""rotary: positions of queries and keys, as rotations of pairs of their values, in one launch."""

import functools
from pathlib import Path
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import _launch

TUNED = Path(__file__).parent / "tuned"


class Config(NamedTuple):
    """One entry's `config` of a tuned file."""

    elements: int
    """Values of q or k that a program rotates at a time: some heads of one token."""
    warps: int


FALLBACK = Config(elements=4096, warps=4)
"""For devices without a tuned file."""


@functools.lru_cache(maxsize=4096)
def choose_config(tokens: int, heads: int, width: int, itemsize: int, limits: _launch.Limits) -> Config:
    """Returns the first entry of the tuned file that fits; `tokens` are those of all sequences."""
    facts = {"tokens": tokens, "heads": heads, "width": width, "itemsize": itemsize}
    config = _launch.config(TUNED, limits, **facts)
    return Config(**config) if config else FALLBACK


def rotary(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns q and k with every pair of values (x, y) replaced by (x cos - y sin, y cos + x sin), both contiguous.

    q is (batch, tokens, heads, width), k the same with heads of its own, usually fewer. cos and sin are (positions,
    rotated / 2), with a row for each token (positions >= tokens), so a later part of a sequence passes a later part of
    the tables. Of each head's width the first `rotated` values are rotated and the others copied. Pair i is (i,
    i + rotated / 2), as in Llama and NeoX, or, if `interleaved`, (2 i, 2 i + 1), as in GPT-J. Tensors are float32,
    float16 or bfloat16, of any strides; q and k share a dtype, and so do cos and sin. Computed in float32 and rounded
    once. Raises TypeError for dtypes, ValueError for shapes or devices.
    """
    check(q, k, cos, sin)
    turned_q, turned_k = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k))
    batch, tokens, _, width = q.shape
    heads = q.shape[2], k.shape[2]
    if not turned_q.numel() + turned_k.numel():
        return turned_q, turned_k
    limits = _launch.limits(q.device)
    config = choose_config(batch * tokens, max(heads), width, q.element_size(), limits)
    half = cos.shape[1]
    block = _launch.power_of_two(half)
    room = max(config.elements // (2 * block), 1)
    with _launch.on(q.device):
        _kernel[(min(batch * tokens, limits.programs, limits.grid[0]),)](
            q, k, cos, sin, turned_q, turned_k, *q.stride(), *k.stride(), *cos.stride(), *sin.stride(),
            batch * tokens, tokens, *heads, width, half, HALF=block, REST=_launch.power_of_two(width - 2 * half),
            Q_HEADS=min(_launch.power_of_two(heads[0]), room), K_HEADS=min(_launch.power_of_two(heads[1]), room),
            COPIES=width > 2 * half, INTERLEAVED=interleaved, num_warps=config.warps,
        )  # fmt: skip
    return turned_q, turned_k


def check(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Raises TypeError or ValueError for arguments that `rotary` does not support."""
    _launch.check_tensors("rotary", q=q, k=k, cos=cos, sin=sin)
    _launch.check_same_dtype("rotary", q=q, k=k)
    _launch.check_same_dtype("rotary", cos=cos, sin=sin)
    if q.ndim != 4 or k.ndim != 4 or (*q.shape[:2], q.shape[3]) != (*k.shape[:2], k.shape[3]):
        raise ValueError(
            f"rotary: q has shape {tuple(q.shape)} and k {tuple(k.shape)}, but they have to be (batch, tokens, heads, "
            "width), alike except for the heads"
        )
    if cos.ndim != 2 or cos.shape != sin.shape or cos.shape[0] < q.shape[1] or not 0 < 2 * cos.shape[1] <= q.shape[3]:
        raise ValueError(
            f"rotary: cos has shape {tuple(cos.shape)} and sin {tuple(sin.shape)}, but q of shape {tuple(q.shape)} "
            f"needs both to be (positions, pairs), at least {q.shape[1]} positions and 1 to {q.shape[3] // 2} pairs"
        )


@triton.jit(do_not_specialize=["rows", "tokens"])
def _kernel(
    q_ptr, k_ptr, cos_ptr, sin_ptr, turned_q_ptr, turned_k_ptr, q_batch, q_token, q_head, q_col,
    k_batch, k_token, k_head, k_col, cos_row, cos_col, sin_row, sin_col, rows, tokens, q_heads, k_heads, width, half,
    HALF: tl.constexpr, REST: tl.constexpr, Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, COPIES: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """All heads of a token. Its cosines and sines are loaded once."""
    pair = tl.arange(0, HALF).to(tl.int64)
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)  # 64 bits, as there may be more than 2**31 elements
        batch = row // tokens
        token = row % tokens
        cos = tl.load(cos_ptr + token * cos_row + pair * cos_col, pair < half).to(tl.float32)
        sin = tl.load(sin_ptr + token * sin_row + pair * sin_col, pair < half).to(tl.float32)
        _turn(
            q_ptr + batch * q_batch + token * q_token, turned_q_ptr + row * q_heads * width, q_head, q_col,
            cos, sin, q_heads, width, half, HALF, REST, Q_HEADS, COPIES, INTERLEAVED,
        )  # fmt: skip
        _turn(
            k_ptr + batch * k_batch + token * k_token, turned_k_ptr + row * k_heads * width, k_head, k_col,
            cos, sin, k_heads, width, half, HALF, REST, K_HEADS, COPIES, INTERLEAVED,
        )  # fmt: skip


@triton.jit
def _turn(
    source, target, head_stride, col_stride, cos, sin, heads, width, half,
    HALF: tl.constexpr, REST: tl.constexpr, HEADS: tl.constexpr, COPIES: tl.constexpr, INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """The heads of one token, HEADS at a time."""
    for first in range(0, heads, HEADS):
        head = (first + tl.arange(0, HEADS).to(tl.int64))[:, None]
        begin = source + head * head_stride
        end = target + head * width
        if INTERLEAVED:
            # In whole vectors: both values of a pair are neighbours.
            col = tl.arange(0, 2 * HALF).to(tl.int64)[None, :]
            mask = (head < heads) & (col < 2 * half)
            x, y = tl.split(tl.reshape(tl.load(begin + col * col_stride, mask), (HEADS, HALF, 2)))
            x, y = _turned(x, y, cos, sin)
            tl.store(end + col, tl.reshape(tl.join(x, y), (HEADS, 2 * HALF)), mask=mask)
        else:
            col = tl.arange(0, HALF).to(tl.int64)[None, :]
            mask = (head < heads) & (col < half)
            x = tl.load(begin + col * col_stride, mask)
            y = tl.load(begin + (half + col) * col_stride, mask)
            x, y = _turned(x, y, cos, sin)
            tl.store(end + col, x, mask=mask)
            tl.store(end + half + col, y, mask=mask)
        if COPIES:
            col = 2 * half + tl.arange(0, REST).to(tl.int64)[None, :]
            mask = (head < heads) & (col < width)
            tl.store(end + col, tl.load(begin + col * col_stride, mask), mask=mask)


@triton.jit
def _turned(x, y, cos, sin):
    """Pairs turned in float32, in their dtype again."""
    left = x.to(tl.float32) * cos - y.to(tl.float32) * sin
    right = y.to(tl.float32) * cos + x.to(tl.float32) * sin
    return left.to(x.dtype), right.to(x.dtype)
