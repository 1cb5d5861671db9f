"""Timer of the second tier: an event pair around each launch, behind a flush that hides the launch's latency.

Adds about 3 us to a launch on an H200, so its times are kept apart from activity records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from torch.cuda import synchronize

from perfci.device.flush import Flush
from perfci.device.seam import Launch, warmed

_FLUSH_PROBES = 20
_SPIN_CYCLES = 150_000
"""About 80 us at an H200's clock: longer than a Python wrapper takes to launch."""


class EventSession:
    """Records an event before and behind each call."""

    def __init__(self, flush: Flush) -> None:
        self._flush = flush
        self._pairs: list[tuple[Any, Any, float]] = []
        self._launches: list[Launch] = []
        self._flush_us = _flush_time_us(flush)

    def launch(self, call: Callable[[], Any], *, warm: bool = False) -> Any:
        """Flush, then time one call; a warm one behind the same calls untimed."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # The device spins while the host queues what follows, so that no event waits for the host.
        torch.cuda._sleep(_SPIN_CYCLES)
        self._flush()
        if warm:
            warmed(call)
            torch.cuda._sleep(_SPIN_CYCLES)
        start.record()
        began = perf_counter()
        result = call()
        host_us = 1e6 * (perf_counter() - began)
        end.record()
        self._pairs.append((start, end, host_us))
        return result

    def pause(self) -> None:
        """Mark nothing: events delimit launches by themselves."""

    def aside(self) -> None:
        """Mark nothing."""

    def finish(self) -> None:
        """Read all pairs; the device has been waited for."""
        for start, end, host_us in self._pairs:
            us = 1e3 * start.elapsed_time(end)
            self._launches.append(Launch(us, us, host_us, None))

    def launches(self) -> Sequence[Launch]:
        """Every launch in order."""
        return self._launches

    def busy_s(self) -> float:
        """Seconds of launches and their flushes."""
        return sum(launch.time_us + self._flush_us for launch in self._launches) / 1e6


@contextmanager
def event_session(flush: Flush) -> Iterator[EventSession]:
    """Open a session; events are read when it ends."""
    session = EventSession(flush)
    yield session
    synchronize()
    session.finish()


def _flush_time_us(flush: Flush) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(_FLUSH_PROBES):
        flush()
    end.record()
    synchronize()
    return float(1e3 * start.elapsed_time(end) / _FLUSH_PROBES)
