"""Histories in `baselines/<device key>/<op>.history.jsonl`: one accepted run a line, as JSON.

Git merges these files. So reading returns every readable line, in the file's order, and lists what is wrong with the
rest. Nothing is written to a file with a line that cannot be read.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from perfci.core.errors import StoredFileError
from perfci.core.model import FORMAT, Fact, HistoryAccuracy, Reason
from perfci.extensions.common.accepted_runs import Epoch, HistoryCase, HistoryRun, HistoryStored
from perfci.store import HISTORY_ENDING, NAME, baseline_path, layout
from perfci.store.files import FormatHead, place_in_json, read_whole, uncollected

T = TypeVar("T")
Case = TypeVar("Case", HistoryCase, HistoryAccuracy, HistoryStored)

KEPT = 100  # Runs of an op on a device that its history keeps. Writing one more drops older ones.

_CONFLICT = re.compile(rb"(<<<<<<<|=======|>>>>>>>|\|\|\|\|\|\|\|)( .*)?\r?")  # lines of git's merge
_LINES = msgspec.json.Decoder(HistoryRun)


@dataclass(frozen=True)
class History:
    """What is kept of an op's accepted runs on one device model."""

    op: str
    device: str  # device key
    runs: tuple[HistoryRun, ...] = ()
    """each run once, in the file's order, oldest first. Cases that were renamed since have their present names."""
    problems: tuple[Reason, ...] = ()  # lines that could not be read, each with file and line


def history_path(folder: Path, device: str, op: str) -> Path:
    """Returns the path of an op's history on a device model. Raises StoredFileError for a name no file may have."""
    return baseline_path(folder, device, op).with_name(f"{op}{HISTORY_ENDING}")


def read_history(folder: Path, device: str, op: str, *, follow: bool = True, formerly: str | None = None) -> History:
    """Returns an op's history on a device model. Empty without a file. Raises StoredFileError if it cannot be read.

    follow: with cases' present names. Runs of the op's earlier name (`formerly` if no line has it) come first.
    """
    return follow_names(lambda name: _read(folder, device, name), op, formerly) if follow else _read(folder, device, op)


def history_ops(folder: Path, device: str) -> list[str]:
    """The ops that have a history on a device model, by name. A file of another name is not perfci's."""
    paths = history_path(folder, device, "x").parent.glob(f"*{HISTORY_ENDING}")
    return sorted(op for path in paths if NAME.fullmatch(op := path.name.removesuffix(HISTORY_ENDING)))


def history_devices(folder: Path) -> list[str]:
    """Keys of the device models that have any history."""
    devices = sorted({path.parent.name for path in folder.glob(f"*/*{HISTORY_ENDING}")})
    return [device for device in devices if NAME.fullmatch(device) and history_ops(folder, device)]


def check_history(folder: Path, device: str, op: str) -> None:
    """Raises StoredFileError if `extend_history` would refuse. Ask before accepting what could not be recorded."""
    for problem in _read(folder, device, op).problems:
        raise StoredFileError(problem.kind, **problem.facts)


def extend_history(folder: Path, device: str, op: str, added: Iterable[HistoryRun]) -> dict[Path, bytes]:
    """Returns the file of an op's last 100 runs with these appended, or merged with their lines. None if it stays.

    Raises StoredFileError if it cannot be read, or a line could not be read back.
    """
    path = history_path(folder, device, op)
    check_history(folder, device, op)
    # Exact doubles, as a union merge leaves them, count once.
    before = list(dict.fromkeys(text for text in read_bytes(path).split(b"\n") if text.strip()))
    lines = list(before)
    for line in added:
        runs = [_LINES.decode(text) for text in lines]
        at = next((at for at, run in enumerate(runs) if run.run == line.run), len(lines))
        text = layout.line(merge_runs(runs[at], line) if at < len(runs) else line).encode().rstrip(b"\n")
        try:
            _LINES.decode(text)
        except msgspec.ValidationError as error:
            raise StoredFileError("value_unstorable", path=str(path), **place_in_json(error)) from error
        lines[at : at + 1] = [text]
    return {} if lines == before else {path: b"".join(line + b"\n" for line in lines[-KEPT:])}


