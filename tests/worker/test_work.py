"""One op on one device, in this process: its messages, and when two revisions cannot be separated."""

from pathlib import Path

import numpy as np
import pytest

from perfci.core.model import Measured, Suite
from perfci.device.fake import FakeDevice, FakeSpec, work
from perfci.device.source import inputs_digest
from perfci.measure.bench import BaseKernel, InseparableError
from perfci.ops.identity import DuelPlan
from perfci.ops.spec import Accuracy, Performance
from perfci.worker.load import LoadedOp
from perfci.worker.protocol import Doing, Finished, OpDone, Prepared, Timing
from perfci.worker.work import LoadedBase, Worker
from tests.worker.task_examples import make_task

CASES = [{"rows": 4}, {"rows": 8}]


def make_inputs(rows, device, seed):
    return {"x": np.random.default_rng(seed).normal(size=rows)}


def kernel(x):
    work(100.0)
    return x * 2


def base_kernel(x):
    work(101.0)
    return x * 2


def reference(x):
    work(150.0)
    return x * 2


class MessageChannel:
    def __init__(self):
        self.said = []

    def send(self, message):
        self.said.append(message)

    def stay_alive(self):
        """No one waits for a sign of life."""

    def ask(self, message):
        return '{"index": 0, "cases": []}'


def worker(mouth, device, opponent=None, **fields):
    task = make_task(ops=("twice",), seed=7, suites=(Suite.PERFORMANCE,), **fields)
    suites = [kind(kernel, reference, make_inputs, cases=CASES) for kind in (Accuracy, Performance)]
    return Worker(task, mouth, device, LoadedOp(*suites), LoadedBase(kernel=opponent))


def opponent(base=base_kernel, registered=None):
    if registered is None:  # other tests of this process may have brought some along
        registered = FakeDevice(FakeSpec(), 1).list_namespaces()
    return BaseKernel(
        base,
        Path("/base"),
        Path("/head"),
        inputs_digest(make_inputs),
        DuelPlan(("rows=4", "rows=8")),
        registered=registered,
    )


def test_an_op_is_timed_beside_its_base_and_every_case_is_told_from_beginning_to_end():
    mouth = MessageChannel()

    worker(mouth, FakeDevice(FakeSpec(), 1), opponent()).measure(right=True)

    kinds = [type(message) for message in mouth.said if isinstance(message, Prepared | Measured | Finished | OpDone)]
    assert kinds[:2] == [Prepared] * 2 and kinds[-3:] == [Finished, Finished, OpDone]
    assert set(kinds[2:-3]) == {Measured}
    assert [message for message in mouth.said if isinstance(message, Timing)] == [Timing("virtual")]


def test_operators_that_a_kernel_registers_when_it_is_called_make_the_revisions_inseparable():
    mouth, device = MessageChannel(), FakeDevice(FakeSpec(), 1)
    seen = {"aten"}
    device.list_namespaces = lambda: frozenset(seen)

    def registering(x):
        seen.add("mine")
        return base_kernel(x)

    with pytest.raises(InseparableError) as caught:
        worker(mouth, device, opponent(registering, registered=frozenset(seen))).measure(right=True)

    assert caught.value.reason.kind == "registers_operators"
    assert not any(isinstance(message, Measured) for message in mouth.said)


@pytest.mark.parametrize(
    ("fields", "measured"), [({}, True), ({"process": 1}, False), ({"arm": "base", "baton": 99}, False)]
)
def test_the_devices_limits_are_measured_once_a_run_and_never_by_the_base(fields, measured):
    mouth = MessageChannel()

    worker(mouth, FakeDevice(FakeSpec(), 1), **fields).measure(right=True)

    (done,) = (message for message in mouth.said if isinstance(message, OpDone))
    assert (done.limits.copy_gbps is not None) is measured


# --- when the time is up ----------------------------------------------------------------------------------------------


class Clock:
    """One second passes with every block that begins."""

    def __init__(self, monkeypatch, mouth):
        self._mouth = mouth
        monkeypatch.setattr("perfci.worker.work.time.time", self)

    def __call__(self):
        return float(sum(isinstance(line, Doing) and line.stage == "measure" for line in self._mouth.said))


def said(mouth, kind):
    return [message for message in mouth.said if isinstance(message, kind)]


def test_a_worker_without_time_says_that_it_is_late_and_does_nothing():
    mouth = MessageChannel()
    idle = worker(mouth, FakeDevice(FakeSpec(), 1), until_s=1.0)

    assert idle.verify()
    idle.measure(right=True)

    assert [(type(message), message.late) for message in mouth.said] == [(OpDone, True)]


def test_blocks_are_taken_case_by_case_until_the_time_is_up(monkeypatch):
    mouth = MessageChannel()
    Clock(monkeypatch, mouth)

    worker(mouth, FakeDevice(FakeSpec(), 1), until_s=5.0).measure(right=True)

    blocks = [(message.case, message.block.index) for message in said(mouth, Measured)]
    assert len(blocks) == 5 and sorted(index for _, index in blocks) == [0, 0, 1, 1, 2]
    assert [(message.short, message.case.failure) for message in said(mouth, Finished)] == [(True, None)] * 2
    assert mouth.said[-1].late


def test_whoever_takes_turns_is_ended_by_whoever_gives_them(monkeypatch):
    mouth = MessageChannel()
    turns = iter([f'{{"index": {index}, "cases": ["rows=4", "rows=8"]}}' for index in range(3)])
    monkeypatch.setattr(MessageChannel, "ask", lambda self, message: next(turns, '{"index": 3, "cases": []}'))
    monkeypatch.setattr("perfci.worker.work.time.time", lambda: 0.0 if not said(mouth, Prepared)[1:] else 9.0)

    worker(mouth, FakeDevice(FakeSpec(), 1), baton=99, until_s=5.0).measure(right=True)

    assert len(said(mouth, Measured)) == 6
