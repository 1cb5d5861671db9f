"""The whole flow on the fake device: from files to verdicts, exit codes and what is left on disk."""

import itertools
import json
import shlex
import subprocess
import sys
import time
from dataclasses import replace

import pytest

pytestmark = pytest.mark.slow


def test_a_first_check_of_sound_ops_says_new_and_exits_0(project):
    answer = project.check()

    assert answer.code == 0
    assert answer.verdicts("relu") == {"PASS", "NEW"}
    assert (project.root / "reports" / "report.md").is_file()


def test_an_unchanged_project_passes_against_its_own_baselines(project):
    project.first_check()
    assert project.accept().code == 0

    answer = project.check()

    assert answer.code == 0
    assert {verdict for op in ("relu", "scale", "row_sum") for verdict in answer.verdicts(op)} == {"PASS"}


def test_a_slower_kernel_is_regressed_after_two_fresh_processes_and_exits_2(project, pictures):
    project.first_check()
    project.accept()
    project.edit("scale", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 333.6")

    answer = project.check()

    assert answer.code == 2
    assert answer.verdicts("scale") == {"PASS", "REGRESSED"}
    assert answer.verdicts("relu") == {"PASS"}
    case = next(op for op in project.run_record().ops if op.op == "scale").performance[0]
    assert {block.process for block in case.blocks} == {0, 1, 2}
    assert (project.root / "reports" / "case-scale-1.png").exists()


def test_the_seconds_of_a_check_are_stored_and_shown_if_that_is_asked_for(project):
    began = time.monotonic()
    answer = project.perfci("check", "--device", "fake", "--timings")
    whole_s = time.monotonic() - began

    run = project.run_record()
    assert sum(op.wall_s for op in run.ops) + sum(run.spent_s.values()) == pytest.approx(run.took_s, abs=0.5)
    assert run.took_s < whole_s
    assert run.spent_s.keys() >= {"describe", "judge"}
    for op in run.ops:
        assert op.spent_s.keys() == {"start", "accuracy", "prepare", "measure"}
        assert sum(op.spent_s.values()) == pytest.approx(op.wall_s, abs=0.1)
        assert sum(line.split()[:1] == [op.op] for line in answer.out.splitlines()) == 1
    assert "Where the time went" in answer.out
    assert "Where the time went" in (project.root / "reports" / "report.md").read_text()
    assert "Where the time went" not in project.perfci("check", "--device", "fake").out


def test_a_check_says_in_one_line_how_sure_it_is_and_where_the_tests_stand(project):
    project.first_check()
    project.accept()

    checked = project.perfci("check", "--device", "fake", "relu").out.splitlines()
    compared = project.perfci("compare", str(project.root / "reports"), "--op", "relu").out.splitlines()

    sure = "How sure: at most 2.0 % chance of any false alarm."
    assert [line for line in checked if line.startswith("How")] == [f"{sure} The report has the tests, under Notes."]
    (line,) = [line for line in compared if line.startswith(f"{sure} `perfci report")]
    _, *words = shlex.split(line.split("`")[1])
    (project.root / "reports" / "report.md").unlink()
    assert words[-2:] == ["--project", str(project.root)]
    assert project.perfci(*words[:-2]).code == 0
    notes = (project.root / "reports" / "report.md").read_text().partition("## Notes")[2]
    assert "Judged against stored baselines" in notes and "Mann-Whitney" in notes


def test_a_wrong_kernel_is_wrong_and_not_timed(project):
    project.edit("row_sum", "triton", "x.sum(axis=1)", "x[:, :-1].sum(axis=1)")

    answer = project.check()

    assert answer.code == 2
    assert "WRONG" in answer.verdicts("row_sum")
    assert next(op for op in project.run_record().ops if op.op == "row_sum").performance == ()
    assert answer.verdicts("scale") == {"PASS", "NEW"}


def test_a_faster_kernel_is_improved_and_exits_0(project):
    project.first_check()
    project.accept()
    project.edit("scale", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 288.0")

    answer = project.check("scale")

    assert answer.code == 0
    assert answer.verdicts("scale") == {"PASS", "IMPROVED"}


def test_the_seed_of_a_run_repeats_its_inputs_and_its_fake_times(project):
    first = project.check("relu").out
    again = project.check("relu").out

    times = [[row["kernel_us"] for row in json.loads(out)["verdicts"]] for out in (first, again)]
    assert times[0] == times[1]


def test_a_seed_that_nobody_gave_is_the_ops_own_and_repeats_its_inputs_later(project):
    project.edit("relu", "triton", "    return out", "    out[x > 2.5] = 0\n    return out")
    project.perfci("check", "relu", "scale", "--device", "fake")
    run = project.run_record()
    seeds = {op.op: op.seed for op in run.ops}
    assert len({run.plan.seed, *seeds.values()} - {None}) == 3
    assert (run.seed, replace(run, ops=run.ops[:1]).seed) == (None, run.ops[0].seed)

    def fresh():
        (op,) = [op for op in project.run_record().ops if op.op == "relu"]
        return [check for check in op.accuracy if check.fresh]

    first = fresh()
    project.perfci("check", "relu", "--device", "fake", "--seed", str(seeds["relu"]))

    assert first == fresh()
    assert any(check.failure for check in first)
    again = project.run_record()
    assert (again.ops[0].seed, again.seed) == (None, seeds["relu"])


def test_strict_mode_fails_on_warnings(project):
    project.first_check()
    project.accept()
    (project.root / "pyproject.toml").write_text('[tool.perfci.fake]\nthrottle = ["thermal"]\n')
    project.edit("scale", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 400.0")

    relaxed, strict = project.check("scale"), project.check("scale", "--strict")

    assert (relaxed.code, strict.code) == (3, 2)
    assert "INCONCLUSIVE" in relaxed.verdicts("scale")


def test_a_case_pattern_chooses_cases_of_both_suites(project):
    answer = project.check("--case", "rows=256,cols=*")

    measured = {case for _, suite, case in answer.rows if suite == "performance"}
    assert measured == {"rows=256,cols=128,dtype=float32"}


def test_a_run_is_judged_and_rendered_again_from_its_file_alone(project):
    project.perfci("check", "--no-judge", "--device", "fake")
    reports = str(project.root / "reports")

    judged = project.perfci("compare", reports, "--format", "json")
    rendered = project.perfci("report", reports)

    assert judged.code == 0
    assert judged.verdicts("relu") == {"PASS", "NEW"}
    assert rendered.code == 0
    assert "# " in (project.root / "reports" / "report.md").read_text()


def test_a_run_can_be_held_against_another_run(project, tmp_path):
    project.first_check()
    before = tmp_path / "before.json"
    before.write_bytes((project.root / "reports" / "run.json").read_bytes())
    project.edit("relu", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 352.0")
    project.perfci("check", "--no-judge", "--device", "fake")

    answer = project.perfci("compare", str(project.root / "reports"), "--against", str(before), "--format", "json")

    # Slower, but a stored run cannot be measured again, so the suspicion stays one.
    assert answer.verdicts("relu") == {"PASS", "INCONCLUSIVE"}
    assert answer.code == 3


def test_every_block_keeps_its_raw_launches(project):
    from perfci.store import launches

    project.first_check("relu")

    kept = launches.read_launches(project.root / "reports").rows
    case = project.run_record().ops[0].performance[0]
    mine = [row for row in kept if row.case == case.case and row.arm == "kernel"]
    assert len(mine) == len(case.blocks)
    assert all(len(row.us) == case.blocks[0].arms["kernel"].time.launches for row in mine)


# tests/flow/test_nested_ops.py runs an accuracy suite by its path.
@pytest.mark.parametrize("part", [pytest.param("accuracy", marks=pytest.mark.nightly), "performance"])
def test_a_suite_runs_by_its_path_and_imports_what_it_does_in_a_check(project, part, tmp_path_factory):
    (project.root / "mylib").mkdir()
    (project.root / "mylib" / "tiles.py").write_text("ROWS = 256\n")
    (project.root / "kernels" / "rates.py").write_text("TOP = 320.0\n")
    project.edit("relu", "triton", "import numpy", "import rates\nfrom mylib import tiles\nimport numpy")

    done = subprocess.run(
        [sys.executable, str(project.op_file("relu", part)), "--device", "fake"],
        cwd=tmp_path_factory.mktemp("elsewhere"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    run = project.run_record()
    assert [op.op for op in run.ops] == ["relu"]
    assert bool(run.ops[0].performance) == (part == "performance")
    assert bool(run.ops[0].accuracy) == (part == "accuracy")


def test_a_clock_that_is_set_back_during_a_check_changes_nothing(project, monkeypatch):
    hours = itertools.count(4_000_000_000.0, -3600.0)
    monkeypatch.setattr(time, "time", lambda: next(hours))

    answer = project.check("relu")

    assert answer.code == 0
    run = project.run_record()
    assert run.wall_s > 0
    assert all(op.wall_s > 0 for op in run.ops)
    assert all(0 <= block.started_s < run.wall_s for op in run.ops for case in op.performance for block in case.blocks)
