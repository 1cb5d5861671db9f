"""`perfci check --toolchain`: two toolchains on one commit, as a user types it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from perfci.device.tritons import release  # noqa: E402
from tests.program import COMMAND  # noqa: E402
from tests.static_ops import SCALE, write  # noqa: E402
from tests.toolchain.regressions import SOURCES  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture
def project(tmp_path):
    """A repository with an op that got worse in Triton 3.8, and one that did not."""
    root = tmp_path / "project"
    write(root / "kernels", "precise", SOURCES["precise"])
    write(root / "kernels", "scale", SCALE)
    _git(root, "init", "--quiet")
    _git(root, "add", "--all")
    _git(root, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "--quiet", "--message", "Two ops")
    return root


def _git(root, *words):
    subprocess.run(["git", *words], cwd=root, check=True)


def _check(root, *words, **variables):
    command = [*COMMAND, "static", "--project", str(root), *words]
    around = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(root.parent / "cache")} | variables
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=root.parent, env=around)


@pytest.mark.nightly
def test_what_another_triton_makes_worse_is_named_and_the_rest_passes(project):
    if not (3, 6) <= release(triton.__version__) < (3, 8):
        pytest.skip("got worse between 3.7 and 3.8")

    done = _check(project, "--toolchain", "triton==3.8.0", "--target", "sm_89", "--format", "json")
    if "cannot be installed" in done.stderr:
        pytest.skip(done.stderr)

    assert done.returncode == 2, done.stderr
    rows = {row["op"]: row for row in json.loads(done.stdout)["verdicts"]}
    assert rows["precise"]["verdict"] == "REGRESSED"
    reasons = [rows["precise"]["reason"], *rows["precise"]["also"]]
    assert "shared memory" in {reason["facts"]["what"] for reason in reasons if "what" in reason["facts"]}
    assert rows["scale"]["verdict"] == "PASS"
    static = json.loads((project / "reports" / "static" / "run.json").read_text())["static"]
    assert static["toolchain"].startswith("triton 3.8.0")
    assert static["base_toolchain"].startswith(f"triton {triton.__version__}")


@pytest.mark.nightly
def test_a_version_that_there_is_not_is_one_message_and_leaves_nothing_half_done(project):
    for _ in range(2):
        done = _check(project, "--toolchain", "triton==0.0.1", PIP_NO_INDEX="1")
        assert done.returncode == 1
        assert "triton==0.0.1 cannot be installed" in done.stderr
        assert "Traceback" not in done.stderr


def test_files_that_are_not_committed_are_not_compared(project):
    kernel = project / "kernels" / "scale" / "scale_triton.py"
    kernel.write_text(kernel.read_text() + "\nADDED = 1\n")

    done = _check(project, "--toolchain", "triton==3.8.0")

    assert done.returncode == 1
    assert "not committed" in done.stderr
