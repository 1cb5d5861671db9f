"""A Triton that is newer than perfci: kernels are checked all the same, without what needs Triton's internals."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import COMMAND

ROOT = Path(__file__).resolve().parents[2]

INSIDE = ("CompiledKernel", "GridExecutor", "interpreter_builder", "_interpreter")
"""Names of Triton's own that perfci uses."""

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def later(tmp_path_factory):
    """The folder of Triton 3.99: the installed one, with other names inside."""
    packages = tmp_path_factory.mktemp("later") / "site-packages"
    here, there = Path(importlib.util.find_spec("triton").origin).parent, packages / "triton"
    there.mkdir(parents=True)
    for path in here.iterdir():
        if path.name in {"runtime", "compiler"}:
            shutil.copytree(path, there / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.name not in {"__init__.py", "__pycache__"}:
            (there / path.name).symlink_to(path)
    for path in (*there.glob("runtime/*.py"), *there.glob("compiler/*.py")):
        path.write_text(re.sub(rf"\b({'|'.join(INSIDE)})\b", r"renamed_\1", path.read_text()))
    version = re.sub(r"(?m)^__version__ = .*", "__version__ = '3.99.0'", (here / "__init__.py").read_text())
    (there / "__init__.py").write_text(version)
    return packages


@pytest.fixture
def perfci(later, tmp_path):
    """Run a command of perfci's with that Triton, in a project of two ops."""
    (tmp_path / "kernels").mkdir()
    for name in ("broadcast", "bias_relu"):
        shutil.copytree(ROOT / "kernels" / name, tmp_path / "kernels" / name)
    for shared in (ROOT / "kernels").glob("_*"):
        (tmp_path / "kernels" / shared.name).symlink_to(shared)
    surroundings = os.environ | {"PYTHONPATH": str(later), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*arguments):
        command = [*COMMAND, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False)

    return run


@pytest.mark.nightly
def test_a_check_goes_on_and_says_in_one_line_what_is_left_out(perfci):
    done = perfci("check", "--device", "cpu", "--case", "rows=1,*")

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^(\S+) +(\S+) accuracy\b", done.stdout, re.MULTILINE) == [
        ("PASS", "bias_relu"),
        ("PASS", "broadcast"),
    ]
    assert done.stdout.count("3.99.0") == 1, "said once, of all ops"


@pytest.mark.nightly
def test_what_only_compiles_cannot_tell_and_fails_nothing(perfci):
    done = perfci("static", "--format", "json")

    assert done.returncode == 3, done.stdout + done.stderr
    assert {row["verdict"] for row in json.loads(done.stdout)["verdicts"]} == {"INCONCLUSIVE"}


@pytest.mark.nightly
def test_what_is_seen_on_an_accelerator_is_nothing_and_says_why(later):
    code = """
from perfci.device.cuda import CudaDevice
device = object.__new__(CudaDevice)
with device.record_kernels() as kernels, device.capture_work() as capture:
    pass
print(kernels, capture.identity("inputs").unknown.kind)
"""

    surroundings = os.environ | {"PYTHONPATH": str(later)}
    said = subprocess.check_output([sys.executable, "-c", code], env=surroundings, text=True)

    assert said.split() == ["None", "triton_unknown"]
