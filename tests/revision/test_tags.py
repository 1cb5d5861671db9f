"""Which tags hold which commits."""

import pytest

from perfci.model import Reason
from perfci.revision.tags import releases
from tests.git_repositories import alone, commit, git, start


@pytest.fixture
def repository(tmp_path, monkeypatch):
    alone(monkeypatch, tmp_path)
    folder = start(tmp_path / "project")
    made = []
    for number in range(6):
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"2026-01-0{number + 1}T00:00:00Z")
        made.append(commit(folder, f"change {number}"))
        if number in {1, 4}:
            git(folder, "tag", f"v{number}")
    git(folder, "checkout", "-q", "-b", "side", made[0])
    commit(folder, "aside")
    git(folder, "tag", "elsewhere")
    git(folder, "checkout", "-q", "main")
    return folder, made


def test_the_newest_tag_comes_first_with_the_commits_that_it_holds(repository):
    folder, made = repository
    found = releases(folder, made)

    assert [release.name for release in found] == ["v4", "v1"]
    assert found[0].holds == set(made[:5]) and found[1].holds == set(made[:2])


def test_tags_before_all_of_the_commits_and_of_other_branches_are_left_out(repository):
    folder, made = repository

    assert [release.name for release in releases(folder, made[3:])] == ["v4"]
    assert releases(folder, made[5:]) == ()


def test_any_revision_can_be_named(repository):
    folder, made = repository
    (found,) = releases(folder, made, made[2])

    assert found.holds == set(made[:3])


def test_a_revision_that_does_not_exist_is_a_reason(repository):
    folder, made = repository

    assert releases(folder, made, "v9").kind == "revision_unknown"


def test_without_a_repository_there_is_a_reason(tmp_path, monkeypatch):
    alone(monkeypatch, tmp_path)

    assert isinstance(releases(tmp_path, ["a" * 40]), Reason)
