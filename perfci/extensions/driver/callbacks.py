"""Kernels as NVIDIA's driver loads and launches them, whatever compiled them. CUPTI tells of both, through ctypes.

CUPTI has one subscriber a process. So a process that hears launches cannot record activities, and never times.
Structures are those of CUPTI's `cupti_callbacks.h` and `generated_cuda_meta.h`, and of `cuda.h`.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint32, c_uint64, c_ushort, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci.extensions.common.cubins import (
    ATTRIBUTE_BYTES,
    ATTRIBUTES,
    CACHE,
    COOPERATIVE,
    Config,
    DriverKernel,
    list_attributes,
    list_variables,
    read_parameters,
    trim_attributes,
)
from perfci.extensions.common.elf import read_elf

_DRIVER_API, _RESOURCE = 1, 3  # CUpti_CallbackDomain
_MODULE_LOADED = 6  # CUPTI_CBID_RESOURCE_MODULE_LOADED
_ENTER = 0  # site of a callback: before the function
_MOST_CALLBACKS = 4096  # ids of one domain, which end where their names do

_STATIC_SHARED, _LOCAL_BYTES, _REGISTERS, _DYNAMIC_SHARED = 1, 3, 4, 8  # CUfunction_attribute
SET_BY_HOST = (_DYNAMIC_SHARED, 9, 14, 15)  # the others: share of shared memory, large clusters, their policy
_LEGACY_STREAM, _STREAM_OF_THREAD = 1, 2  # CU_STREAM_LEGACY: the default stream by a name. CU_STREAM_PER_THREAD
_MEMORY_TYPE = 2  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE

_LOADS = ("cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuLibraryLoadData",
          "cuLibraryLoadFromFile")  # fmt: skip
_GLOBALS = ("cuModuleGetGlobal", "cuLibraryGetGlobal", "cuLibraryGetManaged")
_OBJECTS = ("cuTexObjectCreate", "cuSurfObjectCreate")  # their handles mean nothing in another process
_CACHES = ("cuFuncSetCacheConfig", "cuKernelSetCacheConfig", "cuCtxSetCacheConfig")
_LAUNCHES = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel")
FILLS = {"cuMemsetD8": c_ubyte, "cuMemsetD16": c_ushort, "cuMemsetD32": c_uint}
_OF_CONTEXT = ("cuLaunch", "cuMemset")  # beginnings of functions that are repeated in the present context
_UNSEEN = ("cuGraphLaunch", "cuLaunchHostFunc", "cuMemAlloc", "cuMemFree", "cuMemcpy", "cuMemset", "cuMemCreate",
           "cuLaunch", "cuStreamSynchronize", "cuStreamWait", "cuStreamWrite", "cuStreamBatch", "cuCtxSynchronize",
           "cuEventRecord", "cuEventSynchronize", "cuStreamAddCallback", "cuStreamSetAttribute", "cuMemPrefetch",
           "cuMemBatch", "cuMemDiscard", "cuSignal", "cuWait")  # fmt: skip
"""Beginnings of functions that do, order or await work on the device, or how it is done, which no recording has."""


class _CallbackData(ctypes.Structure):
    _fields_ = [("site", c_int), ("function", c_char_p), ("parameters", c_void_p), ("result", c_void_p),
                ("symbol", c_char_p), ("context", c_void_p), ("context_number", c_uint32), ("data", c_void_p),
                ("number", c_uint32)]  # fmt: skip


class _ResourceData(ctypes.Structure):
    _fields_ = [("context", c_void_p), ("stream", c_void_p), ("resource", c_void_p)]


class _ModuleData(ctypes.Structure):
    _fields_ = [("number", c_uint32), ("size", c_size_t), ("image", c_void_p)]


class _Launch(ctypes.Structure):  # cuLaunchKernel_params
    _fields_ = [("function", c_void_p), ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint),
                ("stream", c_void_p), ("parameters", POINTER(c_void_p)), ("extra", POINTER(c_void_p))]  # fmt: skip


class _CooperativeLaunch(ctypes.Structure):  # cuLaunchCooperativeKernel_params
    _fields_ = _Launch._fields_[:-1]


class _LaunchEx(ctypes.Structure):  # cuLaunchKernelEx_params
    _fields_ = [("config", POINTER(Config)), ("function", c_void_p), ("parameters", POINTER(c_void_p)),
                ("extra", POINTER(c_void_p))]  # fmt: skip


class _Load(ctypes.Structure):  # cuModuleLoadData_params, and the beginning of the others'
    _fields_ = [("handle", POINTER(c_void_p)), ("image", c_void_p)]


class _CacheConfig(ctypes.Structure):  # cuFuncSetCacheConfig_params, and the beginning of cuKernelSetCacheConfig's
    _fields_ = [("function", c_void_p), ("config", c_int)]


class _Global(ctypes.Structure):  # cuModuleGetGlobal_v2_params
    _fields_ = [("address", c_void_p), ("size", c_void_p), ("handle", c_void_p)]


def _make_fill(kind: Any) -> type[ctypes.Structure]:
    fields = [("address", c_uint64), ("value", kind), ("count", c_size_t), ("stream", c_void_p)]
    return type("_Fill", (ctypes.Structure,), {"_fields_": fields})


_FILL_PARAMETERS = {name: _make_fill(kind) for name, kind in FILLS.items()}
_Callback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_uint32, c_void_p)


@dataclass(frozen=True)
class DriverLaunch:
    """One launch, as the driver was asked for it."""

    kernel: DriverKernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int  # bytes of dynamic shared memory
    attributes: bytes  # CUlaunchAttributes
    parameters: tuple[bytes, ...]
    stream: int
    module: int  # its handle


@dataclass(frozen=True)
class DriverFill:
    """Memory set to one value: `count` numbers of `width` bytes."""

    width: int
    value: int
    count: int
    address: int
    stream: int


@dataclass(frozen=True)
class Unseen:
    """Work that is not recorded, in words that go after "does"."""

    what: str


Work = DriverLaunch | DriverFill | Unseen


def open_libraries() -> tuple[Any, Any] | None:
    """The driver's library and the CUPTI that torch has loaded. None if one of them is missing."""
    try:
        places = [line.split(maxsplit=5)[5].strip() for line in Path("/proc/self/maps").read_text().splitlines()
                  if "libcupti.so" in line]  # fmt: skip
        return ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(places[0])
    except (OSError, IndexError):
        return None


