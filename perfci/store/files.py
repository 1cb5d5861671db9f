"""Decoding with the place of every fault, encoding in perfci's own layout, and writing whole files only."""

import contextlib
import gc
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from perfci.core.errors import StoredFileError
from perfci.core.files import read_regular
from perfci.core.model import FORMAT
from perfci.store.layout import text

Record = TypeVar("Record")

_CONFLICT = re.compile(rb"^(<<<<<<<|=======|>>>>>>>)( |$)", re.MULTILINE)  # of git's merge


@dataclass(frozen=True)
class FormatHead:
    """The part of every stored file, or line of a file, that shows whether this perfci can read the rest."""

    format: int | None = None  # 1 if a line has none


def decode(path: Path, kind: type[Record]) -> Record:
    """Returns the record in a file. Raises StoredFileError with the line and column, or the JSON path, of a fault."""
    data = _read(path)
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
        _check_format(path, _read(path))


def write_atomically(path: Path, data: bytes) -> Path:
    """Writes the file beside its place, then moves it there: the old one stays whole. Raises StoredFileError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)
        with beside.open("xb") as file:  # made anew: what lay there may have been a link to elsewhere
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise StoredFileError("file_unwritable", path=str(path), why=error.strerror or str(error)) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
    return path


def place_in_json(error: msgspec.ValidationError) -> dict[str, str]:
    """Returns what msgspec found, and where: "Expected `int`, got `str` - at `$.format`"."""
    found, _, place = str(error).partition(" - at ")
    return {"found": found, "place": place.strip("`") or "$"}


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except FileNotFoundError as error:
        raise StoredFileError("stored_file_missing", path=str(path)) from error
    except OSError as error:
        raise StoredFileError("file_unreadable", path=str(path), why=error.strerror or str(error)) from error


def _check_format(path: Path, data: bytes) -> None:
    foreign = StoredFileError("file_foreign", path=str(path))
    try:
        found = _parse(path, data, FormatHead).format
    except StoredFileError as error:
        raise (foreign if error.reason.kind == "file_unexpected" else error) from error
    if found is None or found < 1:
        raise foreign
    if found > FORMAT:
        raise StoredFileError("file_too_new", path=str(path), found=found, supported=FORMAT)


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
