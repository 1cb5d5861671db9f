"""The program git, asked one question at a time; what stops it from answering is a reason."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from perfci.core.model import Reason

TIME_LIMIT_S = 60.0
"""git on a slow network file system; a hang must not hang the check"""

_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_UNOWNED = re.compile(r"(?:dubious ownership in repository at |unsafe repository \()'([^']+)'")

_OF_A_HOOK = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"})
"""Set where perfci runs in a git hook: for the hook's repository and index, not for the one asked about."""


def git(
    folder: Path,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    given: str = "",
    limit_s: float = TIME_LIMIT_S,
) -> str | Reason:
    """What a git command prints, or a reason with its complaint. Names that are no text survive the way and back."""
    done = run(folder, *arguments, variables=variables, given=given, limit_s=limit_s)
    if isinstance(done, Reason):
        return done
    if done.returncode == 0:
        return os.fsdecode(done.stdout)
    lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it gave no reason"]
    why = next((line.removeprefix("fatal: ") for line in lines if line.startswith("fatal: ")), lines[0])
    return _failed(folder, why)


def run(
    folder: Path,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    given: str = "",
    limit_s: float = TIME_LIMIT_S,
) -> subprocess.CompletedProcess[bytes] | Reason:
    """A git command as it ended; a reason where git is missing, hangs, or does not get at the repository at all."""
    own = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    environment = {**own, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **(variables or {})}
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=limit_s, env=environment, input=os.fsencode(given)
        )
    except (FileNotFoundError, PermissionError):
        return Reason("git_missing")
    except subprocess.TimeoutExpired:
        return _failed(folder, f"no answer within {limit_s:g} s")
    return done if done.returncode == 0 else _barred(folder, done.stderr.decode(errors="replace")) or done


def object_id(folder: Path, name: str) -> str | None:
    """The id of what a name stands for, whatever its type; `^main` and `a..b` stand for no single thing."""
    found = git(folder, "rev-parse", "--verify", name) if is_name(name) else None
    return found.strip() if isinstance(found, str) and _ID.fullmatch(found.strip()) else None


def commit_id(folder: Path, name: str) -> str | None:
    """The commit that a name stands for, a tag's too; None for files, folders, and ids that the repository lacks."""
    found = object_id(folder, name) or object_id(folder, f"{name}^{{commit}}")  # digits that a file's id shares
    peeled = git(folder, "rev-parse", "--verify", "--quiet", f"{found}^{{commit}}") if found else None
    return peeled.strip() if isinstance(peeled, str) else None


def is_name(name: str) -> bool:
    """Whether it may be given to git: neither an option nor, for the system, two arguments."""
    return not name.startswith("-") and "\0" not in name


def _barred(folder: Path, complaint: str) -> Reason | None:
    if "not a git repository" in complaint:
        return Reason("no_repository", {"folder": str(folder)})
    unowned = _UNOWNED.search(complaint)
    return Reason("git_unowned", {"root": unowned[1]}) if unowned else None


def _failed(folder: Path, why: str) -> Reason:
    return Reason("git_failed", {"folder": str(folder), "why": why.rstrip(".")})
