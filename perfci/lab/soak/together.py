"""Several calls at once: on streams beside the default one, and from two threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from perfci.core.model import Fact
from perfci.device.seam import leaves
from perfci.lab.soak.findings import STREAMS, THREADS, Finding, Status
from perfci.lab.soak.subject import Subject

ROUNDS = 6
"""How often the calls are made at once, each time with the inputs turned round."""

SIDES = 2
"""Streams beside the default one."""

CALLS = 50
"""Of each thread."""

BATCH, BATCH_BYTES = 5, 1 << 30
"""Calls of a thread before their outputs are looked at, and how many bytes of outputs may wait at most."""

_SWITCH_S = 1e-5
"""How soon Python turns to the other thread: as often as can be."""


@dataclass(frozen=True)
class Lane:
    """Inputs of its own, and what a call alone gives for them."""

    inputs: dict[str, Any]
    wanted: list[Any]


def _lanes(subject: Subject, count: int) -> list[Lane]:
    """Each called alone, one behind the other, on the default stream."""
    made = [subject.inputs(number) for number in range(count)]
    lanes = [Lane(inputs, subject.copies(subject.outputs(inputs))) for inputs in made]
    subject.device.synchronize()
    return lanes


# --- streams ----------------------------------------------------------------------------------------------------------


def streams(subject: Subject) -> Finding:
    """Calls at once on two side streams and on the default one, against the same calls alone.

    Where inputs can be overwritten they hold another call's values until, on the same stream and behind work that takes
    some 20 ms, their own are copied in: a call that works on any other stream reads the wrong ones. Its outputs are
    copied on the stream right behind it, so one that is not joined to the stream has not written them yet.
    """
    endurance = subject.endurance
    sides = [endurance.stream() for _ in range(SIDES)]
    if None in sides:
        return subject.skipped(STREAMS, "soak_no_streams")
    where = [None, *sides]
    lanes = _lanes(subject, len(where))
    buffers = [subject.inputs(number + len(where)) for number in range(len(where))]
    late = all(_takes(subject, buffer, lane.inputs) for buffer, lane in zip(buffers, lanes, strict=True))
    numbers: dict[str, Fact] = {"rounds": ROUNDS, "streams": len(where), "late": late}
    for turn in range(1, ROUNDS + 1):
        turned = [lanes[(index + turn) % len(lanes)] for index in range(len(lanes))]
        copies = _launched(subject, where, turned, buffers if late else None)
        for stream in range(len(where)):
            if found := subject.difference(copies[stream], turned[stream].wanted):
                return subject.failed(STREAMS, _stream_kind(stream), {**numbers, **found, "round": turn})
        subject.tick(turn, ROUNDS)
    return subject.finding(STREAMS, Status.PASS, numbers)


def _stream_kind(stream: int) -> str:
    return "soak_stream_side" if stream else "soak_stream_default"


def _takes(subject: Subject, buffer: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether a call's inputs can be overwritten with another's."""
    subject.arrays.refill(buffer, values)
    subject.device.synchronize()
    arrays = subject.arrays
    pairs = [(old, new) for old, new in zip(leaves(buffer), leaves(values), strict=False) if arrays.is_array(new)]
    return bool(pairs) and all(arrays.is_array(old) and arrays.same_bits(old, new) for old, new in pairs)


def _launched(
    subject: Subject,
    where: Sequence[object | None],
    lanes: Sequence[Lane],
    buffers: Sequence[dict[str, Any]] | None,
) -> list[list[Any]]:
    """One call on each stream, all under way at once; copies of their outputs, once the device has finished.

    The default stream comes last: work queued there before could hold the host up.
    """
    copies: dict[int, list[Any]] = {}
    kept = []  # outputs live until all streams are done, so that none is given another's memory
    for index in reversed(range(len(where))):
        inputs = lanes[index].inputs
        with subject.endurance.on(where[index]):
            subject.endurance.occupy()
            if buffers is not None:
                subject.arrays.refill(buffers[index], inputs)
                inputs = buffers[index]
            outputs = subject.outputs(inputs)
            copies[index] = subject.copies(outputs)
            kept.append(outputs)
    subject.device.synchronize()
    return [copies[index] for index in range(len(where))]


# --- threads ----------------------------------------------------------------------------------------------------------


def threads(subject: Subject, calls: int = CALLS) -> Finding:
    """Two threads with inputs and, where there are such, a stream each: first calls at once, then many.

    The first calls are the first of the process too where this is the case's first test: with an empty cache both
    compile at the same time.
    """
    if subject.device.info.kind == "cpu":
        inputs = subject.inputs()
        if subject.endurance.interprets(lambda: subject.outputs(inputs)):
            return subject.skipped(THREADS, "soak_interpreter_threads")
    given = [subject.inputs(number) for number in range(2)]
    numbers: dict[str, Fact] = {"threads": len(given), "calls": calls}
    first: list[list[Any]] = [[] for _ in given]

    def once(index: int) -> None:
        first[index] = subject.copies(subject.outputs(given[index]))

    with _switching():
        raised = _at_once(subject, once)
    lanes = [Lane(inputs, subject.copies(subject.outputs(inputs))) for inputs in given]  # raises what it raises alone
    if raised is not None:
        return subject.failed(THREADS, "soak_thread_raised", numbers, **subject.describe(raised))
    for got, lane in zip(first, lanes, strict=True):
        if found := subject.difference(got, lane.wanted):
            return subject.failed(THREADS, "soak_threads_first", {**numbers, **found})
    return _many(subject, lanes, calls, numbers)


def _many(subject: Subject, lanes: Sequence[Lane], calls: int, numbers: dict[str, Fact]) -> Finding:
    batch = _batch(subject, lanes[0])
    wrong: list[dict[str, Fact]] = []

    def repeatedly(index: int) -> None:
        for start in range(0, calls, batch):
            outputs = [subject.outputs(lanes[index].inputs) for _ in range(min(batch, calls - start))]
            for number, got in enumerate(outputs, start + 1):
                if found := subject.difference(got, lanes[index].wanted):
                    wrong.append({**found, "call": number})
                    return
            if index == 0:
                subject.tick(start, calls)

    with _switching():
        raised = _at_once(subject, repeatedly)
    if raised is not None:
        return subject.failed(THREADS, "soak_thread_raised", numbers, **subject.describe(raised))
    if wrong:
        return subject.failed(THREADS, "soak_threads", {**numbers, **wrong[0]})
    return subject.finding(THREADS, Status.PASS, numbers)


def _batch(subject: Subject, lane: Lane) -> int:
    size = sum(subject.arrays.nbytes(each) for each in lane.wanted)
    return max(1, min(BATCH, BATCH_BYTES // max(size, 1)))


def _at_once(subject: Subject, work: Callable[[int], None]) -> Exception | None:
    """Two threads that begin together, on a stream each; gives what one of them raised.

    Raises what says that memory ran out.
    """
    gate = threading.Barrier(2)
    raised: list[Exception] = []
    subject.device.synchronize()

    def thread(index: int) -> None:
        try:
            with subject.endurance.on(subject.endurance.stream()):
                gate.wait()
                work(index)
        except threading.BrokenBarrierError:  # the other one could not even begin
            pass
        except Exception as error:
            raised.append(error)
            gate.abort()

    both = [threading.Thread(target=thread, args=(index,), daemon=True) for index in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    if raised and subject.device.out_of_memory(raised[0]):
        raise raised[0]  # two calls at once need more than one; that is none of the op's faults
    subject.device.synchronize()
    return raised[0] if raised else None


@contextmanager
def _switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
