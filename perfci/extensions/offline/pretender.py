"""A board that is not there: torch and Triton answer by a target's published facts, and tensors have no memory.

Tensors are torch's meta tensors, which claim to lie on the board. FakeTensorMode needs a torch built for CUDA, and
imports torch._dynamo, which takes longer than compiling most kernels. What needs a device is noted in every capture
under way, as what cannot be known here.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import triton
import triton.testing
from torch.autograd.function import BackwardCFunction
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import _disable_current_modes
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel

from perfci.device.capture import Storages, note, note_unknown
from perfci.device.tensors import Mode
from perfci.extensions.common.targets import Target
from perfci.extensions.offline import dlpack

try:
    from triton.runtime import _allocation
except ImportError:  # triton-ascend, if no kernel asks its launcher for memory
    _allocation = None

DEVICE = torch.device("cuda", 0)
META = torch.device("meta")

FIRST_ADDRESS = 0x5D27 << 32  # which hardly any other eight bytes of a launch look like
ADDRESS_UNIT = 512  # what torch's allocator aligns fresh memory to

_NAMED = re.compile(r"cuda(:\d+)?")

ROCM = "7.0"  # value of torch.version.hip for AMD targets: ops look whether there is one, not which

UNKNOWN_PROPERTIES = frozenset(  # that no source gives, or that differ from board to board
    {"uuid", "pci_bus_id", "pci_device_id", "pci_domain_id", "total_memory", "clock_rate", "memory_clock_rate",
     "memory_bus_width"}
)  # fmt: skip


def pretend(target: Target) -> None:
    """Have torch and Triton see the target's board, for the rest of the process's life and of this thread's."""
    _spare_dynamo()
    triton.runtime.driver.set_active(make_driver(target))
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = no_benchmark
    _give_addresses()
    _answer_for(target)


def _spare_dynamo() -> None:
    """Have torch's operations on meta tensors not import torch._dynamo, which takes seconds, to be hidden from it.

    A version of torch that hides them by other means than `torch._compile._disable_dynamo` of 2.11 and 2.13 imports it.
    """
    code = getattr(getattr(torch._compile, "_disable_dynamo", str)(len), "__code__", None)
    if code is None or "fn" not in code.co_freevars or "torch._dynamo" in sys.modules:
        return
    modules = (vars(module) for name, module in [*sys.modules.items()] if name.startswith("torch._refs"))
    for table in (*torch._decomp.global_decomposition_table.values(), *modules):
        for hidden in {part for function in table.values() for part in _list_parts(function) if part.__code__ is code}:
            plain = hidden.__closure__[code.co_freevars.index("fn")].cell_contents
            setattr(plain, "__dynamo_disable", plain)


def _list_parts(function: Any) -> Iterator[Any]:
    """Yields a function in Python and those that it wraps."""
    left, seen = [function], set[Any]()
    while left:
        part = left.pop()
        if isinstance(part, types.FunctionType) and part not in seen:
            seen.add(part)
            yield part
            for cell in part.__closure__ or ():
                with contextlib.suppress(ValueError):  # it is empty
                    left.append(cell.cell_contents)


# --- tensors ----------------------------------------------------------------------------------------------------------


class _Inside:
    depth = 0  # above 0 if torch itself is at work: its Python parts have to see the meta device


def _describe(tensor: torch.Tensor) -> dlpack.Facts:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return tensor.data_ptr(), dtype, tuple(tensor.shape), tuple(tensor.stride())


