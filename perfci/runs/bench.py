"""What a run's workers run in: folders, variables, a time limit, and who listens."""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from perfci import store
from perfci.core import PACKAGE, environment
from perfci.core.codec import decode
from perfci.core.errors import GitError
from perfci.core.model import Reason
from perfci.core.settings import FILE, Settings, take_grants
from perfci.core.temporary import remove_abandoned, temporary_folder
from perfci.core.variables import OPENS_NONE, OWN, worker_environment
from perfci.core.wording import say
from perfci.git import list_places
from perfci.git.base import resolve
from perfci.git.command import read_file
from perfci.ops.backends import BACKENDS, Interpreter
from perfci.ops.discover import OpFolder
from perfci.ops.fingerprint.tree import Tree
from perfci.worker import forks, warm
from perfci.worker.process import confined
from perfci.worker.protocol import Message, Noted
from perfci.worker.tasks import Opening, OpFiles, Place, WorkerEnvironment

Listener = Callable[[Message], None]

PRIVATE = "own"  # folder in the run's folder with one for each worker
WRITABLE = "PERFCI_WRITABLE"  # variable that names further folders that all workers may write, separated as in PATH

GRANTING, NOTHING = "PERFCI_GRANTING", "none"
"""Variable by which a run that several machines share gives them what `find_granting` returns"""

LOGS = "logs"  # folder in reports/ with what workers printed

VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "npu": "ASCEND_RT_VISIBLE_DEVICES", "fake": "FAKE_VISIBLE_DEVICES"}
"""Variable by which a process is given its devices."""

BOARD = "PERFCI_BOARD"
"""Variable by which this process is given the devices of its workers, as VISIBLE names them: the first for first looks
"""

NEEDED = ("msgspec", "numpy", "scipy", "yaml")  # to run kernels, and torch for real devices. perfci is lent

PROBE_LIMIT_S = 60.0

_PROBE = """
import contextlib, importlib.util, json, sys
from importlib import metadata
def has(name):
    with contextlib.suppress(ImportError, ValueError):
        return importlib.util.find_spec(name) is not None
    return False
assert sys.version_info >= (3, 11), "perfci runs in Python 3.11 or newer"
missing = [name for name in sys.argv[1].split(",") if not has(name)]
assert not missing, "it lacks " + ", ".join(missing)
found = {one.metadata["Name"]: one.version for one in metadata.distributions()}
found["python"] = ".".join(map(str, sys.version_info[:3]))
print(json.dumps([found, [name for name in sys.argv[2].split(",") if has(name)]]))
"""


@dataclass(frozen=True)
class Bench:
    """What a run's workers run in."""

    settings: Settings
    folder: Path  # the run's own: compiled kernels, the base revision's files
    listener: Listener
    home: Path | None = None  # root of the project under test if `settings` are those of another revision of it
    sealed: dict[Path, str] = field(default_factory=dict)
    """root of a project -> digest of its thresholds and baselines, from before a kernel ran"""
    spent_s: dict[str, float] = field(default_factory=dict)  # seconds outside the ops' workers by step
    stamps: dict[Path, str] = field(default_factory=dict)
    """folder that was written for this run -> what changes if a file in it does, in its mode, size or content"""
    trees: dict[Path, Tree] = field(default_factory=dict)  # files of a project, by its root
    needed: dict[tuple[Path, tuple[str, ...]], Settings] = field(default_factory=dict)
    """root of a project, and ops of it -> settings that lead to a copy of what they need"""
    interpreters: dict[str, Interpreter | str] = field(default_factory=dict)
    """path of another Python -> what it has, or why it cannot be used"""
    boards: list[str] = field(default_factory=list)
    """the host's devices that are not put aside, as VISIBLE names them. Empty if all are alike in that"""

    @functools.cached_property
    def hidden(self) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """What a worker may not read that gets a copy of what its ops need, and what of it all the same."""
        return list_places(self.home or self.settings.root)

    def find_python(self, backend: str) -> str | None:
        """Returns where the interpreter is that the settings name for a backend's ops. None for this one."""
        python = self.settings.backends.get(backend, {}).get("python")
        return locate(python, self.home or self.settings.root) if python else None

    def find_interpreter(self, backend: str, device: str) -> Interpreter | str | None:
        """Returns the interpreter that the settings name for a backend, or why it cannot be used. None: they do not."""
        return self.probe(python, device) if (python := self.find_python(backend)) else None

    def probe(self, python: str, device: str) -> Interpreter | str:
        """Returns an interpreter with what is installed in it, once a run. If it cannot run an op's code: why."""
        if python not in self.interpreters:
            self.interpreters[python] = _probe(self, python, device)
        return self.interpreters[python]

    @contextmanager
    def timing(self, step: str) -> Iterator[None]:
        """The time inside is added to a step of the run."""
        began = time.monotonic()
        yield
        self.spent_s[step] = round(self.spent_s.get(step, 0.0) + time.monotonic() - began, 3)


