"""The soak task: every test of every chosen case of one op, each finding said at once."""

from __future__ import annotations

import dataclasses
import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from perfci.core.errors import DeviceError, PerfciError
from perfci.core.model import Fact, Reason
from perfci.device.seam import Accelerator, not_interpreted
from perfci.lab.soak.findings import DECAY, DETERMINISM, LARGE, MEMORY, STREAMS, THREADS, Finding, Status, name_test
from perfci.lab.soak.huge import check_large, is_large
from perfci.lab.soak.repeated import check_decay, check_determinism, check_memory
from perfci.lab.soak.subject import Subject
from perfci.lab.soak.together import check_streams, check_threads
from perfci.measure.inputs import bound_inputs
from perfci.ops.spec import Accuracy, Params, Performance, case_id, matches
from perfci.worker.load import LoadedOp, describe_exception
from perfci.worker.protocol import Job, Message, OpDone, Step

CALLS, FEW_CALLS = 1000, 24
"""Of each test on an accelerator, and in Triton's interpreter, where a call may take seconds."""

SMALL_CASES = 2
"""Accuracy cases that a machine without an accelerator takes: the smallest."""

LEAST_ELEMENTS = 256
"""Of an input, for a case to be worth calling: with one element nothing is shared."""

ROOMY = (STREAMS, THREADS, LARGE)
"""Tests that hold several calls' arrays at once: a case that is too large for them is none of the op's faults."""

TICK_S = 1.0

Say = Callable[[Message], None]


def run(job: Job, say: Say, device: Accelerator, loaded: LoadedOp) -> None:
    """Make every test that is not settled yet; raises DeviceError where a kernel cost the process its device."""
    if device.absent is None:
        device.start_timer()
    soaker = _Soaker(job, say, device, loaded)
    soaker.say_what_cannot_be_tested()
    for params in soaker.cases():
        soaker.case(params)
    for params in soaker.large_cases():
        soaker.large(params)
    say(OpDone())