def merge_runs(old: HistoryRun, new: HistoryRun) -> HistoryRun:
    """Merges two lines of one run. The new line counts. What only the old one has stays."""
    cases, accuracy, stored = (
        tuple({case.case: case for case in (*before, *now)}.values())
        for before, now in ((old.cases, new.cases), (old.accuracy, new.accuracy), (old.stored, new.stored))
    )
    epoch = new.epoch or old.epoch
    if old.epoch and new.epoch:
        why = old.epoch.why if new.epoch.why in old.epoch.why else f"{old.epoch.why}; {new.epoch.why}"
        epoch = Epoch(why, tuple(dict.fromkeys((*old.epoch.cases, *new.epoch.cases))))
    names = {case.case for case in cases}
    left = tuple(case for case in dict.fromkeys((*old.inconclusive, *new.inconclusive)) if case not in names)
    runs = replace(new, cases=cases, accuracy=accuracy, epoch=epoch, inconclusive=left, stored=stored)
    kept = tuple(case for case in new.kept if case not in {*names, *left})
    return replace(runs, boards=new.boards or old.boards, kept=kept)


def follow_names(
    read: Callable[[str], History], op: str, formerly: str | None = None, seen: frozenset[str] = frozenset()
) -> History:
    """Returns an op's history with present names, behind that of its earlier name. read: an op's history."""
    here = read(op)
    before = next((run.renamed_from for run in reversed(here.runs) if run.renamed_from), formerly)
    if before and before not in seen | {op}:
        try:
            earlier = follow_names(read, before, None, seen | {op})
        except StoredFileError as error:  # a line holds a name that no file may have
            earlier = History(before, here.device, (), (error.reason,))
        ids = {run.run for run in here.runs}
        runs = (*(run for run in earlier.runs if run.run not in ids), *here.runs)
        here = replace(here, runs=runs, problems=(*earlier.problems, *here.problems))
    return replace(here, runs=with_names_of_now(here.runs))


def with_names_of_now(runs: Sequence[HistoryRun], renamed: Mapping[str, str] | None = None) -> tuple[HistoryRun, ...]:
    """Returns the runs, oldest first, with each case under its last name. renamed: id now -> before, of a later run."""
    now = {old: new for new, old in (renamed or {}).items()}
    renamed_runs = []
    for run in reversed(runs):
        renamed_runs.append(_rename(run, now) if now else run)
        # What an even later run renamed again has its last name.
        now |= {old: now.get(new, new) for new, old in run.renamed.items()}
    return tuple(reversed(renamed_runs))


def _rename(run: HistoryRun, now: Mapping[str, str]) -> HistoryRun:
    def rename(cases: Sequence[Case]) -> tuple[Case, ...]:
        # A case that had the new name beside the old one was another case, and has no name any more.
        taken = {now[case.case] for case in cases if case.case in now}
        kept = [case for case in cases if case.case in now or case.case not in taken]
        return tuple(replace(case, case=now.get(case.case, case.case)) for case in kept)

    cases, accuracy, stored = rename(run.cases), rename(run.accuracy), rename(run.stored)
    epoch = replace(run.epoch, cases=tuple(now.get(case, case) for case in run.epoch.cases)) if run.epoch else None
    left, kept = (tuple(now.get(case, case) for case in names) for names in (run.inconclusive, run.kept))
    return replace(run, cases=cases, accuracy=accuracy, stored=stored, epoch=epoch, inconclusive=left, kept=kept)


def _read(folder: Path, device: str, op: str) -> History:
    path = history_path(folder, device, op)
    runs: dict[str, HistoryRun] = {}
    problems: list[Reason] = []
    with uncollected():
        for number, text in enumerate(read_bytes(path).split(b"\n"), 1):
            if not text.strip():
                continue
            line = read_line(path, number, text, _LINES)
            if isinstance(line, HistoryRun) and (key := line.environment.device.key) != device:
                place: dict[str, Fact] = {"path": str(path), "line": number}
                problems.append(Reason("history_other_device", {**place, "device": key, "run": line.run}))
            elif isinstance(line, HistoryRun):
                runs.setdefault(line.run, line)  # of two lines about one run the first counts
            elif line.kind not in {problem.kind for problem in problems} or line.kind != "history_conflicted":
                problems.append(line)
    return History(op, device, tuple(runs.values()), tuple(problems))


def read_bytes(path: Path) -> bytes:
    """Returns a file's content, nothing if there is none. Raises StoredFileError if it cannot be read."""
    return read_whole(path) if path.exists() else b""


def read_line(path: Path, number: int, text: bytes, decoder: msgspec.json.Decoder[T]) -> T | Reason:
    """Returns the record of one line of a file, or the problem that it has."""
    place: dict[str, Fact] = {"path": str(path), "line": number}
    if _CONFLICT.fullmatch(text):
        return Reason("history_conflicted", place)
    try:
        version = msgspec.json.decode(text, type=FormatHead).format or 1
        if version > FORMAT:
            return Reason("history_too_new", {**place, "found": version, "supported": FORMAT})
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        return Reason("history_damaged", {**place, "why": why})
