"""Timer of the second tier on Ascend: an event pair around launches, behind a flush that hides their latency.

Events see what the host adds to a launch once the flush has ended, so short calls are timed several at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch

from perfci.device.npu_flush import NpuFlush
from perfci.device.seam import Launch, leaves, warmed

BATCH = 8
"""Calls in one event pair, where calls are short."""

SHORT_BYTES = 64 << 20
"""Calls with smaller inputs are short: an Ascend 910B reads so much in some 40 us.

It is the inputs that decide, not a trial: all arms of a case must be timed alike, in every process.
"""

_PROBES = 5


def batch(call: Callable[[], Any]) -> int:
    """Calls in one event pair; of a call that does not show its arguments, as `inputs`, one."""
    inputs = getattr(call, "inputs", None)
    if inputs is None:
        return 1
    held = (value for value in leaves(inputs) if isinstance(value, torch.Tensor))
    return BATCH if sum(value.numel() * value.element_size() for value in held) < SHORT_BYTES else 1


class NpuEventSession:
    """Records an event before and behind each launch's calls."""

    def __init__(self, flush: NpuFlush, event: Callable[..., Any], synchronize: Callable[[], None]) -> None:
        self._flush, self._event = flush, event
        self._pairs: list[tuple[Any, Any, float, int]] = []
        self._launches: list[Launch] = []
        self._flush_us = self._flush_time_us(synchronize)

    def launch(self, call: Callable[[], Any], *, warm: bool = False) -> Any:
        """Flush, then time the calls; the time of one is told, and the last one's result given."""
        start, end = (self._event(enable_timing=True) for _ in range(2))
        count = batch(call)
        self._flush()
        if warm:
            warmed(call)
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

    def aside(self) -> None:
        """Mark nothing."""

    def finish(self) -> None:
        """Read all pairs; the device has been waited for."""
        for start, end, host_us, count in self._pairs:
            us = 1e3 * start.elapsed_time(end) / count
            self._launches.append(Launch(us, us, host_us, None))

    def launches(self) -> Sequence[Launch]:
        """Every launch in order."""
        return self._launches

    def busy_s(self) -> float:
        """Seconds of all calls and flushes."""
        timed = zip(self._launches, self._pairs, strict=True)
        return sum(launch.time_us * count + self._flush_us for launch, (*_, count) in timed) / 1e6

    def _flush_time_us(self, synchronize: Callable[[], None]) -> float:
        start, end = (self._event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(_PROBES):
            self._flush()
        end.record()
        synchronize()
        return float(1e3 * start.elapsed_time(end) / _PROBES)


@contextmanager
def npu_event_session(
    flush: NpuFlush, event: Callable[..., Any], synchronize: Callable[[], None]
) -> Iterator[NpuEventSession]:
    """Open a session; events are read when it ends. `event` is torch.npu.Event, as it was before any op's import."""
    session = NpuEventSession(flush, event, synchronize)
    yield session
    synchronize()
    session.finish()
