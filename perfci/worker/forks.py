"""Workers forked from a process that has imported what they need: importing is most of what a short one costs.

Each is a separate process all the same, with its variables, folder, session and pipes, and confined before it
runs code of a project. The process that they come from opens no device and imports nothing of a project.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import select
import signal
import site
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NoReturn

from perfci.core import bytecode
from perfci.core.variables import OWN

LATE: tuple[str, ...] = (*OWN, "CUDA_VISIBLE_DEVICES", "FAKE_VISIBLE_DEVICES")
"""Beginnings of the variables that are read when they are needed. Others may have been read before a fork."""

MOST = 4  # such processes at a time: a run needs two

Places = Sequence[Sequence[str]]
"""What `confine.confine` takes: folders that can be written, that are hidden, and what of these is shown."""

_COMMAND = [sys.executable, "-P", "-X", "faulthandler", "-c", "from perfci.worker import forks; forks.main()"]
_IMPORT_S = 120.0  # longest time that the imports may take
_ADOPT = 36  # PR_SET_CHILD_SUBREAPER
_LONGEST = 1 << 20  # bytes of an order
_READY = b"ready"
_IDLE_S = 0.2  # without an order, after which it imports what workers need later


class NotForkedError(OSError):
    """The process that workers are forked from has ended: it names the file of another module, or nothing."""


class Forked:
    """A worker that was forked: what `Running` uses of a Popen."""

    def __init__(self, pid: int, stdin: int, stdout: int) -> None:
        self.pid, self.stdin, self.stdout = pid, os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        self._status: int | None = None

    def poll(self) -> int | None:
        """Returns its exit status, as `subprocess` counts them. None while it runs."""
        return self._status if self._status is not None else self._await(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises TimeoutExpired."""
        if timeout is None and self._status is None:
            self._await(0)
        end = time.monotonic() + (timeout or 0.0)
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            time.sleep(0.002)
        return status

    def kill(self) -> None:
        """Kill it if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _await(self, how: int) -> int | None:
        pid, status = os.waitpid(self.pid, how)
        self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status


class ForkServer:
    """The process that workers are forked from, as seen from the one that wants them."""

    def __init__(self, orders: socket.socket, end: Callable[[], object], *, ready: bool = False) -> None:
        """`end`: what ends the process once its socket is closed."""
        self._socket, self._end, self._ready = orders, end, ready

    def fork(
        self, environment: Mapping[str, str], folder: Path, places: Places | None, passed: Sequence[int]
    ) -> Forked:
        """Fork a worker that is confined to these places. None: it is not. Raises OSError if that fails."""
        if not self._ready:
            self._socket.settimeout(_IMPORT_S)
            if (answer := self._socket.recv(_LONGEST)) != _READY:
                raise NotForkedError(answer.decode())
            self._ready = True
        (stdin, writing), (reading, stdout) = os.pipe(), os.pipe()
        order = json.dumps([dict(environment), str(folder), places, list(passed)]).encode()
        # The worker's parent ends at once. This process then is the one to wait for the worker.
        prctl = ctypes.CDLL(None).prctl
        prctl(_ADOPT, 1, 0, 0, 0)
        try:
            socket.send_fds(self._socket, [order], [stdin, stdout, *passed])
            pid = int(self._receive())
        except BaseException:
            os.close(writing)
            os.close(reading)
            raise
        finally:
            prctl(_ADOPT, 0, 0, 0, 0)
            os.close(stdin)
            os.close(stdout)
        return Forked(pid, writing, reading)

    def is_ready(self) -> bool:
        """Whether it answers at once: it has imported what its workers need, or has ended."""
        return self._ready or bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        """End it. Its workers go on."""
        self._socket.close()
        self._end()

    def _receive(self) -> bytes:
        if not (answer := self._socket.recv(64)):
            raise ConnectionError
        return answer


_servers: dict[str, ForkServer | None] = {}
"""By the variables of their workers. None: such workers cannot be forked here."""

_refused: dict[str, str] = {}
"""The file on PYTHONPATH for which such workers cannot be forked here. No name for any other cause."""


def find_obstacle() -> str | None:
    """The file for which workers of this process were started anew, or no name. None if all were forked."""
    return next(iter(_refused.values()), None)


def begin(
    environment: Mapping[str, str], folder: Path, program: str, modules: Iterable[str], later: Iterable[str] = ()
) -> str:
    """Start a process for workers with such variables, unless there is one: it imports modules, then forks them.

    later: modules that it imports once it has forked a worker and has nothing to do. What fails then is left out.
    environment: its PYTHONPATH begins with a folder that has perfci and nothing of a project. folder: what relative
    paths in it start from. program: the module that has the `main` of such workers. Returns what they share by name.
    """
    key, (package, *rest) = _find_key(environment), environment["PYTHONPATH"].split(os.pathsep)
    # Python runs such files as it starts. They are the project's if that is on the path.
    rest = [str(folder / entry) for entry in rest]
    customising = (Path(entry, f"{name}customize.py") for entry in rest for name in ("site", "user"))
    if customised := next((file for file in customising if file.exists()), None):
        _refused[key] = str(customised)
    if sys.platform != "linux" or customised or key in _servers:
        return key
    if len(_servers) >= MOST:
        end(next(iter(_servers)))
    folder_of_bytecode = bytecode.find_folder("torch") or ""
    server, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with orders:
        process = subprocess.Popen(
            [*_COMMAND, str(orders.fileno()), os.pathsep.join(rest), folder_of_bytecode, program, *modules, "", *later],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[orders.fileno()],
            env={**environment, "PYTHONPATH": package},
            cwd=package,
            start_new_session=True,  # a signal to this process's group must not end it first
        )

    def kill() -> None:
        process.kill()
        process.communicate()

    if not _servers:
        atexit.register(end)
    _servers[key] = ForkServer(server, kill)
    return key


def start(environment: Mapping[str, str], folder: Path, places: Places | None, passed: Sequence[int]) -> Forked | None:
    """Fork a worker, as `ForkServer.fork` does. None if there is no process for it: it has to be started as any is."""
    key = _find_key(environment)
    if (server := _servers.get(key)) is None:
        return None
    try:
        return server.fork(environment, folder, places, passed)
    except BaseException as error:
        end(key)
        _servers[key] = None
        _refused[key] = str(error) if isinstance(error, NotForkedError) else ""
        if isinstance(error, OSError):
            return None
        raise


def is_ready(environment: Mapping[str, str]) -> bool:
    """Whether a worker with such variables starts at once, forked or not."""
    server = _servers.get(_find_key(environment))
    return server is None or server.is_ready()


def end(key: str | None = None) -> None:
    """End one of these processes, or all."""
    for name in [*_servers] if key is None else [key]:
        if server := _servers.pop(name):
            server.close()


def _find_key(environment: Mapping[str, str]) -> str:
    return json.dumps(sorted(item for item in environment.items() if not item[0].startswith(LATE)))


# --- the process that workers are forked from -------------------------------------------------------------------------


def main() -> None:
    """Import modules, and fork a worker for each order. A worker then runs its program."""
    _, descriptor, added, kept, program, *modules = sys.argv
    modules, later = modules[: modules.index("")], modules[modules.index("") + 1 :]
    del sys.argv[1:]
    orders, package, *others = socket.socket(fileno=int(descriptor)), *sys.path
    gc.disable()  # nothing that is imported is garbage: to look for some takes a sixth of torch's import
    with bytecode.kept_in(kept):
        _import([program, *modules])
    path = [package, *(added.split(os.pathsep) if added else []), *others]
    others_files = (_find_other(name, path) for name in {name.partition(".")[0] for name in sys.modules})
    if file := next(filter(None, others_files), None):
        orders.send(file.encode())
        return
    # Else each worker would get a copy of every page, as soon as it looked for garbage. Of that torch leaves little:
    # to look for it here takes a tenth of its import.
    gc.freeze()
    gc.enable()
    # Libraries end their threads before a fork. One that lives on might hold a lock, for ever in a worker.
    if not (trial := os.fork()):
        os._exit(0)
    os.waitpid(trial, 0)
    if len([*Path("/proc/self/task").iterdir()]) > 1:
        return
    orders.send(_READY)
    _serve(orders, functools.partial(_import_later, later, kept, path) if later else None)
    sys.path[:] = [*(str(Path.cwd() / part) for part in os.environ["PYTHONPATH"].split(os.pathsep)), *others]
    _work(program)


def _import(modules: Sequence[str]) -> None:
    """Import from where Python is installed alone. What fails otherwise than by a missing package fails here."""
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    installed += [sys.path[0], *site.getsitepackages(), site.getusersitepackages()]
    sys.path[:] = [entry for entry in sys.path if any(Path(entry).is_relative_to(home) for home in installed)]
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in {"torch", "triton"}:
                raise
    # Of all of Triton's files, and kept: to take it takes 0.4 s. An interpreter asks for none.
    if "TRITON_INTERPRET" not in os.environ:
        getattr(sys.modules.get("triton.runtime.cache"), "triton_key", lambda: None)()
    # Where each module really lies, which every worker asks of all of them.
    getattr(sys.modules.get("perfci.worker.apart"), "stray_import", lambda _: None)(Path(os.devnull))


def _import_later(modules: Sequence[str], kept: str, path: Sequence[str]) -> None:
    """Import what some workers need. If a worker's path leads to another module of such a name, none can be forked."""
    before = {*sys.modules}
    with bytecode.kept_in(kept):
        for name in modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    if any(_find_other(name, path) for name in {name.partition(".")[0] for name in sys.modules.keys() - before}):
        os._exit(0)
    gc.freeze()


