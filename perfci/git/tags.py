"""Releases: tags in the history of what is checked out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfci.core.model import Reason
from perfci.core.wording import say
from perfci.git.base import find_commit
from perfci.git.command import git, is_shallow
from perfci.git.history import is_ancestor


@dataclass(frozen=True)
class LastRelease:
    """The release that came before what is checked out."""

    name: str
    """of its tag, or as somebody named it"""
    commit: str


def find_last_release(folder: Path, pattern: str = "*", named: str | None = None) -> LastRelease | Reason:
    """Returns the newest tag in HEAD's history that fits the pattern and is not HEAD itself, or the revision named.

    Returns a reason if git cannot say, if no tag fits (release_none), if the clone is shallow and might lack one, and
    for a named revision that is not known, or not in HEAD's history.
    """
    if named is None:
        tags = _list_tags(folder, pattern, "--no-contains", "HEAD")
        if isinstance(tags, Reason):
            return tags
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


def _list_tags(folder: Path, pattern: str, *options: str) -> list[str] | Reason:
    """Returns the tags in HEAD's history that fit, the newest first."""
    wanted = ("--sort=-creatordate", "--format=%(creatordate:unix) %(refname:strip=2)", "--list", pattern)
    answer = git(folder, "tag", "--merged", "HEAD", *options, *wanted)
    if isinstance(answer, Reason):
        return answer
    pairs = (line.split(" ", 1) for line in answer.split("\n") if line)
    # A tag of a file or folder has no date, and is no release.
    return [name for made, name in pairs if made]
