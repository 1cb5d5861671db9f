"""The one seam between perfci and hardware: `open_device` returns an `Accelerator`.

seam        what every device offers
cuda npu cpu fake   the devices; the fake one ships, is deterministic and needs no torch
torch_device tensors   what CUDA and NPU devices share; inputs, guards and comparisons by torch
timers npu_profiler    records of CUPTI and of Ascend's profiler first, event pairs as the fallback
npu_runtime npu_host   torch_npu and triton-ascend loaded in their order; what stands in their way
nvml npu_smi           device state without torch
launches capture source   what a call does: launches, torch operations, sources
replay                 a call as data, and the same call repeated from it
offline board virtual targets   a device that is not there: compiles, and launches nothing
binaries               registers, spills, instructions and occupancy of a binary
interpreter arithmetic   Triton's interpreter, corrected
rehearsal sketched     functions called to see what they take; other people's functions on another device
"""

from collections.abc import Mapping
from typing import Any

from perfci.core.errors import DeviceError, UsageError
from perfci.device import npu_runtime
from perfci.device.seam import Accelerator

KINDS = ("auto", "cuda", "npu", "cpu", "fake")  # what `--device` takes


def detect() -> str:
    """The best device that this process could open: cuda, npu or cpu. Imports torch, so only workers call it."""
    # If there are both kinds, a torch built for CUDA takes the GPU. An NPU that can't be opened is an error, not a CPU.
    npu_runtime.shun_plugin()
    try:
        import torch
    except ImportError as error:
        raise DeviceError("torch_missing") from error
    if torch.cuda.is_available():
        return "cuda"
    if not npu_runtime.npu_installed():
        return "cpu"
    try:
        npu_runtime.load()
    except DeviceError:
        if npu_runtime.nodes():
            raise
        return "cpu"
    return "npu"


def open_device(kind: str, *, seed: int, timer: str = "auto", fake: Mapping[str, Any] | None = None) -> Accelerator:
    """Open a device by kind. `timer` is auto, activity or event. `fake` holds `[tool.perfci.fake]`."""
    if kind == "fake":
        from perfci.device.fake import FakeDevice, FakeSpec

        return FakeDevice(FakeSpec.read(fake or {}), seed)
    if kind == "cpu":
        from perfci.device.cpu import CpuDevice

        return CpuDevice()
    if kind == "cuda":
        npu_runtime.shun_plugin()
        from perfci.device.cuda import CudaDevice

        return CudaDevice(timer)
    if kind == "npu":
        npu = npu_runtime.load()  # before Triton, which the device's own module imports
        npu_runtime.check_triton()
        from perfci.device.npu import NpuDevice

        return NpuDevice(npu, timer)
    raise UsageError("unknown_device", device=kind, known=", ".join(KINDS))
