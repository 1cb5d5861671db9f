from pathlib import Path

import pytest

from perfci.report.site import kept
from perfci.report.site.kept import OpOnDevice

H200 = OpOnDevice("nvidia-h200", "softmax")


@pytest.fixture
def project(histories, tmp_path):
    """A project with two histories, and its root."""
    runs = histories.steady(count=4)
    return histories.project(tmp_path, {("nvidia-h200", "softmax"): runs, ("ascend-910b", "softmax"): runs[:2]})


def read(root: Path, place=H200):
    return kept.read(root / "baselines", place, root)


def test_every_history_of_every_device_is_found(project):
    (project / "baselines" / "nvidia-h200" / "matmul.json").write_text("{}")
    (project / "baselines" / "nvidia-h200" / ".hidden.history.jsonl").write_text("")

    assert kept.places(project / "baselines") == (OpOnDevice("ascend-910b", "softmax"), H200)


def test_no_baselines_are_no_places(tmp_path):
    assert kept.places(tmp_path / "baselines") == ()


def test_runs_come_in_the_files_order(project, histories):
    found = read(project)

    assert [run.run for run in found.past.runs] == [f"run-{number:04}" for number in range(4)]
    assert (found.problems, found.damaged) == ((), False)


def test_a_damaged_line_is_a_problem_and_the_others_are_read(project):
    path = project / "baselines" / "nvidia-h200" / "softmax.history.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "{damaged}\n", *lines[1:]]))

    found = read(project)
    assert len(found.past.runs) == 4
    assert found.damaged
    assert found.problems[0].facts["path"] == "baselines/nvidia-h200/softmax.history.jsonl"


def test_a_file_that_cannot_be_read_is_a_problem(project):
    path = project / "baselines" / "nvidia-h200" / "softmax.history.jsonl"
    path.unlink()
    path.mkdir()

    found = read(project)
    assert (found.past.runs, found.damaged, found.problems[0].kind) == ((), True, "file_unreadable")


def test_a_name_that_no_file_may_have_is_a_problem(tmp_path, histories):
    histories.project(tmp_path, {("nvidia-h200", "soft max"): histories.steady(count=1)})

    found = read(tmp_path, OpOnDevice("nvidia-h200", "soft max"))
    assert (found.damaged, found.problems[0].kind) == (True, "baseline_name")


def test_a_damaged_baseline_hides_its_steps_alone(project):
    (project / "baselines" / "nvidia-h200" / "softmax.json").write_text("{")

    found = read(project)
    assert len(found.past.runs) == 4
    assert [problem.kind for problem in found.problems] == ["file_damaged"]
    assert not found.damaged


def test_a_clock_that_went_back_is_no_damage(tmp_path, histories):
    runs = histories.steady(count=3)
    histories.project(tmp_path, {("nvidia-h200", "softmax"): (runs[2], runs[0], runs[1])})

    found = read(tmp_path)
    assert [problem.kind for problem in found.problems] == ["history_clock"]
    assert not found.damaged
