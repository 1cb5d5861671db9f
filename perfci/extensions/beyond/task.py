"""The task of a worker that looks beyond an op's suite."""

from dataclasses import dataclass
from typing import ClassVar

from perfci.core.model import AccuracyCase
from perfci.worker.answers import Answers, Rule
from perfci.worker.protocol import OpDone
from perfci.worker.tasks import DeviceTask


@dataclass(frozen=True, kw_only=True)
class LookBeyond(DeviceTask):
    """Shrink a wrong case of an op."""

    performer = "perfci.extensions.beyond.work:perform"
    answers: ClassVar[Answers] = {**DeviceTask.answers, AccuracyCase: Rule(most=None), OpDone: Rule()}
    last = (OpDone,)

    wrong: AccuracyCase  # as the check of the op had it
    budget_s: float  # when to end with what was found by then
