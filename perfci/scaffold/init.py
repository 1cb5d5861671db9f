"""Sets a repository up for perfci: planned first, from what is there. Whatever the user has stays as it is."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from perfci.core import settings
from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.git.command import git
from perfci.scaffold.edits import Edit, Note, append_lines, read, template
from perfci.scaffold.gitlab import Pipeline

UNITED = {"baselines": "*.history.jsonl", "kernels": "optimization.jsonl"}  # files to which branches append
OWNER_FILES = ("CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")  # GitLab reads the first of these that exists


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
    found = git(folder, "rev-parse", "--show-toplevel")
    top = None if isinstance(found, Reason) else Path(found.removesuffix("\n")).resolve()
    project = settings.at(_find_root(folder, top))
    steps = list(_plan_steps(project, top or project.root, names, install))
    steps += [Note(found)] if isinstance(found, Reason) else []
    edits = tuple(step for step in steps if isinstance(step, Edit))
    return Setup(project.root, top or project.root, edits, tuple(step for step in steps if isinstance(step, Note)))


def _find_root(folder: Path, top: Path | None) -> Path:
    """The project's root as every command finds it, though never above the repository. Else the folder itself."""
    for each in (folder, *folder.parents):
        if top is not None and not each.is_relative_to(top):
            break
        if settings.has_table(each) or (top is not None and (each / "kernels").is_dir()):
            return each
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
            yield Edit(place / file, None, template("thresholds.yaml" if name == "thresholds" else f"{name}.md"))
    if "thresholds" in places:  # beside its files, since editors do not know where perfci is installed
        path, schema = (
            places["thresholds"] / "schema.json",
            resources.files("perfci") / "schemas/thresholds.schema.json",
        )
        after = json.dumps(json.loads(schema.read_bytes())) + "\n"
        if (before := read(path)) != after:
            yield Edit(path, before, after)
    for name in places.keys() & UNITED:
        # So that git keeps both branches' lines, each of which stands alone.
        yield from _add_lines(places[name] / ".gitattributes", {UNITED[name]: f"{UNITED[name]} merge=union"})
    if "reports" in places:
        yield from _ignore_reports(project.root, places["reports"])
    root = project.root.relative_to(top).as_posix()
    reports = places["reports"].relative_to(top).as_posix() if "reports" in places else "reports"
    yield from Pipeline(top, "" if root == "." else root, reports, install).plan()
    ruled = [places[name].relative_to(top).as_posix() for name in ("thresholds", "baselines") if name in places]
    yield from _plan_owners(top, ruled, owners)


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
        yield Edit(path, text, after)


def _ignore_reports(root: Path, reports: Path) -> Iterator[Edit]:
    """The lines by which git ignores reports, except their README, and what Python leaves beside kernels."""
    if not reports.is_relative_to(root):
        yield from _add_lines(reports / ".gitignore", {line: line for line in ("*", "!.gitignore", "!README.md")})
        return
    name = reports.relative_to(root).as_posix()
    lines = {name: f"/{name}/*\n!/{name}/README.md", "__pycache__": "__pycache__/"}
    yield from _add_lines(root / ".gitignore", lines)


def _add_lines(path: Path, wanted: Mapping[str, str]) -> Iterator[Edit]:
    """Adds lines to a file of patterns, unless it has their pattern in one of the ways to write it."""
    text = read(path)
    known = {line.split()[0] for line in (text or "").splitlines() if line.strip()}
    lines = []
    for pattern, line in wanted.items():
        spelled = {f"{start}{pattern}{end}" for start in ("", "/", "**/") for end in ("", "/", "/*", "/**")}
        lines += [] if known & spelled else line.split("\n")
    if lines:
        yield Edit(path, text, append_lines(text or "", lines))


def _plan_owners(top: Path, folders: Sequence[str], owners: Sequence[str]) -> Iterator[Edit | Note]:
    """Rules by which owners approve changes to folders. Rules that are there stay as they are."""
    path = next((top / place for place in OWNER_FILES if (top / place).is_file()), top / OWNER_FILES[0])
    text = read(path) or ""
    known = {re.split(r"(?<!\\)\s", line.strip())[0] for line in text.splitlines() if line.strip()}
    rules = [f"/{folder}/".replace(" ", "\\ ") for folder in folders]
    missing = [rule for rule in rules if not known & {rule, rule.rstrip("/"), rule.lstrip("/"), f"{rule}**"}]
    if missing and not owners:
        yield Note(Reason("init_owners_open", {"path": path.relative_to(top).as_posix()}))
    elif missing:
        head = ["# What perfci judges by: those who answer for the kernels' speed approve its changes."]
        # In a file with sections the rules would belong to the last one.
        head += ["[perfci]"] if re.search(r"^\^?\[[^\]]+\]", text, re.MULTILINE) else []
        lines = [*head, *(f"{rule} {' '.join(owners)}" for rule in missing)]
        yield Edit(path, text or None, append_lines(text, lines))
