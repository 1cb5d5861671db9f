"""Finds a repository, and makes a git directory for perfci's calls of git.

A process that can write into `.git` can name programs in its settings, which git runs: hooks, filters, pagers, a file
system monitor, and more with each release. A job's `.git` may hold what a kernel wrote. So git never sees that
directory. It gets a new one with settings from here, a copy of HEAD and of the branches, and the repository's objects
and index.
"""

import contextlib
import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perfci.core.files import read_regular
from perfci.core.model import Reason
from perfci.core.temporary import temporary_folder

SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.commitGraph": "false",  # of which git believes what it says of a commit's parents
    "credential.helper": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "http.followRedirects": "false",
    "protocol.allow": "never",
    "protocol.https.allow": "always",
    "protocol.http.allow": "always",
    "protocol.ssh.allow": "always",
}
"""What git gets in the place of the settings of the repository, the user and the system."""

_KEPT_VARIABLES = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_EXEC_PATH", "GIT_SSL_")

_KEPT = re.compile(
    r"(core\.(?:autocrlf|eol|filemode|symlinks|ignorecase|precomposeunicode|longpaths)|extensions\.(?:objectformat|refstorage))"
    r"\n(true|false|input|native|lf|crlf|sha1|sha256|files|reftable)"
)
"""The repository's settings that are kept, with their values. They say how files are written, and name nothing."""

_REMOTE = re.compile(r"remote\.(.+)\.url\n(.*)")
_PROMISOR = re.compile(r"remote\.(.+)\.promisor\ntrue")
_URL = re.compile(r"(?:https?|ssh|file)://[\w.~:/@%+-]+")

_MOST = 1 << 28  # bytes of one file of a git directory


@dataclass(frozen=True)
class Repository:
    """A repository with a work tree."""

    top: Path  # of the work tree
    inner: Path  # the git directory of this work tree
    common: Path  # that of all its work trees


def find_repository(folder: Path) -> Repository | Reason:
    """Returns the repository around a folder, found like git does. Git asks the user to trust one of other users."""
    start = folder.resolve()
    listed = os.environ.get("GIT_CEILING_DIRECTORIES", "").split(os.pathsep)
    ceilings = {Path(path).resolve() for path in listed if path}
    for top in (start, *start.parents):
        if top in ceilings and top != start:
            break
        link = top / ".git"
        inner = link.resolve()
        with contextlib.suppress(OSError):
            if link.is_file():  # of a linked work tree or a submodule
                inner = (top / _read_line(link).removeprefix("gitdir: ")).resolve()
            if not (inner / "HEAD").is_file():
                continue
            more = inner / "commondir"
            common = (inner / _read_line(more)).resolve() if more.is_file() else inner
            if not (_is_own(top, link, inner) or _is_marked_safe(top)):
                return Reason("git_unowned", {"root": str(top)})
            return Repository(top, inner, common)
    return Reason("no_repository", {"folder": str(folder)})


@contextmanager
def open_directory(repository: Repository) -> Iterator[dict[str, str]]:
    """Makes a git directory for a repository. Yields the variables with which git uses it. Raises OSError."""
    with temporary_folder("git") as copy:
        (copy / "HEAD").write_bytes(read_regular(repository.inner / "HEAD", _MOST))
        if (repository.common / "info" / "attributes").exists():
            (copy / "info").mkdir()
        for name in ("packed-refs", "shallow", "info/attributes"):
            _copy(repository.common / name, copy / name)
        for shared in repository.inner.glob("sharedindex.*"):  # parts of a split index
            _copy(shared, copy / shared.name)
        for name in ("refs", "reftable"):
            theirs = repository.common / name
            for folder, _, files in os.walk(theirs) if not theirs.is_symlink() else ():  # which follows no links
                if not files and folder != str(theirs):
                    continue  # each folder costs time at each command
                target = copy / name / Path(folder).relative_to(theirs)
                target.mkdir(parents=True, exist_ok=True)
                for file in files:
                    _copy(Path(folder, file), target / file)
        (copy / "refs").mkdir(exist_ok=True)
        places = {
            **make_variables(copy),
            "GIT_DIR": str(copy),
            "GIT_WORK_TREE": str(repository.top),
            "GIT_INDEX_FILE": str(repository.inner / "index"),
            "GIT_OBJECT_DIRECTORY": str(repository.common / "objects"),
        }
        theirs = repository.common / "config"
        kept = _list_kept(read_regular(theirs, _MOST) if theirs.exists() else b"")
        settings = {"core.repositoryFormatVersion": "1", "core.bare": "false", **SETTINGS, **kept}
        (copy / "config").write_text(_write_settings(settings), encoding="utf-8", newline="\n")
        yield places


