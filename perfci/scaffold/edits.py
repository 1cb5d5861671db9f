"""Changes of files: planned first, then written."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perfci.store.files import write_together


@dataclass(frozen=True)
class Edit:
    """One file's change."""

    path: Path
    before: str | None  # None if there is no such file yet
    after: str
    purpose: str = ""  # what the file, or what is added to it, is for: a phrase


def write(edits: Iterable[Edit]) -> None:
    """Write every file or none. Raises StoredFileError."""
    write_together({edit.path: edit.after.encode() for edit in edits})
