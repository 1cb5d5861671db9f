"""The whole of `perfci check --chain`: a worker a chain, and another one if a case took the first with it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Device, Reason
from perfci.core.settings import Settings
from perfci.lab.chains.records import ChainCase, ChainFile, ChainResult, ListedChain, find_chains, select_chains
from perfci.runs.bench import (
    Bench,
    Listener,
    WorkerPlace,
    call_both,
    claim_bench,
    make_environment,
    make_job,
    open_bench,
)
from perfci.runs.describe import describe_folders
from perfci.runs.plan import Request, draw_seed
from perfci.worker.parent import run_worker
from perfci.worker.protocol import ChainPlanned, Doing, Message, OpFiles, Ready

FOLDER = "chains"
"""In the reports folder: what the workers printed."""

_NO_DEVICE = frozenset({"device_gone", "torch_missing"})
"""Kinds of a worker's failures for which no chain is to blame."""


@dataclass(frozen=True)
class ChainOptions:
    """What is to be checked."""

    names: tuple[str, ...] = ()
    """of chains, empty for all"""
    pattern: str | None = None
    device: str = "auto"
    seed: int | None = None
    """None draws a fresh one"""


@dataclass(frozen=True)
class Chains:
    """The result."""

    device: Device | None
    """None if no worker came so far as to open it"""
    seed: int
    results: tuple[ChainResult, ...]


def check_chains(settings: Settings, options: ChainOptions, listener: Listener) -> Chains:
    """Checks chains stage by stage and as a whole. No results if the project has none and none was named.

    Raises UsageError if there is no such chain or case, and PerfciError if the device cannot be opened.
    """
    seed = draw_seed() if options.seed is None else options.seed
    if not options.names and not find_chains(settings.kernels):
        return Chains(None, seed, ())
    chosen = select_chains(settings.kernels, options.names)
    own = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    with claim_bench(own, listener) as bench:
        kind = options.device
        if kind == "auto":
            kind = describe_folders(bench, Request(), (), bench.settings).device.kind
        checks = [_ChainCheck(bench, file, kind, seed, options.pattern) for file in chosen]
        results = tuple(check.run() for check in checks)
    if not any(result.cases or result.failure for result in results):
        names = ", ".join(file.name for file in chosen)
        raise UsageError("chain_no_case", chains=names, pattern=options.pattern)
    device = next((check.device for check in checks if check.device), None)
    if device is None and (failure := results[0].failure) and failure.kind in _NO_DEVICE:
        raise PerfciError(failure.kind, **failure.facts)
    return Chains(device, seed, results)


class _ChainCheck:
    """One chain, from worker to worker."""

    def __init__(self, bench: Bench, file: ChainFile, kind: str, seed: int, pattern: str | None) -> None:
        self._bench, self._file, self._kind, self._seed, self._pattern = bench, file, kind, seed, pattern
        self._planned: tuple[str, ...] | None = None
        self._done: dict[str, ChainCase] = {}
        self._at: str | None = None
        self.device: Device | None = None

    def run(self) -> ChainResult:
        """Has workers check case after case until all are done, or until a worker ends without having done any."""
        name, folder, settings = self._file.name, self._file.path.parent, self._bench.settings
        around = make_environment(self._bench, WorkerPlace(f"chain-{name}", self._kind))
        failure: Reason | None = None
        while True:
            before, self._at = len(self._done), None
            cases = None if self._planned is None else self._list_left()
            job = make_job(settings, "chain", name, folder, self._kind, self._seed, pattern=self._pattern, cases=cases)
            failure = run_worker(job, around, self._hear)
            left = self._list_left()
            if failure and self._at in left:
                assert self._at is not None
                self._done[self._at] = ChainCase(self._at, self._seed, failures=(failure,), raised=True)
                failure = None
            elif failure or self._planned is None or (left and len(self._done) == before):
                failure = failure or Reason("worker_silent")
                break
            if not self._list_left():
                break
        return ChainResult(name, tuple(self._done[case] for case in self._planned or () if case in self._done), failure)

    def _list_left(self) -> tuple[str, ...]:
        return tuple(case for case in self._planned or () if case not in self._done)

    def _hear(self, message: Message) -> None:
        match message:
            case Ready(device):
                self.device = device
            case ChainPlanned(cases) if self._planned is None:
                self._planned = cases
            case ChainCase():
                self._done[message.case] = message
            case Doing(_, op, case, done, total) if case is not None:
                self._at = case
                message = Doing("chain", op, case, done, total)
        self._bench.listener(message)


def list_chains(settings: Settings, pattern: str | None, device: str, listener: Listener) -> tuple[ListedChain, ...]:
    """What each chain of a project declares, by name. `device` is the kind that their files are imported for.

    Chains of which no case fits the pattern are left out. Nothing is launched and no device is opened. A chain that
    kills its worker is named, and the others are imported by another worker.
    """
    waiting, found = list(find_chains(settings.kernels)), dict[str, ListedChain]()
    with open_bench(settings, listener) as bench:
        around = make_environment(bench, WorkerPlace("list-chains", device))
        while waiting:
            heard: list[Message] = []
            job = make_job(settings, "chains", "", settings.kernels, device, 0, pattern=pattern)
            job = dataclasses.replace(job, ops=tuple(OpFiles(file.name, str(file.path.parent)) for file in waiting))
            failure = run_worker(job, around, call_both(heard.append, listener))
            asked = {file.name for file in waiting}
            # A chain's file may write any name into the pipe itself.
            found |= {each.chain: each for each in heard if isinstance(each, ListedChain) and each.chain in asked}
            if failure is not None:
                last = next((m.op for m in reversed(heard) if isinstance(m, Doing) and m.op in asked), waiting[0].name)
                found[last] = ListedChain(last, failure=failure)
            waiting = [file for file in waiting if file.name not in found]
    return tuple(each for _, each in sorted(found.items()) if each.cases or each.failure)
