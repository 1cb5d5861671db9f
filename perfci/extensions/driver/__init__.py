"""Kernels of any compiler, seen at NVIDIA's driver. Without it other launches than Triton's are not seen.

callbacks   what this process loads and launches, as CUPTI tells of it
launching   a cubin's kernel, launched with given bytes
shared_memory  what a kernel finds there, before calls that are checked
steps       such work as steps of a recording, taken down and repeated
"""

from perfci.core.extensions import Extension

HERE = "perfci.extensions.driver"

EXTENSION = Extension(provides={"driver": (f"{HERE}.steps:DriverSteps",), "spoil": (f"{HERE}.shared_memory:spoil",)})
