"""Facts about the repository, asked from git itself: what is checked out, what it is compared with, and its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfci.core.model import Reason
from perfci.git.command import git


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
    root = git(folder, "rev-parse", "--show-toplevel")
    if isinstance(root, Reason):
        return root
    status = git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    return status if isinstance(status, Reason) else _parse(Path(root.removesuffix("\n")), status)


def _parse(root: Path, status: str) -> Revision:
    """Headers are `# branch.oid ID` and `# branch.head NAME`; every other line is a file that differs."""
    lines = [line for line in status.split("\n") if line]  # a branch's name may hold what splitlines would split at
    told = (line.removeprefix("# ").partition(" ") for line in lines if line.startswith("# branch."))
    heads = {name: value for name, _, value in told}
    return Revision(
        root=root,
        commit=_unless(heads.get("branch.oid"), "(initial)"),
        branch=_unless(heads.get("branch.head"), "(detached)"),
        dirty=any(not line.startswith("#") for line in lines),
    )


def _unless(value: str | None, placeholder: str) -> str | None:
    return None if value == placeholder else value
