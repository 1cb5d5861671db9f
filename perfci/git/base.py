"""Which commit the files at hand are compared with, or the one reason why there is none."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from perfci.core.model import Base, Reason
from perfci.core.wording import say
from perfci.git.command import find_object, git, parse_commit

MERGED = frozenset({"merged_result", "merge_train"})  # GitLab's pipelines on a commit that merges into the target
DEFAULT_BRANCHES = ("origin/main", "origin/master", "main", "master")  # if neither GitLab nor the clone names one
PROPOSALS = "perfci/nightly"  # prefix of the branches on which perfci proposes baselines

_EVERYTHING = "--tags origin '+refs/heads/*:refs/remotes/origin/*'"  # also in a clone of a single branch
_DIGITS = re.compile(r"[0-9a-f]{7,64}", re.IGNORECASE)


class How(StrEnum):
    """Where a base comes from."""

    ASKED = "asked"
    FIRST_PARENT = "first_parent"
    MERGE_BASE = "merge_base"
    BASELINE = "baseline"
    AGAIN = "again"  # each case against a commit of its own
    RELEASE = "release"  # each case against a release, or the beginning of its epoch after it


def resolve(
    folder: Path, asked: str | None, variables: Mapping[str, str], baseline_commit: str | None = None
) -> Base | Reason:
    """Returns the commit to compare with, or the one reason why there is none. `variables` is the environment.

    In this order: the revision asked for. In GitLab's merged-results and merge-train pipelines, HEAD's first parent. In
    a merge request, the merge base with its target branch. On another branch than the default one, or with commits that
    it lacks, the merge base with the default branch. Else the commit that the baselines record.
    """
    clone = _open_clone(folder)
    if isinstance(clone, Reason):
        return clone
    if asked is not None:
        return _find_asked(clone, asked)
    head = parse_commit(folder, "HEAD")
    if head is None:
        return Reason("no_commit_yet", {"folder": str(folder)})
    for find in (_find_first_parent, _find_in_merge_request, _find_on_branch):
        if found := find(clone, head, variables):
            return found
    if recorded := _find_recorded(clone, baseline_commit):
        return Base(recorded, How.BASELINE, recorded[:10])
    if baseline_commit and clone.shallow and _DIGITS.fullmatch(baseline_commit):
        missing = say("commit {commit}, which the baselines record", commit=baseline_commit[:10])
        return clone.lacks(missing, _EVERYTHING)
    return Reason("no_base")


def find_commit(folder: Path, name: str) -> str | Reason:
    """Returns the full id of the commit that a branch, tag, id or expression of git's stands for."""
    clone = _open_clone(folder)
    found = clone if isinstance(clone, Reason) else _find_asked(clone, name)
    return found if isinstance(found, Reason) else found.commit


@dataclass(frozen=True)
class _Clone:
    folder: Path
    shallow: bool

    def lacks(self, missing: str, fetched: str) -> Reason:
        return Reason("history_cut", {"missing": missing, "command": self.fetch(fetched)})

    def lacks_branch(self, branch: str) -> Reason:
        return Reason("target_not_fetched", {"branch": branch, "command": self.fetch(_track(branch))})

    def fetch(self, what: str) -> str:
        """Returns the command that fetches it, in a shallow clone with the history that a merge base needs."""
        return f"git fetch --unshallow {what}" if self.shallow else f"git fetch {what}"


def _open_clone(folder: Path) -> _Clone | Reason:
    shallow = git(folder, "rev-parse", "--is-shallow-repository")
    return shallow if isinstance(shallow, Reason) else _Clone(folder, shallow.strip() == "true")


def _find_asked(clone: _Clone, name: str) -> Base | Reason:
    # A branch that only the remote has is found too. If HEAD has no parent, HEAD~1 is not the remote's.
    beginning = re.split(r"[~^@:]", name)[0]
    known = beginning in {"", "HEAD"} or find_object(clone.folder, beginning) is not None
    for each in (name,) if known else (name, f"origin/{name}"):
        if found := parse_commit(clone.folder, each):
            return Base(found, How.ASKED, each)
    if clone.shallow and (_DIGITS.fullmatch(name) or (known and beginning != name)):
        return clone.lacks(name, _EVERYTHING)
    return Reason("revision_unknown", {"revision": name, "command": clone.fetch(_EVERYTHING)})


