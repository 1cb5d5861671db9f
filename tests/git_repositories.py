"""Repositories and clones to ask git about, made by git itself."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfci.core.errors import GitError


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, text: str, file: str = "file") -> str:
    """Commit one file with this text; the new commit's id."""
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
    git(folder, "add", file)
    git(folder, "commit", "-q", "-m", text)
    return git(folder, "rev-parse", "HEAD")


def commit_all(folder: Path) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "-m", "all of it")
    return git(folder, "rev-parse", "HEAD")


def begin_empty(folder: Path) -> Path:
    """Make the folder, a repository with nothing in it."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    return folder


def begin_topic(folder: Path) -> None:
    """Commit a project on main, and go to a branch from there."""
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitignore").write_text("reports/\n__pycache__/\n")
    commit_all(folder)
    git(folder, "checkout", "-q", "-b", "topic")


def told(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which gives the reason of a GitError as its answer."""

    def answer(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except GitError as error:
            return error.reason

    return answer


def start(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "first")
    return folder


def clone(source: Path, *options: str) -> Path:
    """A clone over the file protocol, since a plain local one is never shallow."""
    target = source.parent / "clone"
    git(source.parent, "clone", "-q", *options, source.as_uri(), str(target))
    return target


def alone(monkeypatch, ceiling: Path) -> None:
    """No user's settings, pipeline's variables or repository above this folder reach the ones made here."""
    for name in {name for name in os.environ if name.startswith("CI_")} | {"CI", "GITLAB_CI", "GITHUB_ACTIONS"}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(ceiling))
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A. Tester")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "tester@example.org")


def fork(repository: Path) -> Path:
    """Leave it on the branch topic, one commit beyond where it left main; main has moved on by another."""
    git(repository, "tag", "fork")
    git(repository, "checkout", "-q", "-b", "topic")
    commit(repository, "topic", "other")
    git(repository, "checkout", "-q", "main")
    commit(repository, "main moved on")
    git(repository, "checkout", "-q", "topic")
    return repository