class Driver:
    """Hears what this process loads from now on, and what it launches while someone listens."""

    def __init__(self, cuda: Any, cupti: Any) -> None:
        """Subscribe. Raises OSError if CUPTI refuses, for one because it has a subscriber."""
        self._cuda, self._cupti = cuda, cupti
        self._images: dict[int, bytes] = {}  # of a CUmodule or CUlibrary
        self._loaded: list[bytes] = []  # every image that a module was made of, the last one last
        self._written: set[int] = set()  # modules and libraries with variables that the host has asked for
        self._objects: set[int] = set()  # handles of textures and surfaces
        self._caches: dict[int, int] = {}  # function -> how the host divides its cache. 0: every function
        self._since = 0  # images that had been loaded when the load under way began
        self._heard: Callable[[Work], None] | None = None
        self._context: int | None = None  # in which the work that is heard has to be
        self._error: Exception | None = None
        self._subscriber = c_void_p()
        self._callback = _Callback(self._call)  # which has to live as long as it is called
        self._check(cupti.cuptiSubscribe(byref(self._subscriber), self._callback, None))
        atexit.register(self.close)
        self._check(cupti.cuptiEnableDomain(1, self._subscriber, _RESOURCE))
        wanted = {*_LOADS, *_GLOBALS, *_OBJECTS, *_CACHES}
        self._always = [number for number, name in self._list_callbacks() if _plain(name) in wanted]
        self._hear_loads()

    def close(self) -> None:
        """Hear nothing any more."""
        if self._subscriber:
            self._cupti.cuptiUnsubscribe(self._subscriber)
            self._subscriber = c_void_p()
            atexit.unregister(self.close)

    @contextmanager
    def listen(self, heard: Callable[[Work], None]) -> Iterator[None]:
        """Call `heard` with the work of every thread inside, when it is given to the driver. Raises what it raised."""
        context = c_void_p()
        self._cuda.cuCtxGetCurrent(byref(context))
        self._context = context.value
        self._check(self._cupti.cuptiEnableDomain(1, self._subscriber, _DRIVER_API))
        self._heard = heard
        try:
            yield
        finally:
            self._heard = None
            self._check(self._cupti.cuptiEnableDomain(0, self._subscriber, _DRIVER_API))
            self._hear_loads()
        if self._error:
            error, self._error = self._error, None
            raise error

    def _hear_loads(self) -> None:
        for number in self._always:
            self._check(self._cupti.cuptiEnableCallback(1, self._subscriber, _DRIVER_API, number))

    def is_memory(self, address: int) -> bool:
        """Whether an address is one of the driver's: on a device, or of a host where a device reads it."""
        kind = c_uint()
        return not self._cuda.cuPointerGetAttribute(byref(kind), _MEMORY_TYPE, c_uint64(address))

    def read_variables(self, module: int, image: bytes) -> dict[str, bytes]:
        """The variables of a module that do not hold what they were loaded with. Waits for what was launched."""
        variables, written = list_variables(image), {*self._written}
        if variables:
            self._cuda.cuCtxSynchronize()
        contents = {name: self._read_variable(module, name) for name in variables}
        self._written = written  # those were no questions of the op's
        return {name.decode(): now for name, now in contents.items() if now not in {variables[name], None}}

    def _read_variable(self, module: int, name: bytes) -> bytes | None:
        """The content of a module's variable. None if the driver does not give it."""
        address, size = c_uint64(), c_size_t()
        status = self._cuda.cuModuleGetGlobal_v2(byref(address), byref(size), c_void_p(module), name)
        content = ctypes.create_string_buffer(size.value)
        status = status or self._cuda.cuMemcpyDtoH_v2(content, address, size)
        return None if status else content.raw

    def is_object(self, value: int) -> bool:
        """Whether a number is the handle of a texture or surface."""
        return value in self._objects

    def _check(self, status: int) -> None:
        if status:
            raise OSError(f"CUPTI answers {status}")

    def _list_callbacks(self) -> Iterator[tuple[int, str]]:
        """Yields number and name of the driver's functions that CUPTI tells of."""
        name = c_char_p()
        for number in range(1, _MOST_CALLBACKS):
            if self._cupti.cuptiGetCallbackName(_DRIVER_API, number, byref(name)) or name.value is None:
                return
            yield number, name.value.decode()

    def _call(self, _user: Any, domain: int, number: int, data: int) -> None:
        """CUPTI's callback. What it raises would be lost."""
        try:
            if domain == _RESOURCE:
                if number == _MODULE_LOADED:
                    resource = _at(data, _ResourceData).resource
                    module = _at(resource, _ModuleData)
                    self._loaded.append(ctypes.string_at(module.image, module.size))
            else:
                called = _at(data, _CallbackData)
                self._take(_plain(called.function.decode()), called)
        except Exception as error:
            self._error = self._error or error

    def _take(self, name: str, called: _CallbackData) -> None:
        if name in _LOADS:
            self._take_load(called)
        elif name in _GLOBALS:
            self._written.add(_at(called.parameters, _Global).handle or 0)
        elif name in _OBJECTS:
            made = _at(called.parameters, _Load).handle
            self._objects |= {made.contents.value or 0} if made and called.site != _ENTER else set()
        elif name in _CACHES:
            if name.startswith("cuCtx"):
                self._caches[0] = _at(called.parameters, c_int).value
            else:
                given = _at(called.parameters, _CacheConfig)
                self._caches[self._find_function(given.function)[0].value or 0] = given.config
        elif self._heard is None or called.site != _ENTER:
            return
        elif called.context != self._context and name.startswith(_OF_CONTEXT):
            self._heard(Unseen(f"{name}() in another context"))
        elif name in _LAUNCHES:
            self._heard(self._read_launch(name, called))
        elif name.removesuffix("Async") in FILLS:
            kind = name.removesuffix("Async")
            fill = _at(called.parameters, _FILL_PARAMETERS[kind])
            stream = _name_stream(fill.stream if name.endswith("Async") else None, called.function)
            width = ctypes.sizeof(FILLS[kind])
            self._heard(DriverFill(width, int(fill.value), int(fill.count), int(fill.address), stream))
        elif name.startswith(_UNSEEN):
            self._heard(Unseen(f"{name}()"))

    def _take_load(self, called: _CallbackData) -> None:
        if called.site == _ENTER:
            self._since = len(self._loaded)
            return
        load, made = _at(called.parameters, _Load), self._loaded[self._since :]
        handle = load.handle.contents.value if load.handle else None
        if not handle:
            return
        self._written.discard(handle)
        in_memory = called.function.startswith((b"cuModuleLoadD", b"cuLibraryLoadD"))
        image = read_elf(load.image) if in_memory else b""
        self._images.pop(handle, None)  # of one that was unloaded
        if image or len(made) == 1:
            self._images[handle] = image or made[0]

    def _read_launch(self, name: str, called: _CallbackData) -> Work:
        launch: Any
        parameters = called.parameters
        attributes = b""
        if name == "cuLaunchKernelEx":
            launch = _at(parameters, _LaunchEx)
            config = launch.config.contents
            if config.count:
                attributes = trim_attributes(ctypes.string_at(config.attributes, ATTRIBUTE_BYTES * config.count))
        elif name == "cuLaunchCooperativeKernel":
            launch = config = _at(parameters, _CooperativeLaunch)
            attributes = struct.pack("<iiq56x", COOPERATIVE, 0, 1)
        else:
            launch = config = _at(parameters, _Launch)
        if unknown := list_attributes(attributes) - ATTRIBUTES:
            return Unseen(f"a launch with attribute {min(unknown)}")
        kernel_or_why = self._find_kernel(launch.function)
        if isinstance(kernel_or_why, str):
            return Unseen(kernel_or_why)
        function, module, kernel_name, image = kernel_or_why
        block, shared = _three(config.block), int(config.shared)
        kernel = DriverKernel(
            kernel_name,
            image,
            self._list_attributes(function),
            n_regs=self._attribute(function, _REGISTERS),
            local_bytes=self._attribute(function, _LOCAL_BYTES) or 0,
            warps=-(-math.prod(block) // 32),
            shared=shared + (self._attribute(function, _STATIC_SHARED) or 0),
        )
        sizes = list_parameters(self._cuda, function)
        values = read_parameters(sizes, launch.parameters, getattr(launch, "extra", None))
        stream = _name_stream(config.stream, called.function)
        return DriverLaunch(kernel, _three(config.grid), block, shared, attributes, values, stream, module)

    def _find_kernel(self, handle: int) -> tuple[c_void_p, int, str, bytes] | str:
        """The function behind a handle, its module, name and image, or why it cannot be launched elsewhere."""
        (function, module, library), name = self._find_function(handle), c_char_p()
        self._cuda.cuFuncGetName(byref(name), function)
        symbol = name.value or b""
        plain = symbol.decode(errors="replace")
        for owner in (module.value, library.value):
            if owner in self._written:
                return f"a launch of {plain}, as the host writes variables of its module"
        image = next((self._images[owner] for owner in (module.value, library.value) if owner in self._images), None)
        if image is None:  # of a file of many images, which the driver chose from
            fitting = {image for image in self._loaded if b"\x00.text." + symbol + b"\x00" in image}
            if len(fitting) != 1:
                return f"a launch of {plain}, of which {len(fitting)} binaries are loaded"
            (image,) = fitting
        return function, module.value or 0, plain, image

    def _find_function(self, handle: int) -> tuple[c_void_p, c_void_p, c_void_p]:
        """The function behind a handle, its module, and its library if the handle is a CUkernel."""
        function, module, library = c_void_p(handle), c_void_p(), c_void_p()
        if self._cuda.cuFuncGetModule(byref(module), function):  # a CUkernel, which is passed for a CUfunction
            self._cuda.cuKernelGetLibrary(byref(library), c_void_p(handle))
            self._cuda.cuKernelGetFunction(byref(function), c_void_p(handle))
            self._cuda.cuFuncGetModule(byref(module), function)
        return function, module, library

    def _list_attributes(self, function: c_void_p) -> dict[int, int]:
        """What the host asks of a function."""
        asked = {name: self._attribute(function, name) for name in SET_BY_HOST}
        asked[CACHE] = self._caches.get(function.value or 0, self._caches.get(0))
        return {name: value for name, value in asked.items() if value is not None}

    def _attribute(self, function: c_void_p, attribute: int) -> int | None:
        value = c_int()
        return None if self._cuda.cuFuncGetAttribute(byref(value), attribute, function) else value.value


def list_parameters(cuda: Any, function: c_void_p) -> list[tuple[int, int]]:
    """Offset and size of each parameter of a kernel, in bytes."""
    offset, size, sizes = c_size_t(), c_size_t(), list[tuple[int, int]]()
    while not cuda.cuFuncGetParamInfo(function, c_size_t(len(sizes)), byref(offset), byref(size)):
        sizes.append((offset.value, size.value))
    return sizes


def _at(place: int | None, kind: Any) -> Any:
    return ctypes.cast(c_void_p(place), POINTER(kind)).contents


def _plain(name: str) -> str:
    """A function's name without its version.

    >>> _plain("cuMemsetD32Async_ptsz"), _plain("cuModuleGetGlobal_v2")
    ('cuMemsetD32Async', 'cuModuleGetGlobal')
    """
    return name.removesuffix("_ptsz").removesuffix("_ptds").removesuffix("_v2")


def _name_stream(stream: int | None, function: bytes) -> int:
    """A stream by one of its names, 0 for the default one. Functions with such an end have one for each thread.

    >>> _name_stream(1, b"cuLaunchKernel"), _name_stream(None, b"cuLaunchKernel_ptsz")
    (0, 2)
    """
    if not stream:
        return _STREAM_OF_THREAD if function.endswith((b"_ptsz", b"_ptds")) else 0
    return 0 if stream == _LEGACY_STREAM else stream


def _three(sides: Sequence[int]) -> tuple[int, int, int]:
    return int(sides[0]), int(sides[1]), int(sides[2])
