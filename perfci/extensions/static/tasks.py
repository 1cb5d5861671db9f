"""Tasks of this extension's workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from perfci.core.model import Coverage, CoverageGap, Feature, Reason, StaticOp, Suite
from perfci.worker.answers import Answers, Rule, Said, Subject, of_op
from perfci.worker.tasks import Task


@dataclass(frozen=True)
class Exercised:
    """What the launches of one call exercise."""

    op: str
    target: str
    suite: Suite | None  # None: lines alone, of a call on a machine without the target, or of a soak
    case: str
    features: tuple[Feature, ...] = ()
    lines: tuple[str, ...] = ()  # of jitted functions: FILE:LINE
    unseen: Reason | None = None  # why they could not be looked through


@dataclass(frozen=True)
class Covered:
    """The end of an op."""

    op: str
    target: str
    lines: tuple[str, ...] = ()  # of all jitted functions
    add: Mapping[str, str] = field(default_factory=dict)  # performance case -> cases to add, as Python
    failure: Reason | None = None


def conclude(said: Sequence[Exercised], end: Covered) -> Coverage:
    """Returns what accuracy exercises of what is timed. A feature counts for the first case that has it."""
    seen = {feature for call in said if call.suite is Suite.ACCURACY for feature in call.features}
    gaps = []
    for call in said:
        missing = set(call.features) - seen if call.suite is Suite.PERFORMANCE else set[Feature]()
        if missing:
            gaps.append(CoverageGap(call.case, tuple(sorted(missing)), end.add.get(call.case)))
            seen |= missing
    places = [place.rpartition(":") for place in {*end.lines} - {line for call in said for line in call.lines}]
    unrun = tuple(f"{file}:{line}" for file, _, line in sorted(places, key=lambda place: (place[0], int(place[2]))))
    unseen = [call for call in said if call.unseen]
    timed = next((call.unseen for call in unseen if call.suite is Suite.PERFORMANCE), None)
    cases = tuple(dict.fromkeys(call.case for call in unseen))
    return Coverage(end.op, end.target, tuple(gaps), unrun, cases, end.failure or timed)


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
