"""Decoding with the place of every fault, encoding in perfci's layout, and writing whole files only."""

import contextlib
import fnmatch
import gc
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from perfci.core import locks
from perfci.core.errors import StoredFileError
from perfci.core.files import read_regular
from perfci.core.model import FORMAT
from perfci.store.layout import text

Record = TypeVar("Record")

WAIT_S = 60.0  # How long a writer of several files waits for another one. Writing takes less than a second.

UNFINISHED = ".*.perfci"
"""Pattern of the names of files that are being written: git passes over them"""

_CONFLICT = re.compile(rb"^(<<<<<<<|=======|>>>>>>>)( |$)", re.MULTILINE)  # of git's merge


@dataclass(frozen=True)
class FormatHead:
    """The part of every stored file, or line of a file, that shows whether this perfci can read the rest."""

    format: int | None = None  # 1 if a line has none


def decode(path: Path, kind: type[Record]) -> Record:
    """Returns the record in a file. Raises StoredFileError with the line and column, or the JSON path, of a fault."""
    data = read_whole(path)
    _check_format(path, data)
    with uncollected():
        return _parse(path, data, kind)


def encode(record: object, path: Path) -> bytes:
    """Returns the record as perfci lays it out, checked to read back. Raises StoredFileError if a number is missing."""
    with uncollected():
        data = text(record).encode()
        try:
            msgspec.json.decode(data, type=type(record))
        except msgspec.ValidationError as error:
            raise StoredFileError("value_unstorable", path=str(path), **place_in_json(error)) from error
    return data


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Records form no cycles, and looking for some among millions again and again takes longer than making them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def refuse_to_overwrite_unreadable(path: Path) -> None:
    """Raises StoredFileError if the file at `path` is not one that this perfci can read."""
    if os.path.lexists(path):
        _check_format(path, read_whole(path))


def write_atomically(path: Path, data: bytes) -> Path:
    """Writes the file beside its place, then moves it there: the old one stays whole. Raises StoredFileError."""
    write_together({path: data})
    return path


def copy_files(names: Iterable[str], source: Path, target: Path) -> None:
    """Copies those of the named files that a folder has into another. Raises StoredFileError for a link or a pipe."""
    write_together({target / name: read_whole(source / name) for name in names if os.path.lexists(source / name)})


def write_together(files: Mapping[Path, bytes]) -> None:
    """Writes all files or none: each beside its place, and once all are whole they are moved there.

    If one cannot be moved, those that were get their old content back. Raises StoredFileError, which names the file.
    """
    with contextlib.ExitStack() as stack:
        beside = {path: stack.enter_context(_writing(path, data)) for path, data in files.items()}
        # Anyone who ends this process from here on leaves some files new and others old: for as long as renames take.
        with contextlib.ExitStack() as undo:
            for path, whole in beside.items():
                with _naming(path):
                    before = read_regular(path) if path.exists() and len(files) > 1 else None
                    whole.replace(path)
                undo.callback(_put_back, path, before)
            undo.pop_all()


@contextlib.contextmanager
def _writing(path: Path, data: bytes) -> Iterator[Path]:
    """Makes a file with this content beside a path. It goes with the context, and with the next one if it is killed."""
    handle, beside = None, path
    try:
        with _naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_unfinished(path.parent)
            while handle is None:
                beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.perfci")
                handle = _open_locked(beside)
            with os.fdopen(handle, "wb", closefd=os.name == "nt") as file:  # where no open file can be moved
                file.write(data)
                file.flush()
                os.fsync(handle)
        yield beside
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                os.close(handle)


def _open_locked(path: Path) -> int | None:
    """Makes a file, and locks it as long as its process lives. None if another process takes it for an old one."""
    flags = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_BINARY"))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, 0o666)  # else it might be a link to elsewhere
    if locks.take_if_possible(handle) and path.exists():
        return handle
    os.close(handle)
    return None


def _remove_unfinished(folder: Path) -> None:
    """Removes what killed processes left in a folder. Where there are no locks it stays."""
    for left in [file for file in os.scandir(folder) if fnmatch.fnmatch(file.name, UNFINISHED)]:
        with contextlib.suppress(AttributeError, ImportError, OSError):
            handle = os.open(left.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if locks.take(handle):
                    Path(left.path).unlink()
            finally:
                os.close(handle)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Names the file that could not be written."""
    try:
        yield
    except OSError as error:
        raise StoredFileError("file_unwritable", path=str(path), why=error.strerror or str(error)) from error


def _put_back(path: Path, before: bytes | None) -> None:
    if before is None:
        path.unlink(missing_ok=True)
    else:
        write_atomically(path, before)


@contextlib.contextmanager
def held(folder: Path, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold a folder between reading and writing there, if the system has such locks.

    It is not reentrant. Raises StoredFileError if another process holds it for longer than `wait_s` seconds.
    """
    handle = None
    with contextlib.suppress(OSError):  # a system with folders that cannot be opened
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)  # the folder itself, so that no file of a lock lies among the baselines
    try:
        until = time.monotonic() + wait_s
        while handle is not None and not locks.take_if_possible(handle):
            if time.monotonic() > until:
                raise StoredFileError("baselines_taken", folder=str(folder), limit_s=wait_s)
            time.sleep(0.02)
        yield
    finally:
        if handle is not None:
            os.close(handle)
        with contextlib.suppress(OSError):  # if nothing was written; one that holds anything stays
            folder.rmdir()


def place_in_json(error: msgspec.ValidationError) -> dict[str, str]:
    """Returns what msgspec found, and where: "Expected `int`, got `str` - at `$.format`"."""
    fault, _, place = str(error).partition(" - at ")
    return {"found": fault, "place": place.strip("`") or "$"}


def read_whole(path: Path) -> bytes:
    """The content of a regular file. Raises StoredFileError."""
    try:
        return read_regular(path)
    except FileNotFoundError as error:
        raise StoredFileError("stored_file_missing", path=str(path)) from error
    except OSError as error:
        raise StoredFileError("file_unreadable", path=str(path), why=error.strerror or str(error)) from error


def _check_format(path: Path, data: bytes) -> None:
    foreign = StoredFileError("file_foreign", path=str(path))
    try:
        version = _parse(path, data, FormatHead).format
    except StoredFileError as error:
        raise (foreign if error.reason.kind == "file_unexpected" else error) from error
    if version is None or version < 1:
        raise foreign
    if version > FORMAT:
        raise StoredFileError("file_too_new", path=str(path), found=version, supported=FORMAT)


def _parse(path: Path, data: bytes, kind: type[Record]) -> Record:
    try:
        data.decode()  # msgspec counts the bytes of a string, not of the file
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:  # JSON, but not of this shape
        raise StoredFileError("file_unexpected", path=str(path), **place_in_json(error)) from error
    except RecursionError as error:
        raise StoredFileError("file_unexpected", path=str(path), found="Nested too deeply", place="$") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # no JSON, or torn: at fault where it ends
        byte = re.search(r"\(byte (\d+)\)", str(error))
        offset = error.start if isinstance(error, UnicodeDecodeError) else int(byte[1]) if byte else len(data)
        conflict = _CONFLICT.search(data)
        before = data[: conflict.start() if conflict else offset]
        line = before.count(b"\n") + 1
        if conflict:
            raise StoredFileError("file_conflicted", path=str(path), line=line) from error
        column = len(before) - before.rfind(b"\n")
        raise StoredFileError("file_damaged", path=str(path), line=line, column=column) from error
