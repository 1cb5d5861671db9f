"""Faults planted in kernels, each found by its op's accuracy suite; benchmarks/mutations.py runs the suites whole."""

import importlib
import sys
from pathlib import Path

import pytest

from tests.daily import first_daily

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))
mutations = importlib.import_module("mutations")
FAULTS = mutations.FAULTS
SOON = 12
"""Most checks until a fault has to be found: the first ones of its `case`, if it names one."""


def test_every_op_has_faults_of_its_own_and_there_are_many():
    ops = {path.parent.name for path in (ROOT / "kernels").glob("*/*_triton.py")}

    assert {fault.op for fault in FAULTS} == ops
    assert len(FAULTS) >= 30
    assert len({(fault.op, fault.name) for fault in FAULTS}) == len(FAULTS)


def test_every_faults_text_stands_in_its_file():
    for fault in FAULTS:
        fault.planted((ROOT / "kernels" / fault.path).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "fault",
    first_daily(
        ((fault,) for fault in mutations.shown_on("cpu")),
        kind=lambda fault: fault.op.removesuffix("_backward"),
        name=lambda fault: f"{fault.op}: {fault.name}",
    ),
)
def test_a_planted_fault_is_found(fault, tmp_path):
    first = mutations.first(fault, tmp_path)

    assert first.anything
    assert first.checks <= SOON, "name in the fault's `case` one that shows it: what is tried before costs time"
