"""Common to CUDA GPUs and Ascend NPUs: whatever torch.cuda and torch.npu both offer."""

import functools
import gc
import operator
import pkgutil
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import Any

import torch

from perfci.core.errors import DeviceError, RecordsLostError
from perfci.core.model import CompiledKernel, Limits
from perfci.device.seam import Accelerator, Capture, PeakMemory, Session, Uncaptured
from perfci.device.tensors import operator_namespaces
from perfci.device.tritons import explain_unknown_triton

if explain_unknown_triton() is None:
    # Imported before any op's files: what these register and load differs from what is there now.
    from perfci.device import capture, launches

COPY_BYTES = 1 << 30  # size of the copy that measures bandwidth: many times any L2
MATMUL_SIZE, _PROBES = 8192, 10
PAIRS = 4  # of buffers to copy between: on an H200 later ones may copy 10 % slower than a process's first
COPIES = 5  # timed copies of a pair, after an untimed one
LIMIT_S = 0.03  # no further pair is begun after this time: if memory is slow, fewer pairs have to do
_PAD_STEP, _PAD_STEPS = 1 << 16, 512  # up to 32 MiB: buffers of a block land elsewhere than those of the block before
_TIMING = ("synchronize", "current_stream", "Event", "Event.record", "Event.elapsed_time", "Stream.synchronize")
_JUDGING = (
    "triton.runtime.jit.JITFunction.run", "time.perf_counter", "time.time", "perfci.statistics.exact.launch_shift",
    "perfci.statistics.exact.summary",
)  # fmt: skip


