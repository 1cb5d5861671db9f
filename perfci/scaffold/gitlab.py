"""The CI jobs: in a .gitlab-ci.yml of their own if there is none, else in a file that the user's one includes.

The user's text is never rewritten. An `include` entry is added only if nothing else changes. Else the lines are given
to be added by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from perfci.core.model import Reason
from perfci.core.yaml_edit import YamlError, load_text, make_mapping, make_sequence, read_document
from perfci.scaffold import component
from perfci.scaffold.edits import Edit, append_lines, read

FILE = ".gitlab-ci.yml"

MERGE_REQUESTS, BRANCHES = "merge_requests", "branches"
"""In which pipelines the jobs run. If none of merge requests are in use it is those of branches: jobs that alone have a
merge request's pipeline would hide the others' failures there."""

_OPEN = 'PERFCI: ""'
_CHECKS = re.compile(r"\bperfci\b[^\n]*\bcheck\b")
_COMPONENT = re.compile(r"\bperfci/check@")


@dataclass(frozen=True)
class Note:
    """Something that is left to the user."""

    reason: Reason
    lines: str = ""
    """to be copied as they are"""


@dataclass(frozen=True)
class Pipeline:
    """The pipeline of a project that is to be checked."""

    top: Path
    """of the repository"""
    folder: str
    """of the project, from there. Empty for the repository's own"""
    reports: str
    """from the top"""
    install: str | None
    """what pip installs perfci from, if known"""

    @property
    def suffix(self) -> str:
        """Distinguishes several projects of a repository."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.folder.lower()).strip("-")
        return f"-{slug}" if slug else ""


def plan(wanted: Pipeline) -> Iterator[Edit | Note]:
    """What has to be done so that a pipeline checks the project. Nothing if one does."""
    path = wanted.top / FILE
    text = read(path)
    if text is None:
        whole = template("pipeline.yml") + fill_jobs(wanted, "test", MERGE_REQUESTS)
        yield Edit(path, None, whole)
        yield from _fill_in(wanted, path, whole, edit=False)
        return
    own = wanted.top / ".gitlab" / f"perfci{wanted.suffix}.yml"
    name = own.relative_to(wanted.top).as_posix()
    lines = f"include:\n  - local: {name}\n"
    try:
        entries = load_text(text)
    except YamlError as error:
        yield Note(Reason("init_pipeline_damaged", {"path": FILE, "line": error.line}), lines)
        yield from _plan_own_file(wanted, own, text, {})
        return
    entries = entries if isinstance(entries, dict) else {}
    if _runs(entries, wanted):
        yield from _fill_in(wanted, own if own.is_file() else path, read(own) or text)
        return
    yield from _plan_own_file(wanted, own, text, entries)
    if name not in (each.lstrip("/") for each in _scalars(entries.get("include"))):
        after = include_file(text, name)
        facts = {"path": FILE, "line": None}
        yield Edit(path, text, after) if after else Note(Reason("init_include_by_hand", facts), lines)


def fill_jobs(wanted: Pipeline, stage: str, pipelines: str) -> str:
    """The jobs of perfci's CI/CD component, with what is known of the project."""
    values = {
        "suffix": wanted.suffix,
        "stage": stage,
        "pipelines": pipelines,
        "install": wanted.install or "",
        "project": wanted.folder or ".",
        "reports": wanted.reports,
    }
    return component.fill(values)


def template(name: str) -> str:
    """The text of a file to be made."""
    return resources.files("perfci.scaffold").joinpath("templates", "init", name).read_text(encoding="utf-8")


def include_file(text: str, file: str) -> str | None:
    """A pipeline's text that includes one more local file. None if it cannot be changed without touching the rest."""
    try:
        before = load_text(text)
        before = {} if before is None else before
        if not isinstance(before, dict):
            return None
        if "include" not in before:
            after = append_lines(text, ["include:", f"  - local: {file}"])
            return after if load_text(after) == {**before, "include": [{"local": file}]} else None
        document = read_document(text)
        if document is None:
            return None
        known = document.data["include"]
        new = make_mapping(local=file)
        if isinstance(known, list):
            # First, since comments behind the last entry belong to what follows.
            known.insert(0, new)
        else:
            document.data["include"] = make_sequence(new, known)
        after = document.write()
        kept = [new, *(before["include"] if isinstance(before["include"], list) else [before["include"]])]
        return after if load_text(after) == {**before, "include": kept} else None
    except YamlError:
        return None


def _scalars(value: Any) -> list[str]:
    """Every text in a value, keys included."""
    if isinstance(value, dict):
        return [text for pair in value.items() for each in pair for text in _scalars(each)]
    if isinstance(value, list):
        return [text for each in value for text in _scalars(each)]
    return [] if value is None else [str(getattr(value, "value", value))]


def _runs(entries: dict[str, Any], wanted: Pipeline) -> bool:
    """Whether a job of the pipeline, or of a local file that it includes, checks the project."""
    every = dict(entries)
    for name in _scalars(entries.get("include")):
        path = wanted.top / name.lstrip("/")
        if path.suffix in {".yml", ".yaml"} and path.is_file():
            try:
                found = load_text(read(path) or "")
            except YamlError:  # GitLab will report it
                continue
            every |= found if isinstance(found, dict) else {}
    return any(_checks(str(key), value, wanted) for key, value in every.items())


def _checks(key: str, value: Any, wanted: Pipeline) -> bool:
    texts = _scalars(value)
    if key == "include":  # the component, as one or as a file of its project
        from_project = any(text.endswith("templates/check.yml") for text in texts) and "perfci" in " ".join(texts)
        checks = from_project or any(_COMPONENT.search(text) for text in texts)
    else:
        checks = any(_CHECKS.search(text) for text in texts)
    if wanted.folder:
        return checks and any(wanted.folder in text for text in texts)
    return checks and not key.startswith(tuple(f"{name}-" for name in component.jobs()))


def _plan_own_file(wanted: Pipeline, own: Path, text: str, entries: dict[str, Any]) -> Iterator[Edit | Note]:
    """The file with the jobs, unless there is one, which is the user's."""
    there = read(own)
    if there is not None:
        yield from _fill_in(wanted, own, there)
        return
    pipelines = MERGE_REQUESTS if re.search("merge_?request", text, re.IGNORECASE) else BRANCHES
    # Without stages of its own a pipeline has one called test.
    stages = _scalars(entries.get("stages"))
    made = fill_jobs(wanted, "test" if not stages or "test" in stages else stages[0], pipelines)
    yield Edit(own, None, made)
    yield from _fill_in(wanted, own, made, edit=False)


def _fill_in(wanted: Pipeline, path: Path, text: str, *, edit: bool = True) -> Iterator[Edit | Note]:
    """Tell jobs what to install if they did not know, or say that it is open."""
    if edit and wanted.install and _OPEN in text:
        yield Edit(path, text, text.replace(_OPEN, f"PERFCI: {json.dumps(wanted.install)}"))
    elif _OPEN in text:
        yield Note(Reason("init_install_open", {"path": path.relative_to(wanted.top).as_posix()}))
