"""The worker process, `python -m perfci.worker.child`: a job on standard input, whose end also ends the process.

With a job's file as its argument it is on its own: nobody answers it.
"""

import importlib
import os
import queue
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from perfci.core.codec import decode
from perfci.core.errors import ContractError, DeviceError, PerfciError
from perfci.core.model import PerformanceCase, PlannedOp, Suite
from perfci.device import detect, open_device
from perfci.device.seam import Accelerator
from perfci.device.targets import find_triton_versions, release
from perfci.ops.spec import case_id, matches
from perfci.worker.apart import forget_others, is_of, settle, stray_import
from perfci.worker.handover import HostLostError, UnsharedError
from perfci.worker.load import LoadedOp, import_roots, list_signature, load_op, project_roots
from perfci.worker.protocol import (
    BASE,
    Apart,
    Doing,
    Examined,
    Failed,
    HostLost,
    Job,
    LockAsked,
    MessageChannel,
    OpFiles,
    Prepared,
    Ready,
    TurnAsked,
    Waiting,
)

_PARENT_GONE = 3


def main() -> None:
    """Read the job, do it, report the result."""
    job = decode(Path(sys.argv[1]).read_bytes() if sys.argv[1:] else sys.stdin.readline(), Job)
    if job.task == "measure":
        # Only this task needs it. Imported before a file of the project's could pass for a module.
        importlib.import_module("perfci.worker.work")
    # Ops find the project's modules, installed or not. By now perfci itself is imported.
    sys.path[:0] = dict.fromkeys([str(Path.cwd()), *project_roots(Path(job.root).absolute())])
    shun_stale_caches()
    shun_bytecode(
        [Path(root) for root in (job.root, job.shared_folder, job.head_root, job.base and job.base.root) if root]
    )
    answers: queue.Queue[str] = queue.Queue()

    def read_answers() -> None:
        """Pass on what the parent answers, and die with it."""
        for line in sys.stdin:
            answers.put(line)
        os._exit(_PARENT_GONE)

    if not sys.argv[1:]:
        threading.Thread(target=read_answers, daemon=True).start()
    channel = MessageChannel(job.events_fd, answers.get)
    if job.head_root:
        settle(Path(job.root), Path(job.head_root))
    try:
        _TASKS[job.task](job, channel)
    except PerfciError as error:
        channel.send(Failed(error.reason))


def shun_stale_caches() -> None:
    """Before 3.5 Triton's cache knows a kernel by its text alone: one with another global constant gets stale code."""
    if any(release(version) < (3, 5) for version in find_triton_versions()):
        os.environ["TRITON_ALWAYS_COMPILE"] = "1"


def shun_bytecode(roots: Sequence[Path]) -> None:
    """Have the files of these projects compiled anew: what lies in a `__pycache__` beside them may be other code."""
    external: Any = sys.modules["_frozen_importlib_external"]
    find = external.cache_from_source

    def cache_from_source(path: str, *arguments: Any, **options: Any) -> str:
        if any(is_of(path, root) for root in roots):
            raise NotImplementedError  # which importers take for a Python without such files
        return str(find(path, *arguments, **options))

    external.cache_from_source = cache_from_source


@contextmanager
def _open_op(
    job: Job, channel: MessageChannel, load: Callable[[Accelerator], Any]
) -> Iterator[tuple[Accelerator, Any]]:
    """Open the device, import the job's only op, and hold the device alone."""
    try:
        # The fake device's noise differs in every process of a run, of every op and of either side of a pair.
        seed = random.Random(f"{job.seed}/{job.process}/{job.ops[0].op}/{job.arm}").getrandbits(31)
        device = open_device(job.device, seed=seed, timer=job.timer, fake=job.fake)
    except (DeviceError, RuntimeError) as error:
        if job.arm == BASE:  # whose interpreter may be at fault
            raise
        # The plan was made for it: it is gone, for later ops too.
        raise DeviceError("device_gone", device=job.device, why=str(error).rstrip(".")) from error
    channel.send(Doing("import", job.ops[0].op))
    # For imports that the op's functions make when they are called.
    sys.path[:0] = import_roots(Path(job.ops[0].folder), Path(job.shared_folder))
    loaded = load(device)
    # Boards that are no hardware are shared unless the fake locks.
    shared = device.info.kind == "cpu" or (device.info.kind == "fake" and not job.fake.get("locked"))
    with ExitStack() as stack:
        if job.lock and not shared:
            from perfci.core.locks import device_lock

            name = device.info.uuid or device.info.key
            channel.ask(LockAsked(name))
            waiting = device_lock(name, job.lock_folder, lambda holder: channel.send(Waiting(holder)), job.lock_wait_s)
            stack.enter_context(waiting)
        channel.send(Ready(device.info))
        yield device, loaded


def _load(files: OpFiles, job: Job) -> LoadedOp:
    loaded = load_op(files.op, Path(files.folder), Path(job.shared_folder))
    if job.head_root and (stray := stray_import(Path(job.head_root))):
        raise ContractError("base_reaches_head", file=stray[1])
    return loaded


