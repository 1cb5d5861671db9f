"""attention beyond Triton's interpreter: its reference by calculus, and its kernels on a GPU."""

import contextlib
import importlib
import math
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
KERNELS = Path(__file__).resolve().parents[2] / "kernels"
TABLES = ("_launch", "_tma", "_groups", "_attention", "_attention_reference", "attention", "attention_backward")
NOTHING = (None, None)
HIDING = [
    {},
    {"causal": True},
    {"window": (2, 1)},
    {"causal": True, "window": (2, None), "dropout": 0.4},
    {"dropout": 0.3, "scale": 0.7},
]


@contextlib.contextmanager
def imported(*names):
    """Modules of the ops, out of the way again afterwards: other tests import theirs from elsewhere."""
    before, known = list(sys.path), set(sys.modules)
    sys.path[:0] = [str(KERNELS), str(KERNELS / "attention"), str(KERNELS / "attention_backward")]
    try:
        yield [importlib.import_module(name) for name in names]
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known:
            if name.startswith(TABLES):
                del sys.modules[name]


@pytest.fixture
def references():
    with imported("attention_baseline", "attention_backward_baseline") as modules:
        yield modules[0].attention, modules[1].attention_backward


def doubles(*shape, seed):
    import torch

    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("hiding", HIDING, ids=str)
def test_the_gradients_formula_is_the_derivative_of_the_reference(hiding, masked, references):
    """Forward by one reference, backward by the other: gradcheck compares them with differences."""
    import torch

    forward, backward = references
    q, k, v = doubles(2, 2, 3, 2, seed=1), doubles(2, 1, 4, 2, seed=2), doubles(2, 1, 4, 2, seed=3)
    mask = torch.tensor([[True, True, False, True], [False] * 4]) if masked else None

    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            out = forward(q, k, v, mask, **hiding, seed=5)
            ctx.save_for_backward(q, k, v, out)
            return out

        @staticmethod
        def backward(ctx, grad):
            q, k, v, out = ctx.saved_tensors
            return backward(q, k, v, out, sums(q, k, mask, **hiding), grad, mask, **hiding, seed=5)

    assert torch.autograd.gradcheck(Both.apply, (q, k, v))


def sums(q, k, mask, causal=False, window=NOTHING, scale=None, dropout=0.0):
    """The base-2 logarithm of what each query adds up, from plain loops."""
    import torch

    left, right = (math.inf if side is None else side for side in window)
    right = 0 if causal else right
    scale = q.shape[3] ** -0.5 if scale is None else scale
    full = torch.full(q.shape[:3], -torch.inf, dtype=torch.float64)
    for b in range(q.shape[0]):
        for head in range(q.shape[1]):
            own = head // (q.shape[1] // k.shape[1])
            for i in range(q.shape[2]):
                place = i + k.shape[2] - q.shape[2]
                near = range(int(max(place - left, 0)), int(min(place + right, k.shape[2] - 1)) + 1)
                keys = [j for j in near if mask is None or mask[b, j]]
                full[b, head, i] = torch.logsumexp(k[b, own, keys] @ q[b, head, i] * scale, 0) / math.log(2)
    return full


# --- on a GPU ---------------------------------------------------------------------------------------------------------


def half_tensors(heads, key_heads, queries, keys, width, kind):
    import torch

    made = torch.Generator("cuda").manual_seed(3)
    shapes = (heads, queries), (key_heads, keys), (key_heads, keys), (heads, queries)
    return [torch.randn((2, *shape, width), generator=made, dtype=kind, device="cuda") for shape in shapes]


# --- groups of warps on a GPU -----------------------------------------------------------------------------------------

ENDS = [
    (1, 1), (1, 4100), (127, 128), (128, 127), (129, 129), (200, 200), (200, 4096), (4096, 200), (129, 4100),
    (4100, 4100), (4096, 4100), (4100, 129), (1000, 1),
]  # fmt: skip
"""queries, keys"""
WAYS = [(2, False, False), (2, True, False), (3, True, False), (2, False, True), (2, True, True)]
"""stages, ahead, persistent; of other widths queries of a tile and keys of a block too, which are 128 here"""
OTHER_WAYS = {
    64: [(2, False, False), (4, True, True), (2, False, False, 192, 128), (4, True, True, 192, 128)],
    256: [(2, False, False, 128, 64), (2, True, True, 128, 64), (4, True, False, 128, 32)],
}
OTHER_ENDS = [
    (1, 1, "bfloat16"), (127, 128, "bfloat16"), (200, 200, "bfloat16"), (200, 4096, "bfloat16"),
    (4096, 200, "bfloat16"), (4096, 4160, "bfloat16"), (4100, 4100, "bfloat16"), (1000, 1, "bfloat16"),
    (129, 4100, "float16"), (4608, 4608, "float16"),
]  # fmt: skip
"""queries, keys, dtype"""


