import subprocess
from pathlib import Path

import pytest

from perfci import revision
from perfci.model import Reason
from perfci.revision import Revision


@pytest.fixture(autouse=True)
def _own_git(monkeypatch, tmp_path):
    """No settings of the user's reach these repositories."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A. Tester")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "tester@example.org")


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, text: str) -> str:
    (folder / "file").write_text(text)
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", text)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "first")
    return folder


def test_a_clean_checkout_is_told_as_it_is(repository):
    head = git(repository, "rev-parse", "HEAD")

    assert revision.read(repository) == Revision(repository.resolve(), head, "main", dirty=False)


def test_the_root_is_found_from_a_folder_inside(repository):
    (repository / "inner").mkdir()

    found = revision.read(repository / "inner")

    assert isinstance(found, Revision)
    assert found.root == repository.resolve()


def test_a_changed_tracked_file_is_dirty_and_a_new_one_is_not(repository):
    (repository / "new").write_text("untracked")
    clean = revision.read(repository)
    (repository / "file").write_text("changed")
    dirty = revision.read(repository)

    assert isinstance(clean, Revision)
    assert isinstance(dirty, Revision)
    assert (clean.dirty, dirty.dirty) == (False, True)


def test_a_detached_head_has_no_branch(repository):
    git(repository, "checkout", "-q", "--detach")

    found = revision.read(repository)

    assert isinstance(found, Revision)
    assert found.branch is None


def test_before_the_first_commit_there_is_none(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")

    found = revision.read(tmp_path)

    assert isinstance(found, Revision)
    assert found.commit is None


def test_outside_a_repository_there_is_a_reason(tmp_path):
    assert revision.read(tmp_path) == Reason("no_repository", {"folder": str(tmp_path)})


def test_without_git_there_is_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert revision.read(tmp_path) == Reason("git_missing")


@pytest.mark.parametrize("event", ["merged_result", "merge_train"])
def test_on_a_made_merge_commit_the_base_is_its_first_parent(repository, event):
    git(repository, "checkout", "-q", "-b", "topic")
    commit(repository, "topic")
    git(repository, "checkout", "-q", "main")
    target = git(repository, "rev-parse", "HEAD")
    git(repository, "merge", "-q", "--no-ff", "-m", "made by GitLab", "topic")

    assert revision.base(repository, {"CI_MERGE_REQUEST_EVENT_TYPE": event}) == target


def test_on_a_detached_pipeline_the_base_is_the_merge_base_with_the_target(repository):
    fork = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-q", "-b", "topic")
    commit(repository, "topic")
    git(repository, "checkout", "-q", "main")
    moved_on = commit(repository, "main moved on")
    git(repository, "update-ref", "refs/remotes/origin/main", moved_on)
    git(repository, "checkout", "-q", "topic")
    variables = {"CI_MERGE_REQUEST_EVENT_TYPE": "detached", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}

    assert revision.base(repository, variables) == fork
    assert revision.base(repository, {}, target="main") == fork


def test_without_a_target_there_is_no_base(repository):
    assert revision.base(repository, {}) == Reason("no_target_branch")


def test_a_base_that_a_shallow_clone_lacks_is_a_reason(repository):
    found = revision.base(repository, {"CI_MERGE_REQUEST_EVENT_TYPE": "merged_result"})

    assert isinstance(found, Reason)
    assert found.kind == "git_failed"
