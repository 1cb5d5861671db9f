"""The logbook of an op: appended to, merged by git line by line, and read whatever became of a line."""

from pathlib import Path

import pytest

from perfci.core.errors import GitError, StoredFileError
from perfci.core.model import Reason
from perfci.extensions.agents.logbook import FILE, Round, RoundVerdict, append_round, keep_files, read_logbook
from tests.git_repositories import commit, git, start

START = "a" * 40


def made(number, verdict="kept", **options):
    rounds = {
        "op": "scale",
        "why": "why",
        "time": f"2026-01-{number:02}T00:00:00Z",
        "start": START,
        "commit": f"c{number}",
    }
    return Round(**{**rounds, "number": number, "verdict": RoundVerdict(verdict), "place": number, **options})


def keep(folder, *rounds):
    for round_ in rounds:
        append_round(folder, round_)
    return read_logbook(folder)


def test_what_was_appended_is_read(tmp_path):
    rounds = made(1), made(2, "wrong", best=1, against="c1", reasons=(Reason("round_repeated", {"number": 1}),))

    assert keep(tmp_path, *rounds).rounds == rounds
    assert read_logbook(tmp_path / "none").rounds == ()


def test_the_best_is_what_was_kept_last_from_this_start(tmp_path):
    logbook = keep(tmp_path, made(1), made(2), made(3, "slower"), made(4, start="b" * 40), made(5, "refused"))

    assert [round_.number for round_ in logbook.list_of(START)] == [1, 2, 3]
    assert logbook.next_number == 6


@pytest.mark.parametrize("torn", [b'{"op": "sca', b"\xff\xfe", b"{}", b"[" * 5000, b'{"format": 99}', b"<<<<<<< ours"])
def test_a_line_that_cannot_be_read_is_named_and_everything_else_goes_on(tmp_path, torn):
    keep(tmp_path, made(1))
    with (tmp_path / FILE).open("ab") as file:
        file.write(torn)

    logbook = keep(tmp_path, made(3))

    assert [round_.number for round_ in logbook.rounds] == [1, 3]
    assert [(problem.kind, problem.facts["line"]) for problem in logbook.problems] == [("logbook_damaged", 2)]
    assert (tmp_path / FILE).read_bytes().split(b"\n")[1] == torn
    assert logbook.next_number == 5


def test_a_line_that_a_merge_left_twice_counts_once(tmp_path):
    keep(tmp_path, made(1))
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes() * 2)

    assert [round_.number for round_ in read_logbook(tmp_path).rounds] == [1]


def test_rounds_of_two_branches_get_numbers_of_their_own_and_keep_whom_they_were_compared_with(tmp_path):
    ours = made(2, commit="ours", best=1, against="c1"), made(3, commit="ours3", best=2, against="ours")
    theirs = made(2, commit="theirs", best=1, against="c1", time="2026-01-01T12:00:00Z")

    rounds = keep(tmp_path, made(1), *ours, theirs).rounds

    assert [(round_.number, round_.commit, round_.best) for round_ in rounds] == [
        (1, "c1", 0), (2, "theirs", 1), (3, "ours3", 4), (4, "ours", 1),
    ]  # fmt: skip


def test_a_logbook_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / FILE).mkdir()

    with pytest.raises(StoredFileError):
        append_round(tmp_path, made(1))


def test_the_logbook_in_the_docs_can_be_read():
    logbook = read_logbook(Path(__file__).parents[3] / "docs" / "example-rounds")

    assert [str(round_.verdict) for round_ in logbook.rounds] == ["kept", "slower", "slower", "slower", "kept"]
    assert not logbook.problems


# --- the commit of a round --------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path):
    folder = start(tmp_path / "repository")
    commit(folder, "old", "inner/kernel.py")
    commit(folder, "gone", "inner/old.json")
    return folder


def test_files_of_the_work_tree_become_a_commit_and_nothing_else_changes(repository):
    head = git(repository, "rev-parse", "HEAD")
    (repository / "inner" / "kernel.py").write_text("new")
    (repository / "inner" / "old.json").unlink()
    (repository / "inner" / "new *.json").write_text("1")
    (repository / "inner" / "other.py").write_text("not a part")
    git(repository, "add", "inner/other.py")
    before = git(repository, "status", "--porcelain")

    files = keep_files(repository / "inner", head, ["kernel.py", "old.json", "new *.json"], "said\n", "refs/perfci/a/1")

    assert git(repository, "rev-parse", "refs/perfci/a/1") == files
    assert git(repository, "rev-parse", f"{files}^") == head == git(repository, "rev-parse", "HEAD")
    changed = git(repository, "diff", "--name-status", head, files).split("\n")
    assert changed == ["M\tinner/kernel.py", "A\tinner/new *.json", "D\tinner/old.json"]
    assert git(repository, "log", "-1", "--format=%an %s", files) == "perfci said"
    assert git(repository, "status", "--porcelain") == before


def test_it_is_kept_by_its_ref_when_git_collects_what_nobody_needs(repository):
    (repository / "inner" / "kernel.py").write_text("new")
    files = keep_files(repository, "HEAD", ["inner/kernel.py"], "said\n", "refs/perfci/a/1")

    git(repository, "gc", "-q", "--prune=now")

    assert git(repository, "show", f"{files}:inner/kernel.py") == "new"


def test_no_hook_or_filter_of_the_repository_runs(repository, tmp_path):
    mark = tmp_path / "mark"
    for name in ("reference-transaction", "pre-commit", "post-commit"):
        hook = repository / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
        hook.chmod(0o755)
    git(repository, "config", "filter.evil.clean", f"touch {mark}")
    (repository / ".gitattributes").write_text("* filter=evil\n")
    (repository / "inner" / "kernel.py").write_text("new")

    keep_files(repository, "HEAD", ["inner/kernel.py"], "said\n", "refs/perfci/a/1")

    assert not mark.exists()


def test_a_ref_behind_a_link_is_not_written(repository, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (repository / ".git" / "refs" / "perfci").symlink_to(tmp_path / "elsewhere")
    (repository / "inner" / "kernel.py").write_text("new")

    with pytest.raises(StoredFileError, match="link"):
        keep_files(repository, "HEAD", ["inner/kernel.py"], "said\n", "refs/perfci/a/1")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_unknown_parent_is_an_error(repository):
    with pytest.raises(GitError):
        keep_files(repository, "f" * 40, ["inner/kernel.py"], "said\n", "refs/perfci/a/1")
