"""Merge requests that bring other suites, references and settings: what their base has judges them."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.git_repositories import alone, commit_all, git

SPEED = "US_PER_MEGABYTE = 320.0"


@pytest.fixture
def topic(project, monkeypatch, tmp_path):
    """On a branch that differs in nothing yet."""
    alone(monkeypatch, tmp_path)
    git(project.root, "init", "-q", "-b", "main")
    (project.root / ".gitignore").write_text("reports/\n__pycache__/\n")
    commit_all(project.root)
    git(project.root, "checkout", "-q", "-b", "topic")
    return project


def check(project, *arguments):
    commit_all(project.root)
    return project.check("scale", *arguments)


def verdicts(answer, suite="performance"):
    return {row["verdict"] for (_, of, _), row in answer.rows.items() if of == suite}


def kinds(answer, suite, case=None):
    """Kinds of the reasons for a row."""
    row = answer.rows["scale", suite, case]
    return [row["reason"]["kind"], *(also["kind"] for also in row["also"])]


def notes(answer):
    return [note["kind"] for note in json.loads(answer.out)["notes"]]


def test_inputs_of_zeros_hide_no_wrong_kernel(topic):
    topic.edit("scale", "triton", "x.dtype.type(factor)", "x.dtype.type(7.0)")
    topic.edit("scale", "baseline", "np.resize(some, (rows, cols))", "np.zeros((rows, cols), dtype)")
    topic.edit("scale", "accuracy", "    kernel=kernel,", '    kernel=kernel,\n    values=("zeros",),')

    answer = check(topic)

    assert answer.code == 2
    assert answer.rows["scale", "accuracy", None]["verdict"] == "WRONG"
    assert any(each.of_base and each.failure for op in topic.run_record().ops for each in op.accuracy)


def test_a_parameter_that_nobody_needs_ends_no_duel(topic):
    for part in ("triton", "baseline"):
        topic.edit("scale", part, "def scale(x, factor)", "def scale(x, factor, spare=2)")
    topic.edit("scale", "performance", "def reference(x, factor)", "def reference(x, factor, spare=2)")
    topic.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 328.0")

    answer = check(topic)

    assert (answer.code, verdicts(answer)) == (2, {"REGRESSED"})


def test_a_slower_reference_and_more_bytes_are_not_what_the_kernel_is_timed_by(topic):
    topic.edit("scale", "performance", "480.0", "960.0")
    topic.edit("scale", "performance", "2 * rows", "8 * rows")

    check(topic)

    (op,) = topic.run_record().ops
    assert {case.bytes_moved for case in op.performance} == {2 * rows * 128 * 4 for rows in (256, 512)}


def test_the_bases_own_folders_are_its_rules(topic, monkeypatch):
    """The change moves its thresholds and its ops elsewhere."""
    monkeypatch.setenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main")
    git(topic.root, "update-ref", "refs/remotes/origin/main", "main")
    topic.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 328.0")
    settings = topic.root / "pyproject.toml"
    settings.write_text('[tool.perfci]\nthresholds = "limits"\nkernels = "ops"\n' + settings.read_text())
    (topic.root / "limits").mkdir()
    (topic.root / "limits" / "scale.yaml").write_text("tau:\n  0: 50 %\n")
    shutil.move(topic.root / "kernels", topic.root / "ops")

    answer = check(topic)

    assert (answer.code, verdicts(answer)) == (2, {"REGRESSED"})
    assert notes(answer)[0] == "rules_changed"


def test_a_merge_request_whose_base_is_not_there_is_no_green_one(topic, monkeypatch):
    monkeypatch.setenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main")

    answer = topic.check("scale")

    assert answer.code == 3
    assert kinds(answer, "accuracy")[0] == "merge_without_base"


def test_what_the_bases_suites_need_when_they_are_called_leaves_the_change_unjudged(topic):
    git(topic.root, "checkout", "-q", "main")
    (topic.root / "kernels" / "scale" / "scale_numbers.py").write_text("FACTOR = 0.5\n")
    topic.edit("scale", "baseline", "    rng =", "    from scale_numbers import FACTOR\n\n    rng =")
    commit_all(topic.root)
    git(topic.root, "checkout", "-q", "-B", "topic")
    topic.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 320.8")

    answer = check(topic)

    assert answer.code == 3
    assert kinds(answer, "accuracy")[0] == "judged_by_own_late"
    assert verdicts(answer) == {"PASS"}  # in two processes