def _describe(job: Job, channel: MessageChannel) -> None:
    """Report the device and the cases of each op, with what they declare. Nothing is launched."""
    from perfci.measure.prepare import read_declarations

    kind = detect() if job.device == "auto" else job.device
    device = open_device(kind, seed=job.seed, timer=job.timer, fake=job.fake)
    channel.send(Ready(device.info, devices=device.count(), visible=device.visible(), uuids=device.uuids()))
    for files in job.ops:
        channel.send(Doing("import", files.op))
        # The op before may have modules of the same names.
        forget_others(Path(files.folder), Path(job.shared_folder))
        try:
            loaded = _load(files, job)
        except PerfciError as error:
            channel.send(PlannedOp(files.op, failure=error.reason))
            continue
        accuracy, performance = (
            tuple(case for case in map(case_id, suite.cases) if wanted in job.suites and matches(case, job.pattern))
            for wanted, suite in ((Suite.ACCURACY, loaded.accuracy), (Suite.PERFORMANCE, loaded.performance))
        )
        suite, stored = loaded.performance, tuple[str, ...]()
        for params in suite.cases:
            if case_id(params) in performance:
                with suppress(Exception):  # what an op cannot declare fails its case when that is prepared
                    channel.send(Prepared(read_declarations(suite, params, PerformanceCase(case_id(params)))))
        if loaded.accuracy.quantised is not None and Suite.ACCURACY in job.suites:
            from perfci.measure.lowprec.declared import list_stored_cases

            stored = list_stored_cases(loaded.accuracy, job.pattern)
        channel.send(
            PlannedOp(
                files.op,
                accuracy,
                performance,
                signature=list_signature(suite.kernel),
                cache=suite.cache,
                renamed=dict(suite.renamed),
                renamed_from=suite.renamed_from,
                stored=stored,
                peers=tuple(suite.peers),
            )
        )


def _examine(job: Job, channel: MessageChannel) -> None:
    """Report what the device is doing and which timer works on it."""
    device = open_device(detect() if job.device == "auto" else job.device, seed=job.seed, fake=job.fake)
    channel.send(Ready(device.info))
    if device.absent is None:
        device.start_timer()
    channel.send(Examined(device.state(), device.timer))


def _measure(job: Job, channel: MessageChannel) -> None:
    """Verify an op and time it, alone or beside the base revision."""
    from perfci.measure.bench import InseparableError, PeerLostError
    from perfci.worker.remote import connect
    from perfci.worker.work import NO_BASE, LoadedBase, Worker, load_base, own_base, spoil

    def load(device: Accelerator) -> tuple[LoadedOp, LoadedBase]:
        before = device.list_namespaces()
        loaded = _load(job.ops[0], job)
        if job.host:
            return loaded, NO_BASE
        if job.arm == BASE:
            # Head has the device, and prepares its cases alone.
            channel.ask(TurnAsked())
        return loaded, load_base(job, device, before)

    try:
        with _open_op(job, channel, load) as (device, (own, before)), ExitStack() as stack:
            loaded, base, remote = own, before, None
            if job.host:
                remote = stack.enter_context(connect(job.host, device, channel))
                remote.watch()
                remote.hear()  # it is ready
                kernel, loaded = own_base(job, device, own, remote), remote.judge(own)
                base = LoadedBase(own, judges=True, kernel=kernel)
            loaded = spoil(loaded, device) if job.spoiled else loaded
            worker = Worker(
                job, channel, device, loaded, base, remote,
                lambda host: stack.enter_context(connect(host, device, channel)),
            )  # fmt: skip
            right = worker.verify() if Suite.ACCURACY in job.suites and not job.process else True
            worker.measure(right=right)
    except (InseparableError, UnsharedError) as error:
        channel.send(Apart(error.reason))
    except HostLostError as error:
        # That process knows of no stage but its import. From then on it makes the calls of a stage here.
        reason = channel.locate(error.reason) if error.answering else error.reason
        channel.send(HostLost(reason))
        channel.send(Failed(reason))
    except PeerLostError as error:
        channel.send(Failed(error.reason))


def _serve(job: Job, channel: MessageChannel) -> None:
    """Make calls of an op for the process that judges it, which has the device."""
    from perfci.worker import serve

    with _open_op(job, channel, lambda _: _load(job.ops[0], job)) as (device, loaded):
        serve.run(job, channel, device, loaded)


def _tune(job: Job, channel: MessageChannel) -> None:
    """Search an op's configurations: on the device, or by the model for one that is not here."""
    if job.tune.spec is not None:
        from perfci.worker.tuning.modelled import run_modelled

        channel.send(Doing("import", job.ops[0].op))
        run_modelled(job, channel.send)
        return

    def load(device: Accelerator) -> LoadedOp:
        if device.absent:
            raise DeviceError("tune_not_timed", op=job.ops[0].op)
        return _load(job.ops[0], job)

    with _open_op(job, channel, load) as (device, loaded):
        from perfci.worker.tuning.measured import run

        run(job, channel.send, device, loaded)


def _chain(job: Job, channel: MessageChannel) -> None:
    """Check a chain of ops, stage by stage and as a whole."""
    from perfci.worker import chains

    files = job.ops[0]
    place = Path(files.folder), Path(job.shared_folder)
    with _open_op(job, channel, lambda _: chains.load_chain(files.op, *place)) as (device, chain):
        chains.run(job, channel.send, device, chain)


def _run_on_device(job: Job, channel: MessageChannel) -> None:
    """Call an op often, at once and on huge arrays (soak), or find out where the time of its cases goes (profile)."""
    with _open_op(job, channel, lambda _: _load(job.ops[0], job)) as (device, loaded):
        importlib.import_module(f"perfci.worker.{job.task}").run(job, channel, device, loaded)


def _run_without_device(job: Job, channel: MessageChannel) -> None:
    """Compile (ahead, static), or find out what an op of somebody's functions takes (sketch)."""
    importlib.import_module(f"perfci.worker.{job.task}").run(job, channel.send)


_TASKS = {
    "describe": _describe,
    "measure": _measure,
    "serve": _serve,
    "examine": _examine,
    "ahead": _run_without_device,
    "static": _run_without_device,
    "coverage": _run_without_device,
    "tune": _tune,
    "chain": _chain,
    "soak": _run_on_device,
    "profile": _run_on_device,
    "sketch": _run_without_device,
}


if __name__ == "__main__":
    main()
