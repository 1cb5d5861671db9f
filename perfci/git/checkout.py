"""Writes a revision's files to another folder. The work tree and `.git` stay as they are."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from pathlib import Path

from perfci.core.model import Reason
from perfci.git.base import find_commit
from perfci.git.command import git
from perfci.git.large_files import fill
from perfci.git.repository import find_repository

TIME_LIMIT_S = 600.0  # for writing the files, as large ones may come from a server

_INDEX = ".perfci-index"
_SUBMODULE = "160000"


def materialise(folder: Path, commit: str, destination: Path, without: Sequence[str] = ()) -> Path | Reason:
    """Writes a revision's files of the project below `destination`, new or empty. Returns the project's root in there.

    It is as a checkout without submodules and the project's folders in `without`. Filters do not run. Of Git LFS those
    files are written that the repository has, and the others' pointers. The repository may be read-only.
    """
    found = find_commit(folder, commit)
    repository = find_repository(folder)
    prefix = git(folder, "rev-parse", "--show-prefix")
    if isinstance(repository, Reason):
        return repository
    if isinstance(found, Reason) or isinstance(prefix, Reason):
        return found if isinstance(found, Reason) else prefix  # type: ignore[return-value]
    # An index and a work tree of its own, so that the attributes are the revision's too.
    destination, project = destination.resolve(), prefix.removesuffix("\n")
    index = destination / _INDEX
    places = {"GIT_WORK_TREE": str(destination), "GIT_INDEX_FILE": str(index)}

    def run(*arguments: str, given: str = "") -> str | Reason:
        return git(repository.top, *arguments, variables=places, given=given, limit_s=TIME_LIMIT_S)

    try:
        destination.mkdir(parents=True, exist_ok=True)
        if any(destination.iterdir()):
            return Reason("base_folder_taken", {"folder": str(destination)})
        failure = run("read-tree", found)
        listed = failure if isinstance(failure, Reason) else run("ls-files", "-z", "--stage")
        if isinstance(listed, Reason):
            return listed
        entries = (entry.partition("\t") for entry in listed.split("\0")[:-1])  # `mode id stage<tab>name`
        names = {name for head, _, name in entries if not head.startswith(_SUBMODULE)}
        mine = {name for name in names if name.startswith(project)}
        if project and not mine:
            return Reason("project_not_in_revision", {"folder": project, "revision": found[:10]})
        left_out = tuple(posixpath.join(project, posixpath.normpath(each), "") for each in without)
        written = [name for name in sorted(mine) if not f"{name}/".startswith(left_out)]
        given = "".join(f"{name}\0" for name in written)
        done = run("checkout-index", "--force", "--quiet", "-z", "--stdin", given=given)
        fill((destination / name for name in written), repository.common)
        index.unlink(missing_ok=True)
    except OSError as error:
        return Reason("file_unwritable", {"path": str(destination), "why": error.strerror or str(error)})
    return done if isinstance(done, Reason) else destination / project
