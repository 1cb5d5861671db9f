"""Keeps files of the work tree as a commit. Index, HEAD, branches and the work tree stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfci.core.errors import GitError
from perfci.core.temporary import temporary_folder
from perfci.git.command import ask, require
from perfci.git.repository import find_repository

_WHO = {f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER")
        for what, text in (("NAME", "perfci"), ("EMAIL", "perfci@noreply.invalid"))}  # fmt: skip


def keep_files(folder: Path, parent: str, files: Sequence[str], message: str, ref: str) -> str:
    """Returns a commit that is its parent with these files of the work tree: changed, new or gone. `ref` keeps it.

    files: relative to the folder. ref: such as refs/perfci/rounds/scale/1. Raises GitError, as for a read-only `.git`.
    """
    repository = require(find_repository(folder))
    with temporary_folder("index") as own:
        places = {"GIT_INDEX_FILE": str(own / "index"), **_WHO}

        def run(*arguments: str, given: str = "") -> str:
            return ask(folder, *arguments, variables=places, given=given).strip()

        run("read-tree", parent)
        run("--literal-pathspecs", "add", "--all", "--force", "--", *files)
        commit = run("commit-tree", run("write-tree"), "-p", parent, "-F", "-", given=message)
    # Git itself is given a copy of the repository's refs (`git.repository`), so the file is written here.
    path = repository.common.resolve() / ref
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent.resolve() != path.parent:
            raise GitError("file_unwritable", path=str(path), why="it lies behind a link")
        beside = path.with_name(f"{path.name}.lock")
        beside.write_text(f"{commit}\n", encoding="ascii")
        beside.replace(path)
    except OSError as error:
        raise GitError("file_unwritable", path=str(path), why=error.strerror or str(error)) from error
    return commit
