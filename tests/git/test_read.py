from perfci import git as git_history
from perfci.git import Revision
from tests.git_repositories import git, start


def test_a_clean_checkout_is_told_as_it_is(repository):
    head = git(repository, "rev-parse", "HEAD")

    assert git_history.read(repository) == Revision(repository.resolve(), head, "main", dirty=False)


def test_the_root_is_found_from_a_folder_inside(repository):
    (repository / "inner").mkdir()

    history = git_history.read(repository / "inner")

    assert isinstance(history, Revision)
    assert history.root == repository.resolve()


def test_a_changed_tracked_file_is_dirty_and_a_new_one_is_not(repository):
    (repository / "new").write_text("untracked")
    clean = git_history.read(repository)
    (repository / "file").write_text("changed")
    dirty = git_history.read(repository)

    assert isinstance(clean, Revision)
    assert isinstance(dirty, Revision)
    assert (clean.dirty, dirty.dirty) == (False, True)


def test_a_detached_head_has_no_branch(repository):
    git(repository, "checkout", "-q", "--detach")

    history = git_history.read(repository)

    assert isinstance(history, Revision)
    assert history.branch is None


def test_a_hook_of_another_repository_does_not_mislead(repository, monkeypatch, tmp_path):
    other = start(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))

    history = git_history.read(repository)

    assert isinstance(history, Revision)
    assert history.root == repository.resolve()
