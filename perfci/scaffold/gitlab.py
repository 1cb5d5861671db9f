"""The CI jobs: in a .gitlab-ci.yml of their own where there is none, else in a file that the user's one includes.

The user's text is never rewritten. A place for the `include` entry is found by the marks of YAML's parser, and the new
text counts only if it parses to the old one plus that entry; else the lines are given to be added by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import yaml

from perfci.core.model import Reason
from perfci.scaffold import component
from perfci.scaffold.edits import Edit, appended, line_end, read

FILE = ".gitlab-ci.yml"

MERGE_REQUESTS, BRANCHES = "merge_requests", "branches"
"""In which pipelines the jobs run. Where none of merge requests are in use it is those of branches: jobs that alone
have a merge request's pipeline would hide the others' failures there."""

_OPEN = 'PERFCI: ""'
_CHECKS = re.compile(r"\bperfci\b[^\n]*\bcheck\b")
_COMPONENT = re.compile(r"\bperfci/check@")
_HAS_MERGE_REQUESTS = re.compile(r"merge_?request", re.IGNORECASE)

Value = list[tuple[str, ...]]
"""A piece of YAML as its parser's events, without what is only style."""


@dataclass(frozen=True)
class Note:
    """Something that is left to the user."""

    reason: Reason
    lines: str = ""
    """to be copied as they are"""


@dataclass(frozen=True)
class Wanted:
    """The project that is to be checked."""

    top: Path
    """of the repository"""
    folder: str
    """of the project, from there; empty for the repository's own"""
    reports: str
    """from the top"""
    install: str | None
    """what pip installs perfci from, as far as it is known"""

    @property
    def suffix(self) -> str:
        """What tells several projects of a repository apart."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.folder.lower()).strip("-")
        return f"-{slug}" if slug else ""


def plan(wanted: Wanted) -> Iterator[Edit | Note]:
    """What has to be done so that a pipeline checks the project; nothing where one does."""
    path = wanted.top / FILE
    text = read(path)
    if text is None:
        whole = template("pipeline.yml") + jobs(wanted, "test", MERGE_REQUESTS)
        yield Edit(path, None, whole)
        yield from _unfilled(wanted, path, whole)
        return
    own = wanted.top / ".gitlab" / f"perfci{wanted.suffix}.yml"
    try:
        entries = _entries(text)
    except yaml.YAMLError as error:
        yield _by_hand(path, own, wanted, _line(error))
        yield from _own_file(wanted, own, text, {})
        return
    if not _runs(entries, wanted):
        yield from _own_file(wanted, own, text, entries)
        yield from _included(path, own, wanted, text, entries)
    else:
        yield from _filled(wanted, own if own.is_file() else path, read(own) or text)


def jobs(wanted: Wanted, stage: str, pipelines: str) -> str:
    """The jobs of perfci's CI/CD component, with what is known of the project."""
    values = {
        "suffix": wanted.suffix,
        "stage": stage,
        "pipelines": pipelines,
        "install": wanted.install or "",
        "project": wanted.folder or ".",
        "reports": wanted.reports,
    }
    return component.filled(values)


def template(name: str) -> str:
    """The text of a file to be made."""
    return resources.files("perfci.scaffold").joinpath("templates", "init", name).read_text(encoding="utf-8")


def extended(text: str, file: str) -> str | None:
    """A pipeline's text that includes one more local file; None where no safe place for that is found."""
    try:
        before = _entries(text)
        found = _with_include(text, file)
        after = _entries(found) if found else {}
    except yaml.YAMLError:
        return None
    expected = {**before, "include": _longer(before.get("include", []), file)}
    return found if after == expected else None


# --- what is there ----------------------------------------------------------------------------------------------------


def _entries(text: str) -> dict[str, Value]:
    """The last document's top-level entries, and under "" all that comes before it. Raises YAMLError."""
    events = list(yaml.parse(text, Loader=yaml.SafeLoader))
    starts = [at for at, event in enumerate(events) if isinstance(event, yaml.DocumentStartEvent)]
    if not starts:
        return {}
    inner = events[starts[-1] + 1 : -2]
    found = {"": [_plain(event) for event in events[: starts[-1]]]} if len(starts) > 1 else {}
    if not isinstance(inner[0], yaml.MappingStartEvent):
        return found if _is_nothing(inner) else {**found, "no mapping": [_plain(event) for event in inner]}
    values = _values(inner[1:-1])
    keys, entries = values[::2], values[1::2]
    return found | {_scalars(key)[0] if _scalars(key) else "": entry for key, entry in zip(keys, entries, strict=True)}


def _values(events: list[yaml.Event]) -> list[Value]:
    """The values that a run of events holds one after another."""
    found: list[Value] = []
    depth = 0
    for event in events:
        if depth == 0:
            found.append([])
        found[-1].append(_plain(event))
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
    return found


def _plain(event: yaml.Event) -> tuple[str, ...]:
    parts = (getattr(event, name, None) for name in ("anchor", "tag", "value"))
    return type(event).__name__, *(str(part) if part is not None else "" for part in parts)


def _is_nothing(events: list[yaml.Event]) -> bool:
    """Whether a document is empty."""
    return len(events) == 1 and isinstance(events[0], yaml.ScalarEvent) and not events[0].value


def _scalars(value: Value) -> list[str]:
    return [parts[-1] for parts in value if parts[0] == "ScalarEvent"]


