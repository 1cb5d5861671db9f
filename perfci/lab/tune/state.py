"""A search as it is kept on disk: a line of what it is about, then one line for each candidate that was tried."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from perfci.core.codec import decode, encode
from perfci.core.errors import StoredFileError
from perfci.core.model import Fact
from perfci.core.wording import say
from perfci.lab.tune.records import Tried

T = TypeVar("T")

FORMAT = 1
LONGEST = 1 << 28
"""Bytes of a file that is read."""


@dataclass(frozen=True)
class Head:
    """What a search is about: another question starts anew."""

    asked: Mapping[str, Fact]
    seed: int
    format: int = FORMAT


@dataclass
class State:
    """A search's file."""

    path: Path
    head: Head
    tried: list[Tried] = field(default_factory=list)
    resumed: bool = False
    anew: bool = False
    """the file held another search, which this one takes the place of"""

    def add(self, tried: Tried) -> None:
        """Keep one more; it is on disk when this returns."""
        self.tried.append(tried)
        with self.path.open("ab") as file:
            file.write(encode(tried) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def opened(path: Path, asked: Mapping[str, Fact], seed: int | None, fresh_seed: int) -> State:
    """The search in a file where it asks the same, else a new one in its place.

    A line that an interrupted write cut off is dropped. Raises StoredFileError for a file damaged otherwise: it is
    never overwritten.
    """
    found = _read(path) if path.exists() else None
    if found and found.head.asked == asked and seed in {None, found.head.seed}:
        found.resumed = bool(found.tried)
        _write(found)
        return found
    state = State(path, Head(asked, fresh_seed if seed is None else seed), anew=found is not None)
    _write(state)
    return state


def _write(state: State) -> None:
    state.path.parent.mkdir(parents=True, exist_ok=True)
    fresh = state.path.with_name(f"{state.path.name}.{os.getpid()}")
    fresh.write_bytes(b"".join(encode(each) + b"\n" for each in (state.head, *state.tried)))
    fresh.replace(state.path)


def _read(path: Path) -> State:
    data = path.read_bytes()
    if len(data) > LONGEST:
        raise StoredFileError("tune_state_damaged", path=str(path), line=1, why=say("it is too large"))
    lines = list(_lines(data))
    if not lines:
        raise StoredFileError("tune_state_damaged", path=str(path), line=1, why=say("it is empty"))
    records: list[Tried] = []
    head = _decoded(path, 1, lines[0], Head)
    if head.format != FORMAT:
        raise StoredFileError(
            "tune_state_damaged",
            path=str(path),
            line=1,
            why=say("format {found} is not {format}", found=head.format, format=FORMAT),
        )
    for number, line in enumerate(lines[1:], start=2):
        records.append(_decoded(path, number, line, Tried))
    return State(path, head, records)


def _lines(data: bytes) -> Iterator[bytes]:
    """Whole lines: what stands behind the last newline was being written when the search ended."""
    whole, newline, _ = data.rpartition(b"\n")
    return (line for line in (whole.split(b"\n") if newline else []))


def _decoded(path: Path, number: int, line: bytes, kind: type[T]) -> T:
    try:
        return decode(line, kind)
    except ValueError as error:
        raise StoredFileError("tune_state_damaged", path=str(path), line=number, why=str(error)) from error
