"""What the compiler makes of fp8_matmul's groups of warps, and when a call gets them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import triton_versions

GROUPS = (3, 6) <= triton_versions.VERSION <= (3, 7)
pytestmark = [pytest.mark.torch, pytest.mark.slow, triton_versions.needs_own_ops, triton_versions.needs_descriptors]
needs_groups = pytest.mark.skipif(not GROUPS, reason="warps work in groups with Triton 3.6 and 3.7")


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
    return found


@needs_groups
def test_large_products_of_every_output_are_multiplied_in_groups_and_small_ones_are_not(compiled):
    by_groups = {(launch["m"], launch["kernel"] == "_fp8_block_kernel") for launch in compiled if launch["gluon"]}

    assert by_groups == {(4096, True), (1000, True), (64, False)}


def test_without_gluon_the_next_entry_serves_the_call(compiled):
    assert [launch["kernel"] for launch in compiled if not launch["gluon"]] == ["_fp8_tma_kernel"]


@needs_groups
def test_no_group_spills_a_register_or_leaves_shared_memory(grouped):
    assert {launch["spilled"] for launch in grouped} == {0}
    assert max(launch["shared"] for launch in grouped) <= 232448
    assert {launch["warps"] for launch in grouped} == {12}


@needs_groups
def test_a_sum_is_scaled_and_added_by_one_instruction(grouped):
    """Two groups, each with two halves of 64 values a thread; and a product of each half waited for, no other."""
    for launch in grouped:
        assert launch["products"] == 2 * 2 * (128 // 32)
        assert launch["additions"] == 2 * 2 * 64
        assert launch["waited_for"] == ["0"] * 4