@contextmanager
def open_bench(settings: Settings, listener: Listener) -> Iterator[Bench]:
    """A bench with a separate folder, which goes when the run ends."""
    remove_abandoned()
    with temporary_folder("run") as folder:
        yield Bench(hold_grants(settings), folder, listener)


def hold_grants(settings: Settings, variables: Mapping[str, str] = os.environ) -> Settings:
    """Returns the settings with what the base of a change grants, if a pipeline runs this. Else unchanged."""
    commit = find_granting(settings, variables)
    if not commit:
        return settings
    return take_grants(settings, None if commit == NOTHING else read_file(settings.root, commit, FILE))


def find_granting(settings: Settings, variables: Mapping[str, str] = os.environ) -> str:
    """Returns the commit whose settings grant something to a change. Empty if those of the project at hand do.

    Without a base NOTHING is granted, but on the default branch and outside of a repository: nothing is asked to merge.
    """
    if GRANTING in variables:
        return variables[GRANTING]
    if not environment.in_ci(variables):
        return ""
    try:
        return resolve(settings.root, None, variables).commit
    except GitError as error:
        return "" if error.reason.kind in {"no_base", "no_repository"} else NOTHING


def stamp(folder: Path) -> str:
    """Returns what changes with any change of a file below a folder: a kernel can set no file's time of change."""
    digest = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        for name in (".", *sorted((*folders, *files))):
            status = os.lstat(f"{place}/{name}")
            digest.update(
                f"{place}/{name}\0{status.st_ino} {status.st_mode} {status.st_ctime_ns}\n".encode(errors="replace")
            )
    return digest.hexdigest()


@contextmanager
def claim_bench(settings: Settings, listener: Listener) -> Iterator[Bench]:
    """A bench for a run that writes the reports folder, once no other does. Raises StoredFileError."""
    folder = str(settings.reports)

    def wait(holder: str) -> None:
        listener(Noted(Reason("reports_waiting", {"folder": folder, "holder": holder})))

    with store.claim_reports(settings.reports, wait, settings.lock_wait_s), open_bench(settings, listener) as bench:
        yield bench


@dataclass(frozen=True)
class WorkerPlace:
    """What is particular about one worker's surroundings."""

    name: str  # of its log
    device: str
    root: Path | None = None  # of the project that it works on. None for the one under test
    python: str | None = None  # another interpreter
    process: int = 0
    devices: int = 1  # of the host: the processes of a run take turns on them
    until_s: float | None = None  # when it is ended whatever it does, seconds since the epoch
    beside: Path | None = None  # root of the base, which is imported in the same process
    backend: str = ""  # whose ops it runs: the settings may name an interpreter for that


def make_environment(bench: Bench, place: WorkerPlace) -> WorkerEnvironment:
    """A worker's environment, folder, log and time limit."""
    settings, python = bench.settings, place.python or bench.find_python(place.backend)
    # Describing on the CPU is for the interpreter too, so that all workers start alike.
    interpret = place.device == "cpu" or (place.device == "auto" and not _may_have_accelerator())
    private = bench.folder / PRIVATE / place.name
    variables = worker_environment(os.environ, settings.environment, interpret, private)
    for folder in OWN.values():
        (private / folder).mkdir(parents=True, exist_ok=True)
    if name := VISIBLE.get(place.device):
        # The first device for the first process, the next ones for later looks.
        devices = name_devices(variables, place.device, place.devices)
        given = bench.boards or (devices if place.devices > 1 else [])
        given = os.environ[BOARD].split(",") if os.environ.get(BOARD) else given
        variables |= {name: given[place.process % len(given)]} if given else {}
    variables |= _python_path(variables, bench, is_ours=python is None)
    if python:
        variables.pop("PYTHONHOME", None)
    variables |= OPENS_NONE if place.device == "offline" else {}
    more = filter(None, os.environ.get(WRITABLE, "").split(os.pathsep))
    logs = settings.reports / LOGS
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError:  # a doctor is asked why
        logs = bench.folder / LOGS
    root = place.root or settings.root
    # Who gets a copy of what an op needs sees nothing else of the project, and no one sees the other folders of a run.
    narrow = root.is_relative_to(bench.folder)
    return WorkerEnvironment(
        environment=variables, folder=root, log=logs / f"{place.name}.log",
        limit_s=settings.time_limit_s, until_s=place.until_s,
        python=python or sys.executable, shown_from=settings.root,
        writable=(private, *(folder for folder in map(Path, ("/dev/shm", *more)) if folder.is_dir())),
        hidden=(bench.folder, *(bench.hidden[0] if narrow else ())),
        shown=(root, PACKAGE, *([place.beside] if place.beside else []), *(bench.hidden[1] if narrow else ())),
    )  # fmt: skip


