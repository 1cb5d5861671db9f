"""Which commit the files at hand are compared with. GitError has the one reason if there is none."""

import re
import shlex
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from perfci.core.errors import GitError
from perfci.core.model import Base
from perfci.core.wording import say
from perfci.git.command import ask, find_first, find_object, git, is_shallow, parse_commit

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
    AGAIN = "again"  # each case against a separate commit
    RELEASE = "release"  # each case against a release, or the beginning of its epoch after it


def resolve(folder: Path, asked: str | None, variables: Mapping[str, str], baseline_commit: str | None = None) -> Base:
    """Returns the commit to compare with. Raises GitError if there is none. `variables` is the environment.

    In this order: the revision asked for. In GitLab's merged-results and merge-train pipelines, HEAD's first parent. In
    a merge request, the merge base with its target branch. On another branch than the default one, or with commits that
    it lacks, the merge base with the default branch. Else the commit that the baselines record.
    """
    shallow = is_shallow(folder)  # which raises if there is no git, or no repository
    if asked is not None:
        return _find_asked(folder, asked)
    head = parse_commit(folder, "HEAD")
    if head is None:
        raise GitError("no_commit_yet", folder=str(folder))
    for find in (_find_first_parent, _find_in_merge_request, _find_on_branch):
        if base := find(folder, head, variables):
            return base
    if recorded := _find_recorded(folder, baseline_commit):
        return Base(recorded, How.BASELINE, recorded[:10])
    if baseline_commit and shallow and _DIGITS.fullmatch(baseline_commit):
        raise _cut(folder, say("commit {commit}, which the baselines record", commit=baseline_commit[:10]))
    raise GitError("no_base" if find_default(folder, variables) else "no_default_branch")


def find_default(folder: Path, variables: Mapping[str, str]) -> str | None:
    """Returns the default branch: origin/main, or main if the clone has no remote one. None if it has neither."""
    default = variables.get("CI_DEFAULT_BRANCH")
    # The remote's branch comes before ours: the one that GitLab names, that the clone recorded, the usual names.
    recorded = git(folder, "symbolic-ref", "-q", "refs/remotes/origin/HEAD")
    first = (recorded.strip().removeprefix("refs/remotes/"),) if isinstance(recorded, str) else ()
    names = (f"origin/{default}", default) if default else (*first, *DEFAULT_BRANCHES)
    named = find_first(folder, {name: _ref(name) for name in names})
    return named or (default if default and variables.get("CI_COMMIT_BRANCH") == default else None)


def find_commit(folder: Path, name: str) -> str:
    """Returns the full id of the commit that a branch, tag, id or expression of git's stands for. Raises GitError."""
    return _find_asked(folder, name).commit


def _fetch(folder: Path, what: str = _EVERYTHING) -> str:
    """Returns the command that fetches something, in a shallow clone with the history that a merge base needs."""
    return f"git fetch --unshallow {what}" if is_shallow(folder) else f"git fetch {what}"


def _cut(folder: Path, missing: str, fetched: str = _EVERYTHING) -> GitError:
    return GitError("history_cut", missing=missing, command=_fetch(folder, fetched))


def _lack_branch(folder: Path, branch: str) -> GitError:
    return GitError("target_not_fetched", branch=branch, command=_fetch(folder, _track(branch)))


def _find_asked(folder: Path, name: str) -> Base:
    # If HEAD has no parent, HEAD~1 is not the remote's.
    beginning = re.split(r"[~^@:]", name)[0]
    is_branch = beginning not in {"", "HEAD"} and not _DIGITS.fullmatch(beginning)
    # git takes a tag first. A branch comes first here, also one that only the remote has.
    places = {"refs/heads/": "", "refs/remotes/": "", "refs/remotes/origin/": "origin/"} if is_branch else {}
    for place, shown in {**places, "": ""}.items():
        if asked := parse_commit(folder, f"{place}{name}"):
            return Base(asked, How.ASKED, f"{shown}{name}")
    is_there = not is_branch or find_object(folder, beginning) is not None
    if is_shallow(folder) and (_DIGITS.fullmatch(name) or (is_there and beginning != name)):
        raise _cut(folder, name)
    raise GitError("revision_unknown", revision=name, command=_fetch(folder))


def _find_first_parent(folder: Path, head: str, variables: Mapping[str, str]) -> Base | None:
    """None also if HEAD has one parent: fast-forward trains rebase, so it may be the merge request's commit."""
    if variables.get("CI_MERGE_REQUEST_EVENT_TYPE") not in MERGED:
        return None
    text = ask(folder, "cat-file", "commit", head)  # a shallow clone hides parents from all other commands
    parents = [line.split()[1] for line in text.split("\n\n")[0].splitlines() if line.startswith("parent ")]
    if len(parents) < 2:
        return None
    target = variables.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
    first_parent = parse_commit(folder, parents[0])
    if first_parent is None:
        raise _cut(folder, say("HEAD's first parent"))
    return Base(first_parent, How.FIRST_PARENT, f"origin/{target}" if target else "HEAD^1")


def _find_in_merge_request(folder: Path, head: str, variables: Mapping[str, str]) -> Base | None:
    """GitLab may not have fetched the target branch. Then the merge base that it names is used."""
    branch = variables.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
    if not branch:
        return None
    name = f"origin/{branch}"
    try:
        return Base(_merge_base(folder, head, name), How.MERGE_BASE, name)
    except GitError:
        if recorded := _find_recorded(folder, variables.get("CI_MERGE_REQUEST_DIFF_BASE_SHA")):
            return Base(recorded, How.MERGE_BASE, name)
        raise


def _find_on_branch(folder: Path, head: str, variables: Mapping[str, str]) -> Base | None:
    """None on the default branch: checked out by name, or a commit of its history."""
    default, branch = variables.get("CI_DEFAULT_BRANCH"), variables.get("CI_COMMIT_BRANCH")
    if branch and branch == default:
        return None
    name = find_default(folder, variables)
    if name is None and default and branch:
        raise _lack_branch(folder, default)
    if name is None:
        return None
    base = _merge_base(folder, head, name)
    checked_out = git(folder, "symbolic-ref", "-q", "HEAD")
    local = checked_out.strip().removeprefix("refs/heads/") if isinstance(checked_out, str) else None
    short = name.removeprefix("origin/")
    return None if base == head and (branch or local or short) == short else Base(base, How.MERGE_BASE, name)


def _find_recorded(folder: Path, text: str | None) -> str | None:
    """Returns the commit of this id. The text comes from a file or variable that anyone may have written."""
    return parse_commit(folder, text) if text and _DIGITS.fullmatch(text) else None


def _merge_base(folder: Path, head: str, name: str) -> str:
    base = git(folder, "merge-base", head, _ref(name))
    if isinstance(base, str):
        return base.strip()
    if not parse_commit(folder, _ref(name)):
        raise _lack_branch(folder, name.removeprefix("origin/"))
    if is_shallow(folder):
        missing = say("the commit where HEAD and {name} part", name=name)
        raise _cut(folder, missing, _track(name.removeprefix("origin/")))
    raise GitError("nothing_in_common", branch=name)


def _track(branch: str) -> str:
    """Written in full, since a clone of a single branch would leave origin/<branch> as it is."""
    return "origin " + shlex.quote(f"+refs/heads/{branch}:refs/remotes/origin/{branch}")


def _ref(name: str) -> str:
    return f"refs/remotes/{name}" if name.startswith("origin/") else f"refs/heads/{name}"
