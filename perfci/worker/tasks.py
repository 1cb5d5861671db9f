"""What a worker can be asked to do: a class for each task, with what it takes, what performs it and what it may answer.

An extension adds its at the point `task` of perfci.core.extensions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from perfci.core import extensions, model
from perfci.core.codec import convert, decode, encode
from perfci.core.model import Cache, Limits, Measured, PlannedOp, Suite
from perfci.ops.identity import DuelPlan
from perfci.thresholds.case import CaseThresholds
from perfci.worker import protocol
from perfci.worker.answers import (
    Answers,
    Rule,
    of_block,
    of_case,
    of_check,
    of_device,
    of_end,
    of_lock,
    of_op,
    of_refused,
    of_stage,
    of_start,
    of_timer,
)
from perfci.worker.handover import Called
from perfci.worker.protocol import Began, Doing, Failed, Holding, LockAsked, Message, OpDone, Prepared, Ready, Waiting

OPENING: Answers = {Ready: Rule(of_device), Waiting: Rule(most=None), LockAsked: Rule(of_lock), Holding: Rule()}
"""What a worker may send while it opens a device and holds it alone."""


@dataclass(frozen=True)
class OpFiles:
    """Where an op lives."""

    op: str
    folder: Path
    before: str | None = None  # its name in these files, where they are the base's and the change gives it another

    @property
    def name(self) -> str:
        """The op's name in these files."""
        return self.before or self.op


@dataclass(frozen=True)
class Place:
    """Where the ops of a task live."""

    ops: tuple[OpFiles, ...]
    shared_folder: Path  # the folder of all ops, which share its `_*.py` files
    root: Path = Path()  # of the project that the ops belong to
    head_root: Path | None = None
    """of the project under test, where these ops are the base's: nothing may come from there"""


@dataclass(frozen=True)
class Opening:
    """How a device is opened and held."""

    device: str  # auto (to describe and to examine), cuda, cpu or fake, or what an extension brings
    seed: int  # of inputs, and of the fake device's noise
    timer: str = "auto"
    process: int = 0  # 0 the first look; 1, 2, ... re-measurements
    arm: str = "kernel"
    """what the op's kernel is timed as: kernel, or base in the second of two processes that take turns"""
    lock: bool = True  # False if the other process of a pair holds the device
    lock_folder: Path | None = None
    lock_wait_s: float = 3600.0
    fake: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one worker is asked to do, as the first line on its standard input."""

    performer: ClassVar[str]
    """`module:function`, which is called with the task and the channel to its parent"""
    answers: ClassVar[Answers] = {Began: Rule(of_start), Doing: Rule(of_stage, most=None), Failed: Rule()}
    """kinds of messages that its worker may send, and when. They are testimony: see perfci.worker.answers"""
    last: ClassVar[tuple[type[Any], ...]]
    """kinds of those that end it. A worker that ends before has failed, whatever its status"""
    is_hosted: ClassVar[bool] = False  # whether a judge's process starts its worker

    place: Place

    @property
    def is_judge(self) -> bool:
        """Whether it runs none of the op's code, but starts a process that does."""
        return False

    @property
    def roots(self) -> tuple[Path, ...]:
        """Folders of files that it may import."""
        return tuple(filter(None, (self.place.root, self.place.shared_folder, self.place.head_root)))

    @property
    def op(self) -> str:
        """Of a task that has one."""
        return self.place.ops[0].op

    @property
    def folder(self) -> Path:
        """The op's."""
        return self.place.ops[0].folder

    @property
    def shared_folder(self) -> Path:
        """The folder of all ops."""
        return self.place.shared_folder

    def ends(self, message: Message) -> bool:
        """Whether a worker has done its task with this message. Of several ops it is the last one's."""
        ops = self.place.ops
        return isinstance(message, self.last) and (not ops or getattr(message, "op", ops[-1].op) == ops[-1].op)


