"""The messages between a worker and its parent while it works: one line of JSON each."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from perfci.core.codec import decode, encode
from perfci.core.model import Amount, Count, Device, Limits, PerformanceCase, Reason, SuiteChange

DONE = "done"  # stage of an op with workers that have ended, sent by the parent to those who watch several at once

Message = object
"""What a worker sends: of the kinds that its task may answer, among them records of a run as they are."""


@dataclass(frozen=True)
class Began:
    """A worker runs, and has imported nothing of the project."""

    memory: Count  # the file system in which its processes share memory


@dataclass(frozen=True)
class Ready:
    """The device is open. Sent before anything of the project is imported, so that no code of it can send another."""

    device: Device
    devices: int = 1
    visible: int = 1  # devices that this process sees, of whatever model
    uuids: tuple[str, ...] = ()  # theirs, in their order, if they are known


@dataclass(frozen=True)
class Holding:
    """The op is imported, and the worker holds the device alone."""


@dataclass(frozen=True)
class Timing:
    """The timer works."""

    timer: str | None


@dataclass(frozen=True)
class Doing:
    """What is being done now. If the worker dies, this is where."""

    stage: str  # import, accuracy, prepare, measure, ..., done
    op: str
    case: str | None = None
    done: int = 0
    total: int = 0

    @property
    def where(self) -> str:
        """The stage and its case."""
        return f"{self.stage} of {self.case}" if self.case else self.stage


@dataclass(frozen=True)
class Position:
    """How far a run is, sent by the parent: the ops that need a worker, or later looks in fresh processes."""

    done: int
    under_way: int
    total: int
    cases_done: int
    cases: int  # of both suites
    left_s: float | None = None  # None if nothing is known yet
    later: bool = False


@dataclass(frozen=True)
class Noted:
    """Something worth knowing about the run, found by the process that starts the workers."""

    reason: Reason


@dataclass(frozen=True)
class Waiting:
    """Another process holds the device."""

    holder: str


@dataclass(frozen=True)
class Prepared:
    """A performance case is ready to be timed, or has failed before."""

    case: PerformanceCase


@dataclass(frozen=True)
class Finished:
    """A performance case will get no more blocks."""

    case: PerformanceCase
    short: bool = False  # the time was up before it had the blocks that it should have


@dataclass(frozen=True)
class HostLost:
    """The process of the op's code has ended, and with it what the judge's process can do."""

    reason: Reason


@dataclass(frozen=True)
class Refused:
    """A performance case that the judge's process cannot time without the op's code, and why."""

    case: str
    reason: Reason


@dataclass(frozen=True)
class OpDone:
    """The op's worker has nothing more to do."""

    unmeasured: Reason | None = None
    notes: tuple[Reason, ...] = ()
    tuned: str | None = None
    verify_s: Amount | None = None
    measure_s: Amount | None = None
    limits: Limits = field(default_factory=Limits)
    late: bool = False  # the time was up before it had checked and measured everything
    change: SuiteChange | None = None


@dataclass(frozen=True)
class Apart:
    """One process cannot hold the two revisions apart: each needs a separate one."""

    reason: Reason


@dataclass(frozen=True)
class TurnAsked:
    """A worker that takes turns is ready for the next one. It is answered by a line with a `Turn`."""


@dataclass(frozen=True)
class Turn:
    """The answer: take one block of each of these cases. None ends the measurement."""

    index: int
    cases: tuple[str, ...]
    shared: tuple[str, ...] = ()  # those of them of which the other process takes its part meanwhile


@dataclass(frozen=True)
class LockAsked:
    """A device's lock is to be taken. Its file can only be made by the parent, which answers once it is there."""

    name: str
    displaced: Reason | None = None  # why it lies elsewhere than it should, as the parent finds


@dataclass(frozen=True)
class Failed:
    """The op as a whole broke."""

    reason: Reason


def pack(message: Message) -> bytes:
    """One line, newline included."""
    return encode({"kind": type(message).__name__, "body": message}) + b"\n"


_LINE = re.compile(rb'\{"kind":"(\w{1,40})","body":(.*)\}\n', re.DOTALL)


class UnaskedError(ValueError):
    """A message of a kind that a task does not answer, or with a body of another kind. The text names it."""


def unpack(line: bytes, kinds: Iterable[type[Any]]) -> Message:
    """The message on one line, of one of these kinds.

    Raises UnaskedError for another kind or body, and ValueError for a line that is no message.
    """
    if not (match := _LINE.fullmatch(line)):
        raise ValueError(f"no message: {line[:80]!r}")
    name = match[1].decode()
    kind = next((kind for kind in kinds if kind.__name__ == name), None)
    if kind is None:
        raise UnaskedError(name)
    try:
        message: Message = decode(match[2], kind)
    except ValueError as error:
        raise UnaskedError(f"{name} that cannot be read: {error}"[:200]) from error
    return message


class MessageChannel:
    """A worker's way to its parent. Nothing else in the process writes there."""

    def __init__(self, descriptor: int, read_answer: Callable[[], str]) -> None:
        self._descriptor = descriptor
        self._read_answer = read_answer
        self._doing: Doing | None = None
        self._spoke = 0.0

    def send(self, message: Message) -> None:
        """Send one message, whole."""
        self._doing, self._spoke = message if isinstance(message, Doing) else self._doing, time.monotonic()
        data = pack(message)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def stay_alive(self) -> None:
        """Send again what is being done, after a second of silence."""
        if self._doing and time.monotonic() - self._spoke > 1.0:
            self.send(self._doing)

    def locate(self, reason: Reason) -> Reason:
        """Returns the reason with what is being done here as its place."""
        if self._doing is None or "where" not in reason.facts:
            return reason
        return replace(reason, facts={**reason.facts, "where": self._doing.where})

    def ask(self, message: Message) -> str:
        """Send a message that is answered, and wait for the line."""
        self.send(message)
        return self._read_answer()
