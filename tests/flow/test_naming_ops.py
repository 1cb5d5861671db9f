"""An op is named as OP or by --op, with globs in both, by every command; cases of a stored run are chosen alike."""

import csv
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ORDERED = "perfci check --op broadcast"
"""The command that perfci was ordered with, and that pipelines in the field run"""


def type_in(folder, command):
    """Run a command as a person types it there, on a machine without an accelerator."""
    program, *words = shlex.split(command)
    assert program == "perfci"
    return subprocess.run(
        [Path(sys.executable).with_name("perfci"), *words],
        cwd=folder,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.slow
def test_the_ordered_command_works_as_it_is_typed(tmp_path):
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)

    done = type_in(tmp_path / "clone", ORDERED)

    assert done.returncode == 0, done.stdout + done.stderr
    run = json.loads((tmp_path / "clone" / "reports" / "run.json").read_text())
    assert {op["op"].partition("@")[0] for op in run["ops"]} == {"broadcast"}  # in Triton and other technologies


def test_the_ordered_command_works_on_the_fake_device(project):
    assert project.perfci("new", "--op", "broadcast", "--fake").code == 0

    done = type_in(project.root, f"{ORDERED} --device fake --seed 7 --budget 0.1")

    assert done.returncode == 0, done.stdout + done.stderr
    assert [op.op for op in project.run_record().ops] == ["broadcast"]


@pytest.mark.parametrize(
    "page", ["README.md", "README.zh-CN.md", *(f"docs/{name}.md" for name in ("ci", "zh/ci", "gitlab", "github"))]
)
def test_the_ordered_command_is_where_people_look_for_it(page):
    assert ORDERED in (ROOT / page).read_text(encoding="utf-8")


def test_make_check_runs_the_ordered_command():
    planned = subprocess.run(["make", "-n", "check"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert f".venv/bin/{ORDERED};" in planned


@pytest.mark.parametrize(
    ("words", "ops"),
    [
        ("--op relu", "relu"),
        ("--op 'r*'", "relu row_sum"),
        ("'s*' --op relu", "relu scale"),
        ("relu --op relu --op scale", "relu scale"),
        ("'r*' --op '*sum'", "relu row_sum"),
        ("", "relu row_sum scale"),
    ],
)
def test_ops_are_named_in_either_way_and_both_are_joined(words, ops, project):
    for command in ("list --device fake", "ci plan --device fake --all --out PLAN"):
        answer = project.perfci(
            *shlex.split(command.replace("PLAN", str(project.root / "plan.json"))),
            *shlex.split(words),
            "--format",
            "json",
        )

        assert answer.code == 0, answer.err
        told = json.loads(answer.out)
        planned = [op["op"] for op in (told if isinstance(told, list) else told["plan"]["ops"])]
        assert planned == ops.split(), command


def test_an_op_that_there_is_not_is_refused_in_either_way(project):
    for words in (["scael"], ["--op", "scael"]):
        answer = project.perfci("list", "--device", "fake", *words)
        assert (answer.code, answer.out) == (1, "") and "did you mean scale?" in answer.err


@pytest.mark.parametrize(
    "command",
    [
        "bisect --against HEAD",
        "brief",
        "try --why faster",
        "profile",
        "thresholds relax tau --why x --until 2027-01-31",
    ],
)
def test_a_command_of_one_op_asks_for_it_and_takes_no_second_one(command, project):
    name = " ".join(part for part in command.split("--")[0].split() if part != "tau")
    assert f"perfci {name} needs an op" in project.perfci(*command.split()).err

    several = project.perfci(*command.split(), "--op", "relu", "--op", "scale")
    assert (several.code, several.out) == (1, "")
    assert f"perfci {name} takes one op at a time, and several were named (relu, scale)" in several.err

    fitting = project.perfci(*command.split(), "--op", "r*")
    assert fitting.code == 1 and ("several ops" in fitting.err or name == "bisect")  # which needs a repository


def test_compare_show_report_and_accept_choose_ops_and_cases_of_a_stored_run(project):
    project.first_check()
    reports, few = str(project.root / "reports"), "rows=256,*"

    def name(rows):
        return {(row["op"], row["case"]) for row in rows}

    for command in ("compare", "show"):
        whole, some, cases = (
            json.loads(project.perfci(command, reports, "--format", "json", *words).out)["verdicts"]
            for words in ([], ["--op", "r*"], ["--op", "relu", "--case", few])
        )
        assert name(some) == {(op, case) for op, case in name(whole) if op in {"relu", "row_sum"}}
        assert {case for _, case in name(cases)} == {None, "rows=256,cols=128,dtype=float32"}
        for words in (["--op", "nul*"], ["--case", "rows=9"]):
            answer = project.perfci(command, reports, *words)
            assert (answer.code, answer.out) == (1, "")

    table = project.root / "table.csv"
    project.perfci("report", reports, "--to", "csv", "--out", str(table), "--op", "r*", "--case", few)
    assert {row["op"] for row in csv.DictReader(table.read_text().splitlines())} == {"relu", "row_sum"}
    project.perfci("report", reports, "--to", "md", "--out", str(project.root / "page"), "--op", "relu")
    page = (project.root / "page" / "report.md").read_text()
    assert "relu" in page and "row_sum" not in page

    accepted = json.loads(project.perfci("accept", reports, "--op", "r*", "--dirty", "--format", "json").out)
    assert [one["op"] for one in accepted] == ["relu", "row_sum"]
    shown = json.loads(project.perfci("history", "--op", "row_*", "relu", "--format", "json").out)
    assert [one["op"] for one in shown] == ["relu", "row_sum"]
    explained = json.loads(project.perfci("thresholds", "show", "--op", "r*", "--format", "json").out)
    assert {one["op"] for one in explained} == {"relu", "row_sum"}


def test_a_run_that_is_compared_in_part_has_the_gate_of_that_part(project):
    project.first_check()
    project.perfci("accept", str(project.root / "reports"), "--dirty")
    project.edit("scale", "triton", "MEGABYTE = 320.0", "MEGABYTE = 360.0")
    assert project.check("--suite", "performance").code == 2

    assert project.perfci("compare", "--op", "scale").code == 2
    assert project.perfci("compare", "--op", "r*").code == 0


def test_a_brief_and_what_is_tightened_show_the_cases_that_were_asked_for(project):
    answer = json.loads(
        project.perfci("brief", "relu", "--case", "rows=256,*", "--device", "fake", "--format", "json").out
    )
    assert [case["case"] for case in answer["cases"]] == ["rows=256,cols=128,dtype=float32"]

    none = project.perfci("brief", "relu", "--case", "rows=9", "--device", "fake")
    assert (none.code, none.out) == (1, "") and "--case 'rows=9'" in none.err
