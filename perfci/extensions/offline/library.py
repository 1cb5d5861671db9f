"""A shared library with functions in Python, for compiled code that looks a driver's functions up by name.

It is written as an ELF file without any compiler: a symbol for each function, which jumps to an address in a table.
What asks the system for a library of that name later gets this one, as it is loaded.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import platform
import re
import struct
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfci.core.variables import OFFLINE
from perfci.extensions.common.elf import DYNAMIC_SYMBOLS, list_sections, list_symbols

_TABLE, _IDLE, _ABSENT = "addresses", "idle", "absent"  # symbols of the table, and of functions that need none

_BASE = 64 + 4 * 56  # of an ELF file: the header and four program headers
_JUMP = b"\xff\x25"  # jmp *offset(%rip), in x86-64
_JUMP_BYTES = 8
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_ANSWERS = {_IDLE: b"\x31\xc0\xc3", _ABSENT: b"\x6a\x64\x58\xc3"}  # xor %eax, %eax; push 100; pop %rax; ret
_SPARE = "spare_"  # beginning of symbols that are given to functions which are added later
_PAGE = 4096
_STRINGS, _SYMBOLS, _HASH, _STRING_BYTES, _SYMBOL_BYTES, _NAME = 5, 6, 4, 10, 11, 14  # kinds of dynamic entries
_LOADED, _DYNAMIC, _STACK = 1, 2, 0x6474E551  # kinds of program headers
_READ, _WRITE, _RUN = 4, 2, 1
_SYMBOL = 24  # bytes of one
_FUNCTION, _OBJECT = 0x12, 0x11  # global symbols


def is_possible() -> bool:
    """Whether this machine's processor is one that such a library is written for."""
    return platform.system() == "Linux" and platform.machine() == "x86_64"


class Library:
    """A loaded library. It stays for as long as the process lives, and does nothing after Python's end."""

    def __init__(self, name: str, functions: Iterable[str], spare: int = 0, folder: Path | None = None) -> None:
        """Load a library of that name. Its functions answer NO_DEVICE. spare: how many more may be added.

        folder: where its file stays, for those that open it by its path. Else it is gone once it is loaded.
        """
        named = list(functions)
        self._symbols = [*named, *(f"{_SPARE}{number}" for number in range(spare))]
        with tempfile.TemporaryDirectory() as passing:
            self.path = str(Path(folder or passing, name))
            Path(self.path).write_bytes(write_library(name, self._symbols))
            self._library = ctypes.CDLL(self.path, mode=ctypes.RTLD_GLOBAL)
        self._table = (ctypes.c_uint64 * len(self._symbols)).in_dll(self._library, _TABLE)
        self._places = {name: number for number, name in enumerate(named)}
        self._kept = list[Any]()  # functions, which have to live as long as they may be called
        self._answer_all(_ABSENT)
        atexit.register(self.close)

    def give(self, functions: Mapping[str, Any]) -> Library:
        """Have functions, which ctypes made, answer by their names. Returns the library.

        One that no symbol is named after gets a spare one. Raises IndexError if none is left.
        """
        for name, function in functions.items():
            place = self._places.setdefault(name, len(self._places))
            self._table[place] = _address(function)
            self._kept.append(function)
        return self

    def address(self, name: str) -> int | None:
        """Where a function begins. None if there is none of that name."""
        place = self._places.get(name)
        return None if place is None else _address(self._library[self._symbols[place]])

    def close(self) -> None:
        """From now on each function returns 0 at once: Python, which theirs is, may have ended."""
        self._answer_all(_IDLE)

    def _answer_all(self, symbol: str) -> None:
        address = _address(self._library[symbol])
        for number in range(len(self._symbols)):
            self._table[number] = address


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def list_functions(image: bytes) -> list[str]:
    """The functions that an ELF file of a library offers by name, without those of C++."""
    symbols = list_symbols(list_sections(image), DYNAMIC_SYMBOLS)
    functions = {symbol.name.decode() for symbol in symbols if symbol.info & 15 == _FUNCTION & 15 and symbol.section}
    return sorted(name for name in functions if not name.startswith("_Z"))


def write_library(name: str, functions: Sequence[str]) -> bytes:
    """Returns an ELF file of x86-64 with a table of addresses, and functions that jump to them, in order."""
    strings, places = bytearray(b"\0"), []
    for symbol in (name, _TABLE, *_ANSWERS, *functions):
        places.append(len(strings))
        strings += symbol.encode() + b"\0"
    count = len(places)  # with the empty symbol in place of the library's name
    # One bucket: the functions that are looked up are few.
    hashes = struct.pack("<4I", 1, count, 1, 0) + struct.pack(f"<{count - 1}I", *range(2, count), 0)
    hash_at = _BASE
    symbols_at = _align(hash_at + len(hashes), 8)
    strings_at = symbols_at + _SYMBOL * count
    code_at = _align(strings_at + len(strings), 16)
    data_at = _align(code_at + _JUMP_BYTES * (len(_ANSWERS) + len(functions)), _PAGE)
    table_at = data_at + 16 * 7
    jumps_at = code_at + _JUMP_BYTES * len(_ANSWERS)
    codes = [code.ljust(_JUMP_BYTES, b"\x90") for code in _ANSWERS.values()]
    for number in range(len(functions)):
        end = jumps_at + _JUMP_BYTES * number + len(_JUMP) + 4
        codes.append(_JUMP + struct.pack("<i", table_at + 8 * number - end) + b"\x90\x90")
    symbols = bytes(24) + struct.pack("<IBBHQQ", places[1], _OBJECT, 0, 1, table_at, 8 * len(functions))
    for number, place in enumerate(places[2:]):
        symbols += struct.pack("<IBBHQQ", place, _FUNCTION, 0, 1, code_at + _JUMP_BYTES * number, _JUMP_BYTES)
    code = b"".join(codes)
    entries = [(_HASH, hash_at), (_SYMBOLS, symbols_at), (_STRINGS, strings_at), (_STRING_BYTES, len(strings)),
               (_SYMBOL_BYTES, _SYMBOL), (_NAME, places[0]), (0, 0)]  # fmt: skip
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    end = table_at + 8 * len(functions)
    headers = [
        (_LOADED, _READ | _RUN, 0, code_at + len(code), _PAGE),
        (_LOADED, _READ | _WRITE, data_at, end - data_at, _PAGE),
        (_DYNAMIC, _READ | _WRITE, data_at, len(dynamic), 8),
        (_STACK, _READ | _WRITE, 0, 0, 16),  # without it the stack would have to be one that code may run on
    ]
    file = bytearray(end)
    file[:64] = struct.pack("<4sBBB9xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0)
    for number, (kind, flags, at, size, unit) in enumerate(headers):
        header = struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, unit)
        file[64 + 56 * number : 64 + 56 * (number + 1)] = header
    for at, part in (
        (hash_at, hashes), (symbols_at, symbols), (strings_at, strings), (code_at, code), (data_at, dynamic),
    ):  # fmt: skip
        file[at : at + len(part)] = part
    return bytes(file)


def _align(place: int, unit: int) -> int:
    return -(-place // unit) * unit


NAME = "libcuda.so.1"
SPARE = 1024  # functions of the driver, of which there are about 600, that are refused when they are asked for

_DRIVER_SYMBOLS = """
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
SYMBOLS = tuple(_DRIVER_SYMBOLS.split())
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
