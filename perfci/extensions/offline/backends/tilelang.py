"""TileLang: its compiler asks for the device. Its launch asks another library for the CUDA runtime: replaced."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfci.extensions.common.targets import Target
    from perfci.extensions.offline.driver import VirtualDriver

PACKAGES = ("tilelang", "nvidia-cuda-nvcc")
PROGRAMS: dict[str, str] = {"nvcc": "nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-cccl nvidia-cuda-runtime"}
KEPT = "tilelang.cache.kernel_cache:KernelCache._load_kernel_from_disk"

RUNTIME, CALLER = "libstub_cudart.so", "libtvm_runtime.so"


def prepare(target: Target, driver: VirtualDriver) -> None:  # noqa: ARG001
    """Load a library in the place of the one by which it calls the CUDA runtime, before it is loaded.

    A torch for CUDA has loaded the runtime for all by then: the caller is loaded so that its own libraries come first.
    """
    from perfci.extensions.offline.library import Library, list_functions
    from perfci.extensions.offline.runtime import find_function

    spec = importlib.util.find_spec("tilelang")
    path = Path(str(spec.origin)).parent / "lib" / RUNTIME if spec else None
    if path and path.is_file():
        # Before the caller, which brings its library along: after it this import aborts (tilelang 0.1.15, glibc 2.41).
        importlib.import_module("tvm_ffi")
        functions = {name: find_function(driver, name) for name in list_functions(path.read_bytes())}
        Library(RUNTIME, functions).give(functions)
        ctypes.CDLL(str(path.with_name(CALLER)), mode=ctypes.RTLD_GLOBAL | os.RTLD_DEEPBIND)
