"""The task to rehearse functions that a new op is made of, and what it answers."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from perfci.core import extensions
from perfci.core.errors import DeviceError, PerfciError
from perfci.core.model import Reason
from perfci.core.wording import say
from perfci.extensions.adopt.sketch import Sketch, SketchFiles
from perfci.worker.answers import Answers, Rule, of_op
from perfci.worker.protocol import Doing, MessageChannel
from perfci.worker.tasks import Task

_PAUSE_S = 2.0  # between reports of a search


@dataclass(frozen=True)
class Sketched:
    """A sketch of the functions that a new op is made of, or why there is none."""

    op: str
    sketch: Sketch | None = None
    failure: Reason | None = None


@dataclass(frozen=True, kw_only=True)
class Rehearse(Task):
    """Import functions and rehearse them, to find out what an op of them takes."""

    performer = "perfci.extensions.adopt.task:run"
    answers: ClassVar[Answers] = {
        **Task.answers,
        Sketched: Rule(of_op),
    }
    last = (Sketched,)

    sketches: Mapping[str, SketchFiles]  # by the new op's name, in the order of the ops


def run(task: Rehearse, channel: MessageChannel) -> None:
    """Report what was found out about each of the task's sketches."""
    send = channel.send
    send(Doing("import", task.op))
    try:
        for correct in extensions.provided("interpreter"):
            correct()
        from perfci.extensions.adopt.rehearsal import function
    except ImportError as error:
        raise DeviceError("new_needs_torch", error=str(error)) from error
    for op, files in task.sketches.items():
        try:
            send(Sketched(op, function.find(op, files, _report_steps(op, channel))))
        except PerfciError as error:
            send(Sketched(op, failure=error.reason))


def _report_steps(op: str, channel: MessageChannel) -> Callable[[str], None]:
    """Returns a function that hears each step of an op's search, and reports one now and then."""
    reported_s = -math.inf

    def step(tried: str) -> None:
        nonlocal reported_s
        if time.monotonic() - reported_s > _PAUSE_S:
            reported_s = time.monotonic()
            channel.send(Doing("rehearsal", op, tried))

    return step


def describe_stages() -> Mapping[str, str]:
    """The stage of this extension's worker, and its line of progress."""
    return {"rehearsal": say("trying how it is called")}
