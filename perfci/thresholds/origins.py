"""Where each value that people wrote stands: file and line, or built in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perfci.ops.spec import matches
from perfci.thresholds.place import Place, read

BUILT_IN = "built in"


@dataclass(frozen=True)
class Origin:
    """Where a value was written."""

    file: str | None = None
    """relative to the project's root. None: built in"""
    line: int = 0
    case: str | None = None
    """pattern under which it stands"""

    def __str__(self) -> str:
        """As people look it up: thresholds/softmax.yaml:12."""
        return BUILT_IN if self.file is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Written:
    """The keys of one file, with their lines."""

    file: str
    keys: tuple[tuple[str, int], ...] = ()
    cases: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()
    """(pattern, keys)"""


def origin(folder: Path, op: str, case: str | None, key: str, root: Path | None = None) -> Origin:
    """Where the value of a key for a case was written last, of all that people wrote. Raises StoredFileError."""
    return of(written(folder, op, root), case, key)


def of(files: tuple[Written, ...], case: str | None, key: str) -> Origin:
    """The same of files that were read. Case None: of the op as a whole."""
    found = Origin()
    for file in files:
        for name, line in file.keys:
            if name == key:
                found = Origin(file.file, line)
        for pattern, keys in file.cases if case is not None else ():
            for name, line in keys:
                if name == key and case is not None and matches(case, pattern):
                    found = Origin(file.file, line, pattern)
    return found


def written(folder: Path, op: str, root: Path | None = None) -> tuple[Written, ...]:
    """Keys and lines of default.yaml and of an op's file, as far as they are there."""
    found = []
    for path in (folder / "default.yaml", folder / f"{op}.yaml"):
        place = read(path) if path.is_file() else None
        if place is not None:
            shown = path.relative_to(root).as_posix() if root and path.is_relative_to(root) else str(path)
            entries = list(place.items())
            cases = [case for entry in entries if entry.key == "cases" for case in entry.items()]
            found.append(Written(shown, _lines(entries), tuple((case.key, _lines(case.items())) for case in cases)))
    return tuple(found)


def _lines(entries: Iterable[Place]) -> tuple[tuple[str, int], ...]:
    return tuple((entry.key, entry.line) for entry in entries)
