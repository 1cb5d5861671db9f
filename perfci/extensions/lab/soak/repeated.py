"""Many calls one after the other: what stays in memory, whether they become slower, whether they answer alike."""

import functools
import gc
import itertools
from statistics import median

from perfci.core.model import Fact, Reason
from perfci.extensions.lab.soak.findings import DECAY, DETERMINISM, MEMORY, SoakFinding, SoakMeasured, Status
from perfci.extensions.lab.soak.subject import SoakSubject
from perfci.extensions.lab.soak.verdicts import LEAST_WINDOWS

WARM_CALLS = 10
"""Calls before memory is read: compiled kernels, workspaces and what a wrapper keeps on its first calls are no leak."""

WARM_TIMED = 50  # calls before the first timed one
WINDOWS = 20  # readings over all calls, if there are enough calls
LEAST_LAUNCHES = 5  # Least timed calls of a window. A spike then does not move its median.


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


def check_memory(subject: SoakSubject, calls: int) -> SoakFinding | SoakMeasured:
    """Device memory over many calls, in the allocator's account and in the driver's."""
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
    return subject.measured(MEMORY, numbers, {"held": held, "outside": outside if alone else []})


# --- speed ------------------------------------------------------------------------------------------------------------


def check_decay(subject: SoakSubject, calls: int) -> SoakFinding | SoakMeasured:
    """Times and clock over many calls. The device's timer has been started."""
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
    clocks = [state.sm_clock_mhz for state in states]
    heat = [state.temperature_c for state in states if state.temperature_c is not None]
    numbers: dict[str, Fact] = {"calls": calls, "first_us": medians[0], "last_us": medians[-1]}
    numbers |= {"first_c": heat[0] if heat else None, "last_c": heat[-1] if heat else None}
    numbers["throttle"] = ", ".join(sorted({name for state in states for name in state.throttle}))
    return subject.measured(DECAY, numbers, {"medians_us": medians, "clocks_mhz": clocks})


# --- the same answer --------------------------------------------------------------------------------------------------


def check_determinism(subject: SoakSubject, calls: int) -> SoakFinding | SoakMeasured:
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
    return subject.measured(DETERMINISM, {"calls": calls})
