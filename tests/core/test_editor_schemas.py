"""The schemas by which editors check what people write: they take what perfci takes, and refuse what it refuses."""

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from perfci.core import settings
from perfci.core.errors import PerfciError
from perfci.extensions.setup.texts import template
from perfci.thresholds.read import load
from tests.closed_schemas import faults

ROOT = Path(__file__).resolve().parents[2]


def check_thresholds(text):
    """What an editor finds: YAML's keys and dates are text to it."""
    return faults(json.loads(json.dumps(yaml.safe_load(text), default=str)), "thresholds.schema.json", closed=False)


def check_settings(text):
    return faults(tomllib.loads(text), "settings.schema.json", closed=False)


ENTRY = 'why: "agreed in !51", until: 2027-01-31'
SOUND = [
    *(path.read_text() for path in sorted((ROOT / "thresholds").glob("*.yaml"))),
    template("thresholds.yaml"),
    "mean_abs: 1e-4\nspeedup: 1\ntau: {0: 5 %, 12.5: 1 %}\ntail: fails\n",
    f'expected:\n  - {{case: "n=1", up_to: 6 %, {ENTRY}}}\n  - {{weaker: cases, {ENTRY}}}\n',
    f'relaxed:\n  - {{key: tau, case: "n=*", device: nvidia-h200, to: 2 %, {ENTRY}}}\n  - {{key: speedup, {ENTRY}}}\n',
]
FAULTY = [
    "margn: 2 %",
    "margin: 2",
    "margin: 0.02",
    "speedup: 2 %",
    "speedup: -1",
    "tau: 2 %",
    "tau: {0: 5}",
    "tail: fail",
    "floor_us: {cuda: 1}",
    'cases: {"n=1": {alpha: 1 %}}',
    f"expected: [{{up_to: 6 %, {ENTRY}}}]",
    f"expected: [{{weaker: luck, {ENTRY}}}]",
    f"relaxed: [{{key: floor_us, {ENTRY}}}]",
]


@pytest.mark.parametrize("text", SOUND)
def test_thresholds_that_perfci_reads_are_fine_in_an_editor(text, tmp_path):
    (tmp_path / "softmax.yaml").write_text(text.replace("alpha: 1 %\n", ""))
    load(tmp_path)

    assert check_thresholds(text) == []


@pytest.mark.parametrize("text", FAULTY)
def test_faults_that_perfci_refuses_are_marked_by_an_editor(text, tmp_path):
    (tmp_path / "softmax.yaml").write_text(text)
    with pytest.raises(PerfciError):
        load(tmp_path)

    assert check_thresholds(text)


EVERY = """
[project]
name = "mine"

[tool.perfci]
kernels = "src/ops"
lock_folder = "/mnt/locks"
time_limit_s = 60
environment = ["MY_FLAG"]
targets = ["sm_90", "gfx942"]
devices = [0, 1]
language = "zh"
rounds = 3

[tool.perfci.fake]
launch_noise = 0.004
"""


@pytest.mark.parametrize(
    "text",
    [EVERY, template("settings.toml"), (ROOT / "pyproject.toml").read_text(), "", "[tool.perfci]\ndevices = 'all'"],
)
def test_settings_that_perfci_reads_are_fine_in_an_editor(text, tmp_path):
    (tmp_path / "pyproject.toml").write_text(text)
    settings.at(tmp_path)

    assert check_settings(text) == []


@pytest.mark.parametrize(
    "line", ["kernel = 'ops'", "time_limit_s = 0", "devices = 'two'", "targets = []", "language = 'fr'", "rounds = 2.5"]
)
def test_settings_that_perfci_refuses_are_marked_by_an_editor(line, tmp_path):
    text = f"[tool.perfci]\n{line}\n"
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(PerfciError):
        settings.at(tmp_path)

    assert check_settings(text)
