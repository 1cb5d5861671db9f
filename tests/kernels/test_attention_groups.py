"""attention's groups of warps without a GPU: what a stand-in for Gluon computes, which calls get them, the code."""

import json
import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from tests import triton_versions
from tests.kernels.test_attention import imported
from tests.kernels.test_spaces import made as regimes_of

GROUPS = (3, 6) <= triton_versions.VERSION <= (3, 7)
pytestmark = pytest.mark.torch
needs_groups = pytest.mark.skipif(not GROUPS, reason="warps work in groups with Triton 3.6 and 3.7")

# --- on a stand-in for Gluon ------------------------------------------------------------------------------------------

LIMITS = SimpleNamespace(programs=2**31 - 1, grid=(2**31 - 1, 65535, 65535), processors=3, l2_bytes=2**18)


class Form(NamedTuple):
    """What a configuration says of groups."""

    stages: int
    ahead: bool
    persistent: bool
    block_m: int = 128
    block_n: int = 128


CONFIGS = [Form(2, False, False), Form(3, True, False), Form(2, True, True)]
SIZES = [
    (1, 2, 1, 128, 128, 128), (2, 4, 2, 300, 300, 128), (1, 2, 2, 200, 515, 80), (1, 2, 1, 515, 200, 128),
    (1, 1, 1, 1, 700, 128), (1, 3, 3, 64, 65, 72), (1, 5, 1, 640, 640, 128), (1, 1, 1, 257, 1, 128),
]  # fmt: skip
"""batch, heads, heads of keys, queries, keys, width"""
WIDE, SHORT = Form(2, True, True, block_n=64), Form(4, True, False, block_n=32)
LONG = Form(3, True, True, block_m=192)
OTHERS = [
    (256, WIDE), (256, SHORT), (256, Form(2, False, False, block_n=64)), (64, Form(4, True, True)), (64, LONG),
    (64, Form(2, False, False, block_m=192)),
]  # fmt: skip
"""padded width, form"""
ENDS = [
    (2, 4, 2, 300, 300, "bfloat16"),
    (1, 2, 1, 300, 620, "float16"),
    (1, 2, 2, 415, 300, "bfloat16"),
    (1, 1, 1, 1, 1, "float16"),
]
"""batch, heads, heads of keys, queries, keys, dtype"""


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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize(("padded", "config"), OTHERS, ids=str)
def test_other_widths_have_tiles_and_blocks_of_their_own(padded, config, ends, causal, groups):
    """Tiles longer than a block of keys, whose groups leave out what they do not see, and no room for two tiles."""
    import torch

    *sizes, dtype = ends
    given = tensors(*sizes, padded - 24 * (dtype == "float16"), dtype)
    out, sums = called(groups, *given, causal, config)

    right, logarithms = defined(*given, causal)
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
    assert torch.equal(out, called(groups, q, k, v, causal, Form(2, True, False))[0])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("width", "config"), [(256, WIDE), (64, LONG)], ids=str)
def test_programs_of_other_widths_go_on_to_other_tiles_too(width, config, causal, groups):
    """Seven tiles of 128 queries at width 256, whose output leaves before the next queries come; else five of 192."""
    import torch

    q, k, v = tensors(1, 2, 1, 896, 896, width)
    several = SimpleNamespace(**vars(LIMITS) | {"processors": 2})
    out, _ = called(groups, q, k, v, causal, config, several)

    assert torch.equal(out, called(groups, q, k, v, causal, config._replace(persistent=False))[0])
    assert (out - defined(q, k, v, causal)[0]).norm() <= 3e-3 * out.norm()


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize(("width", "config"), [(256, WIDE), (64, LONG)], ids=str)
def test_a_group_that_is_behind_still_finds_its_keys(width, config, late, groups, monkeypatch):
    """Though another has gone on to the next tile, and passed by what it does not see of that one's keys."""
    attend, turned, here = groups._attend, groups._turned, threading.local()

    def attending(given, group, *rest):
        here.late = group == late
        return attend(given, group, *rest)

    def taking(*given):
        time.sleep(0.004 * here.late)
        return turned(*given)

    monkeypatch.setattr(groups, "_attend", attending)
    monkeypatch.setattr(groups, "_turned", taking)
    q, k, v = tensors(1, 2, 1, 384, 384, width)
    out, _ = called(groups, q, k, v, True, config, SimpleNamespace(**vars(LIMITS) | {"processors": 1}))

    assert (out - defined(q, k, v, True)[0]).norm() <= 3e-3 * out.norm()


def test_lengths_within_blocks_leave_some_forms_one_tile_a_program(groups):
    at_once = {(padded, many): groups.tiles_at_once(padded, many, True) for padded in (64, 128, 256) for many in (2, 3)}

    assert at_once == {(64, 2): 2, (64, 3): 0, (128, 2): 2, (128, 3): 0, (256, 2): 0, (256, 3): 0}
    assert [groups.tiles_at_once(padded, 2, False) for padded in (64, 128, 256)] == [2, 2, 1]


