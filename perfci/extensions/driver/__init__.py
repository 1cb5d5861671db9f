"""Kernels of any compiler, seen at NVIDIA's driver. Without it other launches than Triton's are not seen.

callbacks   what this process loads and launches, as CUPTI tells of it
launching   a cubin's kernel, launched with given bytes
steps       such work as steps of a recording, taken down and repeated
"""

from perfci.core.extensions import Extension

HERE = "perfci.extensions.driver"

EXTENSION = Extension(provides={"driver": (f"{HERE}.steps:DriverSteps",)})
