"""The parent's side of a worker: start it, listen, watch its time, and say how it died if it died."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from perfci.core.codec import encode
from perfci.core.errors import PerfciError
from perfci.core.model import Reason
from perfci.worker.log import CappedLog
from perfci.worker.protocol import Failed, Job, Message, Step, Turn, TurnAsked, ends, unpack

LAST_WORDS = 400
"""Characters of a dead worker's output that its reason quotes at most."""

LAST_LINES = 3
"""Lines of it."""

LONGEST = 1 << 25
"""Bytes of a message at most: an op that writes into the pipe itself would fill this process's memory."""

_CHUNK = 1 << 16
_EXIT_S = 10.0
_GLANCE_S = 1.0
"""How often a silent worker is looked at: a child of a dead one may hold the pipe open."""


@dataclass(frozen=True)
class WorkerEnvironment:
    """What a worker runs in."""

    environment: Mapping[str, str]
    folder: Path
    """working directory: the project's root"""
    log: Path
    """where its output goes"""
    limit_s: float
    """longest silence; a worker that says nothing for so long hangs"""
    python: str = sys.executable
    """the interpreter"""
    shown_from: Path | None = None
    """what the log's place is told relative to; None for the working directory"""
    until_s: float | None = None
    """when it is ended whatever it does, seconds since the epoch"""


LATE = "worker_late"
"""Kind of the failure of a worker that was ended since its time was up."""

Working = Generator[Sequence["Running"], None, Reason | None]
"""Workers under way: gives those that it waits for, whenever it does, and why they failed in the end."""


def run_worker(job: Job, around: WorkerEnvironment, heard: Callable[[Message], None]) -> Reason | None:
    """Run one worker to its end; gives why it failed as a whole, None if it did not.

    Whatever interrupts this call (Ctrl-C, SIGTERM's exception) kills the worker with all its children first.
    """
    return finished(working(job, around, heard))


def working(job: Job, around: WorkerEnvironment, heard: Callable[[Message], None]) -> Working:
    """As `run_worker`, but leaves the waiting to whoever goes on with it; the worker is killed where it is closed."""
    with started(job, around) as worker:
        while not worker.over:
            yield (worker,)
            for message in worker.hear():
                heard(message)
        return worker.failure


def finished(under_way: Working) -> Reason | None:
    """Wait for workers to their end; gives why they failed. Whatever interrupts this call kills them first."""
    found: list[Reason | None] = []

    def lane() -> Iterator[Sequence[Running]]:
        found.append((yield from under_way))

    side_by_side([lane()])
    return found[0]


def side_by_side(lanes: Sequence[Iterator[Sequence[Running]]]) -> None:
    """Go on with each until all have ended, in one thread: whatever they share needs no lock.

    Each gives the workers that it waits for. Whatever interrupts this call, or is raised by one of them, closes all
    others, which kills their workers.
    """
    with ExitStack() as stack:
        for lane in lanes:
            stack.callback(_close, lane)
        going = {lane: next(lane, None) for lane in lanes}
        while going := {lane: workers for lane, workers in going.items() if workers is not None}:
            wait(worker for workers in going.values() for worker in workers or ())
            going = {lane: next(lane, None) for lane in going}


def _close(lane: Iterator[Sequence[Running]]) -> None:
    if isinstance(lane, Generator):
        lane.close()


@contextmanager
def started(job: Job, around: WorkerEnvironment) -> Iterator[Running]:
    """A worker that has been given its job; it is killed at the end of the context at the latest."""
    reading, writing = os.pipe()
    try:
        process = _start(job, around, writing)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    worker = Running(process, reading, job, around)
    try:
        yield worker
    finally:
        worker.end()


def wait(workers: Iterable[Running]) -> None:
    """Wait until one of these has something to say, has died, or has been silent for too long; a second at most."""
    living = [worker for worker in workers if not worker.over]
    left = min((worker.patience() for worker in living), default=0.0)
    select.select(living, [], [], min(left, _GLANCE_S))


