"""The one seam between perfci and hardware: `open_device` gives an `Accelerator`; nothing else knows its peculiarities.

seam      what every device offers
cuda cpu fake      the devices; the fake one ships, is deterministic and needs no torch
tensors   torch's half of the seam: inputs, guards, comparisons
activity events    timers of CUDA devices: CUPTI records first, event pairs as the fallback
nvml lock          device state without torch; one perfci a device
capture            what a call does: torch operations, launches (noted, launches, source beside it)
offline            a device that is not there: compiles and launches nothing (stub, board, virtual, tuning, targets)
artefacts          registers, spills, instructions, occupancy of a binary (disassembly, instructions, occupancy)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfci.device.seam import Accelerator, Arrays, Launch, Session
from perfci.errors import DeviceError, UsageError

__all__ = ["KINDS", "Accelerator", "Arrays", "Launch", "Session", "detect", "open_device"]

KINDS = ("auto", "cuda", "cpu", "fake")
"""What `--device` takes."""


def detect() -> str:
    """The best device that this process could open: cuda, or cpu; imports torch, so only workers call it."""
    try:
        import torch
    except ImportError as error:
        raise DeviceError("torch_missing") from error
    return "cuda" if torch.cuda.is_available() else "cpu"


def open_device(kind: str, *, seed: int, timer: str = "auto", fake: Mapping[str, Any] | None = None) -> Accelerator:
    """Open a device by kind; `timer` is auto, activity or event; `fake` holds `[tool.perfci.fake]`."""
    if kind == "fake":
        from perfci.device.fake import FakeDevice, FakeSpec

        return FakeDevice(FakeSpec.read(fake or {}), seed)
    if kind == "cpu":
        from perfci.device.cpu import CpuDevice

        return CpuDevice()
    if kind == "cuda":
        from perfci.device.cuda import CudaDevice

        return CudaDevice(timer)
    raise UsageError("unknown_device", device=kind, known=", ".join(KINDS))
