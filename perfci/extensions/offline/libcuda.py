"""`libcuda.so.1` of a process that compiles without a device: the system gives it to all that open a library so named.

Libraries of a torch for CUDA open it when torch is imported. So it is loaded before torch, when no target is known yet.
Until `give` each of its functions answers that there is no device.
"""

import functools
import os
import re

from perfci.core.variables import OFFLINE
from perfci.extensions.offline.library import Library, is_possible

NAME = "libcuda.so.1"
SPARE = 1024  # functions of the driver, of which there are about 600, that are refused when they are asked for

_SYMBOLS = """
    cuCtxCreate cuCtxCreate_v2 cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy cuCtxDestroy_v2 cuCtxGetCurrent
    cuCtxGetDevice cuCtxGetId cuCtxGetLimit cuCtxGetStreamPriorityRange cuCtxPopCurrent cuCtxPopCurrent_v2
    cuCtxPushCurrent cuCtxPushCurrent_v2 cuCtxResetPersistingL2Cache cuCtxSetCurrent cuCtxSetLimit cuCtxSynchronize
    cuDeviceComputeCapability cuDeviceGet cuDeviceGetAttribute cuDeviceGetCount cuDeviceGetName
    cuDevicePrimaryCtxGetState cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRetain
    cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxSetFlags_v2 cuDeviceTotalMem cuDeviceTotalMem_v2 cuDriverGetVersion
    cuEventCreate cuEventDestroy cuEventDestroy_v2 cuEventElapsedTime cuEventRecord cuEventSynchronize
    cuFuncGetAttribute cuFuncGetModule cuFuncGetName cuFuncGetParamInfo cuFuncLoad cuFuncSetAttribute
    cuFuncSetCacheConfig cuFuncSetSharedMemConfig cuGetErrorName cuGetErrorString cuGetExportTable cuGetProcAddress
    cuGetProcAddress_v2 cuGraphLaunch cuInit cuKernelGetAttribute cuKernelGetFunction cuKernelGetLibrary
    cuKernelGetName cuKernelGetParamInfo cuKernelSetAttribute cuKernelSetCacheConfig cuLaunchCooperativeKernel
    cuLaunchCooperativeKernel_ptsz cuLaunchKernel cuLaunchKernel_ptsz cuLaunchKernelEx cuLaunchKernelEx_ptsz
    cuLibraryEnumerateKernels cuLibraryGetGlobal cuLibraryGetKernel cuLibraryGetKernelCount cuLibraryGetModule
    cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuMemAlloc cuMemAlloc_v2 cuMemAllocAsync cuMemFree
    cuMemFree_v2 cuMemFreeAsync cuMemGetInfo cuMemGetInfo_v2 cuMemcpyDtoD cuMemcpyDtoD_v2 cuMemcpyDtoDAsync
    cuMemcpyDtoDAsync_v2 cuMemcpyDtoH cuMemcpyDtoH_v2 cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2 cuMemcpyHtoD
    cuMemcpyHtoD_v2 cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2 cuMemsetD16 cuMemsetD16_v2 cuMemsetD16Async cuMemsetD32
    cuMemsetD32_v2 cuMemsetD32Async cuMemsetD8 cuMemsetD8_v2 cuMemsetD8Async cuModuleGetFunction cuModuleGetGlobal
    cuModuleGetGlobal_v2 cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload
    cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxActiveClusters
    cuOccupancyMaxPotentialBlockSize cuPointerGetAttribute cuStreamCreate cuStreamDestroy cuStreamDestroy_v2
    cuStreamGetCtx cuStreamGetDevice cuStreamGetId cuStreamIsCapturing cuStreamSetAttribute cuStreamSynchronize
    cuStreamWaitEvent cuTensorMapEncodeIm2col cuTensorMapEncodeTiled
"""
SYMBOLS = tuple(_SYMBOLS.split())
"""The functions that are answered, or refused by name, with their versions."""


@functools.cache
def load() -> Library:
    """Returns the library, which stays for as long as the process lives."""
    return Library(NAME, SYMBOLS, spare=SPARE)


def load_early() -> None:
    """Load the library in a process that OFFLINE marks. Before torch is imported."""
    if OFFLINE in os.environ and is_possible():
        load()


def name_plainly(symbol: str) -> str:
    """A function's name without its version.

    >>> name_plainly("cuCtxCreate_v4"), name_plainly("cuLaunchKernel_ptsz"), name_plainly("cuMemsetD8")
    ('cuCtxCreate', 'cuLaunchKernel', 'cuMemsetD8')
    """
    return re.sub(r"_(v\d|ptsz)$", "", symbol)


load_early()  # imported before torch is, by what workers are forked from too