class _Soaker:
    """One op on one device."""

    def __init__(self, job: Job, say: Say, device: Accelerator, loaded: LoadedOp) -> None:
        self._job, self._say, self._device, self._loaded = job, say, device, loaded
        self._op = job.ops[0].op
        self._folder = Path(job.ops[0].folder)
        self._endurance = device.endurance()
        self._done = set(job.soak.done)
        self._host = device.info.kind == "cpu"
        self._calls = job.soak.calls or (FEW_CALLS if self._host else CALLS)
        self._untested = dict(self._whole_op())

    # --- which cases ----------------------------------------------------------------------------------------------

    def cases(self) -> list[Params]:
        """The performance cases that fit the pattern; without an accelerator the smallest accuracy cases."""
        if not self._host:
            return [each for each in self._loaded.performance.cases if matches(case_id(each), self._job.pattern)]
        return smallest(self._loaded.accuracy, self._device, self._job.pattern, self._job.seed)

    def large_cases(self) -> list[Params]:
        """Those that the accuracy suite names."""
        return [each for each in self._loaded.accuracy.large_cases if matches(case_id(each), self._job.pattern)]

    def _whole_op(self) -> Iterator[tuple[str, Reason]]:
        """Tests that none of the op's cases can have here, and why."""
        facts: dict[str, Fact] = {"op": self._op}
        if self._endurance.memory().allocated is None:
            yield MEMORY, Reason("soak_no_memory", facts)
        if self._device.absent is not None:
            yield DECAY, Reason("soak_not_timed", facts)
        if not self._loaded.accuracy.deterministic:
            yield DETERMINISM, Reason("soak_not_deterministic", facts)
        if self._endurance.stream() is None:
            yield STREAMS, Reason("soak_no_streams", facts)
        if self._host:
            yield LARGE, Reason("soak_large_host", facts)

    def say_what_cannot_be_tested(self) -> None:
        """Once for the op."""
        for test, reason in self._untested.items():
            wanted = test != LARGE or self._loaded.accuracy.large_cases
            if wanted and name_test(test, None) not in self._done:
                self._say(Finding(self._op, test, None, Status.SKIPPED, reason))

    # --- tests ----------------------------------------------------------------------------------------------------

    def case(self, params: Params) -> None:
        """Every test of one case, threads first: the first calls of all have to come at once."""
        suite = self._timed_suite()
        calls, limit = self._calls, self._job.soak.limit
        bodies: dict[str, Callable[[Subject], Finding]] = {
            THREADS: check_threads,
            MEMORY: lambda subject: check_memory(subject, calls),
            DECAY: lambda subject: check_decay(subject, calls, limit),
            DETERMINISM: lambda subject: check_determinism(subject, calls),
            STREAMS: check_streams,
        }
        for test, body in bodies.items():
            self._test(test, suite, params, body)
        if not self._host and self._huge(suite, params):
            self._test(LARGE, suite, params, lambda subject: check_large(subject, self._loaded.accuracy))

    def large(self, params: Params) -> None:
        """A case that is for this alone."""
        accuracy = self._loaded.accuracy
        self._test(LARGE, as_performance(accuracy, [params]), params, lambda each: check_large(each, accuracy))

    def _huge(self, suite: Performance, params: Params) -> bool:
        """Whether a performance case is beyond 2^31 elements; False where its inputs cannot be made."""
        try:
            inputs = bound_inputs(suite, params, self._device.arrays.device, self._job.seed)
        except Exception:  # said by the other tests
            return False
        return is_large(self._device.arrays, inputs)

    def _timed_suite(self) -> Performance:
        """With what the accuracy suite allows; without an accelerator the accuracy suite's own."""
        accuracy, performance = self._loaded.accuracy, self._loaded.performance
        if self._host:
            return as_performance(accuracy, accuracy.cases)
        return dataclasses.replace(
            performance,
            reduces=performance.reduces or accuracy.reduces,
            tolerance=performance.tolerance or accuracy.tolerance,
        )

    def _test(self, test: str, suite: Performance, params: Params, body: Callable[[Subject], Finding]) -> None:
        case = case_id(params)
        if test in self._untested or name_test(test, case) in self._done:
            return
        self._say(Step(test, self._op, case))
        subject = Subject(
            self._op, suite, params, self._device, self._endurance, self._job.seed,
            self._loaded.accuracy.deterministic, self._ticker(test, case), self._describe,
        )  # fmt: skip
        finding = self._made(subject, test, body)
        self._say(finding)
        if finding.status is Status.ERROR:
            self._check_device()
        del subject
        gc.collect()
        self._endurance.trim()

    def _made(self, subject: Subject, test: str, body: Callable[[Subject], Finding]) -> Finding:
        try:
            return body(subject)
        except PerfciError as error:
            return subject.finding(test, Status.ERROR, reason=error.reason)
        except Exception as error:
            if function := not_interpreted(error):
                lacking = Reason("interpreter_lacks", {"case": subject.case, "function": function})
                return subject.finding(test, Status.SKIPPED, reason=lacking)
            facts = {"case": subject.case, **self._describe(error)}
            full = self._device.out_of_memory(error)
        if full and test in ROOMY:
            return subject.finding(test, Status.SKIPPED, reason=Reason("soak_too_large", facts))
        return subject.finding(test, Status.ERROR, reason=Reason("out_of_memory" if full else "soak_raised", facts))

    def _check_device(self) -> None:
        """Raises DeviceError where the device answers this process no more, as after an illegal access."""
        try:
            self._device.synchronize()
        except Exception as error:
            raise DeviceError("soak_device_lost", op=self._op, error=type(error).__name__) from error

    def _ticker(self, test: str, case: str) -> Callable[[int, int], None]:
        said = time.monotonic()

        def tick(done: int, total: int) -> None:
            nonlocal said
            if time.monotonic() - said >= TICK_S:
                said = time.monotonic()
                self._say(Step(test, self._op, case, done, total))

        return tick

    def _describe(self, error: BaseException) -> dict[str, Fact]:
        return describe_exception(error, self._folder)


def as_performance(accuracy: Accuracy, cases: Sequence[Params]) -> Performance:
    """The accuracy suite in the form that calls take."""
    return Performance(
        accuracy.kernel, accuracy.reference, accuracy.make_inputs, cases,
        reduces=accuracy.reduces, tolerance=accuracy.tolerance,
    )  # fmt: skip


def smallest(accuracy: Accuracy, device: Accelerator, pattern: str | None, seed: int) -> list[Params]:
    """The smallest accuracy cases that are worth calling.

    Where all are too small the largest of them has to do.
    """
    fitting = [each for each in accuracy.cases if matches(case_id(each), pattern)]
    sized = sorted(((_largest(accuracy, each, device, seed), each) for each in fitting), key=lambda pair: pair[0])
    enough = [params for size, params in sized if size >= LEAST_ELEMENTS]
    return enough[:SMALL_CASES] or [params for size, params in sized[-1:] if size]


def _largest(accuracy: Accuracy, params: Params, device: Accelerator, seed: int) -> int:
    """Elements of the largest input; 0 where it cannot be made."""
    arrays = device.arrays
    try:
        inputs = bound_inputs(accuracy, params, arrays.device, seed)
    except Exception:  # perfci check says why
        return 0
    return max((math.prod(arrays.facts(each).shape) for each in inputs.values() if arrays.is_array(each)), default=0)
