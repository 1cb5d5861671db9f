"""A board that is not there: torch.cuda, torch.accelerator and Triton's driver answer by a target's published facts.

Nothing is loaded and nothing is launched.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel

from perfci.device.capture import note, note_unknown
from perfci.device.targets import Target
from perfci.device.virtual import DEVICE

try:
    from triton.runtime import _allocation
except ImportError:  # before 3.3 no kernel asked its launcher for memory
    _allocation = None

ROCM = "7.0"
"""What torch.version.hip says for AMD targets: ops look whether there is one, not which."""

UNKNOWN_PROPERTIES = frozenset(
    {"uuid", "pci_bus_id", "pci_device_id", "pci_domain_id", "total_memory", "clock_rate", "memory_clock_rate",
     "memory_bus_width"}
)  # fmt: skip
"""Properties of a real board that no source gives, or that differ from board to board."""


class Properties:
    """What `torch.cuda.get_device_properties` gives."""

    def __init__(self, target: Target) -> None:
        self.name = target.board
        self.major, self.minor = target.capability
        self.multi_processor_count = target.processors
        self.L2_cache_size = target.l2_bytes
        self.warp_size = target.warp_size
        self.max_threads_per_multi_processor = target.threads
        self.max_threads_per_block = 1024
        self.regs_per_multiprocessor = target.registers
        self.shared_memory_per_block = min(target.shared_block, 49152) if target.backend == "cuda" else 65536
        self.shared_memory_per_block_optin = target.shared_block
        self.shared_memory_per_multiprocessor = target.shared_processor
        self.is_integrated = self.is_multi_gpu_board = 0
        self.gcnArchName = target.board if target.backend == "cuda" else target.name
        self._set("total_memory", target.memory_bytes)
        self._set("clock_rate", target.clock_khz)
        self._set("memory_clock_rate", target.memory_clock_khz)
        self._set("memory_bus_width", target.bus_bits)

    def _set(self, name: str, value: int | None) -> None:
        if value is not None:
            setattr(self, name, value)

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

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_stream = id(self)

    def synchronize(self) -> None:
        """Note it."""
        note("Stream.synchronize()")

    def wait_event(self, event: Any) -> None:
        """Note it."""
        note("Stream.wait_event()")

    def wait_stream(self, stream: Any) -> None:
        """Note it."""
        note("Stream.wait_stream()")

    def record_event(self, event: Any = None) -> Any:
        """Note it."""
        note("Stream.record_event()")
        return event or VirtualEvent()

    def query(self) -> bool:
        """Have nothing under way."""
        return True

    def __enter__(self) -> VirtualStream:
        note("torch.cuda_setStream()")
        return self

    def __exit__(self, *_: object) -> None:
        note("torch.cuda_setStream()")


class VirtualEvent:
    """An event: what it orders is noted, times it has none."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        """Note it."""
        note("Event.record()")

    def wait(self, stream: Any = None) -> None:
        """Note it."""
        note("Event.wait()")

    def synchronize(self) -> None:
        """Note it."""
        note("Event.synchronize()")

    def query(self) -> bool:
        """Have happened."""
        return True

    def elapsed_time(self, end: Any) -> float:
        """Refuse: nothing took any time."""
        raise RuntimeError(note_unknown("captured_offline", "torch.cuda.Event.elapsed_time").kind)


def pretend(target: Target) -> None:
    """Have torch answer for the target's board, for the rest of the process's life."""
    properties, stream = Properties(target), VirtualStream()
    stream.cuda_stream = 0
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": target.capability >= (8, 0),
        "device_count": 1,
        "current_device": 0,
        "current_stream": stream,
        "default_stream": stream,
        "get_device_properties": properties,
        "get_device_name": target.board,
        "get_device_capability": target.capability,
        "get_arch_list": [target.name],
        **dict.fromkeys(("init", "set_device", "empty_cache", "ipc_collect", "manual_seed", "manual_seed_all")),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, _answering(answer))
    torch.cuda.synchronize = _noting("torch.cuda_synchronize()")
    torch.cuda.set_stream = _noting("torch.cuda_setStream()")
    torch.cuda.stream = lambda chosen: nullcontext() if chosen is None else chosen
    torch.cuda.device, torch.cuda.device_of = _Current, _Current
    torch.cuda.Stream = torch.cuda.ExternalStream = VirtualStream
    torch.cuda.Event = VirtualEvent
    torch.cuda._lazy_init = _refuse
    for name in ("mem_get_info", "get_rng_state", "memory_allocated", "max_memory_allocated", "memory_reserved"):
        setattr(torch.cuda, name, _refusing(f"torch.cuda.{name}"))
    for name in ("range_push", "range_pop", "mark"):
        setattr(torch.cuda.nvtx, name, _answering(None))
    torch._C._cuda_getCurrentRawStream = _answering(0)
    torch.version.hip = ROCM if target.backend == "hip" else None
    _pretend_accelerator(stream)


def _pretend_accelerator(stream: VirtualStream) -> None:
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_accelerator": torch.device(DEVICE.type),
        "current_device_index": 0,
        "current_stream": stream,
        "set_device_index": None,
    }
    for name, answer in answers.items():
        setattr(accelerator, name, _answering(answer))
    accelerator.synchronize = _noting("torch.accelerator_synchronizeDevice()")


class _Current:
    """A context in which a device is the current one; there is only one."""

    def __init__(self, device: Any) -> None:
        self.idx = 0
        self.prev_idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def _answering(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer


def _noting(text: str) -> Callable[..., None]:
    return lambda *_, **__: note(text)


def _refusing(what: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        note_unknown("captured_offline", what)
        raise RuntimeError(f"{what} needs a device")

    return refuse


def _refuse() -> None:
    """In place of what readies CUDA: whoever gets there wants a real device."""
    caller = sys._getframe(1).f_code
    what = f"torch.cuda.{caller.co_name}" if "cuda" in caller.co_filename else "something of torch.cuda"
    note_unknown("captured_offline", what)
    raise RuntimeError(f"{what} needs a device")


# --- Triton's driver --------------------------------------------------------------------------------------------------


class StubDriver:
    """What Triton asks of a driver; ops ask some of it too."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.utils = _Utils(target)
        self.launcher_cls = _Launcher

    def get_current_target(self) -> GPUTarget:
        """The target."""
        npu = self._target.backend == "npu"  # whose own driver tells no warps
        return GPUTarget(self._target.backend, self._target.arch, 0 if npu else self._target.warp_size)

    def get_current_device(self) -> int:
        """The only device."""
        return 0

    def set_current_device(self, device: Any) -> None:
        """Have no other device."""

    def get_current_stream(self, device: Any = None) -> int:
        """The default stream."""
        return 0

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        """The board's compute capability."""
        return self._target.capability

    def get_active_torch_device(self) -> torch.device:
        """Torch's name of the device."""
        return DEVICE

    def get_device_interface(self) -> Any:
        """Torch's module of the device, which answers for the target."""
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        """Something that refuses: nothing can be timed."""
        return no_benchmark

    def assemble_tensormap_to_arg(self, tensormaps: Any, args: Any) -> Any:
        """Arguments as they are."""
        return args

    def __getattr__(self, name: str) -> Any:
        note_unknown("captured_offline", f"Triton's driver.{name}")
        raise AttributeError(name)


