"""The stored baselines of the ops, which the first check on a board of the same model compares with."""

import os
from pathlib import Path

import pytest

from perfci import store
from perfci.extensions.ranks import baselines as of_groups
from perfci.ops.backends import name_of

ROOT = Path(__file__).parents[2]
DEVICE = "nvidia-h200"
OF_RANKS = {"allgather_matmul", "matmul_reducescatter"}
"""Ops over several boards: one board's times say nothing of them, so those of groups of two are stored."""
OPS = sorted({path.parent.name for path in ROOT.glob("kernels/*/*_performance.py")} - OF_RANKS)
OF_BACKENDS = sorted(
    f"{path.parent.name}@{backend}"
    for backend in ("cuda", "cutedsl", "cutile", "tilelang")
    for path in ROOT.glob(f"kernels/*/*_{backend}.py")
)

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("triton")

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def stored():
    return store.read_baselines(ROOT / "baselines", DEVICE)


def test_every_op_has_baselines_and_no_others_are_stored(listed, stored):
    """Of its other backends too."""
    assert sorted({op for op in listed if "@" not in op} - OF_RANKS) == OPS
    assert len(OF_BACKENDS) == 15
    assert {*stored} == {*OPS, *OF_BACKENDS}


@pytest.mark.parametrize("op", [*OPS, *OF_BACKENDS])
def test_every_case_that_is_timed_has_a_baseline_and_no_entry_is_of_another_case(op, listed, stored):
    assert sorted(case.case for case in stored[op].cases if case.blocks) == sorted(listed[name_of(op)])


@pytest.mark.parametrize("op", sorted(OF_RANKS))
def test_every_timed_case_of_an_op_over_several_boards_has_a_baseline_of_two(op, listed):
    group = of_groups.read(ROOT / "baselines", DEVICE, op, 2)

    assert sorted(case.case for case in group.cases) == sorted(listed[name_of(op)])
    assert all(len(case.kernel_us) >= of_groups.FEWEST for case in group.cases)
