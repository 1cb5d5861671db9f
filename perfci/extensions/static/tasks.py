"""Tasks of this extension's workers."""

from dataclasses import dataclass
from typing import Any, ClassVar

from perfci.core.model import StaticOp
from perfci.extensions.static.gaps import Covered, Exercised
from perfci.worker.answers import Answers, Rule, Said, Subject, of_op
from perfci.worker.tasks import Task


def of_target(said: Said, message: Any) -> Subject:
    """An op of the task, for its target."""
    return of_op(said, message) if message.target == said.task.target else None


@dataclass(frozen=True, kw_only=True)
class Compile(Task):
    """Compile the performance cases of ops for one target, on a machine without a device."""

    performer = "perfci.extensions.static.compiled:run"
    answers: ClassVar[Answers] = {**Task.answers, StaticOp: Rule(of_target)}
    last = (StaticOp,)

    target: str  # sm_90, gfx942
    pattern: str | None = None
    cases: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Cover(Task):
    """Find out what an op's accuracy cases exercise of what its performance cases time, without launching any."""

    performer = "perfci.extensions.static.covered:run"
    answers: ClassVar[Answers] = {**Task.answers, Exercised: Rule(of_target, most=None), Covered: Rule(of_target)}
    last = (Covered,)

    target: str
    propose: bool = False  # cases for what accuracy never exercises, which take many calls
