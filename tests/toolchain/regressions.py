"""Regressions that others have published, as small ops: what is compiled before and after, and where it is said.

python -m tests.toolchain.regressions              # compile all with both toolchains, and write figures.json
python -m tests.toolchain.regressions delta_rule   # only this one

A toolchain that is missing is installed in the cache, 200 to 700 MB each. Takes minutes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from perfci.core import settings
from perfci.core.codec import decode, encode
from perfci.core.model import KernelBinary, StaticOp
from perfci.extensions.lab import toolchain
from tests.static_ops import HEADER, ROOT, compiled, edited, run, write

FIGURES = Path(__file__).with_name("figures.json")


@dataclass(frozen=True)
class Regression:
    """A kernel that a new release, or a change of the source, made slower."""

    op: str
    thread: str  # where it was published
    was: str  # Triton's release
    now: str
    target: str
    kernel: str  # source
    before: str | None = None  # source before, if it is the source that changed


MATMUL = (
    HEADER
    + """
@triton.jit
def _matmul(a_ptr, b_ptr, c_ptr, m, n, k, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
            BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr):
    pid = tl.program_id(0)
    programs_m, programs_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    in_group = GROUP_M * programs_n
    first_m = pid // in_group * GROUP_M
    size_m = min(programs_m - first_m, GROUP_M)
    pid_m = first_m + pid % in_group % size_m
    pid_n = pid % in_group // size_m
    rows = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % m
    cols = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % n
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + inner[None, :] * stride_ak
    b_ptrs = b_ptr + inner[:, None] * stride_bk + cols[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_K)):
        a = tl.load(a_ptrs, mask=inner[None, :] < k - step * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=inner[:, None] < k - step * BLOCK_K, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * rows[:, None] + stride_cn * cols[None, :]
    tl.store(c_ptrs, total.to(tl.float16), mask=(rows[:, None] < m) & (cols[None, :] < n))


def {op}(x):
    side = SIDE
    a, b, c = (torch.empty((side, side), dtype=torch.float16, device=x.device) for _ in range(3))
    grid = (triton.cdiv(side, M) * triton.cdiv(side, N),)
    _matmul[grid](a, b, c, side, side, side, side, 1, side, 1, side, 1, BLOCK_M=M, BLOCK_N=N, BLOCK_K=64, GROUP_M=8,
                  num_stages=STAGES, num_warps=WARPS)
    return c
"""
)

PRECISE = (
    HEADER
    + """
@triton.jit
def _precise(x_ptr, w_ptr, out_ptr, k, SIDE: tl.constexpr, STEP: tl.constexpr):
    rows = tl.arange(0, SIDE)
    total = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    for at in range(0, k, STEP):
        inner = at + tl.arange(0, STEP)
        x = tl.load(x_ptr + rows[:, None] * k + inner[None, :]).to(tl.float32)
        w = tl.load(w_ptr + rows[:, None] * k + inner[None, :])
        total = tl.dot(x, tl.trans(w), total, input_precision="tf32x3")
    tl.store(out_ptr + rows[:, None] * SIDE + rows[None, :], total)


def {op}(x):
    a = torch.empty((16, 4096), dtype=torch.bfloat16, device=x.device)
    w = torch.empty((16, 4096), dtype=torch.float32, device=x.device)
    out = torch.empty((16, 16), dtype=torch.float32, device=x.device)
    _precise[(1,)](a, w, out, 4096, SIDE=16, STEP=16, num_warps=1, num_stages=2)
    return out
"""
)

DELTA_RULE = (
    HEADER
    + """
@triton.jit
def _delta_rule(k, v, w, v_new, g, h, ht, T, H: tl.constexpr, HG: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
                BT: tl.constexpr, BV: tl.constexpr):
    i_v, i_h = tl.program_id(0), tl.program_id(1)
    steps = tl.cdiv(T, BT)
    b_h1 = tl.zeros([64, BV], dtype=tl.float32)
    b_h2 = tl.zeros([64, BV], dtype=tl.float32)
    h += i_h * K * V
    v += i_h * V
    v_new += i_h * V
    k += i_h // (H // HG) * K
    w += i_h * K
    for i_t in range(steps):
        p_h1 = tl.make_block_ptr(h + i_t * H * K * V, (K, V), (V, 1), (0, i_v * BV), (64, BV), (1, 0))
        tl.store(p_h1, b_h1.to(p_h1.dtype.element_ty), boundary_check=(0, 1))
        p_h2 = tl.make_block_ptr(h + i_t * H * K * V, (K, V), (V, 1), (64, i_v * BV), (64, BV), (1, 0))
        tl.store(p_h2, b_h2.to(p_h2.dtype.element_ty), boundary_check=(0, 1))
        p_v = tl.make_block_ptr(v, (T, V), (H * V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
        p_w = tl.make_block_ptr(w, (T, K), (H * K, 1), (i_t * BT, 0), (BT, 64), (1, 0))
        b_w = tl.load(p_w, boundary_check=(0, 1))
        b_v = tl.dot(b_w, b_h1.to(b_w.dtype))
        p_w = tl.make_block_ptr(w, (T, K), (H * K, 1), (i_t * BT, 64), (BT, 64), (1, 0))
        b_w = tl.load(p_w, boundary_check=(0, 1))
        b_v += tl.dot(b_w, b_h2.to(b_w.dtype))
        b_v = tl.load(p_v, boundary_check=(0, 1)) - b_v
        p_new = tl.make_block_ptr(v_new, (T, V), (H * V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
        tl.store(p_new, b_v.to(p_new.dtype.element_ty), boundary_check=(0, 1))
        last = tl.minimum((i_t + 1) * BT, T) - 1
        b_last = tl.load(g + last * H + i_h)
        p_g = tl.make_block_ptr(g + i_h, (T,), (H,), (i_t * BT,), (BT,), (0,))
        b_g = tl.load(p_g, boundary_check=(0,))
        b_v = b_v * tl.exp(b_last - b_g)[:, None]
        b_last = tl.exp(b_last)
        b_h1 *= b_last
        b_h2 *= b_last
        b_v = b_v.to(k.dtype.element_ty)
        p_k = tl.make_block_ptr(k, (K, T), (1, HG * K), (0, i_t * BT), (64, BT), (0, 1))
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_h1 += tl.dot(b_k, b_v)
        p_k = tl.make_block_ptr(k, (K, T), (1, HG * K), (64, i_t * BT), (64, BT), (0, 1))
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_h2 += tl.dot(b_k, b_v)
    p_ht = tl.make_block_ptr(ht + i_h * K * V, (K, V), (V, 1), (0, i_v * BV), (64, BV), (1, 0))
    tl.store(p_ht, b_h1.to(p_ht.dtype.element_ty), boundary_check=(0, 1))
    p_ht = tl.make_block_ptr(ht + i_h * K * V, (K, V), (V, 1), (64, i_v * BV), (64, BV), (1, 0))
    tl.store(p_ht, b_h2.to(p_ht.dtype.element_ty), boundary_check=(0, 1))


def {op}(x):
    T, H, HG, K, V = 9418, 8, 4, 128, 128
    half = dict(dtype=torch.bfloat16, device=x.device)
    k, v, w = torch.empty((T, HG, K), **half), torch.empty((T, H, V), **half), torch.empty((T, H, K), **half)
    v_new, g = torch.empty((T, H, V), **half), torch.empty((T, H), dtype=torch.float32, device=x.device)
    h, ht = torch.empty((148, H, K, V), **half), torch.empty((H, K, V), dtype=torch.float32, device=x.device)
    _delta_rule[(triton.cdiv(V, 32), H)](k, v, w, v_new, g, h, ht, T, H=H, HG=HG, K=K, V=V, BT=64, BV=32, num_warps=4,
                                         num_stages=2)
    return ht
"""
)

EXTEND = (
    HEADER
    + """
@triton.jit
def _extend(q_ptr, k_ptr, v_ptr, out_ptr, keys, scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
            MAIN: tl.constexpr, ROPE: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols, rope = tl.arange(0, MAIN), MAIN + tl.arange(0, ROPE)
    wide: tl.constexpr = MAIN + ROPE
    q = tl.load(q_ptr + rows[:, None] * wide + cols[None, :])
    q_rope = tl.load(q_ptr + rows[:, None] * wide + rope[None, :])
    top = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    norm = tl.zeros((BLOCK_M,), dtype=tl.float32)
    total = tl.zeros((BLOCK_M, MAIN), dtype=tl.float32)
    for at in range(0, keys, BLOCK_N):
        here = at + tl.arange(0, BLOCK_N)
        fits = here < keys
        k = tl.load(k_ptr + here[None, :] * wide + cols[:, None], mask=fits[None, :], other=0.0)
        score = tl.dot(q, k)
        k_rope = tl.load(k_ptr + here[None, :] * wide + rope[:, None], mask=fits[None, :], other=0.0)
        score += tl.dot(q_rope, k_rope)
        score = tl.where(fits[None, :], score * scale, float("-inf"))
        new = tl.maximum(top, tl.max(score, 1))
        shrink = tl.exp(top - new)
        p = tl.exp(score - new[:, None])
        norm = norm * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + here[:, None] * MAIN + cols[None, :], mask=fits[:, None], other=0.0)
        total = total * shrink[:, None] + tl.dot(p.to(v.dtype), v)
        top = new
    tl.store(out_ptr + rows[:, None] * MAIN + cols[None, :], (total / norm[:, None]).to(tl.bfloat16))


def {op}(x):
    half = dict(dtype=torch.bfloat16, device=x.device)
    q, k = torch.empty((4096, 576), **half), torch.empty((4096, 576), **half)
    v, out = torch.empty((4096, 512), **half), torch.empty((4096, 512), **half)
    _extend[(64,)](q, k, v, out, 4096, 0.04, BLOCK_M=64, BLOCK_N=64, MAIN=512, ROPE=64, num_warps=4, num_stages=1)
    return out
"""
)

SWIGLU = (
    HEADER
    + """
@triton.jit
def _swiglu(a_ptr, b_ptr, out_ptr, factor: tl.float32, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    offset = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row + offset, mask=offset < cols, other=0).to(tl.float32) * factor
    b = tl.load(b_ptr + row + offset, mask=offset < cols, other=0)
    tl.store(out_ptr + row + offset, a * tl.sigmoid(a) * b, mask=offset < cols)


def {op}(x):
    a, b, out = (torch.empty((8192, 3072), dtype=torch.bfloat16, device=x.device) for _ in range(3))
    _swiglu[(8192,)](a, b, out, 1.5, 3072, BLOCK=4096, num_warps=8)
    return out
"""
)


NORM = (
    HEADER
    + """
@triton.jit
def _norm(x_ptr, weight_ptr, bias_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offset = tl.arange(0, BLOCK)
    inside = offset < cols
    x = tl.load(x_ptr + row * cols + offset, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / cols
    centred = tl.where(inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / cols + eps)
    weight = tl.load(weight_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * cols + offset, centred * scale * weight + bias, mask=inside)


def {op}(x):
    half = dict(dtype=torch.float16, device=x.device)
    a, out, weight, bias = (torch.empty(shape, **half) for shape in ((4096, 15360), (4096, 15360), 15360, 15360))
    _norm[(4096,)](a, weight, bias, out, 15360, 1e-5, BLOCK=16384, num_warps=16, num_stages=2)
    return out
"""
)

STRIDED = (
    HEADER
    + """
@triton.jit
def _strided(k_ptr, blocks_ptr, out_ptr, stride_0: tl.int64, stride_1: tl.int64, stride_2: tl.int64, stride_3: tl.int64,
             BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    row, head = tl.program_id(0), tl.program_id(1)
    tokens, cols = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    total = tl.zeros((BLOCK, WIDTH), dtype=tl.float32)
    for at in range(16):
        block = tl.load(blocks_ptr + row * 16 + at).to(tl.int64)
        place = block * stride_0 + head * stride_2 + cols[None, :] * stride_3 + tokens[:, None] * stride_1
        total += tl.load(k_ptr + place).to(tl.float32)
    tl.store(out_ptr + (row * 8 + head) * WIDTH + cols, tl.sum(total, 0))


def {op}(x):
    k = torch.empty((4096, 16, 8, 128), dtype=torch.bfloat16, device=x.device)
    blocks = torch.empty((64, 16), dtype=torch.int32, device=x.device)
    out = torch.empty((64, 8, 128), dtype=torch.float32, device=x.device)
    _strided[(64, 8)](k, blocks, out, *k.stride(), BLOCK=16, WIDTH=128, num_warps=4)
    return out
"""
)

REDUCED = (
    HEADER
    + """
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _reduced(x, out_ptr, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row, col = tl.program_id(0), tl.program_id(1)
    tile = x.load([row * BLOCK_M, col * BLOCK_N])
    tl.store(out_ptr + row * n + col * BLOCK_N + tl.arange(0, BLOCK_N), tl.max(tile, 0))


def {op}(x):
    a = torch.empty((8192, 8192), dtype=torch.bfloat16, device=x.device)
    out = torch.empty((256, 8192), dtype=torch.bfloat16, device=x.device)
    _reduced[(256, 64)](TensorDescriptor.from_tensor(a, [32, 128]), out, 8192, BLOCK_M=32, BLOCK_N=128, num_warps=4)
    return out
"""
)


def _matmul(side: int, m: int, n: int, stages: int, warps: int) -> str:
    given = {"side = SIDE": f"side = {side}", "STAGES": str(stages), "WARPS": str(warps)}
    text = edited(MATMUL, *given.items())
    return edited(text, ("side, M)", f"side, {m})"), ("side, N)", f"side, {n})"), ("=M,", f"={m},"), ("=N,", f"={n},"))


TRITON = "https://github.com/triton-lang/triton"
KNOWN = (
    Regression("small_gemm", f"{TRITON}/issues/7096", "3.1.0", "3.4.0", "sm_90", _matmul(1024, 64, 128, 4, 4)),
    Regression("tutorial_matmul", f"{TRITON}/issues/7085", "3.2.0", "3.3.1", "sm_80", _matmul(1024, 128, 256, 3, 8)),
    Regression("delta_rule", f"{TRITON}/issues/9757", "3.5.1", "3.6.0", "sm_90", DELTA_RULE),
    Regression("precise_matmul", f"{TRITON}/issues/11526", "3.6.0", "3.8.0", "sm_89", PRECISE),
    Regression("extend", "https://github.com/sgl-project/sglang/pull/34741", "3.6.0", "3.7.1", "gfx950", EXTEND),
    Regression("norm", f"{TRITON}/issues/11127", "3.6.0", "3.7.1", "sm_100", NORM),
    Regression("strided", "https://github.com/vllm-project/vllm/pull/18161", "3.2.0", "3.3.1", "sm_90", STRIDED),
    Regression("reduced", f"{TRITON}/issues/9703", "3.5.1", "3.6.0", "sm_90", REDUCED),
    Regression(
        "swiglu", "https://github.com/linkedin/Liger-Kernel/pull/1350", "3.7.1", "3.7.1", "sm_90",
        edited(SWIGLU, ("tl.float32, cols", "tl.float64, cols")), before=SWIGLU,
    ),
)  # fmt: skip

Figures = Mapping[str, Mapping[str, tuple[KernelBinary, ...]]]
"""Op -> was or now -> what it compiled to."""


def read_figures() -> Figures:
    """What was recorded."""
    return decode(FIGURES.read_bytes(), dict[str, dict[str, tuple[KernelBinary, ...]]])


def compile_op(regression: Regression, release: str, source: str) -> tuple[KernelBinary, ...]:
    """The binaries of an op as a release of Triton compiles it. Raises UsageError if that cannot be installed."""
    python = toolchain.prepare([f"triton=={release}"], settings.at(ROOT), lambda folder: print(f"into {folder}"))
    (site,) = Path(python).parents[1].glob("lib/python*/site-packages")
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), regression.op, source)
        path = os.pathsep.join([str(site), str(ROOT)])
        program = "from perfci.worker.child import main; main()"
        cache, ops = Path(folder, "cache"), [regression.op]
        messages = run(Path(folder), ops, regression.target, cache, program=program, PYTHONPATH=path)
        op = decode(encode(compiled(messages)[regression.op]), StaticOp)
    assert op.failure is None and op.cases[0].failure is None, op
    return tuple(replace(binary, artefact=binary.artefact[:8]) for binary in op.cases[0].binaries)


def main(names: list[str]) -> None:
    """Compile ops, and write down what they compile to."""
    found = dict(read_figures()) if FIGURES.exists() else {}
    for each in (each for each in KNOWN if not names or each.op in names):
        was, now = compile_op(each, each.was, each.before or each.kernel), compile_op(each, each.now, each.kernel)
        found[each.op] = {"was": was, "now": now}
        FIGURES.write_bytes(encode(dict(sorted(found.items()))) + b"\n")
        print(each.op, *was, *now, sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
