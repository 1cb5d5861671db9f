"""A board that is not there: torch.cuda, torch.accelerator and Triton's driver answer by a target's published facts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel

from perfci.device.capture import note, note_unknown
from perfci.device.targets import Target
from perfci.device.virtual import DEVICE

try:
    from triton.runtime import _allocation
except ImportError:  # triton-ascend, if no kernel asks its launcher for memory
    _allocation = None

ROCM = "7.0"  # value of torch.version.hip for AMD targets: ops look whether there is one, not which

UNKNOWN_PROPERTIES = frozenset(  # that no source gives, or that differ from board to board
    {"uuid", "pci_bus_id", "pci_device_id", "pci_domain_id", "total_memory", "clock_rate", "memory_clock_rate",
     "memory_bus_width"}
)  # fmt: skip


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
    """What `torch.cuda.get_device_properties` gives."""

    def __init__(self, target: Target) -> None:
        is_cuda = target.backend == "cuda"
        known = {
            "total_memory": target.memory_bytes,
            "clock_rate": target.clock_khz,
            "memory_clock_rate": target.memory_clock_khz,
            "memory_bus_width": target.bus_bits,
        }
        super().__init__(
            name=target.board,
            major=target.capability[0],
            minor=target.capability[1],
            multi_processor_count=target.processors,
            L2_cache_size=target.l2_bytes,
            warp_size=target.warp_size,
            max_threads_per_multi_processor=target.threads,
            max_threads_per_block=1024,
            regs_per_multiprocessor=target.registers,
            shared_memory_per_block=min(target.shared_block, 49152) if is_cuda else 65536,
            shared_memory_per_block_optin=target.shared_block,
            shared_memory_per_multiprocessor=target.shared_processor,
            is_integrated=0,
            is_multi_gpu_board=0,
            gcnArchName=target.board if is_cuda else target.name,
            **{name: value for name, value in known.items() if value is not None},
        )

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


def pretend(target: Target) -> None:
    """Have torch answer for the target's board, for the rest of the process's life."""
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
    torch.cuda.device = torch.cuda.device_of = _Current
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
    """In place of what readies CUDA: whoever gets there wants a real device."""
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
    warp_size = 0 if target.backend == "npu" else target.warp_size  # as triton-ascend's own driver has it
    answers = {
        "get_current_target": GPUTarget(target.backend, target.arch, warp_size),
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
        utils=_make_utils(target),
        launcher_cls=_Launcher,
        assemble_tensormap_to_arg=lambda _, args: args,
        **{name: _answer(answer) for name, answer in answers.items()},
    )


class _Properties(dict[str, Any]):
    """Properties of the board, by Triton's own names."""

    def __missing__(self, name: str) -> Any:
        note_unknown("captured_offline", f"the property {name} of the device")
        raise KeyError(name)


def _make_utils(target: Target) -> _Answers:
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
    wanted = CompiledKernel._init_handles.__code__.co_names
    return _Answers(
        named="Triton's driver.utils",
        get_device_properties=_answer(_Properties({k: v for k, v in known.items() if v is not None})),
        # Nothing is loaded. Registers and spills are worked out when somebody asks (`offline.install`).
        load_binary=_answer((None, None, 0, 0, 1024) if "n_max_threads" in wanted else (None, None, 0, 0)),
        set_printf_fifo_size=_answer(None),
    )


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
