"""Releases: tags in the history of what is checked out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfci.core.model import Reason
from perfci.core.wording import say
from perfci.git.base import commit
from perfci.git.command import git
from perfci.git.history import is_ancestor


@dataclass(frozen=True)
class LastRelease:
    """The release that came before what is checked out."""

    name: str
    """of its tag, or as somebody named it"""
    commit: str
    aside: str | None = None
    """a newer tag that is not in HEAD's history: moved, or made on another branch"""


def find_last_release(folder: Path, pattern: str = "*", named: str | None = None) -> LastRelease | Reason:
    """The newest tag in HEAD's history that fits the pattern and is not HEAD itself; or that one revision.

    A reason where git cannot say: release_none if no tag fits, release_all_aside where those that do are not in
    HEAD's history, history_cut if the clone is shallow and might lack one; and for a revision that is not known, or
    not in HEAD's history.
    """
    if named is not None:
        return _named(folder, named)
    merged, others = (_tags(folder, pattern, which) for which in ("--merged", "--no-merged"))
    if isinstance(merged, Reason) or isinstance(others, Reason):
        return merged if isinstance(merged, Reason) else others  # type: ignore[return-value]
    if not merged:
        return _none(folder, pattern, others)
    made, name = merged[0]
    found = commit(folder, f"refs/tags/{name}")
    aside = others[0][1] if others and others[0][0] > made else None
    return found if isinstance(found, Reason) else LastRelease(name, found, aside)


def _tags(folder: Path, pattern: str, which: str) -> list[tuple[int, str]] | Reason:
    """When each was made and its name, the newest first. Those that hold HEAD are no releases before it."""
    wanted = ("--sort=-creatordate", "--format=%(creatordate:unix) %(refname:strip=2)", "--list", pattern)
    told = git(folder, "tag", which, "HEAD", "--no-contains", "HEAD", *wanted)
    if isinstance(told, Reason):
        return told
    pairs = (line.split(" ", 1) for line in told.split("\n") if line)
    # A tag of a file or folder has no date, and is no release.
    return [(int(made), name) for made, name in pairs if made]


def _none(folder: Path, pattern: str, others: list[tuple[int, str]]) -> Reason:
    if git(folder, "rev-parse", "--is-shallow-repository") == "true\n":
        facts = {"missing": say("the last release"), "command": "git fetch --unshallow --tags origin"}
        return Reason("history_cut", facts)
    if others:
        return Reason("release_all_aside", {"pattern": pattern, "tag": others[0][1], "count": len(others)})
    return Reason("release_none", {"pattern": pattern})


def _named(folder: Path, name: str) -> LastRelease | Reason:
    found = commit(folder, name)
    if isinstance(found, Reason):
        return Reason("release_unknown", {"release": name}) if found.kind.startswith("revision_") else found
    inside = is_ancestor(folder, found, "HEAD")
    if isinstance(inside, Reason):
        return inside
    return LastRelease(name, found) if inside else Reason("release_not_before", {"release": name, "commit": found[:10]})
