"""fp8_attention: attention over float8 values, or queries, keys and values, tile by tile under a running maximum.

Both products are in float8 if their operands are: the weights are cast to the values' dtype, scaled by a power of
two that rides in their exponent and leaves with their sum.
"""

import functools
from pathlib import Path
from typing import NamedTuple

import torch
import triton
import triton.language as tl

import _attention
import _launch
import _tma
from _attention import load_rows, seen, spans, store_rows

TUNED = Path(__file__).parent / "tuned"
DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
WIDE_DTYPES = (torch.bfloat16, torch.float16)
"""Dtypes of q and k if only v is quantised."""
OUT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
GROUP = 128
"""Tokens that share a scale if scales are per group."""
LIFT = {torch.float8_e4m3fn: 8.0, torch.float8_e5m2: 15.0}
"""Weights, 1 at most, are cast times 2 to this: near the dtype's largest, 448 or 57344, and never beyond it."""


class Config(NamedTuple):
    block_m: int
    """Queries of a program."""
    block_n: int
    """Keys at a time; divides GROUP."""
    warps: int
    stages: int


# For devices without a tuned file: padded width, at most -> config.
FALLBACK = {64: Config(64, 64, 4, 2), 128: Config(64, 32, 4, 2), 256: Config(32, 32, 4, 1)}


@functools.lru_cache(maxsize=4096)
def choose_config(queries: int, width: int, parts: str, causal: bool, limits: _launch.Limits) -> Config:
    """Returns the first entry of the tuned file that fits the case; nothing is tuned here.

    `width` is padded to a power of two; `parts` names what is in float8, "v" or "qkv".
    """
    for entry in _launch.tuned(TUNED, limits.key):
        fits = queries <= entry.get("queries_max", queries) and width <= entry["width_max"]
        if fits and entry.get("parts", parts) == parts and entry.get("causal", causal) == causal:
            return Config(**entry["config"])
    return next(config for most, config in FALLBACK.items() if width <= most)


