"""NVIDIA GPUs."""

import functools
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.autograd.profiler
import triton
import triton.language as tl

from perfci.core import extensions
from perfci.core.errors import DeviceError
from perfci.core.model import CompiledKernel, Device, DeviceState, Reason, as_fact
from perfci.device.arrays import Inputs
from perfci.device.nvml import NvmlBoard
from perfci.device.seam import Session, Sustained
from perfci.device.tensors import TorchArrays
from perfci.device.timers import activity_session, event_session
from perfci.device.torch_device import TorchDevice
from perfci.device.tritons import explain_unknown_triton
from perfci.ops.recording import Recording

_COPY_SHIFT = 37 << 16  # of each further pair's target: no power of two, so that its pages lie otherwise
_SPIN_CYCLES = 150_000  # about 80 us at an H200's clock: longer than a Python wrapper takes to launch
_HOLD_CYCLES = 70_000  # about 35 us: as long as a flush, behind which the host queues what is to be timed
_CYCLES_A_US = 2000  # of a rest, about
_CLOCK_CYCLES = 400_000  # about 200 us: events show the clock within 1 %
_FREE_S = 0.15  # how long an H200's clock takes at most to rise again once it is at rest
_COOL_CYCLES = 4_000_000  # about 2 ms before what shows a ceiling: the clock is up, and the power limit has no say
_CHUNK_S = 0.01  # of calls that are queued at once to keep the device at work
_MARK_COUNT = 16  # Integers that a mark reads. Like a flush's a multiple of 16, so that both are one compiled kernel.
_BLOCK, _STEPS = 4096, 4


