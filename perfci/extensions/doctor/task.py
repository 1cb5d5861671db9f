"""What a worker is asked about a device: its state, and which timer works on it."""

from dataclasses import dataclass
from typing import ClassVar

from perfci.core.model import DeviceState
from perfci.worker.answers import Answers, Rule, of_device
from perfci.worker.describe import open_asked
from perfci.worker.protocol import MessageChannel, Ready
from perfci.worker.tasks import DeviceTask, Task


@dataclass(frozen=True)
class Examined:
    """What the device is doing, and which timer works on it."""

    state: DeviceState
    timer: str | None


@dataclass(frozen=True, kw_only=True)
class Examine(DeviceTask):
    """Report what the device is doing and which timer works on it."""

    performer = f"{__name__}:examine"
    answers: ClassVar[Answers] = {**Task.answers, Ready: Rule(of_device), Examined: Rule()}
    last = (Examined,)


def examine(task: Examine, channel: MessageChannel) -> None:
    """Report what the device is doing and which timer works on it."""
    device = open_asked(task)
    channel.send(Ready(device.info))
    if device.absent is None:
        device.start_timer()
    channel.send(Examined(device.state(), device.timer))
