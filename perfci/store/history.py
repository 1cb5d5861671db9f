"""Histories in `baselines/<device key>/<op>.history.jsonl`: one JSON object a line, one accepted run a line.

Branches append to these files, git merges them, and machines die beside them. So reading gives every line that it can
read, in the file's order, and says what is wrong with the rest; writing never loses a line that it cannot read, and
refuses where it could.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from perfci.core import locks
from perfci.core.errors import StoredFileError
from perfci.core.model import FORMAT, Epoch, Fact, HistoryAccuracy, HistoryCase, HistoryRun, HistoryStored, Reason
from perfci.core.wording import say
from perfci.store import layout
from perfci.store.files import uncollected, write_atomically

Case = TypeVar("Case", HistoryCase, HistoryAccuracy, HistoryStored)

ENDING = ".history.jsonl"
"""Of a history's file; a torn line set aside lies in one whose name goes on after it."""

KEPT = 100
"""Runs of an op on a device that its history holds; older ones are left out when one more is written."""

WAIT_S = 60.0
"""How long a writer waits for another one, which needs less than a second."""

STOPPING = frozenset({"history_damaged", "history_too_new", "history_conflicted", "history_other_device"})
"""Problems with which nothing is written: what stands there is to be settled by a person first."""

_STEP = 1 << 16
"""Bytes that are read at once from a file's end."""

_CONFLICT = re.compile(rb"(<<<<<<<|=======|>>>>>>>|\|\|\|\|\|\|\|)( .*)?\r?")
"""What git writes into a file of which two branches changed one place."""


@dataclass(frozen=True)
class History:
    """What is kept of an op's accepted runs on one device model."""

    op: str
    device: str
    """device key"""
    runs: tuple[HistoryRun, ...] = ()
    """in the file's order, the oldest first; a run once; cases and files renamed since under the names of now"""
    problems: tuple[Reason, ...] = ()
    """what could not be read or looks wrong, each with file and line"""


@dataclass(frozen=True)
class Appended:
    """What became of a line."""

    path: Path
    written: bool
    """false where the history has all of it already"""
    said: tuple[Reason, ...] = ()
    """what was repaired on the way"""


@dataclass(frozen=True)
class _Head:
    """The part of every line that tells whether this perfci can read the rest."""

    format: int = 0


@dataclass
class _File:
    """A history file, line by line."""

    path: Path
    lines: list[bytes] = field(default_factory=list)
    """whole lines without their ends, blank ones and exact doubles left out"""
    runs: list[HistoryRun | None] = field(default_factory=list)
    """what each of these lines holds; None where it cannot be read"""
    torn: bytes = b""
    """what a killed writer left of a last line"""
    problems: list[Reason] = field(default_factory=list)


def history_path(folder: Path, device: str, op: str) -> Path:
    """Where the history of an op on a device model lies. Raises StoredFileError for a name that no file may have."""
    from perfci.store import baseline_path

    return baseline_path(folder, device, op).with_name(f"{op}{ENDING}")


def read_history(
    folder: Path, device: str, op: str, *, last: int | None = None, follow: bool = True, formerly: str | None = None
) -> History:
    """An op's history on a device model (its key) in the baselines folder; an empty one where there is no file.

    What is wrong in the file is said in `problems`; the rest is read all the same. `last` reads that many of the newest
    runs. Cases that were renamed since stand under their names of now, and what an op had under an earlier name comes
    first; `follow=False` gives the file as it is. `formerly` is that name where no line says so yet. Raises
    StoredFileError where the file itself cannot be read.
    """
    return _followed(folder, device, op, last, formerly) if follow else _read(folder, device, op, last)


def read_histories(folder: Path, device: str, *, last: int | None = None) -> Mapping[str, History]:
    """Every history of a device model by op, as `read_history` gives it. Raises StoredFileError as that does."""
    return {op: read_history(folder, device, op, last=last) for op in history_ops(folder, device)}


def history_ops(folder: Path, device: str) -> list[str]:
    """The ops that have a history on a device model, by name."""
    paths = history_path(folder, device, "x").parent.glob(f"*{ENDING}")
    return sorted(op for path in paths if _is_name(op := path.name.removesuffix(ENDING)))


