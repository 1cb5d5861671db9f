"""The whole of `perfci chain`: a worker a chain, and another where a case took the first with it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Device, Reason
from perfci.core.settings import Settings
from perfci.lab.chains.records import ChainCase, ChainFile, ChainResult, ListedChain, find_chains, select_chains
from perfci.runs.bench import Bench, Listener, Place, both, claimed, opened, surroundings
from perfci.runs.describe import describe_folders
from perfci.runs.plan import Request, draw_seed
from perfci.worker.parent import WorkerEnvironment, run_worker
from perfci.worker.protocol import ChainPlanned, Job, Message, OpFiles, Ready, Step

FOLDER = "chains"
"""In the reports folder: what the workers printed."""


@dataclass(frozen=True)
class ChainOptions:
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


def check_chains(settings: Settings, options: ChainOptions, listener: Listener) -> Chains:
    """Check chains stage by stage and as a whole. No results if the project has none and no name was given.

    Raises UsageError where there is no such chain or case, and what keeps a worker from opening the device.
    """
    seed = draw_seed() if options.seed is None else options.seed
    if options.name is None and not find_chains(settings.kernels):
        return Chains(None, seed, ())
    chosen = select_chains(settings.kernels, options.name)
    own = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    with claimed(own, listener) as bench:
        kind = options.device if options.device != "auto" else _found(bench)
        runs = [_Checking(bench, dataclasses.replace(options, device=kind, seed=seed), file) for file in chosen]
        results = tuple(run.result() for run in runs)
    if not any(result.cases or result.failure for result in results):
        names = ", ".join(file.name for file in chosen)
        raise UsageError("chain_no_case", chains=names, pattern=options.pattern)
    device = next((run.device for run in runs if run.device), None)
    if device is None and (failure := results[0].failure) and failure.kind in _NO_DEVICE:
        raise PerfciError(failure.kind, **failure.facts)
    return Chains(device, seed, results)


def list_chains(settings: Settings, pattern: str | None, device: str, listener: Listener) -> tuple[ListedChain, ...]:
    """What each chain of a project declares, by name; `device` is the kind that their files are imported for.

    Those of which no case fits the pattern are left out. Nothing is launched and no device is opened; a chain that
    kills its worker is named, and the rest are imported by another.
    """
    waiting, found = list(find_chains(settings.kernels)), dict[str, ListedChain]()
    with opened(settings, listener) as bench:
        around = surroundings(bench, Place("list-chains", device))
        while waiting:
            heard: list[Message] = []
            failure = run_worker(_listing(settings, pattern, device, waiting), around, both(heard.append, listener))
            asked = {file.name for file in waiting}
            # What a chain's file writes into the pipe itself may name anything.
            told = [m for m in heard if isinstance(m, ListedChain) and m.chain in asked]
            found |= {each.chain: each for each in told}
            if failure is not None:
                last = next((m.op for m in reversed(heard) if isinstance(m, Step) and m.op in asked), waiting[0].name)
                found[last] = ListedChain(last, failure=failure)
            waiting = [file for file in waiting if file.name not in found]
    return tuple(each for _, each in sorted(found.items()) if each.cases or each.failure)


def _listing(settings: Settings, pattern: str | None, device: str, waiting: Sequence[ChainFile]) -> Job:
    return Job(
        task="chains",
        ops=tuple(OpFiles(file.name, str(file.path.parent)) for file in waiting),
        shared_folder=str(settings.kernels),
        device=device,
        seed=0,
        pattern=pattern,
        root=str(settings.root),
        fake=settings.fake,
    )


_NO_DEVICE = frozenset({"device_gone", "torch_missing"})
"""Kinds of a worker's failures for which no chain is to blame."""


def _found(bench: Bench) -> str:
    """The kind of the device at hand."""
    return describe_folders(bench, Request(), (), bench.settings).device.kind


class _Checking:
    """One chain, from worker to worker."""

    def __init__(self, bench: Bench, options: ChainOptions, file: ChainFile) -> None:
        self._bench, self._wishes, self._file = bench, options, file
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

    def _around(self) -> WorkerEnvironment:
        return surroundings(self._bench, Place(f"chain-{self._file.name}", self._wishes.device))

    def _hear(self, message: Message) -> None:
        match message:
            case Ready(device):
                self.device = device
            case ChainPlanned(cases) if self._planned is None:
                self._planned = cases
            case ChainCase():
                self._done[message.case] = message
            case Step(_, op, case, done, total) if case is not None:
                self._step = message
                message = Step("chain", op, case, done, total)
        self._bench.listener(message)
