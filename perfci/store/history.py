"""Histories in `baselines/<device key>/<op>.history.jsonl`: one JSON object a line, one accepted run a line.

Branches append to these files, git merges them, and machines die while writing. So reading returns every line that it
can read, in the file's order, and lists what is wrong with the rest. Writing never loses a line that it cannot read.
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
from perfci.store.files import place_in_json, uncollected, write_atomically

Case = TypeVar("Case", HistoryCase, HistoryAccuracy, HistoryStored)

ENDING = ".history.jsonl"
"""Of a history's file. A torn line that was set aside lies in a file with `.torn` after it."""

KEPT = 100
"""Runs of an op on a device that its history keeps. Writing one more drops older ones."""

WAIT_S = 60.0
"""How long a writer waits for another one. Writing takes less than a second."""

STOPPING = frozenset({"history_damaged", "history_too_new", "history_conflicted", "history_other_device"})
"""With one of these problems nothing is written until a person has settled it."""

_STEP = 1 << 16
"""Bytes read at once from a file's end."""

_CONFLICT = re.compile(rb"(<<<<<<<|=======|>>>>>>>|\|\|\|\|\|\|\|)( .*)?\r?")
"""The lines that git writes into a file if two branches changed the same place."""


@dataclass(frozen=True)
class History:
    """What is kept of an op's accepted runs on one device model."""

    op: str
    device: str
    """device key"""
    runs: tuple[HistoryRun, ...] = ()
    """each run once, in the file's order, oldest first. Cases that were renamed since have their present names."""
    problems: tuple[Reason, ...] = ()
    """what could not be read or looks wrong, each with file and line"""


@dataclass(frozen=True)
class Appended:
    """The outcome of appending a line."""

    path: Path
    written: bool
    """false if the history has all of it already"""
    repairs: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class _LineHead:
    """The part of every line that shows whether this perfci can read the rest."""

    format: int = 0


_LINES = msgspec.json.Decoder(HistoryRun)


@dataclass
class _HistoryFile:
    """A history file, line by line."""

    path: Path
    lines: list[bytes] = field(default_factory=list)
    """whole lines without their ends, without blank ones and exact doubles"""
    runs: list[HistoryRun | None] = field(default_factory=list)
    """the run of each of these lines. None if it cannot be read"""
    torn: bytes = b""
    """what a killed writer left of a last line"""
    problems: list[Reason] = field(default_factory=list)


def history_path(folder: Path, device: str, op: str) -> Path:
    """Returns the path of an op's history on a device model. Raises StoredFileError for a name no file may have."""
    from perfci.store import baseline_path

    return baseline_path(folder, device, op).with_name(f"{op}{ENDING}")


def read_history(
    folder: Path, device: str, op: str, *, last: int | None = None, follow: bool = True, formerly: str | None = None
) -> History:
    """Returns an op's history on a device model (its key) in the baselines folder; an empty one if there is no file.

    `problems` lists what is wrong in the file. The rest is read all the same. `last` reads that many of the newest
    runs. Renamed cases have their present names, and the runs of an op's earlier name come first; `follow=False`
    returns the file as it is. `formerly` is that earlier name, if no line holds it yet. Raises StoredFileError if the
    file itself cannot be read.
    """
    return _read_renamed(folder, device, op, last, formerly) if follow else _read(folder, device, op, last)


def history_ops(folder: Path, device: str) -> list[str]:
    """The ops that have a history on a device model, by name."""
    paths = history_path(folder, device, "x").parent.glob(f"*{ENDING}")
    return sorted(op for path in paths if _is_name(op := path.name.removesuffix(ENDING)))


def history_devices(folder: Path) -> list[str]:
    """Keys of the device models that have any history."""
    known = sorted({path.parent.name for path in folder.glob(f"*/*{ENDING}")})
    return [device for device in known if _is_name(device) and history_ops(folder, device)]


def _is_name(text: str) -> bool:
    """Returns whether an op or a device may have this name. A file of another name is not perfci's."""
    try:
        history_path(Path(), text, text)
    except StoredFileError:
        return False
    return True


def check_history(folder: Path, device: str, op: str) -> None:
    """Raises StoredFileError if `append_history` would refuse. Ask before accepting what could not be recorded."""
    _refuse(_parse(history_path(folder, device, op)))


