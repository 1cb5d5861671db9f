"""The worker process: `python -m perfci.worker.child`, one job on standard input, messages on a pipe of its own.

It ends at once when its parent does: the parent's end of standard input is the lifeline.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from perfci import verify as accuracy_stage
from perfci.codec import decode
from perfci.device import Accelerator, detect, open_device
from perfci.device.lock import device_lock
from perfci.errors import PerfciError
from perfci.inputs import bound_inputs
from perfci.measure import Bench, Settings, Subject, bench, measure, prepare, suspicions
from perfci.model import AccuracyCase, Block, Fact, Limits, PlannedOp, Reason, Suite
from perfci.spec import Params, Performance, case_id, matches
from perfci.worker.load import LoadedOp, call_reason, describe_exception, load_op
from perfci.worker.protocol import (
    Checked,
    Described,
    Examined,
    Failed,
    Finished,
    Job,
    Measured,
    Message,
    OpDone,
    OpFiles,
    Prepared,
    Ready,
    Step,
    Waiting,
    pack,
)

_PARENT_GONE = 3


class Mouth:
    """Where messages go; nothing else in the process writes there."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, message: Message) -> None:
        """Send one message, whole."""
        data = pack(message)
        while data:
            data = data[os.write(self._descriptor, data) :]


def main() -> None:
    """Read the job, do it, say how it went."""
    line = sys.stdin.readline()
    job = decode(line, Job)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    mouth = Mouth(job.events_fd)
    try:
        _TASKS[job.task](job, mouth)
    except PerfciError as error:
        mouth.say(Failed(error.reason))


def _die_with_parent() -> None:
    sys.stdin.read()
    os._exit(_PARENT_GONE)


def _describe(job: Job, mouth: Mouth) -> None:
    """Say what device there is and which cases each op has; nothing is launched."""
    kind = detect() if job.device == "auto" else job.device
    mouth.say(Ready(open_device(kind, seed=job.seed, timer=job.timer, fake=job.fake).info))
    for files in job.ops:
        mouth.say(Step("import", files.op))
        mouth.say(Described(_planned(files, job)))


def _examine(job: Job, mouth: Mouth) -> None:
    """Say what the device is doing and which timer works on it."""
    device = open_device(detect() if job.device == "auto" else job.device, seed=job.seed, fake=job.fake)
    mouth.say(Ready(device.info))
    if device.absent is None:
        device.start_timer()
    mouth.say(Examined(device.state(), device.timer))


def _planned(files: OpFiles, job: Job) -> PlannedOp:
    try:
        loaded = _load(files, job)
    except PerfciError as error:
        return PlannedOp(files.op, failure=error.reason)
    names = {
        suite: tuple(
            case_id(params) for params in cases if suite in job.suites and matches(case_id(params), job.pattern)
        )
        for suite, cases in (
            (Suite.ACCURACY, loaded.accuracy.cases),
            (Suite.PERFORMANCE, loaded.performance.cases),
        )
    }
    return PlannedOp(files.op, names[Suite.ACCURACY], names[Suite.PERFORMANCE])


def _run(job: Job, mouth: Mouth) -> None:
    files = job.ops[0]
    device = open_device(job.device, seed=job.seed + 7919 * job.process, timer=job.timer, fake=job.fake)
    mouth.say(Step("import", files.op))
    # For imports that the op's functions make when they are called.
    sys.path[:0] = [files.folder, job.shared_folder]
    loaded = _load(files, job)
    with _lock(device, job, mouth):
        mouth.say(Ready(device.info))
        worker = _Worker(job, mouth, files, device, loaded)
        right = worker.verify() if Suite.ACCURACY in job.suites and not job.process else True
        worker.measure(right=right)


def _load(files: OpFiles, job: Job) -> LoadedOp:
    return load_op(files.op, Path(files.folder), Path(job.shared_folder))


@contextmanager
def _lock(device: Accelerator, job: Job, mouth: Mouth) -> Iterator[None]:
    if device.info.kind in {"cpu", "fake"}:
        yield
        return
    with device_lock(device.info.uuid or device.info.key, job.lock_folder, lambda holder: mouth.say(Waiting(holder))):
        yield


