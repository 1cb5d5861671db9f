"""The versions of torch, Triton and the device's libraries that a project asks for, and whether they changed."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
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


def pins_changed(root: Path, base_root: Path) -> tuple[str, ...]:
    """Returns each pin of the toolchain that differs: `requirements/cpu.txt: triton==3.7.1 -> triton==3.8.0`."""
    found = []
    roots = [(folder, path) for folder in (root, base_root) for pattern in PATTERNS for path in folder.glob(pattern)]
    for file in sorted({path.relative_to(folder).as_posix() for folder, path in roots}):
        before, after = _read(base_root / file), _read(root / file)
        for name in sorted(before.keys() | after.keys()):
            gone, come = before[name] - after[name], after[name] - before[name]
            pairs = itertools.zip_longest(sorted(gone.elements()), sorted(come.elements()), fillvalue="nothing")
            found += [f"{file}: {old} -> {new}" for old, new in pairs]
    return tuple(found)


def _read(path: Path) -> defaultdict[str, Counter[str]]:
    """Counts the ways in which each package is pinned. Nothing for a file that is missing or damaged."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    try:
        for name, text in _pins(path.name, path.read_text(encoding="utf-8", errors="replace")):
            found[re.sub(r"[-_.]+", "-", name.lower())][text] += 1
    except (OSError, tomllib.TOMLDecodeError, RecursionError):
        found.clear()
    return found


def _pins(file: str, text: str) -> Iterator[tuple[str, str]]:
    """Yields each package that a file pins, and how the pin is written."""
    if file.endswith(".lock"):
        packages = tomllib.loads(text).get("package")
        for package in packages if isinstance(packages, list) else ():
            if isinstance(package, dict):
                yield from _pin(f"{package.get('name')}=={package.get('version')}")
    elif file.endswith(".toml"):
        project = tomllib.loads(text)
        for keys in DEPENDENCIES:
            table: Any = project
            for key in keys:
                table = table.get(key, {}) if isinstance(table, dict) else {}
            yield from _requirements(table)
    elif file == ".gitlab-ci.yml":
        for line in text.splitlines():
            if image := _IMAGE.match(line.strip().removeprefix("-").strip()):
                yield "image", image["image"].strip("\"'")
    else:  # pip's list, or conda's with pip's inside it
        for line in text.replace("\\\n", " ").splitlines():
            wanted = re.split(r"(?:^|\s)#|\s--hash", line)[0].strip()
            listed = wanted if file.endswith(".txt") else wanted.removeprefix("-").strip().strip("\"'")
            yield from [("index", listed)] if _INDEX.match(listed) else _pin(listed)


def _requirements(value: Any) -> Iterator[tuple[str, str]]:
    """Requirements in lists, and packages that are keys, such as poetry's: torch = "^2.6"."""
    if isinstance(value, str):
        yield from _pin(value)
    elif isinstance(value, list):
        yield from (pin for each in value for pin in _requirements(each))
    elif isinstance(value, dict):
        for key, inner in value.items():
            if found := _PIN.fullmatch(key):
                yield found["name"], f"{key} = {json.dumps(inner, default=str)}"
            else:
                yield from _requirements(inner)


def _pin(text: str) -> Iterator[tuple[str, str]]:
    if found := _PIN.fullmatch(text.strip()):
        yield found["name"], " ".join(text.split())
