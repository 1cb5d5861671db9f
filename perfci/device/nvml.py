"""NVIDIA's management library: what a board is doing, without torch and without a context on it. The home of pynvml."""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from perfci.core.model import DeviceState

_THROTTLE = {  # bits of the clocks-event reasons (nvml.h), without idle and application clocks
    0x4: "power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost", 0x20: "thermal", 0x40: "thermal", 0x80: "power_brake",
}  # fmt: skip
_SENT_KIB, _ALL_LINKS = 138, 0xFFFFFFFF  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, and its scope for all links (nvml.h)
_MIG = " MIG "  # how a slice's name goes on behind the board's


class NvmlBoard:
    """One board by its UUID. Every reading is None if the library or the driver does not give it."""

    def __init__(self, uuid: str | None = None, index: int = 0) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = _find_by_uuid(pynvml, uuid) if uuid else pynvml.nvmlDeviceGetHandleByIndex(index)
            self._nvml = pynvml
        except Exception:
            self._nvml = None

    def driver(self) -> str | None:
        return self._ask("nvmlSystemGetDriverVersion", of_board=False)

    def uuid(self) -> str | None:
        return self._ask("nvmlDeviceGetUUID")

    def name(self) -> str | None:
        return self._ask("nvmlDeviceGetName")

    def mig(self, name: str | None = None, processors: int | None = None) -> str | None:
        """The slice, as its maker calls it (1g.18gb), or by the runtime's processors. None for a whole board."""
        named = next((title for title in (name, self.name()) if title and _MIG in title), None)
        if named:
            return named.partition(_MIG)[2].strip() or None
        if self._ask("nvmlDeviceIsMigDeviceHandle"):
            attributes = self._ask("nvmlDeviceGetAttributes")
            slices, megabytes = (
                getattr(attributes, attribute, None) for attribute in ("gpuInstanceSliceCount", "memorySizeMB")
            )
            if slices and megabytes:
                return f"{slices}g.{math.ceil(megabytes / 1024)}gb"
        elif not next(iter(self._ask("nvmlDeviceGetMigMode") or ()), 0):  # now, and after the next reset
            return None
        return f"{processors}sm" if processors else "slice"

    def capability(self) -> tuple[int, int] | None:
        """CUDA's compute capability."""
        return self._ask("nvmlDeviceGetCudaComputeCapability")

    def power_limit_w(self) -> float | None:
        """The board's power limit, watts. Of a slice, the whole board's."""
        return self._watts("nvmlDeviceGetEnforcedPowerLimit")

    def highest_clock_mhz(self) -> float | None:
        """Of the processors."""
        return self._ask("nvmlDeviceGetMaxClockInfo", 1)

    @contextmanager
    def watch_energy(self) -> Iterator[list[tuple[float, float]]]:
        """Collect when the board's energy counter changes, by `perf_counter`, and what it shows then, joules.

        It changes some ten times a second, and to read it takes milliseconds. So a separate thread reads it.
        """
        ticks, over = list[tuple[float, float]](), threading.Event()

        def watch() -> None:
            last = self._ask("nvmlDeviceGetTotalEnergyConsumption")
            while last is not None and not over.wait(0.002):
                now = self._ask("nvmlDeviceGetTotalEnergyConsumption")
                if now is not None and now != last:
                    ticks.append((perf_counter(), now / 1000))
                    last = now

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield ticks
        finally:
            over.set()
            thread.join()

    def key(self, name: str, processors: int | None = None) -> str:
        """Folder of the baselines: of the model, and what it is held to where that is not what it comes with."""
        usual_w = self._watts("nvmlDeviceGetPowerManagementDefaultLimit")
        return device_key(name, self.mig(name, processors), self.power_limit_w(), usual_w)

    def state(self) -> DeviceState:
        power = self._ask("nvmlDeviceGetPowerUsage")
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses")
        return DeviceState(
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", 1),
            memory_clock_mhz=self._ask("nvmlDeviceGetClockInfo", 2),
            temperature_c=self._ask("nvmlDeviceGetTemperature", 0),
            power_w=None if power is None else power / 1000,
            throttle=throttle_names(self._ask("nvmlDeviceGetCurrentClocksEventReasons") or 0),
            # In a container the library has the host's process numbers, so one of the strangers is this process.
            foreign_processes=None if processes is None else max(len(processes) - 1, 0),
            ecc_errors=self._ask("nvmlDeviceGetTotalEccErrors", 1, 0),  # uncorrected, volatile
        )

    def read_links(self) -> int | None:
        """Bytes of data that were sent over all NVLinks, since a time that the driver knows."""
        values = self._ask("nvmlDeviceGetFieldValues", [(_SENT_KIB, _ALL_LINKS)]) or ()
        return next((int(value.value.ullVal) * 1024 for value in values if not value.nvmlReturn), None)

    def _watts(self, function: str) -> float | None:
        board = self._ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
        milliwatts = self._ask(function) if board is None else self._ask(function, board, of_board=False)
        return None if milliwatts is None else milliwatts / 1000

    def _ask(self, function: str, *arguments: Any, of_board: bool = True) -> Any:
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


def device_key(name: str, mig: str | None = None, limit_w: float | None = None, usual_w: float | None = None) -> str:
    """Folder name of a model. A slice of one, and one held to another power than its maker's, are devices of their own.

    >>> device_key("NVIDIA H200"), device_key("NVIDIA A100-SXM4-80GB")
    ('nvidia-h200', 'nvidia-a100-sxm4-80gb')
    >>> device_key("NVIDIA H200", "1g.18gb"), device_key("NVIDIA H200 MIG 1g.18gb", "1g.18gb")
    ('nvidia-h200-mig-1g.18gb', 'nvidia-h200-mig-1g.18gb')
    >>> device_key("NVIDIA H200", None, 700.0, 700.0), device_key("NVIDIA H200", None, 450.0, 700.0)
    ('nvidia-h200', 'nvidia-h200-450w')
    """
    key = "-".join(name.lower().split())
    if mig and not key.endswith(f"-{mig.lower()}"):
        key += f"-mig-{mig.lower()}"
    held = limit_w is not None and usual_w is not None and abs(limit_w - usual_w) >= 1.0
    return f"{key}-{limit_w:.0f}w" if held else key


def _find_by_uuid(library: Any, uuid: str) -> Any:
    """The runtime gives a slice's identifier as it does a board's. The library has them begin otherwise."""
    try:
        return library.nvmlDeviceGetHandleByUUID(uuid)
    except Exception:
        if not uuid.startswith("GPU-"):
            raise
        return library.nvmlDeviceGetHandleByUUID(f"MIG-{uuid.removeprefix('GPU-')}")
