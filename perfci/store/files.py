"""Decoding with the place of every fault, encoding in perfci's own layout, and writing whole files only."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perfci.core.errors import StoredFileError, UsageError
from perfci.core.model import FORMAT
from perfci.store.layout import text

Record = TypeVar("Record")

_CONFLICT = re.compile(rb"^(<<<<<<<|=======|>>>>>>>)( |$)", re.MULTILINE)
"""What git writes into a file of which two branches changed one place."""


_DIGITS = re.compile(rb"\d{309}")


@dataclass(frozen=True)
class _Head:
    """The part of every stored file that tells whether this perfci can read the rest."""

    format: int


def decode(path: Path, kind: type[Record]) -> Record:
    """The record in a file. Raises StoredFileError naming the file and the line and column, or the JSON path."""
    data = _bytes(path)
    _check_format(path, data)
    with uncollected():
        record = _parse(path, data, kind)
        if _DIGITS.search(data) and (place := _uncountable(msgspec.json.decode(data))):
            raise StoredFileError(
                "file_unexpected", path=str(path), found="Integer beyond float64's range", place=place
            )
    return record


def encode(record: object, path: Path) -> bytes:
    """The record as perfci lays it out, checked to read back. Raises StoredFileError if a needed number is missing.

    `path` is where it will be written, for the error's sake.
    """
    with uncollected():
        data = text(record).encode()
        try:
            msgspec.json.decode(data, type=type(record))
        except msgspec.ValidationError as error:
            raise StoredFileError("value_unstorable", path=str(path), **place_in_json(error)) from error
    return data


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Records form no circles, and looking for some among millions again and again takes longer than making them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def refuse_to_overwrite_unreadable(path: Path) -> None:
    """Raise StoredFileError if a file stands at `path` that is no file of this perfci."""
    if path.exists():
        _check_format(path, _bytes(path))


def refuse_missing_folder(path: Path) -> None:
    """Raise UsageError for a file in a folder that is missing; asked before the work whose result it is to hold."""
    if not path.parent.is_dir():
        raise UsageError("out_folder_missing", path=str(path), folder=str(path.parent))


def write_atomically(path: Path, data: bytes) -> Path:
    """Write the file beside its place, then move it there, so that a crash or a full disk leaves the old one whole.

    Raises StoredFileError if that fails.
    """
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


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise StoredFileError("stored_file_missing", path=str(path)) from error
    except OSError as error:
        raise StoredFileError("file_unreadable", path=str(path), why=error.strerror or str(error)) from error


def _check_format(path: Path, data: bytes) -> None:
    try:
        found = _parse(path, data, _Head).format
    except StoredFileError as error:
        raise (_foreign(path) if error.reason.kind == "file_unexpected" else error) from error
    if found > FORMAT:
        raise StoredFileError("file_too_new", path=str(path), found=found, supported=FORMAT)
    if found < 1:
        raise _foreign(path)


def _foreign(path: Path) -> StoredFileError:
    return StoredFileError("file_foreign", path=str(path))


def _parse(path: Path, data: bytes, kind: type[Record]) -> Record:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:  # JSON, but not of this shape
        raise StoredFileError("file_unexpected", path=str(path), **place_in_json(error)) from error
    except msgspec.DecodeError as error:  # no JSON
        if conflict := _CONFLICT.search(data):
            line, _ = _line_and_column(data, conflict.start())
            raise StoredFileError("file_conflicted", path=str(path), line=line) from error
        line, column = _place_in_text(data, str(error))
        raise StoredFileError("file_damaged", path=str(path), line=line, column=column) from error
    except UnicodeDecodeError as error:
        line, column = _line_and_column(data, _first_undecodable(data))
        raise StoredFileError("file_damaged", path=str(path), line=line, column=column) from error
    except RecursionError as error:  # brackets without end
        raise StoredFileError("file_unexpected", path=str(path), found="Nested too deeply", place="$") from error


def _uncountable(value: Any, place: str = "$") -> str | None:
    """Where an integer stands that no float64 holds, so that whatever divides it fails."""
    if isinstance(value, dict):
        return next(filter(None, (_uncountable(item, f"{place}.{key}") for key, item in value.items())), None)
    if isinstance(value, list):
        return next(filter(None, (_uncountable(item, f"{place}[{at}]") for at, item in enumerate(value))), None)
    return place if isinstance(value, int) and abs(value) > sys.float_info.max else None


def place_in_json(error: msgspec.ValidationError) -> dict[str, str]:
    """What msgspec found, and where: "Expected `int`, got `str` - at `$.format`"."""
    found, _, place = str(error).partition(" - at ")
    return {"found": found, "place": place.strip("`") or "$"}


def _place_in_text(data: bytes, message: str) -> tuple[int, int]:
    """Line and column of a fault; a truncated file is at fault where it ends."""
    byte = re.search(r"\(byte (\d+)\)", message)
    return _line_and_column(data, int(byte[1]) if byte else len(data))


def _first_undecodable(data: bytes) -> int:
    """Where the first byte stands that is no UTF-8; msgspec counts from the beginning of the string it is in."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(data)


def _line_and_column(data: bytes, offset: int) -> tuple[int, int]:
    before = data[:offset]
    return before.count(b"\n") + 1, offset - before.rfind(b"\n")
