"""A worker's job, and its messages while it works: one line of JSON each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from perfci.core.codec import decode, encode
from perfci.core.model import (
    AccuracyCase,
    Block,
    Cache,
    Counters,
    Coverage,
    Device,
    DeviceState,
    Limits,
    PerformanceCase,
    PlannedOp,
    Reason,
    StaticOp,
    StoredTensor,
    Suite,
    SuiteChange,
)
from perfci.lab.chains.records import ChainCase
from perfci.lab.soak.findings import DECAY_LIMIT, SoakFinding
from perfci.lab.tune.records import Attempt, Config, Regime
from perfci.ops.identity import DuelPlan
from perfci.scaffold.sketch import Sketch
from perfci.thresholds.case import CaseThresholds
from perfci.worker.handover import Called

BASE = "base"  # arm of a worker that times the base revision, in the second of two processes
OF_BASE = " of the base"  # how the stage of a worker ends that runs the base revision
DONE = "done"  # stage of an op whose workers have ended, sent by the parent to those who watch several at once


@dataclass(frozen=True)
class OpFiles:
    """Where an op lives."""

    op: str
    folder: str


@dataclass(frozen=True)
class BaseFiles:
    """An op as of the base revision, and what is wanted of it."""

    folder: str
    shared_folder: str
    root: str
    plan: DuelPlan
    differs: bool = True  # some file of the op differs, so that host times are compared
    compares: bool = True  # the base's suites are compared with head's
    judges: bool = True  # and head's kernel is judged by them


@dataclass(frozen=True)
class TuneFiles:
    """What a search for configurations starts from."""

    known: tuple[Attempt, ...] = ()  # what an interrupted search has found out
    spec: str | None = None  # description of the device to tune for by the model. None for the one at hand
    like: str | None = None
    alone: bool = False  # one candidate at a time, to find out which one killed a worker


@dataclass(frozen=True)
class SoakFiles:
    """What a soak is made of."""

    calls: int | None = None  # of each test. None: as many as the device is good for
    limit: float = DECAY_LIMIT  # ratio by which a call may become slower over all calls
    done: tuple[str, ...] = ()  # tests of cases that are settled, named by `name_test`: a worker before this one died


@dataclass(frozen=True)
class SketchFiles:
    """Functions that a new op is made of."""

    kernel: str  # its file. Empty: the module's
    function: str  # or a class, whose objects are called
    module: str | None = None  # name by which the kernel's file is imported. None: by its path
    reference: str | None = None  # a dotted path, or a function of `baseline`
    baseline: str | None = None  # file of the reference
    baseline_module: str | None = None  # name by which that file is imported. None: by its path
    tests: tuple[str, ...] = ()  # files of the tests


@dataclass(frozen=True)
class Host:
    """A process for an op's own code, which the judge's process starts: its job and what it runs in."""

    job: Job
    environment: Mapping[str, str]
    folder: str
    log: str
    limit_s: float
    python: str
    shown_from: str
    writable: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs to know: the first and only line on its standard input."""

    task: str  # describe, measure, serve, ahead, static, examine, tune, chain, soak, profile or sketch
    ops: tuple[OpFiles, ...]
    shared_folder: str  # the folder of all ops, whose `_*.py` files they share
    device: str  # auto (describe only), cuda, cpu or fake
    seed: int
    events_fd: int = -1
    suites: tuple[Suite, ...] = (Suite.ACCURACY, Suite.PERFORMANCE)
    pattern: str | None = None
    cases: tuple[str, ...] | None = None  # performance cases to measure. None for all that fit the pattern
    process: int = 0  # 0 the first look; 1, 2, ... re-measurements
    until_s: float | None = None  # when to come to an end, seconds since the epoch. None: when all is measured
    budget_s: float = 1.0
    run_started: float = 0.0
    timer: str = "auto"
    lock_folder: str | None = None
    lock_wait_s: float = 3600.0
    root: str = "."  # of the project that the ops belong to
    head_root: str | None = None
    """of the project under test, where these ops are the base's: nothing may come from there"""
    base: BaseFiles | None = None
    host: Host | None = None
    """the process of the op under test, where this one is the judge's and these ops are the base's"""
    base_host: Host | None = None  # the same of the base's kernel, for its host time alone
    own: bool = False  # check only what the op's own suite has beyond the base's
    arena: int = -1  # descriptor of the memory by which calls are handed over
    arm: str = "kernel"
    """what the op's kernel is timed as: kernel, or base in the second of two processes that take turns"""
    baton: int = -1  # descriptor of the socket by which two processes that take blocks in turns hand over the device
    by_round: bool = True  # they hand it over after each round. False: after all blocks of a turn
    lock: bool = True  # False if the other process of a pair holds the device
    cache: Cache | None = None  # cold or warm, that both revisions are timed alike. None for the suite's own
    ceilings: Limits = field(default_factory=Limits)  # those of the device that the run knows
    limits: Mapping[str, CaseThresholds] = field(default_factory=dict)
    """what each performance case is judged by: it decides when a duel has seen enough"""
    planted: float = 0.0  # a self-check: the kernel is made slower by so many times the slow-down that is allowed
    spoiled: bool = False  # a self-check: one element of the kernel's output is made wrong
    peers: bool = False
    target: str | None = None  # what the static task compiles for: sm_90, gfx942
    propose: bool = False  # cases for what accuracy never exercises, which take many calls
    board: Device | None = None  # what the ahead task compiles for
    part: tuple[int, int] = (0, 1)  # of the ahead task's cases: every how many, from which on
    tune: TuneFiles = field(default_factory=TuneFiles)
    soak: SoakFiles = field(default_factory=SoakFiles)
    sketches: tuple[SketchFiles, ...] = ()
    """functions that new ops are made of, one for each op"""
    marks: bool = False  # the calls of a profile are made for a profiler that watches this process
    fake: Mapping[str, Any] = field(default_factory=dict)

    @property
    def turns(self) -> bool:
        """Whether it takes blocks in turns with another process."""
        return self.baton >= 0


