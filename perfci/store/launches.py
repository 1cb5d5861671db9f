"""Raw launch times in `launches.jsonl.gz`: one JSON object a line, appended block by block, read only for plots."""

import contextlib
import gzip
import os
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from perfci.core.errors import StoredFileError
from perfci.core.files import append_regular, open_regular
from perfci.core.model import FORMAT, Reason
from perfci.store.files import FormatHead, write_atomically

LAUNCHES_FILE = "launches.jsonl.gz"  # beside run.json in the reports folder
DECIMALS = 3  # Launch times are kept to the nanosecond. Timers tick at 32 ns.

_CHUNK, _READ = 1 << 20, 1 << 16  # bytes that are unpacked, and read, at once
_GZIP = 16 + zlib.MAX_WBITS  # what zlib calls gzip's header and check sum
_LONGEST = 1 << 25  # bytes of one line: more than a million launches
MOST = 1 << 28  # bytes that are unpacked of one file: some ten times what 500 cases with all looks of a duel come to
_MOST_TIMES = 1 << 24  # and times, each of which takes 32 bytes of memory. They may have as few as 3 bytes in the file


@dataclass(frozen=True)
class LaunchRow:
    """One arm's launches in one block, microseconds, in time order, untrimmed."""

    op: str
    case: str
    process: int
    block: int
    arm: str
    us: tuple[float, ...]
    format: int = FORMAT  # 1 if a line has none


@dataclass(frozen=True)
class Launches:
    """All that could be read of a launches file."""

    rows: tuple[LaunchRow, ...] = ()
    note: Reason | None = None  # what could not be read: the tail that a killed run left torn


def append_launches(
    folder: Path, op: str, case: str, process: int, block: int, arms: Mapping[str, Sequence[float]]
) -> None:
    """Append one block's launches by arm. Raises StoredFileError if they can't be written, the file as it was."""
    rounded = {arm: tuple(round(float(launch_us), DECIMALS) for launch_us in us) for arm, us in arms.items()}
    data = pack_rows(LaunchRow(op, case, process, block, arm, us) for arm, us in rounded.items())
    path = folder / LAUNCHES_FILE
    size = path.stat().st_size if path.exists() else 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with append_regular(path) as file:
            file.write(data)
    except OSError as error:  # a full disk: drop the half member, so that what was there can still be read
        with contextlib.suppress(OSError):
            os.truncate(path, size)
        raise StoredFileError("file_unwritable", path=str(path), why=error.strerror or str(error)) from error


def clear_launches(folder: Path) -> None:
    """Remove what an earlier run left, so that a new one starts its file. Raises StoredFileError."""
    path = folder / LAUNCHES_FILE
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoredFileError("file_unwritable", path=str(path), why=error.strerror or str(error)) from error


def drop_launches(folder: Path, op: str, process: int, cases: Container[str] | None = None) -> None:
    """Remove what one process of an op left behind, of these cases or of all. Raises StoredFileError."""
    rows = read_launches(folder).rows
    kept = [row for row in rows if (row.op, row.process) != (op, process) or not (cases is None or row.case in cases)]
    write_atomically(folder / LAUNCHES_FILE, pack_rows(kept))


def read_launches(folder: Path) -> Launches:
    """Every whole row. A torn tail or line becomes a note. Raises StoredFileError if a later perfci wrote the file."""
    path = folder / LAUNCHES_FILE
    rows: list[LaunchRow] = []
    try:
        for line in _lines(path):
            version = _HEAD.decode(line).format or 1
            if version > FORMAT:
                raise StoredFileError("file_too_new", path=str(path), found=version, supported=FORMAT)
            rows.append(_ROW.decode(line))
    except FileNotFoundError:
        return Launches()
    except (OSError, EOFError, zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Launches(tuple(rows), Reason("launches_torn", {"path": str(path), "rows": len(rows)}))
    return Launches(tuple(rows))


_HEAD, _ROW = msgspec.json.Decoder(FormatHead), msgspec.json.Decoder(LaunchRow)


def pack_rows(rows: Iterable[LaunchRow]) -> bytes:
    """Rows as a member of such a file, of which it may have several."""
    return gzip.compress(b"".join(msgspec.json.encode(row) + b"\n" for row in rows), mtime=0)


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines, as far as the compressed data goes: what stands before a tear is given first."""
    rest, size, times = b"", 0, 0
    with open_regular(path) as packed:
        for chunk in _unpack(packed):
            size, times = size + len(chunk), times + chunk.count(b",")
            if size > MOST or times > _MOST_TIMES:
                raise EOFError("a file without end")
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
            if len(rest) > _LONGEST:
                raise EOFError("a line without end")
    if rest:
        yield rest


def _unpack(packed: IO[bytes]) -> Iterator[bytes]:
    """What a gzip file holds. Each block of a run is a separate member, for which gzip's reader is slow."""
    data, member, whole = b"", zlib.decompressobj(_GZIP), True
    while data or (data := packed.read(_READ)):
        yield member.decompress(data, _CHUNK)
        data, whole = member.unconsumed_tail, member.eof
        if whole:
            data, member = member.unused_data, zlib.decompressobj(_GZIP)
    if not whole:
        raise EOFError("a file without its end")