class _Worker:
    """One op on one device."""

    def __init__(self, job: Job, mouth: Mouth, files: OpFiles, device: Accelerator, loaded: LoadedOp) -> None:
        self._job = job
        self._mouth = mouth
        self._op = files.op
        self._folder = Path(files.folder)
        self._device = device
        self._loaded = loaded
        self._verify_s: float | None = None

    def verify(self) -> bool:
        """Run the accuracy suite; gives whether everything was right."""
        began = time.monotonic()
        suite, right = self._loaded.accuracy, True
        planned = list(accuracy_stage.checks(suite, self._job.seed, self._job.pattern))
        for done, check in enumerate(planned):
            self._mouth.say(Step("accuracy", self._op, check.case, done, len(planned)))
            right &= self._say(accuracy_stage.verify(suite, self._device, check, self._describe))
        if self._job.pattern is None:
            for result in accuracy_stage.verify_rejections(suite, self._device, self._describe):
                right &= self._say(result)
            if right and (leak := accuracy_stage.verify_memory(suite, self._device, self._job.seed)):
                right &= self._say(leak)
        self._verify_s = time.monotonic() - began
        return right

    def measure(self, *, right: bool) -> None:
        """Time the performance cases; only of a kernel that is right, and only on an accelerator."""
        suite = self._loaded.performance
        accurate = self._loaded.accuracy
        # What the accuracy suite allows holds for timed outputs too.
        suite = dataclasses.replace(
            suite, reduces=suite.reduces or accurate.reduces, tolerance=suite.tolerance or accurate.tolerance
        )
        chosen = [params for params in suite.cases if self._chosen(case_id(params))]
        if Suite.PERFORMANCE not in self._job.suites or not chosen or not right:
            self._mouth.say(OpDone(verify_s=self._verify_s, tuned=self._tuned()))
            return
        if self._device.absent:
            failure = self._smoke(suite)
            self._mouth.say(OpDone(self._device.absent, verify_s=self._verify_s, tuned=self._tuned()))
            if failure:
                self._mouth.say(Failed(failure))
            return
        self._time(suite, chosen)

    def _time(self, suite: Performance, chosen: list[Params]) -> None:
        self._mouth.say(Step("prepare", self._op, "the timer"))
        self._device.start_timer()
        self._mouth.say(Ready(self._device.info, self._device.timer))
        settings = Settings(self._job.seed, self._job.process, self._job.budget_s, self._job.run_started)
        limits = self._limits(suite, chosen)
        on = bench(suite, self._device, settings, self._describe, self._step)
        subjects = [self._prepare(on, params) for params in chosen]
        began = time.monotonic()
        busy_s = measure(on, subjects, self._heard)
        seconds = time.monotonic() - began
        for subject in subjects:
            self._finish(subject, limits)
        share = busy_s / seconds if seconds and self._device.info.kind != "fake" else None
        self._mouth.say(OpDone(None, (), self._tuned(), self._verify_s, seconds, share, limits))

    def _prepare(self, on: Bench, params: Params) -> Subject:
        self._mouth.say(Step("prepare", self._op, case_id(params)))
        subject = prepare(on, params)
        self._mouth.say(Prepared(subject.facts))
        return subject

    def _step(self, case: str) -> None:
        self._mouth.say(Step("measure", self._op, case))

    def _heard(self, case: str, block: Block, launches_us: Mapping[str, tuple[float, ...]]) -> None:
        self._mouth.say(Measured(case, block, launches_us))

    def _finish(self, subject: Subject, limits: Limits) -> None:
        facts = subject.facts
        failure, raised = facts.failure or subject.failure, facts.raised or subject.raised
        whole = dataclasses.replace(facts, blocks=tuple(subject.blocks), failure=failure, raised=raised)
        found = suspicions(whole, self._device, limits.copy_gbps)
        self._mouth.say(Finished(dataclasses.replace(whole, blocks=(), suspicion=found)))

    def _limits(self, suite: Performance, chosen: list[Params]) -> Limits:
        """Ceilings of this device; a first look measures them, a re-measurement does not need them."""
        if self._job.process:
            return Limits()
        self._mouth.say(Step("prepare", self._op, "the device's limits"))
        dtypes = sorted({str(params["dtype"]).removeprefix("torch.") for params in chosen if "dtype" in params})
        return self._device.limits(dtypes if suite.flops else [])

    def _smoke(self, suite: Performance) -> Reason | None:
        """Where nothing can be timed, show at least that the performance suite's functions run: one small launch."""
        keys = set(suite.cases[0])
        small = next((params for params in self._loaded.accuracy.cases if set(params) == keys), suite.cases[0])
        self._mouth.say(Step("smoke", self._op, case_id(small)))
        try:
            for function in (suite.bytes_moved, suite.flops):
                if function is not None:
                    for params in suite.cases:
                        function(**params)
            if small is not suite.cases[0]:
                suite.kernel(**bound_inputs(suite, small, self._device.arrays.device, self._job.seed))
        except Exception as error:
            return call_reason("performance_suite_raised", error, self._folder, case=case_id(small))
        return None

    def _chosen(self, case: str) -> bool:
        return case in self._job.cases if self._job.cases is not None else matches(case, self._job.pattern)

    def _say(self, result: AccuracyCase) -> bool:
        self._mouth.say(Checked(result))
        return result.failure is None

    def _describe(self, error: BaseException) -> dict[str, Fact]:
        return describe_exception(error, self._folder)

    def _tuned(self) -> str | None:
        """Digest of the op's tuned file for this device."""
        path = self._folder / "tuned" / f"{self._device.info.key}.json"
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else None


_TASKS = {"describe": _describe, "measure": _run, "examine": _examine}


if __name__ == "__main__":
    main()
