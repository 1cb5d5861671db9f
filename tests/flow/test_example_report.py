"""The examples in docs/ are what perfci makes of their runs today."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from perfci import store
from perfci.cli.main import run
from perfci.report.frame import HOST, P99_LAUNCHES, pool_spreads
from perfci.store.launches import read_launches

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "example-report"
DUEL = ROOT / "docs" / "example-duel"


@pytest.mark.parametrize(
    "example", [pytest.param(EXAMPLE, marks=pytest.mark.nightly), DUEL], ids=lambda example: example.name
)
def test_an_example_is_rendered_anew_word_for_word(pictures, example, tmp_path, capsys, monkeypatch):
    for name in ("run.json", "launches.jsonl.gz"):
        if (example / name).exists():
            shutil.copy(example / name, tmp_path)

    # Runs without a base are judged by the baselines of their time; the project's baselines change.
    its_own = ["--against", str(example / "baselines")] if (example / "baselines").exists() else []
    monkeypatch.chdir(ROOT)  # with commands that name no project
    code = run(["report", str(tmp_path / "run.json"), *its_own])

    assert code == 0, capsys.readouterr().err
    assert (tmp_path / "report.md").read_text() == (example / "report.md").read_text()
    assert {path.name for path in tmp_path.glob("*.png")} == {path.name for path in example.glob("*.png")}


@pytest.mark.parametrize("example", [EXAMPLE, DUEL], ids=lambda example: example.name)
def test_an_example_was_measured_on_a_real_device_with_a_clean_work_tree(example):
    where = store.read_run(example).environment

    assert (where.device.key, where.timer, where.dirty) == ("nvidia-h200", "activity", False)
    assert where.commit


@pytest.mark.parametrize(
    "example", [folder for folder in (EXAMPLE, DUEL) if read_launches(folder).rows], ids=lambda folder: folder.name
)
def test_the_percentiles_of_an_example_are_those_of_its_launches(example):
    taken: dict[tuple[str, str, str], list[np.ndarray]] = {}
    for row in read_launches(example).rows:
        taken.setdefault((row.op, row.case, row.arm), []).append(np.array(row.us))

    spreads = [one for one in pool_spreads(store.read_run(example)) if one.arm != HOST]

    assert {(one.op, one.case, one.arm) for one in spreads} == taken.keys()
    for one in spreads:
        blocks = taken[one.op, one.case, one.arm]
        assert one.p90_us == pytest.approx(np.median([np.quantile(block, 0.9) for block in blocks]), rel=1e-4)
        alike = np.concatenate([block / np.median(block) for block in blocks])  # each block's shift taken out
        p99 = one.p50_us * np.quantile(alike, 0.99) if one.launches >= P99_LAUNCHES else None
        assert one.p99_us == (p99 and pytest.approx(p99, rel=0.05))  # of each block its slowest tenth is kept
    assert re.search(r"\| +p90 \| +p99 \|", (example / "report.md").read_text())


def test_a_report_is_judged_by_the_baselines_that_it_is_given(tmp_path, capsys):
    of_its_device = tmp_path / "nvidia-h200"
    of_its_device.mkdir()
    shutil.copy(EXAMPLE / "baselines" / "nvidia-h200" / "softmax.json", of_its_device)

    code = run(
        ["report", str(EXAMPLE), "--against", str(tmp_path), "--out", str(tmp_path / "out"), "--project", str(ROOT)]
    )

    assert code == 0, capsys.readouterr().err
    judged = (tmp_path / "out" / "report.md").read_text().partition("## Verdicts")[2].partition("\n## ")[0]
    rows = [line for line in judged.splitlines() if "dtype=" in line]
    verdicts = {(line.split("|")[1].strip(), line.split("`")[1]) for line in rows if line.startswith("|")}
    assert {verdict for verdict in verdicts if verdict[1] in ("broadcast", "softmax")} == {
        ("NEW", "broadcast"),
        ("PASS", "softmax"),
    }


def test_a_report_against_another_run_shows_that_run_and_no_history(tmp_path, capsys):
    code = run(
        ["report", str(EXAMPLE), "--against", str(DUEL / "run.json"), "--out", str(tmp_path), "--project", str(ROOT)]
    )

    assert code == 0, capsys.readouterr().err
    page = (tmp_path / "report.md").read_text()
    assert "History: " not in page
    assert "against the baseline" in page


@pytest.mark.parametrize("command", ["compare", "report"])
@pytest.mark.parametrize("folder", ["empty", "of one device", "absent"])
def test_a_folder_without_baselines_is_told_and_nothing_is_written(command, folder, tmp_path, capsys):
    place = tmp_path if folder == "empty" else tmp_path / "absent"
    place = EXAMPLE / "baselines" / "nvidia-h200" if folder == "of one device" else place
    out = ["--out", str(tmp_path / "out")] if command == "report" else []

    code = run([command, str(EXAMPLE), "--against", str(place), *out, "--project", str(ROOT)])

    assert code == 1
    assert f"There is no run and no folder of baselines at {place}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
