"""The whole of `perfci soak`: a worker an op, and another where a call took the first with it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Device, PlannedOp, Reason
from perfci.core.settings import Settings
from perfci.lab.soak.findings import DECAY_LIMIT, TESTS, Finding, Status, name_test
from perfci.ops.discover import OpFolder, select
from perfci.runs.bench import Bench, Listener, Place, claimed, surroundings
from perfci.runs.describe import describe_ops
from perfci.runs.plan import Request, draw_seed
from perfci.worker.parent import WorkerEnvironment, run_worker
from perfci.worker.protocol import Job, Message, OpFiles, SoakFiles, Step

FOLDER = "soak"
"""In the reports folder: what the workers printed, and the findings as JSON."""

LOST = "soak_device_lost"
"""Kind of a worker's failure whose cause it has told."""

NO_DEVICE = "device_gone"


@dataclass(frozen=True)
class SoakOptions:
    """What is to be soaked."""

    ops: tuple[str, ...] = ()
    pattern: str | None = None
    calls: int | None = None
    """of each test; None: as many as the device is good for"""
    limit: float = DECAY_LIMIT
    """ratio by which a call may become slower"""
    device: str = "auto"
    seed: int | None = None
    """None draws a fresh one"""
    timer: str = "auto"


@dataclass(frozen=True)
class Soak:
    """What came of it."""

    device: Device
    seed: int
    findings: tuple[Finding, ...]
    """op by op, in the order in which they came"""

    @property
    def failed(self) -> bool:
        """Whether a test failed, or could not be made for the op's own fault."""
        return any(each.status in {Status.FAIL, Status.ERROR} for each in self.findings)


def soak_ops(
    settings: Settings, options: SoakOptions, listener: Listener, heard: Callable[[Finding], None] = lambda _: None
) -> Soak:
    """Soak ops, each in workers of its own; `heard` is told each finding as it comes.

    Raises UsageError where there is no such op or case, PerfciError where the device cannot be opened.
    """
    own = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    seed = draw_seed() if options.seed is None else options.seed
    chosen = {op.op: op for op in select(settings, options.ops)}
    with claimed(own, listener) as bench:
        request = Request(
            ops=options.ops, pattern=options.pattern, device=options.device, seed=seed, timer=options.timer
        )
        found = describe_ops(bench, request)
        known = dataclasses.replace(options, device=found.device.kind, seed=seed)
        runs = [_Soaking(bench, known, chosen[op.op], op, heard) for op in found.ops]
        findings = [finding for run in runs for finding in run.findings()]
    if not any(each.case or each.status is Status.ERROR for each in findings):
        raise UsageError("soak_no_case", ops=", ".join(chosen), pattern=options.pattern or "*")
    return Soak(found.device, seed, tuple(findings))


class _Soaking:
    """One op, from worker to worker."""

    def __init__(
        self, bench: Bench, options: SoakOptions, op: OpFolder, planned: PlannedOp, heard: Callable[[Finding], None]
    ) -> None:
        self._bench, self._wishes, self._op, self._planned, self._heard = bench, options, op, planned, heard
        self._findings: list[Finding] = []
        self._at: Step | None = None

    def findings(self) -> list[Finding]:
        """Have workers test until one comes to its end, or one fails that had got nowhere."""
        if self._planned.failure is not None:
            self._add(Finding(self._op.op, "", None, Status.ERROR, self._planned.failure))
            return self._findings
        while True:
            before, self._at = len(self._findings), None
            failure = run_worker(self._job(), self._around(), self._hear)
            if failure is None:
                return self._findings
            if failure.kind == NO_DEVICE:
                raise PerfciError(failure.kind, **failure.facts)
            self._blame(failure)
            if len(self._findings) == before:
                self._add(Finding(self._op.op, "", None, Status.ERROR, failure))
                return self._findings

    def _blame(self, failure: Reason) -> None:
        """The test that was under way died with its worker, unless it had been told."""
        at = self._at
        if at is not None and name_test(at.stage, at.case) not in self._done() and failure.kind != LOST:
            self._add(Finding(self._op.op, at.stage, at.case, Status.ERROR, failure))

    def _done(self) -> tuple[str, ...]:
        return tuple(name_test(each.test, each.case) for each in self._findings)

    def _job(self) -> Job:
        settings, options = self._bench.settings, self._wishes
        return Job(
            task="soak",
            ops=(OpFiles(self._op.op, str(self._op.folder)),),
            shared_folder=str(settings.kernels),
            device=options.device,
            seed=options.seed or 0,
            pattern=options.pattern,
            run_started=time.time(),
            timer=options.timer,
            lock_folder=str(settings.lock_folder) if settings.lock_folder else None,
            lock_wait_s=settings.lock_wait_s,
            root=str(settings.root),
            fake=settings.fake,
            soak=SoakFiles(options.calls, options.limit, self._done()),
        )

    def _around(self) -> WorkerEnvironment:
        return surroundings(self._bench, Place(f"soak-{self._op.op}", self._wishes.device))

    def _hear(self, message: Message) -> None:
        match message:
            case Step() if message.stage in TESTS:
                self._at = message
            case Finding():
                self._add(message)
        self._bench.listener(message)

    def _add(self, finding: Finding) -> None:
        self._findings.append(finding)
        self._heard(finding)
