"""Workers forked from one process that has imported what they need: importing is most of what a short one costs.

Each is a process of its own all the same, with its own variables, folder, session and pipes. tests/worker starts them
as perfci does, and so does every test that runs perfci as a program.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfci.core.environment import worker_environment

COMMAND = [sys.executable, "-P", "-X", "faulthandler", "-m", "perfci.worker.child"]
MODULES = ("perfci.worker.child", "perfci.worker.work", "perfci.device.fake")
INTERPRETED = ("torch", "triton", "triton.language", "perfci.device.cpu")
"""What a worker on Triton's interpreter needs as well."""

AT_START = ("PYTHON", "LD_", "LC_", "LANG", "OMP_", "TORCH_", "TRITON_INTERPRET")
"""Beginnings of the variables that Python and its libraries read as they start."""

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
            self._servers[interpret] = Server(self._environments[interpret], modules)
        return self._servers[interpret].start(command, **options)

    def close(self) -> None:
        for server in self._servers.values():
            server.close()


class Server:
    """The process that workers are forked from, for those with these variables."""

    def __init__(self, environment: Mapping[str, str], modules: Sequence[str]) -> None:
        import perfci

        given = environment.get("PYTHONPATH")
        path = os.pathsep.join([str(Path(perfci.__file__).parents[1]), *([given] if given else [])])
        environment = {**environment, "PYTHONPATH": path}
        self._variables = _read_at_start(environment)
        self._socket, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with orders:
            self._process = subprocess.Popen(
                [*COMMAND[:4], __file__, *modules, str(orders.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[orders.fileno()],
                env=environment,
            )
        self._prctl = ctypes.CDLL(None).prctl

    def start(self, command: list[str], **options: Any) -> Forked | subprocess.Popen[bytes]:
        """A worker. Other interpreters, and other variables for them, are left to subprocess.Popen."""
        environment = dict(options["env"])
        if command != COMMAND or _read_at_start(environment) != self._variables:
            return subprocess.Popen(command, **options)
        (stdin, writing), (reading, stdout) = os.pipe(), os.pipe()
        (events,) = options["pass_fds"]
        order = json.dumps([environment, str(options["cwd"]), events]).encode()
        # The worker's own parent ends at once. This process then is the one to wait for the worker.
        self._prctl(_SUBREAPER, 1)
        try:
            socket.send_fds(self._socket, [order], [stdin, stdout, events])
            pid = int(self._socket.recv(64))
        finally:
            self._prctl(_SUBREAPER, 0)
            os.close(stdin)
            os.close(stdout)
        return Forked(pid, writing, reading)

    def close(self) -> None:
        self._socket.close()
        self._process.communicate()


def _read_at_start(environment: Mapping[str, str]) -> dict[str, Any]:
    """A worker's modules are found in a folder of its run's first, which needs no new interpreter."""
    known = {name: value for name, value in environment.items() if name.startswith(AT_START)}
    return known | {"PYTHONPATH": environment.get("PYTHONPATH", "").split(os.pathsep)[1:]}


def serve(orders: socket.socket) -> None:
    """Fork a worker for each order. Returns in the workers alone."""
    while True:
        order, fds, _, _ = socket.recv_fds(orders, 1 << 20, 3)
        if not order:
            sys.exit()
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


def become(fds: list[int], environment: dict[str, str], folder: str, events: int) -> None:
    """Take a worker's variables, folder and pipes."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, environment["PYTHONPATH"].split(os.pathsep)[0])
    reading, printing, sending = (fcntl.fcntl(fd, fcntl.F_DUPFD, events + 1) for fd in fds)
    for source, target in ((reading, 0), (printing, 1), (printing, 2), (sending, events)):
        os.dup2(source, target)
    os.closerange(3, events)
    os.closerange(events + 1, sending + 1)


if __name__ == "__main__":
    _, *modules, fd = sys.argv
    for name in modules:
        with contextlib.suppress(ImportError):  # torch may be missing
            importlib.import_module(name)
    del sys.path[0], sys.argv[1:]  # sys.path: where perfci was found
    serve(socket.socket(fileno=int(fd)))
    sys.modules[MODULES[0]].main()
