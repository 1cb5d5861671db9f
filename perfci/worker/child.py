"""The worker process: `python -m perfci.worker.child`, one job on standard input, messages on a pipe of its own.

It ends at once when its parent does: the parent's end of standard input is the lifeline.
"""

from __future__ import annotations

import importlib
import os
import queue
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perfci.core.codec import decode
from perfci.core.errors import ContractError, DeviceError, PerfciError
from perfci.core.model import PlannedOp, Suite
from perfci.device import detect, open_device
from perfci.device.seam import Accelerator
from perfci.device.targets import find_triton_versions, release
from perfci.ops.spec import Accuracy, case_id, matches
from perfci.worker.apart import forget_others, settle, stray_import
from perfci.worker.load import LoadedOp, import_roots, load_op, parameters
from perfci.worker.protocol import (
    BASE,
    Apart,
    Examined,
    Failed,
    Job,
    Message,
    OpFiles,
    Ready,
    Step,
    TurnAsked,
    Waiting,
    pack,
)

_PARENT_GONE = 3


class MessageChannel:
    """Where messages go; nothing else in the process writes there."""

    def __init__(self, descriptor: int, hear: Callable[[], str]) -> None:
        self._descriptor = descriptor
        self._hear = hear

    def ask(self, message: Message) -> str:
        """Send a message that is answered, and wait for the line."""
        self.say(message)
        return self._hear()

    def say(self, message: Message) -> None:
        """Send one message, whole."""
        data = pack(message)
        while data:
            data = data[os.write(self._descriptor, data) :]


def _reach_folder() -> None:
    """Ops find modules in the working directory, as they do anywhere; which perfci runs is settled by now."""
    if sys.flags.safe_path:
        sys.path.insert(0, str(Path.cwd()))


def main() -> None:
    """Read the job, do it, say how it went."""
    job = decode(sys.stdin.readline(), Job)
    _import_stages(job)
    _reach_folder()
    _shun_stale_caches()
    answers: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_die_with_parent, args=(answers,), daemon=True).start()
    mouth = MessageChannel(job.events_fd, answers.get)
    if job.head_root:
        settle(Path(job.root), Path(job.head_root))
    try:
        _TASKS[job.task](job, mouth)
    except PerfciError as error:
        mouth.say(Failed(error.reason))


def _import_stages(job: Job) -> None:
    """What the task of a check needs, and no other does: before a file of the project's could pass for a module."""
    if job.task == "measure":
        importlib.import_module("perfci.worker.work")


def _shun_stale_caches() -> None:
    """Before 3.5 Triton's cache knows a kernel by its text alone: one with another global constant gets stale code."""
    if any(release(version) < (3, 5) for version in find_triton_versions()):
        os.environ["TRITON_ALWAYS_COMPILE"] = "1"


def _die_with_parent(answers: queue.Queue[str]) -> None:
    """Pass on what the parent answers, until there is no parent any more."""
    for line in sys.stdin:
        answers.put(line)
    os._exit(_PARENT_GONE)


def _describe(job: Job, mouth: MessageChannel) -> None:
    """Say what device there is and which cases each op has; nothing is launched."""
    kind = detect() if job.device == "auto" else job.device
    device = open_device(kind, seed=job.seed, timer=job.timer, fake=job.fake)
    mouth.say(Ready(device.info, devices=device.count(), visible=device.visible()))
    for files in job.ops:
        mouth.say(Step("import", files.op))
        # The op before may have modules of the same names.
        forget_others(Path(files.folder), Path(job.shared_folder))
        mouth.say(_planned(files, job))


def _examine(job: Job, mouth: MessageChannel) -> None:
    """Say what the device is doing and which timer works on it."""
    device = open_device(detect() if job.device == "auto" else job.device, seed=job.seed, fake=job.fake)
    mouth.say(Ready(device.info))
    if device.absent is None:
        device.start_timer()
    mouth.say(Examined(device.state(), device.timer))


def _planned(files: OpFiles, job: Job) -> PlannedOp:
    try:
        loaded = _load(files, job)
    except PerfciError as error:
        return PlannedOp(files.op, failure=error.reason)
    names = {
        suite: tuple(
            case_id(params) for params in cases if suite in job.suites and matches(case_id(params), job.pattern)
        )
        for suite, cases in (
            (Suite.ACCURACY, loaded.accuracy.cases),
            (Suite.PERFORMANCE, loaded.performance.cases),
        )
    }
    signature = tuple(parameters(loaded.performance.kernel))
    suite = loaded.performance
    return PlannedOp(
        files.op,
        names[Suite.ACCURACY],
        names[Suite.PERFORMANCE],
        signature=signature,
        cache=suite.cache,
        renamed=dict(suite.renamed),
        renamed_from=suite.renamed_from,
        stored=_stored(loaded.accuracy, job),
        peers=tuple(suite.peers),
    )


def _stored(suite: Accuracy, job: Job) -> tuple[str, ...]:
    """Ids of what the op stores in low precision, with * for the tensors' names."""
    if suite.quantised is None or Suite.ACCURACY not in job.suites:
        return ()

    from perfci.measure.lowprec.declared import list_stored_cases

    return list_stored_cases(suite, job.pattern)


