"""Releases: tags in the history of what is checked out, and which commits they hold."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from perfci.model import Reason
from perfci.revision.base import commit
from perfci.revision.command import git

NEWEST = 5
"""Tags that are looked at: further back no history of accepted runs reaches."""

DEEPEST = 50_000
"""Commits of a tag's history that are looked through."""


@dataclass(frozen=True)
class Release:
    """A tag, or a revision that somebody named."""

    name: str
    holds: frozenset[str]
    """those of the commits asked about that are in it or before it"""


def releases(folder: Path, commits: Collection[str], named: str | None = None) -> tuple[Release, ...] | Reason:
    """The newest tags in HEAD's history that hold any of the commits, the newest first; or that one revision.

    A reason where git cannot say, or knows no such revision; none where no commit of them is in a tag.
    """
    if named is not None:
        found = commit(folder, named)
        return found if isinstance(found, Reason) else (Release(named, _holding(folder, found, commits)),)
    told = git(folder, "tag", "--merged", "HEAD", "--sort=-creatordate", "--format=%(refname:short)")
    if isinstance(told, Reason):
        return told
    tags = [line for line in told.split("\n") if line][:NEWEST]
    known = (Release(tag, _holding(folder, f"refs/tags/{tag}", commits)) for tag in tags)
    return tuple(release for release in known if release.holds)


def _holding(folder: Path, revision: str, commits: Collection[str]) -> frozenset[str]:
    told = git(folder, "rev-list", f"--max-count={DEEPEST}", revision, "--")
    return frozenset() if isinstance(told, Reason) else frozenset(commits) & frozenset(told.split())
