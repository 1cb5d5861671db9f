"""Binaries of one release of Triton, launched by another from the same process."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from perfci.core import settings  # noqa: E402
from perfci.core.errors import UsageError  # noqa: E402
from perfci.core.wording import sentence  # noqa: E402
from perfci.device.replay import Program, count_scratch, refuse_release  # noqa: E402
from perfci.device.tensors import TorchArrays  # noqa: E402
from perfci.extensions.lab.commands import toolchain  # noqa: E402
from tests.toolchain.recordings import RELEASES, read_recordings  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("made", "here", "launched"),
    [
        ("3.6.0", "3.6.0", True),
        ("3.3.1", "3.6.0", True),
        ("3.9.0", "3.6.0", True),
        ("3.5.1", "3.4.0", False),  # the kernel takes a pointer more than that launcher passes
        ("3.3.1", "3.2.0", False),
        ("3.2.0", "3.6.0", False),  # constants are no parameters of its launches
        ("3.2.0", "3.2.0", True),
    ],
)
def test_a_release_launches_what_has_no_more_parameters_than_it_passes(made, here, launched):
    refused = refuse_release(read_recordings()[made], here)

    assert (refused is None) is launched
    assert refused is None or made[:3] in sentence(refused)


def test_descriptors_and_clusters_are_passed_by_their_own_release_only():
    recording = read_recordings()["3.6.0"]
    (binary,), (made, step) = recording.binaries, recording.steps
    described = replace(step, given=({"descriptor": {"base": {"tensor": 0}}}, *step.given[1:]))
    clusters = replace(binary, metadata=json.dumps({**json.loads(binary.metadata), "num_ctas": 2}))

    for changed in (replace(recording, steps=(made, described)), replace(recording, binaries=(clusters,))):
        assert refuse_release(changed, "3.7.1") is not None
        assert refuse_release(changed, "3.6.0") is None


@pytest.mark.cuda
@pytest.mark.parametrize("made", RELEASES)
def test_on_a_gpu_this_triton_gets_the_answer_out_of_another_ones_binary(made, tmp_path):
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the binaries are of sm_90")
    recording = read_recordings()[made]
    if refuse_release(recording, triton.__version__):
        assert count_scratch(made) > count_scratch(triton.__version__) or made.startswith("3.2.")
        return
    program, x = Program(recording, tmp_path, TorchArrays("cuda")), torch.arange(1000.0, device="cuda")

    outputs = [program(x=x + offset) for offset in (0.0, 5.0)]

    torch.cuda.synchronize()
    assert torch.equal(outputs[0], x * 0.5 + 3)
    assert torch.equal(outputs[1], (x + 5) * 0.5 + 3)


@pytest.mark.cuda
@pytest.mark.slow
def test_on_a_gpu_another_interpreter_of_the_same_toolchain_is_as_fast(tmp_path, monkeypatch):
    """Beside its release the new toolchain is the installed one, which needs no network."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(toolchain, "_install", lambda wanted, site: None)
    python = toolchain.prepare([f"triton=={triton.__version__}"], settings.at(ROOT), lambda folder: None)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    command = [python, "-P", "-m", "perfci", "check", "vector_add", "--suite", "performance", "--against", "HEAD"]
    command += ["--base-python", sys.executable, "--project", str(clone), "--format", "json"]

    around = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, check=False, cwd=tmp_path, env=around)

    assert done.returncode in {0, 3}, done.stderr.decode()
    rows = json.loads(done.stdout)["verdicts"]
    assert {row["verdict"] for row in rows if row["case"]} <= {"PASS", "UNCHANGED"}
    run = json.loads((clone / "reports" / "run.json").read_text())
    cases = [case for op in run["ops"] for case in op["performance"]]
    assert cases and not any(case.get("self_reported") for case in cases)  # all from one process


def test_a_requirement_that_is_not_pinned_or_of_no_installed_package_is_refused(tmp_path):
    for asked in ("no_such_package==2.0", "triton", "triton>=3.6", "triton==", "triton==../../x"):
        with pytest.raises(UsageError) as error:
            toolchain.prepare([asked], settings.at(ROOT), lambda folder: None)
        assert asked in sentence(error.value.reason)
