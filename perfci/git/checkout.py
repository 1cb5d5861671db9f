"""Writes a revision's files to another folder. The work tree and `.git` stay as they are."""

from pathlib import Path

from perfci.core.errors import GitError
from perfci.git.base import find_commit
from perfci.git.command import ask, require
from perfci.git.large_files import fill
from perfci.git.repository import find_repository

TIME_LIMIT_S = 600.0  # for writing the files, as large ones may come from a server

_INDEX = ".perfci-index"
_SUBMODULE = "160000"


def materialise(folder: Path, commit: str, destination: Path) -> Path:
    """Writes a revision's files of the project below `destination`, new or empty. Returns the project's root in there.

    It is as a checkout without submodules. Filters do not run. Of Git LFS those
    files are written that the repository has, and the others' pointers. The repository may be read-only. Raises
    GitError.
    """
    repository = require(find_repository(folder))
    identifier, inner = find_commit(folder, commit), folder.resolve().relative_to(repository.top).as_posix()
    project = "" if inner == "." else f"{inner}/"
    # An index and a work tree of its own, so that the attributes are the revision's too.
    destination = destination.resolve()
    index = destination / _INDEX
    places = {"GIT_WORK_TREE": str(destination), "GIT_INDEX_FILE": str(index)}

    def run(*arguments: str, given: str = "") -> str:
        return ask(repository.top, *arguments, variables=places, given=given, limit_s=TIME_LIMIT_S)

    try:
        destination.mkdir(parents=True, exist_ok=True)
        if any(destination.iterdir()):
            raise GitError("base_folder_taken", folder=str(destination))
        run("read-tree", identifier)
        # `mode id stage<tab>name`
        entries = (entry.partition("\t") for entry in run("ls-files", "-z", "--stage").split("\0")[:-1])
        names = {name for head, _, name in entries if not head.startswith(_SUBMODULE)}
        mine = {name for name in names if name.startswith(project)}
        if project and not mine:
            raise GitError("project_not_in_revision", folder=project, revision=identifier[:10])
        written = sorted(mine)
        given = "".join(f"{name}\0" for name in written)
        run("checkout-index", "--force", "--quiet", "-z", "--stdin", given=given)
        fill((destination / name for name in written), repository.common)
        index.unlink(missing_ok=True)
    except OSError as error:
        raise GitError("file_unwritable", path=str(destination), why=error.strerror or str(error)) from error
    return destination / project
