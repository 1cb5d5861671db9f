"""Threads over kernels of numpy and of torch on the host, with planted faults."""

import contextlib
import dataclasses
import threading

import numpy as np
import pytest

from perfci.extensions.lab.soak.calls import CALLS, check_streams, check_threads
from perfci.extensions.lab.soak.verdicts import SoakMeasured, Status


def inputs(rows, device, seed):
    return {"x": np.random.default_rng(seed).normal(size=(rows, 64))}


def double(x):
    return x * 2.0


def test_a_kernel_without_state_passes(subject):
    threads = check_threads(subject(double, inputs))

    assert isinstance(threads, SoakMeasured)
    assert threads.numbers == {"threads": 2, "calls": CALLS}


def test_a_scratch_buffer_that_threads_share_is_found(subject):
    scratch, per_thread, both = np.empty((4, 64)), threading.local(), threading.Barrier(2)

    def sharing(x):
        per_thread.calls = getattr(per_thread, "calls", 0) + 1
        if threading.current_thread() is threading.main_thread():
            return x * 2.0
        np.copyto(scratch, x)
        if per_thread.calls == 30:
            _meet(both)  # both have written; what either reads now is the other's
        return scratch * 2.0 if per_thread.calls == 30 else x * 2.0

    threads = check_threads(subject(sharing, inputs))

    assert (threads.status, threads.reason.kind) == (Status.FAIL, "soak_threads")
    assert threads.reason.facts["call"] == 30


def test_a_table_that_two_first_calls_set_up_at_once_is_found(subject):
    table, both = {}, threading.Barrier(2)

    def filling(x):
        if threading.current_thread() is threading.main_thread():
            return x * 2.0
        if not table:
            table["factor"] = 0.0
            _meet(both)  # until the other one, too, has seen a table that is there, or none
            factor, table["factor"] = table["factor"], 2.0
            return x * factor
        _meet(both)
        return x * table["factor"]

    threads = check_threads(subject(filling, inputs))

    assert (threads.status, threads.reason.kind) == (Status.FAIL, "soak_threads_first")


def _meet(both):
    with contextlib.suppress(threading.BrokenBarrierError):
        both.wait(5)


def test_threads_of_an_op_that_is_not_deterministic_are_held_to_its_tolerance(subject):
    rng = np.random.default_rng(1)

    def loose(x):
        return x * (2.0 + 1e-9 * rng.random())

    assert isinstance(check_threads(subject(loose, inputs, deterministic=False)), SoakMeasured)
    assert check_threads(subject(loose, inputs)).reason.kind in {"soak_threads_first", "soak_threads"}


class Scheduled:
    """Streams as a device has them, on the host: work is queued, and done when the device is waited for.

    Between streams the work of the last one is done first, so anyone who works on another stream than the current one
    reads what its stream has not written yet.
    """

    def __init__(self, real):
        self._real, self.current, self._made = real, 0, 0
        self.queues = {0: []}

    def __getattr__(self, name):
        return getattr(self._real, name)

    def stream(self):
        self._made += 1
        self.queues[self._made] = []
        return self._made

    def on(self, stream):
        return _On(self, stream or 0)

    def queue(self, work, stream=None):
        self.queues[self.current if stream is None else stream].append(work)

    def drain(self):
        for stream in sorted(self.queues):  # the default one first: what was wrongly queued there comes too early
            for work in self.queues[stream]:
                work()
            self.queues[stream] = []


class _On:
    def __init__(self, streams, stream):
        self._streams, self._stream = streams, stream

    def __enter__(self):
        self._before, self._streams.current = self._streams.current, self._stream

    def __exit__(self, *_):
        self._streams.current = self._before


@pytest.fixture
def queued(subject, monkeypatch):
    """A subject with a kernel that is queued on a stream: the current one, or the one that `where` names."""

    def make(where=None):
        def kernel(x):
            out = np.full_like(x, np.nan)
            scheduled.queue(lambda: np.multiply(x, 2.0, out=out), where)
            return out

        made = subject(kernel, inputs)
        scheduled = Scheduled(made.endurance)
        arrays = made.arrays
        refill = arrays.refill

        def copied(values):
            results = {name: np.full_like(value, np.nan) for name, value in values.items()}
            for name, value in values.items():
                scheduled.queue(lambda name=name, value=value: np.copyto(results[name], value))
            return results

        monkeypatch.setattr(arrays, "refill", lambda old, new: scheduled.queue(lambda: refill(old, new)))
        monkeypatch.setattr(arrays, "copies", copied)
        monkeypatch.setattr(made.device, "synchronize", scheduled.drain)
        return dataclasses.replace(made, endurance=scheduled)

    return make


def test_calls_on_the_current_stream_pass(queued):
    streams = check_streams(queued())

    assert isinstance(streams, SoakMeasured), streams
    assert streams.numbers["late"] is True


def test_an_op_that_always_works_on_the_default_stream_is_found_by_inputs_that_come_late(queued):
    streams = check_streams(queued(where=0))

    assert (streams.status, streams.reason.kind) == (Status.FAIL, "soak_stream_side")
    assert streams.reason.facts["count"] == 4 * 64