@dataclass(frozen=True)
class Ready:
    """The device is open."""

    device: Device
    timer: str | None = None
    devices: int = 1
    visible: int = 1  # devices that this process sees, of whatever model
    uuids: tuple[str, ...] = ()  # theirs, in their order, if they are known


@dataclass(frozen=True)
class Examined:
    """What the device is doing, and which timer works on it."""

    state: DeviceState
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
class Waiting:
    """Another process holds the device."""

    holder: str


@dataclass(frozen=True)
class Prepared:
    """A performance case is ready to be timed, or has failed before."""

    case: PerformanceCase


@dataclass(frozen=True)
class Measured:
    """One block of a case, with its raw launches in order of time, microseconds."""

    case: str
    block: Block
    launches_us: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Finished:
    """A performance case will get no more blocks."""

    case: PerformanceCase
    short: bool = False  # the time was up before it had the blocks that it should have


@dataclass(frozen=True)
class Hosted:
    """The worker has started a process group, which has to end with it."""

    pid: int


@dataclass(frozen=True)
class HostLost:
    """The process of the op's own code has ended, and with it what the judge's process can do."""

    reason: Reason


@dataclass(frozen=True)
class Refused:
    """A performance case that the judge's process cannot time without the op's own code, and why."""

    case: str
    reason: Reason


@dataclass(frozen=True)
class OpDone:
    """The op's worker has nothing more to do."""

    unmeasured: Reason | None = None
    notes: tuple[Reason, ...] = ()
    tuned: str | None = None
    verify_s: float | None = None
    measure_s: float | None = None
    limits: Limits = field(default_factory=Limits)
    late: bool = False  # the time was up before it had checked and measured everything
    change: SuiteChange | None = None


@dataclass(frozen=True)
class Regimes:
    """The entries that a search is about."""

    file: str
    key: str
    digest: str
    regimes: tuple[Regime, ...]  # in the order in which a call asks them
    unserved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trying:
    """A candidate is compiled now. If the worker dies, it is to blame."""

    regime: str  # its label. None if several are timed together
    config: Config | None


@dataclass(frozen=True)
class Modelled:
    """One case by the model, microseconds."""

    case: str
    original_us: float | None  # of the device that the description varies. None if it does not fit there
    original_floor_us: float
    floor_us: float


@dataclass(frozen=True)
class ChainPlanned:
    """A chain is imported."""

    cases: tuple[str, ...]


@dataclass(frozen=True)
class Apart:
    """One process cannot hold the two revisions apart: each needs one of its own."""

    reason: Reason


@dataclass(frozen=True)
class TurnAsked:
    """A worker that takes turns is ready for the next one. It is answered by a line with a `Turn`."""


@dataclass(frozen=True)
class Turn:
    """The answer: take one block of each of these cases. None ends the measurement."""

    index: int
    cases: tuple[str, ...]
    shared: tuple[str, ...] = ()  # those of them of which the other process takes its own part meanwhile


@dataclass(frozen=True)
class LockAsked:
    """A device's lock is to be taken. Its file can only be made by the parent, which answers once it is there."""

    name: str


@dataclass(frozen=True)
class Failed:
    """The op as a whole broke."""

    reason: Reason


@dataclass(frozen=True)
class Sketched:
    """What was found out about the functions that a new op is made of, or why nothing was."""

    op: str
    sketch: Sketch | None = None
    failure: Reason | None = None


Message = (
    Ready
    | Examined
    | PlannedOp
    | Doing
    | Position
    | Waiting
    | AccuracyCase
    | StoredTensor
    | Prepared
    | Measured
    | Finished
    | Refused
    | OpDone
    | Coverage
    | StaticOp
    | Sketched
    | Regimes
    | Trying
    | Attempt
    | Modelled
    | SoakFinding
    | Counters
    | ChainPlanned
    | ChainCase
    | Apart
    | TurnAsked
    | LockAsked
    | Hosted
    | HostLost
    | Called
    | Failed
)
"""What a worker sends. Records of a run are sent as they are."""

KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Message)}


def ends(job: Job, message: Message) -> bool:
    """Whether a worker has done its job with this message. One that ends before has failed, whatever its status."""
    match message:
        case OpDone() | Examined() | Apart() | Counters():
            return True
        case PlannedOp(op) | Coverage(op) | StaticOp(op) | Sketched(op):
            return op == job.ops[-1].op
        case Ready():
            return job.task == "describe" and not job.ops
        case _:
            return False


def pack(message: Message) -> bytes:
    """One line, newline included."""
    return encode({"kind": type(message).__name__, "body": message}) + b"\n"


def unpack(line: bytes) -> Message:
    """The message on one line. Raises ValueError for a line that is none, such as one cut off by a crash."""
    kind, _, body = line.partition(b'","body":')
    name = kind.removeprefix(b'{"kind":"').decode(errors="replace")
    if name not in KINDS or not body.endswith(b"}\n"):
        raise ValueError(f"no message: {line[:80]!r}")
    message: Message = decode(body[:-2], KINDS[name])
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
        """Say again what is being done, after a second of silence."""
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
