"""Sets a repository up for perfci: what that takes is planned first, from what is there, and nothing is taken away.

Whatever the user has stays as it is: settings, thresholds, rules, jobs. So a second plan right after is empty.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from perfci.core import settings
from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.core.settings import Settings
from perfci.git.command import git, run
from perfci.scaffold import gitlab, owners
from perfci.scaffold.edits import Edit, append_lines, read, refuse_file_above
from perfci.scaffold.gitlab import Note, template

EXAMPLES = ("kernels", "baselines", "thresholds")
"""Folders whose files belong into git."""

HISTORIES = "*.history.jsonl"
"""Files to which branches append."""


@dataclass(frozen=True)
class Setup:
    """What it takes to set a project up."""

    root: Path
    """of the project"""
    top: Path
    """of the repository. The project's if it is in none"""
    edits: tuple[Edit, ...]
    notes: tuple[Note, ...]


def plan(folder: Path, named: Sequence[str] = (), install: str | None = None) -> Setup:
    """The set-up of the project around a folder, or of that folder if there is none yet.

    `named` are the owners of thresholds/ and baselines/, `install` is what pip installs perfci from in CI; None takes
    what it was installed from here, if that can be had elsewhere. Raises UsageError or StoredFileError if something
    stands in the way. Nothing is written.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise UsageError("init_folder_missing", folder=str(folder))
    team = owners.parse(named)
    found = git(folder, "rev-parse", "--show-toplevel")
    top = None if isinstance(found, Reason) else Path(found.removesuffix("\n")).resolve()
    project = settings.at(_root(folder, top))
    steps = list(_plan_steps(_Project(project, top or project.root), team, install or installed_from()))
    if isinstance(found, Reason):
        steps.append(Note(found))
    edits = tuple(step for step in steps if isinstance(step, Edit))
    return Setup(project.root, top or project.root, edits, tuple(step for step in steps if isinstance(step, Note)))


def installed_from() -> str | None:
    """What pip can install this very perfci from on another machine: its commit, or its version on an index.

    None if it comes from a file or folder of this machine, or if pip did not install it (PEP 610).
    """
    try:
        distribution = metadata.distribution("perfci")
    except metadata.PackageNotFoundError:
        return None
    if distribution.read_text("INSTALLER") is None:
        return None
    origin = distribution.read_text("direct_url.json")
    if origin is None:
        return f"perfci=={distribution.version}"
    found = json.loads(origin)
    version = found.get("vcs_info")
    if not version:
        return None
    parts = urlsplit(str(found["url"]))
    user, _, host = parts.netloc.rpartition("@")
    place = f"{user}@{host}" if user and parts.scheme == "ssh" else host  # no password
    return f"{version['vcs']}+{urlunsplit(parts._replace(netloc=place))}@{version['commit_id']}"


@dataclass(frozen=True)
class _Project:
    settings: Settings
    top: Path

    def name(self, path: Path) -> str | None:
        """A path from the top. None for one that lies elsewhere."""
        real = path.resolve()
        return real.relative_to(self.top).as_posix() if real.is_relative_to(self.top) else None

    def folder(self, name: str) -> Path:
        """One of the project's folders, by its key in the settings."""
        return Path(os.path.normpath(getattr(self.settings, name)))


def _root(folder: Path, top: Path | None) -> Path:
    """The project's root as every command finds it, though never above the repository. Else the folder itself.

    Outside of git only a table of settings counts: a folder that is called kernels may be anyone's.
    """
    for each in (folder, *folder.parents):
        if top is not None and not each.is_relative_to(top):
            break
        if settings.has_table(each) or (top is not None and (each / "kernels").is_dir()):
            return each
    return folder


# --- the steps --------------------------------------------------------------------------------------------------------


