"""Facts about the repository, asked from git itself: where HEAD stands, and what a merge request is compared with."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perfci.model import Reason

MERGED = frozenset({"merged_result", "merge_train"})
"""GitLab pipelines that run on a merge commit made for them, whose first parent is the target branch."""

TIME_LIMIT_S = 60.0
"""git on a slow network file system; a hang must not hang the check"""


@dataclass(frozen=True)
class Revision:
    """What is checked out."""

    root: Path
    """of the repository"""
    commit: str | None
    """HEAD; None before the first commit"""
    branch: str | None
    """None where HEAD is detached, as CI checks out"""
    dirty: bool
    """tracked files differ from HEAD"""


def read(folder: Path) -> Revision | Reason:
    """What is checked out around a folder, or why git cannot say: not installed, no repository, not ours to read."""
    root = _git(folder, "rev-parse", "--show-toplevel")
    if isinstance(root, Reason):
        return root
    status = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    return status if isinstance(status, Reason) else _parse(Path(root.strip()), status)


def base(folder: Path, variables: Mapping[str, str], target: str | None = None) -> str | Reason:
    """The commit that HEAD's change is compared with, or why there is none.

    In GitLab's merged-results and merge-train pipelines HEAD's first parent; else the merge base with `target`, by
    default the merge request's target branch. `variables` is the environment.
    """
    if variables.get("CI_MERGE_REQUEST_EVENT_TYPE") in MERGED:
        return _commit(folder, "rev-parse", "--verify", "HEAD^1")
    target = target or _target(variables)
    return _commit(folder, "merge-base", "HEAD", target) if target else Reason("no_target_branch")


def _target(variables: Mapping[str, str]) -> str | None:
    name = variables.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
    return f"origin/{name}" if name else None


def _commit(folder: Path, *arguments: str) -> str | Reason:
    found = _git(folder, *arguments)
    return found if isinstance(found, Reason) else found.strip()


def _parse(root: Path, status: str) -> Revision:
    """Headers are `# branch.oid ID` and `# branch.head NAME`; every other line is a file that differs."""
    lines = status.splitlines()
    heads = dict(line.removeprefix("# ").split(" ", 1) for line in lines if line.startswith("# branch."))
    return Revision(
        root=root,
        commit=_unless(heads.get("branch.oid"), "(initial)"),
        branch=_unless(heads.get("branch.head"), "(detached)"),
        dirty=any(not line.startswith("#") for line in lines),
    )


def _unless(value: str | None, placeholder: str) -> str | None:
    return None if value == placeholder else value


def _git(folder: Path, *arguments: str) -> str | Reason:
    """What a git command prints, or a reason with the first line of its complaint."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S)
    except FileNotFoundError:
        return Reason("git_missing")
    except subprocess.TimeoutExpired:
        return Reason("git_failed", {"folder": str(folder), "why": f"no answer within {TIME_LIMIT_S:g} s"})
    if done.returncode == 0:
        return done.stdout
    return _complaint(folder, arguments, done.stderr)


def _complaint(folder: Path, arguments: tuple[str, ...], stderr: str) -> Reason:
    if "not a git repository" in stderr:
        return Reason("no_repository", {"folder": str(folder)})
    why = stderr.strip().splitlines()[0] if stderr.strip() else f"git {arguments[0]} found nothing"
    return Reason("git_failed", {"folder": str(folder), "why": why.removeprefix("fatal: ")})
