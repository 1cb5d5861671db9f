"""What a worker may answer: a rule for each kind of message. Code of a merge request can write any of them."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from perfci.core.model import (
    UNTIMED,
    AccuracyCase,
    Device,
    HostBlock,
    Reason,
    Suite,
    SustainedTurn,
    is_by_perfci,
    is_peer,
)
from perfci.core.model.run import UNCHECKED
from perfci.core.stages import OF_BASE
from perfci.worker.handover import VIRTUAL
from perfci.worker.protocol import (
    DONE,
    Began,
    Doing,
    Finished,
    LockAsked,
    Measured,
    OpDone,
    Prepared,
    Ready,
    Refused,
    Timing,
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
    from perfci.measure.bench import BASE, KERNEL, REFERENCE  # which the worker's side does not need
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
    for entry in fields(record):
        value = getattr(record, entry.name)
        if is_by_perfci(entry) and value:
            return entry.name
        parts: Iterable[Any] = value.values() if isinstance(value, Mapping) else value
        for part in parts if isinstance(value, Mapping | tuple) else (value,):
            if is_dataclass(part) and (name := find_forged(part)):
                return name
    return None


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
