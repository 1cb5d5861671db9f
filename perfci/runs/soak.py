"""The whole of `perfci check --soak`: a worker an op, and another one if a call took the first with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Device, PlannedOp
from perfci.core.settings import Settings
from perfci.lab.soak.findings import DECAY_LIMIT, TESTS, SoakFinding, Status, name_test
from perfci.ops.discover import OpFolder, select
from perfci.runs.bench import Bench, Listener, WorkerPlace, claim_bench, make_environment, make_job
from perfci.runs.describe import describe_ops
from perfci.runs.plan import Request, draw_seed
from perfci.worker.parent import run_worker
from perfci.worker.protocol import Doing, Message, SoakFiles

FOLDER = "soak"
"""In the reports folder: what the workers printed, and the findings as JSON."""


@dataclass(frozen=True)
class SoakOptions:
    """What is to be soaked."""

    ops: tuple[str, ...] = ()
    pattern: str | None = None
    calls: int | None = None
    """of each test, None: as many as the device is good for"""
    limit: float = DECAY_LIMIT
    """ratio by which a call may become slower"""
    device: str = "auto"
    seed: int | None = None
    """None draws a fresh one"""
    timer: str = "auto"


@dataclass(frozen=True)
class Soak:
    """The result."""

    device: Device
    seed: int
    findings: tuple[SoakFinding, ...]
    """op by op, in the order in which they came"""

    @property
    def failed(self) -> bool:
        """Whether a test failed, or could not be made and the op is to blame."""
        return any(each.status in {Status.FAIL, Status.ERROR} for each in self.findings)


def soak_ops(
    settings: Settings, options: SoakOptions, listener: Listener, heard: Callable[[SoakFinding], None] = lambda _: None
) -> Soak:
    """Soaks ops, each in workers of its own. `heard` is called with each finding as it comes.

    Raises UsageError if there is no such op or case, PerfciError if the device cannot be opened.
    """
    own = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    seed = draw_seed() if options.seed is None else options.seed
    chosen = {op.op: op for op in select(settings, options.ops)}
    with claim_bench(own, listener) as bench:
        request = Request(
            ops=options.ops, pattern=options.pattern, device=options.device, seed=seed, timer=options.timer
        )
        described = describe_ops(bench, request)
        known = dataclasses.replace(options, device=described.device.kind, seed=seed)
        findings = [each for op in described.ops for each in _OpSoak(bench, known, chosen[op.op], op, heard).find()]
    if not any(each.case or each.status is Status.ERROR for each in findings):
        raise UsageError("soak_no_case", ops=", ".join(chosen), pattern=options.pattern or "*")
    return Soak(described.device, seed, tuple(findings))


class _OpSoak:
    """One op, from worker to worker."""

    def __init__(
        self, bench: Bench, options: SoakOptions, op: OpFolder, planned: PlannedOp, heard: Callable[[SoakFinding], None]
    ) -> None:
        self._bench, self._options, self._op, self._planned, self._heard = bench, options, op, planned, heard
        self._findings: list[SoakFinding] = []
        self._at: Doing | None = None

    def find(self) -> list[SoakFinding]:
        """Has workers test until one comes to its end, or until one fails that made no test."""
        failure, options, name = self._planned.failure, self._options, self._op.op
        around = make_environment(self._bench, WorkerPlace(f"soak-{name}", options.device))
        while failure is None:
            before, self._at = len(self._findings), None
            done = tuple(name_test(each.test, each.case) for each in self._findings)
            job = make_job(
                self._bench.settings, "soak", name, self._op.folder, options.device, options.seed or 0,
                pattern=options.pattern, timer=options.timer, soak=SoakFiles(options.calls, options.limit, done),
            )  # fmt: skip
            failure = run_worker(job, around, self._hear)
            if failure is None:
                return self._findings
            if failure.kind == "device_gone":
                raise PerfciError(failure.kind, **failure.facts)
            # The test that was under way died with its worker, unless the worker has reported it.
            at, known = self._at, {(each.test, each.case) for each in self._findings}
            if at and failure.kind != "soak_device_lost" and (at.stage, at.case) not in known:
                self._add(SoakFinding(name, at.stage, at.case, Status.ERROR, failure))
            if len(self._findings) > before:
                failure = None
        self._add(SoakFinding(name, "", None, Status.ERROR, failure))
        return self._findings

    def _hear(self, message: Message) -> None:
        match message:
            case Doing() if message.stage in TESTS:
                self._at = message
            case SoakFinding():
                self._add(message)
        self._bench.listener(message)

    def _add(self, finding: SoakFinding) -> None:
        self._findings.append(finding)
        self._heard(finding)