def append_history(folder: Path, device: str, op: str, line: HistoryRun) -> Appended:
    """Appends a run to an op's history, which keeps the last 100 runs.

    If the run is there already, its line is merged with this one and keeps its place. Several processes may write at
    once: each waits for its turn, and the file is replaced as a whole. Raises StoredFileError, and leaves the file as
    it was, if it holds what this perfci cannot read or cannot be written. A torn last line is set aside and reported.
    """
    path = history_path(folder, device, op)
    with held(path.parent):
        file = _parse(path)
        _refuse(file)
        repairs: tuple[Reason, ...] = ()
        if file.torn:
            aside = path.with_name(f"{path.name}.torn")
            write_atomically(aside, _bytes(aside) + file.torn + b"\n")
            repairs = (Reason("history_repaired", {"path": str(path), "aside": str(aside)}),)

        at = next((at for at, run in enumerate(file.runs) if run is not None and run.run == line.run), None)
        old = None if at is None else file.runs[at]
        text = layout.line(merge_runs(old, line) if old else line).encode().rstrip(b"\n")
        try:
            _LINES.decode(text)
        except msgspec.ValidationError as error:
            raise StoredFileError("value_unstorable", path=str(path), **place_in_json(error)) from error
        lines = [*file.lines, text] if at is None else [*file.lines[:at], text, *file.lines[at + 1 :]]
        changed = lines != file.lines
        if changed or repairs:
            write_atomically(path, b"".join(each + b"\n" for each in lines[-KEPT:]))
        return Appended(path, changed, repairs)


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
        with contextlib.suppress(OSError):  # if nothing was written; one that holds anything stays
            folder.rmdir()


def merge_runs(old: HistoryRun, new: HistoryRun) -> HistoryRun:
    """Merges two lines of one run. The new line counts. What only the old one has stays."""
    cases, accuracy, stored = (
        {case.case: case for case in (*before, *now)}
        for before, now in ((old.cases, new.cases), (old.accuracy, new.accuracy), (old.stored, new.stored))
    )
    epoch = new.epoch or old.epoch
    if old.epoch and new.epoch:
        why = old.epoch.why if new.epoch.why in old.epoch.why else f"{old.epoch.why}; {new.epoch.why}"
        epoch = Epoch(why, tuple(dict.fromkeys((*old.epoch.cases, *new.epoch.cases))))
    inconclusive = dict.fromkeys((*old.inconclusive, *new.inconclusive))
    return replace(
        new,
        cases=tuple(cases.values()),
        accuracy=tuple(accuracy.values()),
        epoch=epoch,
        inconclusive=tuple(case for case in inconclusive if case not in cases),
        boards=new.boards or old.boards,
        stored=tuple(stored.values()),
    )


# --- present names ----------------------------------------------------------------------------------------------------


def _read_renamed(
    folder: Path, device: str, op: str, last: int | None, formerly: str | None, seen: frozenset[str] = frozenset()
) -> History:
    found = _read(folder, device, op, last)
    before = next((run.renamed_from for run in reversed(found.runs) if run.renamed_from), formerly)
    missing = None if last is None else last - len(found.runs)
    if before and before not in seen | {op} and missing != 0:
        try:
            earlier = _read_renamed(folder, device, before, missing, None, seen | {op})
        except StoredFileError as error:  # a line holds a name that no file may have
            earlier = History(before, device, (), (error.reason,))
        known = {run.run for run in found.runs}
        runs = (*(run for run in earlier.runs if run.run not in known), *found.runs)
        found = replace(found, runs=runs, problems=(*earlier.problems, *found.problems))
    return replace(found, runs=with_names_of_now(found.runs))


def with_names_of_now(runs: Sequence[HistoryRun], renamed: Mapping[str, str] | None = None) -> tuple[HistoryRun, ...]:
    """Returns the runs, oldest first, with each case under its last name.

    renamed: id now -> id before, from a run later than all of these.
    """
    now = {old: new for new, old in (renamed or {}).items()}
    found = []
    for run in reversed(runs):
        found.append(_rename(run, now) if now else run)
        # What an even later run renamed again has its last name.
        now |= {old: now.get(new, new) for new, old in run.renamed.items()}
    return tuple(reversed(found))


