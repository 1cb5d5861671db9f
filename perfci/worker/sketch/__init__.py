"""The sketch task: functions are imported and rehearsed, to find out what an op of them takes."""

from collections.abc import Callable

from perfci.core.errors import DeviceError, PerfciError
from perfci.worker.protocol import Doing, Job, Message, Sketched


def run(job: Job, send: Callable[[Message], None]) -> None:
    """Report what was found out about each of the job's sketches."""
    send(Doing("import", job.ops[0].op))
    try:
        from perfci.worker.sketch import function
    except ImportError as error:
        raise DeviceError("new_needs_torch", error=str(error)) from error
    for op, files in zip((each.op for each in job.ops), job.sketches, strict=True):

        def step(file: str, op: str = op) -> None:
            send(Doing("rehearsal", op, file))

        try:
            send(Sketched(op, function.find(op, files, step)))
        except PerfciError as error:
            send(Sketched(op, failure=error.reason))
