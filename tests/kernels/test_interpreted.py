import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
INSIDE = Path(__file__).parent / "interpreted"


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(path.name for path in INSIDE.glob("test_*.py")))
def test_ops_are_right_in_tritons_interpreter(file):
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("KERNELS_AS_DEVICE", None)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", INSIDE / file],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
