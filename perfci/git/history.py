"""The commits of a repository's history, by git. Nothing here changes a repository."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.core.model import Reason
from perfci.core.wording import say
from perfci.git.base import find_commit
from perfci.git.command import git, is_shallow, run

MOST_PATHS = 500  # Longest list of paths that git is given. A longer one would not fit a command line everywhere.

_DISTANCE = re.compile(r"dist=(\d+)\)")
_FIELDS = "%H%x00%P%x00%an%x00%as%x00%s"


@dataclass(frozen=True)
class Commit:
    """A commit as it presents itself. Title and author are foreign text."""

    id: str
    parents: tuple[str, ...]
    author: str
    date: str  # of its writing, as YYYY-MM-DD
    title: str


def find_ends(folder: Path, good: str, bad: str) -> tuple[str, str] | Reason:
    """Returns the ids of two revisions if the first is an ancestor of the second, otherwise why not."""
    first, last = find_commit(folder, good), find_commit(folder, bad)
    if isinstance(first, Reason) or isinstance(last, Reason):
        return first if isinstance(first, Reason) else last  # type: ignore[return-value]
    forward = first != last and is_ancestor(folder, first, last)
    if isinstance(forward, Reason):
        return forward
    if forward:
        return first, last
    if first != last and is_shallow(folder):
        missing = say("the history between {good} and {bad}", good=good, bad=bad)
        return Reason("history_cut", {"missing": missing, "command": "git fetch --unshallow origin"})
    return Reason("bisect_not_ancestor", {"good": good, "bad": bad})


def is_ancestor(folder: Path, first: str, last: str) -> bool | Reason:
    """Returns whether a commit is in the history of another."""
    done = run(folder, "merge-base", "--is-ancestor", first, last)
    if isinstance(done, Reason):
        return done
    if done.returncode in {0, 1}:
        return done.returncode == 0
    why = done.stderr.decode(errors="replace").strip().splitlines() or [say("it gave no reason")]
    return Reason("git_failed", {"folder": str(folder), "why": why[0].removeprefix("fatal: ").rstrip(".")})


def count_between(folder: Path, good: str, bad: str, *, first_parent: bool = False) -> int | Reason:
    """Returns how many commits BAD has and GOOD has not."""
    options = ("--first-parent",) if first_parent else ()
    listed = git(folder, "rev-list", "--count", *options, bad, f"^{good}", "--")
    return listed if isinstance(listed, Reason) else int(listed)


def list_halving(
    folder: Path, good: Collection[str], bad: str, paths: Sequence[str] = (), *, first_parent: bool = False
) -> tuple[str, ...] | Reason:
    """Returns the commits of `bad` and of no `good` one that touch a path, if any is given, the best halving first."""
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
    """Returns a commit's id, parents, author, date and title."""
    answer = git(folder, "log", "-1", "-z", "--no-show-signature", f"--format={_FIELDS}", commit, "--")
    return answer if isinstance(answer, Reason) else _parse_commits(answer)[0]


def list_touching(folder: Path, good: str, bad: str, paths: Sequence[str], most: int) -> tuple[Commit, ...] | Reason:
    """Returns commits that BAD has and GOOD has not and touching one of the paths, newest first, no merges."""
    options = (f"--max-count={most}", "--no-merges", "-z", "--no-show-signature", f"--format={_FIELDS}")
    limits = tuple(paths) if len(paths) <= MOST_PATHS else ()
    answer = git(folder, "--literal-pathspecs", "log", *options, bad, f"^{good}", "--", *limits)
    return answer if isinstance(answer, Reason) else _parse_commits(answer)


def find_prefix(folder: Path) -> str | Reason:
    """Returns the folder's place in its repository, with a slash at its end. Empty for the repository's root."""
    found = git(folder, "rev-parse", "--show-prefix")
    return found if isinstance(found, Reason) else found.removesuffix("\n")


def _parse_commits(answer: str) -> tuple[Commit, ...]:
    """Five fields a commit, each ended by a null byte. The last one too, by -z."""
    fields = answer.removesuffix("\0").split("\0") if answer else []
    return tuple(
        Commit(found, tuple(parents.split()), author, date, title)
        for found, parents, author, date, title in zip(*[iter(fields)] * 5, strict=True)
    )


def list_changes(folder: Path, commit: str) -> tuple[str, ...] | Reason:
    """Returns the files of the project that a commit changed against its first parent. All of them for a first one."""
    found = describe(folder, commit)
    if isinstance(found, Reason):
        return found
    trees = (found.parents[0], found.id) if found.parents else ("--root", "--no-commit-id", found.id)
    answer = git(folder, "diff-tree", "-r", "--name-only", "-z", "--no-renames", "--relative", *trees, "--")
    return answer if isinstance(answer, Reason) else tuple(answer.split("\0")[:-1])


@dataclass(frozen=True)
class LastRelease:
    """The release that came before what is checked out."""

    name: str  # of its tag, or as somebody named it
    commit: str


def find_last_release(folder: Path, pattern: str = "*", named: str | None = None) -> LastRelease | Reason:
    """Returns the newest tag in HEAD's history that fits the pattern and is not HEAD itself, or the revision named.

    A reason if no tag fits (release_none), if a shallow clone may lack it, or if the revision is not in HEAD's history.
    """
    if named is None:
        # Newest first. A tag of a file or folder has no date, and is no release.
        wanted = ("--sort=-creatordate", "--format=%(creatordate:unix) %(refname:strip=2)", "--list", pattern)
        answer = git(folder, "tag", "--merged", "HEAD", "--no-contains", "HEAD", *wanted)
        if isinstance(answer, Reason):
            return answer
        tags = [name for made, _, name in (line.partition(" ") for line in answer.split("\n")) if made]
        if not tags and is_shallow(folder):
            facts = {"missing": say("the last release"), "command": "git fetch --unshallow --tags origin"}
            return Reason("history_cut", facts)
        if not tags:
            return Reason("release_none", {"pattern": pattern})
        found = find_commit(folder, f"refs/tags/{tags[0]}")
        return found if isinstance(found, Reason) else LastRelease(tags[0], found)
    found = find_commit(folder, named)
    if isinstance(found, Reason):
        return Reason("release_unknown", {"release": named}) if found.kind.startswith("revision_") else found
    before = is_ancestor(folder, found, "HEAD")
    if isinstance(before, Reason):
        return before
    return LastRelease(named, found) if before else Reason("release_unknown", {"release": named})
