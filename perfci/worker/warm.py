"""What workers import before they are forked, and how that begins with the first line of a command.

Imports little, since it is at work before anything else of perfci is imported.
"""

import atexit
import functools
import importlib.util
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from perfci.core import PACKAGE, extensions
from perfci.core.temporary import temporary_folder
from perfci.core.variables import worker_environment
from perfci.worker import forks

PROGRAM = "perfci.worker.child"  # module with a worker's program as its `main`

IMPORTED = (
    *(PROGRAM, "perfci.worker.describe", "perfci.worker.work", "perfci.worker.remote", "perfci.worker.serve"),
    *("perfci.device.fake", "numpy.ma", "numpy.random", "unittest.mock"),
)
IMPORTED_ON_CPU = ("torch", "triton", "triton.language", "perfci.device.cpu", "triton.experimental.gluon")
IMPORTED_ON_GPU = (
    *("torch", "triton", "triton.language", "perfci.device.cuda"),
    *("triton.experimental.gluon.nvidia.hopper", "scipy.special"),  # which a look at a duel needs
)
"""Modules that workers need."""

COMMANDS = frozenset({"check", "list", "new"})  # which start workers
SOURCES = frozenset({"--from", "--from-library"})  # options with which `new` starts one, in Triton's interpreter
ELSEWHERE = frozenset({"-h", "--help", "--on", "--toolchain"})  # options with which they start others, or none

NODES = ("nvidia*", "nvhost*", "nvmap", "davinci*", "kfd", "dxg")  # device files of machines with an accelerator

_early: list[str] = []  # key of the process that began with the command's first line


def begin(arguments: Sequence[str]) -> None:
    """Start to import what the workers of a command will need, as far as its words tell. `settle` ends a wrong guess.

    Variables that a project's settings add, and paths that start from its root, are not known yet.
    """
    command, *options = [*arguments, ""]
    relative = any(entry and not Path(entry).is_absolute() for entry in os.environ.get("PYTHONPATH", "").split(":"))
    names = {word.partition("=")[0] for word in options}
    is_idle = command not in COMMANDS or (command == "new" and not SOURCES & names)
    if is_idle or ELSEWHERE.intersection(options) or relative:
        return
    named = [
        word.partition("=")[2] or after
        for word, after in itertools.pairwise(options)
        if word.partition("=")[0] == "--device"
    ]
    device = "cpu" if command == "new" else named[-1] if named else "auto"
    if device not in {"auto", "cuda", "cpu", "fake"} or importlib.util.find_spec("torch_npu"):
        return
    interpret = device == "cpu" or (device == "auto" and not has_nodes())
    variables = worker_environment(os.environ, (), interpret, Path())
    variables["PYTHONPATH"] = os.pathsep.join([str(own_package()), *list_path(variables)])
    _early.append(begin_forks(device, variables, Path.cwd()))


def begin_forks(device: str, variables: Mapping[str, str], folder: Path) -> str:
    """Start the process that workers on a device with these variables are forked from. Returns its key."""
    imports, later = list_imports(device, variables), list_later(device, variables)
    return forks.begin(variables, folder, PROGRAM, imports, later)


def settle(key: str) -> None:
    """End the process that began early if workers have other variables than it was given. key: of the right one."""
    while _early:
        if (early := _early.pop()) != key:
            forks.end(early)


def list_imports(device: str, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the modules that workers with these variables need on a device."""
    if device == "fake":
        return IMPORTED
    if "TRITON_INTERPRET" in variables:
        return (*IMPORTED, *IMPORTED_ON_CPU)
    added = (place.partition(":")[0] for place in extensions.list_places("preload"))
    return (*IMPORTED, *added, *IMPORTED_ON_GPU)


def list_later(device: str, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the modules that some of these workers need, while others do not wait for them."""
    if device == "fake":
        return ("scipy.special",)
    if "TRITON_INTERPRET" in variables:
        return ()
    return tuple(place.partition(":")[0] for place in extensions.list_places("preload_later"))


def list_path(variables: Mapping[str, str]) -> list[str]:
    """Returns the folders of PYTHONPATH."""
    return [str(Path(entry)) for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]


def has_nodes() -> bool:
    """Whether this machine has device files of an accelerator, or would have none of any."""
    return sys.platform != "linux" or bool(list_nodes())


def list_nodes() -> list[Path]:
    """Returns the device files of this machine's accelerators."""
    return [path for name in NODES for path in Path("/dev").glob(name)]


@functools.cache
def own_package() -> Path:
    """A folder with perfci and nothing else: for interpreters that must not see what is installed beside it."""
    goes_at_exit = ExitStack()
    folder = goes_at_exit.enter_context(temporary_folder("package"))
    atexit.register(goes_at_exit.close)
    (folder / "perfci").symlink_to(PACKAGE, target_is_directory=True)
    return folder
