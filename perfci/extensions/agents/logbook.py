"""An op's logbook: `optimization.jsonl` in its folder, a round a line, and the commits of what was tried.

Git merges it line by line, like histories.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import msgspec

from perfci.core.errors import StoredFileError
from perfci.core.files import append_regular
from perfci.core.model import Reason
from perfci.core.model.basics import Amount, Count, Interval, Time
from perfci.core.model.measured import KernelChange
from perfci.core.model.run import FORMAT
from perfci.core.temporary import temporary_folder
from perfci.extensions.common.history import read_bytes, read_line
from perfci.git.command import ask, require
from perfci.git.repository import find_repository
from perfci.store import layout
from perfci.store.files import write_atomically


class RoundVerdict(StrEnum):
    """The outcome of a round."""

    KEPT = "kept"  # faster beyond doubt in a case or more, slower in none: the best round from now on
    EQUAL = "equal"  # nothing that matters changed, or nothing could be shown
    SLOWER = "slower"
    MIXED = "mixed"  # faster in some cases, slower in others
    WRONG = "wrong"  # the answer is wrong: not timed
    REFUSED = "refused"  # not a round at all: nothing changed, or more than a round may change
    ERROR = "error"  # it raised, crashed or could not be measured

    @property
    def counts(self) -> bool:
        """Whether it takes one of the rounds that a start has: one that was not judged does not."""
        return self not in {RoundVerdict.REFUSED, RoundVerdict.ERROR}


@dataclass(frozen=True)
class RoundCase:
    """A performance case in a round. Gains are ratios - 1 of times, the other's / the kernel's: 0.2 is 20 % faster."""

    case: str
    us: Time | None = None  # of the kernel, or of the best round if that does the same work. null if not timed
    best_us: Time | None = None  # of the round that it was timed beside
    reference_us: Time | None = None
    best: Interval | None = None  # gain over the best round before
    start: Interval | None = None  # gain over the start
    bytes_moved: Count | None = None  # as declared


@dataclass(frozen=True)
class Round:
    """One round: a change of an op's kernel that was tried, why, and what came of it."""

    op: str
    number: Count  # 1, 2, ... in the op's logbook
    why: str
    verdict: RoundVerdict
    time: str  # ISO 8601, UTC
    start: str  # the commit from which the kernel is optimised
    commit: str | None = None
    """the start's tree with the kernel's files as they were tried, kept by refs/perfci/rounds/OP/NUMBER"""
    best: Count = 0  # number of the round that it was compared with. 0 for the start
    against: str | None = None  # that round's commit
    expected: float | None = None  # gain that was hoped for: 0.2 is 20 % faster
    kinds: tuple[str, ...] = ()  # of change: tuning, interface, logic. Several at once show less of each
    changed: tuple[KernelChange, ...] = ()
    files: tuple[str, ...] = ()  # that differ from the round that it was compared with, below the project's root
    digest: str | None = None  # of all files that the op needs, SHA-256 in hexadecimal
    device: str | None = None  # its key
    cases: tuple[RoundCase, ...] = ()
    gain: Interval | None = None
    """geometric mean over the cases of the gain over the best round before, widened for the rounds so far"""
    total: Interval | None = None  # the same over the start. null if it was not timed beside it
    place: Count = 0  # among the rounds of this start that were tried, in error too. 0 for one that was not
    reasons: tuple[Reason, ...] = ()  # the first one decided
    counters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """case -> counters of the op's last profile when it was tried"""
    advice: str | None = None  # kind of advice of that profile that it follows
    seconds: Amount | None = None  # that it took
    format: int = FORMAT

    @property
    def speedup(self) -> float | None:
        """Geometric mean over the cases of reference time / kernel time. None if one was not timed."""
        logs = [math.log(case.reference_us / case.us) for case in self.cases if case.us and case.reference_us]
        return math.exp(sum(logs) / len(logs)) if logs and len(logs) == len(self.cases) else None


FILE = "optimization.jsonl"

