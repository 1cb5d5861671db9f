"""Many calls one after the other: what stays in memory, whether they become slower, whether they answer alike."""

import functools
import gc
import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from perfci.core.model import Fact, Reason
from perfci.extensions.lab.soak.findings import DECAY, DECAY_LIMIT, DETERMINISM, MEMORY, SoakFinding, Status
from perfci.extensions.lab.soak.subject import SoakSubject
from perfci.extensions.lab.soak.trend import trend, trend_p

WARM_CALLS = 10
"""Calls before memory is read: compiled kernels, workspaces and what a wrapper keeps on its first calls are no leak."""

WARM_TIMED = 50  # calls before the first timed one
WINDOWS = 20  # readings over all calls, if there are enough calls
LEAST_WINDOWS = 8  # with fewer, a trend cannot be beyond doubt, and a leak looks like a cache that fills
LEAST_LAUNCHES = 5  # Least timed calls of a window. A spike then does not move its median.
P_LIMIT = 0.01  # a rise counts if chance alone shows one as clear in fewer cases than this


def split_calls(calls: int, least: int = 1) -> list[int]:
    """Number of calls in each window, all nearly alike. Empty if there are too few calls for LEAST_WINDOWS.

    >>> split_calls(1000)[:2], len(split_calls(1000)), split_calls(41, least=5), split_calls(30, least=5)
    ([50, 50], 20, [6, 5, 5, 5, 5, 5, 5, 5], [])
    """
    count = min(WINDOWS, calls // least)
    if count < LEAST_WINDOWS:
        return []
    return [calls // count + (index < calls % count) for index in range(count)]


# --- memory -----------------------------------------------------------------------------------------------------------


def check_memory(subject: SoakSubject, calls: int) -> SoakFinding:
    """Whether calls leave device memory behind, in the allocator's account and in the driver's."""
    endurance, device = subject.endurance, subject.device
    sizes = split_calls(calls)
    if not sizes:
        return subject.skip(MEMORY, "soak_few_calls", calls=calls, least=LEAST_WINDOWS)
    inputs = subject.inputs()
    for _ in range(WARM_CALLS):
        subject.outputs(inputs)
    alone = device.state().foreign_processes == 0  # else the driver counts others' memory too
    gc.collect()
    device.synchronize()
    endurance.reset_peak()
    readings = [endurance.memory()]
    for done, size in zip(itertools.accumulate(sizes), sizes, strict=True):
        for _ in range(size):
            subject.outputs(inputs)
        gc.collect()  # what only a cycle of references holds is no leak
        device.synchronize()
        readings.append(endurance.memory())
        subject.tick(done, calls)
    alone = alone and device.state().foreign_processes == 0
    held, outside = [reading.allocated or 0 for reading in readings], [reading.outside or 0 for reading in readings]
    numbers: dict[str, Fact] = {"calls": calls, "before": held[0], "after": held[-1], "peak": readings[-1].peak}
    numbers |= {"outside_before": readings[0].outside, "outside_after": readings[-1].outside, "alone": alone}
    per_window = calls / len(sizes)
    if (grown := find_leak(held)) is not None:
        return subject.fail(MEMORY, "soak_leak", {**numbers, "rate": grown / per_window})
    if alone and (grown := find_leak(outside)) is not None:
        return subject.fail(MEMORY, "soak_leak_outside", {**numbers, "rate": grown / per_window})
    return subject.finding(MEMORY, Status.PASS, numbers)


def find_leak(held: Sequence[float]) -> float | None:
    """Bytes a window that do not come back, by Theil and Sen's slope. None if memory does not go on growing.

    held: bytes at evenly spaced readings. Caches fill in the first quarter, or are full by the end of the third. The
    rise has to be beyond chance (Mann-Kendall).
    """
    size = len(held)
    quarters = [held[size * k // 4 : size * (k + 1) // 4] for k in (1, 2, 3)]
    if min(len(quarter) for quarter in quarters) < 2:
        return None
    second, third, last = (min(quarter) for quarter in quarters)
    if not (second < third < last and held[-1] > quarters[1][-1]):
        return None
    late = held[size // 4 :]
    return trend(late).value if trend_p(late) < P_LIMIT else None


# --- speed ------------------------------------------------------------------------------------------------------------


def check_decay(subject: SoakSubject, calls: int, limit: float = DECAY_LIMIT) -> SoakFinding:
    """Whether calls become slower by more than the clock explains. The device's timer has been started."""
    device, sizes = subject.device, split_calls(calls, LEAST_LAUNCHES)
    if not sizes:
        return subject.skip(DECAY, "soak_few_calls", calls=calls, least=LEAST_WINDOWS * LEAST_LAUNCHES)
    call = functools.partial(subject.suite.kernel, **subject.inputs())
    for _ in range(WARM_TIMED):
        call()
    states = []
    with device.session() as session:
        for done, size in zip(itertools.accumulate(sizes), sizes, strict=True):
            for _ in range(size):
                session.launch(call, warm=subject.suite.cache == "warm")
            session.pause()
            states.append(device.state())  # before waiting: the clock of an idle board describes no launch
            device.synchronize()
            subject.tick(done, calls)
    times = iter(launch.time_us for launch in session.launches())
    medians = [median(itertools.islice(times, size)) for size in sizes]
    if min(medians) <= 0:
        reason = Reason("nothing_launched", {"arm": "kernel", "case": subject.case})
        return subject.finding(DECAY, Status.ERROR, reason=reason)
    decay = measure_decay(medians, [state.sm_clock_mhz for state in states])
    heat = [state.temperature_c for state in states if state.temperature_c is not None]
    numbers: dict[str, Fact] = {"calls": calls, "first_us": medians[0], "last_us": medians[-1], **decay, "limit": limit}
    numbers |= {"first_c": heat[0] if heat else None, "last_c": heat[-1] if heat else None}
    numbers["throttle"] = ", ".join(sorted({name for state in states for name in state.throttle}))
    if not is_beyond(decay, limit):
        return subject.finding(DECAY, Status.PASS, numbers)
    if decay["left"] is None:
        return subject.fail(DECAY, "soak_decay_unclocked", numbers)
    if decay["left"] > limit:
        return subject.fail(DECAY, "soak_decay", numbers)
    reason = Reason("soak_clock_explains", {"case": subject.case, **numbers})
    return subject.finding(DECAY, Status.PASS, numbers, reason)


def measure_decay(medians_us: Sequence[float], clocks_mhz: Sequence[float | None]) -> dict[str, float | None]:
    """How the time of a call changed over all windows: ratios - 1, positive is slower.

    medians_us: of each window, above 0. `change`, `low`, `high`: Theil and Sen's slope of log medians. `p`: one-sided,
    Mann-Kendall's. `clock`: the clock's. `left`: of the cycles, which a kernel that follows the clock alone keeps.
    """
    times = np.log(np.asarray(medians_us, dtype=np.float64))
    steps, slope = times.size - 1, trend(times)
    slopes = {"change": slope.value, "low": slope.low, "high": slope.high}
    decay: dict[str, float | None] = {name: math.expm1(slope_a_step * steps) for name, slope_a_step in slopes.items()}
    decay |= {"p": trend_p(times), "clock": None, "left": None}
    if all(clocks_mhz):
        clocks = np.log(np.asarray(clocks_mhz, dtype=np.float64))
        decay["clock"], decay["left"] = (math.expm1(trend(series).value * steps) for series in (clocks, times + clocks))
    return decay


def is_beyond(decay: Mapping[str, float | None], limit: float) -> bool:
    """Whether calls became slower by more than the limit beyond doubt."""
    return (decay["low"] or 0.0) > limit and (decay["p"] or 0.0) < P_LIMIT


# --- the same answer --------------------------------------------------------------------------------------------------


def check_determinism(subject: SoakSubject, calls: int) -> SoakFinding:
    """Whether every call answers the same inputs alike, and the first call's answer stays as it is."""
    inputs = subject.inputs()
    first = subject.outputs(inputs)
    kept = subject.copies(first)
    for call in range(2, calls + 1):
        if determinism := subject.difference(subject.outputs(inputs), kept):
            return subject.fail(DETERMINISM, "soak_differs", {"calls": calls, "call": call, **determinism})
        subject.tick(call, calls)
    subject.outputs(subject.inputs(1))  # other values, which show in an output that a later call writes into
    subject.device.synchronize()
    if determinism := subject.difference(first, kept):
        return subject.fail(DETERMINISM, "soak_rewritten", {"calls": calls, **determinism})
    return subject.finding(DETERMINISM, Status.PASS, {"calls": calls})