@dataclass(frozen=True, kw_only=True)
class DeviceTask(Task):
    """A task that opens the device."""

    answers: ClassVar[Answers] = {**Task.answers, **OPENING}

    opening: Opening
    socket: int = -1
    """its descriptor: a judge's process gives handles of those that it starts through it, another gets the lock"""

    @property
    def seed(self) -> int:
        """Of inputs."""
        return self.opening.seed

    @property
    def process(self) -> int:
        """0 for the first look."""
        return self.opening.process


@dataclass(frozen=True, kw_only=True)
class Describe(DeviceTask):
    """Report the device and the cases of each op, with what they declare. Nothing is launched."""

    performer = "perfci.worker.describe:describe"
    answers: ClassVar[Answers] = {
        **Task.answers,
        Doing: Rule(of_op),
        Ready: Rule(of_device),
        Prepared: Rule(lambda said, message: (said.doing.op, message.case.case)),
        PlannedOp: Rule(lambda said, message: message.op if message.op == said.doing.op else None),
    }
    last = (PlannedOp,)

    suites: tuple[Suite, ...] = (Suite.ACCURACY, Suite.PERFORMANCE)
    pattern: str | None = None
    elsewhere: bool = False  # backends that this device cannot run are described too

    def ends(self, message: Message) -> bool:
        """With the last op, or with the device if there is none."""
        return super().ends(message) or (isinstance(message, Ready) and not self.place.ops)


@dataclass(frozen=True, kw_only=True)
class Serve(DeviceTask):
    """Make calls of an op for the process that judges it, which has the device."""

    performer = "perfci.worker.serve:serve"
    answers: ClassVar[Answers] = {**DeviceTask.answers, Called: Rule(most=None)}
    last = ()  # the other process ends it
    is_hosted = True

    arena: int = -1  # descriptor of the memory by which calls are handed over


@dataclass(frozen=True)
class WorkerEnvironment:
    """What a worker runs in."""

    environment: Mapping[str, str]
    folder: Path
    log: Path
    limit_s: float  # longest silence. A worker that sends nothing for so long hangs
    python: str = sys.executable
    shown_from: Path | None = None  # folder that the log's path is shown relative to. None for the working directory
    until_s: float | None = None  # when it is ended whatever it does, seconds since the epoch
    writable: tuple[Path, ...] = ()  # folders that it may write, beside devices
    hidden: tuple[Path, ...] = ()  # folders that it may not read
    shown: tuple[Path, ...] = ()  # what it may read of them all the same

    @property
    def places(self) -> tuple[tuple[Path, ...], ...]:
        """What it is confined to."""
        return self.writable, self.hidden, self.shown


@dataclass(frozen=True)
class Host:
    """A process for an op's code, which the judge's process starts."""

    task: Serve
    around: WorkerEnvironment


@dataclass(frozen=True)
class BaseFiles:
    """An op as of the base revision, and what is wanted of it."""

    op: str  # its name there
    folder: Path
    shared_folder: Path
    root: Path
    plan: DuelPlan
    differs: bool = True  # some file of the op differs, so that host times are compared
    compares: bool = True  # the base's suites are compared with head's
    judges: bool = True  # and head's kernel is judged by them


@dataclass(frozen=True)
class Plant:
    """What a self-check plants."""

    slowdown: float = 0.0  # the kernel is made slower by so many times the slow-down that is allowed
    spoiled: bool = False  # one element of the kernel's output is made wrong


NOTHING_PLANTED = Plant()


