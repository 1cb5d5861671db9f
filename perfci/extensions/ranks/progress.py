"""How far each rank is, in memory that all processes of a group share: read when one of them hangs."""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Self

import numpy as np

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
