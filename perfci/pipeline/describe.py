"""What there is to do: the ops' cases, the device, and the plan that is fixed before anything is measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfci.discover import OpFolder, check_contract, check_files, ops, select
from perfci.errors import PerfciError
from perfci.model import Device, PlannedOp, Reason
from perfci.pipeline.bench import Bench, Place, both, surroundings
from perfci.plan import Request, draw_seed
from perfci.settings import Settings
from perfci.worker.parent import run_worker
from perfci.worker.protocol import Described, Job, Message, OpFiles, Ready, Step


@dataclass(frozen=True)
class Found:
    """What the describing worker found."""

    device: Device
    ops: tuple[PlannedOp, ...]
    devices: int = 1
    """of this kind on the host"""


def describe_ops(bench: Bench, request: Request) -> Found:
    """Discover the ops of the project under test, and import them once."""
    return describe_folders(bench, request, select(ops(bench.settings), request.ops), bench.settings)


def describe_folders(
    bench: Bench, request: Request, folders: Sequence[OpFolder], settings: Settings, python: str | None = None
) -> Found:
    """Import ops of a project: the one under test, or the base revision's, in whichever interpreter."""
    broken = {op.op: reason for op in folders if (reason := contract_violation(op))}
    sound = [op for op in folders if op.op not in broken]
    found = _described(bench, request, sound, settings, python)
    failed = [PlannedOp(op, failure=reason) for op, reason in broken.items()]
    return Found(found.device, tuple(sorted([*found.ops, *failed], key=lambda op: op.op)), found.devices)


def contract_violation(op: OpFolder) -> Reason | None:
    """The first thing that is wrong with an op's files, without importing them."""
    missing = check_files(op)
    return missing or next(iter(check_contract(op)), None)


def describing(settings: Settings, request: Request, waiting: Sequence[OpFolder]) -> Job:
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


def op_files(settings: Settings) -> Mapping[str, OpFiles]:
    """Where each op of a project lives."""
    return {op.op: OpFiles(op.op, str(op.folder)) for op in ops(settings)}


def _described(
    bench: Bench, request: Request, sound: Sequence[OpFolder], settings: Settings, python: str | None
) -> Found:
    """Import all sound ops in one worker; one that kills it is named, and the rest are imported by another."""
    head_root = None if settings.root == bench.settings.root else str(bench.settings.root)
    ready: Ready | None = None
    planned: list[PlannedOp] = []
    waiting = list(sound)
    place = Place(_log(bench, settings), request.device, settings.root, python)
    while waiting or ready is None:
        heard: list[Message] = []
        job = dataclasses.replace(describing(settings, request, waiting), head_root=head_root)
        failure = run_worker(job, surroundings(bench, place), both(heard.append, bench.listener))
        ready = next((m for m in heard if isinstance(m, Ready)), ready)
        planned += [m.planned for m in heard if isinstance(m, Described)]
        if ready is None:
            raise _as_error(failure)
        if failure is not None:
            last = next((m.op for m in reversed(heard) if isinstance(m, Step)), waiting[0].op)
            planned.append(PlannedOp(last, failure=failure))
        done = {op.op for op in planned}
        waiting = [op for op in waiting if op.op not in done]
    return Found(ready.device, tuple(planned), ready.devices)


def _log(bench: Bench, settings: Settings) -> str:
    return "describe" if settings.root == bench.settings.root else "describe-base"


def _as_error(failure: Reason | None) -> PerfciError:
    reason = failure or Reason("worker_silent")
    return PerfciError(reason.kind, **reason.facts)
