"""Runs the program git. If it cannot answer, the answer is a reason."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from perfci.core.errors import GitError
from perfci.core.model import Reason
from perfci.core.wording import say
from perfci.git import repository

TIME_LIMIT_S = 60.0  # git may be slow on a network file system, but must not hang the check

T = TypeVar("T")
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def git(folder: Path, *arguments: str, **options: Any) -> str | Reason:
    """Returns what a git command prints, or a reason with its complaint. File names may be any bytes."""
    done = run(folder, *arguments, **options)
    if isinstance(done, Reason):
        return done
    if done.returncode == 0:
        return os.fsdecode(done.stdout)
    lines = done.stderr.decode(errors="replace").strip().splitlines() or [say("it gave no reason")]
    why = next((line.removeprefix("fatal: ") for line in lines if line.startswith("fatal: ")), lines[0])
    return Reason("git_failed", {"folder": str(folder), "why": why.rstrip(".")})


def ask(folder: Path, *arguments: str, **options: Any) -> str:
    """Returns what a git command prints. Raises GitError if git cannot answer. options: as `run` has them."""
    return require(git(folder, *arguments, **options))


def require(answer: T | Reason) -> T:
    """Returns what was found. Raises GitError if it is a reason why nothing was."""
    if isinstance(answer, Reason):
        raise GitError(answer.kind, **answer.facts)
    return answer


def run(
    folder: Path,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    given: str = "",
    limit_s: float = TIME_LIMIT_S,
) -> subprocess.CompletedProcess[bytes] | Reason:
    """Runs a git command in a fresh git directory. Returns a reason if git or the repository cannot be used.

    `variables` may name another work tree and index, or a git directory that perfci made.
    """
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]

    def start(environment: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
        environment = {**environment, **(variables or {})}
        return subprocess.run(
            command, capture_output=True, check=False, timeout=limit_s, env=environment, input=os.fsencode(given)
        )

    try:
        if variables and "GIT_DIR" in variables:
            return start(repository.make_variables(Path(variables["GIT_DIR"])))
        place = repository.find_repository(folder)
        if isinstance(place, Reason):
            return place
        with repository.open_directory(place) as environment:
            done = start(environment)
    except subprocess.TimeoutExpired:
        return Reason("git_failed", {"folder": str(folder), "why": f"no answer within {limit_s:g} s"})
    except subprocess.CalledProcessError as error:
        return Reason("git_failed", {"folder": str(folder), "why": error.stderr.decode(errors="replace").strip()})
    except OSError as error:
        if error.filename == "git":
            return Reason("git_missing")
        return Reason("git_failed", {"folder": str(folder), "why": error.strerror or str(error)})
    missing = done.returncode and b"not a git repository" in done.stderr
    return Reason("no_repository", {"folder": str(folder)}) if missing else done


def find_object(folder: Path, name: str) -> str | None:
    """Returns the id of what a name stands for, of any type. None for `^main` and `a..b`, which are no single thing."""
    if name.startswith("-") or "\0" in name:  # an option, and what no program can be given
        return None
    printed = git(folder, "rev-parse", "--verify", name)
    return printed.strip() if isinstance(printed, str) and _ID.fullmatch(printed.strip()) else None


def parse_commit(folder: Path, name: str) -> str | None:
    """Returns the commit that a name or tag stands for. None for files, folders, and unknown ids."""
    if commit := find_object(folder, f"{name}^{{commit}}"):
        return commit
    commit = find_object(folder, name)  # `:/words` looks for whatever stands behind it
    return find_object(folder, f"{commit}^{{commit}}") if commit else None


def find_first(folder: Path, references: Mapping[str, str]) -> str | None:
    """Returns the first key of which the reference leads to a commit. None if none does."""
    asked = {key: f"{name}^{{commit}}" for key, name in references.items() if not re.search(r"\s", name)}
    told = git(folder, "cat-file", "--batch-check=%(objecttype)", given="".join(f"{name}\n" for name in asked.values()))
    lines = told.splitlines() if isinstance(told, str) else ()
    return next((key for key, line in zip(asked, lines, strict=True) if line == "commit"), None)


def read_file(folder: Path, commit: str, name: str) -> bytes | None:
    """Returns the content of a file of a project, by its name there, at a commit. None if it has no such file."""
    top = require(repository.find_repository(folder)).top
    place = (folder.resolve().relative_to(top) / name).as_posix()
    done = run(folder, "cat-file", "blob", f"{commit}:{place}")
    return None if isinstance(done, Reason) or done.returncode else done.stdout


def is_shallow(folder: Path) -> bool:
    """Returns whether a clone lacks older commits. Raises GitError."""
    return ask(folder, "rev-parse", "--is-shallow-repository") == "true\n"