def fp8_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale_v: torch.Tensor,
    scale_q: torch.Tensor | None = None,
    scale_k: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:
    """Returns softmax(scale q k^T) v of dequantised tensors, contiguous, of q's shape and `out_dtype`; forward only.

    q is (batch, heads, queries, width), k and v are (batch, key heads, keys, width), where the key heads divide the
    heads and each serves the same number of neighbours; any strides, width 1 to 256. v is float8_e4m3fn or
    float8_e5m2. q and k have one dtype: either float8 too, with scale_q and scale_k, or bfloat16 or float16 without.
    Tensor cores read float8 only with keys innermost: fastest is v with stride 1 along its keys, in rows of 16 bytes.

    Scales are float32. scale_q and scale_k are of the whole (), of each token (batch, heads, tokens, 1) or of each 128
    tokens of a head (batch, heads, ceil(tokens / 128), 1); scale_v is of the whole, of each channel (batch, key heads,
    1, width) or of each 128 tokens. scale is 1 / sqrt(width) if it is None. The last query stands beside the last
    key, and causal hides the keys after a query's place. A query that sees no key gives 0.

    Weights are rounded to v's dtype, which has 4 (e4m3) or 3 (e5m2) significant bits.
    Raises TypeError for dtypes, ValueError for shapes, devices and numbers.
    """
    kinds = _check(q, k, v, scale_v, scale_q, scale_k, scale, out_dtype)
    limits = _launch.limits(q.device)
    if not limits.float8:
        raise ValueError(f"fp8_attention: {limits.key} has no tensor cores for float8. Use attention there")
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    out = torch.empty(q.shape, dtype=out_dtype, device=q.device)
    if out.numel() == 0 or keys == 0:
        return out.zero_()
    right = _attention.sight(queries, keys, causal, (None, None)).right is not None
    padded = max(_launch.power_of_two(width), 32)
    config = choose_config(queries, padded, "qkv" if scale_q is not None else "v", right, limits)
    given, tma, turned = _sources(q, k, v, out, padded, config, limits)
    tiles = _launch.tiles(queries, config.block_m) * batch * heads
    programs = min(tiles, limits.programs, limits.grid[0])
    steps = (*_steps(scale_q), *_steps(scale_k), *_steps(scale_v), scale_v.stride(3) if kinds[2] == "channel" else 0)
    with _launch.on(q.device):
        _fp8_attention_kernel[(programs,)](
            *given, scale_q, scale_k, scale_v, *q.stride(), *k.stride(), *v.stride(), *steps,
            tiles, heads, heads // k.shape[1], queries, keys, _attention.default_scale(width, scale) * _attention.LOG2E,
            Q_KIND=kinds[0], K_KIND=kinds[1], V_KIND=kinds[2], WIDTH=width, PADDED=padded,
            BLOCK_M=config.block_m, BLOCK_N=config.block_n, TMA=tma, V_TURNED=turned, RIGHT=right,
            TAIL=keys % config.block_n > 0, LOOP=programs < tiles, LIFT=LIFT[v.dtype],
            WIDEN=_tma.interpreted(_fp8_attention_kernel), num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out


def _sources(q, k, v, out, padded: int, config: Config, limits: _launch.Limits):
    """What the kernel loads from and stores to, whether by descriptor, and whether v's is of the transposed v."""
    turned = v.transpose(2, 3)
    along_keys = _attention.describable(turned)
    described = (q, k, out, turned if along_keys else v)
    if not _tma.available(limits, _fp8_attention_kernel) or not all(map(_attention.describable, described)):
        return (q, k, v, out), False, False
    source = _attention.described(v, config.block_n, padded)
    if along_keys:
        source = _attention.described(turned, padded, config.block_n)
    return (
        _attention.described(q, config.block_m, padded), _attention.described(k, config.block_n, padded), source,
        _attention.described(out, config.block_m, padded),
    ), True, along_keys  # fmt: skip


# --- arguments --------------------------------------------------------------------------------------------------------


def _check(q, k, v, scale_v, scale_q, scale_k, scale, out_dtype) -> tuple[str, str, str]:
    """What the scales of q, k and v are of; raises TypeError or ValueError for arguments that do not fit together."""
    scaled = scale_q is not None
    if scaled != (scale_k is not None):
        one, other = ("scale_q", "scale_k") if scaled else ("scale_k", "scale_q")
        raise ValueError(f"fp8_attention: {one} is given, but {other} is None; q and k are quantised together")
    tensors = {"q": q, "k": k, "v": v, "scale_v": scale_v}
    tensors |= {"scale_q": scale_q, "scale_k": scale_k} if scaled else {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"fp8_attention: {name} is a {type(tensor).__name__}, but has to be a torch.Tensor")
        quantised = name == "v" or scaled
        allowed = (torch.float32,) if "scale" in name else DTYPES if quantised else WIDE_DTYPES
        if tensor.dtype not in allowed:
            known = " or ".join(map(str, allowed))
            raise TypeError(f"fp8_attention: {name} has dtype {tensor.dtype}, but has to have {known}")
        if tensor.device != q.device:
            raise ValueError(f"fp8_attention: {name} lies on {tensor.device}, but has to lie on {q.device}, as q does")
    if q.dtype != k.dtype:
        raise TypeError(f"fp8_attention: q has {q.dtype} and k {k.dtype}, but they have to have one dtype")
    if out_dtype not in OUT_DTYPES:
        known = ", ".join(map(str, OUT_DTYPES))
        raise TypeError(f"fp8_attention: out_dtype is {out_dtype}, but has to be one of {known}")
    if scale is not None and not 0 < scale < float("inf"):
        raise ValueError(f"fp8_attention: scale is {scale}, but has to be above 0 and finite")
    shapes = [each.shape if each is not None else None for each in (scale_q, scale_k, scale_v)]
    return _kinds(q.shape, k.shape, v.shape, *shapes)


@functools.lru_cache(maxsize=4096)
def _kinds(q, k, v, of_q, of_k, of_v) -> tuple[str, str, str]:
    shapes = f"q is {tuple(q)}, k {tuple(k)} and v {tuple(v)}"
    if not (len(q) == len(k) == len(v) == 4 and k == v and q[::3] == k[::3]):
        wanted = "(batch, heads, queries, width) for q and (batch, key heads, keys, width) for k and v"
        raise ValueError(f"fp8_attention: needs shapes {wanted}, but {shapes}")
    if not 1 <= q[3] <= _attention.WIDEST:
        raise ValueError(f"fp8_attention: a head is {q[3]} wide, but has to be 1 to {_attention.WIDEST}")
    if q[1] % max(k[1], 1) or (q[1] and not k[1]):
        raise ValueError(f"fp8_attention: the heads of k and v have to divide those of q, but {shapes}")
    rows = (_kind(name, of, shape, "row") for name, of, shape in (("q", of_q, q), ("k", of_k, k)))
    return (*(kind if of is not None else "none" for kind, of in zip(rows, (of_q, of_k), strict=True)),
            _kind("v", of_v, v, "channel"))  # fmt: skip


def _kind(name: str, of_scale: torch.Size | None, shape: torch.Size, fine: str) -> str:
    """What one scale is of: "one", "group", or what `fine` says."""
    batch, heads, tokens, width = shape
    groups = (batch, heads, _launch.tiles(tokens, GROUP), 1)
    finest = (batch, heads, tokens, 1) if fine == "row" else (batch, heads, 1, width)
    for kind, wanted in (("none", None), ("one", ()), ("group", groups), (fine, finest)):
        if of_scale == wanted:
            return kind
    raise ValueError(
        f"fp8_attention: scale_{name} has shape {tuple(of_scale)}, but {name} of shape {tuple(shape)} needs (), "
        f"{finest} or, for groups of {GROUP} tokens, {groups}"
    )


def _steps(scale: torch.Tensor | None) -> tuple[int, ...]:
    """Strides of a scale along batch, heads and tokens."""
    return (0, 0, 0) if scale is None or scale.ndim == 0 else scale.stride()[:3]


# --- the kernel -------------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["tiles", "queries", "keys"])
def _fp8_attention_kernel(
    q, k, v, out, scale_q, scale_k, scale_v, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c,
    sq_b, sq_h, sq_r, sk_b, sk_h, sk_r, sv_b, sv_h, sv_r, sv_c, tiles, heads, share, queries, keys, scale,
    Q_KIND: tl.constexpr, K_KIND: tl.constexpr, V_KIND: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr, V_TURNED: tl.constexpr, RIGHT: tl.constexpr,
    TAIL: tl.constexpr, LOOP: tl.constexpr, LIFT: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """share: heads that one key head serves. The kinds: what the scales are of."""
    if LOOP:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            _one_tile(
                q, k, v, out, scale_q, scale_k, scale_v, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c,
                sq_b, sq_h, sq_r, sk_b, sk_h, sk_r, sv_b, sv_h, sv_r, sv_c, tile, heads, share, queries, keys, scale,
                Q_KIND, K_KIND, V_KIND, WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, V_TURNED, RIGHT, TAIL, LIFT, WIDEN,
            )  # fmt: skip
    else:
        _one_tile(
            q, k, v, out, scale_q, scale_k, scale_v, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c,
            sq_b, sq_h, sq_r, sk_b, sk_h, sk_r, sv_b, sv_h, sv_r, sv_c, tl.program_id(0), heads, share, queries, keys,
            scale, Q_KIND, K_KIND, V_KIND, WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, V_TURNED, RIGHT, TAIL, LIFT, WIDEN,
        )  # fmt: skip


@triton.jit
def _one_tile(
    q_from, k_from, v_from, out, scale_q, scale_k, scale_v, q_b, q_h, q_r, q_c, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c,
    sq_b, sq_h, sq_r, sk_b, sk_h, sk_r, sv_b, sv_h, sv_r, sv_c, tile, heads, share, queries, keys, scale,
    Q_KIND: tl.constexpr, K_KIND: tl.constexpr, V_KIND: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr, V_TURNED: tl.constexpr, RIGHT: tl.constexpr,
    TAIL: tl.constexpr, LIFT: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """BLOCK_M queries of one head. top and total: each row's maximum, and its sum of exponentials times 2 to LIFT."""
    blocks = tl.cdiv(queries, BLOCK_M)
    which = tile // blocks
    block = tile % blocks
    if RIGHT:
        block = blocks - 1 - block  # those with most keys begin first
    batch = which // heads
    head = which % heads
    served = head // share
    first = block * BLOCK_M
    q = load_rows(q_from, batch, head, first, queries, q_b, q_h, q_r, q_c, WIDTH, PADDED, BLOCK_M, TMA)
    if WIDEN:
        q = _widened(q)
    row = first + tl.arange(0, BLOCK_M)
    factor = tl.full((BLOCK_M,), 1.0, tl.float32) * scale
    if Q_KIND != "none":
        of_token = row
        if Q_KIND == "group":
            of_token = row // 128
        place = tl.cast(batch, tl.int64) * sq_b + tl.cast(head, tl.int64) * sq_h + of_token.to(tl.int64) * sq_r
        factor = factor * tl.load(scale_q + place, mask=row < queries, other=1.0)
    if K_KIND == "one":
        factor = factor * tl.load(scale_k)
    k_scales = scale_k
    if K_KIND != "none":
        k_scales = scale_k + tl.cast(batch, tl.int64) * sk_b + tl.cast(served, tl.int64) * sk_h
    v_scales = scale_v + tl.cast(batch, tl.int64) * sv_b + tl.cast(served, tl.int64) * sv_h
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, PADDED), tl.float32)
    begin, _, whole_end, end = spans(first + keys - queries, BLOCK_M, 0, 0, keys, BLOCK_N, False, RIGHT, TAIL)
    acc, total, top = _walk(
        acc, total, top, q, factor, k_from, v_from, k_scales, v_scales, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c,
        sk_r, sv_r, begin, whole_end, batch, served, first, queries, keys,
        K_KIND, V_KIND, WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, V_TURNED, RIGHT, LIFT, WIDEN, False,
    )  # fmt: skip
    if RIGHT or TAIL:
        acc, total, top = _walk(
            acc, total, top, q, factor, k_from, v_from, k_scales, v_scales, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c,
            sk_r, sv_r, whole_end, end, batch, served, first, queries, keys,
            K_KIND, V_KIND, WIDTH, PADDED, BLOCK_M, BLOCK_N, TMA, V_TURNED, RIGHT, LIFT, WIDEN, True,
        )  # fmt: skip
    if RIGHT:
        total = tl.where(total == 0.0, 1.0, total)  # a query that sees no key gives 0
    acc = acc / total[:, None]
    if V_KIND == "one":
        acc = acc * tl.load(scale_v)
    if V_KIND == "channel":
        col = tl.arange(0, PADDED)
        acc = acc * tl.load(v_scales + col.to(tl.int64) * sv_c, mask=col < WIDTH, other=0.0)[None, :]
    store_rows(out, acc, batch, head, heads, first, queries, WIDTH, PADDED, BLOCK_M, TMA)


@triton.jit
def _walk(
    acc, total, top, q, factor, k_from, v_from, k_scales, v_scales, k_b, k_h, k_r, k_c, v_b, v_h, v_r, v_c,
    sk_r, sv_r, begin, end, batch, head, first, queries, keys,
    K_KIND: tl.constexpr, V_KIND: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TMA: tl.constexpr, V_TURNED: tl.constexpr, RIGHT: tl.constexpr,
    LIFT: tl.constexpr, WIDEN: tl.constexpr, HIDES: tl.constexpr,
):  # fmt: skip
    """Adds the keys of [begin, end); a tile is within one group of scales. HIDES: some may be hidden."""
    place = first + keys - queries + tl.arange(0, BLOCK_M)
    for n in tl.range(begin, end, BLOCK_N):
        key = n + tl.arange(0, BLOCK_N)
        k = load_rows(k_from, batch, head, n, keys, k_b, k_h, k_r, k_c, WIDTH, PADDED, BLOCK_N, TMA)
        if WIDEN:
            k = _widened(k)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if K_KIND == "group":
            s = s * (factor * tl.load(k_scales + (n // 128) * tl.cast(sk_r, tl.int64)))[:, None]
        else:
            s = s * factor[:, None]
        if K_KIND == "row":
            s = s * tl.load(k_scales + key.to(tl.int64) * sk_r, mask=key < keys, other=1.0)[None, :]
        if HIDES:
            s = tl.where(seen(place[:, None], key[None, :], 0, 0, keys, False, RIGHT), s, -float("inf"))
        raised = tl.maximum(top, tl.max(s, 1))
        shift = raised
        if HIDES:
            shift = tl.where(raised == -float("inf"), 0.0, raised)  # -inf - -inf would be NaN
        p = tl.exp2(s - (shift - LIFT)[:, None])
        fade = tl.exp2(top - shift)
        total = total * fade + tl.sum(p, 1)
        if TMA and V_TURNED:
            v = v_from.load([batch, head, 0, n]).reshape(PADDED, BLOCK_N).T
        else:
            v = load_rows(v_from, batch, head, n, keys, v_b, v_h, v_r, v_c, WIDTH, PADDED, BLOCK_N, TMA)
        # A cast saturates, though nothing here is beyond its range.
        weights = _rounded(p, v.dtype == tl.float8e5) if WIDEN else p.to(v.dtype)
        if WIDEN:
            v = _widened(v)
        if V_KIND == "group":
            of_v = tl.load(v_scales + (n // 128) * tl.cast(sv_r, tl.int64))
            acc = acc * fade[:, None] + tl.dot(weights, v, input_precision="ieee") * of_v
        else:
            acc = tl.dot(weights, v, acc * fade[:, None], input_precision="ieee")
        top = raised
    return acc, total, top


@triton.jit
def _widened(values):
    """As float32, for Triton's interpreter, which computes wrongly in narrower types and knows no NaN in float8."""
    wide = values.to(tl.float32)
    if values.dtype == tl.float8e5:
        bits = values.to(tl.uint8, bitcast=True)
        infinite = tl.where(bits == 124, float("inf"), -float("inf"))
        wide = tl.where((bits & 127) == 124, infinite, wide)
        wide = tl.where((bits & 127) > 124, float("nan"), wide)
    elif values.dtype == tl.float8e4nv:
        bits = values.to(tl.uint8, bitcast=True)
        wide = tl.where((bits & 127) == 127, float("nan"), wide)
    return wide


@triton.jit
def _rounded(p, TWO_BITS: tl.constexpr):
    """Weights, none below 0, as a saturating cast leaves them: to nearest, ties to even.

    For Triton's interpreter, whose own cast to float8 loses a carry into the exponent.
    """
    DROPPED: tl.constexpr = 21 if TWO_BITS else 20
    HALF_ULP: tl.constexpr = (1 << (DROPPED - 1)) - 1
    SMALL: tl.constexpr = 2.0**-14 if TWO_BITS else 2.0**-6
    ANCHOR: tl.constexpr = 1.5 * 2.0**7 if TWO_BITS else 1.5 * 2.0**14
    LARGEST: tl.constexpr = 57344.0 if TWO_BITS else 448.0
    bits = p.to(tl.int32, bitcast=True)
    bits = (bits + HALF_ULP + ((bits >> DROPPED) & 1)) >> DROPPED << DROPPED
    rounded = tl.where(p < SMALL, (p + ANCHOR) - ANCHOR, bits.to(tl.float32, bitcast=True))
    # what is not at least 0 is NaN, and stays so
    return tl.where(p >= 0.0, tl.minimum(rounded, LARGEST), p)
