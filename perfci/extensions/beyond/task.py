"""The task of a worker that looks beyond an op's suite."""

from dataclasses import dataclass
from typing import ClassVar

from perfci.core.model import AccuracyCase
from perfci.worker.answers import Answers, Rule
from perfci.worker.protocol import OpDone
from perfci.worker.tasks import DeviceTask

SHRINK_S = 20.0
"""Seconds in which a wrong case is shrunk. Softmax in the interpreter needs one or two."""


@dataclass(frozen=True, kw_only=True)
class LookBeyond(DeviceTask):
    """Shrink a wrong case of an op, or look for what its suite does not check."""

    performer = "perfci.extensions.beyond.work:perform"
    answers: ClassVar[Answers] = {**DeviceTask.answers, AccuracyCase: Rule(most=None), OpDone: Rule()}
    last = (OpDone,)

    wrong: AccuracyCase | None = None  # what is shrunk. None: what the suite does not check is looked for
    pattern: str | None = None  # of cases
    budget_s: float | None = SHRINK_S  # for shrinking, or for configurations. None: all are checked
    watched: bool = False  # a sanitizer watches: each probe case is called once, and nothing else is done
    traced: bool = False  # fpsan is compiled in: what each call gives is told, and nothing is checked
    chosen: tuple[str, ...] = ()  # configurations that timed calls chose, the most frequent first
