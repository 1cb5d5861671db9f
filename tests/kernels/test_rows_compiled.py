"""What the compiler makes of all but products and convolutions for an H200."""

import pytest

from tests import triton_versions

SCRIPT = "compile_rows.py"
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.nightly, triton_versions.needs_own_ops]
LOSSES = ("cross_entropy",)
"""ops that write less than they read"""


def main_kernels(compiled):
    """Those that the data goes through, not those that merge a few sums."""
    return [launch for launch in compiled if launch["kernel"] not in {"_total_kernel", "_parts_kernel"}]


def test_no_register_is_spilled(compiled):
    assert [launch for launch in compiled if launch["spilled"] > triton_versions.SPILLS] == []


def test_outputs_are_written_16_bytes_a_thread(compiled):
    written = [launch for launch in main_kernels(compiled) if launch["op"] not in LOSSES]

    assert len(written) >= 30
    assert [launch for launch in written if 16 not in launch["stores"]] == []


def test_inputs_are_read_16_bytes_a_thread(compiled):
    """By loads or by copies ahead, even if rows are no whole vectors, such as those of 50257 classes."""
    read = [
        launch for launch in compiled if launch["kernel"] not in {"_total_kernel", "_join_kernel", "_broadcast_kernel"}
    ]

    assert any("cols=50257" in launch["case"] for launch in read)
    assert [launch for launch in read if 16 not in launch["loads"] and launch["copies"] != ["0x10"]] == []


def test_a_call_is_one_kernel_unless_sums_have_to_be_merged(compiled):
    launches = {}
    for launch in compiled:
        launches.setdefault((launch["op"], launch["case"]), []).append(launch["kernel"])
    several = {case: kernels for case, kernels in launches.items() if len(kernels) > 1}

    assert {tuple(kernels) for kernels in several.values()} == {
        ("_parts_kernel", "_join_kernel"),
        ("_rows_kernel", "_total_kernel"),
        ("_long_rows_kernel", "_total_kernel"),
    }
    assert all("rows=16," in case or op == "cross_entropy" for op, case in several)


def test_launches_stay_within_the_devices_limits(compiled):
    for launch in compiled:
        assert launch["grid"][0] < 2**31 and [*launch["grid"], 1, 1][1] == 1
        assert launch["shared"] <= 232448
        assert launch["warps"] <= 32


def test_another_size_of_a_dense_tensor_needs_no_other_binary(compiled):
    binaries = {
        launch["binary"]
        for launch in compiled
        if launch["op"] == "vector_add" and "bfloat16" in launch["case"] and "shape=(4096;" not in launch["case"]
    }

    assert len(binaries) == 1
