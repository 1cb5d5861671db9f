"""The commits of a repository's history, by git. Nothing here changes a repository. If git cannot answer: GitError."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import GitError
from perfci.core.wording import say
from perfci.git.base import find_commit
from perfci.git.command import ask, is_shallow

MOST_PATHS = 500  # Longest list of paths that git is given. A longer one would not fit a command line everywhere.

_DISTANCE = re.compile(r"dist=(\d+)\)")


@dataclass(frozen=True)
class Commit:
    """A commit as it presents itself. Title and author are foreign text."""

    id: str
    parents: tuple[str, ...]
    author: str
    date: str  # of its writing, as YYYY-MM-DD
    title: str


def find_ends(folder: Path, good: str, bad: str) -> tuple[str, str]:
    """Returns the ids of two revisions. Raises GitError unless the first is an ancestor of the second."""
    first, last = find_commit(folder, good), find_commit(folder, bad)
    if first != last and is_ancestor(folder, first, last):
        return first, last
    if first != last and is_shallow(folder):
        missing = say("the history between {good} and {bad}", good=good, bad=bad)
        raise GitError("history_cut", missing=missing, command="git fetch --unshallow origin")
    raise GitError("bisect_not_ancestor", good=good, bad=bad)


def is_ancestor(folder: Path, first: str, last: str) -> bool:
    """Returns whether a commit is in the history of another."""
    return count_between(folder, last, first) == 0


def count_between(folder: Path, good: str, bad: str, paths: Sequence[str] = (), *, first_parent: bool = False) -> int:
    """Returns how many commits BAD has and GOOD has not. With paths those that touch one of them, merges left out."""
    options = [*(["--first-parent"] if first_parent else []), *(["--no-merges"] if paths else [])]
    command = ("--literal-pathspecs", "rev-list", "--count", *options, bad, f"^{good}", "--", *_limit(paths))
    return int(ask(folder, *command))


def list_halving(
    folder: Path, good: Collection[str], bad: str, paths: Sequence[str] = (), *, first_parent: bool = False
) -> tuple[str, ...]:
    """Returns the commits of `bad` and of no `good` one that touch a path, if any is given, the best halving first."""
    options = ("--bisect-all", "--first-parent") if first_parent else ("--bisect-all",)
    without = tuple(f"^{commit}" for commit in sorted(good))
    listed = ask(folder, "--literal-pathspecs", "rev-list", *options, bad, *without, "--", *_limit(paths))
    tags = [(line.split(" ", 1)[0], _DISTANCE.search(line)) for line in listed.splitlines()]
    # Git's order, but for equal distances, among which git's depends on its version.
    ordered = sorted(tags, key=lambda one: -int(one[1][1]) if one[1] else 0)
    return tuple(commit for commit, _ in ordered)


def _limit(paths: Sequence[str]) -> Sequence[str]:
    return [*dict.fromkeys(paths)] if len(paths) <= MOST_PATHS else []


def describe(folder: Path, commit: str) -> Commit:
    """Returns a commit's id, parents, author, date and title."""
    fields = "--format=%H%x00%P%x00%an%x00%as%x00%s"
    answer = ask(folder, "log", "-1", "-z", "--no-show-signature", fields, commit, "--")
    identifier, parents, *rest = answer.removesuffix("\0").split("\0")
    return Commit(identifier, tuple(parents.split()), *rest)


def list_changes(folder: Path, commit: str) -> tuple[str, ...]:
    """Returns the files of the project that a commit changed against its first parent. All of them for a first one."""
    described = describe(folder, commit)
    trees = (described.parents[0], described.id) if described.parents else ("--root", "--no-commit-id", described.id)
    options = ("-r", "--name-only", "-z", "--no-renames", "--relative")
    return tuple(ask(folder, "diff-tree", *options, *trees, "--").split("\0")[:-1])


@dataclass(frozen=True)
class LastRelease:
    """The release that came before what is checked out."""

    name: str  # of its tag, or as it was named
    commit: str


def find_last_release(folder: Path, pattern: str = "*", named: str | None = None) -> LastRelease:
    """Returns the newest tag in HEAD's history that fits the pattern and is not HEAD itself, or the revision named.

    Raises GitError if no tag fits (release_none), if a shallow clone may lack it, or if the revision is not in HEAD's
    history.
    """
    if named is not None:
        try:
            last_release = find_commit(folder, named)
        except GitError as error:
            if error.reason.kind.startswith("revision_"):
                raise GitError("release_unknown", release=named) from error
            raise
        if not is_ancestor(folder, last_release, "HEAD"):
            raise GitError("release_unknown", release=named)
        return LastRelease(named, last_release)
    # Newest first. A tag of a file or folder has no date, and is no release.
    wanted = ("--sort=-creatordate", "--format=%(creatordate:unix) %(refname:strip=2)", "--list", pattern)
    listed = ask(folder, "tag", "--merged", "HEAD", "--no-contains", "HEAD", *wanted)
    tags = [name for made, _, name in (line.partition(" ") for line in listed.split("\n")) if made]
    if not tags and is_shallow(folder):
        missing = say("the last release")
        raise GitError("history_cut", missing=missing, command="git fetch --unshallow --tags origin")
    if not tags:
        raise GitError("release_none", pattern=pattern)
    return LastRelease(tags[0], find_commit(folder, f"refs/tags/{tags[0]}"))
