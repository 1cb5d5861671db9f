"""The sketch task: functions are imported and rehearsed, to find out what an op of them takes."""

from __future__ import annotations

from collections.abc import Callable

from perfci.core.errors import DeviceError
from perfci.worker.protocol import Doing, Job, Message


def run(job: Job, send: Callable[[Message], None]) -> None:
    """Report what was found out about the job's sketch."""
    assert job.sketch is not None
    op = job.ops[0].op
    send(Doing("import", op))
    try:
        from perfci.worker.sketch import function, tests
    except ImportError as error:
        raise DeviceError("new_needs_torch", error=str(error)) from error
    find = tests.find if job.sketch.baseline else function.find
    send(find(op, job.sketch, lambda file: send(Doing("rehearsal", op, file))))
