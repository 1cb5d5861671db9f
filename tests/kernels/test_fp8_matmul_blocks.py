"""fp8_matmul's groups of warps: what the compiler makes of them, and which calls get them."""

import pytest

from tests import triton_versions

GROUPS = (3, 6) <= triton_versions.VERSION <= (3, 7)
SCRIPT = "compile_fp8_matmul_blocks.py"
pytestmark = pytest.mark.torch
needs_groups = pytest.mark.skipif(not GROUPS, reason="warps work in groups with Triton 3.6 and 3.7")


def compiles(test):
    """Marks a test that compiles for an H200."""
    return pytest.mark.nightly(pytest.mark.slow(triton_versions.needs_own_ops(triton_versions.needs_descriptors(test))))


@pytest.fixture
def grouped(compiled):
    by_blocks = [launch for launch in compiled if launch["kernel"] == "_fp8_block_kernel"]
    assert {launch["out"] for launch in by_blocks} == {"bfloat16", "float32"}
    assert {launch["parts"] for launch in by_blocks} == {2, 4}
    return by_blocks


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