class TorchDevice(Accelerator):
    """The first visible device of one of torch's modules."""

    backend: str  # torch's name of the device
    unavailable: str  # kind of the error if activity records were asked for by name and there are none
    timing: tuple[str, ...]  # what else times on it, by dotted path
    no_products: frozenset[str] = frozenset()  # dtypes that it does not multiply, although torch does not refuse them

    def __init__(self, module: Any, timer: str) -> None:
        self._module = module
        # Bound before any op is imported: an op that replaces them is reported, not obeyed.
        self._originals = self._timing_functions()
        self._synchronize, self._event = module.synchronize, module.Event
        self._wanted_timer = timer
        self.timer: str | None = None

    def count(self) -> int:
        """The visible devices if they are all alike: times of another model are another question."""
        names = {self._module.get_device_name(index) for index in range(self.visible())}
        return self.visible() if len(names) == 1 else 1

    def visible(self) -> int:
        """As torch counts them. Of the slices of divided GPUs it sees only the first."""
        return int(self._module.device_count())

    def uuids(self) -> tuple[str, ...]:
        boards = (self._module.get_device_properties(index) for index in range(self.visible()))
        return tuple(str(getattr(board, "uuid", "")) for board in boards)

    def session(self) -> AbstractContextManager[Session]:
        return self._activities() if self.timer == "activity" else self._events()

    def start_timer(self) -> None:
        """Make the flush, and take activity records if one trial session gives them, else events."""
        self._make_flush()
        self.timer = "event"
        if self._wanted_timer != "event":
            try:
                with self._activities() as session:
                    session.launch(lambda: None)
                session.launches()
                trouble = None
            except RecordsLostError as error:  # those of some flushes are enough
                trouble = None if error.reason.facts.get("seen") else "a session recorded nothing"
            except (DeviceError, RuntimeError, AttributeError, OSError) as error:
                trouble = str(error).rstrip(".")
            if trouble is None:
                self.timer = "activity"
            elif self._wanted_timer == "activity":
                raise DeviceError(self.unavailable, error=trouble)

    def synchronize(self) -> None:
        self._synchronize()

    def pad(self, seed: int) -> object:
        steps = random.Random(seed).randint(1, _PAD_STEPS)
        return torch.empty(steps * _PAD_STEP, dtype=torch.uint8, device=self.backend)

    def window_s(self, call: Callable[[], Any], launches: int) -> float:
        return self.turn_s(call, launches)[1]

    def turn_s(
        self, call: Callable[[], Any], launches: int, returned: Callable[[], None] = lambda: None
    ) -> tuple[float, float]:
        self._synchronize()
        gc.disable()
        try:
            began = perf_counter()
            for _ in range(launches):
                call()
            host_s = perf_counter() - began
            returned()
            self._synchronize()
            return host_s, perf_counter() - began
        finally:
            gc.enable()

    def record_kernels(self) -> AbstractContextManager[Mapping[str, CompiledKernel] | None]:
        return nullcontext(None) if explain_unknown_triton() else launches.record_kernels()

    def capture_work(self) -> AbstractContextManager[Capture]:
        unknown = explain_unknown_triton()
        return nullcontext(Uncaptured(unknown)) if unknown else capture.watch_calls(unheard=self.unheard)

    @contextmanager
    def peak_memory(self) -> Iterator[PeakMemory]:
        """Ask torch's allocator: other libraries' memory does not count."""
        peak = PeakMemory()
        self._synchronize()
        self._module.reset_peak_memory_stats()
        yield peak
        self._synchronize()
        peak.bytes = int(self._module.max_memory_allocated())

    def out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, torch.OutOfMemoryError)

    def is_lost(self, error: BaseException) -> bool:
        try:
            self._synchronize()
        except RuntimeError:
            return True
        return False

    def list_namespaces(self) -> frozenset[str]:
        return operator_namespaces()

    def find_tampered(self) -> tuple[str, ...]:
        now = self._timing_functions()
        return tuple(name for name, function in self._originals.items() if now[name] is not function)

    # --- what each device has its way of

    def _activities(self) -> AbstractContextManager[Session]:
        raise NotImplementedError

    def _events(self) -> AbstractContextManager[Session]:
        raise NotImplementedError

    def _make_flush(self) -> None:
        raise NotImplementedError

    def _timing_functions(self) -> dict[str, Any]:
        """The functions that time and judge, by name: a kernel shares the process with it, and could replace it."""
        timing_functions = {f"torch.{self.backend}.{path}": operator.attrgetter(path)(self._module) for path in _TIMING}
        return timing_functions | {path: pkgutil.resolve_name(path) for path in (*_JUDGING, *self.timing)}

    # --- ceilings

    def limits(self, dtypes: Sequence[str]) -> Limits:
        """Bandwidth of a 1 GiB copy between the best of some buffers. Rate of an 8192-cubed product in each dtype."""
        copy_s = find_fastest_s(self._pairs_of_buffers())
        rates = {}
        for name in dtypes:
            try:
                if name not in self.no_products:
                    rates[name] = self._matmul_tflops(getattr(torch, name))
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # no product: float8 before compute capability 8.9, integers, types that are to come
                continue
        self._module.empty_cache()
        return Limits(2 * COPY_BYTES / copy_s / 1e9, rates)

    def _pairs_of_buffers(self) -> Iterator[Callable[[], float]]:
        """Copies between pairs of buffers, each of which stays while the next is made, so that it lies elsewhere."""
        held = list[Callable[[], Any]]()
        while len(held) < PAIRS and not (held and self._module.mem_get_info()[0] < 4 * COPY_BYTES):
            held.append(self._make_copy(COPY_BYTES, len(held)))
            yield functools.partial(self._seconds, held[-1])

    def _make_copy(self, size: int, number: int) -> Callable[[], Any]:
        """Make the pair of buffers of this number. Returns what copies between them."""
        raise NotImplementedError

    def _matmul_tflops(self, dtype: torch.dtype) -> float:
        left, right = (torch.randn(MATMUL_SIZE, MATMUL_SIZE, device=self.backend).to(dtype) for _ in range(2))
        product = self._product(left, right)
        product()
        seconds = statistics.median(self._seconds(product) for _ in range(_PROBES))
        return float(2 * MATMUL_SIZE**3 / seconds / 1e12)

    def _product(self, left: torch.Tensor, right: torch.Tensor) -> Callable[[], Any]:
        return functools.partial(torch.matmul, left, right)

    def _seconds(self, call: Callable[[], Any]) -> float:
        start, end = (self._event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        self._synchronize()
        return float(start.elapsed_time(end) / 1e3)


def find_fastest_s(pairs: Iterable[Callable[[], float]], clock: Callable[[], float] = perf_counter) -> float:
    """The best of the pairs' median seconds of a copy. A pair is a function that copies once and gives the seconds."""
    began, medians = clock(), list[float]()
    for copy_s in pairs:
        copy_s()
        medians.append(statistics.median(copy_s() for _ in range(COPIES)))
        if clock() - began >= LIMIT_S:
            break
    return min(medians)
