"""Many calls one behind the other: what stays in memory, whether they become slower, whether they answer alike."""

from __future__ import annotations

import functools
import gc
import itertools
from statistics import median
from typing import Any

from perfci.core.model import DeviceState, Fact, Reason
from perfci.device.seam import Launch, MemoryUse
from perfci.lab.soak.findings import DECAY, DECAY_LIMIT, DETERMINISM, MEMORY, Finding, Status
from perfci.lab.soak.rules import LEAST_LAUNCHES, LEAST_WINDOWS, leak, windows
from perfci.lab.soak.rules import decay as judged_decay
from perfci.lab.soak.subject import Subject

WARM_CALLS = 10
"""Calls before memory is read: compiled kernels, workspaces and what a wrapper keeps on its first calls are no leak."""

WARM_TIMED = 50
"""Calls before the first timed one."""


# --- memory -----------------------------------------------------------------------------------------------------------


def memory(subject: Subject, calls: int) -> Finding:
    """Whether calls leave device memory behind, by the allocator's account and by the driver's."""
    if subject.endurance.memory().allocated is None:
        return subject.skipped(MEMORY, "soak_no_memory")
    sizes = windows(calls)
    if not sizes:
        return subject.skipped(MEMORY, "soak_few_calls", calls=calls, least=LEAST_WINDOWS)
    inputs = subject.inputs()
    for _ in range(WARM_CALLS):
        subject.outputs(inputs)
    alone = _is_alone(subject)
    readings = _readings(subject, inputs, sizes)
    alone = alone and _is_alone(subject)
    return _judged_memory(subject, calls, readings, calls / len(sizes), alone=alone)


def _readings(subject: Subject, inputs: dict[str, Any], sizes: list[int]) -> list[MemoryUse]:
    """One before the first window, and one behind each."""
    gc.collect()
    subject.device.synchronize()
    subject.endurance.reset_peak()
    readings = [subject.endurance.memory()]
    for done, size in zip(itertools.accumulate(sizes), sizes, strict=True):
        for _ in range(size):
            subject.outputs(inputs)
        gc.collect()  # what only a cycle of references holds is no leak
        subject.device.synchronize()
        readings.append(subject.endurance.memory())
        subject.tick(done, sum(sizes))
    return readings


def _is_alone(subject: Subject) -> bool:
    """Whether the driver's account is of this process alone."""
    return subject.device.state().foreign_processes == 0


def _judged_memory(
    subject: Subject, calls: int, readings: list[MemoryUse], per_window: float, *, alone: bool
) -> Finding:
    held = [each.allocated or 0 for each in readings]
    outside = [each.outside or 0 for each in readings]
    numbers: dict[str, Fact] = {
        "calls": calls,
        "before": held[0],
        "after": held[-1],
        "peak": readings[-1].peak,
        "outside_before": readings[0].outside,
        "outside_after": readings[-1].outside,
        "alone": alone,
    }
    if (grown := leak(held)) is not None:
        return subject.failed(MEMORY, "soak_leak", {**numbers, "rate": grown / per_window})
    if alone and (grown := leak(outside)) is not None:
        return subject.failed(MEMORY, "soak_leak_outside", {**numbers, "rate": grown / per_window})
    return subject.finding(MEMORY, Status.PASS, numbers)


# --- speed ------------------------------------------------------------------------------------------------------------


def decay(subject: Subject, calls: int, limit: float = DECAY_LIMIT) -> Finding:
    """Whether calls become slower, beyond what the clock explains; the device's timer has been started."""
    if subject.device.absent is not None:
        return subject.skipped(DECAY, "soak_not_timed")
    sizes = windows(calls, LEAST_LAUNCHES)
    if not sizes:
        return subject.skipped(DECAY, "soak_few_calls", calls=calls, least=LEAST_WINDOWS * LEAST_LAUNCHES)
    launches, states = _timed(subject, sizes)
    ends = list(itertools.accumulate(sizes))
    times = [[launch.time_us for launch in launches[end - size : end]] for end, size in zip(ends, sizes, strict=True)]
    medians = [median(each) for each in times]
    if min(medians) <= 0:
        reason = Reason("nothing_launched", {"arm": "kernel", "case": subject.case})
        return subject.finding(DECAY, Status.ERROR, reason=reason)
    return _judged_decay(subject, calls, medians, states, limit)


def _timed(subject: Subject, sizes: list[int]) -> tuple[list[Launch], list[DeviceState]]:
    """Every call, and the device's state in each window."""
    call = functools.partial(subject.suite.kernel, **subject.inputs())
    warm = subject.suite.cache == "warm"
    for _ in range(WARM_TIMED):
        call()
    states = []
    with subject.device.session() as session:
        for done, size in zip(itertools.accumulate(sizes), sizes, strict=True):
            for _ in range(size):
                session.launch(call, warm=warm)
            session.pause()
            states.append(subject.device.state())  # before waiting: an idle board's clock says nothing of the launches
            subject.device.synchronize()
            subject.tick(done, sum(sizes))
    return list(session.launches()), states


def _judged_decay(
    subject: Subject, calls: int, medians: list[float], states: list[DeviceState], limit: float
) -> Finding:
    found = judged_decay(medians, [state.sm_clock_mhz for state in states])
    heat = [state.temperature_c for state in states if state.temperature_c is not None]
    numbers: dict[str, Fact] = {
        "calls": calls,
        "first_us": medians[0],
        "last_us": medians[-1],
        "change": found.change.value,
        "low": found.change.low,
        "high": found.change.high,
        "p": found.p,
        "limit": limit,
        "clock": found.clock,
        "left": found.left,
        "first_c": heat[0] if heat else None,
        "last_c": heat[-1] if heat else None,
        "throttle": ", ".join(sorted({name for state in states for name in state.throttle})),
    }
    if not found.beyond(limit):
        return subject.finding(DECAY, Status.PASS, numbers)
    if found.explained(limit):
        reason = Reason("soak_clock_explains", {"case": subject.case, **numbers})
        return subject.finding(DECAY, Status.PASS, numbers, reason)
    kind = "soak_decay_unclocked" if found.clock is None else "soak_decay"
    return subject.failed(DECAY, kind, numbers)


# --- the same answer --------------------------------------------------------------------------------------------------


def determinism(subject: Subject, calls: int) -> Finding:
    """Whether every call answers the same inputs alike, and the first call's answer stays as it is."""
    if not subject.deterministic:
        return subject.skipped(DETERMINISM, "soak_not_deterministic")
    inputs = subject.inputs()
    first = subject.outputs(inputs)
    kept = subject.copies(first)
    for call in range(2, calls + 1):
        if found := subject.difference(subject.outputs(inputs), kept):
            return subject.failed(DETERMINISM, "soak_differs", {"calls": calls, "call": call, **found})
        subject.tick(call, calls)
    subject.outputs(subject.inputs(1))  # other values: an output that a later call writes into shows them
    subject.device.synchronize()
    if found := subject.difference(first, kept):
        return subject.failed(DETERMINISM, "soak_rewritten", {"calls": calls, **found})
    return subject.finding(DETERMINISM, Status.PASS, {"calls": calls})
