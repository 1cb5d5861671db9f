"""Performs the task to rehearse functions."""

from perfci.core.errors import DeviceError, PerfciError
from perfci.extensions.adopt.task import Rehearse, Sketched
from perfci.worker.protocol import Doing, MessageChannel


def run(task: Rehearse, channel: MessageChannel) -> None:
    """Report what was found out about each of the task's sketches."""
    send = channel.send
    send(Doing("import", task.op))
    try:
        from perfci.extensions.adopt.rehearsal import function
    except ImportError as error:
        raise DeviceError("new_needs_torch", error=str(error)) from error
    for op, files in task.sketches.items():

        def step(file: str, op: str = op) -> None:
            send(Doing("rehearsal", op, file))

        try:
            send(Sketched(op, function.find(op, files, step)))
        except PerfciError as error:
            send(Sketched(op, failure=error.reason))