@triton.jit
def perfci_l2_flush(source, sink, count, BLOCK: tl.constexpr, STEPS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D103, N803
    program = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.int32)
    for step in range(STEPS):
        offsets = (program * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(source + offsets, mask=offsets < count, other=0)
    tl.store(sink + program, tl.sum(total))


class Flush:
    """perfci's cache flush, which reads a buffer of twice the L2 cache. Its records and its marks delimit launches.

    Reading, since a flush that writes leaves dirty lines behind, and the next kernel would pay for their write-back.
    """

    def __init__(self, l2_bytes: int, device: str) -> None:
        self._count = 2 * l2_bytes // 4
        programs = triton.cdiv(self._count, _BLOCK * _STEPS)
        self._grid = (programs,)
        self._source = torch.zeros(self._count, dtype=torch.int32, device=device)
        self._sink = torch.empty(programs, dtype=torch.int32, device=device)

    def __call__(self) -> None:
        self._queue(self._grid, self._count)

    def mark(self) -> None:
        """Queue a pause as long as a flush, and behind it a mark. L2 stays as it is."""
        torch.cuda._sleep(_HOLD_CYCLES)
        self._queue((1,), _MARK_COUNT)

    def rest(self, us: float) -> int:
        """Have one thread count cycles: the clock stays up, and the board draws little. Returns how many."""
        cycles = int(us * _CYCLES_A_US)
        torch.cuda._sleep(cycles)
        return cycles

    def _queue(self, grid: tuple[int], count: int) -> None:
        perfci_l2_flush[grid](self._source, self._sink, count, _BLOCK, _STEPS, num_warps=8)


class CudaDevice(TorchDevice):
    """The first visible GPU."""

    backend = "cuda"
    unavailable = "activity_unavailable"
    timing = (
        "torch.autograd.profiler.profile", "torch.autograd.profiler.profile.__enter__",
        "torch.autograd.profiler.profile.__exit__", "torch.cuda._sleep", "perfci.device.cuda.Flush.__call__",
        "perfci.device.cuda.Flush.mark", "perfci.device.cuda.Flush.rest",
    )  # fmt: skip

    _driver: Any = None  # of an extension, which hears launches of any compiler
    _deaf = False  # calls may launch what is not heard any more

    def __init__(self, timer: str = "auto") -> None:
        if not torch.cuda.is_available():
            raise DeviceError("cuda_unavailable", torch=str(torch.__version__))
        super().__init__(torch.cuda, timer)
        properties = torch.cuda.get_device_properties(0)
        self._board = NvmlBoard(f"GPU-{properties.uuid}" if getattr(properties, "uuid", None) else None)
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
        self.arrays = self._tensors = TorchArrays("cuda")
        self.can_replay = explain_unknown_triton() is None
        self._flush: Flush

    def hear_driver(self) -> None:
        for listen in extensions.provided("driver"):
            with suppress(OSError):
                self._driver = listen()

    def hear_no_more(self) -> None:
        if self._driver:
            self._driver.close()
            self._deaf = self._driver.any
        self._driver = None

    @contextmanager
    def record_kernels(self) -> Iterator[Mapping[str, CompiledKernel] | None]:
        with super().record_kernels() as kernels, ExitStack() as stack:
            if self._driver:
                from perfci.device.capture import CoverOperations, is_covered

                stack.enter_context(CoverOperations())
                stack.enter_context(self._driver.listen(is_covered))
            yield kernels

    def state(self) -> DeviceState:
        return self._board.state()

    def start_timer(self) -> None:
        super().start_timer()
        highest, began = self._board.highest_clock_mhz() or math.inf, perf_counter()
        while True:  # it may have been idle, or held down by the power limit
            torch.cuda._sleep(int(1e6 * _CHUNK_S * _CYCLES_A_US))
            self.free_mhz = self._clock_mhz()
            if self.free_mhz > 0.98 * highest or perf_counter() - began > _FREE_S:
                return

    def sustain(self, call: Callable[[], Any], seconds: float) -> Sustained:
        queued: deque[tuple[Any, int]] = deque()
        marks = [(0.0, 0)]  # seconds and calls so far
        made, count, waited_s, began = 0, 1, 0.0, perf_counter()
        with self._board.watch_energy() as ticks:
            while marks[-1][0] < seconds:
                for _ in range(count):
                    call()
                made += count
                queued.append((self._event(), made))
                queued[-1][0].record()
                if len(queued) > 1:  # The next calls wait on the device, which is never idle.
                    end, done = queued.popleft()
                    since = perf_counter()
                    end.synchronize()
                    waited_s += perf_counter() - since
                    marks.append((perf_counter() - began, done))
                    count = max(1, round(_CHUNK_S * done / marks[-1][0]))
        clock_mhz = self._clock_mhz()
        start_s, before = next(mark for mark in marks if mark[0] >= seconds / 2 or mark is marks[-2])
        us = 1e6 * (marks[-1][0] - start_s) / (marks[-1][1] - before)
        settled = [tick for tick in ticks if tick[0] - began >= seconds / 6]
        joules = None
        if len(settled) > 1:
            (first_s, first), (last_s, last) = settled[0], settled[-1]
            joules = us / 1e6 * (last - first) / (last_s - first_s)
        return Sustained(us, clock_mhz, joules, waited_s / marks[-1][0])

    def _clock_mhz(self) -> float:
        """Behind what is queued."""
        start, end = (self._event(enable_timing=True) for _ in range(2))
        start.record()
        torch.cuda._sleep(_CLOCK_CYCLES)
        end.record()
        self._synchronize()
        return float(_CLOCK_CYCLES / (1e3 * start.elapsed_time(end)))

    def record(self, function: Callable[..., Any], inputs: Inputs) -> Recording | Reason:
        from perfci.device.capture import record_call  # which a Triton of other insides cannot be asked for

        if self._deaf:
            return Reason("not_replayable", {"what": as_fact("a call on inputs of another shape, between timed calls")})
        return record_call(function, inputs, self._tensors, self._driver)

    def play(self, recording: Recording, folder: Path) -> Callable[..., Any] | Reason:
        import triton

        from perfci.device.capture import noting
        from perfci.device.replay import Program, UnreplayableError, refuse_release

        try:
            refusal = refuse_release(recording, triton.__version__)
            return refusal or noting(Program(recording, folder, self._tensors), recording.choices)
        except UnreplayableError as error:
            return error.reason

    def key_of(self, inputs: Inputs) -> str:
        from perfci.device.capture import key_of

        return key_of(inputs)

    def mark_call(self, call: Callable[[], Any]) -> None:
        """The profiler sees what is between its start and its end alone. The timer, which needs CUPTI, never starts."""
        if not hasattr(self, "_flush"):
            self._make_flush()
        self._synchronize()
        torch.cuda.profiler.start()
        self._flush._queue((1,), _MARK_COUNT)
        call()
        self._synchronize()
        torch.cuda.profiler.stop()

    def _make_flush(self) -> None:
        self._flush = Flush(self.info.l2_bytes or 0, "cuda")

    def _activities(self) -> AbstractContextManager[Session]:
        return activity_session(self._flush, self._flush.rest)

    def _events(self) -> AbstractContextManager[Session]:
        # The device spins while the host queues what follows, so that no event waits for the host.
        spin = functools.partial(torch.cuda._sleep, _SPIN_CYCLES)
        return event_session(self._flush, self._event, self._synchronize, spin=spin, rest=self._flush.rest)

    def _seconds(self, call: Callable[[], Any]) -> float:
        torch.cuda._sleep(_COOL_CYCLES)
        return super()._seconds(call)

    def _product(self, left: torch.Tensor, right: torch.Tensor) -> Callable[[], Any]:
        """A product of float8 as torch has it: the right side column by column and of e4m3, as two e5m2 have none."""
        if not (left.dtype.is_floating_point and left.dtype.itemsize == 1):
            return super()._product(left, right)
        columns, one = right.float().to(torch.float8_e4m3fn).t(), torch.ones((), device="cuda")
        options = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
        return functools.partial(torch._scaled_mm, left, columns, one, one, **options)

    def _make_copy(self, size: int, number: int) -> Callable[[], Any]:
        shift = number * _COPY_SHIFT
        source = torch.empty(size, dtype=torch.uint8, device="cuda")
        target = torch.empty(size + shift, dtype=torch.uint8, device="cuda")[shift:]
        return functools.partial(target.copy_, source)