@dataclass(frozen=True, kw_only=True)
class Measure(DeviceTask):
    """Verify an op and time it, alone or beside the base revision."""

    performer = "perfci.worker.work:perform"
    answers: ClassVar[Answers] = {
        **DeviceTask.answers,
        protocol.Timing: Rule(of_timer),
        model.AccuracyCase: Rule(of_check, most=None),
        model.StoredTensor: Rule(lambda _, message: (message.case, message.tensor)),
        Prepared: Rule(of_case, most=2, case=lambda message: message.case.case, step=1),  # again with its peers
        Measured: Rule(of_block, case=lambda message: message.case, step=2),
        protocol.Finished: Rule(of_case, case=lambda message: message.case.case, step=3),
        protocol.Refused: Rule(of_refused),
        OpDone: Rule(of_end),
        protocol.Apart: Rule(),
        protocol.TurnAsked: Rule(lambda said, _: "turns" if said.task.turns else None, most=None),
        protocol.HostLost: Rule(lambda said, _: "it" if said.task.is_judge else None),
    }
    last = (OpDone, protocol.Apart)

    suites: tuple[Suite, ...] = (Suite.ACCURACY, Suite.PERFORMANCE)
    pattern: str | None = None
    cases: tuple[str, ...] | None = None  # performance cases to measure. None for all that fit the pattern
    renamed: Mapping[str, str] = field(default_factory=dict)  # of those: the id in the base's suite, if it is another
    until_s: float | None = None  # when to come to an end, seconds since the epoch. None: when all is measured
    budget_s: float = 1.0
    run_started: float = 0.0
    base: BaseFiles | None = None
    host: Host | None = None
    """the process of the op under test, where this one is the judge's and these ops are the base's"""
    base_host: Host | None = None  # the same of the base's kernel, for its host time alone
    calls_there: bool = False  # all calls of the base's kernel are made there: another Python runs it
    remaining: bool = False  # check only what the op's suite has beyond the base's
    by_own: bool = False  # the op's suites judge it: what the base's find of it is known
    baton: int = -1  # descriptor of the socket by which two processes that take blocks in turns hand over the device
    by_round: bool = True  # they hand it over after each round. False: after all blocks of a turn
    cache: Cache | None = None  # cold or warm, that both revisions are timed alike. None for the suite's
    ceilings: Limits = field(default_factory=Limits)  # those of the device that the run knows
    limits: Mapping[str, CaseThresholds] = field(default_factory=dict)
    """what each performance case is judged by: it decides when a duel has seen enough"""
    plant: Plant = NOTHING_PLANTED
    peers: bool = False

    @property
    def turns(self) -> bool:
        """Whether it takes blocks in turns with another process."""
        return self.baton >= 0

    @property
    def is_judge(self) -> bool:
        """As the process with the base's suites does."""
        return self.host is not None

    @property
    def may_compare_hosts(self) -> bool:
        """Whether host times of short cases are compared with the base's, if there are such cases."""
        compares = self.base is not None and self.base.differs and self.base.plan.duels
        return compares and Suite.PERFORMANCE in self.suites

    @property
    def roots(self) -> tuple[Path, ...]:
        """With the base's project."""
        return (*super().roots, *((self.base.root,) if self.base else ()))


PLACES = (*(f"{__name__}:{name}" for name in ("Describe", "Serve", "Measure")),)
"""Where the gate's tasks are."""


def list_tasks() -> Iterator[str]:
    """Yields the place of every task that a worker can be asked for: `module:class`."""
    yield from PLACES
    yield from extensions.list_places("task")


@dataclass(frozen=True)
class _Order:
    """A task on its way to a worker."""

    task: str
    events_fd: int  # descriptor of the pipe that the worker writes to
    body: Mapping[str, Any]


def pack_task(task: Task, events_fd: int) -> bytes:
    """One line, newline included."""
    return encode({"task": type(task).__name__, "events_fd": events_fd, "body": task}) + b"\n"


def unpack_task(line: bytes | str) -> tuple[Task, int]:
    """The task on a line, and the descriptor of the pipe that its worker writes to."""
    order = decode(line, _Order)
    place = next(place for place in list_tasks() if place.endswith(f":{order.task}"))
    task: Task = convert(order.body, extensions.load(place))
    return task, order.events_fd
