"""attention's groups of warps without a GPU: what a stand-in for Gluon computes, which calls get them, the code."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import triton_versions
from tests.kernels.test_attention import imported

GROUPS = (3, 6) <= triton_versions.VERSION <= (3, 7)
pytestmark = pytest.mark.torch
needs_groups = pytest.mark.skipif(not GROUPS, reason="warps work in groups with Triton 3.6 and 3.7")

# --- on a stand-in for Gluon ------------------------------------------------------------------------------------------

LIMITS = SimpleNamespace(programs=2**31 - 1, grid=(2**31 - 1, 65535, 65535), processors=3, l2_bytes=2**18)
CONFIGS = [(2, False, False), (3, True, False), (2, True, True)]
SIZES = [
    (1, 2, 1, 128, 128, 128), (2, 4, 2, 300, 300, 128), (1, 2, 2, 200, 515, 80), (1, 2, 1, 515, 200, 128),
    (1, 1, 1, 1, 700, 128), (1, 3, 3, 64, 65, 72), (1, 5, 1, 640, 640, 128), (1, 1, 1, 257, 1, 128),
]  # fmt: skip
"""batch, heads, heads of keys, queries, keys, width"""


@pytest.fixture(scope="module")
def groups():
    from tests.kernels.gluon_groups import standing_in

    with standing_in() as module:
        yield module


def tensors(batch, heads, key_heads, queries, keys, width, dtype="bfloat16", seed=5):
    import torch

    made = torch.Generator().manual_seed(seed)
    shapes = (heads, queries), (key_heads, keys), (key_heads, keys)
    return [torch.randn((batch, *each, width), generator=made).to(getattr(torch, dtype)) for each in shapes]


def called(module, q, k, v, causal, config=CONFIGS[0], limits=LIMITS):
    """Output and sums, from memory full of NaN."""
    import torch

    out, sums = torch.full(q.shape, torch.nan, dtype=q.dtype), torch.full(q.shape[:3], torch.nan)
    stages, ahead, persistent = config
    config = SimpleNamespace(stages=stages, ahead=ahead, persistent=persistent)
    assert module.launch(q, k, v, out, sums, q.shape[3] ** -0.5 * math.log2(math.e), causal, config, limits)
    return out, sums


def defined(q, k, v, causal):
    import torch

    k, v = (each.double().repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
    scores = q.double() @ k.transpose(-1, -2) * q.shape[3] ** -0.5
    if causal:
        scores.masked_fill_(torch.ones(scores.shape[-2:]).triu(1 + k.shape[2] - q.shape[2]).bool(), -torch.inf)
    return scores.softmax(-1).nan_to_num(0) @ v, torch.logsumexp(scores, -1) / math.log(2)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_output_and_sums_are_those_of_the_definition(sizes, causal, config, groups):
    """Each query is written, each group is served, and a query that sees no key gives 0 and -inf."""
    import torch

    out, sums = called(groups, *tensors(*sizes), causal, config)

    right, logarithms = defined(*tensors(*sizes), causal)
    assert (out - right).norm() <= 3e-3 * right.norm()
    torch.testing.assert_close(sums, logarithms.float(), rtol=1e-5, atol=1e-5)


def test_any_strides_that_a_descriptor_takes_are_read_as_they_are(groups):
    """(batch, sequence, heads, width) seen as (batch, heads, sequence, width)."""
    import torch

    q, k, v = tensors(2, 4, 2, 200, 150, 128)
    turned = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v)]
    out = [called(groups, *given, True)[0] for given in ((q, k, v), turned)]

    assert not turned[0].is_contiguous()
    assert torch.equal(*out)


@pytest.mark.parametrize("causal", [False, True])
def test_large_scores_leave_the_nearest_keys_alone(causal, groups):
    """Scores beyond 2**30, of which float32 has no digit behind the point."""
    q, k, v = tensors(1, 2, 1, 140, 300, 128)
    q, k = q * 2**15, k * 2**15
    out, sums = called(groups, q, k, v, causal)

    right, logarithms = defined(q, k, v, causal)
    assert (out - right).norm() <= 1e-2 * right.norm()
    assert (sums / logarithms - 1).abs().max() < 1e-5


def test_values_that_are_none_stay_in_their_rows(groups):
    q, k, v = tensors(1, 1, 1, 140, 200, 128)
    q[0, 0, 3] = math.nan
    q[0, 0, 77, 5] = math.inf
    out, sums = called(groups, q, k, v, False)

    broken = out.isnan().any(-1)[0, 0].nonzero()[:, 0].tolist()
    assert broken == sums.isnan()[0, 0].nonzero()[:, 0].tolist() == [3, 77]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("processors", [1, 4, 100])
def test_programs_that_go_on_to_other_tiles_do_each_once(processors, causal, groups, monkeypatch):
    """An odd number of tiles a head, so that one has no partner."""
    import torch

    copied, copy_tile = [], groups._copy_tile
    monkeypatch.setattr(groups, "_copy_tile", lambda *given: copied.append(given[6:8]) or copy_tile(*given))
    q, k, v = tensors(1, 3, 1, 580, 580, 128)
    several = SimpleNamespace(**vars(LIMITS) | {"processors": processors})
    out, _ = called(groups, q, k, v, causal, CONFIGS[2], several)

    assert sorted(copied) == [(head, 128 * tile) for head in range(3) for tile in range(5)]
    assert torch.equal(out, called(groups, q, k, v, causal, (2, True, False))[0])


def test_more_tiles_than_programs_are_left_to_the_other_kernel(groups):
    few = SimpleNamespace(**vars(LIMITS) | {"programs": 5})
    config = SimpleNamespace(stages=2, ahead=False, persistent=False)

    assert not groups.launch(*tensors(1, 3, 1, 200, 200, 128), None, None, 1.0, False, config, few)


@pytest.mark.parametrize(("keys", "heads"), [(4096, 12), (1024, 50), (10**6, 1)])
def test_as_many_heads_take_turns_as_half_the_cache_holds(keys, heads, groups):
    limits = SimpleNamespace(l2_bytes=50 * 2**20)

    assert groups.heads_at_once(keys, 1, 256, limits) == heads
    assert groups.heads_at_once(keys, 4, 256, limits) == 4 * heads


# --- which calls get them ---------------------------------------------------------------------------------------------


@pytest.fixture
def chosen(monkeypatch):
    """A function that gives which way a call goes on an H200: groups, split or whole."""
    monkeypatch.setenv("KERNELS_AS_DEVICE", "nvidia-h200")
    with imported("attention_triton") as (module,):
        gone = []

        def way(name, **takes):
            return lambda *given, **_: gone.append(name) or takes.get("answer", True)

        monkeypatch.setattr(module, "_whole", way("whole"))
        monkeypatch.setattr(module, "_split", way("split"))
        if module._attention_groups:
            monkeypatch.setattr(module._attention_groups, "launch", way("groups"))

        def of(q, k, v, **how):
            gone.clear()
            module.attention(q, k, v, **how)
            return gone[-1]

        of.module = module
        yield of


TAKEN = {
    "plain": ({}, {}),
    "causal": ({}, {"causal": True}),
    "causal as a window": ({}, {"window": (None, 0)}),
    "a window of everything": ({}, {"window": (5000, 5000), "causal": True}),
    "more queries than keys": ({"queries": 300, "keys": 200}, {"causal": True}),
    "float16": ({"dtype": "float16"}, {}),
    "narrower": ({"width": 72}, {"causal": True}),
}
LEFT = {
    "a window to the left": ({}, {"window": (9, None)}, "whole"),
    "a window to the right": ({}, {"window": (None, 9)}, "whole"),
    "a causal window": ({}, {"causal": True, "window": (9, None)}, "whole"),
    "dropout": ({}, {"dropout": 0.1}, "whole"),
    "half as wide": ({"width": 64}, {}, "whole"),
    "twice as wide": ({"width": 256}, {}, "whole"),
    "rows that no descriptor takes": ({"width": 100}, {}, "whole"),
    "float32": ({"dtype": "float32"}, {}, "whole"),
    "few queries": ({"queries": 64, "heads": 4, "key_heads": 1}, {}, "whole"),
    "fewer queries": ({"queries": 16}, {"causal": True}, "split"),
}


def made(batch=1, heads=2, key_heads=1, queries=300, keys=300, width=128, dtype="bfloat16"):
    return tensors(batch, heads, key_heads, queries, keys, width, dtype)


@needs_groups
@pytest.mark.parametrize("name", TAKEN)
def test_groups_take_a_call(name, chosen):
    sizes, how = TAKEN[name]

    assert chosen(*made(**sizes), **how) == "groups"


@pytest.mark.parametrize("name", LEFT)
def test_groups_leave_a_call_alone(name, chosen):
    sizes, how, way = LEFT[name]

    assert chosen(*made(**sizes), **how) == way


@needs_groups
def test_groups_take_what_is_strided_by_16_bytes_and_begins_there(chosen):
    import torch

    q, k, v = made()
    turned = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v)]
    apart = torch.cat([k, k, k], -1)[..., 128:256]

    assert chosen(*turned, causal=True) == chosen(q, apart, v) == "groups"
    assert chosen(q, k, torch.stack([v, v], -1)[..., 0]) == "whole"
    assert chosen(q, torch.cat([k, k], -1)[..., 4:132], v) == "whole"
    assert chosen(q, k[:, :, :1].expand(k.shape), v) == "whole"
    assert chosen(q, k, v, mask=torch.ones(1, 300, dtype=torch.bool)) == "whole"


@needs_groups
def test_without_groups_the_next_entry_serves_the_call(chosen, monkeypatch):
    module = chosen.module
    limits = module._launch.limits(made()[0].device)
    config = [module.choose_config(300, 128, 2, 1, False, limits, groups) for groups in (True, False)]

    assert [each.warps == module.GROUPED for each in config] == [True, False]
    monkeypatch.setattr(module._attention_groups, "available", lambda _: False)
    assert chosen(*made(), causal=True) == "whole"
    monkeypatch.setattr(module, "_attention_groups", None)
    assert chosen(*made(), causal=True) == "whole"


@needs_groups
def test_a_call_that_groups_send_back_is_done_by_the_next_entry(chosen, monkeypatch):
    monkeypatch.setattr(chosen.module._attention_groups, "launch", lambda *_: False)

    assert chosen(*made(), causal=True) == "whole"


# --- compiled for an H200 ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}
    script = Path(__file__).with_name("compile_attention_groups.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@needs_groups
def test_no_group_spills_a_register_or_leaves_shared_memory(compiled):
    assert {launch["kernel"] for launch in compiled} == {"_attention_group_kernel"}
    assert {launch["spilled"] for launch in compiled} == {0}
    assert max(launch["shared"] for launch in compiled) <= 232448
    assert {launch["warps"] for launch in compiled} == {12}
    assert {launch["copies"] for launch in compiled} == {2 * 2 + 2 * 2}  # q of both groups, k and v, in halves


@pytest.mark.slow
@needs_groups
def test_products_run_in_pairs_of_which_the_first_alone_is_waited_for(compiled):
    """Of each group: the first scores, those of a loop beside the last weights' product, and the last product.

    8 instructions a product. One loop, and one that masks where tiles of queries end within blocks of keys.
    """
    for launch in compiled:
        assert launch["products"] == 2 * 8 * (2 + 2 * launch["masks"])
        assert launch["waited_for"] == ["0"] * 2 * (2 + launch["masks"]) + ["1"] * 2 * launch["masks"]


@pytest.mark.slow
@needs_groups
def test_scores_are_scaled_after_the_maximum_is_taken_off(compiled):
    """One exponential a score, 64 a thread, and two rows' fades; nothing fused with a score before it."""
    for launch in compiled:
        assert launch["exponentials"] == 2 * (64 + launch["masks"] * (64 + 2))
        assert launch["fused"] < 64


@pytest.mark.slow
@needs_groups
def test_programs_that_go_on_are_as_many_as_processors_or_units_of_work(compiled):
    assert {(launch["persistent"], launch["programs"]) for launch in compiled} == {(False, 64), (True, 64), (True, 32)}
