import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
INSIDE = Path(__file__).parent / "interpreted"
ALONE = "test_faults.py"
"""Imports the ops from copies, time and again: by itself, or as the last."""

OTHERS = sorted(path.name for path in INSIDE.glob("test_*.py") if path.name != ALONE)
GROUPS = {"faults": [ALONE], "others": OTHERS}
"""Several files a process: it takes longer to start than most of them."""


def run(files, *options):
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("KERNELS_AS_DEVICE", None)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *(INSIDE / file for file in files)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=900,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_ops_are_right_in_tritons_interpreter():
    run([*OTHERS, ALONE])


@pytest.mark.nightly
@pytest.mark.parametrize("group", GROUPS)
def test_ops_are_right_in_tritons_interpreter_in_all_cases(group):
    run(GROUPS[group], "-m", "nightly")
