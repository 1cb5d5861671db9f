"""NVIDIA GPUs."""

from __future__ import annotations

import functools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import Any

import torch
import torch.profiler
from torch.cuda import synchronize
from triton import JITFunction

from perfci.core.errors import DeviceError
from perfci.core.model import CompiledKernel, Device, DeviceState, Identity, Limits, Reason
from perfci.device import watching
from perfci.device.activity import activity_session
from perfci.device.ceilings import PAIRS, fastest_s
from perfci.device.events import event_session
from perfci.device.flush import Flush
from perfci.device.nvml import Board
from perfci.device.seam import Capture, PeakMemory, Race, Session
from perfci.device.source import inputs_digest
from perfci.device.tensors import TorchArrays, operator_namespaces
from perfci.statistics import exact

COPY_BYTES = 1 << 30
"""Size of the copy that measures bandwidth: many times any L2."""

_COPY_SHIFT = 37 << 16
"""By how much more the target of each further pair is shifted: no power of two, so that its pages lie otherwise."""

MATMUL_SIZE = 8192
_PROBES = 10
_PAD_STEP = 1 << 16
_PAD_STEPS = 512
"""Padding of up to 32 MiB: buffers of a block land elsewhere than those of the block before."""


# synchronize and perf_counter are bound here, before any op is imported: an op that replaces them is told, not obeyed.


class CudaDevice:
    """The first visible GPU."""

    absent: Reason | None = None

    def __init__(self, timer: str = "auto") -> None:
        if not torch.cuda.is_available():
            raise DeviceError("cuda_unavailable", torch=str(torch.__version__))
        # Taken before an op's files are imported, so that a patched timing function shows.
        self._originals = _timing_functions()
        properties = torch.cuda.get_device_properties(0)
        self._board = Board(f"GPU-{properties.uuid}" if getattr(properties, "uuid", None) else None)
        self.info = Device(
            kind="cuda",
            name=properties.name,
            key=self._board.key(properties.name, properties.multi_processor_count),
            uuid=self._board.uuid() or str(getattr(properties, "uuid", "")) or None,
            driver=self._board.driver(),
            runtime=f"CUDA {torch.version.cuda}",
            processors=properties.multi_processor_count,
            l2_bytes=properties.L2_cache_size,
            memory_bytes=properties.total_memory,
            mig=self._board.mig(properties.name, properties.multi_processor_count),
            power_limit_w=self._board.power_limit_w(),
        )
        self.arrays = TorchArrays("cuda")
        self.timer: str | None = None
        self._wanted_timer = timer
        self._l2_bytes = properties.L2_cache_size
        self._flush: Flush

    def count(self) -> int:
        """The visible GPUs, where they are all alike: times of another model are another question."""
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return len(names) if len(set(names)) == 1 else 1

    def visible(self) -> int:
        """As torch counts them; of the slices of divided boards it sees the first alone."""
        return torch.cuda.device_count()

    def session(self) -> AbstractContextManager[Session]:
        """Open a session of the timer in use."""
        return activity_session(self._flush) if self.timer == "activity" else event_session(self._flush)

    def start_timer(self) -> None:
        """Make the flush, and start and stop the timer once; a profiler's first start takes seconds."""
        self._flush = Flush(self._l2_bytes, "cuda")
        self.timer = _choose_timer(self._wanted_timer, self._flush)

    def synchronize(self) -> None:
        """Wait until the device has finished."""
        synchronize()

    def pad(self, seed: int) -> object:
        """Hold a random stretch of memory."""
        steps = random.Random(seed).randint(1, _PAD_STEPS)
        return torch.empty(steps * _PAD_STEP, dtype=torch.uint8, device="cuda")

    def state(self) -> DeviceState:
        """What the board says of itself."""
        return self._board.state()

    def limits(self, dtypes: Sequence[str]) -> Limits:
        """Bandwidth of a 1 GiB copy between the best of some buffers; rate of an 8192-cubed product in each dtype.

        A dtype that this GPU's libraries cannot multiply has no rate.
        """
        copy_s = fastest_s(_pairs_of_buffers())
        rates = {name: _matmul_tflops(getattr(torch, name)) for name in dtypes}
        torch.cuda.empty_cache()
        return Limits(2 * COPY_BYTES / copy_s / 1e9, {name: rate for name, rate in rates.items() if rate is not None})

    def window_s(self, call: Callable[[], Any], launches: int) -> float:
        """Wall time of launches one behind the other."""
        synchronize()
        began = perf_counter()
        for _ in range(launches):
            call()
        synchronize()
        return perf_counter() - began

    def recorded(self) -> AbstractContextManager[Mapping[str, CompiledKernel]]:
        """Watch Triton's launches."""
        return watching.recorded()

    def captured(self) -> AbstractContextManager[Capture]:
        """Watch Triton's launches, torch's operations, and what waits for the device."""
        return watching.captured()

    def fallbacks(self, identity: Identity) -> tuple[str, ...]:
        """None: CUDA has kernels for all of torch, or raises."""
        return ()

    def inputs_digest(self, make_inputs: Callable[..., Any]) -> str:
        """Digest of the source."""
        return inputs_digest(make_inputs)

    @contextmanager
    def peak_memory(self) -> Iterator[PeakMemory]:
        """Ask torch's allocator: other libraries' memory does not count."""
        peak = PeakMemory()
        synchronize()
        torch.cuda.reset_peak_memory_stats()
        yield peak
        synchronize()
        peak.bytes = int(torch.cuda.max_memory_allocated())

    def watch_races(self) -> AbstractContextManager[Sequence[Race]]:
        """See none: a race shows in answers that differ from call to call."""
        return nullcontext(())

    def out_of_memory(self, error: BaseException) -> bool:
        """Whether the device's memory ran out."""
        return isinstance(error, torch.OutOfMemoryError)

    def registered(self) -> frozenset[str]:
        """Namespaces of torch operators, torch's own among them."""
        return operator_namespaces()

    def tampered(self) -> tuple[str, ...]:
        """Timing functions that were replaced since the device was opened."""
        now = _timing_functions()
        return tuple(name for name, function in self._originals.items() if now[name] is not function)


