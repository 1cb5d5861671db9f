"""Ascend NPUs, through torch_npu and triton-ascend; `npu_runtime.load` has to come first, which imports them in order.

Nothing here has run on a chip yet: docs/npu.md says what has, and how.
"""

from __future__ import annotations

import functools
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from triton import JITFunction

from perfci.core.errors import DeviceError
from perfci.core.model import CompiledKernel, Device, DeviceState, Identity, Limits, Reason
from perfci.device import watching
from perfci.device.ceilings import PAIRS, fastest_s
from perfci.device.npu_events import npu_event_session
from perfci.device.npu_flush import NpuFlush, interprets
from perfci.device.npu_profiler import npu_profiler_session
from perfci.device.npu_runtime import BACKEND
from perfci.device.npu_smi import FIT, Monitor
from perfci.device.seam import Capture, PeakMemory, Race, Session, Uncaptured
from perfci.device.source import inputs_digest
from perfci.device.tensors import TorchArrays, operator_namespaces
from perfci.statistics import exact

COPY_BYTES = 1 << 30
"""Size of the copy that measures bandwidth: some times L2."""

_MEMORY_SHARE = 16
"""Of the device's memory the copy takes no more than one part in so many."""

MATMUL_SIZE = 8192
NO_PRODUCTS = frozenset({"float64", "float8_e4m3fn", "float8_e5m2"})
"""What a 910B does not multiply."""
_PROBES = 10
_PAD_STEP = 1 << 16
_PAD_STEPS = 512
"""Padding of up to 32 MiB: buffers of a block land elsewhere than those of the block before."""

BOOST_S = 2.0
"""How long the cores are kept at work at most, for their clock to rise."""

_BOOST_LAUNCHES = 200
_BOOST_SIZE = 2048


