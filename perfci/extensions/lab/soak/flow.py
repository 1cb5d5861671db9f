"""`perfci soak`: a worker for each op, and another one if a call took the first with it."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from perfci.core.errors import DeviceError, PerfciError, UsageError
from perfci.core.model import UNTIMED, Device, Fact, PlannedOp, Reason
from perfci.core.settings import Settings
from perfci.extensions.lab.soak.task import CALLS, SoakOp
from perfci.extensions.lab.soak.verdicts import (
    DECAY_LIMIT,
    LARGE,
    TESTS,
    SoakFinding,
    SoakMeasured,
    Status,
    conclude,
    name_test,
)
from perfci.ops.backends import backend_of, find_kernel
from perfci.ops.discover import select
from perfci.runs.bench import (
    Bench,
    Listener,
    WorkerPlace,
    claim_bench,
    list_files,
    make_environment,
    place_ops,
    plan_opening,
)
from perfci.runs.describe import describe_ops
from perfci.runs.plan import Request, draw_seed
from perfci.worker.process import run_worker
from perfci.worker.protocol import Doing, Message

FOLDER = "soak"  # in the reports folder: what the workers printed, and the findings as JSON


@dataclass(frozen=True)
class Soak:
    """The result."""

    device: Device
    seed: int
    findings: tuple[SoakFinding, ...]  # op by op, in the order in which they came

    @property
    def failed(self) -> bool:
        """Whether a test failed, or could not be made and the op is to blame."""
        return any(finding.status in {Status.FAIL, Status.ERROR} for finding in self.findings)


def soak_ops(
    settings: Settings, request: Request, listener: Listener, calls: int | None = None, limit: float = DECAY_LIMIT
) -> Soak:
    """Soaks ops, each in separate workers. calls: of each test. limit: the ratio by which a call may become slower.

    Raises UsageError if there is no such op or case, PerfciError if the device cannot be opened or times nothing.
    """
    moved = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    seed = draw_seed() if request.seed is None else request.seed
    request = dataclasses.replace(request, seed=seed)
    with claim_bench(moved, listener) as bench:
        described = describe_ops(bench, request)
        if described.device.kind in UNTIMED:
            raise DeviceError("soak_not_timed")
        opening = plan_opening(bench.settings, described.device.kind, seed, request.timer)

        def plan(op: PlannedOp) -> SoakOp:
            place = place_ops(bench.settings, list_files(select(bench.settings, (op.op,))))
            return SoakOp(place=place, opening=opening, pattern=request.pattern, calls=calls)

        findings = [finding for op in described.ops for finding in _soak_op(bench, op, plan(op), limit)]
    if not any(finding.case or finding.status is Status.ERROR for finding in findings):
        names = ", ".join(op.op for op in described.ops)
        raise UsageError("no_case_fits", ops=names, pattern=request.pattern or "*")
    return Soak(described.device, seed, tuple(findings))


def _soak_op(bench: Bench, op: PlannedOp, task: SoakOp, limit: float) -> list[SoakFinding]:
    """Has workers test one op until one comes to its end, or until one fails that made no test."""
    findings: list[SoakFinding] = []
    at: Doing | None = None

    def hear(message: Message) -> None:
        nonlocal at
        match message:
            case Doing() if message.stage in TESTS:
                at = message
            case SoakFinding() | SoakMeasured():
                findings.append(conclude(message, task.calls or CALLS, limit))
        bench.listener(message)

    backend = backend_of(find_kernel(op.op, task.folder))
    around = make_environment(bench, WorkerPlace(f"soak-{op.op}", task.opening.device, backend=backend))
    failure: Reason | None = op.failure
    while failure is None:
        before, at = len(findings), None
        done = tuple(name_test(finding.test, finding.case) for finding in findings)
        failure = run_worker(dataclasses.replace(task, done=done), around, hear)
        if failure is None:
            return [*findings, *_list_missing(op, findings)]
        if failure.kind == "device_gone":
            raise PerfciError(failure.kind, **failure.facts)
        # The test that was under way died with its worker, unless the worker has reported it.
        reported = {(finding.test, finding.case) for finding in findings}
        if at and failure.kind != "soak_device_lost" and (at.stage, at.case) not in reported:
            findings.append(SoakFinding(op.op, at.stage, at.case, Status.ERROR, failure))
        if len(findings) > before:
            failure = None
    return [*findings, SoakFinding(op.op, "", None, Status.ERROR, failure)]


def _list_missing(op: PlannedOp, findings: list[SoakFinding]) -> Iterator[SoakFinding]:
    """Tests of the op's cases of which its worker has reported nothing, although it has come to its end."""
    made = {name_test(finding.test, finding.case) for finding in findings}
    for case in op.performance:
        for test in (test for test in TESTS if test != LARGE):
            if made.isdisjoint({name_test(test, case), name_test(test, None)}):
                facts: dict[str, Fact] = {"op": op.op, "case": case, "test": test}
                yield SoakFinding(op.op, test, case, Status.ERROR, Reason("soak_unproven", facts))
