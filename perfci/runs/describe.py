"""The ops' cases and the device, before anything is measured."""

import dataclasses
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from perfci.core.cores import count_cores
from perfci.core.errors import PerfciError
from perfci.core.model import Device, Fact, PlannedOp, Reason
from perfci.core.settings import Settings
from perfci.ops.backends import explain_missing, name_of
from perfci.ops.discover import OpFolder, check_contract, check_files, find_moved, ops, select
from perfci.runs.bench import (
    Bench,
    WorkerPlace,
    call_both,
    explain_slow_start,
    list_files,
    make_environment,
    plan_opening,
    warm_up,
)
from perfci.runs.needed import place_needed
from perfci.runs.plan import Request, draw_seed
from perfci.worker.process import Running, side_by_side, working
from perfci.worker.protocol import Doing, Message, Noted, Ready
from perfci.worker.tasks import Describe

MOST_PARTS, FEWEST_OPS = 4, 6
"""Workers that import the ops of one source at most, and ops of each at least."""


@dataclass(frozen=True)
class Described:
    """The answer of the describing worker."""

    device: Device
    ops: tuple[PlannedOp, ...]
    devices: int = 1  # of this kind on the host
    visible: int = 1  # of any model
    uuids: tuple[str, ...] = ()  # of the visible ones, in their order


@dataclass(frozen=True, eq=False)
class OpSource:
    """Ops of a project, the one under test or the base revision's, to be imported in any interpreter."""

    settings: Settings
    folders: Sequence[OpFolder]
    python: str | None = None
    part: int = 0  # of a source that several workers import
    backend: str = ""  # of all of them, if the settings name an interpreter for it


def describe_ops(bench: Bench, request: Request) -> Described:
    """Discover the ops of the project under test, and import them once."""
    return describe_sources(bench, request, OpSource(bench.settings, select(bench.settings, request.ops)))[0]


def describe_sources(bench: Bench, request: Request, *sources: OpSource) -> list[Described]:
    """Import the ops of each source, all sources at once. If several fail as a whole, the first one's error counts."""
    results: dict[OpSource, Described | PerfciError] = {}
    parts = {source: _split(bench, source) for source in sources}
    warm_up(bench, request.device)

    def describe(source: OpSource) -> Iterator[Sequence[Running]]:
        try:
            results[source] = yield from _describe(bench, request, source)
        except PerfciError as error:
            results[source] = error

    side_by_side([describe(part) for split in parts.values() for part in split])
    if why := explain_slow_start():
        bench.listener(Noted(why))
    described = []
    for split in parts.values():
        told = [_take(results[part]) for part in split]
        every = sorted((op for part in told for op in part.ops), key=lambda op: op.op)
        described.append(dataclasses.replace(told[0], ops=tuple(every)))
    return described


def _split(bench: Bench, source: OpSource) -> list[OpSource]:
    """Returns parts of a source, one for each worker: to import an op takes a core 0.2 s.

    Those of backends with another interpreter come last.
    """
    by_backend: dict[str, list[OpFolder]] = {"": []}
    for op in source.folders:
        apart = not source.python and bench.find_python(op.backend)
        by_backend.setdefault(op.backend if apart else "", []).append(op)
    ours = by_backend.pop("")
    count = max(1, min(count_cores(), MOST_PARTS, len(ours) // FEWEST_OPS))
    parts = [dataclasses.replace(source, folders=ours[at::count], part=at) for at in range(count)]
    return [*parts, *(dataclasses.replace(source, folders=its, backend=name) for name, its in by_backend.items())]


def _take(result: Described | PerfciError) -> Described:
    if isinstance(result, PerfciError):
        raise result
    return result


def _describe(bench: Bench, request: Request, source: OpSource) -> Generator[Sequence[Running], None, Described]:
    broken = {op.op: reason for op in source.folders if (reason := find_violation(op))}
    if isinstance(other := bench.find_interpreter(source.backend, request.device), str):
        broken = {op.op: explain_interpreter(bench, op, other) for op in source.folders}
        source, other = dataclasses.replace(source, backend=""), None
    imported = yield from _import(bench, request, source, [op for op in source.folders if op.op not in broken])
    failed = [PlannedOp(op, failure=reason) for op, reason in broken.items()]
    names = {op.op for op in ops(source.settings)} if any(op.renamed_from for op in imported.ops) else set[str]()
    described = {op.op: op for op in imported.ops}
    kernels = {op.op: op.files[0] for op in source.folders}
    kind = None if request.elsewhere else imported.device.kind
    for op in imported.ops:
        if lacking := explain_missing(op.op, kernels[op.op], kind, op.failure, other):
            described[op.op] = PlannedOp(op.op, failure=lacking)
        if op.renamed_from in names:
            # An op that claims the name of another that is still there breaks the contract: neither owns the history.
            file = f"{name_of(op.op)}_performance.py"
            facts: dict[str, Fact] = {"op": op.op, "file": file, "old": op.renamed_from}
            described[op.op] = PlannedOp(op.op, failure=Reason("renamed_from_present", facts))
    moved = {op.op: find_moved(op, source.settings.root) for op in source.folders}
    every = (dataclasses.replace(op, outdated=moved[op.op]) for op in (*described.values(), *failed))
    return dataclasses.replace(imported, ops=tuple(sorted(every, key=lambda op: op.op)))


def explain_interpreter(bench: Bench, op: OpFolder, why: str) -> Reason:
    """Why an op cannot run here: the settings name an interpreter for its backend that cannot be used."""
    facts: dict[str, Fact] = {"op": op.op, "backend": op.backend, "python": bench.find_python(op.backend), "why": why}
    return Reason("backend_python_broken", facts)


def find_violation(op: OpFolder) -> Reason | None:
    """Returns the first thing that is wrong with an op's files, without importing them."""
    return check_files(op) or next(iter(check_contract(op)), None)


def _import(
    bench: Bench, request: Request, source: OpSource, sound: Sequence[OpFolder]
) -> Generator[Sequence[Running], None, Described]:
    """Import all sound ops in one worker. An op that kills it is named, and another worker imports the rest."""
    settings = source.settings
    ready: Ready | None = None
    planned: list[PlannedOp] = []
    waiting = list(sound)
    log = "describe" if settings.root == bench.settings.root else "describe-base"
    log += f"-{source.backend or source.part + 1}" if source.backend or source.part else ""
    while waiting or ready is None:
        heard: list[Message] = []
        task = Describe(
            place=place_needed(bench, settings, list_files(waiting)),
            opening=plan_opening(settings, request.device, request.seed or draw_seed()),
            suites=request.suites,
            pattern=request.pattern,
            elsewhere=request.elsewhere,
        )
        where = WorkerPlace(log, request.device, task.place.root, source.python, backend=source.backend)
        around = make_environment(bench, where)
        failure = yield from working(task, around, call_both(heard.append, bench.listener))
        ready = next((m for m in heard if isinstance(m, Ready)), ready)
        if ready is None:
            reason = failure or Reason("worker_silent")
            raise PerfciError(reason.kind, **reason.facts)
        answers = {m.op: m for m in heard if isinstance(m, PlannedOp)}
        if failure is not None:
            last = next((m.op for m in reversed(heard) if isinstance(m, Doing)), waiting[0].op)
            answers[last] = PlannedOp(last, failure=failure)
        planned += answers.values()
        waiting = [op for op in waiting if op.op not in answers]
    return Described(ready.device, tuple(planned), ready.devices, max(ready.visible, ready.devices), ready.uuids)