class NpuDevice:
    """The first visible NPU."""

    absent: Reason | None = None

    def __init__(self, npu: Any, timer: str = "auto", monitor: Monitor | None = None) -> None:
        """`npu` is what `npu_runtime.load` gives; raises DeviceError for a chip that is not healthy."""
        self._npu = npu
        # Taken before an op's files are imported, so that a patched timing function shows.
        self._originals = _timing_functions(self._npu)
        self._synchronize, self._event = self._npu.synchronize, self._npu.Event
        self._monitor = monitor or Monitor()
        _refuse_unfit(self._monitor.health())
        self._rated_mhz = self._monitor.rated_mhz()
        properties = self._npu.get_device_properties(0)
        self.info = Device(
            kind="npu",
            name=properties.name,
            key=device_key(properties.name),
            uuid=self._monitor.serial(),
            driver=self._monitor.driver(),
            runtime=_runtime(),
            processors=_told(properties, "vector_core_num", "multi_processor_count"),
            l2_bytes=_told(properties, "L2_cache_size"),
            memory_bytes=_told(properties, "total_memory"),
        )
        self.arrays = TorchArrays(BACKEND, reference_device="cpu")
        self.timer: str | None = None
        self._wanted_timer = timer
        self._flush: NpuFlush

    def count(self) -> int:
        """The visible NPUs, where they are all alike: times of another model are another question."""
        names = [self._npu.get_device_name(index) for index in range(self._npu.device_count())]
        return len(names) if len(set(names)) == 1 else 1

    def visible(self) -> int:
        """As torch_npu counts them."""
        return int(self._npu.device_count())

    def session(self) -> AbstractContextManager[Session]:
        """Open a session of the timer in use."""
        return self._activities() if self.timer == "activity" else self._events()

    def start_timer(self) -> None:
        """Make the flush, and start and stop the timer once."""
        self._flush = NpuFlush(self.info.l2_bytes, self.info.processors, BACKEND)
        self._flush()
        self._synchronize()
        self.timer = self._choose_timer()

    def synchronize(self) -> None:
        """Wait until the device has finished."""
        self._synchronize()

    def pad(self, seed: int) -> object:
        """Hold a random stretch of memory."""
        steps = random.Random(seed).randint(1, _PAD_STEPS)
        return torch.empty(steps * _PAD_STEP, dtype=torch.uint8, device=BACKEND)

    def state(self) -> DeviceState:
        """What npu-smi says of the chip."""
        return self._monitor.state()

    def limits(self, dtypes: Sequence[str]) -> Limits:
        """Bandwidth of a 1 GiB copy by the vector cores; rate of an 8192-cubed product in each dtype but float64."""
        if interprets():
            return Limits()
        size = min(COPY_BYTES, (self.info.memory_bytes or COPY_BYTES * _MEMORY_SHARE) // _MEMORY_SHARE)
        copy_s = fastest_s(self._pairs_of_buffers(size // 4))
        rates = {name: self._matmul_tflops(getattr(torch, name)) for name in dtypes if name not in NO_PRODUCTS}
        self._npu.empty_cache()
        return Limits(2 * size / copy_s / 1e9, rates)

    def window_s(self, call: Callable[[], Any], launches: int) -> float:
        """Wall time of launches one behind the other."""
        self._synchronize()
        began = perf_counter()
        for _ in range(launches):
            call()
        self._synchronize()
        return perf_counter() - began

    @contextmanager
    def recorded(self) -> Iterator[Mapping[str, CompiledKernel]]:
        """Watch Triton's launches; a chip without registers has none to tell, and its compiler tells 0."""
        found: dict[str, CompiledKernel] = {}
        with watching.recorded() as kernels:
            yield found
        found |= {
            name: replace(kernel, registers=None, spills=None, shared_bytes=None) for name, kernel in kernels.items()
        }

    def captured(self) -> AbstractContextManager[Capture]:
        """Watch Triton's launches, torch's operations, and what waits for the device."""
        return nullcontext(Uncaptured()) if interprets() else watching.captured()

    def fallbacks(self, identity: Identity) -> tuple[str, ...]:
        """Operations of a call that torch_npu has no kernel for, so that the CPU computes them."""
        names = dict.fromkeys(_operator(text) for text in identity.operations if text.startswith("aten."))
        return tuple(name for name in names if name and _falls_back(name))

    def inputs_digest(self, make_inputs: Callable[..., Any]) -> str:
        """Digest of the source."""
        return inputs_digest(make_inputs)

    @contextmanager
    def peak_memory(self) -> Iterator[PeakMemory]:
        """Ask torch_npu's allocator: other libraries' memory does not count."""
        peak = PeakMemory()
        self._synchronize()
        self._npu.reset_peak_memory_stats()
        yield peak
        self._synchronize()
        peak.bytes = int(self._npu.max_memory_allocated())

    def watch_races(self) -> AbstractContextManager[Sequence[Race]]:
        """See none: a race shows in answers that differ from call to call."""
        return nullcontext(())

    def out_of_memory(self, error: BaseException) -> bool:
        """Whether the device's memory ran out; older releases of torch_npu have no type of their own for it."""
        return isinstance(error, torch.OutOfMemoryError) or "NPU out of memory" in str(error)

    def registered(self) -> frozenset[str]:
        """Namespaces of torch operators, torch's own and torch_npu's among them."""
        return operator_namespaces()

    def tampered(self) -> tuple[str, ...]:
        """Timing functions that were replaced since the device was opened."""
        now = _timing_functions(self._npu)
        return tuple(name for name, function in self._originals.items() if now[name] is not function)

    # --- timing -------------------------------------------------------------------------------------------------------

    def _activities(self) -> AbstractContextManager[Session]:
        return npu_profiler_session(_profiler(), self._flush, self._synchronize, self._boost)

    @contextmanager
    def _events(self) -> Iterator[Session]:
        self._boost()
        with npu_event_session(self._flush, self._event, self._synchronize) as session:
            yield session

    def _choose_timer(self) -> str:
        """The profiler's records where one trial session gives them, else events; one asked for by name must work."""
        if self._wanted_timer == "event":
            return "event"
        trouble = self._activity_trouble()
        if trouble is None:
            return "activity"
        if self._wanted_timer == "activity":
            raise DeviceError("npu_activity_unavailable", error=trouble)
        return "event"

    def _activity_trouble(self) -> str | None:
        """Why the profiler gives no records; None if it does."""
        try:
            with self._activities() as session:
                session.launch(_nothing)
        except (DeviceError, RuntimeError, AttributeError, OSError) as error:
            return str(error).rstrip(".")
        return None if session.busy_s() > 0 else "a session recorded nothing"

    def _boost(self) -> None:
        """Keep the cores at work until their clock is up, or stands still: an idle chip takes it down."""
        if interprets() or self._is_fast():
            return
        left = torch.ones(_BOOST_SIZE, _BOOST_SIZE, dtype=torch.float16, device=BACKEND)
        until, last = time.monotonic() + BOOST_S, None
        while time.monotonic() < until:
            for _ in range(_BOOST_LAUNCHES):
                torch.matmul(left, left)
            clock = self._monitor.clock_mhz()  # read while the chip works
            self._synchronize()
            if clock is not None and clock in {last, self._rated_mhz}:
                return
            last = clock

    def _is_fast(self) -> bool:
        return self._rated_mhz is not None and self._monitor.clock_mhz() == self._rated_mhz

    def _matmul_tflops(self, dtype: torch.dtype) -> float:
        left, right = (torch.randn(MATMUL_SIZE, MATMUL_SIZE, device=BACKEND).to(dtype) for _ in range(2))
        return float(2 * MATMUL_SIZE**3 / self._median_s(functools.partial(torch.matmul, left, right)) / 1e12)

    def _median_s(self, call: Callable[[], Any]) -> float:
        call()
        return statistics.median(self._seconds(call) for _ in range(_PROBES))

    def _seconds(self, call: Callable[[], Any]) -> float:
        start, end = (self._event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        self._synchronize()
        return float(start.elapsed_time(end) / 1e3)

    def _pairs_of_buffers(self, count: int) -> Iterator[Callable[[], float]]:
        """Copies between pairs of buffers, each of which stays while the next is made, so that it lies elsewhere."""
        held = []
        for _ in range(PAIRS):
            source = torch.zeros(count, dtype=torch.float32, device=BACKEND)
            held.append((source, torch.empty_like(source)))
            yield functools.partial(self._seconds, functools.partial(torch.add, source, 0.0, out=held[-1][1]))


def _nothing() -> None:
    """Do no work: the flushes beside it are records enough."""


def device_key(name: str) -> str:
    """Folder name of a model, which is what ops make of its name for their tuned files too.

    >>> device_key("Ascend910B2"), device_key("Ascend910_9382"), device_key("910B3")
    ('ascend910b2', 'ascend910-9382', 'ascend910b3')
    """
    model = name.strip().lower().removeprefix("ascend")
    return "ascend" + "-".join(model.replace("_", " ").replace("-", " ").split())


def _refuse_unfit(health: str | None) -> None:
    if health is not None and health not in {FIT, "UNKNOWN"}:
        raise DeviceError("npu_unhealthy", health=health)


def _runtime() -> str | None:
    """CANN's version, as torch_npu tells it; None where it does not."""
    tell = getattr(sys.modules.get("torch_npu.npu.utils"), "get_cann_version", None)
    try:
        version = tell() if tell else None
    except Exception:  # an older CANN, which has no file of versions
        return None
    return f"CANN {version}" if version else None


def _told(properties: Any, *names: str) -> int | None:
    """The first of some properties that is told; releases of torch_npu have more and more of them."""
    return next((int(value) for name in names if (value := getattr(properties, name, None))), None)


def _profiler() -> Any:
    return sys.modules["torch_npu"].profiler


def _operator(text: str) -> str:
    """Of `aten.mm.out(#0 float16[8,16](16,1)@16, ...)`: aten::mm.out, as the dispatcher calls it."""
    parts = text.partition("(")[0].split(".")
    overload = "" if parts[-1] == "default" else f".{parts[-1]}"
    return f"aten::{parts[1]}{overload}" if len(parts) == 3 else ""


def _falls_back(operator: str) -> bool:
    """Whether an operation has no kernel for NPUs, is not made of others, and torch has no way to its `out` form."""
    name, _, overload = operator.partition(".")
    outs = (f"{name}.out", f"{name}.{overload}_out") if overload else (f"{name}.out",)
    made = [(operator, key) for key in ("PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd")]
    try:
        known = torch._C._dispatch_find_schema_or_throw(name, overload) is not None
    except RuntimeError:  # an operation that the dispatcher does not know by this name
        return False
    return known and not any(_has_kernel(*each) for each in (*made, *((out, "PrivateUse1") for out in outs)))


def _has_kernel(operator: str, key: str) -> bool:
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))
    except RuntimeError:
        return False


def _timing_functions(npu: Any) -> dict[str, Any]:
    profile = _profiler().profile
    return {
        "torch.npu.synchronize": npu.synchronize,
        "torch.npu.current_stream": npu.current_stream,
        "torch.npu.Event": npu.Event,
        "torch.npu.Event.record": npu.Event.record,
        "torch.npu.Event.elapsed_time": npu.Event.elapsed_time,
        "torch.npu.Stream.synchronize": npu.Stream.synchronize,
        "torch_npu.profiler.profile": profile,
        "torch_npu.profiler.profile.__enter__": profile.__enter__,
        "torch_npu.profiler.profile.__exit__": profile.__exit__,
        "torch_npu.profiler.profile.step": profile.step,
        "torch_npu.profiler.tensorboard_trace_handler": _profiler().tensorboard_trace_handler,
        "triton.runtime.jit.JITFunction.run": JITFunction.run,
        "time.perf_counter": time.perf_counter,
        "time.time": time.time,
        # What turns records into numbers and verdicts; a kernel shares the process with it.
        "perfci.device.npu_flush.NpuFlush.__call__": NpuFlush.__call__,
        "perfci.device.npu_flush.NpuFlush.mark": NpuFlush.mark,
        "perfci.statistics.exact.launch_shift": exact.launch_shift,
        "perfci.statistics.exact.summary": exact.summary,
    }