def make_variables(home: Path) -> dict[str, str]:
    """Returns the environment of git, with no settings but those of its directory."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    kept = {name: value for name, value in os.environ.items() if name.startswith(_KEPT_VARIABLES)}
    return {
        **variables,
        **kept,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }


def _read_line(path: Path) -> str:
    return os.fsdecode(read_regular(path, 1 << 16)).rstrip("\r\n")


def _copy(source: Path, target: Path) -> None:
    """Copies an ordinary file. Nothing else is looked at."""
    with contextlib.suppress(OSError):
        target.write_bytes(read_regular(source, _MOST))


def _is_own(*places: Path) -> bool:
    """Returns whether all places belong to who runs git, or to who called sudo."""
    if not hasattr(os, "geteuid"):
        return True
    users = {os.geteuid()} | ({int(os.environ.get("SUDO_UID") or 0)} if os.geteuid() == 0 else set())
    return all(place.lstat().st_uid in users for place in places)


def _is_marked_safe(top: Path) -> bool:
    """Returns whether the user or the system lists this folder in safe.directory, the only setting of theirs used."""
    done = subprocess.run(
        ["git", "config", "-z", "--type=path", "--get-all", "safe.directory"],
        capture_output=True, check=False, cwd=tempfile.gettempdir(), env={**os.environ, "GIT_DIR": os.devnull},
    )  # fmt: skip
    listed: list[str] = os.fsdecode(done.stdout).split("\0")[:-1]
    while "" in listed:  # which empties the list so far
        del listed[: listed.index("") + 1]
    return any(safe in {"*", str(top)} or (safe.endswith("/*") and top.is_relative_to(safe[:-2])) for safe in listed)


def find_remote(repository: Repository) -> str | None:
    """Returns the address of the repository's server: that of origin, or of its only remote."""
    theirs = repository.common / "config"
    lines = _list_settings(read_regular(theirs, _MOST) if theirs.exists() else b"")
    urls = {match[1]: match[2] for line in lines if (match := _REMOTE.fullmatch(line))}
    return urls.get("origin") or (next(iter(urls.values())) if len(urls) == 1 else None)


@functools.lru_cache(16)
def _list_settings(settings: bytes) -> list[str]:
    """Returns a name and a value each. git parses them, without the files that they include."""
    command = ["git", "config", "--file", "-", "--no-includes", "-z", "--list"]
    with temporary_folder("git") as made:
        environment = {**make_variables(made), "GIT_DIR": os.devnull}
        done = subprocess.run(command, capture_output=True, check=True, input=settings, env=environment, cwd=made)
    return os.fsdecode(done.stdout).split("\0")


def _list_kept(settings: bytes) -> dict[str, str]:
    """Returns what perfci keeps of a repository's settings."""
    lines = _list_settings(settings)
    kept = {match[1]: match[2] for line in lines if (match := _KEPT.fullmatch(line))}
    # The server that has what a partial clone lacks, of all that is known of it only its address.
    for remote in (match[1] for line in lines if (match := _PROMISOR.fullmatch(line))):
        for line in lines:
            name, _, url = line.partition("\n")
            if name == f"remote.{remote}.url" and _URL.fullmatch(url):
                kept |= {
                    "extensions.partialClone": "origin",
                    "remote.origin.promisor": "true",
                    "remote.origin.url": url,
                }
    return kept


def _write_settings(settings: Mapping[str, str]) -> str:
    sections = ((*name.partition(".")[::2], value) for name, value in settings.items())
    lines = (
        f'[{section} "{inner}"]\n\t{key} = {value}\n' if inner else f"[{section}]\n\t{key} = {value}\n"
        for section, rest, value in sections
        for inner, _, key in (rest.rpartition("."),)
    )
    return "".join(lines)
