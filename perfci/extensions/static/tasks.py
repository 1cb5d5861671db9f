"""What workers of this extension are asked for."""

from dataclasses import dataclass

from perfci.core.model import Coverage, StaticOp
from perfci.worker.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Compile(Task):
    """Compile the performance cases of ops for one target, on a machine without a device."""

    performer = "perfci.extensions.static.compiled:run"
    answers = (*Task.answers, StaticOp)
    last = (StaticOp,)

    target: str  # sm_90, gfx942
    pattern: str | None = None
    cases: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Cover(Task):
    """Find out what an op's accuracy cases exercise of what its performance cases time, without launching any."""

    performer = "perfci.extensions.static.covered:run"
    answers = (*Task.answers, Coverage)
    last = (Coverage,)

    target: str
    propose: bool = False  # cases for what accuracy never exercises, which take many calls
