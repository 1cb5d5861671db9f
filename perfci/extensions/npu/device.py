"""Ascend NPUs, through torch_npu and triton-ascend. `runtime.load` has to come first, which imports them in order.

Nothing here has run on a chip yet: docs/npu.md has what ran, and how.
"""

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl
from triton import JITFunction

from perfci.core.errors import DeviceError
from perfci.core.model import CompiledKernel, Device, DeviceState, Identity, Limits, Reason
from perfci.device.arrays import leaves
from perfci.device.seam import Capture, CountedCalls, Counters, Session, Uncaptured
from perfci.device.tensors import TorchArrays
from perfci.device.timers import event_session
from perfci.device.torch_device import TorchDevice
from perfci.extensions.npu.profiler import NpuActivitySession, npu_profiler_session
from perfci.extensions.npu.runtime import BACKEND
from perfci.extensions.npu.smi import USABLE, Monitor

BOOST_S = 2.0  # how long the cores are kept at work at most, for their clock to rise
_BOOST_LAUNCHES, _BOOST_SIZE = 200, 2048  # matrix products that keep them at work
BATCH = 8  # short calls in one event pair, as events see what the host adds to a launch once the flush has ended
SHORT_BYTES = 64 << 20  # Calls with smaller inputs are short. Inputs decide, as all arms of a case must be timed alike.
LEAST_BYTES = 192 << 20  # a flush reads no less: L2 of an Ascend 910B holds 192 MB
_BLOCK = 8192  # elements at once: with both buffers of a double buffering a third of what a core's memory holds
_CORES = 40  # programs if the number of vector cores is unknown: what the smallest 910B has