def _runs(entries: Mapping[str, Value], wanted: Wanted) -> bool:
    """Whether a job of the pipeline, or of a local file that it includes, checks the project."""
    every = dict(entries)
    for name in _scalars(entries.get("include", [])):
        path = wanted.top / name.lstrip("/")
        if path.suffix in {".yml", ".yaml"} and path.is_file():
            try:
                every |= _entries(read(path) or "")
            except yaml.YAMLError:  # GitLab will say so
                continue
    return any(_checks(key, value, wanted) for key, value in every.items())


def _checks(key: str, value: Value, wanted: Wanted) -> bool:
    checks = _includes(value) if key == "include" else any(_CHECKS.search(text) for text in _scalars(value))
    if wanted.folder:
        return checks and any(wanted.folder in text for text in _scalars(value))
    of_another = tuple(f"{name}-" for name in component.jobs())
    return checks and not key.startswith(of_another)


def _includes(value: Value) -> bool:
    """Whether perfci's component is included, as one or as a file of its project."""
    names = _scalars(value)
    from_project = any(text.endswith("templates/check.yml") for text in names)
    return any(_COMPONENT.search(text) for text in names) or (from_project and any("perfci" in text for text in names))


def _stage(entries: Mapping[str, Value]) -> str:
    """One that the pipeline has: `test`, which it has by default; where it names others, the first."""
    stages = _scalars(entries.get("stages", []))
    return "test" if not stages or "test" in stages else stages[0]


# --- what is added ----------------------------------------------------------------------------------------------------


def _own_file(wanted: Wanted, own: Path, text: str, entries: Mapping[str, Value]) -> Iterator[Edit | Note]:
    """The file with the jobs, unless there is one, which is the user's."""
    there = read(own)
    if there is not None:
        yield from _filled(wanted, own, there)
        return
    pipelines = MERGE_REQUESTS if _HAS_MERGE_REQUESTS.search(text) else BRANCHES
    made = jobs(wanted, _stage(entries), pipelines)
    yield Edit(own, None, made)
    yield from _unfilled(wanted, own, made)


def _included(path: Path, own: Path, wanted: Wanted, text: str, entries: Mapping[str, Value]) -> Iterator[Edit | Note]:
    name = _from(own, wanted)
    if name in (each.lstrip("/") for each in _scalars(entries.get("include", []))):
        return
    after = extended(text, name)
    if after is None:
        yield _by_hand(path, own, wanted, None)
    else:
        yield Edit(path, text, after)


def _with_include(text: str, file: str) -> str | None:
    """The text with the entry where it would have to stand; whether that is right shows when it is parsed."""
    documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    include = _include(documents[-1]) if documents else None
    if include is None:
        return appended(text, ["include:", f"  - local: {file}"])
    if isinstance(include, yaml.SequenceNode) and not include.flow_style:
        at = _last(include).end_mark.index
        line = f"{' ' * include.start_mark.column}- local: {file}"
        return _inserted(text, text.find("\n", at) + 1 or None, line)
    if isinstance(include, yaml.SequenceNode):
        at = include.end_mark.index - 1
        gap = ", " if include.value else ""
        return f"{text[:at].rstrip(' ')}{gap}{{local: {file}}}{text[at:]}"
    if isinstance(include, yaml.MappingNode) and not include.flow_style:
        return None
    start, end = include.start_mark.index, include.end_mark.index
    return f"{text[:start]}[{text[start:end]}, {{local: {file}}}]{text[end:]}"


def _inserted(text: str, at: int | None, line: str) -> str:
    end = line_end(text)
    return f"{text}{end}{line}" if at is None else f"{text[:at]}{line}{end}{text[at:]}"


def _include(document: yaml.Node | None) -> yaml.Node | None:
    entries = document.value if isinstance(document, yaml.MappingNode) else []
    return next((value for key, value in entries if key.value == "include"), None)


def _last(node: yaml.Node) -> yaml.Node:
    """The innermost node that a block ends with; a block's own end is where the next one begins."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        node = node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1]
    return node


def _longer(include: Value, file: str) -> Value:
    """The `include` entry with one more file."""
    start, end = ("SequenceStartEvent", "", "", ""), ("SequenceEndEvent", "", "", "")
    item = [
        ("MappingStartEvent", "", "", ""),
        ("ScalarEvent", "", "", "local"),
        ("ScalarEvent", "", "", file),
        ("MappingEndEvent", "", "", ""),
    ]
    if include and include[0][0] == start[0]:
        return [*include[:-1], *item, end]
    return [start, *include, *item, end]


# --- what is left to the user -----------------------------------------------------------------------------------------


def _filled(wanted: Wanted, path: Path, text: str) -> Iterator[Edit | Note]:
    """Jobs that did not know what to install, where that is known now."""
    if wanted.install and _OPEN in text:
        yield Edit(path, text, text.replace(_OPEN, f"PERFCI: {json.dumps(wanted.install)}"))
    else:
        yield from _unfilled(wanted, path, text)


def _unfilled(wanted: Wanted, path: Path, text: str) -> Iterator[Note]:
    if _OPEN in text:
        yield Note(Reason("init_install_open", {"path": _from(path, wanted)}))


def _by_hand(path: Path, own: Path, wanted: Wanted, line: int | None) -> Note:
    lines = f"include:\n  - local: {_from(own, wanted)}\n"
    facts = {"path": _from(path, wanted), "line": line}
    kind = "init_include_by_hand" if line is None else "init_pipeline_damaged"
    return Note(Reason(kind, facts), lines)


def _line(error: yaml.YAMLError) -> int:
    mark = getattr(error, "problem_mark", None)
    return mark.line + 1 if mark else 1


def _from(path: Path, wanted: Wanted) -> str:
    return path.relative_to(wanted.top).as_posix()
