"""The tune task, and what it answers."""

from dataclasses import dataclass
from typing import ClassVar

from perfci.extensions.lab.tune.records import Attempt, Config, Regime
from perfci.worker.answers import Answers, Rule
from perfci.worker.protocol import OpDone
from perfci.worker.tasks import DeviceTask


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


@dataclass(frozen=True, kw_only=True)
class Tune(DeviceTask):
    """Search an op's configurations on the device."""

    performer = "perfci.extensions.lab.tune.trials:run"
    answers: ClassVar[Answers] = {
        **DeviceTask.answers,
        Regimes: Rule(),
        Trying: Rule(most=None),
        Attempt: Rule(most=None),
        OpDone: Rule(),
    }
    last = (OpDone,)

    pattern: str | None = None
    until_s: float | None = None  # when to come to an end, seconds since the epoch
    known: tuple[Attempt, ...] = ()  # what an interrupted search has found out
    alone: bool = False  # one candidate at a time, to find out which one killed a worker
