"""What the files at hand are compared with: a base's commit, or the one reason why there is none."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from perfci.core.model import Base, Reason
from perfci.core.wording import say
from perfci.git.command import commit_id, git, is_name, object_id, run

MERGED = frozenset({"merged_result", "merge_train"})
"""GitLab pipelines that run on a merge commit made for them, whose first parent is the target branch."""

DEFAULT_BRANCHES = ("origin/main", "origin/master", "main", "master")
"""Tried in turn where neither GitLab nor the clone says which branch is the default one."""

PROPOSALS = "perfci/nightly"
"""What the names of branches begin with on which perfci proposes baselines."""

_EVERYTHING = "--tags origin '+refs/heads/*:refs/remotes/origin/*'"
"""Every branch and tag, also in a clone of a single branch."""

_DIGITS = re.compile(r"[0-9a-f]{7,64}", re.IGNORECASE)


class How(StrEnum):
    """Where a base comes from."""

    ASKED = "asked"
    FIRST_PARENT = "first_parent"
    MERGE_BASE = "merge_base"
    BASELINE = "baseline"
    AGAIN = "again"
    """each case against a commit of its own"""
    RELEASE = "release"
    """each case against a release, or the beginning of its epoch after it"""


def resolve(
    folder: Path, asked: str | None, variables: Mapping[str, str], baseline_commit: str | None = None
) -> Base | Reason:
    """The commit to compare with, or the one reason why there is none.

    What is asked for (a branch, tag, commit, `HEAD~2`); else in GitLab's merged-results and merge-train pipelines
    HEAD's first parent; else the merge base with a merge request's target branch; else, on another branch or with
    commits of its own, the merge base with the default branch; else the commit that the baselines record. `variables`
    is the environment.
    """
    clone = _clone(folder)
    if isinstance(clone, Reason):
        return clone
    if asked is not None:
        return _asked(clone, asked)
    head = commit_id(folder, "HEAD")
    if head is None:
        return Reason("no_commit_yet", {"folder": str(folder)})
    ways = (_first_parent, _target, _local)
    found = next((base for way in ways if (base := way(clone, head, variables))), None)
    return found or _baseline(clone, baseline_commit)


def commit(folder: Path, name: str) -> str | Reason:
    """The full id of the commit that a branch, tag, id or expression of git's stands for."""
    clone = _clone(folder)
    found = clone if isinstance(clone, Reason) else _asked(clone, name)
    return found if isinstance(found, Reason) else found.commit


@dataclass(frozen=True)
class _Clone:
    folder: Path
    shallow: bool

    def lacks(self, missing: str, fetched: str) -> Reason:
        return Reason("history_cut", {"missing": missing, "command": self.fetch(fetched)})

    def fetch(self, what: str) -> str:
        """The command that brings it, in a shallow clone with the history that a merge base needs."""
        return f"git fetch --unshallow {what}" if self.shallow else f"git fetch {what}"


def _clone(folder: Path) -> _Clone | Reason:
    shallow = git(folder, "rev-parse", "--is-shallow-repository")
    return shallow if isinstance(shallow, Reason) else _Clone(folder, shallow.strip() == "true")


# --- the ways to a base: each gives it, or a reason, or None where it does not apply ----------------------------------


def _asked(clone: _Clone, name: str) -> Base | Reason:
    names = (name,) if _is_known(clone.folder, name) else (name, f"origin/{name}")  # as git switch does
    for each in names:
        if found := commit_id(clone.folder, each):
            return Base(found, How.ASKED, each)
    return _unknown(clone, name)


def _is_known(folder: Path, name: str) -> bool:
    """Whether what an expression begins with is here: where HEAD has no parent, HEAD~1 is not the remote's."""
    beginning = _beginning(name)
    return beginning in {"", "HEAD"} or object_id(folder, beginning) is not None


def _beginning(name: str) -> str:
    return re.split(r"[~^@:]", name)[0]


def _first_parent(clone: _Clone, head: str, variables: Mapping[str, str]) -> Base | Reason | None:
    """None too where HEAD has one parent: fast-forward trains rebase, and the parent may be the merge request's own."""
    if variables.get("CI_MERGE_REQUEST_EVENT_TYPE") not in MERGED:
        return None
    text = git(clone.folder, "cat-file", "commit", head)  # a shallow clone hides parents from all other commands
    if isinstance(text, Reason):
        return text
    parents = [line.split()[1] for line in text.split("\n\n")[0].splitlines() if line.startswith("parent ")]
    if len(parents) < 2:
        return None
    target = variables.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
    found = commit_id(clone.folder, parents[0])
    name = f"origin/{target}" if target else "HEAD^1"
    return Base(found, How.FIRST_PARENT, name) if found else clone.lacks(say("HEAD's first parent"), _EVERYTHING)


def _target(clone: _Clone, head: str, variables: Mapping[str, str]) -> Base | Reason | None:
    """GitLab need not have fetched the target branch; what it says to be the merge base will do then."""
    branch = variables.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
    if not branch:
        return None
    name = f"origin/{branch}"
    found = _merge_base(clone, head, name) if commit_id(clone.folder, _ref(name)) else _not_fetched(clone, branch)
    if isinstance(found, Reason):
        found = _recorded(clone, variables.get("CI_MERGE_REQUEST_DIFF_BASE_SHA")) or found
    return found if isinstance(found, Reason) else Base(found, How.MERGE_BASE, name)


