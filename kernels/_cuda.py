"""CUDA C++ of an op: functions of a .cu file, each compiled by NVRTC when it is needed first, launched by the driver.

Needs torch and cuda-bindings, which torch's CUDA builds bring along. There is no build step.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import re
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import nvrtc

OPTIONS = ("--std=c++17",)
"""What every file is compiled with, beside the architecture and the folders of headers."""
MOST_SHARED = 48 * 1024
"""Bytes of shared memory that a block gets without asking for more."""
_CACHE = "TORCH_EXTENSIONS_DIR"
"""Environment variable: torch's folder of compiled extensions, where compiled files are kept too."""
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


# --- compiling --------------------------------------------------------------------------------------------------------


def compile_for(path: Path, architecture: str, options: tuple[str, ...] = ()) -> bytes:
    """Returns the cubin of a .cu file for an architecture such as sm_90, which need not be the present device's.

    options: of NVRTC, such as a `Function`'s.

    Compiled once and then taken from the cache folder. Raises OSError without the file, RuntimeError without NVRTC, or
    with the compiler's log for an error in the file.
    """
    folders = [str(Path(__file__).parent), *_header_folders()]
    every = [*OPTIONS, *options, f"--gpu-architecture={architecture}", *(f"--include-path={each}" for each in folders)]
    source = path.read_text(encoding="utf-8")
    version = ".".join(map(str, _answered(nvrtc.nvrtcVersion())))
    key = hashlib.sha256("\0".join([version, *every, source, *_included(path, source)]).encode()).hexdigest()
    kept = _cache_folder() / f"{path.stem}-{architecture}-{key[:32]}.cubin"
    with contextlib.suppress(OSError):
        return kept.read_bytes()
    cubin = _compile(path, source, every)
    with contextlib.suppress(OSError):  # a folder that cannot be written only costs the time of the next compilation
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_bytes(cubin)
        part.replace(kept)
    return cubin


def _included(path: Path, source: str) -> Iterator[str]:
    """Yields the text of the headers that lie beside the file or in this folder, and of what they include."""
    for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', source, re.MULTILINE):
        for header in (path.parent / name, Path(__file__).parent / name):
            if header.is_file():
                text = header.read_text(encoding="utf-8")
                yield text
                yield from _included(header, text)
                break


def _cache_folder() -> Path:
    given = os.environ.get(_CACHE)
    return Path(given or Path.home() / ".cache" / "torch_extensions", "nvrtc")


def _header_folders() -> list[str]:
    """Returns where cuda_fp16.h and others are: in torch's CUDA packages, else in a toolkit."""
    homes = [root / name / "include" for root in _packages() for name in ("cu13", "cuda_runtime")]
    homes += [Path(home, "include") for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    return [str(home) for home in homes if (home / "cuda_fp16.h").is_file()][:1]


def _packages() -> list[Path]:
    """Returns the folders that NVIDIA's Python packages share."""
    spec = importlib.util.find_spec("nvidia")
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def _compile(path: Path, source: str, options: list[str]) -> bytes:
    program = _answered(nvrtc.nvrtcCreateProgram(source.encode(), str(path).encode(), 0, [], []))[0]
    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])[0]:
            log = bytes(_answered(nvrtc.nvrtcGetProgramLogSize(program))[0])
            _answered(nvrtc.nvrtcGetProgramLog(program, log))
            told = log.rstrip(b"\0").decode(errors="replace")
            raise RuntimeError(f"{path} does not compile ({' '.join(options)}):\n{told}")
        cubin = bytes(_answered(nvrtc.nvrtcGetCUBINSize(program))[0])
        _answered(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _answered(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns what a function of NVRTC gives beside its status. Raises RuntimeError for a failure."""
    status, *values = answer
    if status:
        raise RuntimeError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status)[1].decode()}")
    return tuple(values)


# --- launching --------------------------------------------------------------------------------------------------------


class Function:
    """One function of a .cu file, compiled alone and loaded on its first launch on a device.

    The file ends in one `extern "C" __global__` function, called NAME. What it is made of are macros too, so that no
    call waits for functions that it does not need.
    """

    def __init__(self, path: Path, name: str, signature: str, shared: int = 0, **macros: str | int) -> None:
        """A signature has one letter of `struct` for each parameter: P a pointer, q and i integers, f a float.

        shared: bytes of dynamic shared memory of a block. macros: what the file has to be told beside NAME.
        """
        self.path, self.name, self._shared = path, name, shared
        self.options = tuple(f"--define-macro={macro}={text}" for macro, text in {"NAME": name, **macros}.items())
        self._handles: dict[int, int] = {}
        # One place for the arguments of all launches, since the driver copies them before it returns.
        self._lock = threading.Lock()
        self._pack = struct.Struct(signature).pack_into
        self._arguments = ctypes.create_string_buffer(struct.calcsize(signature))
        begin = ctypes.addressof(self._arguments)
        places = [struct.calcsize(f"{signature[:at]}0{letter}") for at, letter in enumerate(signature)]
        self._pointers = (ctypes.c_void_p * len(signature))(*(begin + place for place in places))

    def __call__(self, device: torch.device, grid: tuple[int, int], block: tuple[int, int], *arguments: Any) -> None:
        """Launch on torch's current stream of a device, which has to be the current one. Pointers are integers.

        Raises RuntimeError if the driver does not launch it, NotImplementedError for a device without CUDA.
        """
        handle = self._handles.get(device.index) or self._load(device)
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        with self._lock:
            self._pack(self._arguments, 0, *arguments)
            status = _driver().cuLaunchKernel(handle, *grid, 1, *block, 1, self._shared, stream, self._pointers, None)
        _checked(status, f"{self.name} cannot be launched with grid {grid} and block {block}")

    def _load(self, device: torch.device) -> int:
        module = _load_module(self.path, device, self.options)
        handle, what = ctypes.c_void_p(), f"{self.path} has no function {self.name}"
        _checked(_driver().cuModuleGetFunction(ctypes.byref(handle), module, self.name.encode()), what)
        if self._shared > MOST_SHARED:
            status = _driver().cuFuncSetAttribute(handle, _MAX_DYNAMIC_SHARED, self._shared)
            _checked(status, f"{self.name} cannot have {self._shared} bytes of shared memory")
        self._handles[device.index] = handle.value
        return handle.value


def _load_module(path: Path, device: torch.device, options: tuple[str, ...]) -> ctypes.c_void_p:
    """Returns the compiled function's module on a device. It stays for as long as the process lives."""
    if device.type != "cuda" or torch.version.cuda is None:
        raise NotImplementedError(f"{path.name} needs an NVIDIA GPU, but the tensors are on {device}")
    major, minor = torch.cuda.get_device_capability(device)
    module = ctypes.c_void_p()
    cubin = compile_for(path, f"sm_{major}{minor}", options)
    _checked(_driver().cuModuleLoadData(ctypes.byref(module), cubin), f"{path} cannot be loaded on {device}")
    return module


@functools.cache
def _driver() -> Any:
    """The driver's functions. Calls keep Python's lock, as they take less time than to release it."""
    driver = ctypes.PyDLL("libcuda.so.1")
    number, pointer = ctypes.c_uint, ctypes.c_void_p
    driver.cuLaunchKernel.argtypes = [pointer, *[number] * 7, pointer, pointer, pointer]
    return driver


def _checked(status: int, what: str) -> None:
    if status:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"{what}: {(text.value or b'unknown error').decode()} (CUDA error {status})")


# --- the tensors ------------------------------------------------------------------------------------------------------


NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
"""How functions are named after the dtypes that the ops take."""