def _rename(run: HistoryRun, now: Mapping[str, str]) -> HistoryRun:
    def rename(cases: Sequence[Case]) -> tuple[Case, ...]:
        # A case that had the new name beside the old one was another case, and has no name any more.
        taken = {now[case.case] for case in cases if case.case in now}
        return tuple(
            replace(case, case=now.get(case.case, case.case))
            for case in cases
            if case.case in now or case.case not in taken
        )

    return replace(
        run,
        cases=rename(run.cases),
        accuracy=rename(run.accuracy),
        stored=rename(run.stored),
        epoch=replace(run.epoch, cases=tuple(now.get(case, case) for case in run.epoch.cases)) if run.epoch else None,
        inconclusive=tuple(now.get(case, case) for case in run.inconclusive),
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def _read(folder: Path, device: str, op: str, last: int | None = None) -> History:
    path = history_path(folder, device, op)
    with uncollected():
        file = _parse(path, None if last is None else _tail(path, last))
        if last is not None and file.problems:  # their line numbers need the whole file
            file = _parse(path)
    runs: dict[str, HistoryRun] = {}
    for run in filter(None, file.runs):
        runs.setdefault(run.run, run)
    problems = list(file.problems)
    back = [(old, new) for old, new in itertools.pairwise(runs.values()) if new.created < old.created]
    if back:  # a clock was wrong: name the first run that is dated before the one above it
        old, new = back[0]
        facts: dict[str, Fact] = {
            "path": str(path),
            "run": new.run,
            "created": new.created,
            "before": old.created,
            "count": len(back),
        }
        problems.append(Reason("history_clock", facts))
    return History(op, device, tuple(runs.values())[-(last or len(runs)) :], tuple(problems))


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


def _parse(path: Path, data: bytes | None = None) -> _HistoryFile:
    """Reads a history line by line, from `data` or from the file."""
    file = _HistoryFile(path)
    *pieces, end = (_bytes(path) if data is None else data).split(b"\n")
    numbers: dict[bytes, int] = {}
    for number, text in enumerate(pieces, 1):
        if text.strip() and text not in numbers:
            numbers[text] = number
            _read_line(file, number, text)
    if end.strip() and end not in numbers:  # behind the last line's end: a line without its end, or a torn one
        before = len(file.problems)
        numbers[end] = len(pieces) + 1
        _read_line(file, numbers[end], end)
        if [problem.kind for problem in file.problems[before:]] == ["history_damaged"]:
            file.torn = file.lines.pop()
            file.runs.pop()
            file.problems[before:] = [Reason("history_torn", {"path": str(path), "line": numbers[end]})]

    first: dict[str, int] = {}
    for text, run in zip(file.lines, file.runs, strict=True):
        if run is not None and first.setdefault(run.run, numbers[text]) != numbers[text]:
            facts: dict[str, Fact] = {"line": numbers[text], "run": run.run, "first": first[run.run]}
            file.problems.append(Reason("history_double", {"path": str(path), **facts}))
    return file


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoredFileError("file_unreadable", path=str(path), why=error.strerror or str(error)) from error


def _read_line(file: _HistoryFile, number: int, text: bytes) -> None:
    """Adds a line to the file, with its run or the problem that it has."""
    place: dict[str, Fact] = {"path": str(file.path), "line": number}
    found: HistoryRun | _LineHead | str = ""
    problem = None
    if _CONFLICT.fullmatch(text):
        if all(each.kind != "history_conflicted" for each in file.problems):
            problem = Reason("history_conflicted", place)
    elif isinstance(found := _decode(text), str):
        problem = Reason("history_damaged", {**place, "why": found})
    elif found.format > FORMAT:
        problem = Reason("history_too_new", {**place, "found": found.format, "supported": FORMAT})
    elif isinstance(found, _LineHead):
        problem = Reason("history_damaged", {**place, "why": say("no format number")})
    elif found.environment.device.key != file.path.parent.name:
        problem = Reason("history_other_device", {**place, "device": found.environment.device.key, "run": found.run})
    if problem:
        file.problems.append(problem)
    file.lines.append(text)
    file.runs.append(found if isinstance(found, HistoryRun) and not problem else None)


def _decode(text: bytes) -> HistoryRun | _LineHead | str:
    """Returns a line's run, the head alone if it has a later format, else what is wrong with it."""
    unreadable = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
    try:
        return _LINES.decode(text)
    except unreadable as error:
        wrong = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    with contextlib.suppress(*unreadable):
        head = msgspec.json.decode(text, type=_LineHead)
        return head if head.format > FORMAT else wrong
    return wrong


# --- writing ----------------------------------------------------------------------------------------------------------


def _refuse(file: _HistoryFile) -> None:
    for problem in file.problems:
        if problem.kind in STOPPING:
            raise StoredFileError(problem.kind, **problem.facts)


def _opened(folder: Path) -> int | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder, os.O_RDONLY)  # the folder itself, so that no file of a lock lies among the baselines
    except OSError:  # a system whose folders cannot be opened; one that cannot be made is told by who writes there
        return None


def _taken(handle: int | None) -> bool:
    if handle is None:
        return True
    return locks.take_if_possible(handle)
