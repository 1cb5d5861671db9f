"""What a worker may answer: a rule for each kind of message. Code of a merge request can write any of them."""

import functools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from perfci.core.errors import PerfciError
from perfci.core.model.basics import Fact, Reason, Suite, is_by_perfci
from perfci.core.model.measured import AccuracyCase, HostBlock, Measured, SustainedTurn, is_peer
from perfci.core.model.place import UNTIMED, Device
from perfci.core.model.run import UNCHECKED
from perfci.core.stages import OF_BASE
from perfci.worker.handover import VIRTUAL, Called
from perfci.worker.protocol import (
    DONE,
    Began,
    Doing,
    Failed,
    Finished,
    LockAsked,
    Message,
    OpDone,
    Prepared,
    Ready,
    Refused,
    Timing,
    TurnAsked,
    UnaskedError,
    unpack,
)

FAKE, TIMERS = "fake", ("activity", "event")

NEVER_SAID = frozenset({"start", DONE})  # stages of which the parent alone speaks

LATE, GONE, TAKEN = "worker_late", "device_gone", "device_taken"
"""Kinds of a worker's failure: its time was up, the device does not open, another process has it."""

RESERVED = frozenset({LATE, GONE, TAKEN, *UNCHECKED})
"""Kinds of reasons that end more than one op, or excuse it: perfci finds them out by itself."""

Subject = Hashable | None


@dataclass
class Said:
    """What is known of a worker when one of its messages comes."""

    task: Any  # a Task of perfci.worker.tasks
    doing: Doing
    device: Device | None = None  # that it has opened


@dataclass(frozen=True)
class Rule:
    """When one kind of message may come."""

    about: Callable[[Said, Any], Subject] = lambda _said, _message: "it"
    """what a message is about. None if the task has no such thing"""
    most: int | None = 1  # messages about one thing. None for any number
    case: Callable[[Any], str] | None = None  # of a kind that is a step of a case
    step: int = 0
    """the place of this kind among a case's steps. The first has to come before the others, none after a later one"""


Answers = Mapping[type[Any], Rule]


# --- what messages are about ------------------------------------------------------------------------------------------


def of_op(said: Said, message: Any) -> Subject:
    """An op of the task."""
    return message.op if any(files.op == message.op for files in said.task.place.ops) else None


def of_stage(said: Said, message: Doing) -> Subject:
    """A stage of an op of the task."""
    is_sayable = message.stage not in NEVER_SAID and not message.stage.endswith(OF_BASE)
    return of_op(said, message) and message.stage if is_sayable else None


def of_device(said: Said, message: Ready) -> Subject:
    """The device that was asked for, before anything of the project is imported."""
    is_asked = said.task.opening.device in {"auto", message.device.kind}
    return "it" if is_asked and said.doing.stage == "start" else None


def of_start(said: Said, _message: Began) -> Subject:
    """Its beginning, before any other message."""
    return "it" if said.doing.stage == "start" and said.device is None else None


def of_lock(said: Said, message: LockAsked) -> Subject:
    """The lock of the device that is open."""
    device = said.device
    return "it" if device and message == LockAsked(device.uuid or device.key) else None


def of_timer(said: Said, message: Timing) -> Subject:
    """A timer of the device. The one that was asked for, if one was."""
    if said.task.opening.device == FAKE:
        return "it" if message.timer == VIRTUAL else None
    return "it" if message.timer in TIMERS and said.task.opening.timer in {"auto", message.timer} else None


def of_check(said: Said, message: AccuracyCase) -> Subject:
    """A check, if any were asked for. One of the base's suite, if that judges the op here."""
    task = said.task
    asked = Suite.ACCURACY in task.suites and not task.process
    has_base = task.base and task.base.judges and not task.by_own
    return "checks" if asked and (has_base or not message.of_base) else None


def of_case(said: Said, message: Prepared | Finished) -> Subject:
    """A performance case that the task is to bring, with host times and turns of this process alone."""
    task, case = said.task, message.case
    looks: Iterable[HostBlock | SustainedTurn] = (*case.host, *case.sustained)
    processes = {look.process for look in looks}
    wanted = task.cases is None or case.case in task.cases
    return case.case if wanted and processes <= {getattr(task, "process", 0)} else None


def of_refused(said: Said, message: Refused) -> Subject:
    """A case that the judge's process is to bring."""
    return message.case if said.task.is_judge and message.case in (said.task.cases or ()) else None


def of_block(said: Said, message: Measured) -> Subject:
    """A block of this process, of arms that the task has."""
    from perfci.core.model.measured import BASE, KERNEL, REFERENCE
    from perfci.measure.blocks import MOST_BLOCKS

    task, block = said.task, message.block
    timed = BASE if task.opening.arm == BASE else KERNEL
    arms = {KERNEL, REFERENCE, timed, *((BASE,) if task.base else ())}
    sound = timed in block.arms and all(arm in arms or is_peer(arm) for arm in block.arms)
    sound = sound and set(block.arms) == set(message.launches_us) and all(message.launches_us.values())
    sound = sound and block.shifts.keys() <= {f"{KERNEL}/{arm}" for arm in block.arms}
    return block.index if sound and block.process == task.process and block.index < MOST_BLOCKS else None


