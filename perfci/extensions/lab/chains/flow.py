"""`perfci chain`: a worker for each chain, and another one if a case took the first with it."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Device, Reason
from perfci.core.settings import Settings
from perfci.extensions.lab.chains.records import (
    ChainCase,
    ChainMeasured,
    ChainResult,
    conclude,
    find_chains,
    select_chains,
)
from perfci.extensions.lab.chains.task import ChainPlanned, CheckChain
from perfci.runs.bench import Bench, Listener, WorkerPlace, claim_bench, make_environment, place_ops, plan_opening
from perfci.runs.describe import OpSource, describe_sources
from perfci.runs.plan import Request, draw_seed
from perfci.worker.process import run_worker
from perfci.worker.protocol import Doing, Message, Ready
from perfci.worker.tasks import OpFiles

FOLDER = "chains"  # in the reports folder: what the workers printed

_NO_DEVICE = frozenset({"device_gone", "torch_missing"})  # kinds of a worker's failures that are no chain's fault


@dataclass(frozen=True)
class Chains:
    """The result."""

    device: Device | None  # None if no worker came so far as to open it
    seed: int
    results: tuple[ChainResult, ...]


def check_chains(settings: Settings, request: Request, listener: Listener) -> Chains:
    """Checks chains stage by stage and as a whole. No results if the project has none and none was named.

    request: its ops are names of chains. Raises UsageError for an unknown one, PerfciError if the device does not open.
    """
    seed = draw_seed() if request.seed is None else request.seed
    if not request.ops and not find_chains(settings.kernels):
        return Chains(None, seed, ())
    chosen = select_chains(settings.kernels, request.ops)
    kept = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    devices: list[Device] = []

    def listen(message: Message) -> None:
        if isinstance(message, Ready):
            devices.append(message.device)
        listener(message)

    with claim_bench(kept, listen) as bench:
        kind = request.device
        if kind == "auto":
            kind = describe_sources(bench, Request(), OpSource(bench.settings, ()))[0].device.kind
            devices.clear()
        settled = dataclasses.replace(request, device=kind, seed=seed)
        results = tuple(_check_chain(bench, name, path, settled) for name, path in chosen.items())
    if not any(result.cases or result.failure for result in results):
        raise UsageError("no_case_fits", ops=", ".join(chosen), pattern=request.pattern)
    if not devices and (failure := results[0].failure) and failure.kind in _NO_DEVICE:
        raise PerfciError(failure.kind, **failure.facts)
    return Chains(devices[0] if devices else None, seed, results)


def _check_chain(bench: Bench, name: str, path: Path, request: Request) -> ChainResult:
    """Has workers check case after case until all are done, or until a worker ends without having done any."""
    planned: ChainPlanned | None = None
    done: dict[str, ChainCase] = {}
    at: str | None = None

    def hear(message: Message) -> None:
        nonlocal planned, at
        match message:
            case ChainPlanned() if planned is None:
                planned = message
            case ChainMeasured() if planned and message.case in planned.cases:
                where = {"chain": name, "case": message.case}
                done[message.case] = conclude(message, planned.tolerance, where)
            case Doing(_, op, case, number, total) if case is not None:
                at, message = case, Doing("chain", op, case, number, total)
        bench.listener(message)

    seed, around = request.seed or 0, make_environment(bench, WorkerPlace(f"chain-{name}", request.device))
    place = place_ops(bench.settings, (OpFiles(name, path.parent),))
    opening = plan_opening(bench.settings, request.device, seed)
    left: tuple[str, ...] | None = None
    failure: Reason | None = None
    while failure is None and (left is None or left):
        before, at = len(done), None
        task = CheckChain(place=place, opening=opening, pattern=request.pattern, cases=left)
        failure = run_worker(task, around, hear)
        left = tuple(case for case in planned.cases if case not in done) if planned else ()
        if failure and at is not None and at in left:
            done[at] = ChainCase(at, seed, failures=(failure,), raised=True)
            failure, left = None, tuple(case for case in left if case != at)
        elif failure is None and (planned is None or (left and len(done) == before)):
            failure = Reason("worker_silent")
    return ChainResult(name, tuple(done[case] for case in (planned.cases if planned else ()) if case in done), failure)
