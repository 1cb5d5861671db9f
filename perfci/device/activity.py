"""Timer of the first tier: the device's own activity records (CUPTI, through torch.profiler).

A launch is what stands between two of perfci's flushes; where the cache is to stay warm, between a mark of perfci's and
the next flush. An event pair adds about 3 us to a short kernel on an H200, these records do not. A profiler's first
start in a process takes seconds, a later session some 15 ms, so one session spans many blocks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch.cuda import synchronize
from torch.profiler import ProfilerActivity, profile

from perfci.core.errors import DeviceError, RecordsLostError
from perfci.device.flush import NAME, Flush
from perfci.device.seam import Launch, warmed

# torch says that only the last cycle is kept; a session has only one.
warnings.filterwarnings("ignore", message=".*Profiler clears events.*")


@dataclass(frozen=True)
class Record:
    """One kernel, copy or memset that the device executed, nanoseconds."""

    start_ns: int
    duration_ns: int
    name: str
    stream: int = 0

    @property
    def end_ns(self) -> int:
        """When it ended."""
        return self.start_ns + self.duration_ns


class ActivitySession:
    """Queues launches between flushes; reads their records when the profiler has stopped."""

    def __init__(self, flush: Callable[[], None], mark: Callable[[], None]) -> None:
        self._flush = flush
        self._mark = mark
        self._marks = 0
        self._timed: list[tuple[int, float]] = []
        self._records: list[Record] = []

    def launch(self, call: Callable[[], Any], *, warm: bool = False) -> Any:
        """Flush, then call; the records up to the next flush are this launch's.

        A warm launch begins behind a mark instead, and what stands between the flush and the mark belongs to none.
        """
        self.pause()
        if warm:
            warmed(call)
            self._mark()
            self._marks += 1
        began = perf_counter()
        result = call()
        self._timed.append((self._marks - 1, 1e6 * (perf_counter() - began)))
        return result

    def pause(self) -> None:
        """Close the launch before with a flush, so that what follows is counted to none."""
        self._flush()
        self._marks += 1

    def aside(self) -> None:
        """Close the launch before, as `pause` does."""
        self.pause()

    def finish(self, records: list[Record]) -> None:
        """Take the profiler's records."""
        self._records = sorted(records, key=lambda record: record.start_ns)

    def launches(self) -> Sequence[Launch]:
        """Every launch in order; raises RecordsLostError where flushes are missing in the records."""
        groups = split_at_flushes(self._records, self._marks)
        home = next((record.stream for record in self._records if record.name == NAME), 0)
        return [_launch(groups[mark], host_us, home) for mark, host_us in self._timed]

    def busy_s(self) -> float:
        """Seconds covered by any record."""
        return covered_ns(self._records) / 1e9


@contextmanager
def activity_session(flush: Flush) -> Iterator[ActivitySession]:
    """Run one profiler session."""
    session = ActivitySession(flush, flush.mark)
    # The profiler's own start is not the device's work, so it waits before anything is queued.
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        synchronize()
        yield session
        session.pause()
        synchronize()
    session.finish(_records(profiler))


def split_at_flushes(records: Sequence[Record], expected: int) -> list[list[Record]]:
    """Records behind each flush or mark, up to the next, in order of start.

    Raises RecordsLostError if one is missing, and DeviceError if there are more than were queued.
    """
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


def covered_ns(records: Sequence[Record]) -> int:
    """Length of the union of the records' intervals; records are sorted by start."""
    total, end = 0, 0
    for record in records:
        total += max(record.end_ns - max(record.start_ns, end), 0)
        end = max(end, record.end_ns)
    return total


def _records(profiler: Any) -> list[Record]:
    events = profiler.profiler.kineto_results.events()
    device = torch.autograd.DeviceType.CUDA
    return [
        Record(event.start_ns(), event.duration_ns(), event.name(), event.device_resource_id())
        for event in events
        if event.device_type() == device and not event.is_user_annotation()
    ]


def _launch(records: Sequence[Record], host_us: float, home: int) -> Launch:
    if not records:
        return Launch(0.0, 0.0, host_us, 0)
    span = max(record.end_ns for record in records) - records[0].start_ns
    elsewhere = any(record.stream != home for record in records)
    return Launch(sum(record.duration_ns for record in records) / 1e3, span / 1e3, host_us, len(records), elsewhere)
