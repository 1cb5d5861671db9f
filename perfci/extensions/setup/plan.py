"""Sets a repository up for perfci: planned first, from what is there. Whatever the user has stays as it is."""

import contextlib
import importlib.metadata
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from perfci.core import settings
from perfci.core.errors import UsageError
from perfci.core.model import Reason, as_fact
from perfci.extensions.setup.hosts import FILE, Pipeline, Workflow
from perfci.extensions.setup.texts import Note, append_lines, read, template
from perfci.git.base import DEFAULT_BRANCHES
from perfci.git.command import git
from perfci.git.repository import find_remote, find_repository
from perfci.scaffold.edits import Edit
from perfci.store.files import UNFINISHED

UNITED = {
    "baselines": ("*.history.jsonl", as_fact("lets git join the histories of two branches")),
    "kernels": ("optimization.jsonl", as_fact("lets git join the logbooks of two branches")),
}
"""Files to which branches append, by folder."""

OWNER_FILES = {
    "gitlab": ("CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS"),
    "github": (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"),
}
"""A server reads the first of these that exists."""

PURPOSES = {
    "kernels": as_fact("folder of ops, and how one is written"),
    "baselines": as_fact("folder of accepted numbers"),
    "reports": as_fact("folder of what perfci writes"),
    "thresholds": as_fact("every threshold with its built-in value, for you to change"),
}


@dataclass(frozen=True)
class Setup:
    """What it takes to set a project up."""

    root: Path  # of the project
    top: Path  # of the repository. The project's if it is in none
    edits: tuple[Edit, ...]
    notes: tuple[Note, ...]


def plan(folder: Path, owners: Sequence[str] = (), install: str | None = None) -> Setup:
    """Returns the set-up of the project around a folder, or of that folder. Raises UsageError or StoredFileError."""
    folder = folder.resolve()
    if not folder.is_dir():
        raise UsageError("init_folder_missing", folder=str(folder))
    names = [name for text in owners for name in re.split(r"[\s,]+", text) if name]
    wrong = next((name for name in names if not re.fullmatch(r"@{1,2}\w[\w./-]*|[^\s@]+@[^\s@]+", name)), None)
    if wrong is not None or (owners and not names):
        raise UsageError("init_owner", owner=wrong or "")
    printed = git(folder, "rev-parse", "--show-toplevel")
    top = None if isinstance(printed, Reason) else Path(printed.removesuffix("\n")).resolve()
    project = settings.at(_find_root(folder, top))
    steps = list(_plan_steps(project, top or project.root, names, install))
    steps += [Note(printed)] if isinstance(printed, Reason) else []
    edits = tuple(step for step in steps if isinstance(step, Edit))
    return Setup(project.root, top or project.root, edits, tuple(step for step in steps if isinstance(step, Note)))


def find_source() -> str | None:
    """Returns what pip installed this perfci from, if that is a repository: git+https://HOST/perfci.git@TAG."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        origin = json.loads(importlib.metadata.distribution("perfci").read_text("direct_url.json") or "null")
        vcs, url = origin["vcs_info"], origin["url"]
        # One with a password in it is not to be written down.
        if re.fullmatch(r"https://[\w.:-]+/[\w./~-]+", url):
            return f"{vcs['vcs']}+{url}@{vcs.get('requested_revision') or vcs['commit_id']}"
    return None


def _find_root(folder: Path, top: Path | None) -> Path:
    """The project's root as every command finds it, though never above the repository. Else the folder itself."""
    for parent in (folder, *folder.parents):
        if top is not None and not parent.is_relative_to(top):
            break
        if settings.has_table(parent) or (top is not None and (parent / "kernels").is_dir()):
            return parent
    return folder


def _plan_steps(
    project: settings.Settings, top: Path, owners: Sequence[str], install: str | None
) -> Iterator[Edit | Note]:
    """Yields the steps for all folders of the project that lie inside the repository."""
    every = {name: getattr(project, name).resolve() for name in settings.FOLDERS}
    places = {name: place for name, place in every.items() if place.is_relative_to(top)}
    yield from _mark_root(project.root)
    for name, place in places.items():
        file = "default.yaml" if name == "thresholds" else "README.md"
        used = name in {"kernels", "baselines"} and place.is_dir() and any(place.iterdir())
        if not used and read(place / file) is None:
            text = template("thresholds.yaml" if name == "thresholds" else f"{name}.md")
            yield Edit(place / file, None, text, PURPOSES[name])
    if "thresholds" in places:  # beside its files, since editors do not know where perfci is installed
        path, schema = (
            places["thresholds"] / "schema.json",
            resources.files("perfci") / "schemas/thresholds.schema.json",
        )
        after = json.dumps(json.loads(schema.read_bytes())) + "\n"
        if (before := read(path)) != after:
            yield Edit(path, before, after, as_fact("by which an editor completes and checks thresholds"))
    for name in UNITED.keys() & places.keys():
        # So that git keeps both branches' lines, each of which stands alone.
        pattern, purpose = UNITED[name]
        yield from _add_lines(places[name] / ".gitattributes", {pattern: f"{pattern} merge=union"}, purpose)
    yield from _ignore_files(project.root, places.get("reports"))
    root = project.root.relative_to(top).as_posix()
    folder = "" if root == "." else root
    reports = places["reports"].relative_to(top).as_posix() if "reports" in places else "reports"
    server, install = _find_server(top), install or find_source()
    if server == "github":
        yield from Workflow(top, folder, reports, _find_default_branch(top), install).plan()
    else:
        yield from Pipeline(top, folder, reports, install).plan()
    ruled = [places[name].relative_to(top).as_posix() for name in ("thresholds", "baselines") if name in places]
    yield from _plan_owners(top, ruled, owners, server)


def _find_server(top: Path) -> str:
    """Returns gitlab or github, by the name of the repository's server, else by the files that lie there."""
    repository = find_repository(top)
    remote = None if isinstance(repository, Reason) else find_remote(repository)
    host = re.sub(r"^\w+://", "", remote or "").rpartition("@")[2].split("/")[0].split(":")[0].lower()
    named = next((name for name in OWNER_FILES if name in host), None)
    return named or ("github" if (top / ".github").is_dir() and not (top / FILE).exists() else "gitlab")


def _find_default_branch(top: Path) -> str:
    """The branch that the server names as its default, else the usual one that there is, else the current one."""
    recorded, current = (git(top, "symbolic-ref", "-q", name) for name in ("refs/remotes/origin/HEAD", "HEAD"))
    if isinstance(recorded, str):
        return recorded.strip().removeprefix("refs/remotes/origin/")
    usual = (name for name in DEFAULT_BRANCHES if not name.startswith("origin/"))
    present = (name for name in usual if isinstance(git(top, "rev-parse", "-q", "--verify", f"refs/heads/{name}"), str))
    return next(present, current.strip().removeprefix("refs/heads/") if isinstance(current, str) else "main")


def _mark_root(root: Path) -> Iterator[Edit | Note]:
    """The table that marks the project's root. One that is there is the user's."""
    if settings.has_table(root):
        return
    path = root / settings.FILE
    text = read(path)
    after = append_lines(text or "", template("settings.toml").splitlines())
    try:
        tomllib.loads(after)
    except tomllib.TOMLDecodeError:  # such as tool written in one line
        yield Note(Reason("init_settings_by_hand", {"path": str(path)}), "perfci = {}\n")
    else:
        yield Edit(path, text, after, as_fact("a table [tool.perfci], which marks the project's root"))


def _ignore_files(root: Path, reports: Path | None) -> Iterator[Edit]:
    """The lines by which git ignores reports, except their README, and what else is no one's to commit."""
    lines = {}
    if reports and reports.is_relative_to(root):
        name = reports.relative_to(root).as_posix()
        lines[name] = f"/{name}/*\n!/{name}/README.md"
    elif reports:
        inner = {line: line for line in ("*", "!.gitignore", "!README.md")}
        yield from _add_lines(reports / ".gitignore", inner, as_fact("git passes over reports"))
    lines |= {"__pycache__": "__pycache__/", ".venv": ".venv/", UNFINISHED: UNFINISHED}
    said = as_fact("git passes over reports, environments, caches and unfinished files")
    yield from _add_lines(root / ".gitignore", lines, said)


def _add_lines(path: Path, wanted: Mapping[str, str], purpose: str) -> Iterator[Edit]:
    """Adds lines to a file of patterns, unless it has their pattern in one of the ways to write it."""
    text = read(path)
    present = {line.split()[0] for line in (text or "").splitlines() if line.strip()}
    lines = []
    for pattern, line in wanted.items():
        spelled = {f"{start}{pattern}{end}" for start in ("", "/", "**/") for end in ("", "/", "/*", "/**")}
        lines += [] if present & spelled else line.split("\n")
    if lines:
        yield Edit(path, text, append_lines(text or "", lines), purpose)


def _plan_owners(top: Path, folders: Sequence[str], owners: Sequence[str], server: str) -> Iterator[Edit | Note]:
    """Rules by which owners approve changes to folders. Rules that are there stay as they are."""
    places = OWNER_FILES[server]
    path = next((top / place for place in places if (top / place).is_file()), top / places[0])
    text = read(path) or ""
    present = {re.split(r"(?<!\\)\s", line.strip())[0] for line in text.splitlines() if line.strip()}
    rules = [f"/{folder}/".replace(" ", "\\ ") for folder in folders]
    missing = [rule for rule in rules if not present & {rule, rule.rstrip("/"), rule.lstrip("/"), f"{rule}**"}]
    if missing and not owners:
        yield Note(Reason("init_owners_open", {"path": path.relative_to(top).as_posix()}))
    elif missing:
        head = ["# What perfci judges by: those who answer for the kernels' speed approve its changes."]
        # In a file with sections, which GitLab has, the rules would belong to the last one.
        head += ["[perfci]"] if re.search(r"^\^?\[[^\]]+\]", text, re.MULTILINE) else []
        lines = [*head, *(f"{rule} {' '.join(owners)}" for rule in missing)]
        said = as_fact("who approves changes to thresholds and baselines")
        yield Edit(path, text or None, append_lines(text, lines), said)
