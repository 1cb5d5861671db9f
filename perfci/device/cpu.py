"""No accelerator: kernels run in Triton's interpreter, which separates right from wrong, never fast from slow."""

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch

from perfci.core import extensions
from perfci.core.model import CompiledKernel, Device, Reason
from perfci.device.seam import Accelerator, Capture, Race
from perfci.device.tensors import TorchArrays, operator_namespaces
from perfci.device.tritons import explain_unknown_triton


class CpuDevice(Accelerator):
    """Accuracy only. Interpreter times have nothing to do with a kernel's speed, so there is no timer."""

    absent: Reason | None = Reason("no_accelerator")

    def __init__(self) -> None:
        # One thread: the reference's speed is not at stake, and other workers share the cores.
        torch.set_num_threads(1)
        runtime = "Triton interpreter"
        if os.environ.get("TRITON_INTERPRET") == "1" and not _correct_interpreter():
            runtime += ", uncorrected"
        name = platform.processor() or platform.machine()
        self.info = Device(kind="cpu", name=f"CPU {name}", key="cpu", runtime=runtime)
        self.arrays = TorchArrays("cpu")

    def bound_calls(self, seconds: float) -> AbstractContextManager[None]:
        bounds = () if explain_unknown_triton() else extensions.provided("bound")
        return next((bound(seconds) for bound in bounds), nullcontext())

    def watch_races(self) -> AbstractContextManager[Sequence[Race]]:
        watches = () if explain_unknown_triton() else extensions.provided("races")
        return next((watch() for watch in watches), nullcontext(()))

    def record_kernels(self) -> AbstractContextManager[Mapping[str, CompiledKernel] | None]:
        interpreted = os.environ.get("TRITON_INTERPRET") == "1" and not explain_unknown_triton()
        return record_interpreted(lambda _: None) if interpreted else nullcontext(None)

    @contextmanager
    def capture_work(self) -> Iterator[Capture]:
        """Collect what the calls inside have torch do. The interpreter compiles nothing that could be compared."""
        from perfci.device.capture import watch_calls

        # What the interpreter has torch do inside a launch is none of the op's.
        with watch_calls() as seen, record_interpreted(lambda name: seen.operation(f"launch {name}"), seen.mute):
            yield seen

    def note_launches(self, names: Sequence[str]) -> None:
        from perfci.device.capture import note

        for name in names:
            note(f"launch {name}")

    def out_of_memory(self, error: BaseException) -> bool:
        return super().out_of_memory(error) or "not enough memory" in str(error)

    def list_namespaces(self) -> frozenset[str]:
        return operator_namespaces()


def _correct_interpreter() -> bool:
    """Have Triton's interpreter compute as a GPU does, before any kernel is imported. Returns whether it does."""
    try:
        for correct in extensions.provided("interpreter"):
            correct()
            return True
    except (ImportError, AttributeError):  # no Triton, or one with an interpreter that is built otherwise
        pass
    return False


@contextmanager
def record_interpreted(
    heard: Callable[[str], None], around: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Iterator[dict[str, CompiledKernel]]:
    """Note every interpreted launch inside, call `heard` with its kernel's name, and run it inside `around`."""
    from triton.runtime import interpreter

    compiled_kernels: dict[str, CompiledKernel] = {}
    run = interpreter.GridExecutor.__call__

    def launch(executor: Any, *args: Any, **kwargs: Any) -> Any:
        name = executor.fn.__name__
        compiled_kernels[name] = CompiledKernel(name)
        heard(name)
        with around():
            return run(executor, *args, **kwargs)

    with mock.patch.object(interpreter.GridExecutor, "__call__", launch):
        yield compiled_kernels
