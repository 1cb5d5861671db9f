"""attention's groups of warps without a GPU: which calls get them, and which forms a search tries."""

import pytest

from tests import triton_versions
from tests.kernels.test_attention import imported
from tests.kernels.test_spaces import made as regimes_of

GROUPS = (3, 6) <= triton_versions.VERSION <= (3, 7)
pytestmark = pytest.mark.torch
needs_groups = pytest.mark.skipif(not GROUPS, reason="warps work in groups with Triton 3.6 and 3.7")


def tensors(batch, heads, key_heads, queries, keys, width, dtype="bfloat16", seed=5):
    import torch

    made = torch.Generator().manual_seed(seed)
    shapes = (heads, queries), (key_heads, keys), (key_heads, keys)
    return [torch.randn((batch, *shape, width), generator=made).to(getattr(torch, dtype)) for shape in shapes]


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
        monkeypatch.setattr(module, "split", way("split"))
        if module.attention_groups:
            monkeypatch.setattr(module.attention_groups, "launch", way("groups"))

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
    "half as wide": ({"width": 64}, {}),
    "twice as wide": ({"width": 256}, {"causal": True}),
    "nearly twice as wide": ({"width": 200}, {}),
}
LEFT = {
    "a window to the left": ({}, {"window": (9, None)}, "whole"),
    "a window to the right": ({}, {"window": (None, 9)}, "whole"),
    "a causal window": ({}, {"causal": True, "window": (9, None)}, "whole"),
    "dropout": ({}, {"dropout": 0.1}, "whole"),
    "half as wide and causal, where the loop measured faster": ({"width": 64}, {"causal": True}, "whole"),
    "twice as wide under a window": ({"width": 256}, {"window": (9, None)}, "whole"),
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
    turned = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v)]
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

    assert [entry.warps == module.GROUPED for entry in config] == [True, False]
    monkeypatch.setattr(module.attention_groups, "available", lambda _: False)
    assert chosen(*made(), causal=True) == "whole"
    monkeypatch.setattr(module, "attention_groups", None)
    assert chosen(*made(), causal=True) == "whole"


# --- which forms may be tried -----------------------------------------------------------------------------------------


def grids(device):
    """Of the entries for which groups may be tried, by width."""
    made = ((regime.when["width_max"], grid) for regime, grid in regimes_of("attention", device))
    return [(width, grid) for width, grid in made if max(grid.lists["warps"]) >= 12]


def test_a_search_tries_groups_at_every_width_and_what_shared_memory_holds():
    tried = {}
    for width, grid in grids("nvidia-h200"):
        tried.setdefault(width, []).extend(config for config in grid.coarse if config["warps"] >= 12)

    assert {(width, entry["block_m"], entry["block_n"]) for width in tried for entry in tried[width]} == {
        (64, 128, 128), (64, 192, 128), (128, 128, 128), (256, 128, 64),
    }  # fmt: skip
    for width, configs in tried.items():
        for entry in configs:
            rows = entry["block_m"] * (2 if entry["persistent"] and width < 256 else 1)
            assert (rows + 2 * entry["block_n"] * entry["stages"]) * width * 2 < 232448
            assert entry["warps"] == 4 + entry["block_m"] // 16
    assert {entry["persistent"] for entry in tried[256]} == {False, True}
    assert not any(config["warps"] >= 12 for _, grid in grids("nvidia-a100") for config in grid.coarse)
