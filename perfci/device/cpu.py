"""No accelerator: kernels run in Triton's interpreter, which tells right from wrong, never fast from slow."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from perfci.device.races import watched_races
from perfci.device.seam import Race, Session
from perfci.device.tensors import TorchArrays
from perfci.errors import DeviceError
from perfci.model import CompiledKernel, Device, DeviceState, Limits, Reason


class CpuDevice:
    """Accuracy only; interpreter times say nothing about a kernel's speed, so there is no timer."""

    timer: str | None = None
    absent: Reason | None = Reason("no_accelerator")

    def __init__(self) -> None:
        # One thread: the reference's own speed is not at stake, and other workers share the cores.
        torch.set_num_threads(1)
        name = platform.processor() or platform.machine()
        self.info = Device(kind="cpu", name=f"CPU {name}", key="cpu", runtime="Triton interpreter")
        self.arrays = TorchArrays("cpu")

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Refuse: there is nothing to time with."""
        raise DeviceError("no_accelerator")
        yield  # pragma: no cover

    def start_timer(self) -> None:
        """Have no timer to start."""

    def synchronize(self) -> None:
        """Have nothing to wait for."""

    def pad(self, seed: int) -> object:
        """Occupy nothing."""
        return seed

    def state(self) -> DeviceState:
        """Know nothing."""
        return DeviceState()

    def limits(self, dtypes: Sequence[str]) -> Limits:
        """Know no ceilings."""
        return Limits()

    def window_s(self, call: Callable[[], Any], launches: int) -> float:
        """Refuse: there is nothing to warm up."""
        raise DeviceError("no_accelerator")

    def recorded(self) -> AbstractContextManager[Mapping[str, CompiledKernel]]:
        """Compile nothing."""
        return nullcontext({})

    def watch_races(self) -> AbstractContextManager[Sequence[Race]]:
        """Watch the interpreter's memory."""
        return watched_races()

    def out_of_memory(self, error: BaseException) -> bool:
        """Whether the host's memory ran out."""
        return isinstance(error, MemoryError) or "not enough memory" in str(error)

    def tampered(self) -> tuple[str, ...]:
        """Offer nothing to tamper with."""
        return ()
