"""Several calls at once: on streams beside the default one, and from two threads."""

import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from perfci.core.model import Fact
from perfci.device.arrays import leaves
from perfci.extensions.lab.soak.findings import STREAMS, THREADS, SoakFinding, SoakMeasured
from perfci.extensions.lab.soak.subject import SoakSubject

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