def _find_first_parent(clone: _Clone, head: str, variables: Mapping[str, str]) -> Base | Reason | None:
    """None also if HEAD has one parent: fast-forward trains rebase, so it may be the merge request's own commit."""
    if variables.get("CI_MERGE_REQUEST_EVENT_TYPE") not in MERGED:
        return None
    text = git(clone.folder, "cat-file", "commit", head)  # a shallow clone hides parents from all other commands
    if isinstance(text, Reason):
        return text
    parents = [line.split()[1] for line in text.split("\n\n")[0].splitlines() if line.startswith("parent ")]
    if len(parents) < 2:
        return None
    target = variables.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
    found = parse_commit(clone.folder, parents[0])
    name = f"origin/{target}" if target else "HEAD^1"
    return Base(found, How.FIRST_PARENT, name) if found else clone.lacks(say("HEAD's first parent"), _EVERYTHING)


def _find_in_merge_request(clone: _Clone, head: str, variables: Mapping[str, str]) -> Base | Reason | None:
    """GitLab may not have fetched the target branch. Then the merge base that it names is used."""
    branch = variables.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
    if not branch:
        return None
    name = f"origin/{branch}"
    found = _merge_base(clone, head, name) if parse_commit(clone.folder, _ref(name)) else clone.lacks_branch(branch)
    if isinstance(found, Reason):
        found = _find_recorded(clone, variables.get("CI_MERGE_REQUEST_DIFF_BASE_SHA")) or found
    return found if isinstance(found, Reason) else Base(found, How.MERGE_BASE, name)


def _find_on_branch(clone: _Clone, head: str, variables: Mapping[str, str]) -> Base | Reason | None:
    """None on the default branch: checked out by name, or a commit of its history."""
    default, branch = variables.get("CI_DEFAULT_BRANCH"), variables.get("CI_COMMIT_BRANCH")
    if branch and branch == default:
        return None
    # The remote's branch comes before ours: the one that GitLab names, that the clone recorded, the usual names.
    recorded = git(clone.folder, "symbolic-ref", "-q", "refs/remotes/origin/HEAD")
    first = () if isinstance(recorded, Reason) else (recorded.strip().removeprefix("refs/remotes/"),)
    names = (f"origin/{default}", default) if default else (*first, *DEFAULT_BRANCHES)
    name = next((name for name in names if parse_commit(clone.folder, _ref(name))), None)
    if name is None:
        return clone.lacks_branch(default) if default and branch else None
    found = _merge_base(clone, head, name)
    checked_out = git(clone.folder, "symbolic-ref", "-q", "HEAD")
    local = None if isinstance(checked_out, Reason) else checked_out.strip().removeprefix("refs/heads/")
    short = name.removeprefix("origin/")
    if found == head and (branch or local or short) == short:
        return None
    return found if isinstance(found, Reason) else Base(found, How.MERGE_BASE, name)


def _find_recorded(clone: _Clone, text: str | None) -> str | None:
    """Returns the commit of this id. The text comes from a file or variable that anyone may have written."""
    return parse_commit(clone.folder, text) if text and _DIGITS.fullmatch(text) else None


def _merge_base(clone: _Clone, head: str, name: str) -> str | Reason:
    found = git(clone.folder, "merge-base", head, _ref(name))
    if not isinstance(found, Reason):
        return found.strip()
    if clone.shallow:
        missing = say("the commit where HEAD and {name} part", name=name)
        return clone.lacks(missing, _track(name.removeprefix("origin/")))
    return Reason("nothing_in_common", {"branch": name})


def _track(branch: str) -> str:
    """Written in full, since a clone of a single branch would leave origin/<branch> as it is."""
    return "origin " + shlex.quote(f"+refs/heads/{branch}:refs/remotes/origin/{branch}")


def _ref(name: str) -> str:
    return f"refs/remotes/{name}" if name.startswith("origin/") else f"refs/heads/{name}"
