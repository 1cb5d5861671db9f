"""The whole of `perfci chain`: a worker a chain, and another where a case took the first with it."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

from perfci.chains import ChainCase, ChainFile, ChainResult, chain_files, select
from perfci.errors import PerfciError, UsageError
from perfci.model import Device, Reason
from perfci.pipeline.bench import Bench, Listener, Place, claimed, surroundings
from perfci.pipeline.describe import describe_folders
from perfci.plan import Request, draw_seed
from perfci.settings import Settings
from perfci.worker.parent import Surroundings, run_worker
from perfci.worker.protocol import ChainChecked, ChainPlanned, Job, Message, OpFiles, Ready, Step

FOLDER = "chains"
"""In the reports folder: what the workers printed."""


@dataclass(frozen=True)
class Wishes:
    """What is to be checked."""

    name: str | None = None
    """of one chain; None for all"""
    pattern: str | None = None
    device: str = "auto"
    seed: int | None = None
    """None draws a fresh one"""


@dataclass(frozen=True)
class Chains:
    """What came of it."""

    device: Device | None
    """None where no worker came so far as to open it"""
    seed: int
    results: tuple[ChainResult, ...]


def check_chains(settings: Settings, wishes: Wishes, listener: Listener) -> Chains:
    """Check chains stage by stage and as a whole.

    Raises UsageError where there is no such chain or case, and what keeps a worker from opening the device.
    """
    chosen = select(chain_files(settings.kernels), wishes.name)
    own = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    seed = draw_seed() if wishes.seed is None else wishes.seed
    with claimed(own, listener) as bench:
        kind = wishes.device if wishes.device != "auto" else _found(bench)
        runs = [_Checking(bench, dataclasses.replace(wishes, device=kind, seed=seed), file) for file in chosen]
        results = tuple(run.result() for run in runs)
    if not any(result.cases or result.failure for result in results):
        names = ", ".join(file.name for file in chosen)
        raise UsageError("chain_no_case", chains=names, pattern=wishes.pattern)
    device = next((run.device for run in runs if run.device), None)
    if device is None and (failure := results[0].failure) and failure.kind in _NO_DEVICE:
        raise PerfciError(failure.kind, **failure.facts)
    return Chains(device, seed, results)


_NO_DEVICE = frozenset({"device_gone", "torch_missing"})
"""Kinds of a worker's failures for which no chain is to blame."""


def _found(bench: Bench) -> str:
    """The kind of the device at hand."""
    return describe_folders(bench, Request(), (), bench.settings).device.kind


class _Checking:
    """One chain, from worker to worker."""

    def __init__(self, bench: Bench, wishes: Wishes, file: ChainFile) -> None:
        self._bench, self._wishes, self._file = bench, wishes, file
        self._planned: tuple[str, ...] | None = None
        self._done: dict[str, ChainCase] = {}
        self._step: Step | None = None
        self.device: Device | None = None

    def result(self) -> ChainResult:
        """Have workers check case after case until all are done, or one fails without any."""
        while True:
            before, self._step = len(self._done), None
            failure = run_worker(self._job(), self._around(), self._hear)
            left = self._left()
            at = self._step.case if self._step else None
            if failure and at is not None and at in left:
                self._done[at] = ChainCase(at, self._seed, failures=(failure,), raised=True)
            elif failure or self._planned is None or (left and len(self._done) == before):
                return ChainResult(self._file.name, self._cases(), failure or Reason("worker_silent"))
            if not self._left():
                return ChainResult(self._file.name, self._cases())

    @property
    def _seed(self) -> int:
        return self._wishes.seed or 0

    def _left(self) -> tuple[str, ...]:
        return tuple(case for case in self._planned or () if case not in self._done)

    def _cases(self) -> tuple[ChainCase, ...]:
        return tuple(self._done[case] for case in self._planned or () if case in self._done)

    def _job(self) -> Job:
        settings = self._bench.settings
        return Job(
            task="chain",
            ops=(OpFiles(self._file.name, str(self._file.path.parent)),),
            shared_folder=str(settings.kernels),
            device=self._wishes.device,
            seed=self._seed,
            pattern=self._wishes.pattern,
            cases=None if self._planned is None else self._left(),
            run_started=time.time(),
            lock_folder=str(settings.lock_folder) if settings.lock_folder else None,
            lock_wait_s=settings.lock_wait_s,
            root=str(settings.root),
            fake=settings.fake,
        )

    def _around(self) -> Surroundings:
        return surroundings(self._bench, Place(f"chain-{self._file.name}", self._wishes.device))

    def _hear(self, message: Message) -> None:
        match message:
            case Ready(device):
                self.device = device
            case ChainPlanned(cases) if self._planned is None:
                self._planned = cases
            case ChainChecked(case):
                self._done[case.case] = case
            case Step(_, op, case, done, total) if case is not None:
                self._step = message
                message = Step("chain", op, case, done, total)
        self._bench.listener(message)