def _run(job: Job, mouth: MessageChannel) -> None:
    """Verify an op and time it, alone or beside the base revision."""
    from perfci.measure.base import InseparableError
    from perfci.measure.bench import PeerLostError
    from perfci.worker.work import Worker, opponent, spoiled

    files = job.ops[0]
    device = _known_device(job)
    mouth.say(Step("import", files.op))
    # For imports that the op's functions make when they are called.
    sys.path[:0] = import_roots(Path(files.folder), Path(job.shared_folder))
    before = device.registered()
    loaded = _load(files, job)
    if job.arm == BASE:
        # Head has the device, and prepares its cases alone.
        mouth.ask(TurnAsked())
    try:
        other = opponent(job, device, before)
        with _lock(device, job, mouth):
            mouth.say(Ready(device.info))
            worker = Worker(job, mouth, device, spoiled(loaded, device) if job.spoiled else loaded, other)
            right = worker.verify() if Suite.ACCURACY in job.suites and not job.process else True
            worker.measure(right=right)
    except InseparableError as found:
        mouth.say(Apart(found.reason))
    except PeerLostError as lost:
        mouth.say(Failed(lost.reason))


def _known_device(job: Job) -> Accelerator:
    """The device that the plan was made for; one that cannot be opened now is gone, for later ops too."""
    try:
        return open_device(job.device, seed=_device_seed(job), timer=job.timer, fake=job.fake)
    except (DeviceError, RuntimeError) as error:
        if job.arm == BASE:  # whose interpreter may be at fault
            raise
        raise DeviceError("device_gone", device=job.device, why=str(error).rstrip(".")) from error


def _device_seed(job: Job) -> int:
    """The fake device's noise: another in every process of a run, of every op and of either side of a pair."""
    return random.Random(f"{job.seed}/{job.process}/{job.ops[0].op}/{job.arm}").getrandbits(31)


def _load(files: OpFiles, job: Job) -> LoadedOp:
    loaded = load_op(files.op, Path(files.folder), Path(job.shared_folder))
    if job.head_root and (stray := stray_import(Path(job.head_root))):
        raise ContractError("base_reaches_head", file=stray[1])
    return loaded


@contextmanager
def _lock(device: Accelerator, job: Job, mouth: MessageChannel) -> Iterator[None]:
    """The device alone to itself; boards that are no hardware are shared unless it is planted."""
    shared = device.info.kind == "cpu" or (device.info.kind == "fake" and not job.fake.get("locked"))
    if shared or not job.lock:
        yield
        return
    from perfci.core.locks import device_lock

    name = device.info.uuid or device.info.key
    with device_lock(name, job.lock_folder, lambda holder: mouth.say(Waiting(holder)), job.lock_wait_s):
        yield


def _static(job: Job, mouth: MessageChannel) -> None:
    """Capture and compile the performance cases for a target, without a device."""
    from perfci.worker import static

    static.run(job, mouth.say)


def _tune(job: Job, mouth: MessageChannel) -> None:
    """Search an op's configurations: on the device, or by the model for one that is not here."""
    files = job.ops[0]
    mouth.say(Step("import", files.op))
    if job.tune.spec is not None:
        from perfci.worker.tuning.modelled import run_modelled

        run_modelled(job, mouth.say)
        return
    device = _known_device(job)
    if device.absent:
        raise DeviceError("tune_not_timed", op=files.op)
    sys.path[:0] = import_roots(Path(files.folder), Path(job.shared_folder))
    loaded = _load(files, job)
    with _lock(device, job, mouth):
        mouth.say(Ready(device.info))
        from perfci.worker.tuning.measured import run

        run(job, mouth.say, device, loaded)


def _list_chains(job: Job, mouth: MessageChannel) -> None:
    """Say what each chain declares; no device is opened, and nothing is launched."""
    from perfci.worker import chains

    for files in job.ops:
        mouth.say(Step("import", files.op))
        forget_others(Path(files.folder), Path(job.shared_folder))
        mouth.say(chains.listed(files, job))


def _chain(job: Job, mouth: MessageChannel) -> None:
    """Check a chain of ops, stage by stage and as a whole."""
    from perfci.worker import chains

    files = job.ops[0]
    mouth.say(Step("import", files.op))
    device = _known_device(job)
    sys.path[:0] = import_roots(Path(files.folder), Path(job.shared_folder))
    loaded = chains.load_chain(files.op, Path(files.folder), Path(job.shared_folder))
    with _lock(device, job, mouth):
        mouth.say(Ready(device.info))
        chains.run(job, mouth.say, device, loaded)


def _soak(job: Job, mouth: MessageChannel) -> None:
    """Call an op often, at once and on huge arrays."""
    from perfci.worker import soak

    files = job.ops[0]
    device = _known_device(job)
    mouth.say(Step("import", files.op))
    sys.path[:0] = import_roots(Path(files.folder), Path(job.shared_folder))
    loaded = _load(files, job)
    with _lock(device, job, mouth):
        mouth.say(Ready(device.info))
        soak.run(job, mouth.say, device, loaded)


def _sketch(job: Job, mouth: MessageChannel) -> None:
    """Find out what an op of somebody's functions takes; no device is opened, and nothing is launched."""
    from perfci.worker import sketch

    sketch.run(job, mouth.say)


_TASKS = {
    "describe": _describe,
    "measure": _run,
    "examine": _examine,
    "static": _static,
    "tune": _tune,
    "chains": _list_chains,
    "chain": _chain,
    "soak": _soak,
    "sketch": _sketch,
}


if __name__ == "__main__":
    main()