def _local(clone: _Clone, head: str, variables: Mapping[str, str]) -> Base | Reason | None:
    """None on the default branch: checked out by name, or a commit of its history, with nothing that it lacks."""
    said, branch = variables.get("CI_DEFAULT_BRANCH"), variables.get("CI_COMMIT_BRANCH")
    if branch and branch == said:
        return None
    name = _default(clone.folder, said)
    if name is None:
        return _not_fetched(clone, said) if said and branch else None
    found = _merge_base(clone, head, name)
    default = name.removeprefix("origin/")
    if found == head and (branch or _branch(clone.folder) or default) == default:
        return None
    return found if isinstance(found, Reason) else Base(found, How.MERGE_BASE, name)


def _baseline(clone: _Clone, recorded: str | None) -> Base | Reason:
    if found := _recorded(clone, recorded):
        return Base(found, How.BASELINE, found[:10])
    if recorded and clone.shallow and _DIGITS.fullmatch(recorded):
        return clone.lacks(say("commit {commit}, which the baselines record", commit=recorded[:10]), _EVERYTHING)
    return Reason("no_base")


def _recorded(clone: _Clone, text: str | None) -> str | None:
    """The commit of this id; it comes from a file or variable that anyone may have written, so it must be one."""
    return commit_id(clone.folder, text) if text and _DIGITS.fullmatch(text) else None


def _default(folder: Path, said: str | None) -> str | None:
    """The default branch, the remote's before our own: what GitLab says, what the clone recorded, the usual names."""
    recorded = git(folder, "symbolic-ref", "-q", "refs/remotes/origin/HEAD")
    first = () if isinstance(recorded, Reason) else (recorded.strip().removeprefix("refs/remotes/"),)
    names = (f"origin/{said}", said) if said else (*first, *DEFAULT_BRANCHES)
    return next((name for name in names if commit_id(folder, _ref(name))), None)


def _merge_base(clone: _Clone, head: str, name: str) -> str | Reason:
    found = git(clone.folder, "merge-base", head, _ref(name))
    if not isinstance(found, Reason):
        return found.strip()
    if clone.shallow:
        return clone.lacks(
            say("the commit where HEAD and {name} part", name=name), _tracked(name.removeprefix("origin/"))
        )
    return Reason("nothing_in_common", {"branch": name})


def _not_fetched(clone: _Clone, branch: str) -> Reason:
    return Reason("target_not_fetched", {"branch": branch, "command": clone.fetch(_tracked(branch))})


def _tracked(branch: str) -> str:
    """Written out, since a clone of a single branch would leave origin/<branch> as it is."""
    return "origin " + shlex.quote(f"+refs/heads/{branch}:refs/remotes/origin/{branch}")


def _ref(name: str) -> str:
    return f"refs/remotes/{name}" if name.startswith("origin/") else f"refs/heads/{name}"


def _branch(folder: Path) -> str | None:
    found = git(folder, "symbolic-ref", "-q", "HEAD")
    return None if isinstance(found, Reason) else found.strip().removeprefix("refs/heads/")


# --- revisions that cannot be had -------------------------------------------------------------------------------------


def _unknown(clone: _Clone, name: str) -> Reason:
    if what := _type(clone.folder, name):
        return Reason("revision_no_commit", {"revision": name, "what": what})
    if _is_ambiguous(clone.folder, name):
        return Reason("revision_ambiguous", {"revision": name})
    reaches_back = "~" in name or "^" in name
    if clone.shallow and (_DIGITS.fullmatch(name) or (reaches_back and _is_known(clone.folder, name))):
        return clone.lacks(name, _EVERYTHING)
    if guess := _guess(clone.folder, name):
        return Reason("revision_misspelt", {"revision": name, "guess": guess})
    return Reason("revision_unknown", {"revision": name, "command": clone.fetch(_EVERYTHING)})


def _type(folder: Path, name: str) -> str | None:
    """What is behind a name that is there; a whole id passes for an object even where there is none."""
    found = object_id(folder, name)
    kind = git(folder, "cat-file", "-t", f"{found}^{{}}") if found else None
    return {"blob": "a file", "tree": "a folder"}.get(kind.strip(), "no commit") if isinstance(kind, str) else None


def _is_ambiguous(folder: Path, name: str) -> bool:
    done = run(folder, "rev-parse", "--verify", name) if is_name(name) else None
    return done is not None and not isinstance(done, Reason) and b" is ambiguous" in done.stderr


def _guess(folder: Path, name: str) -> str | None:
    """The branch or tag whose name is nearest, with what followed it: main~1 for mian~1."""
    listed = git(folder, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/tags", "refs/remotes")
    refs = [] if isinstance(listed, Reason) else listed.splitlines()
    names = {re.sub(r"^refs/(heads|tags|remotes)/", "", ref) for ref in refs}
    beginning = _beginning(name)
    close = difflib.get_close_matches(beginning, sorted(names - {beginning}), n=1, cutoff=0.7)
    return close[0] + name.removeprefix(beginning) if close else None
