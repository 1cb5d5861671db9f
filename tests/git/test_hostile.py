"""A `.git` that a kernel could write: whatever it configures, perfci's calls of git run none of it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from perfci import git as git_history
from perfci.core.model import Reason
from perfci.git import Revision, base, checkout
from perfci.git.command import git as perfci_git
from tests.git.test_checkout import store_large
from tests.git_repositories import clone, commit, commit_all, git
from tests.hostile_repository import arm, make_hostile
from tests.remote_repository import RemoteRepository


@pytest.fixture
def hostile(repository, tmp_path) -> Path:
    return make_hostile(repository, tmp_path)


def test_nothing_that_a_git_directory_configures_is_run(hostile, tmp_path):
    read = git_history.read(hostile)
    revision = base.resolve(hostile, "main", {})
    written = checkout.materialise(hostile, "HEAD", tmp_path / "base")
    asked = (
        perfci_git(hostile, "diff", "--name-only", "main", "HEAD", "--", "a.py"),
        perfci_git(hostile, "cat-file", "blob", "0" * 40),
    )

    assert isinstance(read, Revision)
    assert read.dirty
    assert (revision.how, revision.name) == ("asked", "main")
    assert written == tmp_path / "base"
    assert (tmp_path / "base" / "a.py").read_text() == "b"
    assert [answer for answer in asked[:-1] if isinstance(answer, Reason)] == []
    assert not (tmp_path / "mark").exists(), (tmp_path / "mark").read_text()


def test_the_users_own_settings_are_not_run_either(repository, monkeypatch, tmp_path):
    """A kernel on a shell runner can write them too."""
    home = tmp_path / "home"
    home.mkdir()
    arm(home, tmp_path / "mark")
    shutil.copy(home / "config", home / ".gitconfig")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    (repository / "file").write_text("changed")

    read = git_history.read(repository)

    assert isinstance(read, Revision)
    assert read.dirty
    assert not (tmp_path / "mark").exists(), (tmp_path / "mark").read_text()


def test_a_folder_that_poses_as_a_bare_repository_is_none(repository, tmp_path):
    posing = repository / "kernels"
    git(repository, "init", "-q", "--bare", str(posing))
    arm(posing, tmp_path / "mark")

    read = git_history.read(posing)

    assert isinstance(read, Revision)
    assert read.root == repository.resolve()
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("name", ["refs/heads/evil", "packed-refs", "shallow", "info/attributes", "refs/heads/loop"])
def test_pipes_and_links_among_the_branches_are_passed_over(repository, tmp_path, name):
    path = repository / ".git" / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to("/") if name.endswith("loop") else os.mkfifo(path)

    assert isinstance(git_history.read(repository), Revision)


# --- and every kind of repository is still read -----------------------------------------------------------------------


def test_a_linked_work_tree_is_read_as_itself(forked, tmp_path):
    git(forked, "worktree", "add", "-q", str(tmp_path / "linked"), "main")

    read = git_history.read(tmp_path / "linked")
    (tmp_path / "linked" / "file").write_text("changed")
    changed = git_history.read(tmp_path / "linked")

    assert isinstance(read, Revision)
    assert (read.root, read.branch, read.dirty) == (tmp_path / "linked", "main", False)
    assert isinstance(changed, Revision)
    assert changed.dirty
    assert base.find_commit(tmp_path / "linked", "topic") == git(forked, "rev-parse", "topic")


@pytest.mark.parametrize("change", ["none", "file", "commit"])
def test_a_change_in_a_submodule_is_a_change(forked, repository, change):
    shutil.move(clone(forked, "-b", "topic"), repository / "module")
    git(repository, "-c", "advice.addEmbeddedRepo=false", "add", "module")
    git(repository, "commit", "-q", "-m", "a submodule")
    if change == "commit":
        commit(repository / "module", "later")
    elif change == "file":
        (repository / "module" / "file").write_text("changed")

    read = git_history.read(repository)
    module = git_history.read(repository / "module")

    assert isinstance(read, Revision)
    assert isinstance(module, Revision)
    assert (read.dirty, module.root) == (change != "none", repository / "module")


def test_a_repository_of_longer_ids_is_read(tmp_path):
    (tmp_path / "long").mkdir()
    git(tmp_path / "long", "init", "-q", "-b", "main", "--object-format=sha256")
    made = commit(tmp_path / "long", "first")

    read = git_history.read(tmp_path / "long")

    assert len(made) == 64
    assert read == Revision(tmp_path / "long", made, "main", dirty=False)


def test_branches_that_git_keeps_in_a_table_are_read(tmp_path):
    (tmp_path / "table").mkdir()
    begun = subprocess.run(
        ["git", "init", "-q", "-b", "main", "--ref-format=reftable", tmp_path / "table"], check=False
    )
    if begun.returncode:
        pytest.skip("this git is older than reference tables")
    made = commit(tmp_path / "table", "first")

    assert git_history.read(tmp_path / "table") == Revision(tmp_path / "table", made, "main", dirty=False)


def test_a_clone_without_files_fetches_them_from_its_server(tmp_path, monkeypatch):
    server = RemoteRepository(tmp_path / "server.git", monkeypatch)
    server.put({"a.py": b"old"})
    server.put({"a.py": b"new"})
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"{server.url}.git", str(tmp_path / "partial"))

    written = checkout.materialise(tmp_path / "partial", "HEAD~1", tmp_path / "base")
    server.close()

    assert written == tmp_path / "base"
    assert (tmp_path / "base" / "a.py").read_text() == "old"


def test_an_index_in_two_parts_is_read(repository):
    git(repository, "config", "core.splitIndex", "true")
    commit(repository, "second", "other")

    read = git_history.read(repository)

    assert isinstance(read, Revision)
    assert list((repository / ".git").glob("sharedindex.*"))
    assert not read.dirty


@pytest.mark.parametrize(("content", "dirty"), [("content", False), ("another", True)])
def test_a_large_file_in_the_work_tree_is_no_change(repository, content, dirty):
    pointer = store_large(repository, b"content")
    (repository / "weights.bin").write_text(pointer)
    commit_all(repository)
    (repository / "weights.bin").write_text(content)

    read = git_history.read(repository)

    assert isinstance(read, Revision)
    assert read.dirty is dirty


def test_line_ends_are_as_the_repository_wants_them(repository, tmp_path):
    git(repository, "config", "core.autocrlf", "true")
    (repository / "file").write_bytes(b"first")
    (repository / "lines").write_bytes(b"one\r\ntwo\r\n")
    commit_all(repository)

    read = git_history.read(repository)
    written = checkout.materialise(repository, "HEAD", tmp_path / "base")

    assert isinstance(read, Revision)
    assert not read.dirty
    assert isinstance(written, Path)
    assert (written / "lines").read_bytes() == b"one\r\ntwo\r\n"
