"""`perfci static --coverage` of every op: accuracy exercises what performance times, and every line runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OF_RANKS = {"allgather_matmul", "matmul_reducescatter"}
"""Coverage is of one process, which has no peer to send to."""
OPS = sorted({path.parent.name for path in ROOT.glob("kernels/*/*_performance.py")} - OF_RANKS)

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("triton")


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.parametrize("op", OPS)
def test_accuracy_exercises_what_performance_times_and_every_line_runs(op, tmp_path):
    (tmp_path / "pyproject.toml").write_text(f'[tool.perfci]\nkernels = "{ROOT / "kernels"}"\n')
    command = [
        sys.executable,
        "-m",
        "perfci",
        "static",
        "--coverage",
        "--format",
        "json",
        "--project",
        str(tmp_path),
        op,
    ]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    answer = json.loads(done.stdout)[0]
    seen = {name: answer.get(name, []) for name in ("gaps", "unrun", "failure")}
    assert (done.returncode, seen) == (0, {"gaps": [], "unrun": [], "failure": None}), done.stderr
