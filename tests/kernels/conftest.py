import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.cli.main import run

ROOT = Path(__file__).resolve().parents[2]

# Triton's interpreter is switched on for a whole process, before Triton is first imported: test_interpreted.py runs
# these in a separate process.
collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted"]


@pytest.fixture(scope="module")
def compiled(request, tmp_path_factory):
    """What the script that the test's module names in SCRIPT prints of the kernels that it compiles for an H200."""
    # What one script compiles no other one compiles again, in whichever of pytest's processes.
    own, several = tmp_path_factory.getbasetemp(), hasattr(request.config, "workerinput")
    environment = os.environ | {"TRITON_CACHE_DIR": str((own.parent if several else own) / "triton")}
    script = Path(__file__).with_name(request.module.SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def listed():
    """The performance cases of each op of this repository, as `perfci list` tells them."""
    answer = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(answer):
        assert run(["list", "--format", "json", "--device", "cpu", "--project", str(ROOT)]) == 0
    return {op["op"]: op["performance"] for op in json.loads(answer.buffer.getvalue())}
