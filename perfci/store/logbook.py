"""An op's logbook: `optimization.jsonl` in its folder, one round a line. Git merges it line by line, like histories."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from perfci.core.errors import StoredFileError
from perfci.core.model import FORMAT, Reason, Round, RoundChange, RoundVerdict
from perfci.store import layout
from perfci.store.files import FormatHead
from perfci.store.history import CONFLICT, read_bytes

FILE = "optimization.jsonl"

_LINES = msgspec.json.Decoder(Round)


@dataclass(frozen=True)
class Logbook:
    """The rounds of an op."""

    rounds: tuple[Round, ...] = ()  # in the order of their numbers
    problems: tuple[Reason, ...] = ()  # lines that could not be read, each with file and line
    lines: int = 0  # of the file, those included

    @property
    def next_number(self) -> int:
        """A number that no line has, not even one that cannot be read."""
        return max(self.lines, *(each.number for each in self.rounds), 0) + 1

    def list_of(self, start: str) -> tuple[Round, ...]:
        """The rounds of one start that were judged."""
        return tuple(each for each in self.rounds if each.start == start and each.verdict.counts)

    def find_best(self, start: str) -> Round | None:
        """The round of a start that was kept last. None: the start itself."""
        return next((each for each in reversed(self.list_of(start)) if each.verdict is RoundVerdict.KEPT), None)


def read_logbook(folder: Path) -> Logbook:
    """Returns the logbook in an op's folder, empty without a file. Raises StoredFileError if it cannot be read at all.

    Rounds of two branches that have one number after a merge are numbered anew, in the order of their time.
    """
    path = folder / FILE
    lines: dict[bytes, int] = {}  # each once, as a merge may leave it twice
    for at, text in enumerate(read_bytes(path).split(b"\n"), 1):
        lines.setdefault(text, at)
    lines.pop(b"", None)
    found: list[Round] = []
    problems: list[Reason] = []
    for text, at in lines.items():
        why = "a mark of an unresolved merge" if CONFLICT.fullmatch(text) else ""
        try:
            version = 1 if why else msgspec.json.decode(text, type=FormatHead).format or 1
            if version > FORMAT:
                why = f"its format is {version}, and this perfci reads formats up to {FORMAT}"
            elif not why:
                found.append(_LINES.decode(text))
        except (ValueError, RecursionError) as error:  # msgspec's and those of bytes that are no text are ValueErrors
            why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        if why:
            problems.append(Reason("logbook_damaged", {"path": str(path), "line": at, "why": why}))
    return Logbook(_number(found), tuple(problems), len(lines))


def _number(rounds: Sequence[Round]) -> tuple[Round, ...]:
    taken: dict[int, Round] = {}
    for each in sorted(rounds, key=lambda one: (one.time, one.number)):
        number = each.number if each.number not in taken else max(*taken, *(one.number for one in rounds)) + 1
        taken[number] = replace(each, number=number)
    numbers = {each.commit: number for number, each in taken.items() if each.commit}
    return tuple(
        replace(each, best=numbers.get(str(each.against), each.best) if each.best else 0)
        for _, each in sorted(taken.items())
    )


def append_round(folder: Path, found: Round) -> None:
    """Appends a round. What was there stays as it is, a torn last line too. Raises StoredFileError."""
    path = folder / FILE
    text = layout.line(found).encode()
    try:
        _LINES.decode(text)
        torn = read_bytes(path)[-1:] not in {b"", b"\n"}
        with path.open("ab") as file:
            file.write(b"\n" + text if torn else text)
            file.flush()
            os.fsync(file.fileno())
    except msgspec.ValidationError as error:
        raise StoredFileError("value_unstorable", path=str(path), found=str(error), place="$") from error
    except OSError as error:
        raise StoredFileError("file_unwritable", path=str(path), why=error.strerror or str(error)) from error


Pattern = tuple[str, bool]  # name of a parameter, and whether it was raised


def count_patterns(rounds: Iterable[Round]) -> Mapping[Pattern, tuple[int, int]]:
    """How often a change of one parameter was kept, of how many judged rounds that made it. The most tried comes first.

    A round that changes several parameters counts for each of them, and one that raises and lowers one for both.
    """
    found: dict[Pattern, tuple[int, int]] = {}
    for each in rounds:
        patterns = dict.fromkeys(_find_pattern(change) for change in each.changed) if each.verdict.counts else ()
        for pattern in patterns:
            if pattern:
                kept, tried = found.get(pattern, (0, 0))
                found[pattern] = kept + (each.verdict is RoundVerdict.KEPT), tried + 1
    return dict(sorted(found.items(), key=lambda item: (-item[1][1], item[0])))


def _find_pattern(change: RoundChange) -> Pattern | None:
    """None for what the compiler made of it, and for what is no number."""
    try:
        step = float(change.now or "") - float(change.was or "")
    except ValueError:
        return None
    return None if change.name in {"registers", "spills", "shared_bytes"} or not step else (change.name, step > 0)
