"""The commits between two revisions, compared with git's bisection."""

import subprocess

import pytest

from perfci.extensions.history.commits import Commit, count_between, describe, find_ends, list_changes, list_halving
from tests.git_repositories import clone, commit, fork, git, start, told


@pytest.fixture
def repository(tmp_path):
    return start(tmp_path / "repository")


@pytest.fixture
def forked(repository):
    """On the branch topic, one commit beyond where it left main; main has moved on by another."""
    return fork(repository)


def line(repository, count, start=0):
    """Commits in a row, the oldest first; every third touches the file `kernel`."""
    return [commit(repository, f"c{n}", "kernel" if n % 3 == 0 else "notes") for n in range(start, start + count)]


def bisected(repository, good, bad, culprit, *options):
    """The commits that `git bisect` tries, in a separate clone."""
    copy = clone(repository)
    git(copy, "bisect", "start", *options, bad, *good)
    tried = []
    while (copy / ".git" / "BISECT_LOG").exists() and (now := git(copy, "rev-parse", "HEAD")) not in tried:
        tried.append(now)
        slow = subprocess.run(["git", "-C", copy, "merge-base", "--is-ancestor", culprit, now], check=False)
        git(copy, "bisect", "good" if slow.returncode else "bad")
    return tried


# --- the two ends -----------------------------------------------------------------------------------------------------


def test_ends_that_are_no_ends_say_why_and_what_to_do(repository, forked):
    cases = {
        ("main", "main"): "bisect_not_ancestor",
        ("main", "main~1"): "bisect_not_ancestor",
        ("main", "topic"): "bisect_not_ancestor",
        ("mian", "topic"): "revision_unknown",
        ("0123456789", "topic"): "revision_unknown",
        ("main", "HEAD:file"): "revision_unknown",
    }

    assert {names: told(find_ends)(forked, *names).kind for names in cases} == cases


def test_a_shallow_clone_that_lacks_the_way_between_says_how_to_get_it(repository):
    line(repository, 5)
    git(repository, "tag", "old", "HEAD~4")
    shallow = clone(repository, "--depth", "2")
    git(shallow, "fetch", "-q", "--depth", "1", "origin", "tag", "old")

    reason = told(find_ends)(shallow, "old", "HEAD")

    assert reason.kind == "history_cut"
    assert reason.facts["command"] == "git fetch --unshallow origin"


# --- which to try -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", [1, 12])
def test_the_way_of_git_bisect_is_taken(repository, culprit):
    commits = line(repository, 16)
    mine, good, bad = [], {commits[0]}, commits[-1]
    while left := [commit for commit in list_halving(repository, good, bad) if commit != bad]:
        mine.append(left[0])
        if commits.index(left[0]) >= culprit:
            bad = left[0]
        else:
            good.add(left[0])

    assert bad == commits[culprit]
    # If several halve equally well, git may choose another one.
    assert abs(len(mine) - len(bisected(repository, [commits[0]], commits[-1], commits[culprit]))) <= 1


def merged(repository):
    """Main and a side branch with commits of their own, merged."""
    (first, *_) = line(repository, 3)
    git(repository, "checkout", "-q", "-b", "side")
    side = [commit(repository, f"s{n}", "kernel2") for n in range(4)]
    git(repository, "checkout", "-q", "main")
    line(repository, 4, start=3)
    git(repository, "merge", "-q", "--no-ff", "-m", "merged", "side")
    line(repository, 2, start=7)
    return first, side


def test_a_merged_branch_is_searched_and_with_first_parent_its_merge_stands_for_it(repository):
    first, side = merged(repository)
    head = git(repository, "rev-parse", "HEAD")

    every, main = list_halving(repository, [first], head), list_halving(repository, [first], head, first_parent=True)

    assert set(side) <= set(every)
    assert not set(side) & set(main)
    assert count_between(repository, first, head) == len(every) == 13
    assert count_between(repository, first, head, first_parent=True) == len(main) == 9


def test_only_commits_that_touch_the_paths_are_tried(repository):
    commits = line(repository, 10)

    halving = list_halving(repository, [commits[0]], commits[-1], ["kernel"])

    assert set(halving) == {commits[3], commits[6], commits[9]}
    assert list_halving(repository, [commits[0]], commits[2], ["kernel"]) == ()


# --- a commit's message -----------------------------------------------------------------------------------------------


def test_a_commit_is_described_by_its_own_words(repository):
    parent = git(repository, "rev-parse", "HEAD")
    revision = commit(repository, "faster, they said\n\nwith a body\x1b[31m")

    assert describe(repository, revision) == Commit(
        revision, (parent,), "A. Tester", git(repository, "log", "-1", "--format=%as"), "faster, they said"
    )


def test_the_files_that_a_commit_changed_are_listed(repository):
    commit(repository, "one\ntwo\nthree\n", "kernels/a b\t.py")
    (repository / "picture.bin").write_bytes(b"\0\1\2")
    git(repository, "add", "picture.bin")
    changed = commit(repository, "one\n2\nthree\nfour\n", "kernels/a b\t.py")

    assert set(list_changes(repository, changed)) == {"kernels/a b\t.py", "picture.bin"}
    # In a project in a folder of the repository, names begin there.
    assert list_changes(repository / "kernels", changed) == ("a b\t.py",)


def test_commits_that_touched_the_paths_are_counted_without_merges(repository):
    first, side = merged(repository)

    assert count_between(repository, first, "HEAD", ["kernel2"]) == len(side)
    assert count_between(repository, "HEAD", "HEAD", ["kernel2"]) == 0
