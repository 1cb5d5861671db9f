"""One case of an op under soak: its calls, their outputs, and whether two outputs are the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfci.core.model import Fact, Reason
from perfci.device.arrays import Arrays, leaves
from perfci.device.fake import held
from perfci.device.seam import Accelerator
from perfci.extensions.lab.soak.verdicts import SoakFinding, SoakMeasured, Status
from perfci.measure.closeness import find_mismatch, first_index, tolerance
from perfci.measure.inputs import bound_inputs, flat
from perfci.ops.spec import Params, Performance, case_id

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


@dataclass(frozen=True)
class SoakSubject:
    """One case of an op on an open device."""

    op: str
    suite: Performance  # kernel, reference, inputs and tolerance
    params: Params
    device: Accelerator
    endurance: Endurance
    seed: int
    deterministic: bool
    tick: Callable[[int, int], None]
    """called with calls made and calls in all, so that work looks different from a hang"""
    describe: Callable[[BaseException], Mapping[str, Fact]]

    @property
    def case(self) -> str:
        """The case's id."""
        return case_id(self.params)

    @property
    def arrays(self) -> Arrays:
        """The device's arrays."""
        return self.device.arrays

    def inputs(self, number: int = 0) -> dict[str, Any]:
        """Inputs of the case. Each number has its values."""
        return bound_inputs(self.suite, self.params, self.arrays.device, self.seed + number)

    def outputs(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Calls the kernel once and returns its arrays."""
        return flat(self.suite.kernel(**inputs))

    def copies(self, outputs: Sequence[Any]) -> list[Any]:
        """Copies made on the current stream."""
        return list(self.arrays.copies(dict(enumerate(outputs))).values())

    def finding(
        self, test: str, status: Status, numbers: Mapping[str, Fact] | None = None, reason: Reason | None = None
    ) -> SoakFinding:
        """A finding about this case."""
        return SoakFinding(self.op, test, self.case, status, reason, numbers or {})

    def measured(
        self, test: str, numbers: Mapping[str, Fact], series: Mapping[str, Sequence[float | None]] | None = None
    ) -> SoakMeasured:
        """A test of this case in which nothing was seen that is wrong by itself."""
        told = {name: tuple(readings) for name, readings in (series or {}).items()}
        return SoakMeasured(self.op, test, self.case, numbers, told)

    def fail(self, test: str, kind: str, numbers: Mapping[str, Fact], **facts: Fact) -> SoakFinding:
        """A failure. Its reason has the numbers too."""
        return self.finding(test, Status.FAIL, numbers, Reason(kind, {"case": self.case, **numbers, **facts}))

    def skip(self, test: str, kind: str, **facts: Fact) -> SoakFinding:
        """A test that cannot be made here."""
        return self.finding(test, Status.SKIPPED, reason=Reason(kind, {"op": self.op, "case": self.case, **facts}))

    def difference(self, got: Sequence[Any], wanted: Sequence[Any]) -> dict[str, Fact] | None:
        """Count and first index of differing elements, None if none: by bits, or by tolerance if not deterministic."""
        if len(got) != len(wanted):
            return {"count": abs(len(got) - len(wanted)), "index": "-"}
        pairs = zip(got, wanted, strict=True)
        return next((facts for one, other in pairs if (facts := self._compare(one, other))), None)

    def _compare(self, got: Any, wanted: Any) -> dict[str, Fact] | None:
        arrays = self.arrays
        if not (arrays.is_array(got) and arrays.is_array(wanted)):
            return None if got == wanted else {"count": 1, "index": "-"}
        if arrays.same_bits(got, wanted):
            return None
        facts = arrays.facts(got)
        if facts.shape != arrays.facts(wanted).shape:
            return {"count": None, "index": "-"}
        if not self.deterministic:
            terms = self.suite.reduces(**self.params) if self.suite.reduces else 1
            allowed = tolerance(facts.dtype, self.suite.tolerance, terms)
            mismatch = find_mismatch(arrays.compared(got), arrays.compared(wanted), *allowed)
            return {"count": mismatch.count, "index": str(mismatch.worst_index)} if mismatch.count else None
        left, right = arrays.host(got), arrays.host(wanted)
        differing = (left != right) & ~(np.isnan(left) & np.isnan(right))
        if not differing.any():  # NaN with other bits, or zeros of the other sign
            return {"count": 1, "index": "-"}
        return {"count": int(differing.sum()), "index": str(first_index(differing))}
