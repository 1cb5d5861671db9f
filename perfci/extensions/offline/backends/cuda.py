"""CUDA C++: NVRTC compiles for the architecture that it is told, and cubins are loaded by the driver."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfci.extensions.common.targets import Target
    from perfci.extensions.offline.driver import VirtualDriver

PACKAGES = ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvcc")
PROGRAMS: dict[str, str] = {"libnvrtc": "nvidia-cuda-nvrtc", "NVRTC library": "nvidia-cuda-nvrtc"}
KEPT = ""  # by the project, if at all


def prepare(target: Target, driver: VirtualDriver) -> None:  # noqa: ARG001
    """Open the NVRTC of a Python package, for those that open it by its name: so does torch, by its CUDA's release."""
    import torch

    spec = importlib.util.find_spec("nvidia")
    homes = list(spec.submodule_search_locations or ()) if spec else []
    # What it opens by its name alone comes first.
    for path in (path for home in homes for path in sorted(Path(home).glob("*/lib/libnvrtc*.so.*"))):
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
            if path.name.startswith("libnvrtc.so.") and "+cpu" in torch.__version__:
                torch.version.cuda = f"{path.suffix[1:]}.0"
                torch.cuda._is_compiled = lambda: True  # else headers are not looked for
                os.environ.setdefault("CUDA_HOME", str(path.parents[1]))
