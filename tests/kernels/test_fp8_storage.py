"""What fp8_matmul stores in low precision, by its declaration and by its quantisation."""

import sys
from pathlib import Path

import pytest

from perfci.extensions.lowprec.declared import check_stored_tensors
from perfci.thresholds.read import load

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from perfci.core.model import OpRun  # noqa: E402
from perfci.device import open_device  # noqa: E402
from perfci.extensions.lowprec import checks as storage  # noqa: E402
from perfci.worker.load import load_op  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
sys.path.insert(0, str(KERNELS))


def measured(suite):
    return list(check_stored_tensors(suite, open_device("cpu", seed=0), None, lambda error: {"error": repr(error)}))


@pytest.fixture(scope="module")
def declared():
    return load_op("fp8_matmul", KERNELS / "fp8_matmul", KERNELS).accuracy


@pytest.fixture(scope="module")
def found(declared):
    return measured(declared)


def test_both_operands_are_recorded_in_every_mode_and_format(found):
    ways = {(tensor.tensor, tensor.mode, tensor.dtype) for tensor in found}

    assert len(ways) == len(found) == 20
    assert {mode for _, mode, _ in ways} == {"tensor", "row", "block", "64", "8"}
    by_mode = {(tensor.tensor, tensor.mode): tensor.groups for tensor in found}
    assert by_mode == {
        ("a", "tensor"): 1, ("a", "row"): 256, ("a", "block"): 256 * 4,
        ("b", "tensor"): 1, ("b", "row"): 264, ("b", "block"): 4 * 3,
        ("a", "64"): 256 * 7, ("a", "8"): 256 * 50, ("b", "64"): 264 * 7, ("b", "8"): 264 * 50,
    }  # fmt: skip


def test_it_keeps_the_limits_of_the_project(found):
    limits = load(ROOT / "thresholds")

    assert [row.case for row in storage.judge_stored(OpRun("fp8_matmul", stored=tuple(found)), "-", limits)] == []


def test_e4m3_errs_half_as_much_as_e5m2_whatever_the_mode(found):
    errors = {(tensor.tensor, tensor.mode, tensor.dtype): tensor.errors.rmse for tensor in found}

    for tensor in "ab":
        for mode in ("tensor", "row", "block"):
            ratio = errors[tensor, mode, "float8_e5m2"] / errors[tensor, mode, "float8_e4m3fn"]
            assert ratio == pytest.approx(2, rel=0.05)
