"""How far each rank is, in memory that all processes of a group share, and its stack: read when one of them hangs."""

import faulthandler
import mmap
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import IO, Self

import numpy as np

LATE = 0.8  # share of the time limit after which a rank writes its stack unasked
WORDS = 3  # of a rank: asks begun, step, launches of this ask that have ended on the device


class Step(IntEnum):
    """What a rank does of an ask."""

    ANSWERED = 0
    INPUTS = 1
    CALLING = 2  # the host is inside a call of the op
    WAITING = 3  # the host waits for the device
    MEETING = 4  # with the other ranks, by perfci itself


@dataclass(frozen=True)
class Position:
    """How far one rank is."""

    asks: int
    step: Step
    ended: int


class Progress:
    """The positions of all ranks. A file holds them, which every process maps."""

    def __init__(self, path: Path, ranks: int) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), ranks * WORDS * 8)
        self._words = np.frombuffer(self._memory, dtype=np.int64).reshape(ranks, WORDS)

    @classmethod
    def make(cls, path: Path, ranks: int) -> Self:
        """Make the file, in which no rank has begun anything."""
        path.write_bytes(bytes(ranks * WORDS * 8))
        return cls(path, ranks)

    def begin(self, rank: int) -> None:
        """A rank begins what it is asked."""
        self._words[rank] = self._words[rank, 0] + 1, Step.INPUTS, 0

    def note(self, rank: int, step: Step, ended: int | None = None) -> None:
        """A rank's step, and how many launches have ended."""
        self._words[rank, 1] = step
        if ended is not None:
            self._words[rank, 2] = ended

    def read(self) -> Sequence[Position]:
        """Where every rank is now."""
        return [Position(int(asks), Step(int(step)), int(ended)) for asks, step, ended in self._words]


def open_stack(path: Path) -> IO[bytes]:
    """Open the file that this process writes its stack to when it gets SIGUSR1: of all threads, as any may get it."""
    file = path.open("ab", buffering=0)
    faulthandler.register(signal.SIGUSR1, file)
    return file


@contextmanager
def watch_stack(file: IO[bytes], limit_s: float) -> Iterator[None]:
    """Have a thread of C write the stack shortly before the limit: threads in calls of CUDA's may get no signal."""
    file.truncate(0)
    faulthandler.dump_traceback_later(LATE * limit_s, file=file)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