def _find_other(name: str, path: Sequence[str]) -> str | None:
    """The file of another module of this name than the one that was imported, if a worker's path leads to one."""
    spec = getattr(sys.modules[name], "__spec__", None)
    other = PathFinder.find_spec(name, path) if spec and spec.has_location else None
    return str(other.origin) if other and spec and other.origin != spec.origin else None


def _serve(orders: socket.socket, later: Callable[[], None] | None = None) -> None:
    """Fork a worker for each order, until there are no more. Returns in the workers alone.

    later: what it does once after its first order, when none comes for a while.
    """
    idle_s = None
    while True:
        if later and not select.select([orders], [], [], idle_s)[0]:
            later()
            later = None
        idle_s = _IDLE_S
        order, descriptors, _, _ = socket.recv_fds(orders, _LONGEST, 16)
        if not order:
            os._exit(0)
        reading, writing = os.pipe()
        if not (between := os.fork()):
            if os.fork():
                os._exit(0)
            os.setsid()
            os.write(writing, str(os.getpid()).encode())
            orders.detach()
            return _become(descriptors, *json.loads(order))
        os.waitpid(between, 0)
        orders.send(os.read(reading, 64))
        for descriptor in (reading, writing, *descriptors):
            os.close(descriptor)


def _become(
    descriptors: list[int], environment: dict[str, str], folder: str, places: Places | None, passed: list[int]
) -> None:
    """Take a worker's variables, folder, pipes and confinement."""
    import fcntl  # not on Windows

    from perfci.worker import confine

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None  # it was found by other variables
    if random := sys.modules.get("numpy.random"):
        random.seed()  # or every worker would draw the same
    targets = [0, 1, *passed]
    aside = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, max(targets) + 1) for descriptor in descriptors]
    for source, target in zip(aside, targets, strict=True):
        os.dup2(source, target)
    os.dup2(1, 2)
    confine.close_all_but(*passed)
    if places is not None:
        confine.isolate()
        confine.confine(*places)
        return
    confine.take_memory()
    # A judge starts the process of the op's code: from a copy of this one, which has not begun its work.
    server, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        confine.close_all_but(orders.fileno())
        _serve(orders)
        return
    orders.close()
    _servers[_find_key(environment)] = ForkServer(server, lambda: None, ready=True)


def _work(program: str) -> NoReturn:
    """Run a worker's program. Taking apart all that was imported would take longer than most jobs."""
    importlib.import_module(program).main()
    if threading.active_count() == 1 + sum(thread.daemon for thread in threading.enumerate()):
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)
    sys.exit()
