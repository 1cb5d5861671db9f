"""Workers, as the process that starts them sees them: start, messages, time, end, and several at once."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from perfci.core import locks
from perfci.core.codec import encode
from perfci.core.errors import PerfciError
from perfci.core.files import append_regular, read_regular
from perfci.core.model import Fact, Reason, as_fact
from perfci.store.signature import KEY, find_key
from perfci.worker import confine, forks, shared_memory
from perfci.worker.answers import LATE, TAKEN, Inbox, describe
from perfci.worker.forks import Forked
from perfci.worker.handover import KernelCall
from perfci.worker.protocol import Failed, Holding, LockAsked, Message, Turn
from perfci.worker.tasks import DeviceTask, Place, Task, WorkerEnvironment, pack_task
from perfci.worker.warm import PROGRAM

LAST_WORDS, LAST_LINES = 400, 3  # characters and lines of a dead worker's output that its reason quotes at most

HEAD_BYTES, TAIL_CHUNKS = 1 << 20, 64
"""What is kept of a worker's output: its beginning and its end, as a kernel that prints may print gigabytes."""


_FATAL = "Fatal Python error: "  # how the dump of a crash begins
_CURRENT = "Current thread "  # how the stack begins of the thread that takes a signal
_FRAME = re.compile(r'^ +File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_WARNING = re.compile(r"^.*:\d+: \w*Warning: .*\n(?: +.*\n)?", re.MULTILINE)


def find_last_words(text: str) -> str:
    """Returns a worker's last words: neither the dump of a crash, which follows on it, nor Python's warnings."""
    said, fatal, dump = text.partition(_FATAL)
    lines = [" ".join(line.split()) for line in _WARNING.sub("", said)[-LAST_WORDS:].splitlines() if line.strip()]
    return " / ".join(lines[-LAST_LINES:]) or (fatal + dump).partition("\n")[0] or "nothing"


def find_frame(text: str, place: Place) -> str:
    """Returns the innermost line of the op's files, else of its project's, in the dump of a crash or of a hang.

    A crash may come long after what caused it, such as a write outside an array, and then the dump has none.
    """
    _, fatal, dump = text.partition(_FATAL)
    _, current, stack = dump.partition(_CURRENT) if fatal else text.rpartition(_CURRENT)
    if not place.ops or not (fatal or current):
        return as_fact("an unknown place")
    stack = stack.partition("\n\n")[0] if current else dump
    frames = [(Path(file), line, function) for file, line, function in _FRAME.findall(stack)]
    root = place.root
    for folder in (place.ops[0].folder, place.shared_folder, root):
        for file, line, _ in frames:
            if file.is_relative_to(folder) and not {"site-packages", "dist-packages"}.intersection(file.parts):
                return f"{(file.relative_to(root) if file.is_relative_to(root) else file).as_posix()}:{line}"
    if frames and frames[0][2] == "synchronize":
        return as_fact("a wait for a kernel on the device")
    return as_fact("a place outside its files")


def copy_output(output: IO[bytes], path: Path) -> None:
    """Write the first and the last part of a worker's output to a file, until it ends."""
    tail: deque[bytes] = deque(maxlen=TAIL_CHUNKS)
    written, dropped = 0, 0
    with output:
        try:
            if path.is_symlink():  # a run must not write where a change's link leads
                path.unlink()
            with append_regular(path) as file:
                while chunk := output.read1(_CHUNK):  # type: ignore[attr-defined]
                    if written < HEAD_BYTES:
                        written += file.write(chunk) or 0
                        continue
                    dropped += len(tail[0]) if len(tail) == TAIL_CHUNKS else 0
                    tail.append(chunk)
                if dropped:
                    file.write(f"\n[{dropped} bytes left out]\n".encode())
                file.write(b"".join(tail))
        except OSError:  # a full disk must not stop the worker, which would wait for a reader
            while output.read1(_CHUNK):  # type: ignore[attr-defined]
                pass


_CONFINE = [sys.executable, "-I", "-S", confine.__file__]
_CHUNK = 1 << 14
_CLOSE_S, _EXIT_S = 5.0, 10.0
_STACK_S = 0.5  # in which a silent worker writes where it is
_GLANCE_S = 1.0  # how often a silent worker is looked at: a child of a dead one may hold the pipe open


def confined(command: Sequence[str], *places: Iterable[Path | str]) -> list[str]:
    """Returns the command that runs a program which is confined to these places, as `confine.confine` has them."""
    folders = [os.pathsep.join(map(str, paths)) for paths in (*places, (), (), ())[:3]]
    return [*_CONFINE, *folders, *command]


@contextmanager
def start_worker(task: Task, around: WorkerEnvironment, descriptors: tuple[int, ...] = ()) -> Iterator[Running]:
    """Start a worker, which inherits the descriptors, and give it its task. It is killed when the context ends."""
    if find_key() and not confine.landlock_version():
        raise PerfciError("signing_unconfined", name=KEY)
    reading, writing = os.pipe()
    # A judge's process gives handles of those that it starts: they end with it, whatever ends it. Another one is lent
    # the device's lock, since it is confined and cannot open what has come to be since.
    ours = theirs = None
    if isinstance(task, DeviceTask):
        ours, theirs = socket.socketpair(type=socket.SOCK_DGRAM)
        task = dataclasses.replace(task, socket=theirs.fileno())
    command = [around.python, "-P", "-X", "faulthandler", "-m", PROGRAM]
    try:
        around.log.parent.mkdir(parents=True, exist_ok=True)
        # The judge's process runs none of the op's code, and confines the one that does.
        places = None if task.is_judge else [[*map(str, paths)] for paths in around.places]
        passed = [writing, *descriptors, *([theirs.fileno()] if theirs else [])]
        same_python = around.python == sys.executable
        forked = forks.start(around.environment, around.folder, places, passed) if same_python else None
        process = forked or subprocess.Popen(
            # Fault handler: the log then holds the stack of a segmentation fault. -P: a perfci in the folder, as in a
            # base of perfci's own repository, must not be taken for this one.
            [*_CONFINE, confine.JUDGE, *command] if places is None else confined(command, *places),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=passed,
            env=dict(around.environment),
            cwd=around.folder,
            start_new_session=True,
        )
    except BaseException:
        os.close(reading)
        if ours:
            ours.close()
        raise
    finally:
        os.close(writing)
        if theirs:
            theirs.close()
    worker = Running(process, reading, task, around, ours)
    try:
        # Standard input stays open: when it ends, the worker knows that the parent is gone.
        if isinstance(task, DeviceTask):  # the worker's folder of temporary files is a separate one
            folder = task.opening.lock_folder or Path(tempfile.gettempdir())
            task = dataclasses.replace(task, opening=dataclasses.replace(task.opening, lock_folder=folder))
        worker.write(pack_task(task, writing))
        yield worker
    finally:
        worker.end()


def give_handle(process: int, descriptor: int) -> None:
    """Give the parent a handle of a process that this one has started, through its end of a socket.

    On a kernel without such handles the process ends as its standard input does.
    """
    with contextlib.suppress(AttributeError, OSError), socket.socket(fileno=os.dup(descriptor)) as giving:
        handle = os.pidfd_open(process)
        socket.send_fds(giving, [b"."], [handle])
        os.close(handle)


def take_given(handles: socket.socket) -> list[int]:
    """Returns the handles of processes that were given, and closes the socket."""
    taken = list[int]()
    with handles, contextlib.suppress(OSError):
        handles.setblocking(False)
        while given := socket.recv_fds(handles, 1, 1)[1]:
            taken += given
    return taken


def signal_group(handle: int, number: signal.Signals) -> None:
    """Send a signal to a process and its group. Its number is given to no other process while it stands still."""
    with contextlib.suppress(OSError, StopIteration):
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
        lines = Path(f"/proc/self/fdinfo/{handle}").read_text().splitlines()
        group = int(next(line for line in lines if line.startswith("Pid:")).split()[1])
        if group > 1:
            os.killpg(group, number)
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(handle, number)
        signal.pidfd_send_signal(handle, signal.SIGCONT)


def wait(workers: Iterable[Running]) -> None:
    """Wait until one of these has sent something, has died, or has been silent for too long, a second at most."""
    living = [worker for worker in workers if not worker.over]
    left = min((worker.patience() for worker in living), default=0.0)
    select.select(living, [], [], min(left, _GLANCE_S))


_LENT: dict[str, list[Running]] = {}
"""By the name of a device's lock: the worker of this process that has it, and those that wait for it in their order."""


class Running:
    """A worker under way: hears what it sends, notices how it ends. Reading never blocks."""

    def __init__(
        self,
        process: subprocess.Popen[bytes] | Forked,
        reading: int,
        task: Task,
        around: WorkerEnvironment,
        end: socket.socket | None = None,
    ) -> None:
        """`end`: the parent's, of the task's socket."""
        assert process.stdout is not None
        self._process, self._reading, self._task, self._around = process, reading, task, around
        self._inbox = Inbox(task)
        self._log = threading.Thread(target=copy_output, args=(process.stdout, around.log), daemon=True)
        self._log.start()
        self._spoke, self._is_still = time.monotonic(), False
        self._lock: int | None = None  # the open file of the device's lock, once it was asked for
        self._socket = end
        self._given = list[int]()  # handles of the processes that a judge's has started, once they are to end
        self._ended, self._shared = False, shared_memory.list_files()
        self.over = False  # nothing more will be heard of it
        self.failure: Reason | None = None  # why it failed as a whole. Known once it is over

    def fileno(self) -> int:
        """The pipe that it writes to."""
        return self._reading

    def patience(self) -> float:
        """Returns the seconds until it has to be looked at, whether it sends something or not."""
        return 0.0 if self._process.poll() is not None else max(min(self._silence_left(), self._time_left()), 0.0)

    def hear(self) -> list[Message]:
        """Returns what it has sent since. Nothing once it is over."""
        if self.over:
            return []
        # Asked before the pipe is looked at: what a worker sends before it dies is heard.
        dead = self._process.poll() is not None
        ready, _, _ = select.select([self], [], [], 0)
        data = os.read(self._reading, 4 * _CHUNK) if ready else b""
        heard = self._read(data) if data else []
        if self.over:
            pass
        elif self._time_left() <= 0:
            self._finish(None if self._inbox.done else self._explain(LATE))
        elif not data and (ready or dead):
            self._close()
        elif not data and self._silence_left() <= 0:
            if not self._inbox.done:
                self._write_stack()
            self._finish(None if self._inbox.done else self._explain("worker_hung", limit_s=self._around.limit_s))
        return heard

    def refuse(self, message: str) -> Reason:
        """End it because of something that it has sent. Returns why it failed."""
        failure = self._explain("worker_unasked", message=message)
        self._finish(failure)
        return failure

    @property
    def pid(self) -> int:
        """Of its process, and of the group of all that it starts."""
        return self._process.pid

    def answer(self, record: Turn | KernelCall) -> None:
        """Answer its question for a turn, or for the next call."""
        self._inbox.asking, self._spoke = False, time.monotonic()
        self.write(encode(record) + b"\n")

    def write(self, line: bytes) -> None:
        """Write a line to it. A worker that is dead by now is heard of when its pipe ends."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def stand_still(self, *, still: bool) -> None:
        """Stop it and whatever it started until it may go on, so that it does nothing while something else is timed."""
        self._is_still, self._spoke = still, time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGSTOP if still else signal.SIGCONT)

    def kill(self) -> None:
        """Kill it and whatever it started, and wait for neither."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it and whatever it started."""
        self.over = True
        if self._ended:
            return
        self._ended = True
        self._kill()
        os.close(self._reading)
        if self._socket:
            self._socket.close()
        if self._lock is not None:
            os.close(self._lock)
        for queue in _LENT.values():
            if self in queue:
                first = queue[0]
                queue.remove(self)
                if queue and first is self:
                    queue[0].answer(Turn(0, ()))
        # What a process leaves that a worker has started goes with the worker: to look for it takes 0.2 s on a GPU.
        if not self._task.is_hosted and self._inbox.memory in {None, shared_memory.identify()}:
            shared_memory.remove_new(self._shared)

    def _silence_left(self) -> float:
        """Seconds until its silence counts as a hang. One that waits for an answer, or stands still, is not silent."""
        limit = self._around.limit_s
        return limit if self._inbox.asking or self._is_still else self._spoke + limit - time.monotonic()

    def _time_left(self) -> float:
        until_s = self._around.until_s
        return math.inf if until_s is None else until_s - time.time()

    def _read(self, data: bytes) -> list[Message]:
        self._spoke = time.monotonic()
        heard = self._inbox.take(data)
        for at, message in enumerate(heard):
            if isinstance(message, LockAsked):
                heard[at] = self._lend_lock(message)
            elif isinstance(message, Holding) and self._lock is not None:
                with contextlib.suppress(OSError):
                    locks.sign(self._lock, self._process.pid, self._around.folder)
        failure = self._inbox.failure
        if failure and failure.kind == TAKEN and not self._is_taken():
            self._inbox.breach, failure = ("worker_unasked", {"message": describe(Failed(failure))}), None
        if failure:
            self._finish(failure)
        elif breach := self._inbox.breach:
            kind, facts = breach
            self._finish(self._explain(kind, **facts))
        return heard

    def _lend_lock(self, message: LockAsked) -> LockAsked:
        """Open the lock that it asks for, and lend it, once no other worker of this process has it."""
        folder = self._task.opening.lock_folder if isinstance(self._task, DeviceTask) else None
        with contextlib.suppress(OSError):  # the worker reports what is wrong with it
            self._lock = locks.open_lock(locks.find_lock(message.name, folder))
            if self._socket and not self._task.is_judge:
                socket.send_fds(self._socket, [b"."], [self._lock])
        self._inbox.asking = True
        queue = _LENT.setdefault(message.name, [])
        queue.append(self)
        if queue[0] is self:
            self.answer(Turn(0, ()))
        return LockAsked(message.name, locks.find_displaced(folder))

    def _is_taken(self) -> bool:
        """Whether another process than this worker holds the device's lock."""
        self._kill()
        return self._lock is not None and not locks.take_if_possible(self._lock)

    def _close(self) -> None:
        """Its pipe has ended. Status 0 is no success by itself: a kernel may call sys.exit."""
        if self._inbox.done:
            return self._finish(None)
        try:
            status = self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:  # it closed its pipe and lives on
            self._process.kill()
            status = self._process.wait()
        self._kill()  # with whatever it started, which may still hold the log open
        if status >= 0:
            return self._finish(self._explain("worker_exited", status=status))
        # Real-time signals have no name.
        names = {entry.value: entry.name for entry in signal.Signals}
        name = names.get(-status, f"signal {-status}")
        return self._finish(self._explain("worker_killed" if name == "SIGKILL" else "worker_died", signal=name))

    def _finish(self, failure: Reason | None) -> None:
        self.over, self.failure = True, failure

    def _write_stack(self) -> None:
        """End it once its log has where it is: the op's process if a judge waits for that, else itself."""
        self._take_given()
        for handle in self._given:
            signal_group(handle, signal.SIGUSR1)
        if not self._given:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGUSR1)
        time.sleep(_STACK_S)
        self._kill()

    def _take_given(self) -> None:
        if self._socket and self._task.is_judge:
            self._given, self._socket = take_given(self._socket), None

    def _kill(self) -> None:
        """End it and whatever it started. A process can only have left its group if this kernel cannot fence it in."""
        self.kill()
        self._process.wait()
        self._take_given()
        while self._given:
            handle = self._given.pop()
            signal_group(handle, signal.SIGKILL)
            os.close(handle)
        # One that died before it read its task leaves some of it unsent.
        with contextlib.suppress(BrokenPipeError):
            if self._process.stdin:
                self._process.stdin.close()
        self._log.join(_CLOSE_S)

    def _explain(self, kind: str, **facts: Fact) -> Reason:
        doing, log = self._inbox.doing, self._around.log
        home = self._around.shown_from or self._around.folder
        shown = (log.relative_to(home) if log.is_relative_to(home) else log).as_posix()
        try:
            text = read_regular(log).decode(errors="replace")
        except OSError:
            text = ""
        facts |= {"op": doing.op, "where": doing.where, "log": shown, "words": find_last_words(text)}
        if kind in {"worker_died", "worker_hung"}:
            facts["at"] = find_frame(text, self._task.place)
        return Reason(kind, facts)


