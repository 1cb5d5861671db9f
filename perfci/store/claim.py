"""One run at a time writes a folder of reports, and what would stop it from writing is found before it measures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfci.core import locks
from perfci.core.errors import StoredFileError
from perfci.store.files import refuse_to_overwrite_unreadable

CLAIM_FILE = ".lock"
"""In the reports folder. It stays there, and counts only while a process holds it."""


@contextmanager
def claimed(folder: Path, stored: str) -> Iterator[None]:
    """Hold a folder for a run that will write the file `stored` and others there. It is made where it is missing.

    Raises StoredFileError if the folder cannot be written, if another process holds it, and where a file that
    this perfci cannot read stands in the place of `stored`.
    """
    handle = _opened(folder)
    try:
        if not _take(handle):
            raise StoredFileError("reports_taken", folder=str(folder), holder=locks.holder(handle))
        _sign(handle, folder)
        refuse_to_overwrite_unreadable(folder / stored)
        yield
    finally:
        os.close(handle)


def _opened(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A link in a checkout must not have another file written.
        return os.open(folder / CLAIM_FILE, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _take(handle: int) -> bool:
    try:
        return locks.take(handle)
    except (ImportError, OSError):  # a system or a file system without such locks
        return True


def _sign(handle: int, folder: Path) -> None:
    """What is written is noticed to be unwritable, such as on a full disk."""
    try:
        locks.sign(handle)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> StoredFileError:
    why = "a file has that name" if folder.is_file() else error.strerror or str(error)
    return StoredFileError("reports_unwritable", folder=str(folder), why=why)