def history_devices(folder: Path) -> list[str]:
    """Keys of the device models that have any history."""
    known = sorted({path.parent.name for path in folder.glob(f"*/*{ENDING}")})
    return [device for device in known if _is_name(device) and history_ops(folder, device)]


def _is_name(text: str) -> bool:
    """Whether it may be an op's or a device's; a file of another name is not perfci's."""
    try:
        history_path(Path(), text, text)
    except StoredFileError:
        return False
    return True


def check_history(folder: Path, device: str, op: str) -> None:
    """Raise StoredFileError where `append_history` would refuse: nothing is to be accepted that it could not note."""
    _refuse(_parsed(history_path(folder, device, op)))


def append_history(folder: Path, device: str, op: str, line: HistoryRun) -> Appended:
    """Put a run at the end of an op's history, of which the last 100 runs stay.

    A run that is there already is joined with its line, which stays where it is. Several processes may write at once:
    each waits for its turn, and the file is replaced whole. Raises StoredFileError, the file as it was, where it holds
    what this perfci cannot read (a torn last line is put aside and said), and where it cannot be written.
    """
    path = history_path(folder, device, op)
    with held(path.parent):
        file = _parsed(path)
        _refuse(file)
        said = _put_aside(file)
        lines, changed = _with(file, line)
        if changed or said:
            write_atomically(path, b"".join(each + b"\n" for each in lines[-KEPT:]))
        return Appended(path, changed, said)


