"""The parent's side of a worker: start it, listen, watch its time, and say how it died if it died."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from perfci.codec import encode
from perfci.errors import PerfciError
from perfci.model import Reason
from perfci.worker.log import CappedLog
from perfci.worker.protocol import Failed, Job, Message, Step, ends, unpack

LAST_WORDS = 400
"""Characters of a dead worker's output that its reason quotes at most."""

LAST_LINES = 3
"""Lines of it."""

_CHUNK = 1 << 16
_EXIT_S = 10.0
_GLANCE_S = 1.0
"""How often a silent worker is looked at: a child of a dead one may hold the pipe open."""


class WorkerHungError(Exception):
    """No message came within the limit."""


@dataclass(frozen=True)
class Surroundings:
    """What a worker runs in."""

    environment: Mapping[str, str]
    folder: Path
    """working directory: the project's root"""
    log: Path
    """where its output goes"""
    limit_s: float
    """longest silence; a worker that says nothing for so long hangs"""


def run_worker(job: Job, around: Surroundings, heard: Callable[[Message], None]) -> Reason | None:
    """Run one worker to its end; gives why it failed as a whole, None if it did not.

    Whatever interrupts this call (Ctrl-C, SIGTERM's exception) kills the worker with all its children first.
    """
    reading, writing = os.pipe()
    try:
        process = _start(job, around, writing)
    finally:
        os.close(writing)
    assert process.stdout is not None
    log = CappedLog(process.stdout, around.log)
    try:
        return _listen(process, reading, job, around, heard, log)
    finally:
        os.close(reading)
        _kill(process)
        log.finish()


def _start(job: Job, around: Surroundings, writing: int) -> subprocess.Popen[bytes]:
    around.log.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        # Fault handler: the log then holds the stack of a segmentation fault.
        [sys.executable, "-X", "faulthandler", "-m", "perfci.worker.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[writing],
        env=dict(around.environment),
        cwd=around.folder,
        start_new_session=True,
    )
    assert process.stdin is not None
    # The pipe stays open: its end tells the worker that the parent is gone.
    # A worker that is dead by now is heard of when its pipe ends.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(encode(dataclasses.replace(job, events_fd=writing)) + b"\n")
        process.stdin.flush()
    return process


def _listen(
    process: subprocess.Popen[bytes],
    reading: int,
    job: Job,
    around: Surroundings,
    heard: Callable[[Message], None],
    log: CappedLog,
) -> Reason | None:
    step, ended = Step("start", job.ops[0].op if job.ops else job.task), False
    try:
        for line in _lines(process, reading, around.limit_s):
            message = _message(line)
            if message is None:
                continue
            if isinstance(message, Failed):
                return message.reason
            step = message if isinstance(message, Step) else step
            ended = ended or ends(job, message)
            heard(message)
    except WorkerHungError:
        return None if ended else _reason("worker_hung", step, around, limit_s=around.limit_s)
    if ended:
        return None
    # Status 0 is no success by itself: a kernel may call sys.exit.
    status = _wait(process)
    _kill(process)  # with whatever it started, which may still hold the log open
    log.finish()
    return _cause_of_death(status, step, around)


def _lines(process: subprocess.Popen[bytes], reading: int, limit_s: float) -> Iterator[bytes]:
    rest = b""
    last = time.monotonic()
    while True:
        dead = process.poll() is not None
        left = max(last + limit_s - time.monotonic(), 0)
        ready, _, _ = select.select([reading], [], [], 0 if dead else min(left, _GLANCE_S))
        data = os.read(reading, _CHUNK) if ready else b""
        if not data:
            if ready or dead:
                return
            if left == 0:
                raise WorkerHungError
            continue
        last = time.monotonic()
        *whole, rest = (rest + data).split(b"\n")
        yield from (line + b"\n" for line in whole)


def _message(line: bytes) -> Message | None:
    """None for a line that a crash cut off, or that user code wrote into the pipe."""
    try:
        return unpack(line)
    except (ValueError, PerfciError):
        return None


def _wait(process: subprocess.Popen[bytes]) -> int:
    """The worker's exit status, negative for a signal; one that closed its pipe and lives on is killed."""
    try:
        return process.wait(_EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _cause_of_death(status: int, step: Step, around: Surroundings) -> Reason:
    if status < 0:
        name = _signal_name(-status)
        kind = "worker_killed" if name == "SIGKILL" else "worker_died"
        return _reason(kind, step, around, signal=name)
    return _reason("worker_exited", step, around, status=status)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have none
        return f"signal {number}"


def _reason(kind: str, step: Step, around: Surroundings, **facts: str | int | float) -> Reason:
    where = f"{step.stage} of {step.case}" if step.case else step.stage
    return Reason(
        kind, {"op": step.op, "where": where, "log": _shown(around), "words": _last_words(around.log), **facts}
    )


def _shown(around: Surroundings) -> str:
    log = around.log
    return str(log.relative_to(around.folder)) if log.is_relative_to(around.folder) else str(log)


def _last_words(log: Path) -> str:
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return ""
    lines = [" ".join(line.split()) for line in text[-LAST_WORDS:].splitlines() if line.strip()]
    return " / ".join(lines[-LAST_LINES:]) if lines else "nothing"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the worker and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin:
        # One that died before it read its job leaves some of it unsent.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
