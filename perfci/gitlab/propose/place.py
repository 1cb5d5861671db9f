"""Which project and branches, and who writes: from GitLab's variables and the command line, each validated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perfci.core.model import Reason
from perfci.git.base import PROPOSALS
from perfci.gitlab.api import Place, is_api, is_number, is_token
from perfci.report.text import plain

TOKENS = ("PERFCI_PUSH_TOKEN", "PERFCI_GITLAB_TOKEN")
"""The first that is set is used: the note's token must be known to merge requests' pipelines, the first need not be."""

BRANCH = PROPOSALS
MERGE_REQUEST, PUSH = "merge-request", "push"

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+/-]{0,199}")


@dataclass(frozen=True)
class Wishes:
    """What the user asked for."""

    to: str = MERGE_REQUEST
    """merge-request, push, or the name of a branch to push to"""
    target: str | None = None
    """branch that is to get the files in the end; None for the project's default branch"""
    branch: str = BRANCH
    """of the merge request"""
    base: str | None = None
    """commit whose files the other job began with; None for the pipeline's"""
    title: str | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class Target(Place):
    """A project and its branches, and who writes to it."""

    project: int = 0
    base: str = ""
    """full id of a commit"""
    to: str = MERGE_REQUEST
    target: str | None = None
    branch: str = BRANCH


def target(wishes: Wishes, environ: Mapping[str, str]) -> Target | Reason:
    """From GitLab's variables; the reason why there is nowhere to propose anything, or nobody to do it."""
    name, token = next(((name, found) for name in TOKENS if (found := environ.get(name, "").strip())), ("", ""))
    if not token:
        return Reason("propose_no_token")
    if not is_token(token):
        return Reason("propose_token_malformed", {"name": name})
    api, project = environ.get("CI_API_V4_URL", ""), environ.get("CI_PROJECT_ID", "")
    if problem := _place(api, project) or _branches(wishes):
        return problem
    base = wishes.base or environ.get("CI_COMMIT_SHA", "")
    if not _COMMIT.fullmatch(base):
        return Reason("propose_no_base", {"found": plain(base, 80) or "-"})
    into = wishes.target or environ.get("CI_DEFAULT_BRANCH") or None
    if into and not is_branch(into):
        return Reason("propose_branch_invalid", {"branch": plain(into, 80)})
    certificates = environ.get("CI_SERVER_TLS_CA_FILE") or None
    return Target(api.rstrip("/"), token, certificates, int(project), base, wishes.to, into, wishes.branch)


def _place(api: str, project: str) -> Reason | None:
    for name, found, fits in (("CI_API_V4_URL", api, is_api(api)), ("CI_PROJECT_ID", project, is_number(project))):
        if not fits:
            return Reason("propose_variable_invalid", {"name": name, "found": plain(found, 80)})
    return None


def _branches(wishes: Wishes) -> Reason | None:
    invalid = next((name for name in (wishes.to, wishes.branch) if not is_branch(name)), None)
    return Reason("propose_branch_invalid", {"branch": plain(invalid, 80)}) if invalid is not None else None


def is_branch(name: str) -> bool:
    """Whether a branch can have this name, which goes into addresses and commands unescaped.

    >>> is_branch("perfci/nightly"), is_branch("-f"), is_branch("a..b"), is_branch("a/")
    (True, False, False, False)
    """
    odd = ".." in name or "//" in name or "/." in name or name.endswith(("/", ".", ".lock"))
    return bool(_BRANCH.fullmatch(name)) and not odd


def prefix(root: Path, environ: Mapping[str, str], repository: Path | None) -> str:
    """The project's place in its repository, with a slash at the end; empty for the repository's own root."""
    known = environ.get("CI_PROJECT_DIR")
    for folder in (Path(known) if known else None, repository):
        if folder and root.is_relative_to(folder.resolve()):
            inner = root.relative_to(folder.resolve()).as_posix()
            return "" if inner == "." else f"{inner}/"
    return ""
