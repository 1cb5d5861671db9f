"""fp8_matmul's groups of warps: what a stand-in for Gluon computes, what the compiler makes of them, who gets them."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import triton_versions

GROUPS = (3, 6) <= triton_versions.VERSION <= (3, 7)
pytestmark = pytest.mark.torch
needs_groups = pytest.mark.skipif(not GROUPS, reason="warps work in groups with Triton 3.6 and 3.7")

# --- on a stand-in for Gluon ------------------------------------------------------------------------------------------

LIMITS = SimpleNamespace(shared_bytes=232448)
SIZES = [(128, 256, 256), (300, 520, 400), (65, 136, 128), (200, 392, 1040), (129, 264, 912)]
"""m, n, k: whole, ragged, one strip, and strips that are not a multiple of two"""
FORMS = [(256, 4), (256, 3), (256, 2), (128, 4), (128, 2)]
"""columns of a tile, stages"""


@pytest.fixture(scope="module")
def groups():
    from tests.kernels.gluon_groups import standing_in

    with standing_in("_fp8_blocks") as module:
        yield module


def operands(m, n, k, dtype="float8_e4m3fn"):
    """a, b, and their scales of blocks, those of b transposed in memory."""
    import torch

    made = torch.Generator().manual_seed(7)
    a, b = (torch.randn((rows, k), generator=made).to(getattr(torch, dtype)) for rows in (m, n))
    of_k, of_n = -(-k // 128), -(-n // 128)
    of_a, of_b = (torch.rand(sides, generator=made) + 0.5 for sides in ((m, of_k), (of_n, of_k)))
    return a, b.t(), of_a, of_b.t()


def called(module, a, b, of_a, of_b, out="bfloat16", form=FORMS[0], programs=2):
    """The product, from memory full of NaN."""
    import torch

    (m, _), n, (width, stages) = a.shape, b.shape[1], form
    result = torch.full((m, n), torch.nan, dtype=getattr(torch, out))
    config = SimpleNamespace(block_n=width, stages=stages, group_m=2)
    strides, tiles = (*of_a.stride(), *of_b.stride()), -(-m // 128) * -(-n // width)
    module.launch(a, b, result, of_a, of_b, strides, config, min(programs, tiles), tiles, LIMITS)
    return result


def defined(a, b, of_a, of_b):
    total = 0.0
    for block, strip in enumerate(of_b.double().repeat_interleave(128, 1)[:, : b.shape[1]]):
        inner = slice(block * 128, block * 128 + 128)
        product = a[:, inner].float().double() @ b[inner].float().double()
        total = total + product * (of_a[:, block, None].double() * strip)
    return total


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_are_those_of_the_definition(sizes, form, groups):
    """Every element is written, and nothing of a strip, a half or rows that are not there counts."""
    given = operands(*sizes)

    right = defined(*given)
    assert (called(groups, *given, form=form) - right).norm() <= 3e-3 * right.norm()
    assert (called(groups, *given, out="float32", form=form) - right).norm() <= 1e-5 * right.norm()


def test_the_other_format_is_multiplied_too(groups):
    given = operands(130, 296, 272, "float8_e5m2")

    right = defined(*given)
    assert (called(groups, *given, out="float16") - right).norm() <= 1e-3 * right.norm()


@pytest.mark.parametrize("programs", [1, 3, 100])
def test_tiles_are_shared_out_over_any_number_of_programs(programs, groups):
    import torch

    given = operands(500, 1000, 272)

    assert torch.equal(called(groups, *given, programs=programs), called(groups, *given, programs=2))


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("late", [0, 1])
def test_a_group_that_is_behind_still_finds_its_strips(late, form, groups, monkeypatch):
    multiply, product, here = groups._multiply, groups._product, threading.local()

    def multiplying(*given):
        here.late = given[8] == late
        return multiply(*given)

    def delayed(*given):
        time.sleep(0.002 * here.late)
        return product(*given)

    monkeypatch.setattr(groups, "_multiply", multiplying)
    monkeypatch.setattr(groups, "_product", delayed)
    given = operands(256, 512, 656)
    right = defined(*given)
    assert (called(groups, *given, form=form, programs=1) - right).norm() <= 3e-3 * right.norm()


def test_infinite_and_missing_scales_stay_where_they_are_though_a_strip_of_zeros_follows(groups):
    import torch

    a, b, of_a, of_b = operands(140, 264, 272)
    of_a[3, 2], of_a[130, 0], of_b[2, 1] = torch.inf, torch.nan, torch.inf
    out, right = called(groups, a, b, of_a, of_b), defined(a, b, of_a, of_b)

    assert right.isnan()[130].all()
    assert right.isinf()[3].any()
    assert torch.equal(out.isnan(), right.isnan())
    assert torch.equal(out.isinf(), right.isinf())


def test_stages_and_buffers_fit_into_shared_memory(groups):
    """Every part of an answer waits in a buffer of its own where stages leave room for that."""

    def room(width, stages, itemsize):
        return groups.room(SimpleNamespace(block_n=width, stages=stages), itemsize, LIMITS)

    assert [room(256, stages, 2) for stages in (3, 4, 5)] == [(3, 4), (4, 2), (4, 2)]
    assert [room(256, stages, 4) for stages in (2, 3, 4)] == [(2, 4), (3, 2), (3, 2)]
    assert [room(128, stages, 2) for stages in (4, 6, 7)] == [(4, 2), (6, 2), (6, 2)]


# --- what the compiler makes of them ----------------------------------------------------------------------------------


def compiles(test):
    """Marks a test that compiles for an H200."""
    return pytest.mark.slow(triton_versions.needs_own_ops(triton_versions.needs_descriptors(test)))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}
    script = Path(__file__).with_name("compile_fp8_matmul_blocks.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def grouped(compiled):
    found = [launch for launch in compiled if launch["kernel"] == "_fp8_block_kernel"]
    assert {launch["out"] for launch in found} == {"bfloat16", "float16", "float32"}
    assert {launch["parts"] for launch in found} == {2, 4}
    return found


@compiles
@needs_groups
def test_large_products_of_every_output_are_multiplied_in_groups_and_small_ones_are_not(compiled):
    tuned = [launch for launch in compiled if launch["gluon"] and launch["parts"] == 4]
    by_groups = {(launch["m"], launch["kernel"] == "_fp8_block_kernel") for launch in tuned}

    assert by_groups == {(4096, True), (1000, True), (64, False)}


@compiles
def test_without_gluon_the_next_entry_serves_the_call(compiled):
    assert [launch["kernel"] for launch in compiled if not launch["gluon"]] == ["_fp8_tma_kernel"]


@compiles
@needs_groups
def test_no_group_spills_a_register_or_leaves_shared_memory(grouped):
    assert {launch["spilled"] for launch in grouped} == {0}
    assert max(launch["shared"] for launch in grouped) <= 232448
    assert {launch["warps"] for launch in grouped} == {12}


@compiles
@needs_groups
def test_a_sum_is_scaled_and_added_by_one_instruction(grouped):
    """Two groups, in each round two strips of so many parts, of 32 values a thread."""
    for launch in grouped:
        assert launch["products"] == 2 * 2 * launch["parts"] * (128 // 32)
        assert launch["additions"] == 2 * 2 * launch["parts"] * 32


@compiles
@needs_groups
def test_the_next_part_is_always_under_way_but_at_the_end_of_a_round(grouped):
    """And the assembler adds no wait, as it does after each product where it cannot follow the registers."""
    for launch in grouped:
        assert sorted(launch["waited_for"]) == ["0"] * 2 + ["1"] * 2 * (2 * launch["parts"] - 1)
        assert launch["waits"] == len(launch["waited_for"])
