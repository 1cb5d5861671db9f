"""Two timers: the device's activity records (CUPTI, through torch's profiler), and event pairs as the fallback.

A profiler's session takes some 15 ms to start, the first one seconds, so a session spans many blocks. A pair of events
adds about 3 us to a short kernel on an H200, so its times are kept apart from activity records.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Protocol

import torch
from torch.autograd.profiler import profile
from torch.cuda import synchronize

from perfci.core.errors import DeviceError, RecordsLostError
from perfci.core.model.measured import Launch
from perfci.device.seam import warm_cache

Action = Callable[[], None]

NAME = "perfci_l2_flush"  # name of the flush's kernel in the device's activity records
SPIN = "spin_kernel"  # what the name of a rest's kernel has in it
SPIN_START_US = 0.55  # what a rest takes beside its cycles. Measured on an H200


class CacheFlush(Protocol):
    """Marks between launches."""

    def __call__(self) -> None:
        """Queue one flush."""

    def mark(self) -> None:
        """Queue a kernel of the flush's name that leaves the cache as it is."""


@dataclass(frozen=True)
class Record:
    """One kernel, copy or memset that the device executed, nanoseconds."""

    start_ns: int
    duration_ns: int
    name: str
    stream: int = 0

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


class ActivitySession:
    """Queues launches between flushes. Reads their records when the profiler has stopped."""

    def __init__(self, flush: CacheFlush, rest: Callable[[float], int] = lambda _: 0) -> None:
        """`rest`: queues light work of about so many microseconds and returns its cycles. 0 if it does not."""
        self._flush, self._rest = flush, rest
        self._marks = 0
        self._timed: list[tuple[int, float]] = []
        self._rests: dict[int, tuple[int, int]] = {}  # mark of a launch -> mark before its rest, cycles of the rest
        self._records: list[Record] = []

    def launch(self, call: Callable[[], Any], *, warm: bool = False, rest_us: float = 0.0) -> Any:
        """Flush, then call. The records from there, or from a warm launch's mark, up to the next flush are its own."""
        if rest_us and not self._marks:  # what is recorded before the first flush is lost
            self.pause()
        before, cycles = self._marks - 1, self._rest(rest_us) if rest_us else 0
        self.pause()
        if warm:
            warm_cache(call)
            self._flush.mark()
            self._marks += 1
        began = perf_counter()
        result = call()
        self._timed.append((self._marks - 1, 1e6 * (perf_counter() - began)))
        if cycles:
            self._rests[self._marks - 1] = before, cycles
        return result

    def pause(self) -> None:
        """Close the launch before with a flush, so that what follows is counted to none."""
        self._flush()
        self._marks += 1

    def aside(self) -> None:
        self.pause()  # a pause of the mark would count to the launch before it

    def finish(self, records: list[Record]) -> None:
        self._records = sorted(records, key=lambda record: record.start_ns)

    def launches(self) -> Sequence[Launch]:
        groups = split_at_flushes(self._records, self._marks)
        home = next((record.stream for record in self._records if record.name == NAME), 0)
        clocks = {}
        for mark, (before, cycles) in self._rests.items():
            # The last such kernel before a flush is the rest, whatever a launch did itself.
            spins = (group for group in reversed(groups[before]) if SPIN in group.name and group.stream == home)
            if spin := next(spins, None):
                groups[before].remove(spin)
                clocks[mark] = cycles / (spin.duration_ns / 1e3 - SPIN_START_US)
        return [
            replace(_launch(groups[mark], host_us, home), clock_mhz=clocks.get(mark)) for mark, host_us in self._timed
        ]


@contextmanager
def activity_session(flush: CacheFlush, rest: Callable[[float], int]) -> Iterator[ActivitySession]:
    """Run one profiler session."""
    session = ActivitySession(flush, rest)
    # The profiler's start is not the device's work, so it waits before anything is queued. torch.profiler would
    # import torch's compilers first, which takes seconds.
    with profile(use_cpu=False, use_device="cuda", use_kineto=True) as profiler:
        synchronize()
        yield session
        session.pause()
        synchronize()
    device, events = torch.autograd.DeviceType.CUDA, profiler.kineto_results.events()
    work = [event for event in events if event.device_type() == device and not event.is_user_annotation()]
    session.finish(
        [
            Record(activity.start_ns(), activity.duration_ns(), activity.name(), activity.device_resource_id())
            for activity in work
        ]
    )


def split_at_flushes(records: Sequence[Record], expected: int) -> list[list[Record]]:
    """Records behind each flush or mark. Raises RecordsLostError if one is missing, DeviceError for too many."""
    groups: list[list[Record]] = []
    for record in records:
        if record.name == NAME:
            groups.append([])
        elif groups:
            groups[-1].append(record)
    if len(groups) != expected:
        error = RecordsLostError if len(groups) < expected else DeviceError
        raise error("records_missing", expected=expected, seen=len(groups))
    return groups


def _launch(records: Sequence[Record], host_us: float, home: int) -> Launch:
    if not records:
        return Launch(0.0, 0.0, host_us, 0)
    span = max(record.end_ns for record in records) - records[0].start_ns
    elsewhere = any(record.stream != home for record in records)
    return Launch(sum(record.duration_ns for record in records) / 1e3, span / 1e3, host_us, len(records), elsewhere)


# --- events -----------------------------------------------------------------------------------------------------------


class EventSession:
    """Records an event before and behind each launch, which is `batch` calls. `spin` occupies the device meanwhile."""

    def __init__(
        self,
        flush: Action,
        event: Any,
        spin: Action,
        batch: Callable[[Callable[[], Any]], int],
        rest: Callable[[float], object],
    ) -> None:
        self._flush, self._event, self._spin, self._batch, self._rest = flush, event, spin, batch, rest
        self._pairs: list[tuple[Any, Any, float, int]] = []
        self._launches: list[Launch] = []

    def launch(self, call: Callable[[], Any], *, warm: bool = False, rest_us: float = 0.0) -> Any:
        """Flush, then time the calls. A launch's time is that of one call, and the last one's result is returned."""
        start, end = (self._event(enable_timing=True) for _ in range(2))
        count = self._batch(call)
        if rest_us:
            self._rest(rest_us)
        self._spin()
        self._flush()
        if warm:
            warm_cache(call)
            self._spin()
        start.record()
        began = perf_counter()
        result = call()
        host_us = 1e6 * (perf_counter() - began)
        for _ in range(count - 1):
            del result  # so that every call draws its output from the same pool
            result = call()
        end.record()
        self._pairs.append((start, end, host_us, count))
        return result

    def pause(self) -> None:
        """Mark nothing: events delimit launches by themselves."""

    def aside(self) -> None: ...

    def finish(self) -> None:
        """Read all pairs. The device has been waited for."""
        for start, end, host_us, count in self._pairs:
            us = 1e3 * start.elapsed_time(end) / count
            self._launches.append(Launch(us, us, host_us, None))

    def launches(self) -> Sequence[Launch]:
        return self._launches


@contextmanager
def event_session(
    flush: Action,
    event: Callable[..., Any],
    synchronize: Action,
    *,
    spin: Action = lambda: None,
    batch: Callable[[Callable[[], Any]], int] = lambda _: 1,
    rest: Callable[[float], object] = lambda _: None,
) -> Iterator[EventSession]:
    """Open a session. Events are read when it ends."""
    session = EventSession(flush, event, spin, batch, rest)
    yield session
    synchronize()
    session.finish()
