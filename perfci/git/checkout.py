"""A revision's files beside the work tree, which stays as it is, like everything in `.git`."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.core.model import Reason
from perfci.git.base import commit as commit_of
from perfci.git.command import git

TIME_LIMIT_S = 600.0
"""for writing the files; large ones may come from a server"""

_INDEX = ".perfci-index"
_SUBMODULE = "160000"

_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""One runs whenever an index is written, and it is the user's own program."""

_POINTERS = ("-c", "filter.lfs.process=", "-c", "filter.lfs.smudge=", "-c", "filter.lfs.required=false")
"""Files of Git LFS as the pointers that the repository itself holds."""


def materialise(folder: Path, commit: str, destination: Path, without: Sequence[str] = ()) -> Path | Reason:
    """Write a revision's files of the project at `folder` below `destination`; gives the project's root in there.

    The folders in `without`, relative to the project, and submodules are left out. What the project links to elsewhere
    in the repository comes along. Git's settings and the revision's attributes apply as in a checkout; where Git LFS
    cannot fetch a file, its pointer stands instead. `destination` has to be new or empty. Works where the repository
    can only be read. A reason says what is wrong with the revision, with git or with the destination.
    """
    found = commit_of(folder, commit)
    if isinstance(found, Reason):
        return found
    checkout = _checkout(folder, found, destination)
    if isinstance(checkout, Reason):
        return checkout
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
    """from the repository's root, with a slash at its end; empty for the root itself"""
    commit: str
    destination: Path

    @property
    def index(self) -> Path:
        return self.destination / _INDEX

    def git(self, *arguments: str, given: str = "") -> str | Reason:
        """With an index and a work tree of its own, so that attributes too are the revision's."""
        places = {"GIT_DIR": self.repository, "GIT_WORK_TREE": str(self.destination), "GIT_INDEX_FILE": str(self.index)}
        return git(self.destination, *_NO_HOOKS, *arguments, variables=places, given=given, limit_s=TIME_LIMIT_S)


def _checkout(folder: Path, commit: str, destination: Path) -> _Checkout | Reason:
    repository = git(folder, "rev-parse", "--absolute-git-dir")
    project = git(folder, "rev-parse", "--show-prefix")
    if isinstance(repository, Reason):
        return repository
    if isinstance(project, Reason):
        return project
    return _Checkout(repository.removesuffix("\n"), project.removesuffix("\n"), commit, destination.resolve())


def _write(checkout: _Checkout, without: Sequence[str]) -> Reason | None:
    """Why the files could not be written."""
    failure = checkout.git("read-tree", checkout.commit)
    listed = failure if isinstance(failure, Reason) else checkout.git("ls-files", "-z", "--stage")
    if isinstance(listed, Reason):
        return listed
    names = set(_files(listed))
    own = {name for name in names if name.startswith(checkout.project)}
    if not own and checkout.project:
        return Reason("project_not_in_revision", {"folder": checkout.project, "revision": checkout.commit[:10]})
    left_out = tuple(posixpath.join(checkout.project, posixpath.normpath(each), "") for each in without)
    return _write_linked(checkout, names, {name for name in own if not f"{name}/".startswith(left_out)})


def _files(listed: str) -> Iterator[str]:
    """Entries are `mode id stage<tab>name`, each ended by a null byte."""
    for entry in listed.split("\0")[:-1]:
        head, _, name = entry.partition("\t")
        if not head.startswith(_SUBMODULE):
            yield name


def _write_linked(checkout: _Checkout, names: set[str], wanted: set[str]) -> Reason | None:
    """Write the files, then what links among them point to outside the project, until no link leads to more."""
    outside = {name for name in names if not name.startswith(checkout.project)}
    while wanted:
        if failure := _write_files(checkout, wanted):
            return failure
        outside -= wanted
        targets = tuple(f"{target}/" for target in _targets(checkout.destination, wanted))
        wanted = {name for name in outside if f"{name}/".startswith(targets)}
    return None


def _write_files(checkout: _Checkout, names: Iterable[str]) -> Reason | None:
    given = "".join(f"{name}\0" for name in sorted(names))
    command = ("checkout-index", "--force", "--quiet", "-z", "--stdin")
    done = checkout.git(*command, given=given)
    if isinstance(done, Reason):
        done = checkout.git(*_POINTERS, *command, given=given)
    return done if isinstance(done, Reason) else None


def _targets(destination: Path, names: Iterable[str]) -> Iterator[str]:
    """Where links among the files lead, from the repository's root."""
    for name in names:
        path = destination / name
        if path.is_symlink():
            yield posixpath.normpath(posixpath.join(posixpath.dirname(name), path.readlink()))
