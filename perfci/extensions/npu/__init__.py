"""Ascend NPUs, through torch_npu and triton-ascend. Nothing here has run on a chip yet: see docs/npu.md.

runtime     torch_npu and triton-ascend loaded in their order
device      the device
kind        what the gate asks of it
profiler    records of Ascend's profiler
targets     NPUs that kernels are compiled for without one
smi         device state without torch
host        what stands in their way on a machine
hivm        kernels lowered by the chips' compiler, without a chip
report_back one file from a machine with a chip
"""

from perfci.core.extensions import Extension

EXTENSION = Extension(
    provides={
        "device": ("perfci.extensions.npu.kind:NpuKind",),
        "target": ("perfci.extensions.npu.targets:TARGETS",),
        "doctor": ("perfci.extensions.npu.host:look",),
        "report_back": ("perfci.extensions.npu.report_back:write",),
    }
)
