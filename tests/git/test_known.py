"""Which commits of a list a repository still has."""

from __future__ import annotations

from perfci.core.model import Reason
from perfci.core.wording import sentence
from perfci.git.known import find_unknown_commits
from tests.git_repositories import clone, commit, git


def test_commits_that_a_forced_push_took_away_are_named_in_order(repository, tmp_path):
    known = git(repository, "rev-parse", "HEAD")

    assert find_unknown_commits(repository, ["b" * 40, known, "a" * 40, "b" * 40]) == ("b" * 40, "a" * 40)
    assert find_unknown_commits(repository, [known]) == ()
    assert find_unknown_commits(repository, []) == ()


def test_what_is_no_commits_id_is_unknown_and_never_asked_for(repository):
    assert find_unknown_commits(repository, ["HEAD", "--help", "x\ny", ""]) == ("HEAD", "--help", "x\ny", "")


def test_a_file_is_no_commit(repository):
    blob = git(repository, "rev-parse", "HEAD:file")

    assert find_unknown_commits(repository, [blob]) == (blob,)


def test_a_shallow_clone_says_that_it_is_one(repository):
    first = git(repository, "rev-parse", "HEAD")
    commit(repository, "second")
    cut = clone(repository, "--depth", "1")

    found = find_unknown_commits(cut, [first])

    assert isinstance(found, Reason)
    assert "git fetch --unshallow" in sentence(found)


def test_outside_of_a_repository_git_cannot_say(tmp_path):
    assert find_unknown_commits(tmp_path, ["a" * 40]).kind == "no_repository"
