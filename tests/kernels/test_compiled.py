"""What the compiler makes of the ops for an H200: no GPU is needed to see spills and narrow memory accesses."""

import pytest

from tests import triton_versions

SCRIPT = "compile_offline.py"
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.nightly, triton_versions.needs_own_ops]


def test_no_register_is_spilled(compiled):
    assert [launch for launch in compiled if launch["spilled"] > triton_versions.SPILLS] == []


def test_outputs_are_written_16_bytes_a_thread(compiled):
    by_thread = [launch for launch in compiled if not launch["descriptors"]]

    assert [launch for launch in by_thread if _whole(launch, "stores") != [16]] == []


def test_inputs_are_read_16_bytes_a_thread(compiled):
    read = [launch for launch in compiled if launch["op"] in {"bias_relu", "softmax"}]

    assert [launch for launch in read if 16 not in launch["loads"] and launch["copies"] != ["0x10"]] == []
    assert [launch for launch in read if _whole(launch, "loads") not in ([16], [])] == []


def _whole(launch, kind):
    """Bytes a thread of such accesses; of a dense run of tiles without the last, which goes by single values."""
    single = {4 if launch["dtype"] == "float32" else 2} if launch["kernel"] == "_flat_kernel" else set()
    return sorted({*launch[kind]} - single)


@triton_versions.needs_descriptors
def test_large_products_of_16_bits_are_copied_by_descriptor_alone(compiled):
    products = [launch for launch in compiled if launch["op"] in {"matmul", "finished_matmul"}]

    for launch in (launch for launch in products if launch["shape"] == [4096] * 3):
        wide = launch["dtype"] == "float32"
        assert (launch["descriptors"] == 0) == wide
        assert wide or launch["stores"] == [] == launch["copies"]


def test_tensor_cores_do_16_bit_products_and_never_round_float32(compiled):
    for launch in compiled:
        product = launch["op"] in {"matmul", "finished_matmul", "fp8_matmul"}
        assert launch["tensor_cores"] == (product and launch["dtype"] != "float32")


def test_launches_stay_within_the_devices_limits(compiled):
    for launch in compiled:
        grid = [*launch["grid"], 1, 1]
        assert grid[1] <= 65535 and grid[2] <= 65535
        assert launch["shared"] <= 232448
        assert launch["warps"] <= 32