def warm_up(bench: Bench, device: str) -> None:
    """Begin to import, in a separate process, what workers on a device need. They are forked from it."""
    if environment.installed_versions(["torch-npu"]):  # its import may open a device, and has to come first
        return
    around = make_environment(bench, WorkerPlace("start", device))
    warm.settle(warm.begin_forks(device, around.environment, around.folder))


def explain_slow_start() -> Reason | None:
    """Why each worker has imported its packages anew. None if they were forked from a process that had them."""
    file = forks.find_obstacle()
    if file is None:
        return None
    return Reason("workers_anew_path", {"file": file}) if file else Reason("workers_anew")


def move_path(path: Path, root: Path, other: Path) -> Path:
    """The same place below another root."""
    return other / path.relative_to(root) if path.is_relative_to(root) else path


def call_both(first: Listener, second: Listener) -> Listener:
    """Two listeners as one."""

    def heard(message: Message) -> None:
        first(message)
        second(message)

    return heard


def name_devices(variables: Mapping[str, str], device: str, visible: int) -> list[str]:
    """Names (indexes, UUIDs) of a kind's devices for this process. visible: of a divided board's slices it sees one."""
    given = variables.get(VISIBLE.get(device, ""), "")
    devices = given.split(",") if given else [str(number) for number in range(visible)]
    return devices if all(name.startswith("MIG-") for name in devices) else devices[:visible]


def _may_have_accelerator() -> bool:
    return warm.has_nodes() or bool(environment.installed_versions(["torch-npu"]))


def _python_path(variables: Mapping[str, str], bench: Bench, *, is_ours: bool) -> dict[str, str]:
    """The path of a worker's modules: this perfci, then what was added. Folders of the project are its folder's.

    Another interpreter sees nothing else that was added for this one.
    """
    kept = [move_path(Path(entry), bench.home or bench.settings.root, Path()) for entry in warm.list_path(variables)]
    if not is_ours:
        kept = [entry for entry in kept if not entry.is_absolute()]
    return {"PYTHONPATH": os.pathsep.join(map(str, (warm.own_package(), *kept)))}


def list_files(folders: Iterable[OpFolder]) -> tuple[OpFiles, ...]:
    """Where ops live, for workers."""
    return tuple(OpFiles(op.op, op.folder) for op in folders)


def place_ops(settings: Settings, ops: Sequence[OpFiles], head_root: Path | None = None) -> Place:
    """Where ops of a project, or a chain, live. head_root: of the project under test, if these are the base's."""
    return Place(tuple(ops), settings.kernels, settings.root, head_root)


def plan_opening(settings: Settings, device: str, seed: int, timer: str = "auto", process: int = 0) -> Opening:
    """How a worker of a project opens the device."""
    return Opening(
        device, seed, timer, process,
        lock_folder=settings.lock_folder, lock_wait_s=settings.lock_wait_s, fake=settings.fake,
    )  # fmt: skip


def locate(python: str, root: Path) -> str:
    """Returns where an interpreter is. A path begins at the root, a name is looked for in PATH.

    A path must not depend on where a worker runs. A link to an interpreter is an interpreter of its own.
    """
    return os.path.abspath(root / python) if os.sep in python else shutil.which(python) or python  # noqa: PTH100


def _probe(bench: Bench, python: str, device: str) -> Interpreter | str:
    needed = NEEDED if device == "fake" else (*NEEDED, "torch")
    packages = {name for backend in BACKENDS.values() for name in backend.packages}
    modules = sorted({*packages, *(name.partition(".")[0] for name in packages)})
    around = make_environment(bench, WorkerPlace("probe", "offline", python=python))
    command = confined([python, "-c", _PROBE, ",".join(needed), ",".join(modules)], *around.places)
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=PROBE_LIMIT_S, env=dict(around.environment)
        )
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        if done.returncode:
            return lines[-1].rstrip(".") if lines else say("it ended with status {status}", status=done.returncode)
        versions, there = decode(done.stdout.strip().splitlines()[-1], tuple[dict[str, str], frozenset[str]])
        named = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in versions.items()}
        return Interpreter(python, named, there)
    except OSError as error:
        return error.strerror or str(error)
    except subprocess.TimeoutExpired:
        return f"no answer within {PROBE_LIMIT_S:g} s"
    except (IndexError, ValueError):
        return say("it is no Python")