def test_more_tiles_than_programs_are_left_to_the_other_kernel(groups):
    few = SimpleNamespace(**vars(LIMITS) | {"programs": 5})

    assert not groups.launch(*tensors(1, 3, 1, 200, 200, 128), None, None, 1.0, False, CONFIGS[0], few)


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
@pytest.mark.parametrize(("width", "way"), [(64, "groups"), (40, "groups"), (32, "whole")])
def test_a_causal_call_of_width_64_is_taken_where_an_entry_asks_for_groups(width, way, chosen, monkeypatch):
    launch, tuned = chosen.module._launch, chosen.module._launch.tuned
    config = {"block_m": 192, "block_n": 128, "warps": 16, "stages": 2}
    entry = {"itemsize": 2, "width_max": 64, "extras": False, "config": config}
    assert chosen(*made(width=width), causal=True) == "whole"
    monkeypatch.setattr(launch, "tuned", lambda *where: (entry, *tuned(*where)))
    chosen.module.choose_config.cache_clear()

    assert chosen(*made(width=width), causal=True) == way
    assert chosen(*made(width=width), window=(9, None)) == "whole"


@needs_groups
def test_a_call_that_groups_send_back_is_done_by_the_next_entry(chosen, monkeypatch):
    monkeypatch.setattr(chosen.module._attention_groups, "launch", lambda *_: False)

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

    assert {(width, each["block_m"], each["block_n"]) for width in tried for each in tried[width]} == {
        (64, 128, 128), (64, 192, 128), (128, 128, 128), (256, 128, 64),
    }  # fmt: skip
    for width, configs in tried.items():
        for each in configs:
            rows = each["block_m"] * (2 if each["persistent"] and width < 256 else 1)
            assert (rows + 2 * each["block_n"] * each["stages"]) * width * 2 < 232448
            assert each["warps"] == 4 + each["block_m"] // 16
    assert {each["persistent"] for each in tried[256]} == {False, True}
    assert not any(config["warps"] >= 12 for _, grid in grids("nvidia-a100") for config in grid.coarse)


def test_a_form_that_does_not_fit_is_refused():
    grid = next(grid for width, grid in grids("nvidia-h200") if width == 256)
    fits = {"block_m": 128, "block_n": 64, "warps": 12, "stages": 2, "fill": 0, "ahead": True, "persistent": True}

    assert grid.is_valid(fits)
    for change in (
        {"stages": 3},
        {"block_m": 192, "warps": 16},
        {"block_m": 64},
        {"warps": 16},
        {"block_n": 32},
        {"block_n": 128},
    ):
        assert not grid.is_valid(fits | change), change


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
    """q of each group that attends, k and v are copied in boxes 64 wide."""
    assert {launch["kernel"] for launch in compiled} == {"_attention_group_kernel"}
    assert {launch["spilled"] for launch in compiled} == {0}
    assert max(launch["shared"] for launch in compiled) <= 232448
    for launch in compiled:
        assert launch["warps"] == 4 + 4 * launch["groups"]
        assert launch["copies"] == (launch["groups"] + 2) * launch["padded"] // 64


@pytest.mark.slow
@needs_groups
def test_products_run_in_pairs_of_which_the_first_alone_is_waited_for(compiled):
    """Of each group: the first scores, those of a loop beside the last weights' product, and the last product.

    As many instructions as scores have 16 of the width, and an output 16 keys. One loop, and one that masks where what
    a group owns may end within a block; of three groups that one waits for each product, as it has fewer registers.
    """
    for launch in compiled:
        groups, loops = launch["groups"], launch["masks"]
        paired = 1 if groups == 3 else loops
        assert launch["products"] == groups * (launch["padded"] + launch["block_n"]) // 16 * (1 + loops)
        assert launch["waited_for"] == ["0"] * groups * (2 + 2 * loops - paired) + ["1"] * groups * paired


@pytest.mark.slow
@needs_groups
def test_scores_are_scaled_after_the_maximum_is_taken_off(compiled):
    """One exponential a score, half a block of them a thread, and two rows' fades; nothing fused with a score before.

    What is fused, the same number of operations however many scores there are, is of the end of a tile.
    """
    for launch in compiled:
        scores = launch["block_n"] // 2
        assert launch["exponentials"] == launch["groups"] * (scores + launch["masks"] * (scores + 2))
        assert launch["fused"] < 30 * launch["groups"]


@pytest.mark.slow
@needs_groups
def test_programs_that_go_on_are_as_many_as_processors_or_units_of_work(compiled):
    """At width 256 and of 192 queries only where no length ends within a block."""
    programs = {
        padded: {
            (each["groups"], each["masks"], each["persistent"], each["programs"])
            for each in compiled
            if each["padded"] == padded
        }
        for padded in (64, 128, 256)
    }

    assert {each[2:] for each in programs[128]} == {(False, 64), (True, 64), (True, 32)}
    assert programs[256] == {(2, 1, True, 32), (2, 2, True, 64), (2, 1, True, 64), (2, 2, False, 64)}
    assert programs[64] == {(2, 1, True, 32), (3, 2, True, 48), (3, 1, True, 48)}
