"""The steps that are run by hand on a GPU: they name ops and cases that there are, and keep what a step wrote."""

import importlib
import sys
from pathlib import Path

import pytest

from perfci.ops.backends import MARK
from perfci.ops.spec import matches

# Scripts of the project's authors, as in tests/test_benchmarks.py.
pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
by_hand = importlib.import_module("on_the_gpu")


@pytest.mark.torch
def test_every_op_is_soaked_at_a_case_that_it_has(listed):
    assert {op for op in listed if MARK not in op} == by_hand.SOAKED.keys()  # each with its first backend
    assert {op for op, case in by_hand.SOAKED.items() if not any(matches(entry, case) for entry in listed[op])} == set()


def test_a_step_that_takes_too_long_is_stopped_and_what_it_wrote_is_kept(tmp_path):
    program = "import time; print('begun', flush=True); time.sleep(60)"
    outcome = by_hand.run(by_hand.Step("slow", (sys.executable, "-c", program), 1.0), tmp_path)

    assert outcome.code == 124
    kept = (tmp_path / "slow.txt").read_text()
    assert "begun" in kept
    assert "[exit 124 after " in kept
