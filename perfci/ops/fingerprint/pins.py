"""The versions of torch, Triton and the device's libraries that a project asks for, and whether they changed."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PATTERNS = (
    ".gitlab-ci.yml", "constraints*.txt", "environment.y*ml", "poetry.lock", "pyproject.toml", "requirements*.txt",
    "requirements/*.txt", "uv.lock",
)  # fmt: skip
"""Files of a project's root that say what is installed."""

DEPENDENCIES = (
    ("build-system", "requires"), ("dependency-groups",), ("project", "dependencies"),
    ("project", "optional-dependencies"), ("tool", "hatch"), ("tool", "pdm"), ("tool", "pixi"), ("tool", "poetry"),
    ("tool", "uv"),
)  # fmt: skip
"""Tables of pyproject.toml that name packages."""

_TOOL = (
    r"torch([-_.]npu)?|triton([-_.]\w+)?|pytorch([-_.](triton[-_.\w]*|cuda))?"
    r"|(cuda|nvidia)[-_.][-_.\w]+|cuda(toolkit)?|cudnn"
)
_PIN = re.compile(rf"(?:[\w-]+::)?(?P<name>{_TOOL})(?![-\w.])\s*(?:$|[\[=<>!~@;(\d].*)", re.IGNORECASE)
_INDEX = re.compile(
    r"--?(?:i|f|index-url|extra-index-url|find-links)\b.*(?:torch|cuda|triton|nvidia|ascend)", re.IGNORECASE
)
_IMAGE = re.compile(
    r"(?:image|name):\s*(?P<image>\S*(?:torch|cuda|triton|nvidia|cann|ascend|npu|rocm)\S*)", re.IGNORECASE
)

Pins = Iterator[tuple[str, str]]
"""What is pinned, and how it is written."""


def pins_changed(root: Path, base_root: Path) -> tuple[str, ...]:
    """Each pin of the toolchain that differs: `requirements/cpu.txt: triton==3.7.1 -> triton==3.8.0`."""
    names = {path.relative_to(each).as_posix() for each in (root, base_root) for path in _files(each)}
    return tuple(
        f"{name}: {old} -> {new}" for name in sorted(names) for old, new in _changes(base_root / name, root / name)
    )


def _files(root: Path) -> Iterator[Path]:
    return (path for pattern in PATTERNS for path in root.glob(pattern) if path.is_file())


def _changes(base: Path, head: Path) -> Iterator[tuple[str, str]]:
    before, after = _read(base), _read(head)
    for name in sorted(before.keys() | after.keys()):
        gone, come = before[name] - after[name], after[name] - before[name]
        yield from itertools.zip_longest(sorted(gone.elements()), sorted(come.elements()), fillvalue="nothing")


def _read(path: Path) -> defaultdict[str, Counter[str]]:
    """How often each pin is written, by package; none in a file that is missing or damaged."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    try:
        for name, text in _pins(path.name, path.read_text(encoding="utf-8", errors="replace")):
            found[re.sub(r"[-_.]+", "-", name.lower())][text] += 1
    except (OSError, tomllib.TOMLDecodeError, RecursionError):
        found.clear()
    return found


def _pins(name: str, text: str) -> Pins:
    if name.endswith(".lock"):
        return _locked(tomllib.loads(text))
    if name.endswith(".toml"):
        return _declared(tomllib.loads(text))
    if name.endswith(".txt"):
        return _required(text)
    return _images(text) if name == ".gitlab-ci.yml" else _listed(text)


def _locked(lock: Mapping[str, Any]) -> Pins:
    packages = lock.get("package")
    for package in packages if isinstance(packages, list) else ():
        if isinstance(package, dict):
            yield from _pin(f"{package.get('name')}=={package.get('version')}")


def _declared(project: Mapping[str, Any]) -> Pins:
    for keys in DEPENDENCIES:
        table: Any = project
        for key in keys:
            table = table.get(key, {}) if isinstance(table, dict) else {}
        yield from _walk(table)


def _walk(value: Any) -> Pins:
    """Requirements in lists, and packages that are keys, such as poetry's: torch = "^2.6"."""
    if isinstance(value, str):
        yield from _pin(value)
    elif isinstance(value, list):
        yield from (pin for each in value for pin in _walk(each))
    elif isinstance(value, dict):
        for key, inner in value.items():
            found = _PIN.fullmatch(key)
            yield from [(found["name"], f"{key} = {json.dumps(inner, default=str)}")] if found else _walk(inner)


def _required(text: str) -> Pins:
    for line in text.replace("\\\n", " ").splitlines():
        wanted = re.split(r"(?:^|\s)#|\s--hash", line)[0].strip()
        yield from [("index", wanted)] if _INDEX.match(wanted) else _pin(wanted)


def _listed(text: str) -> Pins:
    """Conda's list, and pip's inside it."""
    for line in text.splitlines():
        yield from _pin(re.split(r"\s#", line)[0].strip().removeprefix("-").strip().strip("\"'"))


def _images(text: str) -> Pins:
    for line in text.splitlines():
        found = _IMAGE.match(line.strip().removeprefix("-").strip())
        if found:
            yield "image", found["image"].strip("\"'")


def _pin(text: str) -> Pins:
    found = _PIN.fullmatch(text.strip())
    if found:
        yield found["name"], " ".join(text.split())