class Running:
    """A worker under way: hears what it says, notices how it ends. Reading never blocks."""

    def __init__(self, process: subprocess.Popen[bytes], reading: int, job: Job, around: WorkerEnvironment) -> None:
        assert process.stdout is not None
        self._process = process
        self._reading = reading
        self._job = job
        self._around = around
        self._log = CappedLog(process.stdout, around.log)
        self._step = Step("start", job.ops[0].op if job.ops else job.task)
        self._rest = b""
        self._spoke = time.monotonic()
        self._asking = False
        self._ended = False
        self.over = False
        """nothing more will be heard of it"""
        self.failure: Reason | None = None
        """why it failed as a whole; known once it is over"""

    def fileno(self) -> int:
        """The pipe that it speaks into."""
        return self._reading

    def patience(self) -> float:
        """Seconds until it has to be looked at, whether it speaks or not."""
        return 0.0 if self._process.poll() is not None else max(min(self._left(), self._time_left()), 0.0)

    def hear(self) -> list[Message]:
        """What it has said since; nothing once it is over."""
        if self.over:
            return []
        # Asked before the pipe is looked at: what a worker says before it dies is heard.
        dead = self._process.poll() is not None
        ready, _, _ = select.select([self], [], [], 0)
        data = os.read(self._reading, _CHUNK) if ready else b""
        if self._time_left() <= 0:
            said = self._read(data)
            self._finish(self.failure if self.over or self._ended else self._reason(LATE))
            return said
        if data:
            return self._read(data)
        if ready or dead:
            self._close()
        elif self._left() <= 0:
            self._finish(None if self._ended else self._reason("worker_hung", limit_s=self._around.limit_s))
        return []

    def tell(self, turn: Turn) -> None:
        """Answer it."""
        self._asking, self._spoke = False, time.monotonic()
        assert self._process.stdin is not None
        # Its death meanwhile is heard of when its pipe ends.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(encode(turn) + b"\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """Kill it and whatever it started."""
        self.over = True
        _kill(self._process)
        self._log.finish()
        os.close(self._reading)

    def _left(self) -> float:
        """Seconds until its silence counts as a hang; one that waits for an answer is not silent."""
        limit = self._around.limit_s
        return limit if self._asking else self._spoke + limit - time.monotonic()

    def _time_left(self) -> float:
        """Seconds until it is ended."""
        until_s = self._around.until_s
        return math.inf if until_s is None else until_s - time.time()

    def _read(self, data: bytes) -> list[Message]:
        self._spoke = time.monotonic()
        *whole, self._rest = (self._rest + data).split(b"\n")
        said: list[Message] = []
        for line in whole:
            message = _message(line + b"\n")
            if isinstance(message, Failed):
                self._finish(message.reason)
                break
            if message is not None:
                self._note(message)
                said.append(message)
        if len(self._rest) > LONGEST and not self.over:
            self._finish(self._reason("worker_flooded", size=LONGEST))
        return said

    def _note(self, message: Message) -> None:
        if isinstance(message, Step):
            self._step = message
        self._asking = isinstance(message, TurnAsked)
        self._ended = self._ended or ends(self._job, message)

    def _close(self) -> None:
        """Its pipe has ended. Status 0 is no success by itself: a kernel may call sys.exit."""
        if self._ended:
            return self._finish(None)
        status = _wait(self._process)
        _kill(self._process)  # with whatever it started, which may still hold the log open
        self._log.finish()
        if status >= 0:
            return self._finish(self._reason("worker_exited", status=status))
        name = _signal_name(-status)
        return self._finish(self._reason("worker_killed" if name == "SIGKILL" else "worker_died", signal=name))

    def _finish(self, failure: Reason | None) -> None:
        self.over, self.failure = True, failure

    def _reason(self, kind: str, **facts: str | int | float) -> Reason:
        step = self._step
        where = f"{step.stage} of {step.case}" if step.case else step.stage
        said = {"log": _shown(self._around), "words": _last_words(self._around.log)}
        return Reason(kind, {"op": step.op, "where": where, **said, **facts})


def _start(job: Job, around: WorkerEnvironment, writing: int) -> subprocess.Popen[bytes]:
    around.log.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        # Fault handler: the log then holds the stack of a segmentation fault. -P: a perfci in the folder, as in a base
        # of perfci's own repository, must not be taken for this one.
        [around.python, "-P", "-X", "faulthandler", "-m", "perfci.worker.child"],
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


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have none
        return f"signal {number}"


def _shown(around: WorkerEnvironment) -> str:
    log, home = around.log, around.shown_from or around.folder
    return (log.relative_to(home) if log.is_relative_to(home) else log).as_posix()


def _last_words(log: Path) -> str:
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
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
