"""NVIDIA's driver of a board that is not there: modules load into nothing, and launches are told of.

Whatever opens `library.so.1` after `install` gets it: ctypes, cuda.bindings, cuda.core, and compilers' own runtimes. So
kernels of any compiler are seen as the driver would be asked for them, and compiled by their own code. Structures and
numbers are those of `cuda.h`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfci.device.capture import note, note_unknown
from perfci.device.launches import Launched, RawParameter, tell
from perfci.extensions.common import binaries
from perfci.extensions.common.cubins import (
    ATTRIBUTE_BYTES,
    ATTRIBUTES,
    CACHE,
    COOPERATIVE,
    Config,
    DriverKernel,
    blank_unread,
    count_shared_bytes,
    count_threads,
    describe_choice,
    find_addresses,
    list_attributes,
    list_parameters,
    read_parameters,
    trim_attributes,
)
from perfci.extensions.common.elf import list_sections, read_elf
from perfci.extensions.common.targets import Target
from perfci.extensions.offline import library
from perfci.extensions.offline.pretender import locate

VERSION = 13_000  # that the driver has: of CUDA 13.0

_INVALID, _NOT_FOUND, _NOT_SUPPORTED, _FAILED = 1, 500, 801, 999  # CUresult
_THREADS, _STATIC, _LOCAL, _REGISTERS, _DYNAMIC = 0, 1, 3, 4, 8  # CUfunction_attribute
_CLUSTER = 4  # CUlaunchAttributeID
_FREELY = 48 * 1024  # bytes of dynamic shared memory that a kernel may have without asking
_FAT = bytes.fromhex("50ed55ba")  # what a file of several images begins with
_OF_CUBIN = 2  # kind of an image there
_HANDLE = 0x7000_0000_0000  # where handles begin, which are no addresses
_CONTEXT, _UNIT = _HANDLE - 64, 64
_WORDS = 128  # bytes of a descriptor of a tensor
_MOST_THREADS = 1024  # of a block

_Number, _Long, _Handle, _Text = POINTER(c_int), POINTER(c_uint64), POINTER(c_void_p), c_char_p


@dataclass(eq=False)
class _Function:
    """A function of a loaded module."""

    name: str
    image: bytes
    module: int  # its handle
    attributes: dict[int, int] = field(default_factory=dict)

    @functools.cached_property
    def symbol(self) -> Any:
        """The name, in memory that stays."""
        return ctypes.create_string_buffer(self.name.encode())

    @functools.cached_property
    def parameters(self) -> list[tuple[int, int]]:
        """Offset and size of each parameter, in bytes."""
        return list_parameters(self.image, self.name)

    @functools.cached_property
    def usage(self) -> binaries.Usage | None:
        return binaries.nvidia_usage(self.image, None, self.name)

    @functools.cached_property
    def shared(self) -> int:
        return count_shared_bytes(self.image, self.name)


class VirtualDriver:
    """The driver's functions, and what they were asked for."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._images: dict[int, bytes] = {}  # of modules and libraries, which are one
        self._functions: dict[int, _Function] = {}
        self._handles: dict[tuple[int, str], int] = {}  # of functions, by module and name
        self._covered: Callable[[], bool] | None = None
        self.error: Exception | None = None  # what an answer raised, which C code cannot hear
        self.functions = {name: self.answer(name, *answer) for name, answer in self._list_answers().items()}
        """By name, made by ctypes."""
        symbols = {symbol: self.functions[library.name_plainly(symbol)] for symbol in library.SYMBOLS}
        self._library = library.load().give(symbols)
        opened = ctypes.cast(ctypes.CDLL(library.NAME)["cuInit"], c_void_p).value
        self.is_asked = opened == self._library.address("cuInit")
        """Whether those who open the driver get this one, and no other that the process had loaded before."""

    @contextmanager
    def listen(self, covered: Callable[[], bool]) -> Iterator[None]:
        """Tell of the launches inside. covered: whether they are part of what is told otherwise."""
        if not self.is_asked:
            note_unknown("captured_offline", "NVIDIA's driver, which the process has loaded,")
        before, self._covered = self._covered, covered
        try:
            yield
        finally:
            self._covered = before

    def load(self, image: bytes) -> int:
        """Returns the handle of a module with that image."""
        handle = self._new_handle()
        self._images[handle] = image
        return handle

    def find(self, module: int, name: str) -> int:
        """Returns the handle of a module's function, 0 if it has none of that name."""
        if name not in self._list_names(module):
            return 0
        key = module, name
        if key not in self._handles:
            self._handles[key] = self._new_handle()
            self._functions[self._handles[key]] = _Function(name, self._images[module], module)
        return self._handles[key]

    def launch(
        self,
        handle: int,
        grid: Sequence[int],
        block: Sequence[int],
        shared: int,
        attributes: bytes,
        parameters: Any,
        extra: Any = None,
    ) -> int:
        """Tell of a launch. Returns a CUresult, as the driver does for what no board would run."""
        function = self._functions[handle]
        is_possible = all(side > 0 for side in (*grid, *block)) and math.prod(block) <= _MOST_THREADS
        if not is_possible or shared > self._attribute(function, _DYNAMIC):
            return _INVALID
        if self._covered is None or self._covered():
            return 0
        if list_attributes(attributes) - ATTRIBUTES:
            note_unknown("captured_offline", f"a launch with attribute {max(list_attributes(attributes))}")
        values = read_parameters(function.parameters, parameters, extra)
        values = (
            blank_unread(function.image, function.name, values) if len(values) == len(function.parameters) else values
        )
        warps = -(-max(math.prod(block), count_threads(function.image, function.name)) // 32)
        kernel = DriverKernel(function.name, function.image, warps=warps, shared=shared + function.shared)
        arguments: dict[str, Any] = {str(number): _spell(value) for number, value in enumerate(values)}
        arguments |= {"block of threads": list(block), "dynamic shared memory": shared}
        arguments |= {"attributes": attributes.hex()} if attributes else {}
        arguments |= describe_choice(function.attributes)
        tell(Launched(None, kernel, (grid[0], grid[1], grid[2]), arguments))
        return 0

    # --- the table of functions ---

    def _list_answers(self) -> dict[str, tuple[tuple[Any, ...], Callable[..., int | None]]]:
        """The functions that are answered, with the types of as many arguments as they need."""
        sides = (c_uint,) * 6
        setting = dict.fromkeys(_NOTHING, ((), _do_nothing))
        refusing = {name: ((), functools.partial(self.refuse, name)) for name in _REFUSED}
        return {
            **setting,
            **refusing,
            "cuGetProcAddress": ((_Text, _Handle, c_int, c_uint64, _Number), self._find_address),
            "cuGetExportTable": ((), lambda: _NOT_FOUND),  # private tables, which the CUDA runtime asks for
            "cuGetErrorString": ((c_int, POINTER(c_char_p)), _describe),
            "cuGetErrorName": ((c_int, POINTER(c_char_p)), _describe),
            "cuDriverGetVersion": ((_Number,), lambda place: _give(place, VERSION)),
            "cuDeviceGetCount": ((_Number,), lambda place: _give(place, 1)),
            "cuDeviceGet": ((_Number, c_int), lambda place, number: _give(place, 0) if not number else 101),
            "cuDeviceGetName": ((c_void_p, c_int, c_int), self._name_device),
            "cuDeviceTotalMem": ((_Long, c_int), lambda place, _: _give(place, self._target.memory_bytes or 1 << 35)),
            "cuDeviceGetAttribute": ((_Number, c_int, c_int), self._device_attribute),
            "cuDeviceComputeCapability": ((_Number, _Number, c_int), self._capability),
            "cuDevicePrimaryCtxGetState": (
                (c_int, _Number, _Number),
                lambda _, flags, active: _give(flags, 0) or _give(active, 1),
            ),
            **{name: ((_Handle,), lambda place: _give(place, _CONTEXT)) for name in _GIVES_CONTEXT},
            "cuCtxGetId": ((c_void_p, _Long), lambda _, place: _give(place, 1)),
            "cuCtxGetDevice": ((_Number,), lambda place: _give(place, 0)),
            "cuCtxGetStreamPriorityRange": (
                (_Number, _Number),
                lambda least, greatest: _give(least, 0) or _give(greatest, -5),
            ),
            **dict.fromkeys(_LOADS, ((_Handle, c_void_p), self._load)),
            "cuModuleLoad": ((_Handle, _Text), self._load_file),
            "cuLibraryLoadFromFile": ((_Handle, _Text), self._load_file),
            "cuModuleGetFunction": ((_Handle, c_void_p, _Text), self._find_function),
            "cuLibraryGetKernel": ((_Handle, c_void_p, _Text), self._find_function),
            **dict.fromkeys(("cuLibraryGetModule", "cuKernelGetFunction"), ((_Handle, c_void_p), _pass)),
            **dict.fromkeys(("cuFuncGetModule", "cuKernelGetLibrary"), ((_Handle, c_void_p), self._module_of)),
            "cuLibraryGetKernelCount": ((POINTER(c_uint), c_void_p), self._count_kernels),
            "cuLibraryEnumerateKernels": ((_Handle, c_uint, c_void_p), self._list_kernels),
            **{name: ((POINTER(c_void_p), c_void_p), self._name) for name in ("cuFuncGetName", "cuKernelGetName")},
            "cuFuncGetAttribute": ((_Number, c_int, c_void_p), self._function_attribute),
            "cuKernelGetAttribute": ((_Number, c_int, c_void_p, c_int), self._function_attribute),
            "cuFuncSetAttribute": ((c_void_p, c_int, c_int), self.set_attribute),
            "cuFuncSetCacheConfig": ((c_void_p, c_int), lambda f, v: self.set_attribute(f, CACHE, v)),
            "cuKernelSetCacheConfig": ((c_void_p, c_int, c_int), lambda f, v, _: self.set_attribute(f, CACHE, v)),
            "cuKernelSetAttribute": ((c_int, c_int, c_void_p, c_int), lambda a, v, f, _: self.set_attribute(f, a, v)),
            **{name: ((c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_size_t)), self._parameter)
               for name in ("cuFuncGetParamInfo", "cuKernelGetParamInfo")},
            "cuLaunchKernel": ((c_void_p, *sides, c_uint, c_void_p, _Handle, _Handle), self._launch),
            "cuLaunchCooperativeKernel": ((c_void_p, *sides, c_uint, c_void_p, _Handle), self._launch_together),
            "cuLaunchKernelEx": ((POINTER(Config), c_void_p, _Handle, _Handle), self.launch_by),
            "cuOccupancyMaxActiveBlocksPerMultiprocessor": ((_Number, c_void_p, c_int, c_size_t), self._count_blocks),
            "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": (
                (_Number, c_void_p, c_int, c_size_t), self._count_blocks,
            ),
            "cuOccupancyAvailableDynamicSMemPerBlock": ((POINTER(c_size_t), c_void_p, c_int, c_int), self._shared_left),
            "cuOccupancyMaxActiveClusters": ((_Number, c_void_p, POINTER(Config)), self._count_clusters),
            "cuStreamGetCtx": ((c_void_p, _Handle), lambda _, place: _give(place, _CONTEXT)),
            "cuStreamGetDevice": ((c_void_p, _Number), lambda _, place: _give(place, 0)),
            "cuStreamIsCapturing": ((c_void_p, _Number), lambda _, place: _give(place, 0)),
            "cuStreamGetId": ((c_void_p, _Long), lambda stream, place: _give(place, stream or 0)),
            **{name: ((), functools.partial(_order, name)) for name in ("cuStreamSynchronize", "cuCtxSynchronize")},
            "cuPointerGetAttribute": ((c_void_p, c_int, c_uint64), self._pointer_attribute),
            "cuTensorMapEncodeTiled": ((c_void_p, c_int, c_uint, c_uint64, _Long, _Long, POINTER(c_uint),
                                        POINTER(c_uint), c_int, c_int, c_int, c_int), _describe_tensor),
            **{f"cuMemsetD{8 * width}{end}": ((c_uint64, c_uint, c_size_t), functools.partial(self.fill, width))
               for width in (1, 2, 4) for end in ("", "Async")},
        }  # fmt: skip

    def answer(self, name: str, types: Sequence[Any], function: Callable[..., int | None]) -> Any:
        """Returns a function for C code. What goes wrong in it is noted, as what cannot be known."""

        def answer(*arguments: Any) -> int:
            try:
                return function(*arguments) or 0
            except Exception as error:
                self.error = error
                note_unknown("captured_offline", f"{name}()")
                return _FAILED

        return ctypes.CFUNCTYPE(c_int, *types)(answer)

    def refuse(self, name: str) -> int:
        """Note that a function is not to be had here."""
        note_unknown("captured_offline", f"{name}()")
        return _NOT_SUPPORTED

    def _find_address(self, symbol: bytes, place: Any, version: int, flags: int, status: Any) -> int:
        name = symbol.decode()
        if not name.startswith("cu"):
            return _NOT_FOUND
        if self._library.address(name) is None:
            self._library.give({name: self.answer(name, (), functools.partial(self.refuse, name))})
        if status and version >= 12_000:  # before it the function had no such argument
            status[0] = 0
        return _give(place, self._library.address(name) or 0)

    def _new_handle(self) -> int:
        return _HANDLE + _UNIT * (len(self._images) + len(self._functions) + 1)

    # --- the board ---

    def _name_device(self, place: int, size: int, _: int) -> None:
        name = self._target.board.encode()[: size - 1] + b"\0"
        ctypes.memmove(place, name, len(name))

    def _capability(self, major: Any, minor: Any, _: int) -> None:
        major[0], minor[0] = self._target.capability

    def _device_attribute(self, place: Any, attribute: int, _: int) -> int:
        target = self._target
        values = {
            1: _MOST_THREADS, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535, 8: _FREELY, 9: 65536,
            10: target.warp_size, 11: 2**31 - 1, 12: target.registers, 13: target.clock_khz, 14: 512, 15: 1,
            16: target.processors, 17: 0, 18: 0, 19: 1, 20: 0, 31: 1, 36: target.memory_clock_khz,
            37: target.bus_bits, 38: target.l2_bytes, 39: target.threads, 41: 1, 75: target.capability[0],
            76: target.capability[1], 78: 1, 79: 1, 80: 1, 81: target.shared_processor, 82: target.registers, 83: 1,
            84: 0, 95: 1, 97: target.shared_block, 102: 1, 106: target.blocks, 111: target.shared_reserved, 115: 1,
            120: int(target.capability >= (9, 0)), 127: int(target.capability >= (9, 0)), 129: 1,
        }  # fmt: skip
        value = values.get(attribute)
        if value is None:
            note_unknown("captured_offline", f"attribute {attribute} of the device")
            return _NOT_SUPPORTED
        return _give(place, value)

    # --- modules and functions ---

    def _load(self, place: Any, image: int, *_: Any) -> int:
        try:
            content = _read_image(image, self._target)
        except ValueError as error:
            note_unknown("captured_offline", f"a module: {error}")
            return _NOT_SUPPORTED
        return _give(place, self.load(content))

    def _load_file(self, place: Any, path: bytes) -> int:
        try:
            content = Path(path.decode()).read_bytes()
        except OSError:
            return 301  # CUDA_ERROR_FILE_NOT_FOUND
        buffer = ctypes.create_string_buffer(content)
        return self._load(place, ctypes.addressof(buffer))

    def _find_function(self, place: Any, module: int, name: bytes) -> int:
        handle = self.find(module or 0, name.decode())
        return _give(place, handle) if handle else _NOT_FOUND

    def _module_of(self, place: Any, function: int) -> int:
        return _give(place, self._functions[function].module)

    def _list_names(self, module: int) -> list[str]:
        if module not in self._images:
            return []
        names = [section.name.decode() for section in list_sections(self._images[module])]
        return [name.removeprefix(".text.") for name in names if name.startswith(".text.")]

    def _count_kernels(self, place: Any, module: int) -> int:
        return _give(place, len(self._list_names(module)))

    def _list_kernels(self, places: Any, count: int, module: int) -> None:
        for number, name in enumerate(self._list_names(module)[:count]):
            places[number] = self.find(module, name)

    def _name(self, place: Any, function: int) -> int:
        return _give(place, ctypes.addressof(self._functions[function].symbol))

    def _attribute(self, function: _Function, attribute: int) -> int:
        if attribute in function.attributes:
            return function.attributes[attribute]
        usage = function.usage if attribute in {_LOCAL, _REGISTERS} else None
        values = {_THREADS: _MOST_THREADS, _STATIC: function.shared, _DYNAMIC: max(_FREELY - function.shared, 0)}
        if usage:
            values |= {_LOCAL: usage.local_bytes, _REGISTERS: usage.registers}
        return values.get(attribute, 0)

    def _function_attribute(self, place: Any, attribute: int, function: int, *_: Any) -> int:
        return _give(place, self._attribute(self._functions[function], attribute))

    def set_attribute(self, function: int, attribute: int, value: int) -> int:
        """Let a function have what the host allows it. Returns a CUresult."""
        if attribute == _DYNAMIC and value > self._target.shared_block:
            return _INVALID
        self._functions[function].attributes[attribute] = value
        return 0

    def _parameter(self, function: int, number: int, offset: Any, size: Any) -> int:
        parameters = self._functions[function].parameters
        if number >= len(parameters):
            return _INVALID
        _give(offset, parameters[number][0])
        return _give(size, parameters[number][1])

    def _count_blocks(self, place: Any, handle: int, threads: int, shared: int, *_: Any) -> int:
        function, warps = self._functions[handle], -(-threads // 32)
        if function.usage is None:
            return self.refuse("cuOccupancyMaxActiveBlocksPerMultiprocessor")
        figures = {"registers": function.usage.registers, "shared": shared + function.shared, "warps": warps}
        occupancy = binaries.find_occupancy(self._target, **figures)
        return _give(place, round(occupancy * self._target.warps / warps))

    def _shared_left(self, place: Any, handle: int, blocks: int, _: int) -> int:
        function = self._functions[handle]
        left = self._target.shared_processor // max(blocks, 1) - self._target.shared_reserved - function.shared
        return _give(place, max(min(left, self._attribute(function, _DYNAMIC)), 0))

    def _count_clusters(self, place: Any, handle: int, config: Any) -> int:
        """As many as the processors hold at once. Real boards have fewer of large ones, by how they are wired."""
        wanted, size = config[0], 1
        attributes = read_attributes(wanted)
        for at in range(0, len(attributes), ATTRIBUTE_BYTES):
            if struct.unpack_from("<i", attributes, at)[0] == _CLUSTER:
                size = math.prod(struct.unpack_from("<3I", attributes, at + 8))
        blocks = c_int()
        status = self._count_blocks(ctypes.pointer(blocks), handle, math.prod(wanted.block), wanted.shared)
        return status or _give(place, self._target.processors * blocks.value // size)

    # --- launches and memory ---

    def _launch(self, function: int, *rest: Any) -> int:
        (*sides, shared, _stream, parameters, extra) = rest
        return self.launch(function, sides[:3], sides[3:], shared, b"", parameters, extra)

    def _launch_together(self, function: int, *rest: Any) -> int:
        (*sides, shared, _stream, parameters) = rest
        attributes = struct.pack("<iiq56x", COOPERATIVE, 0, 1)
        return self.launch(function, sides[:3], sides[3:], shared, attributes, parameters)

    def launch_by(self, config: Any, function: int, parameters: Any, extra: Any = None) -> int:
        """Tell of a launch by its configuration. Returns a CUresult."""
        wanted = config[0]
        attributes = read_attributes(wanted)
        return self.launch(
            function, list(wanted.grid), list(wanted.block), wanted.shared, attributes, parameters, extra
        )  # fmt: skip

    def fill(self, width: int, address: int, value: int, count: int) -> None:
        """Tell of numbers of `width` bytes in memory that are set to one value."""
        if self._covered is not None and not self._covered():
            memory = _spell(struct.pack("<Q", address))
            arguments = {"memory": memory, "width": width, "value": value, "count": count}
            tell(Launched(None, DriverKernel("a fill of memory", b""), (1, 1, 1), arguments))

    def _pointer_attribute(self, place: int, attribute: int, address: int) -> int:
        where = locate(address)
        values = {1: _CONTEXT, 2: 2, 3: address, 8: 0, 9: 0, 10: 1, 15: 0, 17: 0}  # 2: memory of a device
        if where is None or attribute not in {*values, 7, 11, 12}:
            return _INVALID
        tensor, shift = where
        values |= {7: address - shift, 11: address - shift, 12: tensor.untyped_storage().nbytes()}
        kind = c_uint64 if attribute in {1, 3, 7, 11, 12, 17} else c_int
        kind.from_address(place).value = values[attribute]
        return 0


_NOTHING = (
    "cuInit", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxSetFlags", "cuCtxSetCurrent", "cuCtxPushCurrent",
    "cuCtxDestroy", "cuModuleUnload", "cuLibraryUnload",
    "cuFuncLoad", "cuFuncSetSharedMemConfig",
)  # fmt: skip
_GIVES_CONTEXT = ("cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxPopCurrent", "cuCtxCreate")
_LOADS = ("cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuLibraryLoadData")
_REFUSED = (
    "cuMemAlloc", "cuMemFree", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD",
    "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuModuleGetGlobal", "cuLibraryGetGlobal",
    "cuStreamCreate", "cuStreamDestroy", "cuEventCreate", "cuEventDestroy", "cuEventRecord", "cuEventSynchronize",
    "cuEventElapsedTime", "cuStreamWaitEvent", "cuGraphLaunch", "cuMemGetInfo",
    "cuOccupancyMaxPotentialBlockSize", "cuTensorMapEncodeIm2col", "cuCtxGetLimit", "cuCtxSetLimit",
    "cuCtxResetPersistingL2Cache", "cuStreamSetAttribute",
)  # fmt: skip


def read_attributes(config: Any) -> bytes:
    """The attributes of a launch, by its configuration."""
    if not config.count:
        return b""
    return trim_attributes(ctypes.string_at(config.attributes, ATTRIBUTE_BYTES * config.count))


def _give(place: Any, value: int) -> int:
    if place:
        place[0] = value
    return 0


def _do_nothing(*_: Any) -> int:
    return 0


def _pass(place: Any, handle: int) -> int:
    """A library and its module, a kernel and its function are one here."""
    return _give(place, handle)


def _order(name: str) -> int:
    note(f"{name}()")
    return 0


_UNKNOWN = ctypes.create_string_buffer(b"without a device")


def _describe(_: int, place: Any) -> int:
    place[0] = ctypes.cast(_UNKNOWN, c_char_p)
    return 0


def _describe_tensor(
    place: int, kind: int, rank: int, address: int, sizes: Any, strides: Any, box: Any, steps: Any, *how: int
) -> None:
    """A descriptor: the address, and a digest of all else."""
    lists = sizes[:rank], strides[: rank - 1], box[:rank], steps[:rank]
    content = struct.pack("<Q", address) + hashlib.sha256(repr((kind, *lists, how)).encode()).digest()
    ctypes.memmove(place, content.ljust(_WORDS, b"\0"), _WORDS)


def _read_image(place: int, target: Target) -> bytes:
    """The cubin at an address. PTX is compiled first. Raises ValueError for what is neither, or does not compile."""
    if image := read_elf(place):
        return image
    begin = ctypes.string_at(place, 4)
    if begin == _FAT:
        size = c_uint64.from_address(place + 8).value
        return _choose(ctypes.string_at(place, 16 + size), int(target.arch))
    if not begin[:1].isspace() and begin[:1] not in {b".", b"/"}:
        raise ValueError("it is neither a cubin nor PTX")
    path = binaries.tool("ptxas")
    if path is None:
        raise ValueError("there is no ptxas for its PTX")
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "module.ptx"), Path(folder, "module.cubin")
        source.write_bytes(ctypes.string_at(place))
        command = [path, f"--gpu-name={target.name}", "--output-file", str(made), str(source)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
        if done.returncode:
            raise ValueError(done.stderr.strip().partition("\n")[0].replace(str(source), "PTX"))
        return made.read_bytes()


def _choose(images: bytes, architecture: int) -> bytes:
    """The cubin of a file of several that the driver would take: the last one that the board can run."""
    (at,), fitting = struct.unpack_from("<H", images, 6), b""
    while at < len(images):
        kind, header, size, packed = struct.unpack_from("<H2xIQI", images, at)
        (made_for,) = struct.unpack_from("<I", images, at + 28)
        if kind == _OF_CUBIN and not packed and made_for // 10 == architecture // 10 and made_for <= architecture:
            fitting = images[at + header : at + header + size]
        at += header + size
    if not fitting:
        raise ValueError(f"it has no cubin for {architecture}, or a compressed one")
    return fitting


def _spell(value: bytes) -> RawParameter:
    """A parameter with the tensors that addresses in it lead to."""
    content, places = find_addresses(value, locate)
    return RawParameter(content, tuple((offset, *place) for offset, place in places))
