"""A worker's part: the least wrong case of one op."""

import functools
import time

from perfci.core.model import AccuracyCase, because
from perfci.device.seam import Accelerator
from perfci.extensions.beyond.least import Shrinker
from perfci.extensions.beyond.lines import write_lines
from perfci.extensions.beyond.task import LookBeyond
from perfci.worker.load import LoadedOp, describe_exception
from perfci.worker.opening import load_files, open_op
from perfci.worker.protocol import Doing, MessageChannel, OpDone


def perform(task: LookBeyond, channel: MessageChannel) -> None:
    """Shrink a wrong case, and send the least one as a check that failed."""
    with open_op(task, channel, lambda _: load_files(task, task.place.ops[0])) as (device, loaded):
        channel.send(Doing("shrink", task.op, task.wrong.case))
        if least := find_least(task, loaded, device):
            channel.send(least)
        channel.send(OpDone())


def find_least(task: LookBeyond, loaded: LoadedOp, device: Accelerator) -> AccuracyCase | None:
    """Returns the smallest wrong case as a check, with the lines that show it. None if the fault did not show again."""
    describe = functools.partial(describe_exception, folder=task.folder)
    until_s = time.monotonic() + task.budget_s
    least = Shrinker(loaded.accuracy, device, task.wrong, describe, until_s).shrink()
    if least is None:
        return None
    python = write_lines(task, loaded, device, least)
    reason = because("least_wrong", least.failure, origin=task.wrong.case, tries=least.tries, python=python)
    return least.check.result(failure=reason)
