"""CUDA C++: NVRTC compiles for the architecture that it is told, and cubins are loaded by the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfci.device.targets import Target
    from perfci.extensions.offline.driver import VirtualDriver

PACKAGES = ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvcc")
PROGRAMS: dict[str, str] = {"libnvrtc": "nvidia-cuda-nvrtc"}


def prepare(target: Target, driver: VirtualDriver) -> None:
    """Nothing is needed but the driver."""
