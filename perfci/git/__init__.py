"""Facts about the repository, asked from git: what is checked out, what it is compared with, and its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfci.core.model import Reason
from perfci.git.command import git


@dataclass(frozen=True)
class Revision:
    """What is checked out."""

    root: Path  # of the repository
    commit: str | None  # HEAD. None before the first commit
    branch: str | None  # None if HEAD is detached, as in CI
    dirty: bool  # tracked files differ from HEAD


def read(folder: Path) -> Revision | Reason:
    """Returns what is checked out around a folder, or why git cannot say: not installed, no repository, not ours."""
    root = git(folder, "rev-parse", "--show-toplevel")
    if isinstance(root, Reason):
        return root
    status = git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    if isinstance(status, Reason):
        return status
    # Headers are `# branch.oid ID` and `# branch.head NAME`. Every other line is a file that differs.
    lines = [line for line in status.split("\n") if line]  # splitlines would split some branch names
    pairs = (line.removeprefix("# ").partition(" ") for line in lines if line.startswith("# branch."))
    heads = {name: value for name, _, value in pairs}
    commit, branch = heads.get("branch.oid"), heads.get("branch.head")
    return Revision(
        root=Path(root.removesuffix("\n")),
        commit=None if commit == "(initial)" else commit,
        branch=None if branch == "(detached)" else branch,
        dirty=any(not line.startswith("#") for line in lines),
    )
