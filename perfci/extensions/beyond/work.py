"""A worker's part: the least wrong case of one op, or what its suite states beyond its cases."""

import functools
import time

from perfci.core.model import AccuracyCase, because
from perfci.device.seam import Accelerator
from perfci.extensions.beyond.least import Shrinker
from perfci.extensions.beyond.lines import write_lines
from perfci.extensions.beyond.properties import check_properties
from perfci.extensions.beyond.task import LookBeyond
from perfci.worker.load import LoadedOp, describe_exception
from perfci.worker.opening import load_files, open_op
from perfci.worker.protocol import Doing, MessageChannel, OpDone


def perform(task: LookBeyond, channel: MessageChannel) -> None:
    """Shrink a wrong case, or make further checks. Each result is sent at once."""
    with open_op(task, channel, lambda _: load_files(task, task.place.ops[0])) as (device, loaded):
        if task.wrong:
            channel.send(Doing("shrink", task.op, task.wrong.case))
            if least := find_least(task, task.wrong, loaded, device):
                channel.send(least)
        else:
            channel.send(Doing("properties", task.op))
            describe = functools.partial(describe_exception, folder=task.folder)
            for result in check_properties(loaded.accuracy, device, task.pattern, describe):
                channel.send(result)
        channel.send(OpDone())


def find_least(task: LookBeyond, wrong: AccuracyCase, loaded: LoadedOp, device: Accelerator) -> AccuracyCase | None:
    """Returns the smallest wrong case as a check, with the lines that show it. None if the fault did not show again."""
    describe = functools.partial(describe_exception, folder=task.folder)
    until_s = time.monotonic() + task.budget_s
    least = Shrinker(loaded.accuracy, device, wrong, describe, until_s).shrink()
    if least is None:
        return None
    python = write_lines(task, loaded, device, least)
    reason = because("least_wrong", least.failure, origin=wrong.case, tries=least.tries, python=python)
    return least.check.result(failure=reason)
