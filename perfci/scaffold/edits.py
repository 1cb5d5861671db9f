"""Changes of files: planned first, then written."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import StoredFileError


@dataclass(frozen=True)
class Edit:
    """One file's change."""

    path: Path
    before: str | None  # None if there is no such file yet
    after: str
    purpose: str = ""  # what the file, or what is added to it, is for: a phrase


def write(edits: Iterable[Edit]) -> None:
    """Write every file. If one cannot be written the others get their old text back. Raises StoredFileError."""
    with contextlib.ExitStack() as undo:
        for edit in edits:
            try:
                edit.path.parent.mkdir(parents=True, exist_ok=True)
                with edit.path.open("xb" if edit.before is None else "wb") as file:
                    if edit.before is None:
                        undo.callback(edit.path.unlink)
                    else:
                        undo.callback(edit.path.write_bytes, edit.before.encode())
                    file.write(edit.after.encode())
            except OSError as error:
                why = error.strerror or str(error)
                raise StoredFileError("file_unwritable", path=str(edit.path), why=why) from error
        undo.pop_all()
