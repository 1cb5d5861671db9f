"""The CUDA runtime of a board that is not there, by the functions of its driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import c_void_p
from typing import Any

from perfci.extensions.offline.driver import VirtualDriver

_SAME = {  # its functions, and those of the driver that take and give the same
    "cudaLibraryLoadData": "cuLibraryLoadData",
    "cudaLibraryLoadFromFile": "cuLibraryLoadFromFile",
    "cudaLibraryGetKernel": "cuLibraryGetKernel",
    "cudaLibraryGetKernelCount": "cuLibraryGetKernelCount",
    "cudaLibraryUnload": "cuLibraryUnload",
    "cudaFuncSetAttribute": "cuFuncSetAttribute",
    "cudaDeviceGetAttribute": "cuDeviceGetAttribute",
    "cudaGetDevice": "cuCtxGetDevice",
    "cudaGetDeviceCount": "cuDeviceGetCount",
    "cudaSetDevice": "cuCtxSetCurrent",
    "cudaGetLastError": "cuInit",  # there is none: it answers 0
    "cudaPeekAtLastError": "cuInit",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cudaStreamSynchronize": "cuStreamSynchronize",
    "cudaDeviceSynchronize": "cuCtxSynchronize",
}
_TEXT = ctypes.create_string_buffer(b"without a device")
_describe = ctypes.CFUNCTYPE(c_void_p)(lambda: ctypes.addressof(_TEXT))
_OTHERS: Mapping[str, Any] = {"cudaGetErrorString": _describe, "cudaGetErrorName": _describe}


def find_function(driver: VirtualDriver, name: str) -> Any:
    """Returns a function of the runtime for C code. One that has no answer without a device says so."""
    if name in _OTHERS:
        return _OTHERS[name]
    same = _SAME.get(name, name)
    if same in driver.functions:
        return driver.functions[same]
    refuse: Callable[[], int] = lambda: driver.refuse(name)  # noqa: E731
    return driver.answer(name, (), refuse)
