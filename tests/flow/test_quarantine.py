"""A quarantined board in real repositories: its times advise, and no merge request takes its runner out."""

import pytest

from tests.git_repositories import begin_topic, commit_all, git

SPEED = "US_PER_MEGABYTE = 320.0"
BOARD = '[tool.perfci]\nquarantine = ["fake-0"]\n'


@pytest.fixture
def slower(project):
    """A branch with a scale that is a quarter slower; the project is committed on main."""
    begin_topic(project.root)
    project.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 400.0")
    commit_all(project.root)
    return project


def quarantine(project):
    """The fake device's board has the UUID FAKE-0."""
    path = project.root / "pyproject.toml"
    path.write_text(BOARD + path.read_text())
    commit_all(project.root)


def check(project, monkeypatch):
    monkeypatch.setenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main")
    git(project.root, "update-ref", "refs/remotes/origin/main", "main")
    return project.check("scale")


@pytest.mark.nightly
def test_on_a_board_that_main_quarantines_a_slower_kernel_is_inconclusive(slower, monkeypatch):
    git(slower.root, "checkout", "-q", "main")
    quarantine(slower)
    git(slower.root, "checkout", "-q", "topic")
    git(slower.root, "rebase", "-q", "main")

    answer = check(slower, monkeypatch)

    assert answer.code == 3
    assert answer.verdicts("scale") == {"PASS", "INCONCLUSIVE"}  # accuracy, and speed
    assert "board_quarantined" in answer.out and "only_quarantined" in answer.out
    later = slower.perfci("compare", str(slower.root / "reports"), "--format", "json")
    assert (later.code, "board_quarantined" in later.out) == (3, True)


def test_a_merge_request_cannot_quarantine_its_way_out(slower, monkeypatch):
    quarantine(slower)

    answer = check(slower, monkeypatch)

    assert answer.code == 2
    assert answer.verdicts("scale") == {"PASS", "REGRESSED"}
    assert slower.run_record().plan.base.changed_rules == ("pyproject.toml",)
    assert "rules_changed" in answer.out and "board_quarantined" not in answer.out
    later = slower.perfci("compare", str(slower.root / "reports"), "--format", "json")
    assert (later.code, "board_quarantined" in later.out) == (2, False)
