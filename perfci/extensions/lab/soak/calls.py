"""Many calls in a row, at once on streams, and from two threads: memory, speed, and whether they answer alike."""

import functools
import gc
import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from perfci.core.model import Fact, Reason
from perfci.device.arrays import leaves
from perfci.extensions.lab.soak.subject import SoakSubject
from perfci.extensions.lab.soak.verdicts import (
    DECAY,
    DETERMINISM,
    LEAST_WINDOWS,
    MEMORY,
    STREAMS,
    THREADS,
    SoakFinding,
    SoakMeasured,
    Status,
)

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


ROUNDS = 6  # how often the calls are made at once, each time with the inputs turned round
SIDES = 2  # streams beside the default one
CALLS = 50  # of each thread

BATCH, BATCH_BYTES = 5, 1 << 30
"""Calls of a thread before their outputs are compared, and most bytes of outputs that wait for it."""

_SWITCH_S = 1e-5  # how soon Python turns to the other thread: as often as possible


def check_streams(subject: SoakSubject) -> SoakFinding | SoakMeasured:
    """Calls at once on two side streams and on the default one, compared with the same calls alone.

    Inputs are copied in on the stream some 20 ms late, if they can be, and outputs copied right after the call. One
    that works on another stream reads other values, or has not written yet.
    """
    arrays, streams = subject.arrays, [None, *(subject.endurance.stream() for _ in range(SIDES))]
    count = len(streams)
    given = [subject.inputs(number) for number in range(count)]
    wanted = [subject.copies(subject.outputs(inputs)) for inputs in given]
    subject.device.synchronize()
    late, buffers = True, [subject.inputs(number + count) for number in range(count)]
    for buffer, inputs in zip(buffers, given, strict=True):
        arrays.refill(buffer, inputs)
        subject.device.synchronize()
        pairs = [(old, new) for old, new in zip(leaves(buffer), leaves(inputs), strict=False) if arrays.is_array(new)]
        late &= bool(pairs) and all(arrays.is_array(old) and arrays.same_bits(old, new) for old, new in pairs)
    numbers: dict[str, Fact] = {"rounds": ROUNDS, "streams": count, "late": late}

    def launch_at_once(given: Sequence[dict[str, Any]]) -> dict[int, list[Any]]:
        """One call on each stream at once, the default one last, since its queue may hold the host up: copies."""
        copies: dict[int, list[Any]] = {}
        kept = []  # outputs live until all streams are done, so that none is given another's memory
        for index in reversed(range(count)):
            inputs = given[index]
            with subject.endurance.on(streams[index]):
                subject.endurance.occupy()
                if late:
                    arrays.refill(buffers[index], inputs)
                    inputs = buffers[index]
                kept.append(subject.outputs(inputs))
                copies[index] = subject.copies(kept[-1])
        subject.device.synchronize()
        return copies

    for turn in range(1, ROUNDS + 1):
        turned = [(index + turn) % count for index in range(count)]
        copies = launch_at_once([given[place] for place in turned])
        for index, place in enumerate(turned):
            if difference := subject.difference(copies[index], wanted[place]):
                kind = "soak_stream_side" if index else "soak_stream_default"
                return subject.fail(STREAMS, kind, {**numbers, **difference, "round": turn})
        subject.tick(turn, ROUNDS)
    return subject.measured(STREAMS, numbers)


def check_threads(subject: SoakSubject, calls: int = CALLS) -> SoakFinding | SoakMeasured:
    """Two threads, a stream each: first calls at once, which compile together if the cache is empty, then many."""
    given = [subject.inputs(number) for number in range(2)]
    numbers: dict[str, Fact] = {"threads": len(given), "calls": calls}
    first: list[list[Any]] = [[], []]

    def call_once(index: int) -> None:
        first[index] = subject.copies(subject.outputs(given[index]))

    raised = _run_threads(subject, call_once)
    wanted = [subject.copies(subject.outputs(inputs)) for inputs in given]  # raises what it raises alone
    if raised is not None:
        return subject.fail(THREADS, "soak_thread_raised", numbers, **subject.describe(raised))
    for got, right in zip(first, wanted, strict=True):
        if threads := subject.difference(got, right):
            return subject.fail(THREADS, "soak_threads_first", {**numbers, **threads})

    size = sum(subject.arrays.nbytes(output) for output in wanted[0])
    batch = max(1, min(BATCH, BATCH_BYTES // max(size, 1)))
    wrong: list[dict[str, Fact]] = []

    def call_often(index: int) -> None:
        for start in range(0, calls, batch):
            outputs = [subject.outputs(given[index]) for _ in range(min(batch, calls - start))]
            for number, got in enumerate(outputs, start + 1):
                if threads := subject.difference(got, wanted[index]):
                    wrong.append({**threads, "call": number})
                    return
            if index == 0:
                subject.tick(start, calls)

    raised = _run_threads(subject, call_often)
    if raised is not None:
        return subject.fail(THREADS, "soak_thread_raised", numbers, **subject.describe(raised))
    if wrong:
        return subject.fail(THREADS, "soak_threads", {**numbers, **wrong[0]})
    return subject.measured(THREADS, numbers)


def _run_threads(subject: SoakSubject, work: Callable[[int], None]) -> BaseException | None:
    """Two threads that begin together, on a stream each. Returns what one raised. Raises if memory ran out."""
    gate = threading.Barrier(2)
    subject.device.synchronize()

    def run(index: int) -> None:
        try:
            with subject.endurance.on(subject.endurance.stream()):
                gate.wait()
                work(index)
        except Exception:
            gate.abort()
            raise

    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        with ThreadPoolExecutor(2) as pool:
            errors = [call.exception() for call in [pool.submit(run, index) for index in range(2)]]
    finally:
        sys.setswitchinterval(interval)
    # If one broke before the start, the other could not begin.
    raised = next((error for error in errors if error and not isinstance(error, threading.BrokenBarrierError)), None)
    if raised and subject.device.out_of_memory(raised):
        raise raised
    subject.device.synchronize()
    return raised
