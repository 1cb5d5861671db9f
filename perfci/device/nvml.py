"""NVIDIA's management library: what a board is doing, without torch and without a context on it. The home of pynvml."""

from __future__ import annotations

import os
from typing import Any

from perfci.model import Device, DeviceState

_THROTTLE = {
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "thermal",
    0x40: "thermal",
    0x80: "power_brake",
}
"""Bits of the clocks-event reasons (nvml.h); idle and application clocks are no throttling."""


class Board:
    """One board by its UUID; every reading is None where the library or the driver does not give it."""

    def __init__(self, uuid: str | None = None, index: int = 0) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else pynvml.nvmlDeviceGetHandleByIndex(index)
            self._nvml = pynvml
        except Exception:
            self._nvml = None

    @property
    def present(self) -> bool:
        """Whether the board answers."""
        return self._nvml is not None

    def driver(self) -> str | None:
        """Driver version."""
        return self._ask("nvmlSystemGetDriverVersion", of_board=False)

    def uuid(self) -> str | None:
        """The board's own identifier."""
        return self._ask("nvmlDeviceGetUUID")

    def name(self) -> str | None:
        """The model's name."""
        return self._ask("nvmlDeviceGetName")

    def state(self, *, own_context: bool = True) -> DeviceState:
        """Clocks, temperature, power, throttle reasons and foreign processes now."""
        power = self._ask("nvmlDeviceGetPowerUsage")
        return DeviceState(
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", 1),
            memory_clock_mhz=self._ask("nvmlDeviceGetClockInfo", 2),
            temperature_c=self._ask("nvmlDeviceGetTemperature", 0),
            power_w=None if power is None else power / 1000,
            throttle=throttle_names(self._ask("nvmlDeviceGetCurrentClocksEventReasons") or 0),
            foreign_processes=self._foreign(own_context),
        )

    def describe(self) -> Device | None:
        """The board as far as it can be told without torch; None where there is none."""
        name = self.name()
        if name is None:
            return None
        return Device("cuda", name, device_key(name), self.uuid(), self.driver())

    def _foreign(self, own_context: bool) -> int | None:
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses")
        if processes is None:
            return None
        others = [process for process in processes if process.pid != os.getpid()]
        # In a container the library counts in the host's process numbers, so one of the strangers is this process.
        unseen = own_context and len(others) == len(processes)
        return max(len(others) - unseen, 0)

    def _ask(self, function: str, *arguments: int, of_board: bool = True) -> Any:
        if self._nvml is None:
            return None
        try:
            handle = (self._handle,) if of_board else ()
            return getattr(self._nvml, function)(*handle, *arguments)
        except Exception:
            return None


def throttle_names(bits: int) -> tuple[str, ...]:
    """Names of the reasons in a clocks-event bit mask.

    >>> throttle_names(0x4 | 0x40)
    ('power_cap', 'thermal')
    """
    return tuple(dict.fromkeys(name for bit, name in _THROTTLE.items() if bits & bit))


def device_key(name: str) -> str:
    """Folder name of a model.

    >>> device_key("NVIDIA H200"), device_key("NVIDIA A100-SXM4-80GB")
    ('nvidia-h200', 'nvidia-a100-sxm4-80gb')
    """
    return "-".join(name.lower().split())
