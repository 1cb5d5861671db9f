"""How most tasks begin: the device is opened, the op is imported, and the device is held alone."""

import contextlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from perfci.core.errors import ContractError, DeviceError
from perfci.core.model.measured import BASE
from perfci.device import open_device
from perfci.device.seam import Accelerator
from perfci.worker.apart import stray_import
from perfci.worker.load import LoadedOp, import_roots, load_op
from perfci.worker.protocol import Doing, Holding, LockAsked, MessageChannel, Ready, Waiting
from perfci.worker.tasks import DeviceTask, OpFiles, Task

T = TypeVar("T")


@contextmanager
def open_op(
    task: DeviceTask, channel: MessageChannel, load: Callable[[Accelerator], T]
) -> Iterator[tuple[Accelerator, T]]:
    """Open the device, import the task's only op, and hold the device alone."""
    opening = task.opening
    try:
        # The fake device's noise differs in every process of a run, of every op and of either side of a pair.
        seed = random.Random(f"{opening.seed}/{opening.process}/{task.op}/{opening.arm}").getrandbits(31)
        device = open_device(opening.device, seed=seed, timer=opening.timer, fake=opening.fake)
    except (DeviceError, RuntimeError) as error:
        if opening.arm == BASE:  # its interpreter may be at fault
            raise
        # The plan was made for it: it is gone, for later ops too.
        raise DeviceError("device_gone", device=opening.device, why=str(error).rstrip(".")) from error
    channel.send(Ready(device.info))
    channel.send(Doing("import", task.op))
    # For imports that the op's functions make when they are called.
    sys.path[:0] = import_roots(task.folder, task.shared_folder)
    loaded = load(device)
    # Boards that are no hardware are shared unless the fake locks.
    shared = device.info.kind == "cpu" or (device.info.kind == "fake" and not opening.fake.get("locked"))
    with ExitStack() as stack:
        if opening.lock and not shared:
            from perfci.core.locks import device_lock

            name = device.info.uuid or device.info.key
            channel.ask(LockAsked(name))
            lent = None if task.is_judge else take_lent(task.socket)
            limit_s = opening.lock_wait_s
            stack.enter_context(
                device_lock(name, opening.lock_folder, lambda by: channel.send(Waiting(by)), limit_s, lent)
            )
        channel.send(Holding())
        yield device, loaded


def take_lent(descriptor: int) -> int | None:
    """Returns the open file that the parent has sent through its socket. None if it could not open it."""
    import socket  # which the process that others are forked from never needs

    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as end:
        end.setblocking(False)
        given = socket.recv_fds(end, 1, 1)[1]
        os.set_inheritable(given[0], False)
        return given[0]
    return None


def load_files(task: Task, files: OpFiles) -> LoadedOp:
    """Import an op of a task. Raises ContractError, also for a base that imports a file of head."""
    peers, elsewhere = (getattr(task, name, False) for name in ("peers", "calls_there"))
    loaded = load_op(files.name, files.folder, task.shared_folder, peers=peers, elsewhere=elsewhere)
    if task.place.head_root and (stray := stray_import(task.place.head_root)):
        raise ContractError("base_reaches_head", file=stray[1])
    return loaded
