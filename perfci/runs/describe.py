"""What there is to do: the ops' cases, the device, and the plan that is fixed before anything is measured."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import UNTIMED, Device, Fact, PlannedOp, Reason, UsedBoard
from perfci.core.settings import ALL, ONE, Settings
from perfci.ops.discover import OpFolder, check_contract, check_files, ops, select
from perfci.runs.bench import Bench, WorkerPlace, call_both, make_environment, name_devices
from perfci.runs.plan import Request, draw_seed
from perfci.worker.parent import Running, run_worker, side_by_side, working
from perfci.worker.protocol import Doing, Job, Message, OpFiles, Ready


@dataclass(frozen=True)
class Described:
    """What the describing worker found."""

    device: Device
    ops: tuple[PlannedOp, ...]
    devices: int = 1
    """of this kind on the host"""
    visible: int = 1
    """of any model"""


def describe_ops(bench: Bench, request: Request) -> Described:
    """Discover the ops of the project under test, and import them once."""
    return describe_folders(bench, request, select(bench.settings, request.ops), bench.settings)


def describe_folders(
    bench: Bench, request: Request, folders: Sequence[OpFolder], settings: Settings, python: str | None = None
) -> Described:
    """Import ops of a project: the one under test, or the base revision's, in whichever interpreter."""
    broken = {op.op: reason for op in folders if (reason := find_violation(op))}
    sound = [op for op in folders if op.op not in broken]
    found = _described(bench, request, sound, settings, python)
    failed = [PlannedOp(op, failure=reason) for op, reason in broken.items()]
    known = {op.op for op in ops(settings)} if any(op.renamed_from for op in found.ops) else set[str]()
    described = []
    for op in found.ops:
        if op.renamed_from in known:
            # An op that claims the name of another that is still there breaks the contract: neither owns the history.
            facts: dict[str, Fact] = {"op": op.op, "file": f"{op.op}_performance.py", "old": op.renamed_from}
            described.append(PlannedOp(op.op, failure=Reason("renamed_from_present", facts)))
        else:
            described.append(op)
    return dataclasses.replace(found, ops=tuple(sorted([*described, *failed], key=lambda op: op.op)))


def find_violation(op: OpFolder) -> Reason | None:
    """The first thing that is wrong with an op's files, without importing them."""
    missing = check_files(op)
    return missing or next(iter(check_contract(op)), None)


def make_describe_job(settings: Settings, request: Request, waiting: Sequence[OpFolder]) -> Job:
    """The job of importing ops."""
    return Job(
        task="describe",
        ops=tuple(OpFiles(op.op, str(op.folder)) for op in waiting),
        shared_folder=str(settings.kernels),
        device=request.device,
        seed=request.seed or draw_seed(),
        suites=request.suites,
        pattern=request.pattern,
        root=str(settings.root),
        fake=settings.fake,
    )


def list_op_files(settings: Settings) -> Mapping[str, OpFiles]:
    """Where each op of a project lives."""
    return {op.op: OpFiles(op.op, str(op.folder)) for op in ops(settings)}


def _described(
    bench: Bench, request: Request, sound: Sequence[OpFolder], settings: Settings, python: str | None
) -> Described:
    """Import all sound ops in one worker. One that kills it is named, and the rest are imported by another."""
    home = bench.home or bench.settings.root
    head_root = None if settings.root == home else str(home)
    ready: Ready | None = None
    planned: list[PlannedOp] = []
    waiting = list(sound)
    log = "describe" if settings.root == bench.settings.root else "describe-base"
    place = WorkerPlace(log, request.device, settings.root, python)
    while waiting or ready is None:
        heard: list[Message] = []
        job = dataclasses.replace(make_describe_job(settings, request, waiting), head_root=head_root)
        failure = run_worker(job, make_environment(bench, place), call_both(heard.append, bench.listener))
        ready = next((m for m in heard if isinstance(m, Ready)), ready)
        asked = {op.op for op in waiting}
        # What an op writes into the pipe itself may name anything; each op that was asked for is described once.
        told = {m.op: m for m in heard if isinstance(m, PlannedOp) and m.op in asked}
        if ready is None:
            raise _as_error(failure)
        if failure is not None:
            last = next((m.op for m in reversed(heard) if isinstance(m, Doing) and m.op in asked), waiting[0].op)
            told[last] = PlannedOp(last, failure=failure)
        planned += told.values()
        done = {op.op for op in planned}
        waiting = [op for op in waiting if op.op not in done]
    return Described(ready.device, tuple(planned), ready.devices, max(ready.visible, ready.devices))


# --- several devices --------------------------------------------------------------------------------------------------


def open_boards(bench: Bench, request: Request, found: Described) -> tuple[UsedBoard, ...]:
    """The devices that --devices, or the project, wants side by side. None if there is no choice to make.

    Each is opened once, by a worker that sees nothing else. Raises UsageError for an index that no device has, for one
    device twice and for devices of several models; and what a worker said of a device that it could not open.
    """
    wanted, kind = request.devices or bench.settings.devices, found.device.kind
    if wanted == ONE or kind in UNTIMED:
        return ()
    chosen = _choose(wanted, name_devices(os.environ, kind, found.visible))
    if len(chosen) < 2 and wanted == ALL:
        return ()
    opened = _open_each(bench, dataclasses.replace(request, device=kind), chosen)
    (first, device), *others = opened.items()
    for name, other in others:
        if other.key != device.key:
            names = {"model": device.key, "other_model": other.key}
            raise UsageError("devices_unlike", first=first, other=name, **names)
    uuids = [each.uuid for each in opened.values() if each.uuid]
    if len({*uuids}) < len(uuids):
        raise UsageError("devices_twice", devices=", ".join(opened))
    return tuple(UsedBoard(name, device.uuid) for name, device in opened.items())


def _choose(wanted: str, known: Sequence[str]) -> list[str]:
    if wanted == ALL:
        return [*known]
    numbers = [int(each) for each in wanted.split(",")]
    missing = next((number for number in numbers if number >= len(known)), None)
    if missing is not None:
        raise UsageError("devices_missing", index=missing, devices=len(known), known=", ".join(known))
    if len({*numbers}) < len(numbers):
        raise UsageError("devices_twice", devices=wanted)
    return [known[number] for number in numbers]


def _open_each(bench: Bench, request: Request, chosen: Sequence[str]) -> Mapping[str, Device]:
    """What each device says of itself. All are asked at once."""
    devices: dict[str, Device] = {}
    job = make_describe_job(bench.settings, request, ())

    def asking(name: str) -> Iterator[Sequence[Running]]:
        heard: list[Message] = []
        place = WorkerPlace(f"device-{name}", request.device, board=name)
        failure = yield from working(job, make_environment(bench, place), heard.append)
        ready = next((message for message in heard if isinstance(message, Ready)), None)
        if ready is None:
            raise _as_error(failure)
        devices[name] = ready.device

    side_by_side([asking(name) for name in chosen])
    return {name: devices[name] for name in chosen}


def _as_error(failure: Reason | None) -> PerfciError:
    reason = failure or Reason("worker_silent")
    return PerfciError(reason.kind, **reason.facts)