class _Properties(dict[str, Any]):
    """What Triton's driver tells of the board, by its own names."""

    def __missing__(self, name: str) -> Any:
        note_unknown("captured_offline", f"the property {name} of the device")
        raise KeyError(name)


class _Utils:
    def __init__(self, target: Target) -> None:
        known = {
            "max_shared_mem": target.shared_block,
            "max_num_regs": target.registers,
            "multiprocessor_count": target.processors,
            "warpSize": target.warp_size,
            "max_threads_per_sm": target.threads,
            "sm_clock_rate": target.clock_khz,
            "mem_clock_rate": target.memory_clock_khz,
            "mem_bus_width": target.bus_bits,
            "arch": target.name if target.backend == "hip" else None,
        }
        if target.backend == "npu":
            known = {"max_shared_mem": 1, "num_aicore": target.processors // 2, "num_vectorcore": target.processors}
        self._properties = _Properties({name: value for name, value in known.items() if value is not None})

    def get_device_properties(self, device: Any = None) -> _Properties:
        return self._properties

    def load_binary(self, name: str, binary: bytes, shared: int, device: Any) -> tuple[Any, ...]:
        """Nothing is loaded; registers and spills are worked out when somebody asks (`install`)."""
        wanted = CompiledKernel._init_handles.__code__.co_names
        return (None, None, 0, 0, 1024) if "n_max_threads" in wanted else (None, None, 0, 0)

    def set_printf_fifo_size(self, size: int) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        note_unknown("captured_offline", f"Triton's driver.utils.{name}")
        raise AttributeError(name)


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
    """In place of whatever times kernels: a choice that it would make cannot be told."""
    note_unknown("captured_offline", "timing of kernels to choose one (triton.testing.do_bench)")
    raise RuntimeError("nothing can be timed without a device")
