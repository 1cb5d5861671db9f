"""Kernels compiled without a device: a worker a target and revision; what was compiled before is taken from a cache."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import perfci
from perfci.core import environment
from perfci.core.codec import decode, encode
from perfci.core.model import PlannedBase, PlannedOp, Reason, Static, StaticOp
from perfci.core.settings import Settings
from perfci.device.targets import target_named
from perfci.ops import fingerprint
from perfci.ops.discover import OpFolder, ops, select
from perfci.ops.fingerprint.tree import Fingerprint, Tree
from perfci.ops.spec import matches
from perfci.runs.base import BaseTree
from perfci.runs.bench import Bench, Place, surroundings
from perfci.runs.describe import contract_violation
from perfci.runs.plan import Request
from perfci.worker.parent import WorkerEnvironment, run_worker
from perfci.worker.protocol import Job, Message, OpFiles

FORMAT = 1
"""Of cached files; they are made anew where it differs."""

COMPILERS = ("triton", "triton-ascend", "torch")
"""What decides what a kernel compiles to."""

MOST_WORKERS = 4


@dataclass(frozen=True, eq=False)  # keys of a table, each its own
class _Wanted:
    """One op of one revision for one target."""

    op: OpFolder
    print: Fingerprint
    target: str
    settings: Settings
    of_base: bool


def compile_ops(bench: Bench, request: Request, tree: BaseTree | None) -> tuple[Static, tuple[PlannedOp, ...]]:
    """Every op for every target, and where the base's files differ those too; with the ops as the judge knows them.

    Raises UsageError for a target that nobody knows.
    """
    targets = request.targets or bench.settings.targets
    for target in targets:
        target_named(target)
    head = select(bench.settings, request.ops)
    ours = _prints(head, bench.settings)
    base = [op for op in ops(tree.settings) if op.op in ours] if tree and tree.settings.kernels.is_dir() else []
    theirs = _prints(base, tree.settings) if tree else {}
    same = {op for op in ours if op in theirs and fingerprint.same(ours[op], theirs[op])}
    wanted = [_Wanted(op, ours[op.op], target, bench.settings, False) for target in targets for op in head]
    if tree:
        changed = [op for op in base if op.op not in same]
        wanted += [_Wanted(op, theirs[op.op], target, tree.settings, True) for target in targets for op in changed]
    found = _compiled(bench, wanted)
    mine = tuple(_fitting(found[one], request) for one in wanted if not one.of_base)
    static = Static(
        tuple(targets), toolchain(), mine, tuple(_fitting(found[one], request) for one in wanted if one.of_base)
    )
    return static, _planned(head, same, static, tree)


def toolchain() -> str:
    """What compiles: names and versions."""
    found = environment.installed(COMPILERS)
    return ", ".join(f"{name} {version}" for name, version in found.items()) or "nothing installed"


@functools.cache
def _own_code() -> str:
    """Digest of what captures and compiles: between two releases it changes without a new version."""
    files = sorted((Path(perfci.__file__).parent / "device").glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def cache_folder(settings: Settings) -> Path:
    """Where compiled figures are kept: the project's setting, else the user's folder of caches."""
    if settings.cache_folder:
        return settings.cache_folder
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "perfci"


def _prints(folders: Sequence[OpFolder], settings: Settings) -> Mapping[str, Fingerprint]:
    tree = Tree(settings.root, settings.kernels)
    return {op.op: tree.fingerprint(op.op) for op in folders}


def _planned(head: Sequence[OpFolder], same: set[str], static: Static, tree: BaseTree | None) -> tuple[PlannedOp, ...]:
    cases = {op.op: tuple(case.case for case in op.cases) for op in static.ops}
    based = {op.op for op in static.base_ops} | same
    lacking = tree.base.name if tree else None
    return tuple(
        PlannedOp(op.op, performance=cases.get(op.op, ()), base=_planned_base(op.op, same, based, lacking))
        for op in head
    )


def _planned_base(op: str, same: set[str], based: set[str], lacking: str | None) -> PlannedBase | None:
    if lacking is None:
        return None
    if op not in based:
        return PlannedBase(failure=Reason("base_lacks_op", {"op": op, "base": lacking}))
    return PlannedBase(same=op in same)


def _fitting(op: StaticOp, request: Request) -> StaticOp:
    cases = tuple(case for case in op.cases if matches(case.case, request.pattern))
    return dataclasses.replace(op, cases=cases)


# --- compiling, and not compiling twice -------------------------------------------------------------------------------


def _compiled(bench: Bench, wanted: Sequence[_Wanted]) -> Mapping[_Wanted, StaticOp]:
    found = {one: known for one in wanted if (known := _read(bench, one))}
    missing = [one for one in wanted if one not in found]
    for one, op in _compile(bench, missing):
        found[one] = op
        _write(bench, one, op)
    return found


def _compile(bench: Bench, missing: Sequence[_Wanted]) -> Iterator[tuple[_Wanted, StaticOp]]:
    """A worker for each target of each revision, two or more at a time."""
    broken = {one: reason for one in missing if (reason := contract_violation(one.op))}
    yield from ((one, StaticOp(one.op.op, one.target, failure=reason)) for one, reason in broken.items())
    groups: dict[tuple[str, bool], list[_Wanted]] = {}
    for one in missing:
        if one not in broken:
            groups.setdefault((one.target, one.of_base), []).append(one)
    answers: queue.Queue[list[tuple[_Wanted, StaticOp]] | BaseException] = queue.Queue()
    waiting = list(groups.values())
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                group = waiting.pop(0) if waiting else None
            if group is None:
                return
            try:
                answers.put(_compile_group(bench, group, lock))
            except BaseException as error:
                answers.put(error)

    for _ in range(min(len(groups), os.cpu_count() or 1, MOST_WORKERS)):
        threading.Thread(target=work, daemon=True).start()
    for _ in groups:
        answer = answers.get()
        if isinstance(answer, BaseException):
            raise answer
        yield from answer


def _compile_group(bench: Bench, group: Sequence[_Wanted], lock: threading.Lock) -> list[tuple[_Wanted, StaticOp]]:
    """One worker after the other: an op that kills its worker is named, the rest go on in another."""
    done: dict[_Wanted, StaticOp] = {}
    waiting = list(group)
    while waiting:
        heard = _locked(lock, bench.listener)
        compiled: list[StaticOp] = []
        failure = run_worker(_job(bench, waiting), _around(bench, waiting[0]), _keeping(compiled, heard))
        for op in compiled:
            done[next(one for one in waiting if one.op.op == op.op)] = op
        waiting = [one for one in waiting if one not in done]
        if waiting:
            reason = failure or Reason("worker_silent")
            done[waiting[0]] = StaticOp(waiting[0].op.op, waiting[0].target, failure=reason)
            waiting = waiting[1:]
    return list(done.items())


def _keeping(compiled: list[StaticOp], heard: Callable[[Message], None]) -> Callable[[Message], None]:
    def hear(message: Message) -> None:
        if isinstance(message, StaticOp):
            compiled.append(message)
        heard(message)

    return hear


def _locked(lock: threading.Lock, listener: Callable[[Message], None]) -> Callable[[Message], None]:
    def hear(message: Message) -> None:
        with lock:
            listener(message)

    return hear


def _job(bench: Bench, waiting: Sequence[_Wanted]) -> Job:
    first = waiting[0]
    return Job(
        task="static",
        ops=tuple(OpFiles(one.op.op, str(one.op.folder)) for one in waiting),
        shared_folder=str(first.settings.kernels),
        device="cuda",
        seed=0,
        root=str(first.settings.root),
        head_root=str(bench.settings.root) if first.of_base else None,
        target=first.target,
    )


def _around(bench: Bench, one: _Wanted) -> WorkerEnvironment:
    name = f"static-{one.target}{'-base' if one.of_base else ''}"
    around = surroundings(bench, Place(name, "offline", one.settings.root))
    # No device is touched, also where there is one.
    hidden = {"CUDA_VISIBLE_DEVICES": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return dataclasses.replace(around, environment={**around.environment, **hidden})


def _path(bench: Bench, one: _Wanted) -> Path | None:
    """A file named by everything that decides its content; None where that cannot be told."""
    if one.print.opaque:
        return None
    parts = (one.print.digest, one.target, toolchain(), perfci.__version__, _own_code(), str(FORMAT))
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache_folder(bench.settings) / "static" / f"{one.op.op}-{one.target}-{key}.json"


def _read(bench: Bench, one: _Wanted) -> StaticOp | None:
    path = _path(bench, one)
    try:
        return decode(path.read_bytes(), StaticOp) if path else None
    except (OSError, ValueError):  # not there, or of another shape: it is made anew
        return None


def _write(bench: Bench, one: _Wanted, op: StaticOp) -> None:
    """Keep what was compiled; a cache that cannot be written only costs time."""
    path = _path(bench, one)
    if path is None or op.failure:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_bytes(encode(op))
        fresh.replace(path)
    except OSError:
        return
