"""Writes a revision's files to another folder. The work tree and `.git` stay as they are."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.core.model import Reason
from perfci.git.base import find_commit
from perfci.git.command import git

TIME_LIMIT_S = 600.0
"""for writing the files, as large ones may come from a server"""

_INDEX = ".perfci-index"
_SUBMODULE = "160000"

_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""A hook of the user's would run whenever an index is written."""

_POINTERS = ("-c", "filter.lfs.process=", "-c", "filter.lfs.smudge=", "-c", "filter.lfs.required=false")
"""Files of Git LFS as the pointers that the repository itself holds."""


def materialise(folder: Path, commit: str, destination: Path, without: Sequence[str] = ()) -> Path | Reason:
    """Writes a revision's files of the project at `folder` below `destination`. Returns the project's root in there.

    The folders in `without`, relative to the project, and submodules are left out. Files elsewhere in the repository to
    which the project links come along. Git's settings and the revision's attributes apply as in a checkout. If Git LFS
    cannot fetch a file, its pointer is written instead. `destination` has to be new or empty. The repository may be
    read-only. Returns a reason if something is wrong with the revision, with git or with the destination.
    """
    found = find_commit(folder, commit)
    repository = git(folder, "rev-parse", "--absolute-git-dir")
    project = git(folder, "rev-parse", "--show-prefix")
    for answer in (found, repository, project):
        if isinstance(answer, Reason):
            return answer
    root, prefix = str(repository).removesuffix("\n"), str(project).removesuffix("\n")
    checkout = _Checkout(root, prefix, str(found), destination.resolve())
    try:
        destination.mkdir(parents=True, exist_ok=True)
        if any(destination.iterdir()):
            return Reason("base_folder_taken", {"folder": str(destination)})
        failure = _write(checkout, without)
        checkout.index.unlink(missing_ok=True)
    except OSError as error:
        return Reason("file_unwritable", {"path": str(destination), "why": error.strerror or str(error)})
    return failure or checkout.destination / checkout.project


@dataclass(frozen=True)
class _Checkout:
    repository: str
    """the .git folder"""
    project: str
    """from the repository's root, with a slash at its end. Empty for the root itself"""
    commit: str
    destination: Path

    @property
    def index(self) -> Path:
        return self.destination / _INDEX

    def git(self, *arguments: str, given: str = "") -> str | Reason:
        """Runs git with an index and a work tree of its own, so that the attributes are the revision's too."""
        places = {"GIT_DIR": self.repository, "GIT_WORK_TREE": str(self.destination), "GIT_INDEX_FILE": str(self.index)}
        return git(self.destination, *_NO_HOOKS, *arguments, variables=places, given=given, limit_s=TIME_LIMIT_S)


def _write(checkout: _Checkout, without: Sequence[str]) -> Reason | None:
    """Writes the files, then those outside the project to which links lead, until no link leads to more."""
    failure = checkout.git("read-tree", checkout.commit)
    listed = failure if isinstance(failure, Reason) else checkout.git("ls-files", "-z", "--stage")
    if isinstance(listed, Reason):
        return listed
    entries = (entry.partition("\t") for entry in listed.split("\0")[:-1])  # `mode id stage<tab>name`
    names = {name for head, _, name in entries if not head.startswith(_SUBMODULE)}
    outside = {name for name in names if not name.startswith(checkout.project)}
    if names == outside and checkout.project:
        return Reason("project_not_in_revision", {"folder": checkout.project, "revision": checkout.commit[:10]})
    left_out = tuple(posixpath.join(checkout.project, posixpath.normpath(each), "") for each in without)
    wanted = {name for name in names - outside if not f"{name}/".startswith(left_out)}

    while wanted:
        given = "".join(f"{name}\0" for name in sorted(wanted))
        command = ("checkout-index", "--force", "--quiet", "-z", "--stdin")
        done = checkout.git(*command, given=given)
        if isinstance(done, Reason):
            done = checkout.git(*_POINTERS, *command, given=given)
        if isinstance(done, Reason):
            return done
        outside -= wanted
        links = [(name, checkout.destination / name) for name in wanted if (checkout.destination / name).is_symlink()]
        targets = tuple(
            posixpath.normpath(posixpath.join(posixpath.dirname(name), path.readlink())) + "/" for name, path in links
        )
        wanted = {name for name in outside if f"{name}/".startswith(targets)}
    return None
