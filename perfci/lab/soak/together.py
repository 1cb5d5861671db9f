"""Several calls at once: on streams beside the default one, and from two threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perfci.core.model import Fact
from perfci.device.seam import leaves
from perfci.lab.soak.findings import STREAMS, THREADS, SoakFinding, Status
from perfci.lab.soak.subject import SoakSubject

ROUNDS = 6
"""How often the calls are made at once, each time with the inputs turned round."""

SIDES = 2
"""Streams beside the default one."""

CALLS = 50
"""Of each thread."""

BATCH, BATCH_BYTES = 5, 1 << 30
"""Calls of a thread before their outputs are compared, and most bytes of outputs that wait for it."""

_SWITCH_S = 1e-5
"""How soon Python turns to the other thread: as often as possible."""


@dataclass(frozen=True)
class Lane:
    """Inputs of its own, and what a call alone gives for them."""

    inputs: dict[str, Any]
    wanted: list[Any]


# --- streams ----------------------------------------------------------------------------------------------------------


def check_streams(subject: SoakSubject) -> SoakFinding:
    """Calls at once on two side streams and on the default one, compared with the same calls alone.

    If inputs can be overwritten, they hold another call's values until, on the same stream and behind work that takes
    some 20 ms, their own are copied in: a call that works on any other stream reads the wrong ones. Its outputs are
    copied on the stream right behind it, so one that is not joined to the stream has not written them yet.
    """
    sides = [subject.endurance.stream() for _ in range(SIDES)]
    if None in sides:
        return subject.skip(STREAMS, "soak_no_streams")
    streams, arrays = [None, *sides], subject.arrays
    made = [subject.inputs(number) for number in range(len(streams))]
    lanes = [Lane(inputs, subject.copies(subject.outputs(inputs))) for inputs in made]
    subject.device.synchronize()
    late, buffers = True, [subject.inputs(number + len(streams)) for number in range(len(streams))]
    for buffer, lane in zip(buffers, lanes, strict=True):
        arrays.refill(buffer, lane.inputs)
        subject.device.synchronize()
        pairs = list(zip(leaves(buffer), leaves(lane.inputs), strict=False))
        pairs = [(old, new) for old, new in pairs if arrays.is_array(new)]
        late &= bool(pairs) and all(arrays.is_array(old) and arrays.same_bits(old, new) for old, new in pairs)
    numbers: dict[str, Fact] = {"rounds": ROUNDS, "streams": len(streams), "late": late}
    for turn in range(1, ROUNDS + 1):
        turned = [lanes[(index + turn) % len(lanes)] for index in range(len(lanes))]
        copies = _launch_at_once(subject, streams, turned, buffers if late else None)
        for index, lane in enumerate(turned):
            if found := subject.difference(copies[index], lane.wanted):
                kind = "soak_stream_side" if index else "soak_stream_default"
                return subject.fail(STREAMS, kind, {**numbers, **found, "round": turn})
        subject.tick(turn, ROUNDS)
    return subject.finding(STREAMS, Status.PASS, numbers)


def _launch_at_once(
    subject: SoakSubject, streams: Sequence[object], lanes: Sequence[Lane], buffers: Sequence[dict[str, Any]] | None
) -> dict[int, list[Any]]:
    """One call on each stream, all under way at once. Returns copies of their outputs once the device has finished.

    The default stream comes last: work queued there earlier could hold the host up.
    """
    copies: dict[int, list[Any]] = {}
    kept = []  # outputs live until all streams are done, so that none is given another's memory
    for index in reversed(range(len(streams))):
        inputs = lanes[index].inputs
        with subject.endurance.on(streams[index]):
            subject.endurance.occupy()
            if buffers is not None:
                subject.arrays.refill(buffers[index], inputs)
                inputs = buffers[index]
            outputs = subject.outputs(inputs)
            copies[index] = subject.copies(outputs)
            kept.append(outputs)
    subject.device.synchronize()
    return copies


# --- threads ----------------------------------------------------------------------------------------------------------


def check_threads(subject: SoakSubject, calls: int = CALLS) -> SoakFinding:
    """Two threads with inputs and, if the device has them, a stream each: first calls at once, then many.

    If this is the case's first test, the first calls are the first of the process too: with an empty cache both
    compile at the same time.
    """
    if subject.device.info.kind == "cpu":
        inputs = subject.inputs()
        if subject.endurance.interprets(lambda: subject.outputs(inputs)):
            return subject.skip(THREADS, "soak_interpreter_threads")
    given = [subject.inputs(number) for number in range(2)]
    numbers: dict[str, Fact] = {"threads": len(given), "calls": calls}
    first: list[list[Any]] = [[] for _ in given]

    def call_once(index: int) -> None:
        first[index] = subject.copies(subject.outputs(given[index]))

    raised = _run_threads(subject, call_once)
    lanes = [Lane(inputs, subject.copies(subject.outputs(inputs))) for inputs in given]  # raises what it raises alone
    if raised is not None:
        return subject.fail(THREADS, "soak_thread_raised", numbers, **subject.describe(raised))
    for got, lane in zip(first, lanes, strict=True):
        if found := subject.difference(got, lane.wanted):
            return subject.fail(THREADS, "soak_threads_first", {**numbers, **found})

    size = sum(subject.arrays.nbytes(each) for each in lanes[0].wanted)
    batch = max(1, min(BATCH, BATCH_BYTES // max(size, 1)))
    wrong: list[dict[str, Fact]] = []

    def call_often(index: int) -> None:
        for start in range(0, calls, batch):
            outputs = [subject.outputs(lanes[index].inputs) for _ in range(min(batch, calls - start))]
            for number, got in enumerate(outputs, start + 1):
                if found := subject.difference(got, lanes[index].wanted):
                    wrong.append({**found, "call": number})
                    return
            if index == 0:
                subject.tick(start, calls)

    raised = _run_threads(subject, call_often)
    if raised is not None:
        return subject.fail(THREADS, "soak_thread_raised", numbers, **subject.describe(raised))
    if wrong:
        return subject.fail(THREADS, "soak_threads", {**numbers, **wrong[0]})
    return subject.finding(THREADS, Status.PASS, numbers)


def _run_threads(subject: SoakSubject, work: Callable[[int], None]) -> Exception | None:
    """Two threads that begin together, on a stream each. Returns what one of them raised.

    Raises it if memory ran out: two calls at once need more than one, which is no fault of the op.
    """
    gate = threading.Barrier(2)
    raised: list[Exception] = []
    subject.device.synchronize()

    def run(index: int) -> None:
        try:
            with subject.endurance.on(subject.endurance.stream()):
                gate.wait()
                work(index)
        except threading.BrokenBarrierError:  # the other one could not even begin
            pass
        except Exception as error:
            raised.append(error)
            gate.abort()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        both = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(2)]
        for each in both:
            each.start()
        for each in both:
            each.join()
    finally:
        sys.setswitchinterval(interval)
    if raised and subject.device.out_of_memory(raised[0]):
        raise raised[0]
    subject.device.synchronize()
    return raised[0] if raised else None