def _plan_steps(project: _Project, team: Sequence[str], install: str | None) -> Iterator[Edit | Note]:
    kept = [name for name in settings.FOLDERS if project.name(project.folder(name)) is not None]
    for name in settings.FOLDERS:
        refuse_file_above(project.folder(name) / "any")
        if name not in kept:
            facts = {"key": name, "folder": str(project.folder(name)), "top": str(project.top)}
            yield Note(Reason("init_folder_outside", facts))
    yield from _mark_root(project)
    yield from (edit for name in kept for edit in _keep_folder(project, name))
    if "baselines" in kept:
        yield from _join_histories(project)
    if "reports" in kept:
        yield from _ignore_reports(project)
    root = project.settings.root.relative_to(project.top).as_posix()
    reports = project.name(project.settings.reports) or "reports"
    yield from gitlab.plan(gitlab.Pipeline(project.top, "" if root == "." else root, reports, install))
    ruled = [project.name(project.folder(name)) for name in ("thresholds", "baselines") if name in kept]
    yield from owners.plan(project.top, [name for name in ruled if name], team)
    yield from _find_ignored(project, [name for name in EXAMPLES if name in kept])


def _mark_root(project: _Project) -> Iterator[Edit | Note]:
    """The table that marks the project's root. One that is there is the user's."""
    if settings.has_table(project.settings.root):
        return
    path = project.settings.root / settings.FILE
    text, table = read(path), template("settings.toml")
    after = append_lines(text or "", table.splitlines())
    try:
        tomllib.loads(after)
    except tomllib.TOMLDecodeError:  # tool is written in one line, say
        yield Note(Reason("init_settings_by_hand", {"path": str(path)}), "perfci = {}\n")
    else:
        yield Edit(path, text, after)


def _keep_folder(project: _Project, name: str) -> Iterator[Edit]:
    """What keeps a folder in git: the thresholds, or a word on what belongs there, unless something does already."""
    folder = project.folder(name)
    if name == "thresholds":
        path, text = folder / "default.yaml", template("thresholds.yaml")
    else:
        path, text = folder / "README.md", template(f"{name}.md")
    needed = name in {"thresholds", "reports"} or not folder.is_dir() or not any(folder.iterdir())
    if needed and read(path) is None:
        yield Edit(path, None, text)


def _join_histories(project: _Project) -> Iterator[Edit]:
    """The line by which git keeps both branches' lines of a history, each of which stands alone."""
    path = project.folder("baselines") / ".gitattributes"
    text = read(path)
    if not any(line.split()[:1] == [HISTORIES] for line in (text or "").splitlines()):
        yield Edit(path, text, append_lines(text or "", [f"{HISTORIES} merge=union"]))


def _ignore_reports(project: _Project) -> Iterator[Edit | Note]:
    """The lines by which git ignores reports, except their README, and what Python leaves beside kernels."""
    root, reports = project.settings.root, project.folder("reports")
    listed = git(root, "ls-files", "--", str(reports))
    tracked = listed.splitlines() if isinstance(listed, str) else []
    others = [line for line in tracked if not line.endswith("README.md")]
    if others:
        yield Note(Reason("init_reports_tracked", {"folder": project.name(reports), "file": others[0]}))
    inside = reports.resolve().is_relative_to(root)
    path = (root if inside else reports) / ".gitignore"
    text = read(path)
    known = {line.strip() for line in (text or "").splitlines()}
    name = reports.resolve().relative_to(root).as_posix() if inside else ""
    if not inside:
        lines = [] if "*" in known else ["*", "!.gitignore", "!README.md"]
    else:
        lines = [] if known & _spellings(name) else [f"/{name}/*", f"!/{name}/README.md"]
    lines = [] if others else lines
    lines += ["__pycache__/"] if inside and not known & _spellings("__pycache__") else []
    if lines:
        yield Edit(path, text, append_lines(text or "", lines))


def _spellings(name: str) -> set[str]:
    """Ways of ignoring a folder."""
    return {f"{start}{name}{end}" for start in ("", "/", "**/") for end in ("", "/", "/*", "/**")}


def _find_ignored(project: _Project, names: Sequence[str]) -> Iterator[Note]:
    """Ignored files never reach CI: an ignored baseline makes every case NEW."""
    files = {"kernels": "an_op/an_op_triton.py", "baselines": "a-device/an_op.json", "thresholds": "an_op.yaml"}
    paths = [str(project.folder(name) / files[name]) for name in names]
    done = run(project.top, "check-ignore", "--no-index", "--", *paths)
    if not isinstance(done, Reason):
        hidden = [name for name, path in zip(names, paths, strict=True) if path in done.stdout.decode(errors="replace")]
        for name in hidden:
            yield Note(Reason("init_ignored", {"folder": project.name(project.folder(name)), "example": files[name]}))
