"""The soak task: every test of every chosen case of one op. Each finding is sent at once."""

import functools
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from perfci.core.errors import DeviceError, PerfciError
from perfci.core.model import Fact, Reason
from perfci.device.seam import Accelerator
from perfci.extensions.lab.soak.calls import check_decay, check_determinism, check_memory, check_streams, check_threads
from perfci.extensions.lab.soak.huge import check_large, is_large
from perfci.extensions.lab.soak.subject import SoakSubject, open_endurance
from perfci.extensions.lab.soak.verdicts import (
    DECAY,
    DETERMINISM,
    LARGE,
    MEMORY,
    STREAMS,
    TESTS,
    THREADS,
    SoakFinding,
    SoakMeasured,
    Status,
    name_test,
)
from perfci.measure.inputs import bound_inputs
from perfci.ops.spec import Accuracy, Params, Performance, case_id
from perfci.worker.answers import Answers, Rule, Said, Subject
from perfci.worker.load import LoadedOp, choose_cases, describe_exception
from perfci.worker.opening import load_files, open_op
from perfci.worker.protocol import Doing, Message, MessageChannel, OpDone
from perfci.worker.tasks import DeviceTask

CALLS = 1000  # of each test

ROOMY = (STREAMS, THREADS, LARGE)
"""Tests that hold several calls' arrays at once: a case that is too large for them is not the op's fault."""

TICK_S = 1.0

Send = Callable[[Message], None]

Body = Callable[[SoakSubject], SoakFinding | SoakMeasured]


def _of_test(said: Said, message: SoakFinding | SoakMeasured) -> Subject:
    """A test of a case. Whether it has passed is not for the worker to decide."""
    has_passed = isinstance(message, SoakFinding) and message.status is Status.PASS
    is_asked = message.op == said.task.op and not has_passed
    return name_test(message.test, message.case) if is_asked and message.test in TESTS else None


@dataclass(frozen=True, kw_only=True)
class SoakOp(DeviceTask):
    """Call an op often, at once and on huge arrays."""

    performer = "perfci.extensions.lab.soak.task:run"
    answers: ClassVar[Answers] = {
        **DeviceTask.answers,
        SoakFinding: Rule(_of_test),
        SoakMeasured: Rule(_of_test),
        OpDone: Rule(),
    }
    last = (OpDone,)

    pattern: str | None = None
    calls: int | None = None  # of each test. None: as many as the device is good for
    done: tuple[str, ...] = ()  # tests of cases that are settled, named by `name_test`: a worker before this one died


def run(task: SoakOp, channel: MessageChannel) -> None:
    """Make every test that is not settled yet. Raises DeviceError if a kernel cost the process its device."""
    with open_op(task, channel, lambda _: load_files(task, task.place.ops[0])) as (device, loaded):
        device.start_timer()
        soaker = _Soaker(task, channel.send, device, loaded)
        accuracy, suite = loaded.accuracy, loaded.timed_suite()
        for params in choose_cases(suite.cases, task.pattern):
            soaker.soak(suite, params)
        for params in choose_cases(accuracy.large_cases, task.pattern):
            check = functools.partial(check_large, accuracy=accuracy)
            soaker.test(LARGE, as_performance(accuracy, [params]), params, check)
        channel.send(OpDone())


class _Soaker:
    """One op on one device."""

    def __init__(self, task: SoakOp, send: Send, device: Accelerator, loaded: LoadedOp) -> None:
        self._task, self._send, self._device, self._accuracy = task, send, device, loaded.accuracy
        self._op = task.op
        self._describe = functools.partial(describe_exception, folder=task.folder)
        self._endurance = open_endurance(device)
        # Tests that none of the op's cases can have here, and why.
        reasons = {
            MEMORY: "soak_no_memory" if self._endurance.memory().allocated is None else None,
            DETERMINISM: None if loaded.accuracy.deterministic else "soak_not_deterministic",
            STREAMS: "soak_no_streams" if self._endurance.stream() is None else None,
        }
        self._untested = {test: Reason(kind, {"op": self._op}) for test, kind in reasons.items() if kind}
        for test, reason in self._untested.items():
            if name_test(test, None) not in task.done:
                send(SoakFinding(self._op, test, None, Status.SKIPPED, reason))

    def soak(self, suite: Performance, params: Params) -> None:
        """Make every test of one case, threads first: the first calls of all have to come at once."""
        calls = self._task.calls or CALLS
        bodies: dict[str, Body] = {
            THREADS: check_threads,
            MEMORY: functools.partial(check_memory, calls=calls),
            DECAY: functools.partial(check_decay, calls=calls),
            DETERMINISM: functools.partial(check_determinism, calls=calls),
            STREAMS: check_streams,
        }
        for test, body in bodies.items():
            self.test(test, suite, params, body)
        arrays = self._device.arrays
        try:
            large = is_large(arrays, bound_inputs(suite, params, arrays.device, self._task.seed))
        except Exception:  # the other tests report it
            return
        if large:
            self.test(LARGE, suite, params, functools.partial(check_large, accuracy=self._accuracy))

    def test(self, test: str, suite: Performance, params: Params, body: Body) -> None:
        """Make one test of one case, unless it is settled."""
        case = case_id(params)
        if test in self._untested or name_test(test, case) in self._task.done:
            return
        self._send(Doing(test, self._op, case))
        ticked = time.monotonic()

        def tick(done: int, total: int) -> None:
            nonlocal ticked
            if time.monotonic() - ticked >= TICK_S:
                ticked = time.monotonic()
                self._send(Doing(test, self._op, case, done, total))

        subject = SoakSubject(
            self._op, suite, params, self._device, self._endurance, self._task.seed,
            self._accuracy.deterministic, tick, self._describe,
        )  # fmt: skip
        finding = self._find(subject, test, body)
        self._send(finding)
        if isinstance(finding, SoakFinding) and finding.status is Status.ERROR:
            try:
                self._device.synchronize()
            except Exception as error:  # the device answers this process no more, as after an illegal access
                raise DeviceError("soak_device_lost", op=self._op, error=type(error).__name__) from error
        del subject
        gc.collect()
        self._endurance.trim()

    def _find(self, subject: SoakSubject, test: str, body: Body) -> SoakFinding | SoakMeasured:
        status = Status.ERROR
        try:
            return body(subject)
        except PerfciError as error:
            reason = error.reason
        except Exception as error:
            facts: dict[str, Fact] = {"case": subject.case, **self._describe(error)}
            if not self._device.out_of_memory(error):
                reason = Reason("soak_raised", facts)
            elif test in ROOMY:
                status, reason = Status.SKIPPED, Reason("soak_too_large", facts)
            else:
                reason = Reason("out_of_memory", facts)
        return subject.finding(test, status, reason=reason)


def as_performance(accuracy: Accuracy, cases: Sequence[Params]) -> Performance:
    """Returns the accuracy suite in the form that calls take."""
    return Performance(
        accuracy.kernel, accuracy.reference, accuracy.make_inputs, cases,
        reduces=accuracy.reduces, tolerance=accuracy.tolerance,
    )  # fmt: skip