@contextlib.contextmanager
def in_groups(monkeypatch):
    """The op, a function that sends every call one way, and all ways that are here; None: without groups of warps."""
    with imported("attention_triton") as (ours,):
        import torch

        groups, choose, split = ours.attention_groups, ours.choose_config, ours.choose_split
        here = groups is not None and groups.available(ours._launch.limits(torch.device("cuda", 0)))

        def by(way):
            stages, ahead, persistent, block_m, block_n = (*(way or WAYS[0]), 128, 128)[:5]
            config = ours.Config(block_m, block_n, 4 + block_m // 16, stages, ahead=ahead, persistent=persistent)
            monkeypatch.setattr(ours, "choose_config", (lambda *_: config) if way else choose)
            monkeypatch.setattr(ours, "choose_split", (lambda *_: None) if way else split)
            monkeypatch.setattr(ours, "attention_groups", groups if way else None)

        yield ours, by, WAYS if here else [None]


def found_right(q, k, v, causal, ours, by, ways):
    """Output, sums, and the same bits again by each way, in memory that held NaN before."""
    import torch

    right, logarithms = exactly(q, k, v, causal)
    room = 6e-3 if q.dtype == torch.bfloat16 else 2e-3
    for way in ways:
        by(way)
        spoilt = torch.full_like(q, torch.nan)
        del spoilt  # what the output is likely to lie in
        (out, sums), (again, _) = (ours.attention_forward(q, k, v, causal=causal) for _ in range(2))
        assert (out - right).norm() <= room * right.norm(), way
        torch.testing.assert_close(sums, logarithms, rtol=1e-5, atol=1e-4)
        assert torch.equal(out, again), way


def exactly(q, k, v, causal):
    """Output in float64, and the base-2 logarithms of what each query adds up, head by head."""
    import torch

    out, sums = torch.empty(q.shape, dtype=torch.float64, device=q.device), torch.empty(q.shape[:3], device=q.device)
    hidden = torch.ones(q.shape[2], k.shape[2], device=q.device).triu(1 + k.shape[2] - q.shape[2]).bool()
    for b in range(q.shape[0]):
        for head in range(q.shape[1]):
            own = head // (q.shape[1] // k.shape[1])
            scores = q[b, head].double() @ k[b, own].double().T * q.shape[3] ** -0.5
            scores = scores.masked_fill(hidden, -torch.inf) if causal else scores
            out[b, head] = scores.softmax(-1).nan_to_num(0) @ v[b, own].double()
            sums[b, head] = torch.logsumexp(scores, -1) / math.log(2)
    return out, sums


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), ENDS, ids=str)
def test_groups_of_warps_are_right_at_every_end_on_the_gpu(queries, keys, causal, kind, monkeypatch):
    """Heads share key heads."""
    import torch

    q, k, v, _ = half_tensors(6, 2, queries, keys, 128, getattr(torch, kind))
    with in_groups(monkeypatch) as (ours, by, ways):
        found_right(q, k, v, causal, ours, by, ways)


@pytest.mark.cuda
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys", "kind"), OTHER_ENDS, ids=str)
@pytest.mark.parametrize("padded", OTHER_WAYS)
def test_groups_of_warps_of_other_widths_are_right_on_the_gpu(padded, queries, keys, kind, causal, monkeypatch):
    """As wide as a tile, and a little less."""
    import torch

    with in_groups(monkeypatch) as (ours, by, ways):
        for width in (padded, padded - 24):
            q, k, v, _ = half_tensors(4, 2, queries, keys, width, getattr(torch, kind))
            found_right(q, k, v, causal, ours, by, OTHER_WAYS[padded] if ways[0] else ways)


@pytest.mark.cuda
@pytest.mark.parametrize("padded", [128, *OTHER_WAYS])
def test_groups_of_warps_of_every_width_weigh_large_scores_and_keep_nan_apart_on_the_gpu(padded, monkeypatch):
    import torch

    q, k, v, _ = half_tensors(2, 2, 300, 520, padded, torch.bfloat16)
    broken = q.clone()
    broken[0, 1, 5] = torch.nan
    broken[1, 0, 140, 3] = torch.inf
    with in_groups(monkeypatch) as (ours, by, ways):
        right, _ = exactly(q * 2**15, k * 2**15, v, True)
        for way in OTHER_WAYS.get(padded, ways) if ways[0] else ways:
            by(way)
            assert (ours.attention(q * 2**15, k * 2**15, v, causal=True) - right).norm() <= 1e-2 * right.norm()
            rows = ours.attention(broken, k, v, causal=True).isnan().any(-1).nonzero().tolist()
            assert rows == [[0, 1, 5], [1, 0, 140]]


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")
def test_gradients_through_groups_of_warps_are_those_of_the_other_kernel_on_the_gpu(monkeypatch):
    import torch

    *qkv, grad = half_tensors(4, 2, 300, 420, 128, torch.bfloat16)
    shapes = []
    with in_groups(monkeypatch) as (ours, by, ways):
        for way in (ways[0], ways[-1], None):
            by(way)
            leaves = [tensor.detach().requires_grad_() for tensor in qkv]
            shapes.append(torch.autograd.grad(ours.attention(*leaves, causal=True), leaves, grad))
    for gradients in shapes[:2]:
        for one, other in zip(gradients, shapes[2], strict=True):
            assert (one - other).norm() <= 1e-2 * other.norm()
