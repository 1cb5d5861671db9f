"""The examples in docs/ are what perfci makes of their runs today."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perfci import store
from perfci.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "example-report"
DUEL = ROOT / "docs" / "example-duel"


@pytest.mark.parametrize("example", [EXAMPLE, DUEL], ids=lambda example: example.name)
def test_an_example_is_rendered_anew_word_for_word(example, tmp_path, capsys):
    for name in ("run.json", "launches.jsonl.gz"):
        if (example / name).exists():
            shutil.copy(example / name, tmp_path)

    code = run(["report", str(tmp_path / "run.json"), "--project", str(ROOT)])

    assert code == 0, capsys.readouterr().err
    assert (tmp_path / "report.md").read_text() == (example / "report.md").read_text()
    assert {path.name for path in tmp_path.glob("*.png")} == {path.name for path in example.glob("*.png")}


@pytest.mark.parametrize("example", [EXAMPLE, DUEL], ids=lambda example: example.name)
def test_an_example_was_measured_on_a_real_device_with_a_clean_work_tree(example):
    where = store.read_run(example).environment

    assert (where.device.key, where.timer, where.dirty) == ("nvidia-h200", "activity", False)
    assert where.commit


def test_the_stored_baselines_come_from_the_same_kind_of_device():
    baselines = store.read_baselines(ROOT / "baselines", "nvidia-h200")

    of_the_report = {"bias_relu", "broadcast", "matmul", "softmax"}
    assert of_the_report < set(baselines) <= {path.parent.name for path in ROOT.glob("kernels/*/*_triton.py")}
    assert all(len(baselines[op].runs) >= 3 for op in of_the_report)
