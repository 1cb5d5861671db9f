"""What torch.cuda and torch.accelerator answer in a process that has no device but a target's published facts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from perfci.device.noted import note, note_unknown
from perfci.device.targets import Target
from perfci.device.virtual import DEVICE

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