def _choose_timer(wanted: str, flush: Flush) -> str:
    """Activity records where one trial session gives them, else events; a timer asked for by name must work."""
    if wanted == "event":
        return "event"
    trouble = _activity_trouble(flush)
    if trouble is None:
        return "activity"
    if wanted == "activity":
        raise DeviceError("activity_unavailable", error=trouble)
    return "event"


def _activity_trouble(flush: Flush) -> str | None:
    """Why no activity records are to be had; None if they are."""
    try:
        with activity_session(flush) as session:
            session.launch(flush)
    except RuntimeError as error:
        return str(error)
    return None if session.busy_s() > 0 else "a session recorded nothing"


def _matmul_tflops(dtype: torch.dtype) -> float | None:
    """None where there is no such product: float8 before compute capability 8.9, integers, types that are to come."""
    left, right = (torch.randn(MATMUL_SIZE, MATMUL_SIZE, device="cuda").to(dtype) for _ in range(2))
    product: Callable[[], Any] = functools.partial(torch.matmul, left, right)
    if dtype.is_floating_point and dtype.itemsize == 1:
        product = _float8_product(left, right)
    try:
        return float(2 * MATMUL_SIZE**3 / _median_s(product) / 1e12)
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError:  # NotImplementedError is one
        return None


def _float8_product(left: torch.Tensor, right: torch.Tensor) -> Callable[[], Any]:
    """As torch has it: the right side column by column and of e4m3, since there is none of two e5m2."""
    columns, one = right.float().to(torch.float8_e4m3fn).t(), torch.ones((), device="cuda")
    return functools.partial(torch._scaled_mm, left, columns, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _pairs_of_buffers() -> Iterator[Callable[[], float]]:
    """Copies between pairs of buffers that lie elsewhere, also towards each other.

    Each pair stays while the next is made, whose memory would else be the same again; where memory is short the first
    has to do.
    """
    held: list[tuple[torch.Tensor, torch.Tensor]] = []
    for number in range(PAIRS):
        if held and torch.cuda.mem_get_info()[0] < 4 * COPY_BYTES:
            return
        shift = number * _COPY_SHIFT
        source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
        target = torch.empty(COPY_BYTES + shift, dtype=torch.uint8, device="cuda")[shift:]
        held.append((source, target))
        yield functools.partial(_seconds, functools.partial(target.copy_, source))


def _median_s(call: Callable[[], Any]) -> float:
    call()
    return statistics.median(_seconds(call) for _ in range(_PROBES))


def _seconds(call: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    synchronize()
    return float(start.elapsed_time(end) / 1e3)


def _timing_functions() -> dict[str, Any]:
    return {
        "torch.cuda.synchronize": torch.cuda.synchronize,
        "torch.cuda.current_stream": torch.cuda.current_stream,
        "torch.cuda.Event.record": torch.cuda.Event.record,
        "torch.cuda.Event.elapsed_time": torch.cuda.Event.elapsed_time,
        "torch.profiler.profile.__enter__": torch.profiler.profile.__enter__,
        "torch.profiler.profile.__exit__": torch.profiler.profile.__exit__,
        "torch.cuda.Event": torch.cuda.Event,
        "torch.cuda.Stream.synchronize": torch.cuda.Stream.synchronize,
        "torch.profiler.profile": torch.profiler.profile,
        "triton.runtime.jit.JITFunction.run": JITFunction.run,
        "time.perf_counter": time.perf_counter,
        "time.time": time.time,
        # What turns records into numbers and verdicts; a kernel shares the process with it.
        "perfci.device.flush.Flush.__call__": Flush.__call__,
        "perfci.device.flush.Flush.mark": Flush.mark,
        "torch.cuda._sleep": torch.cuda._sleep,
        "perfci.statistics.exact.launch_shift": exact.launch_shift,
        "perfci.statistics.exact.summary": exact.summary,
    }
