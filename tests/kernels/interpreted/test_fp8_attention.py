"""Indices, masks, scales and how weights are rounded: the interpreter multiplies in float32, without tensor cores."""

import itertools
import random

import fp8_attention_baseline as baseline
import pytest
import torch
from fp8_attention_accuracy import accuracy

import perfci
from tests import triton_versions

pytestmark = pytest.mark.nightly
OP = "fp8_attention"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
ROOM = 0.1
"""Effect of rounding the weights, explained in kernels/fp8_attention/fp8_attention_accuracy.py."""


def inputs(heads=2, key_heads=1, queries=20, keys=30, width=16, scaling="tensor", dtype=E4M3, batch=1, **others):
    sizes = batch, heads, key_heads, queries, keys, width
    return baseline.make_inputs(*sizes, scaling, dtype, others.pop("out_dtype", torch.float32), "cpu", 5, **others)


def wide(made):
    return {name: value.float().double() if torch.is_tensor(value) else value for name, value in made.items()}


def check(module, made, room=ROOM):
    got = module.fp8_attention(**made)
    assert got.is_contiguous() and got.dtype == made["out_dtype"]
    wanted = defined(**made)
    torch.testing.assert_close(got.double(), wanted, rtol=8e-3, atol=room)
    return got


def defined(q, k, v, scale_v, scale_q=None, scale_k=None, causal=False, scale=None, out_dtype=None, cast=None):
    """The definition, query by query in float64. `cast`: a dtype that weights are rounded to, beside their maximum."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    q, k, v = (_plain(*pair) for pair in ((q, scale_q), (k, scale_k), (v, scale_v)))
    for b, head, i in itertools.product(*map(range, q.shape[:3])):
        own, seen = head // (q.shape[1] // k.shape[1]), i + 1 + k.shape[2] - q.shape[2] if causal else k.shape[2]
        if seen <= 0:
            continue
        scores = k[b, own, :seen] @ q[b, head, i] * (q.shape[3] ** -0.5 if scale is None else scale)
        weights = torch.exp(scores - scores.max())
        rounded = weights if cast is None else (weights * 2**8).float().to(cast).double() / 2**8
        out[b, head, i] = rounded @ v[b, own, :seen] / weights.sum()
    return out


def _plain(values, scale):
    values = values.float().double()
    if scale is None or scale.ndim == 0:
        return values * (1 if scale is None else scale)
    tokens = values.shape[2]
    places = torch.arange(tokens)
    if scale.shape[2] not in {1, tokens}:
        places = places // 128
    return values * scale.double()[:, :, places if scale.shape[2] > 1 else slice(None)]


@pytest.mark.parametrize("case", accuracy.cases, ids=perfci.case_id)
def test_the_reference_is_the_definition(case, suite):
    made = suite.make_inputs(**case, device="cpu", seed=7)
    got = baseline.fp8_attention(**wide(made))

    assert got.dtype is torch.float64
    torch.testing.assert_close(got, defined(**made), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize("scaling", ["tensor", "channel", "group"])
def test_weights_are_rounded_as_pytorch_casts(scaling, dtype, module):
    """To a part of what rounding itself does: only weights on the edge between two values may fall otherwise."""
    made = inputs(queries=16, keys=32, width=32, scaling=scaling, dtype=dtype)
    got = module.fp8_attention(**made).double()

    emulated, exact = defined(**made, cast=dtype), defined(**made)

    assert (got - emulated).norm() < 0.2 * (emulated - exact).norm()


def combinations(count):
    choose = random.Random(11)
    for index in range(count):
        heads, key_heads = choose.choice([(1, 1), (4, 2), (3, 1)])
        case = {"heads": heads, "key_heads": key_heads, "queries": choose.randint(1, 40), "keys": choose.randint(1, 60),
                "width": choose.randint(1, 40), "scaling": choose.choice(["tensor", "channel", "group"]),
                "causal": choose.random() < 0.6, "along_keys": choose.random() < 0.5,
                "parts": choose.choice(["qkv", "qkv", "v"]), "out_dtype": torch.float16}  # fmt: skip
        yield pytest.param(case, id=str(index))


@pytest.mark.parametrize("how", [*combinations(16)])
def test_every_kind_of_tile_is_right(how, module, monkeypatch):
    monkeypatch.setattr(module, "choose_config", lambda *_: module.Config(16, 16, 4, 1))

    check(module, inputs(**how))


@pytest.mark.parametrize("kinds", [*itertools.product(("tensor", "channel", "group"), repeat=3)], ids="-".join)
def test_scales_of_every_kind_meet(kinds, module):
    parts = [inputs(4, 2, 10, 140, 16, scaling=scaling) for scaling in kinds]
    made = dict(parts[0])
    for part, name in zip(parts, "qkv", strict=True):
        made |= {name: part[name], f"scale_{name}": part[f"scale_{name}"]}

    check(module, made)


@triton_versions.needs_descriptors
def test_descriptors_and_pointers_give_the_same(module, monkeypatch):
    import _tma

    made = inputs(width=24, keys=70, queries=50, causal=True, scaling="channel")
    rows = made | {name: torch.zeros(*made[name].shape[:3], 32).to(E4M3) for name in "qk"}
    for name in "qk":  # rows of whole 16 bytes, so that all but the output has descriptors
        rows[name].copy_(torch.nn.functional.pad(made[name].float(), (0, 8)))
        rows[name] = rows[name][..., :24]
    used = []
    described = module._attention.described
    monkeypatch.setattr(module._attention, "described", lambda *given: used.append(1) or described(*given))

    by_descriptor = module.fp8_attention(**rows)
    assert used
    monkeypatch.setattr(_tma, "available", lambda *_: False)
    used.clear()

    assert torch.equal(module.fp8_attention(**rows), by_descriptor)
    assert not used
    assert torch.equal(module.fp8_attention(**rows | {"v": rows["v"].contiguous()}), by_descriptor)