# --- to their end, one alone or several side by side -----------------------------------------------------------------

Working = Generator[Sequence[Running], None, Reason | None]
"""Workers under way: yields those that it waits for, and returns why they failed."""


def run_worker(task: Task, around: WorkerEnvironment, heard: Callable[[Message], None]) -> Reason | None:
    """Run one worker to its end. Returns why it failed as a whole. Whatever interrupts this kills it first."""
    with start_worker(task, around) as worker:
        while not worker.over:
            wait([worker])
            for message in worker.hear():
                heard(message)
        return worker.failure


def working(task: Task, around: WorkerEnvironment, heard: Callable[[Message], None]) -> Working:
    """Run one worker, and leave the waiting to the caller. Closing the generator kills the worker."""
    with start_worker(task, around) as worker:
        while not worker.over:
            yield (worker,)
            for message in worker.hear():
                heard(message)
        yield (worker,)  # to end it takes a moment: meanwhile others go on
        return worker.failure


def side_by_side(lanes: Sequence[Iterator[Sequence[Running]]]) -> None:
    """Go on with each until all have ended, in one thread: whatever they share needs no lock.

    Each yields the workers that it waits for. Whatever is raised, here or by one of them, closes all and kills workers.
    """
    with ExitStack() as stack:
        for lane in lanes:
            if isinstance(lane, Generator):
                stack.callback(lane.close)
        going = {lane: next(lane, None) for lane in lanes}
        while going := {lane: workers for lane, workers in going.items() if workers is not None}:
            waiting = [worker for workers in going.values() for worker in workers or ()]
            if not any(worker.over for worker in waiting):  # a lane goes on at once with one that is over
                wait(waiting)
            going = {lane: next(lane, None) for lane in going}
