"""The example in docs/ is what perfci makes of that run today."""

from __future__ import annotations

import shutil
from pathlib import Path

from perfci import store
from perfci.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "example-report"


def test_the_example_report_is_rendered_anew_word_for_word(tmp_path, capsys):
    for name in ("run.json", "launches.jsonl.gz"):
        shutil.copy(EXAMPLE / name, tmp_path)

    code = run(["report", str(tmp_path / "run.json"), "--project", str(ROOT)])

    assert code == 0, capsys.readouterr().err
    assert (tmp_path / "report.md").read_text() == (EXAMPLE / "report.md").read_text()
    assert {path.name for path in tmp_path.glob("*.png")} == {path.name for path in EXAMPLE.glob("*.png")}


def test_the_example_was_measured_on_a_real_device_with_a_clean_work_tree():
    where = store.read_run(EXAMPLE).environment

    assert (where.device.key, where.timer, where.dirty) == ("nvidia-h200", "activity", False)
    assert where.commit


def test_the_stored_baselines_come_from_the_same_kind_of_device():
    baselines = store.read_baselines(ROOT / "baselines", "nvidia-h200")

    assert set(baselines) == {"bias_relu", "broadcast", "matmul", "softmax"}
    assert all(len(baseline.runs) >= 3 for baseline in baselines.values())