_LINES = msgspec.json.Decoder(Round)


@dataclass(frozen=True)
class Logbook:
    """The rounds of an op."""

    rounds: tuple[Round, ...] = ()  # in the order of their numbers
    problems: tuple[Reason, ...] = ()  # lines that could not be read, each with file and line

    @property
    def next_number(self) -> int:
        """A number that no line has, not even one that cannot be read."""
        return max((round_.number for round_ in self.rounds), default=0) + len(self.problems) + 1

    def list_of(self, start: str) -> tuple[Round, ...]:
        """The rounds of one start that were judged."""
        return tuple(round_ for round_ in self.rounds if round_.start == start and round_.verdict.counts)


def read_logbook(folder: Path) -> Logbook:
    """Returns the logbook in an op's folder, empty without a file. Raises StoredFileError if it cannot be read at all.

    Rounds of two branches that have one number after a merge are numbered anew, in the order of their time.
    """
    path = folder / FILE
    lines: dict[bytes, int] = {}  # each once, as a merge may leave it twice
    for at, text in enumerate(read_bytes(path).split(b"\n"), 1):
        lines.setdefault(text.strip(), at)
    lines.pop(b"", None)
    logbook: list[Round] = []
    problems: list[Reason] = []
    for text, at in lines.items():
        line = read_line(path, at, text, _LINES)
        if isinstance(line, Reason):
            problems.append(Reason("logbook_damaged", {"why": line.kind.partition("_")[2], **line.facts}))
        else:
            logbook.append(line)
    return Logbook(_number(logbook), tuple(problems))


def _number(rounds: Sequence[Round]) -> tuple[Round, ...]:
    taken: dict[int, Round] = {}
    for round_ in sorted(rounds, key=lambda one: (one.time, one.number)):
        number = round_.number if round_.number not in taken else max(*taken, *(one.number for one in rounds)) + 1
        taken[number] = replace(round_, number=number)
    numbers = {one.commit: number for number, one in taken.items()}
    ordered = (taken[number] for number in sorted(taken))
    return tuple(replace(round_, best=round_.best and numbers.get(round_.against, round_.best)) for round_ in ordered)


def keep_files(folder: Path, parent: str, files: Sequence[str], message: str, ref: str) -> str:
    """Returns a commit that is its parent with these files of the work tree: changed, new or gone. `ref` keeps it.

    files: relative to the folder. Index, HEAD, branches and work tree stay as they are. Raises GitError, and
    StoredFileError if `.git` is read-only.
    """
    repository = require(find_repository(folder))
    with temporary_folder("index") as own:
        names = {f"GIT_{who}_NAME": "perfci" for who in ("AUTHOR", "COMMITTER")}
        mails = {f"GIT_{who}_EMAIL": "perfci@noreply.invalid" for who in ("AUTHOR", "COMMITTER")}
        places = {"GIT_INDEX_FILE": str(own / "index"), **names, **mails}
        ask(folder, "read-tree", parent, variables=places)
        ask(folder, "--literal-pathspecs", "add", "--all", "--force", "--", *files, variables=places)
        tree = ask(folder, "write-tree", variables=places).strip()
        commit = ask(folder, "commit-tree", tree, "-p", parent, "-F", "-", variables=places, given=message)
    # Git itself is given a copy of the repository's refs (`git.repository`), so the file is written here.
    path = repository.common.resolve() / ref
    if path.parent.resolve() != path.parent:
        raise StoredFileError("file_unwritable", path=str(path), why="it lies behind a link")
    write_atomically(path, commit.encode())
    return commit.strip()


def append_round(folder: Path, round_: Round) -> None:
    """Appends a round. What was there stays as it is, a torn last line too. Raises StoredFileError."""
    path = folder / FILE
    try:
        torn = read_bytes(path)[-1:] not in {b"", b"\n"}
        with append_regular(path) as file:
            file.write(b"\n" * torn + layout.line(round_).encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoredFileError("file_unwritable", path=str(path), why=error.strerror or str(error)) from error