@triton.jit
def perfci_l2_flush(source, sink, steps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D103, N803
    program = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        total += tl.load(source + (program * steps + step) * BLOCK + tl.arange(0, BLOCK))
    tl.store(sink + program, tl.sum(total))


def interprets() -> bool:
    """Whether kernels are interpreted on the host, so that there is no cache to flush and no clock to raise."""
    return not isinstance(perfci_l2_flush, JITFunction)


class NpuFlush:
    """Reads a buffer that fills the L2 cache twice, by one program for each vector core.

    The kernel has the name of CUDA's, and no mask, since the vector cores compare integers one by one.
    """

    def __init__(self, l2_bytes: int | None, cores: int | None, device: str) -> None:
        self._programs = 1 if interprets() else cores or _CORES
        length = max(LEAST_BYTES, 2 * (l2_bytes or 0))
        self._steps = 1 if interprets() else -(-length // (4 * _BLOCK * self._programs))
        count = self._programs * self._steps * _BLOCK
        self._source = torch.zeros(count, dtype=torch.float32, device=device)
        self._sink = torch.empty(self._programs, dtype=torch.float32, device=device)

    def __call__(self) -> None:
        perfci_l2_flush[(self._programs,)](self._source, self._sink, self._steps, _BLOCK)

    def mark(self) -> None:
        perfci_l2_flush[(1,)](self._source, self._sink, 1, _BLOCK)


def count_batch(call: Callable[[], Any]) -> int:
    """Calls in one event pair: BATCH if the call's `inputs` are small, else 1."""
    inputs = getattr(call, "inputs", None)
    held = (value for value in leaves(inputs) if isinstance(value, torch.Tensor))
    return 1 if inputs is None or sum(value.nbytes for value in held) >= SHORT_BYTES else BATCH


class NpuDevice(TorchDevice):
    """The first visible NPU."""

    backend = BACKEND
    unavailable = "npu_activity_unavailable"
    timing = (
        "torch_npu.profiler.profile", "torch_npu.profiler.profile.__enter__", "torch_npu.profiler.profile.__exit__",
        "torch_npu.profiler.profile.step", "torch_npu.profiler.tensorboard_trace_handler",
        "perfci.extensions.npu.device.NpuFlush.__call__", "perfci.extensions.npu.device.NpuFlush.mark",
    )  # fmt: skip
    no_products = frozenset({"float64", "float8_e4m3fn", "float8_e5m2"})  # of a 910B

    def __init__(self, npu: Any, timer: str = "auto", monitor: Monitor | None = None) -> None:
        """`npu` is what `runtime.load` gives. Raises DeviceError for a chip that is not healthy."""
        super().__init__(npu, timer)
        self._monitor = monitor or Monitor()
        chip = self._monitor.table().chip(self._monitor.place)
        if chip is not None and chip.health not in USABLE:
            raise DeviceError("npu_unhealthy", health=chip.health)
        self._rated_mhz = self._monitor.rated_mhz()
        properties = npu.get_device_properties(0)
        self.info = Device(
            kind="npu",
            name=properties.name,
            key=device_key(properties.name),
            uuid=self._monitor.serial(),
            driver=self._monitor.table().driver,
            runtime=_find_runtime(),
            processors=_find_property(properties, "vector_core_num", "multi_processor_count"),
            l2_bytes=_find_property(properties, "L2_cache_size"),
            memory_bytes=_find_property(properties, "total_memory"),
        )
        self.arrays = TorchArrays(self.backend, reference_device="cpu")
        self._flush: NpuFlush

    def state(self) -> DeviceState:
        return self._monitor.state()

    def limits(self, dtypes: Sequence[str]) -> Limits:
        return Limits() if interprets() else super().limits(dtypes)

    @contextmanager
    def record_kernels(self) -> Iterator[Mapping[str, CompiledKernel] | None]:
        """Watch Triton's launches. A chip without registers has none, although its compiler gives 0."""
        taken: dict[str, CompiledKernel] = {}
        with super().record_kernels() as kernels:
            yield None if kernels is None or interprets() else taken
        kernels = kernels or {}
        taken |= {
            name: replace(compiled, registers=None, spills=None, shared_bytes=None)
            for name, compiled in kernels.items()
        }

    def capture_work(self) -> AbstractContextManager[Capture]:
        return nullcontext(Uncaptured()) if interprets() else super().capture_work()

    def fallbacks(self, identity: Identity) -> tuple[str, ...]:
        # Of `aten.mm.out(#0 float16[8,16](16,1)@16, ...)`: aten::mm.out, as the dispatcher calls it.
        parts = (text.partition("(")[0].split(".") for text in identity.operations if text.startswith("aten."))
        names = (f"aten::{part[1]}.{part[2]}".removesuffix(".default") for part in parts if len(part) == 3)
        return tuple(name for name in dict.fromkeys(names) if _falls_back(name))

    def count_work(self, calls: CountedCalls) -> Counters:
        """By a session of torch_npu.profiler in this process."""
        self._make_flush()
        try:
            with self._activities("PipeUtilization") as session:
                for case in calls.cases:
                    session.aside()
                    session.launch(calls.make(case), warm=calls.warm)
            work = dict(zip(calls.cases, session.counters(), strict=True))
        except (DeviceError, RuntimeError, AttributeError, OSError) as error:
            return Counters(note=Reason("counters_failed", {"message": str(error).rstrip(".")}))
        if not any(work.values()):
            return Counters(note=Reason("counters_failed", {"message": "it wrote no ratios"}))
        return Counters("aic_metrics", work)

    def out_of_memory(self, error: BaseException) -> bool:
        """Older releases of torch_npu have no type of their own for it."""
        return super().out_of_memory(error) or "NPU out of memory" in str(error)

    def _make_flush(self) -> None:
        self._flush = NpuFlush(self.info.l2_bytes, self.info.processors, self.backend)
        self._flush()
        self._synchronize()

    def _activities(self, metrics: str = "AiCoreNone") -> AbstractContextManager[NpuActivitySession]:
        profiler = sys.modules["torch_npu"].profiler
        return npu_profiler_session(profiler, self._flush, self._synchronize, self._boost, metrics)

    @contextmanager
    def _events(self) -> Iterator[Session]:
        self._boost()
        with event_session(self._flush, self._event, self._synchronize, batch=count_batch) as session:
            yield session

    def _boost(self) -> None:
        """Keep the cores at work until their clock is up, or stands still: an idle chip lowers it."""
        rated = self._rated_mhz
        if interprets() or (rated is not None and self._monitor.clock_mhz() == rated):
            return
        left = torch.ones(_BOOST_SIZE, _BOOST_SIZE, dtype=torch.float16, device=self.backend)
        until, last = time.monotonic() + BOOST_S, None
        while time.monotonic() < until:
            for _ in range(_BOOST_LAUNCHES):
                torch.matmul(left, left)
            clock = self._monitor.clock_mhz()  # read while the chip works
            self._synchronize()
            if clock is not None and clock in {last, rated}:
                return
            last = clock

    def _make_copy(self, size: int, number: int) -> Callable[[], Any]:
        """A copy by the vector cores, which kernels use, and not by the copy engine."""
        source = torch.zeros(size // 4, dtype=torch.float32, device=self.backend)
        return functools.partial(torch.add, source, 0.0, out=torch.empty_like(source))


def device_key(name: str) -> str:
    """Folder name of a model, which is what ops make of its name for their tuned files too.

    >>> device_key("Ascend910B2"), device_key("Ascend910_9382"), device_key("910B3")
    ('ascend910b2', 'ascend910-9382', 'ascend910b3')
    """
    model = name.strip().lower().removeprefix("ascend")
    return "ascend" + "-".join(model.replace("_", " ").replace("-", " ").split())


def _find_runtime() -> str | None:
    """CANN's version by torch_npu. None if unknown."""
    find = getattr(sys.modules.get("torch_npu.npu.utils"), "get_cann_version", None)
    try:
        version = find() if find else None
    except Exception:  # an older CANN, which has no file of versions
        return None
    return f"CANN {version}" if version else None


def _find_property(properties: Any, *names: str) -> int | None:
    """The first of some properties that is known. Newer releases of torch_npu have more of them."""
    return next((int(value) for name in names if (value := getattr(properties, name, None))), None)


def _falls_back(operator: str) -> bool:
    """Whether an operation has no kernel for NPUs, is not made of others, and torch has no way to its `out` form."""
    name, _, overload = operator.partition(".")
    wanted = [(operator, key) for key in ("PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd")]
    wanted += [(f"{name}.out", "PrivateUse1"), *([(f"{name}.{overload}_out", "PrivateUse1")] if overload else [])]
    try:
        registered = torch._C._dispatch_find_schema_or_throw(name, overload) is not None
    except RuntimeError:  # an operation that the dispatcher does not know by this name
        return False
    for each, key in wanted:
        with contextlib.suppress(RuntimeError):
            if torch._C._dispatch_has_kernel_for_dispatch_key(each, key):
                return False
    return registered
