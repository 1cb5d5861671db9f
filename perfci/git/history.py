"""The commits between two revisions, as git tells of them. Nothing here changes a repository."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.core.model import Reason
from perfci.core.wording import say
from perfci.git.base import commit as commit_of
from perfci.git.command import git, run

MOST_PATHS = 500
"""Longest list of paths that git is given; a longer one would not fit a command line everywhere."""

_DISTANCE = re.compile(r"dist=(\d+)\)")
_FIELDS = "%H%x00%P%x00%an%x00%as%x00%s"


@dataclass(frozen=True)
class Commit:
    """A commit as it presents itself; title and author are foreign text."""

    id: str
    parents: tuple[str, ...]
    author: str
    date: str
    """of its writing, as YYYY-MM-DD"""
    title: str


@dataclass(frozen=True)
class FileChange:
    """One file of a commit against its first parent."""

    name: str
    """from the project's root"""
    added: int | None
    """lines. None if the file is no text"""
    deleted: int | None


def find_ends(folder: Path, good: str, bad: str) -> tuple[str, str] | Reason:
    """The ids of two revisions, the first of which is an ancestor of the second; or why they are no two such ends."""
    ids = []
    for name in (good, bad):
        found = commit_of(folder, name)
        if isinstance(found, Reason):
            return found
        ids.append(found)
    first, last = ids
    if first == last:
        return Reason("bisect_same_commit", {"good": good, "bad": bad, "commit": first[:10]})
    forward = is_ancestor(folder, first, last)
    if isinstance(forward, Reason):
        return forward
    return (first, last) if forward else _apart(folder, first, last, good, bad)


def is_ancestor(folder: Path, first: str, last: str) -> bool | Reason:
    """Whether a commit is in the history of another."""
    done = run(folder, "merge-base", "--is-ancestor", first, last)
    if isinstance(done, Reason):
        return done
    if done.returncode in {0, 1}:
        return done.returncode == 0
    why = done.stderr.decode(errors="replace").strip().splitlines() or [say("it gave no reason")]
    return Reason("git_failed", {"folder": str(folder), "why": why[0].removeprefix("fatal: ").rstrip(".")})


def _apart(folder: Path, first: str, last: str, good: str, bad: str) -> Reason:
    """Why GOOD is not in BAD's history."""
    facts = {"good": good, "bad": bad}
    if is_ancestor(folder, last, first) is True:
        return Reason("bisect_swapped", facts)
    shallow = git(folder, "rev-parse", "--is-shallow-repository")
    if isinstance(shallow, str) and shallow.strip() == "true":
        missing = say("the history between {good} and {bad}", good=good, bad=bad)
        return Reason("history_cut", {"missing": missing, "command": "git fetch --unshallow origin"})
    common = git(folder, "merge-base", first, last)
    if isinstance(common, Reason):
        return Reason("bisect_unrelated", facts)
    return Reason("bisect_not_ancestor", {**facts, "common": common.strip()[:10]})


def count_between(folder: Path, good: str, bad: str, *, first_parent: bool = False) -> int | Reason:
    """How many commits BAD has and GOOD has not."""
    options = ("--first-parent",) if first_parent else ()
    listed = git(folder, "rev-list", "--count", *options, bad, f"^{good}", "--")
    return listed if isinstance(listed, Reason) else int(listed)


def list_halving(
    folder: Path, good: Collection[str], bad: str, paths: Sequence[str] = (), *, first_parent: bool = False
) -> tuple[str, ...] | Reason:
    """What git bisect would try: commits that `bad` has and none of `good` has, those first that halve them best.

    paths, from the folder: only commits that touch one of them, with the merges that join such commits. None for all.
    """
    options = ("--first-parent",) if first_parent else ()
    limits = (*dict.fromkeys(paths),) if len(paths) <= MOST_PATHS else ()
    without = tuple(f"^{commit}" for commit in sorted(good))
    listed = git(folder, "--literal-pathspecs", "rev-list", "--bisect-all", *options, bad, *without, "--", *limits)
    if isinstance(listed, Reason):
        return listed
    found = [(line.split(" ", 1)[0], _DISTANCE.search(line)) for line in listed.splitlines()]
    # Git's order, but for equal distances, among which git's own depends on its version.
    ordered = sorted(found, key=lambda one: -int(one[1][1]) if one[1] else 0)
    return tuple(commit for commit, _ in ordered)


def describe(folder: Path, commit: str) -> Commit | Reason:
    """A commit's id, parents, author, date and title."""
    told = git(folder, "log", "-1", "-z", "--no-show-signature", f"--format={_FIELDS}", commit, "--")
    return told if isinstance(told, Reason) else _commits(told)[0]


def list_touching(folder: Path, good: str, bad: str, paths: Sequence[str], most: int) -> tuple[Commit, ...] | Reason:
    """Commits that BAD has and GOOD has not and that touch one of the paths, the newest first; merges left out."""
    options = (f"--max-count={most}", "--no-merges", "-z", "--no-show-signature", f"--format={_FIELDS}")
    limits = tuple(paths) if len(paths) <= MOST_PATHS else ()
    told = git(folder, "--literal-pathspecs", "log", *options, bad, f"^{good}", "--", *limits)
    return told if isinstance(told, Reason) else _commits(told)


def find_prefix(folder: Path) -> str | Reason:
    """The folder's place in its repository, with a slash at its end. Empty for the repository's root."""
    found = git(folder, "rev-parse", "--show-prefix")
    return found if isinstance(found, Reason) else found.removesuffix("\n")


def _commits(told: str) -> tuple[Commit, ...]:
    """Five fields a commit, each ended by a null byte. The last one too, by -z."""
    fields = told.removesuffix("\0").split("\0") if told else []
    return tuple(
        Commit(found, tuple(parents.split()), author, date, title)
        for found, parents, author, date, title in zip(*[iter(fields)] * 5, strict=True)
    )


def list_changes(folder: Path, commit: str) -> tuple[FileChange, ...] | Reason:
    """The files of the project that a commit changed against its first parent. All of them for a first commit."""
    found = describe(folder, commit)
    if isinstance(found, Reason):
        return found
    trees = (found.parents[0], found.id) if found.parents else ("--root", "--no-commit-id", found.id)
    told = git(folder, "diff-tree", "-r", "--numstat", "-z", "--no-renames", "--relative", *trees, "--")
    return told if isinstance(told, Reason) else tuple(_change(entry) for entry in told.split("\0") if entry.strip())


def _change(entry: str) -> FileChange:
    """`added<tab>deleted<tab>name`, with dashes if the file is no text."""
    added, deleted, name = entry.strip("\n").split("\t", 2)
    return FileChange(name, *(int(count) if count.isdigit() else None for count in (added, deleted)))
