"""What workers that compile beforehand are asked."""

from dataclasses import dataclass
from typing import ClassVar

from perfci.core.model import Device, Suite
from perfci.device.nvml import NvmlBoard
from perfci.extensions.common.targets import TARGETS
from perfci.worker.answers import Answers, Rule, of_case
from perfci.worker.protocol import OpDone, Prepared
from perfci.worker.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Precompile(Task):
    """Compile what an op's cases launch for the device at hand, without it. Its workers share the cache."""

    performer = "perfci.extensions.offline.precompile:run"
    answers: ClassVar[Answers] = {**Task.answers, Prepared: Rule(of_case), OpDone: Rule()}
    last = (OpDone,)

    board: Device  # to compile for
    target: str  # that it is
    behind: bool = False  # other ops are looked at meanwhile: their processes go first
    of_base: bool = False  # of the accuracy suite only what is compared with the change's kernel
    part: tuple[int, int] = (0, 1)  # of the cases: every how many, from which on
    suites: tuple[Suite, ...] = (Suite.ACCURACY, Suite.PERFORMANCE)
    pattern: str | None = None
    cases: tuple[str, ...] | None = None

    @staticmethod
    def find_target(board: Device) -> str | None:
        """Returns the target that a board is, as its driver says. None if perfci does not know it."""
        capability = NvmlBoard(board.uuid).capability()
        name = "sm_{}{}".format(*capability) if capability else ""
        return name if name in TARGETS else None