def of_end(said: Said, message: OpDone) -> Subject:
    """The end. That nothing can be timed is for the device to report. What suites ask less of has a name."""
    weaker = message.change.weaker if message.change else ()
    is_told = all(isinstance(reason.facts.get("what"), str) for reason in weaker)
    return "it" if is_told and (message.unmeasured is None or said.task.opening.device in UNTIMED) else None


# --- what no message may have -----------------------------------------------------------------------------------------


def find_forged(record: Any) -> str | None:
    """Returns the name of a field that perfci alone writes, and that a message has written. None if there is none."""
    if isinstance(record, Reason) and record.kind in RESERVED:
        return f"the reason {record.kind}"
    kind: Any = type(record)
    for name, by_perfci in _list_fields(kind):
        value = getattr(record, name)
        if by_perfci and value:
            return name
        parts: Iterable[Any] = value.values() if isinstance(value, dict) else value
        for part in parts if isinstance(value, dict | tuple) else (value,):
            if type(part).__module__ != "builtins" and (forged := find_forged(part)):
                return forged
    return None


@functools.cache
def _list_fields(kind: type) -> tuple[tuple[str, bool], ...]:
    """A record's fields, and whether perfci alone writes each. Nothing for what is no record."""
    return tuple((entry.name, is_by_perfci(entry)) for entry in fields(kind)) if is_dataclass(kind) else ()


def describe(message: Any) -> str:
    """Returns a message's kind and what it is about, in a few words."""
    words = [type(message).__name__]
    subject = getattr(message, "case", None) or getattr(message, "op", None)
    subject = getattr(subject, "case", subject)
    words += [f"of {subject[:80]}"] if isinstance(subject, str) else []
    if block := getattr(message, "block", None):
        words.append(f"with block {block.index} of process {block.process}")
    if kind := getattr(getattr(message, "reason", None), "kind", None):
        words.append(f"with the reason {kind[:80]}")
    return " ".join(words)


LONGEST = 1 << 25
"""Bytes of a message at most: an op that writes into the pipe itself would fill this process's memory."""

MOST = 1 << 17  # messages of a worker, without its signs of life


class Inbox:
    """The messages of one worker."""

    def __init__(self, task: Any) -> None:
        self._task, self._rest = task, b""
        self._said = Said(task, Doing("start", task.op if task.place.ops else type(task).__name__.lower()))
        self._counts = Counter[Any]()  # messages, by kind and what they are about
        self._steps: dict[str, int] = {}  # the last step of each case
        self.asking = False  # its last message is to be answered
        self.done = False  # it has sent its last message
        self.memory: int | None = None  # the file system in which its processes share memory, once it has begun
        self.failure: Reason | None = None  # why it has failed, in its words
        self.breach: tuple[str, dict[str, Fact]] | None = None
        """kind and facts of the reason by which it has broken the rules of what may be sent"""

    @property
    def doing(self) -> Doing:
        """What it is at."""
        return self._said.doing

    def take(self, data: bytes) -> list[Message]:
        """Returns the messages that came whole with what was read. Nothing after one that ends the worker."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        heard: list[Message] = []
        for line in whole:
            try:
                message = unpack(line + b"\n", self._task.answers)
            except UnaskedError as error:
                self.breach = "worker_unasked", {"message": str(error)}
                return heard
            except (ValueError, PerfciError):
                continue  # user code wrote into the pipe
            if unasked := self._find_breach(message):
                self.breach = "worker_unasked", {"message": unasked}
                return heard
            if isinstance(message, Failed):
                self.failure = message.reason
                return heard
            self._note(message)
            heard += [] if isinstance(message, Began) else [message]
        if len(self._rest) > LONGEST or self._counts.total() > MOST:
            self.breach = "worker_flooded", {"size": LONGEST}
        return heard

    def _note(self, message: Message) -> None:
        if isinstance(message, Doing):
            self._said.doing = message
        elif isinstance(message, Ready):
            self._said.device = message.device
        elif isinstance(message, Began):
            self.memory = message.memory
        self.asking |= isinstance(message, TurnAsked | Called)
        self.done = self.done or self._task.ends(message)

    def _find_breach(self, message: Message) -> str | None:
        """Returns what is wrong with a message. None if it may come now."""
        rule, kind = self._task.answers[type(message)], type(message)
        subject = rule.about(self._said, message)
        if isinstance(message, Failed):
            return None if self._may_fail(message.reason.kind) else describe(message)
        if field := find_forged(message):
            return f"{describe(message)} with {field}"
        if subject is None or self.done or (self.asking and kind in {TurnAsked, Called}):
            return describe(message)
        key = (kind, rule.case and rule.case(message), subject)
        if rule.most or not isinstance(message, Doing):
            self._counts[key] += 1
        is_late = rule.case is not None and not self._takes_step(rule, rule.case(message))
        return describe(message) if is_late or (rule.most and self._counts[key] > rule.most) else None

    def _may_fail(self, kind: str) -> bool:
        """Whether this reason may end a worker. That the device is gone can be known before an op is imported alone."""
        return kind != LATE and (kind != GONE or self._said.device is None or self._task.is_judge)

    def _takes_step(self, rule: Rule, case: str) -> bool:
        """Whether a case's message comes in its turn."""
        last = self._steps.get(case, 0)
        self._steps[case] = rule.step
        return max(last, 1) <= rule.step and (last > 0 or rule.step == 1)
