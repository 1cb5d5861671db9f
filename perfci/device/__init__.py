"""The one seam between perfci and hardware: `open_device` gives an `Accelerator`; nothing else knows its peculiarities.

seam      what every device offers
cuda npu cpu fake  the devices; the fake one ships, is deterministic and needs no torch
tensors   torch's half of the seam: inputs, guards, comparisons
activity events    timers of CUDA devices: CUPTI records first, event pairs as the fallback
npu_runtime        torch_npu and triton-ascend loaded in their order, and why they are not; npu_host: what to mend
npu_flush npu_profiler npu_events   the same timers on Ascend: the chip's records, else events
endurance          memory by two accounts, streams and room, for `perfci check --soak`
nvml npu_smi lock  device state without torch; one perfci a device
capture            what a call does: torch operations, launches (noted, launches, source beside it)
offline            a device that is not there: compiles and launches nothing (stub, board, virtual, tuning, targets);
                   npu_offline: as far as triton-ascend does that without CANN
ceilings deviations  how fast a device copies at best; errors of outputs too large for the host
rehearsal sketched functions called to see what they take; other people's functions on another device than their own
artefacts          registers, spills, instructions, occupancy of a binary (disassembly, instructions, occupancy)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfci.core.errors import DeviceError, UsageError
from perfci.device.seam import Accelerator

KINDS = ("auto", "cuda", "npu", "cpu", "fake")
"""What `--device` takes."""


def detect() -> str:
    """The best device that this process could open: cuda, npu or cpu; imports torch, so only workers call it.

    torch serves one accelerator a process, so where a host has both kinds the torch that is installed decides: a CUDA
    build that sees a GPU takes it, any other leaves the NPU to torch_npu. An NPU that is there and cannot be opened is
    an error, not a CPU.
    """
    from perfci.device import npu_runtime

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
        if npu_runtime.has_nodes():
            raise
        return "cpu"
    return "npu"


def open_device(kind: str, *, seed: int, timer: str = "auto", fake: Mapping[str, Any] | None = None) -> Accelerator:
    """Open a device by kind; `timer` is auto, activity or event; `fake` holds `[tool.perfci.fake]`."""
    if kind == "fake":
        from perfci.device.fake import FakeDevice, FakeSpec

        return FakeDevice(FakeSpec.read(fake or {}), seed)
    if kind == "cpu":
        from perfci.device.cpu import CpuDevice

        return CpuDevice()
    if kind == "cuda":
        from perfci.device import npu_runtime

        npu_runtime.shun_plugin()
        from perfci.device.cuda import CudaDevice

        return CudaDevice(timer)
    if kind == "npu":
        from perfci.device import npu_runtime

        npu = npu_runtime.load()  # before Triton, which the device's own module imports
        npu_runtime.check_triton()
        from perfci.device.npu import NpuDevice

        return NpuDevice(npu, timer)
    raise UsageError("unknown_device", device=kind, known=", ".join(KINDS))
