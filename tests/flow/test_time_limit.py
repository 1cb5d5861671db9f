"""A check that has to end before its job: it reports what it left undone, and nothing undone passes."""

import pytest

from perfci.extensions.shards.plans import read_plan
from tests.git_repositories import begin_topic, commit_all, git

NOTHING = "0.001"
"""Seconds in which nothing can be begun."""


def test_what_time_does_not_reach_is_one_inconclusive_row_an_op_and_warns(project):
    answer = project.check("--deadline", NOTHING)

    assert answer.code == 3
    assert [(op, row["verdict"]) for (op, _, _), row in answer.rows.items()] == [
        (op, "INCONCLUSIVE") for op in ("relu", "row_sum", "scale")
    ]
    sentence = answer.rows["relu", "accuracy", None]["reason"]["sentence"]
    assert all(word in sentence for word in ("--deadline", "--shards", "--budget", "timeout:"))
    run = project.run_record()
    assert (run.plan.deadline.limit_s, run.plan.deadline.by) == (0.001, "--deadline")


@pytest.mark.slow
def test_a_kernel_that_hangs_costs_its_op_the_time_and_is_no_error_when_that_is_up(project):
    project.edit("relu", "triton", "fake.work(", "fake.hang(); fake.work(")

    answer = project.check("relu", "--deadline", "8")

    assert (answer.code, answer.verdicts("relu")) == (3, {"INCONCLUSIVE"})


@pytest.mark.slow
def test_a_suspect_for_which_there_is_no_time_stays_one(project, monkeypatch):
    """The first looks fit, and the parent believes that a fresh process would take an hour."""
    from perfci.core.deadline import Timetable

    begin_topic(project.root)
    project.edit("scale", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 336.0")
    commit_all(project.root)
    monkeypatch.setattr(Timetable, "later", lambda self, op, share: 3600.0)

    answer = project.check("--deadline", "600")

    timed = {case: row for (op, suite, case), row in answer.rows.items() if op == "scale" and suite == "performance"}
    assert answer.code == 3
    assert {row["verdict"] for row in timed.values()} == {"INCONCLUSIVE"}
    assert all("the time limit (" in row["reason"]["sentence"] for row in timed.values())
    case = next(op for op in project.run_record().ops if op.op == "scale").performance[0]
    assert {block.process for block in case.blocks} == {0}


@pytest.mark.slow
def test_a_shard_that_ran_out_of_time_is_inconclusive_in_the_merged_run(project):
    plan, shards = project.root / "reports" / "plan.json", project.root / "reports" / "shards"
    git(project.root, "init", "-q", "-b", "main")
    (project.root / ".gitignore").write_text("reports/\n__pycache__/\n")
    commit_all(project.root)
    project.perfci("ci", "plan", "--device", "fake", "--seed", "7", "--shards", "2", "--all", "--out", str(plan))

    codes = [
        project.perfci("check", "--plan", str(plan), "--shard", f"{index}/2", "--deadline", limit).code
        for index, limit in ((1, NOTHING), (2, "600"))
    ]
    answer = project.perfci("ci", "merge", str(shards), "--plan", str(plan), "--format", "json")

    assert codes == [0, 0]
    assert answer.code == 3, answer.err
    given = {op.op: op.shard for op in read_plan(plan)[0].ops}
    for op, shard in given.items():
        assert answer.verdicts(op) == ({"INCONCLUSIVE"} if shard == 1 else {"PASS", "NEW"})
    assert project.run_record().plan.deadline.limit_s == 0.001
