"""No accelerator: kernels run in Triton's interpreter, which tells right from wrong, never fast from slow."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from perfci.core.errors import DeviceError
from perfci.core.model import CompiledKernel, Device, DeviceState, Identity, Limits, Reason
from perfci.device.races import watched_races
from perfci.device.seam import Capture, PeakMemory, Race, Session, Uncaptured
from perfci.device.source import inputs_digest
from perfci.device.tensors import TorchArrays, operator_namespaces
from perfci.device.triton_release import unknown_triton


class CpuDevice:
    """Accuracy only; interpreter times say nothing about a kernel's speed, so there is no timer."""

    timer: str | None = None
    absent: Reason | None = Reason("no_accelerator")

    def __init__(self) -> None:
        # One thread: the reference's own speed is not at stake, and other workers share the cores.
        torch.set_num_threads(1)
        runtime = "Triton interpreter"
        if os.environ.get("TRITON_INTERPRET") == "1":
            try:
                from perfci.device.interpreter import correct  # before any kernel is imported

                correct()
            except (ImportError, AttributeError):  # no Triton, or one whose interpreter is built otherwise
                runtime += ", uncorrected"
        name = platform.processor() or platform.machine()
        self.info = Device(kind="cpu", name=f"CPU {name}", key="cpu", runtime=runtime)
        self.arrays = TorchArrays("cpu")

    def count(self) -> int:
        """One."""
        return 1

    def visible(self) -> int:
        """One."""
        return 1

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

    def captured(self) -> AbstractContextManager[Capture]:
        """See nothing: the interpreter compiles nothing."""
        return nullcontext(Uncaptured())

    def fallbacks(self, identity: Identity) -> tuple[str, ...]:
        """None: everything is computed on the host."""
        return ()

    def inputs_digest(self, make_inputs: Callable[..., Any]) -> str:
        """Digest of the source."""
        return inputs_digest(make_inputs)

    def peak_memory(self) -> AbstractContextManager[PeakMemory]:
        """Know nothing of the host's memory."""
        return nullcontext(PeakMemory())

    def watch_races(self) -> AbstractContextManager[Sequence[Race]]:
        """Watch the interpreter's memory; see none in a Triton whose interpreter is not known."""
        return nullcontext(()) if unknown_triton() else watched_races()

    def out_of_memory(self, error: BaseException) -> bool:
        """Whether the host's memory ran out."""
        return isinstance(error, MemoryError) or "not enough memory" in str(error)

    def registered(self) -> frozenset[str]:
        """Namespaces of torch operators, torch's own among them."""
        return operator_namespaces()

    def tampered(self) -> tuple[str, ...]:
        """Offer nothing to tamper with."""
        return ()
