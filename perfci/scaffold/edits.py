"""Changes of files: planned first, then written."""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import StoredFileError
from perfci.store.files import write_together


@dataclass(frozen=True)
class Edit:
    """One file's change."""

    path: Path
    before: str | None  # None if there is no such file yet
    after: str
    purpose: str = ""  # what the file, or what is added to it, is for: a phrase


def write(edits: Iterable[Edit]) -> None:
    """Write every file or none. Raises StoredFileError, also for a new file that is there by now."""
    planned = list(edits)
    for edit in planned:
        if edit.before is None and os.path.lexists(edit.path):
            raise StoredFileError("file_unwritable", path=str(edit.path), why=os.strerror(errno.EEXIST))
    write_together({edit.path: edit.after.encode() for edit in planned})