@contextmanager
def held(folder: Path, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the folder of a device's baselines, so that what is read there and written again is not lost between two.

    It is not reentrant. Where the system or file system has no such locks, nothing is held. Raises StoredFileError
    where another process holds it for longer than that.
    """
    handle = _opened(folder)
    try:
        until = time.monotonic() + wait_s
        while not _taken(handle):
            if time.monotonic() > until:
                raise StoredFileError("baselines_taken", folder=str(folder), limit_s=wait_s)
            time.sleep(0.02)
        yield
    finally:
        if handle is not None:
            os.close(handle)
        with contextlib.suppress(OSError):  # where nothing was written; one that holds anything stays
            folder.rmdir()


def joined(old: HistoryRun, new: HistoryRun) -> HistoryRun:
    """Two lines of one run: what is new counts, and what only the old one has stays."""
    cases, accuracy, stored = (
        {case.case: case for case in (*before, *now)}
        for before, now in ((old.cases, new.cases), (old.accuracy, new.accuracy), (old.stored, new.stored))
    )
    unsaid = dict.fromkeys((*old.inconclusive, *new.inconclusive))
    return replace(
        new,
        cases=tuple(cases.values()),
        accuracy=tuple(accuracy.values()),
        epoch=_both(old.epoch, new.epoch),
        inconclusive=tuple(case for case in unsaid if case not in cases),
        boards=new.boards or old.boards,
        stored=tuple(stored.values()),
    )


def _both(old: Epoch | None, new: Epoch | None) -> Epoch | None:
    if old is None or new is None:
        return new or old
    why = old.why if new.why in old.why else f"{old.why}; {new.why}"
    return Epoch(why, tuple(dict.fromkeys((*old.cases, *new.cases))))


# --- names of now -----------------------------------------------------------------------------------------------------


def _followed(
    folder: Path, device: str, op: str, last: int | None, formerly: str | None, seen: frozenset[str] = frozenset()
) -> History:
    found = _read(folder, device, op, last)
    before = next((run.renamed_from for run in reversed(found.runs) if run.renamed_from), formerly)
    missing = None if last is None else last - len(found.runs)
    if before and before not in seen | {op} and missing != 0:
        try:
            earlier = _followed(folder, device, before, missing, None, seen | {op})
        except StoredFileError as error:  # a name from a line that no file may have
            earlier = History(before, device, (), (error.reason,))
        known = {run.run for run in found.runs}
        runs = (*(run for run in earlier.runs if run.run not in known), *found.runs)
        found = replace(found, runs=runs, problems=(*earlier.problems, *found.problems))
    return replace(found, runs=with_names_of_now(found.runs))


def with_names_of_now(runs: Sequence[HistoryRun], renamed: Mapping[str, str] | None = None) -> tuple[HistoryRun, ...]:
    """Runs, oldest first, with each case under the name that it has by the end.

    renamed: id now -> id before, where a later run than all of these says so.
    """
    now = {old: new for new, old in (renamed or {}).items()}
    found = []
    for run in reversed(runs):
        found.append(_named(run, now) if now else run)
        # What an even later run renamed again has its last name.
        now |= {old: now.get(new, new) for new, old in run.renamed.items()}
    return tuple(reversed(found))


def _named(run: HistoryRun, now: Mapping[str, str]) -> HistoryRun:
    return replace(
        run,
        cases=tuple(_renamed(run.cases, now)),
        accuracy=tuple(_renamed(run.accuracy, now)),
        stored=tuple(_renamed(run.stored, now)),
        epoch=replace(run.epoch, cases=tuple(now.get(case, case) for case in run.epoch.cases)) if run.epoch else None,
        inconclusive=tuple(now.get(case, case) for case in run.inconclusive),
    )


def _renamed(cases: Sequence[Case], now: Mapping[str, str]) -> Iterator[Case]:
    """A case that had the new name beside the old one was another one, and has no name any more."""
    taken = {now[case.case] for case in cases if case.case in now}
    for case in cases:
        if case.case in now:
            yield replace(case, case=now[case.case])
        elif case.case not in taken:
            yield case


# --- reading ----------------------------------------------------------------------------------------------------------


def _read(folder: Path, device: str, op: str, last: int | None = None) -> History:
    path = history_path(folder, device, op)
    with uncollected():
        file = _parsed(path) if last is None else _newest(path, last)
    runs: dict[str, HistoryRun] = {}
    for run in filter(None, file.runs):
        runs.setdefault(run.run, run)
    return History(op, device, tuple(runs.values())[-(last or len(runs)) :], (*file.problems, *_clocks(path, runs)))


def _newest(path: Path, last: int) -> _File:
    """The file's last lines; the whole of it where anything is wrong in them, since its place is to be told."""
    found = _parsed(path, _tail(path, last))
    return _parsed(path) if found.problems else found


def _tail(path: Path, last: int) -> bytes:
    """The last lines of a file as they are, without reading those before them."""
    try:
        with path.open("rb") as file:
            at, data = file.seek(0, os.SEEK_END), b""
            while at and data.count(b"\n") <= last + 1:
                step = min(at, max(_STEP, len(data)))
                at -= step
                file.seek(at)
                data = file.read(step) + data
    except OSError:
        return _bytes(path)
    _, *lines = data.rsplit(b"\n", last + 1)
    return b"\n".join(lines) if len(lines) > last else data


def _parsed(path: Path, data: bytes | None = None) -> _File:
    """A history line by line; `data` is what it holds, else it is read."""
    file = _File(path)
    pieces = (_bytes(path) if data is None else data).split(b"\n")
    numbers: dict[bytes, int] = {}
    for number, text in enumerate(pieces[:-1], 1):
        if text.strip() and text not in numbers:
            numbers[text] = number
            file.lines.append(text)
            file.runs.append(_line(file, number, text))
    _last(file, pieces[-1], len(pieces))
    _doubles(file, numbers)
    return file


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoredFileError("file_unreadable", path=str(path), why=error.strerror or str(error)) from error


def _last(file: _File, text: bytes, number: int) -> None:
    """What stands behind the last line's end: nothing, a line whose end alone is missing, or a torn one."""
    if not text.strip() or text in file.lines:
        return
    before = len(file.problems)
    run = _line(file, number, text)
    if run is None and file.problems[before:] and file.problems[before].kind == "history_damaged":
        file.torn = text
        file.problems[before:] = [Reason("history_torn", {"path": str(file.path), "line": number})]
        return
    file.lines.append(text)
    file.runs.append(run)


def _line(file: _File, number: int, text: bytes) -> HistoryRun | None:
    place: dict[str, Fact] = {"path": str(file.path), "line": number}
    if _CONFLICT.fullmatch(text):
        if all(problem.kind != "history_conflicted" for problem in file.problems):
            file.problems.append(Reason("history_conflicted", place))
        return None
    found = _decoded(text)
    if isinstance(found, str):
        problem = Reason("history_damaged", {**place, "why": found})
    elif found.format > FORMAT:
        problem = Reason("history_too_new", {**place, "found": found.format, "supported": FORMAT})
    elif isinstance(found, _Head):
        problem = Reason("history_damaged", {**place, "why": say("no format number")})
    elif found.environment.device.key != file.path.parent.name:
        problem = Reason("history_other_device", {**place, "device": found.environment.device.key, "run": found.run})
    else:
        return found
    file.problems.append(problem)
    return None


def _decoded(text: bytes) -> HistoryRun | _Head | str:
    """What a line holds; of a later format its head alone; else what is wrong with it."""
    try:
        return _LINES.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        wrong = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        head = msgspec.json.decode(text, type=_Head)
        return head if head.format > FORMAT else wrong
    return wrong


_LINES = msgspec.json.Decoder(HistoryRun)


def _doubles(file: _File, numbers: Mapping[bytes, int]) -> None:
    """Lines that say otherwise what an earlier one said of the same run."""
    first: dict[str, int] = {}
    for text, run in zip(file.lines, file.runs, strict=True):
        if run is None:
            continue
        number = numbers.get(text, len(numbers) + 1)
        if run.run in first:
            facts: dict[str, Fact] = {"line": number, "run": run.run, "first": first[run.run]}
            file.problems.append(Reason("history_double", {"path": str(file.path), **facts}))
        first.setdefault(run.run, number)


def _clocks(path: Path, runs: Mapping[str, HistoryRun]) -> Iterator[Reason]:
    """The first run that is dated before the one above it, and how many are."""
    order = list(runs.values())
    back = [(before, run) for before, run in itertools.pairwise(order) if run.created < before.created]
    if back:
        before, run = back[0]
        facts: dict[str, Fact] = {"run": run.run, "created": run.created, "before": before.created, "count": len(back)}
        yield Reason("history_clock", {"path": str(path), **facts})


# --- writing ----------------------------------------------------------------------------------------------------------


def _refuse(file: _File) -> None:
    for problem in file.problems:
        if problem.kind in STOPPING:
            raise StoredFileError(problem.kind, **problem.facts)


def _with(file: _File, line: HistoryRun) -> tuple[list[bytes], bool]:
    """The file's lines with one more, or with the one of the same run joined with it, and whether that differs."""
    at = next((at for at, run in enumerate(file.runs) if run is not None and run.run == line.run), None)
    old = None if at is None else file.runs[at]
    text = _text(joined(old, line) if old else line, file.path)
    if at is None:
        return [*file.lines, text], True
    return [*file.lines[:at], text, *file.lines[at + 1 :]], text != file.lines[at]


def _text(line: HistoryRun, path: Path) -> bytes:
    found = layout.line(line).encode().rstrip(b"\n")
    try:
        _LINES.decode(found)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        raise StoredFileError("value_unstorable", path=str(path), found=what, place=place.strip("`") or "$") from error
    return found


def _put_aside(file: _File) -> tuple[Reason, ...]:
    """Keep a torn last line beside the history, where nothing reads it, and say so."""
    if not file.torn:
        return ()
    aside = file.path.with_name(f"{file.path.name}.torn")
    write_atomically(aside, _bytes(aside) + file.torn + b"\n")
    return (Reason("history_repaired", {"path": str(file.path), "aside": str(aside)}),)


def _opened(folder: Path) -> int | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder, os.O_RDONLY)  # the folder itself, so that no file of a lock lies among the baselines
    except OSError:  # a system whose folders cannot be opened; one that cannot be made is told by who writes there
        return None


def _taken(handle: int | None) -> bool:
    if handle is None:
        return True
    try:
        return locks.take(handle)
    except (ImportError, OSError):  # a system or a file system without such locks
        return True
