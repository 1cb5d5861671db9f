"""A device's side of soaking beside its timer: memory by two accounts, streams, room for huge arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from perfci.device.arrays import leaves
from perfci.device.fake import held
from perfci.device.seam import Accelerator

BUSY_CYCLES = 40_000_000  # about 20 ms at an H200's clock: longer than the host takes to queue what follows
PRODUCTS, SIZE = 200, 2048  # matrix products that keep a stream at work if the device cannot simply wait


@dataclass(frozen=True)
class MemoryUse:
    """Device memory by two accounts, bytes. None if unknown."""

    allocated: int | None = None  # of live arrays, as the allocator counts them
    peak: int | None = None  # at most, since `reset_peak`
    outside: int | None = None  # by the driver's account less the allocator's: other libraries', other processes'


def open_endurance(device: Accelerator) -> Endurance:
    """Returns what soaking needs of a device that is open."""
    match device.info.kind:
        case "fake":
            return FakeEndurance(device.info.memory_bytes or 0)
        case "cpu":
            return Endurance()
        case name:
            return TorchEndurance(name)


class Endurance:
    """A device without streams and without counted memory: the CPU."""

    def memory(self) -> MemoryUse:
        """Memory in use now. The device has been waited for."""
        return MemoryUse()

    def reset_peak(self) -> None:
        """Start a new peak."""

    def room(self) -> int | None:
        """Bytes that new arrays could take. None if unknown."""
        return None

    def trim(self) -> None:
        """Give back what the allocator keeps for later."""

    def stream(self) -> object | None:
        """A new stream beside the default one. None on a device without streams."""
        return None

    def on(self, stream: object | None) -> AbstractContextManager[object]:
        """Inside, in this thread, work goes to the stream. None: to the default one."""
        return nullcontext(stream)

    def occupy(self) -> None:
        """Keep the current stream at work for some 20 ms, while the host goes on."""

    def footprint(self, make: Callable[[], Any]) -> int | None:
        """Bytes of the tensors that `make` would return, by torch's fake tensors. None if these cannot follow it."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        try:
            with FakeTensorMode():
                made = list(leaves(make()))
        except Exception:  # whatever an op does that fake tensors cannot follow
            return None
        return sum(int(tensor.numel() * tensor.element_size()) for tensor in made if isinstance(tensor, torch.Tensor))


class FakeEndurance(Endurance):
    """The fake device's memory that kernels hold."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes

    def memory(self) -> MemoryUse:
        """As kernels declare with `hold`."""
        return MemoryUse(held.now, held.peak, held.outside)

    def reset_peak(self) -> None:
        """Start at what is held."""
        held.peak = held.now

    def room(self) -> int | None:
        """Memory that is not held."""
        return self._memory_bytes - int(held.now) - int(held.outside)

    def footprint(self, make: Callable[[], Any]) -> int | None:
        """Unknown: its arrays are no tensors."""
        return None


class TorchEndurance(Endurance):
    """A device that torch has a module for."""

    def __init__(self, name: str) -> None:
        import torch

        self._name = name
        self._module: Any = torch.get_device_module(name)

    def memory(self) -> MemoryUse:
        """Torch's allocator against the driver's account of the whole device."""
        module = self._module
        free, total = module.mem_get_info()
        outside = total - free - module.memory_reserved()
        return MemoryUse(int(module.memory_allocated()), int(module.max_memory_allocated()), int(outside))

    def reset_peak(self) -> None:
        """Of the allocator."""
        self._module.reset_peak_memory_stats()

    def room(self) -> int | None:
        """Memory that the driver has free, and that the allocator keeps for later."""
        module = self._module
        return int(module.mem_get_info()[0] + module.memory_reserved() - module.memory_allocated())

    def trim(self) -> None:
        """Of the allocator."""
        self._module.empty_cache()

    def stream(self) -> Any:
        """One that does not wait for the default one."""
        return self._module.Stream()

    def on(self, stream: object | None) -> Any:
        """As the module does it."""
        return self._module.stream(self._module.default_stream() if stream is None else stream)

    def occupy(self) -> None:
        """By waiting, or by matrix products."""
        if hasattr(self._module, "_sleep"):
            self._module._sleep(BUSY_CYCLES)
            return
        import torch

        left, out = _make_matrices(self._name)
        for _ in range(PRODUCTS):
            torch.mm(left, left, out=out)


@functools.cache
def _make_matrices(name: str) -> tuple[Any, Any]:
    import torch

    left = torch.ones(SIZE, SIZE, device=name, dtype=torch.float16)
    return left, torch.empty_like(left)
