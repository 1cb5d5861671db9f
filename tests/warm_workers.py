"""Workers forked from one process that has imported what they need: importing is most of what a short one costs.

Each is a process of its own all the same, with its own variables, folder, session and pipes. tests/worker starts them
as perfci does, and so does every test that runs perfci as a program.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from perfci.core.environment import worker_environment
from perfci.worker import confine, parent

COMMAND = [sys.executable, "-P", "-X", "faulthandler", "-m", "perfci.worker.child"]
CONFINED = [sys.executable, "-I", "-S", confine.__file__]
"""What COMMAND follows, and folders, if the worker runs an op's own code."""

MODULES = (
    "perfci.worker.child",
    "perfci.worker.work",
    "perfci.worker.remote",
    "perfci.worker.serve",
    "perfci.device.fake",
    "numpy.ma",
    "numpy.random",
    "unittest.mock",
)
INTERPRETED = ("torch", "triton", "triton.language", "perfci.device.cpu")
"""What a worker on Triton's interpreter needs as well."""

AT_START = (
    *("PYTHON", "LD_", "LC_", "LANG", "OMP_", "TORCH_", "TRITON_INTERPRET"),
    *("NPU_STAND_IN_CANN", "NPU_STAND_IN_LACKS"),
)
"""Beginnings of the variables that Python and its libraries read as they start."""

LATER = {"TORCH_EXTENSIONS_DIR"}
"""Those that are read when they are needed."""

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


class Forked:
    """What perfci uses of a Popen."""

    def __init__(self, pid: int, stdin: int, stdout: int) -> None:
        self.pid, self.stdin, self.stdout = pid, os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def wait(self, timeout: float = 60.0) -> int:
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(COMMAND, timeout)
            time.sleep(0.002)
        return status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class WarmWorkers:
    """Two such processes, each started when it is first needed: the second has imported torch and Triton."""

    def __init__(self) -> None:
        self._environments = [worker_environment(os.environ, (), interpret, Path()) for interpret in (False, True)]
        self._servers: dict[bool, Server] = {}

    def start(self, command: list[str], **options: Any) -> Forked | subprocess.Popen[bytes]:
        """What subprocess.Popen does."""
        interpret = "TRITON_INTERPRET" in options["env"]
        if interpret not in self._servers:
            modules = (*MODULES, *INTERPRETED) if interpret else MODULES
            self._servers[interpret] = Server.begin(self._environments[interpret], modules)
        return self._servers[interpret].start(command, **options)

    def close(self) -> None:
        for server in self._servers.values():
            server.close()


class Server:
    """The process that workers are forked from, for those with these variables."""

    def __init__(self, orders: socket.socket, variables: dict[str, Any], end: Callable[[], object]) -> None:
        """`orders`: this process's side of what the other serves. end: called when there are no more."""
        self._socket, self._variables, self._end = orders, variables, end
        self._prctl = ctypes.CDLL(None).prctl

    @classmethod
    def begin(cls, environment: Mapping[str, str], modules: Sequence[str]) -> Server:
        """In a new interpreter, which has imported these modules."""
        import perfci

        given = environment.get("PYTHONPATH")
        root = str(Path(perfci.__file__).parents[1])
        environment = {**environment, "PYTHONPATH": os.pathsep.join([root, *([given] if given else [])])}
        mine, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with orders:
            process = subprocess.Popen(
                [*COMMAND[:4], __file__, *modules, str(orders.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[orders.fileno()],
                env=environment,
            )
        return cls(mine, _read_at_start(environment), process.communicate)

    @classmethod
    def fork(cls, variables: dict[str, Any]) -> Server:
        """In a copy of this process, which has not begun its own work. It ends with this one."""
        mine, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if not os.fork():
            mine.close()
            serve(orders)
            work()
        orders.close()
        return cls(mine, variables, lambda: None)

    def start(self, command: list[str], **options: Any) -> Forked | subprocess.Popen[bytes]:
        """A worker. Other interpreters, and other variables for them, are left to subprocess.Popen."""
        environment = dict(options["env"])
        confined = command[: len(CONFINED)] == CONFINED
        folders, program = (command[len(CONFINED)], command[len(CONFINED) + 1 :]) if confined else (None, command)
        if program != COMMAND or _read_at_start(environment) != self._variables:
            return subprocess.Popen(command, **options)
        (stdin, writing), (reading, stdout) = os.pipe(), os.pipe()
        passed = list(options["pass_fds"])
        order = json.dumps([environment, str(options["cwd"]), folders, passed]).encode()
        # The worker's own parent ends at once. This process then is the one to wait for the worker.
        self._prctl(_SUBREAPER, 1)
        try:
            socket.send_fds(self._socket, [order], [stdin, stdout, *passed])
            pid = int(self._socket.recv(64))
        finally:
            self._prctl(_SUBREAPER, 0)
            os.close(stdin)
            os.close(stdout)
        return Forked(pid, writing, reading)

    def close(self) -> None:
        self._socket.close()
        self._end()


def _read_at_start(environment: Mapping[str, str]) -> dict[str, Any]:
    """Without what needs no new interpreter: folders of its own, such as that in which modules are found first."""
    known = {name: value for name, value in environment.items() if name.startswith(AT_START) and name not in LATER}
    return known | {"PYTHONPATH": environment.get("PYTHONPATH", "").split(os.pathsep)[1:]}


def serve(orders: socket.socket) -> None:
    """Fork a worker for each order. Returns in the workers alone."""
    while True:
        order, fds, _, _ = socket.recv_fds(orders, 1 << 20, 8)
        if not order:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if not between and not os.fork():
            os.setsid()
            os.write(writing, str(os.getpid()).encode())
            orders.detach()
            return become(fds, *json.loads(order))
        if not between:
            os._exit(0)
        os.waitpid(between, 0)
        orders.send(os.read(reading, 64))
        for fd in (reading, writing, *fds):
            os.close(fd)


def become(fds: list[int], environment: dict[str, str], folder: str, writable: str | None, passed: list[int]) -> None:
    """Take a worker's variables, folder, pipes and confinement. writable: None if it runs no code of an op."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    targets = [0, 1, *passed]
    aside = [fcntl.fcntl(fd, fcntl.F_DUPFD, max(targets) + 1) for fd in fds]
    for source, target in zip(aside, targets, strict=True):
        os.dup2(source, target)
    os.dup2(1, 2)
    for first, last in itertools.pairwise(sorted({2, *passed, max(aside) + 1})):
        os.closerange(first + 1, last)
    if writable is None:
        # A judge starts the process of the op's own code.
        started = Server.fork(_read_at_start(environment))
        parent.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": started.start})  # type: ignore[assignment]
    else:
        confine.confine([each for each in writable.split(os.pathsep) if each])
    sys.path.insert(0, environment["PYTHONPATH"].split(os.pathsep)[0])


def work() -> NoReturn:
    """Do a worker's job. Taking apart all that was imported would take longer than most jobs."""
    sys.modules[MODULES[0]].main()
    if threading.active_count() == 1 + sum(thread.daemon for thread in threading.enumerate()):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    sys.exit()


if __name__ == "__main__":
    _, *modules, fd = sys.argv
    for name in modules:
        with contextlib.suppress(ImportError):  # torch may be missing
            importlib.import_module(name)
    del sys.path[0], sys.argv[1:]  # sys.path: where perfci was found
    # Else each worker would get a copy of every page, as soon as it looked for garbage.
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(fd)))
    work()
