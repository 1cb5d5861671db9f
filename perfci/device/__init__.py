"""The one seam between perfci and hardware: `open_device` returns an `Accelerator`.

seam arrays   what every device and its arrays offer
cuda cpu fake   the devices; the fake one ships, is deterministic and needs no torch. Extensions bring others
torch_device tensors   what devices of torch share; inputs, guards and comparisons by torch
numpy_arrays           the same of the fake device, by numpy
timers      records of CUPTI first, event pairs as the fallback
nvml        device state without torch
launches capture source   what a call does: launches, torch operations, sources
replay                 a call as data, and the same call repeated from it
targets                architectures to compile for, and their Triton
"""

from collections.abc import Mapping
from typing import Any, Protocol

from perfci.core import extensions
from perfci.core.errors import DeviceError, UsageError
from perfci.device.seam import Accelerator

KINDS = ("auto", "cuda", "npu", "cpu", "fake")  # what `--device` takes


class DeviceKind(Protocol):
    """Hardware that an extension brings."""

    name: str

    @staticmethod
    def shun_plugin() -> None:
        """Before torch is imported: keep it from loading the hardware's plugin by itself."""

    @staticmethod
    def is_here() -> bool:
        """Whether this process could open such a device. Raises DeviceError for one that can not be opened."""

    @staticmethod
    def open(timer: str) -> Accelerator:
        """Open the device. Raises DeviceError."""


def detect() -> str:
    """The best device that this process could open: cuda, one of an extension, or cpu. Imports torch: for workers."""
    # If there are both kinds, a torch built for CUDA takes the GPU.
    kinds = _read_kinds()
    for kind in kinds.values():
        kind.shun_plugin()
    try:
        import torch
    except ImportError as error:
        raise DeviceError("torch_missing") from error
    if torch.cuda.is_available():
        return "cuda"
    return next((name for name, kind in kinds.items() if kind.is_here()), "cpu")


def open_device(kind: str, *, seed: int, timer: str = "auto", fake: Mapping[str, Any] | None = None) -> Accelerator:
    """Open a device by kind. `timer` is auto, activity or event. `fake` holds `[tool.perfci.fake]`."""
    if kind == "fake":
        from perfci.device.fake import FakeDevice, FakeSpec

        return FakeDevice(FakeSpec.read(fake or {}), seed)
    if kind == "cpu":
        from perfci.device.cpu import CpuDevice

        return CpuDevice()
    kinds = _read_kinds()
    if kind == "cuda":
        for other in kinds.values():
            other.shun_plugin()
        from perfci.device.cuda import CudaDevice

        return CudaDevice(timer)
    if kind not in kinds:
        raise UsageError("unknown_device", device=kind, known=", ".join(KINDS))
    return kinds[kind].open(timer)


def _read_kinds() -> dict[str, DeviceKind]:
    return {kind.name: kind for kind in extensions.provided("device")}
