"""`perfci tune --device-spec`: real kernels compiled for a device that is not here, with estimated times."""

import json
import shutil
from pathlib import Path

import pytest

from perfci.cli.main import run

pytestmark = [pytest.mark.torch, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[4]
CASE = ("--case", "rows=4096,cols=4096,*")


@pytest.fixture
def project(tmp_path):
    kernels = tmp_path / "project" / "kernels"
    kernels.mkdir(parents=True)
    for name in ("_launch.py", "_rows.py", "_peers.py", "_views.py", "_devices", "softmax"):
        source = ROOT / "kernels" / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, kernels / name)
    space = kernels / "softmax" / "tuned" / "space.json"
    tree = json.loads(space.read_text())
    space.write_text(json.dumps(tree | {"config": tree["config"] | {"warps": [4, 8], "programs": 0}}))
    return kernels.parent


@pytest.fixture
def tune(project, capsys):
    def tuned(*options):
        capsys.readouterr()
        code = run(["tune", "softmax", "--project", str(project), "--seed", "3", *CASE, *options])
        return code, capsys.readouterr()

    return tuned


def test_a_kernel_bound_by_bandwidth_keeps_no_more_than_the_bandwidth_that_is_left(tune):
    code, seen = tune("--device-spec", "low-bw", "--format", "json")

    answer = json.loads(seen.out)
    assert code == 0, seen.err
    assert answer["measured"] is False
    assert answer["recovery"]["roofline"] == pytest.approx(0.7)
    assert answer["recovery"]["tuned"] == pytest.approx(0.7, abs=0.02)
    candidates = [each for entry in answer["entries"] for each in entry["candidates"]]
    assert len(candidates) > 3
    assert all(candidate["us"] for candidate in candidates if not candidate["failure"])


def test_a_device_that_nothing_compiles_for_has_no_model_and_says_so(tune):
    code, seen = tune("--device-spec", "ascend910b2")

    assert code == 1
    assert "No time can be estimated for ascend910b2, whose description lacks target" in " ".join(seen.err.split())