class VirtualTensor(torch.Tensor):
    """A tensor without memory that has an address, as well aligned as a fresh allocation."""

    @property
    def device(self) -> torch.device:
        return META if _Inside.depth else DEVICE

    @property
    def is_cuda(self) -> bool:
        return not _Inside.depth

    @property
    def is_meta(self) -> bool:
        return bool(_Inside.depth)

    def get_device(self) -> int:
        return 0

    def data_ptr(self) -> int:
        """Address of the first element. 0 for an empty tensor, as of a real one."""
        if not self.numel():
            return 0
        return address(self.untyped_storage()) + self.storage_offset() * self.element_size()

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return self.detach().clone()

    def record_stream(self, stream: Any) -> None:
        note("Tensor.record_stream()")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype not in _LETTERS:
            raise AttributeError("__cuda_array_interface__")  # as of a tensor on a device
        width = self.element_size()
        return {
            "typestr": f"{'|' if width == 1 else '<'}{_LETTERS[self.dtype]}{width}",
            "shape": tuple(self.shape),
            "strides": None if self.is_contiguous() else tuple(stride * width for stride in self.stride()),
            "data": (self.data_ptr(), False),
            "version": 2,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, 0

    def __dlpack__(self, *_: Any, **__: Any) -> Any:
        return dlpack.make_capsule(_describe(self))

    __dlpack_c_exchange_api__ = dlpack.make_exchange(_describe)


_LETTERS = {
    torch.float64: "f", torch.float32: "f", torch.float16: "f", torch.int64: "i", torch.int32: "i", torch.int16: "i",
    torch.int8: "i", torch.uint8: "u", torch.bool: "b", torch.complex64: "c", torch.complex128: "c",
}  # fmt: skip
"""Kinds of numbers that NumPy has too."""


class VirtualGenerator(torch.Generator):
    """A generator of the device. Numbers are never drawn."""

    def __new__(cls, device: Any = "cpu") -> VirtualGenerator:
        made: VirtualGenerator = super().__new__(cls, "cpu")
        made._asked = torch.device(device)
        return made

    def __init__(self, device: Any = "cpu") -> None:
        self._asked: torch.device

    @property
    def device(self) -> torch.device:
        return self._asked


_storages, _addresses = Storages(), [FIRST_ADDRESS]  # those that were asked, and their addresses, with the next one
_references = list[StorageWeakRef]()  # to the same


def address(storage: torch.UntypedStorage) -> int:
    """Where a storage lies: the next free place when it is asked for the first time."""
    number = _storages.of(storage)
    if number == len(_addresses) - 1:
        _addresses.append(_addresses[-1] + max(-(-storage.nbytes() // ADDRESS_UNIT), 1) * ADDRESS_UNIT)
        _references.append(StorageWeakRef(storage))
    return _addresses[number]


def locate(place: int) -> tuple[torch.Tensor, int] | None:
    """The bytes of the storage that an address lies in, and how far behind their first. None if there is none."""
    number = bisect.bisect_right(_addresses, place) - 1
    if not 0 <= number < len(_references):
        return None
    storage = torch.UntypedStorage._new_with_weak_ptr(_references[number].cdata)
    shift = place - _addresses[number]
    if storage is None or shift >= max(storage.nbytes(), 1):
        return None
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        tensor = torch.empty(0, dtype=torch.uint8, device=META)
        return tensor.set_(storage).as_subclass(VirtualTensor), shift


class VirtualDevice(TorchFunctionMode):
    """Sends whatever is asked of the device to meta tensors, and has the results claim to lie on it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.device:
            return DEVICE if args and isinstance(args[0], int) else func(*args, **kwargs)
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func is torch.Tensor.cuda:
            func, args, kwargs = torch.Tensor.to, (args[0], META), {}
        by_number = func is torch.Tensor.to  # which takes a device's number too
        args = [META if _is_device(value, by_number=by_number) else value for value in args]
        kwargs = {
            name: META if name == "device" and _is_device(value, by_number=True) else value
            for name, value in kwargs.items()  # without what only real memory can have
            if name != "pin_memory" and not (isinstance(value, VirtualGenerator) and value.device.type == "cuda")
        }
        try:
            with _inside(), torch._C.DisableTorchFunctionSubclass():
                result = func(*args, **kwargs)
        except (RuntimeError, TypeError) as error:
            if "meta" in str(error).lower():  # it wanted values
                note_unknown("captured_offline", resolve_name(func) or getattr(func, "__name__", str(func)))
            raise
        return _claim(result)


class _MetaOperations(Mode):
    """Has operations that torch starts by itself, such as those of autograd, see the meta device. Draws no numbers."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::") if hasattr(func, "_schema") else ""
        if name in _FILLING and args[0].is_meta:
            return args[0]
        with _inside():
            if name in _DRAWING and torch.device(kwargs.get("device") or "cpu").type == "meta":
                size = next(value for value in args if isinstance(value, list | tuple))
                return _claim(torch.empty(size, dtype=kwargs.get("dtype") or _DRAWING[name], device=META))
            result = func(*args, **kwargs)
        return result if any(result is value for value in args) else _claim(result)


_FILLING = frozenset({"normal_", "uniform_", "random_", "bernoulli_", "exponential_"})
_DRAWING = {"randn": None, "rand": None, "randint": torch.int64}  # new tensors, with their dtype if none is named


@contextmanager
def outside() -> Iterator[None]:
    """The op's code that torch calls: it has to see the device again."""
    depth, _Inside.depth = _Inside.depth, 0
    try:
        with VirtualDevice():
            yield
    finally:
        _Inside.depth = depth


@contextmanager
def _inside() -> Iterator[None]:
    _Inside.depth += 1
    try:
        yield
    finally:
        _Inside.depth -= 1


def _claim(value: Any) -> Any:
    """A result with its tensors claiming to lie on the device: one, several, or such as `max` gives."""
    if type(value) is torch.Tensor:
        return value.as_subclass(VirtualTensor) if value.is_meta else value
    if type(value) in {tuple, list} or hasattr(value, "n_sequence_fields"):
        return type(value)([_claim(part) for part in value])
    return value


def _is_device(value: Any, *, by_number: bool) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    if isinstance(value, str):
        return _NAMED.fullmatch(value) is not None
    return by_number and isinstance(value, int) and not isinstance(value, bool)


def _give_addresses() -> None:
    """Virtual tensors are seen wherever the device's are asked for."""
    real: Callable[..., int] = torch.UntypedStorage.data_ptr
    backward: Callable[..., Any] = BackwardCFunction.apply

    def data_ptr(storage: torch.UntypedStorage) -> int:
        return address(storage) if storage.device.type == "meta" else real(storage)

    def apply(function: Any, *args: Any) -> Any:
        with outside():
            return backward(function, *args)

    torch.UntypedStorage.data_ptr = data_ptr
    BackwardCFunction.apply = apply
    torch.Generator = VirtualGenerator
    _MetaOperations().__enter__()
    VirtualDevice().__enter__()


# --- torch.cuda -------------------------------------------------------------------------------------------------------


def _answer(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer


def _note(text: str) -> Callable[..., None]:
    return lambda *_, **__: note(text)


def _refuse(what: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        note_unknown("captured_offline", what)
        raise RuntimeError(f"{what} needs a device")

    return refuse


class Properties(SimpleNamespace):
    """The answer of `torch.cuda.get_device_properties`."""

    def __init__(self, target: Target) -> None:
        is_cuda = target.backend == "cuda"
        values = {
            "name": target.board,
            "major": target.capability[0],
            "minor": target.capability[1],
            "multi_processor_count": target.processors,
            "L2_cache_size": target.l2_bytes,
            "warp_size": target.warp_size,
            "max_threads_per_multi_processor": target.threads,
            "max_threads_per_block": 1024,
            "regs_per_multiprocessor": target.registers,
            "shared_memory_per_block": min(target.shared_block, 49152) if is_cuda else 65536,
            "shared_memory_per_block_optin": target.shared_block,
            "shared_memory_per_multiprocessor": target.shared_processor,
            "is_integrated": 0,
            "is_multi_gpu_board": 0,
            "gcnArchName": target.board if is_cuda else target.name,
            "total_memory": target.memory_bytes,
            "clock_rate": target.clock_khz,
            "memory_clock_rate": target.memory_clock_khz,
            "memory_bus_width": target.bus_bits,
        }
        if target.backend == "npu":  # torch_npu's, as far as a 910B2 has them
            cores = target.driver_facts
            values = {"name": target.board, "L2_cache_size": target.l2_bytes or None, "total_memory": None}
            values |= {"cube_core_num": cores["num_aicore"], "vector_core_num": cores["num_vectorcore"]}
        super().__init__(**{name: value for name, value in values.items() if value is not None})

    def __getattr__(self, name: str) -> Any:
        if name in UNKNOWN_PROPERTIES:
            note_unknown("captured_offline", f"the property {name} of the device")
        raise AttributeError(name)


class VirtualStream:
    """A stream: work is only noted."""

    stream_id = 0
    device_index = 0
    device_type = 1
    device = DEVICE
    synchronize = _note("Stream.synchronize()")
    wait_event = _note("Stream.wait_event()")
    wait_stream = _note("Stream.wait_stream()")
    query = _answer(True)

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_stream = id(self)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.cuda_stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream

    def record_event(self, event: Any = None) -> Any:
        note("Stream.record_event()")
        return event or VirtualEvent()

    def __enter__(self) -> VirtualStream:
        note("torch.cuda_setStream()")
        return self

    def __exit__(self, *_: object) -> None:
        note("torch.cuda_setStream()")


class VirtualEvent:
    """An event: what it orders is noted, times it has none."""

    record = _note("Event.record()")
    wait = _note("Event.wait()")
    synchronize = _note("Event.synchronize()")
    query = _answer(True)
    elapsed_time = _refuse("torch.cuda.Event.elapsed_time")

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


def _answer_for(target: Target) -> None:
    """Torch answers for the target's board."""
    stream = VirtualStream()
    stream.cuda_stream = 0
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": target.capability >= (8, 0),
        "device_count": 1,
        "current_device": 0,
        "current_stream": stream,
        "default_stream": stream,
        "get_device_properties": Properties(target),
        "get_device_name": target.board,
        "get_device_capability": target.capability,
        "get_arch_list": [target.name],
        **dict.fromkeys(("init", "set_device", "empty_cache", "ipc_collect", "manual_seed", "manual_seed_all")),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, _answer(answer))
    torch.cuda.synchronize = _note("torch.cuda_synchronize()")
    torch.cuda.set_stream = _note("torch.cuda_setStream()")
    torch.cuda.stream = lambda chosen: nullcontext() if chosen is None else chosen
    torch.cuda.device = torch.cuda.device_of = torch.cuda._DeviceGuard = _Current
    torch.cuda.Stream = torch.cuda.ExternalStream = VirtualStream
    torch.cuda.Event = VirtualEvent
    torch.cuda._lazy_init = _refuse_to_start
    for name in ("mem_get_info", "get_rng_state", "memory_allocated", "max_memory_allocated", "memory_reserved"):
        setattr(torch.cuda, name, _refuse(f"torch.cuda.{name}"))
    for name in ("range_push", "range_pop", "mark"):
        setattr(torch.cuda.nvtx, name, _answer(None))
    torch._C._cuda_getCurrentRawStream = _answer(0)
    torch.version.hip = ROCM if target.backend == "hip" else None
    for name, answer in (
        ("is_available", True),
        ("device_count", 1),
        ("current_accelerator", torch.device(DEVICE.type)),
        ("current_device_index", 0),
        ("current_stream", stream),
        ("set_device_index", None),
    ):
        setattr(torch.accelerator, name, _answer(answer))
    torch.accelerator.synchronize = _note("torch.accelerator_synchronizeDevice()")


class _Current(nullcontext[None]):
    """A context in which a device is the current one. There is only one."""

    idx = prev_idx = 0

    def __init__(self, device: Any) -> None:
        super().__init__()


def _refuse_to_start() -> None:
    """In place of what readies CUDA: anyone who gets there wants a real device."""
    caller = sys._getframe(1).f_code
    _refuse(f"torch.cuda.{caller.co_name}" if "cuda" in caller.co_filename else "something of torch.cuda")()


# --- Triton's driver --------------------------------------------------------------------------------------------------


class _Answers(SimpleNamespace):
    """Answers under a name. A question that it does not know is noted."""

    def __getattr__(self, name: str) -> Any:
        note_unknown("captured_offline", f"{self.named}.{name}")
        raise AttributeError(name)


def make_driver(target: Target) -> Any:
    """Returns what Triton asks of a driver. Ops ask some of it too."""
    # Nothing is loaded. Registers and spills are worked out when they are asked for (`offline.install`).
    handles = (None, None, 0, 0, 1024) if "n_max_threads" in CompiledKernel._init_handles.__code__.co_names else None
    utils = {
        "get_device_properties": _Properties(target.driver_facts),
        "load_binary": handles or (None, None, 0, 0),
        "set_printf_fifo_size": None,
    }
    answers = {
        "get_current_target": GPUTarget(target.backend, target.arch, target.warp_size),
        "get_current_device": 0,
        "set_current_device": None,
        "get_current_stream": 0,
        "get_device_capability": target.capability,
        "get_active_torch_device": DEVICE,
        "get_device_interface": torch.cuda,
        "get_benchmarker": no_benchmark,
    }
    return _Answers(
        named="Triton's driver",
        utils=_Answers(named="Triton's driver.utils", **{name: _answer(answer) for name, answer in utils.items()}),
        launcher_cls=_Launcher,
        assemble_tensormap_to_arg=lambda _, args: args,
        **{name: _answer(answer) for name, answer in answers.items()},
    )


class _Properties(dict[str, Any]):
    """Properties of the board, by Triton's names."""

    def __missing__(self, name: str) -> Any:
        note_unknown("captured_offline", f"the property {name} of the device")
        raise KeyError(name)


class _Launcher:
    """Does what a launch does on the host: memory that the kernel needs is allocated."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self._size = getattr(metadata, "global_scratch_size", 0) or 0
        self._alignment = getattr(metadata, "global_scratch_align", 1)
        self._programs = getattr(metadata, "num_ctas", 1)

    def __call__(self, grid_x: int, grid_y: int, grid_z: int, stream: Any, *_: Any) -> None:
        if self._size:
            allocate = _allocation._allocator
            allocate = allocate.get() if hasattr(allocate, "get") else allocate
            allocate(grid_x * grid_y * grid_z * self._programs * self._size, self._alignment, stream)


def no_benchmark(*_: Any, **__: Any) -> Any:
    """Refuses to time kernels: the choice that a tuner would make is unknown."""
    note_unknown("captured_offline", "timing of kernels to choose one (triton.testing.do_bench)")
    raise RuntimeError("nothing can be timed without a device")
