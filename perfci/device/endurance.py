"""What soaking needs of a device that torch computes on: memory by two accounts, streams, and room.

The fake device brings its own, so that it needs no torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from perfci.device.seam import Accelerator, Endurance, MemoryUse, leaves
from perfci.device.triton_release import unknown_triton

BUSY_CYCLES = 40_000_000
"""About 20 ms at an H200's clock: longer than the host takes to queue what follows."""

_PRODUCTS, _SIZE = 200, 2048
"""What keeps a stream at work where the device cannot simply wait: some matrix products."""


def of(device: Accelerator) -> Endurance:
    """What soaking needs of an open device."""
    own: Callable[[], Endurance] | None = getattr(device, "endurance", None)
    if own is not None:
        return own()
    return HostEndurance() if device.info.kind == "cpu" else TorchEndurance(device.arrays.device)


class TorchEndurance:
    """An accelerator that torch has a module for: torch.cuda, torch.npu."""

    def __init__(self, name: str) -> None:
        import torch

        self._name = name
        self._module: Any = torch.get_device_module(name)

    def memory(self) -> MemoryUse:
        """Torch's allocator against what the driver says of the whole device."""
        module = self._module
        free, total = module.mem_get_info()
        outside = total - free - module.memory_reserved()
        return MemoryUse(int(module.memory_allocated()), int(module.max_memory_allocated()), int(outside))

    def reset_peak(self) -> None:
        """As torch has it."""
        self._module.reset_peak_memory_stats()

    def room(self) -> int | None:
        """What the driver has free, and what the allocator keeps for later."""
        module = self._module
        return int(module.mem_get_info()[0] + module.memory_reserved() - module.memory_allocated())

    def trim(self) -> None:
        """Empty the allocator's cache."""
        self._module.empty_cache()

    def stream(self) -> object | None:
        """One that does not wait for the default stream."""
        stream: object = self._module.Stream()
        return stream

    def on(self, stream: object | None) -> AbstractContextManager[object]:
        """Torch's own context; the default stream is made current too, whichever is now."""
        wanted = self._module.default_stream() if stream is None else stream
        context: AbstractContextManager[object] = self._module.stream(wanted)
        return context

    def occupy(self) -> None:
        """Wait on the device, or multiply matrices."""
        if hasattr(self._module, "_sleep"):
            self._module._sleep(BUSY_CYCLES)
            return
        left, out = _matrices(self._name)
        for _ in range(_PRODUCTS):
            _multiplied(left, out)

    def interprets(self, call: Callable[[], Any]) -> bool:
        """No: the device runs what is compiled."""
        call()
        return False

    def footprint(self, make: Callable[[], Any]) -> int | None:
        """By torch's fake tensors."""
        return _faked(make)


class HostEndurance:
    """The CPU: no account of memory, no streams, and kernels run in Triton's interpreter."""

    def memory(self) -> MemoryUse:
        """Not told."""
        return MemoryUse()

    def reset_peak(self) -> None:
        """Nothing is counted."""

    def room(self) -> int | None:
        """Not told."""
        return None

    def trim(self) -> None:
        """Nothing is kept."""

    def stream(self) -> object | None:
        """None."""
        return None

    def on(self, stream: object | None) -> AbstractContextManager[object]:
        """Go on as before."""
        return nullcontext(stream)

    def occupy(self) -> None:
        """Nothing runs behind the host's back."""

    def interprets(self, call: Callable[[], Any]) -> bool:
        """Watch the interpreter's launches; yes where it is not known."""
        if unknown_triton():
            return True
        from triton.runtime import interpreter

        launches: list[object] = []
        run = interpreter.GridExecutor.__call__

        def noted(executor: Any, *args: Any, **kwargs: Any) -> Any:
            launches.append(executor)
            return run(executor, *args, **kwargs)

        interpreter.GridExecutor.__call__ = noted
        try:
            call()
        finally:
            interpreter.GridExecutor.__call__ = run
        return bool(launches)

    def footprint(self, make: Callable[[], Any]) -> int | None:
        """By torch's fake tensors."""
        return _faked(make)


def _faked(make: Callable[[], Any]) -> int | None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode():
            made = list(leaves(make()))
    except Exception:  # whatever an op does that fake tensors cannot follow
        return None
    return sum(each.numel() * each.element_size() for each in made if isinstance(each, torch.Tensor))


@functools.cache
def _matrices(name: str) -> tuple[Any, Any]:
    import torch

    left = torch.ones(_SIZE, _SIZE, device=name, dtype=torch.float16)
    return left, torch.empty_like(left)


def _multiplied(left: Any, out: Any) -> None:
    import torch

    torch.mm(left, left, out=out)
