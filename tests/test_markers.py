"""What tests/conftest.py promises about skips, in separate pytest runs with a stand-in of torch."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

TESTS = """
import pytest

@pytest.mark.cuda
def test_on_cuda():
    if SKIPS:
        pytest.skip("no reason that counts")

@pytest.mark.torch
def test_with_torch():
    pass
"""


@pytest.fixture
def outcomes(tmp_path):
    """Outcomes by test name of a run in which torch sees CUDA or not, or is missing."""

    def run(*, sees_cuda: bool, has_torch: bool = True, skips: bool = False, ci: bool = False) -> dict[str, str]:
        shutil.copy(HERE / "conftest.py", tmp_path)
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  cuda: x\n  npu: x\n  torch: x\n")
        (tmp_path / "test_marked.py").write_text(f"SKIPS = {skips}\n{TESTS}")
        for name in ("torch", "triton") if has_torch else ():
            (tmp_path / f"{name}.py").write_text(f"class cuda:\n    is_available = staticmethod(lambda: {sees_cuda})\n")
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(tmp_path),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        } | ({"CI": "true"} if ci else {})
        hidden = "" if has_torch else "sys.modules.update(torch=None, triton=None);"
        code = f"import sys, pytest; {hidden} sys.exit(pytest.main(['-q', '-rA', '-p', 'no:cacheprovider']))"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        names = ("test_on_cuda", "test_with_torch")
        return {name: _outcome(name, done.stdout) for name in names}

    return run


def _outcome(name: str, output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith(("PASSED", "FAILED", "ERROR")) and name in line]
    return lines[0].split()[0].lower() if lines else "skipped"


def test_with_the_device_its_tests_run(outcomes):
    assert outcomes(sees_cuda=True)["test_on_cuda"] == "passed"


def test_with_the_device_a_skip_is_a_failure(outcomes):
    assert outcomes(sees_cuda=True, skips=True)["test_on_cuda"] == "failed"


def test_without_the_device_its_tests_are_skipped(outcomes):
    assert outcomes(sees_cuda=False) == {"test_on_cuda": "skipped", "test_with_torch": "passed"}


def test_without_torch_its_tests_are_skipped_at_home_and_fail_in_ci(outcomes):
    at_home = outcomes(sees_cuda=False, has_torch=False)["test_with_torch"]
    in_ci = outcomes(sees_cuda=False, has_torch=False, ci=True)["test_with_torch"]

    assert (at_home, in_ci) == ("skipped", "error")


@pytest.mark.parametrize(
    ("options", "ran", "left"),
    [
        (["-n", "1"], "1 passed", "1 nightly tests were left out; make nightly runs them"),
        (["-m", "nightly"], "1 passed, 1 deselected", ""),
    ],
    ids=["in every run", "nightly"],
)
def test_nightly_tests_are_left_out_and_counted_unless_they_are_asked_for(tmp_path, options, ran, left):
    shutil.copy(HERE / "conftest.py", tmp_path)
    (tmp_path / "test_marked.py").write_text(
        "import pytest\n\ndef test_daily():\n    pass\n\n@pytest.mark.nightly\ndef test_nightly():\n    pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", HERE.parent / "pyproject.toml"]
    done = subprocess.run([*command, *options, tmp_path], capture_output=True, text=True, check=False)

    assert done.returncode == 0 and ran in done.stdout, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if "left out" in line] == [left] * bool(left)
