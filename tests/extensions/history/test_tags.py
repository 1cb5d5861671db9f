"""Which tags contain which commits."""

import pytest

from perfci.extensions.history.commits import LastRelease, find_last_release
from tests.git_repositories import clone, commit, git, start, told


@pytest.fixture
def repository(tmp_path, monkeypatch):
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


# --- the last one before what is checked out --------------------------------------------------------------------------


def test_the_last_release_is_the_newest_fitting_tag_before_head(repository):
    folder, made = repository
    git(folder, "tag", "nightly-7", made[4])

    assert find_last_release(folder, "v*") == LastRelease("v4", made[4])
    git(folder, "tag", "-d", "v4")
    assert find_last_release(folder, "v*") == LastRelease("v1", made[1])


def test_a_release_is_held_against_the_one_before_it(repository):
    folder, made = repository
    git(folder, "tag", "v5", made[5])
    git(folder, "tag", "-a", "-m", "annotated", "v5.0", made[5])

    assert find_last_release(folder, "v*") == LastRelease("v4", made[4])


def test_where_there_is_no_release_the_reason_says_which_way(repository):
    folder, _ = repository

    for pattern in ("w*", "else*"):
        reason = told(find_last_release)(folder, pattern)
        assert (reason.kind, reason.facts["pattern"]) == ("release_none", pattern)


def test_a_shallow_clone_without_a_tag_says_how_to_fetch_them(repository):
    folder, _ = repository
    reason = told(find_last_release)(clone(folder, "--depth", "1"))

    assert (reason.kind, reason.facts["command"]) == ("history_cut", "git fetch --unshallow --tags origin")


def test_a_named_revision_has_to_be_in_heads_history(repository):
    folder, made = repository

    assert find_last_release(folder, named=made[2][:12]) == LastRelease(made[2][:12], made[2])
    assert told(find_last_release)(folder, named="elsewhere").kind == "release_unknown"
    assert told(find_last_release)(folder, named="v9").kind == "release_unknown"
