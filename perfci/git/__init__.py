"""Facts about the repository, asked from git: what is checked out, what it is compared with, and its files."""

import os
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import GitError
from perfci.core.model import Reason
from perfci.git import large_files
from perfci.git.command import ask, git, require
from perfci.git.repository import find_repository


@dataclass(frozen=True)
class Revision:
    """What is checked out."""

    root: Path  # of the repository
    commit: str | None  # HEAD. None before the first commit
    branch: str | None  # None if HEAD is detached, as in CI
    dirty: bool  # tracked files differ from HEAD


def read(folder: Path) -> Revision | Reason:
    """Returns what is checked out around a folder, or why git cannot say: not installed, no repository, not ours."""
    # What a submodule's git directory configures is nothing that git may run: each is read alone, by perfci.
    options = ("--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=dirty", "-z")
    try:
        top = require(find_repository(folder)).top
        status, listed = ask(top, "status", *options), ask(top, "ls-files", "--stage", "-z")
    except GitError as error:
        return error.reason
    # Headers are `# branch.oid ID` and `# branch.head NAME`. Every other line is a file that differs.
    lines = [line for line in status.split("\0") if line]
    pairs = (line.removeprefix("# ").partition(" ") for line in lines if line.startswith("# branch."))
    heads = {name: value for name, _, value in pairs}
    commit, branch = heads.get("branch.oid"), heads.get("branch.head")
    modules = (line.partition("\t")[2] for line in listed.split("\0") if line.startswith("160000 "))
    return Revision(
        root=top,
        commit=None if commit == "(initial)" else commit,
        branch=None if branch == "(detached)" else branch,
        dirty=any(not line.startswith("#") and not _is_large_file(top, line) for line in lines)
        or any(_is_dirty(top / module) for module in modules),
    )


def list_places(folder: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Returns where a repository's files and history lie, and folders among them with nothing that git has.

    Nothing without a repository.
    """
    try:
        repository = require(find_repository(folder))
        listed = ask(repository.top, "ls-files", "--others", "--directory", "-z")
    except GitError:
        return (), ()
    others = (name for name in listed.split("\0") if name.endswith("/") and "__pycache__" not in name)
    return (repository.top, repository.inner, repository.common), tuple(repository.top / name for name in others)


def _is_dirty(module: Path) -> bool:
    """Returns whether a submodule that is checked out has changes."""
    inside = module.resolve() == module and (module / ".git").exists()  # and no link, which may lead back
    revision = read(module) if inside else None
    return isinstance(revision, Revision) and revision.root == module and revision.dirty


def _is_large_file(top: Path, line: str) -> bool:
    """Returns whether a file differs from its blob only because Git LFS put the content in the place of the pointer."""
    fields = line.split(" ", 8)  # `1 .M N... mode mode mode id id name`
    if fields[:2] != ["1", ".M"] or fields[4] != fields[5]:
        return False
    blob = git(top, "cat-file", "blob", fields[7])
    return isinstance(blob, str) and large_files.is_content(top / fields[8], os.fsencode(blob))
