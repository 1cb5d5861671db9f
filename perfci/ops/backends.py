"""Backends: the technologies that an op can be written in, each in a file `<op>_<backend>.py` of the op's folder.

An op's first backend has the op's plain name as its key, `softmax`; each further one is `softmax@cuda`. Plans, runs,
baselines and thresholds know a backend by its key, so that what is stored stays when a backend is added. The first one
is the first of BACKENDS whose file the performance suite imports, else the first that there is.
"""

import importlib.util
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from perfci.core.files import read_regular
from perfci.core.model import Fact, Reason

MARK = "@"  # in a key, before the backend


@dataclass(frozen=True)
class Interpreter:
    """Another Python than the one that runs this."""

    path: str
    versions: Mapping[str, str]  # of what is installed in it, by distribution, and its own as that of `python`
    modules: frozenset[str]  # those of `Backend.packages` that it has, and the packages around them


@dataclass(frozen=True)
class Backend:
    """What perfci has to know of a technology."""

    title: str
    packages: Mapping[str, str] = field(default_factory=dict)
    """module that its files may import -> what to install for that. Without it they are UNCHECKED"""
    runs_on: frozenset[str] = frozenset({"cuda", "fake"})  # kinds of device
    uses_triton: bool = False  # its kernels are always launched by Triton, which reports every launch

    @property
    def is_unheard(self) -> bool:
        """Whether its launches are those that only the driver shows."""
        return not self.uses_triton and "cpu" not in self.runs_on


_ANYWHERE = frozenset({"cuda", "npu", "cpu", "fake"})

BACKENDS: Mapping[str, Backend] = {
    "triton": Backend("Triton", {"triton": "triton"}, _ANYWHERE, uses_triton=True),
    "cuda": Backend(
        "CUDA C++",
        {"cuda.core": "cuda-core", "cuda.bindings": "cuda-bindings", "cupy": "cupy-cuda13x"}
        | {"numba.cuda": "numba-cuda", "pycuda": "pycuda"},
    ),
    "tilelang": Backend("TileLang", {"tilelang": "tilelang"}),
    "cutile": Backend("cuTile", {"cuda.tile": "cuda-tile[tileiras]"}),
    "cutedsl": Backend("CuTe DSL", dict.fromkeys(("cutlass", "cuda.bindings"), "nvidia-cutlass-dsl")),
    "gluon": Backend("Gluon", {"triton": "triton"}, uses_triton=True),
    "helion": Backend("Helion", {"helion": "helion"}, _ANYWHERE),  # torch interprets it on a CPU
    "torch": Backend("PyTorch", {"torch": "torch"}, _ANYWHERE),
}
"""Backend, as files are named by it -> what it is, in the order in which one is an op's first."""

UNHEARD = frozenset(module for backend in BACKENDS.values() if backend.is_unheard for module in backend.packages)
"""Modules with launches that only the driver shows."""

DEFAULT = next(iter(BACKENDS))


def name_of(key: str) -> str:
    """Returns the op's name, which its folder, its files and its function have: softmax of softmax@cuda."""
    return key.partition(MARK)[0]


def find_backends(op: str, folder: Path) -> tuple[str, ...]:
    """Returns the backends that an op has files of in its folder: the first one first. Empty if it has none."""
    there = [name for name in BACKENDS if (folder / f"{op}_{name}.py").is_file()]
    if len(there) > 1:
        try:
            suite = read_regular((folder / f"{op}_performance.py").resolve()).decode(errors="replace")
        except OSError:
            suite = ""
        there.sort(key=lambda name: not re.search(rf"^\s*(from|import)\s+{op}_{name}\b", suite, re.MULTILINE))
    return tuple(there)


def list_keys(folder: Path) -> dict[str, str]:
    """Returns the keys of the backends in an op's folder, each with its backend. A folder without any has Triton's."""
    first, *others = find_backends(folder.name, folder) or (DEFAULT,)
    return {folder.name: first, **{f"{folder.name}{MARK}{other}": other for other in others}}


def find_kernel(key: str, folder: Path) -> Path:
    """Returns the file with the kernel of a key, below a folder that is the op's. It need not exist."""
    op, _, backend = key.partition(MARK)
    return folder / f"{op}_{backend or next(iter(find_backends(op, folder)), DEFAULT)}.py"


def backend_of(kernel: Path) -> str:
    """Returns the backend of a kernel's file, such as cuda."""
    return kernel.stem.rpartition("_")[2]


def explain_missing(
    key: str, kernel: Path, kind: str | None, failure: Reason | None, other: Interpreter | None = None
) -> Reason | None:
    """Returns why a backend cannot run here: on this kind of device, or without a package. None if it may.

    kind: None for any. failure: of importing its file, in this Python or in another. What it claims about a missing
    package is looked up there.
    """
    backend = BACKENDS[backend_of(kernel)]
    facts: dict[str, Fact] = {"op": key, "backend": backend.title}
    if kind and kind not in backend.runs_on:
        return Reason("backend_needs_device", {**facts, "device": kind})
    module = str(failure.facts.get("missing_module", "-")) if failure else "-"
    needed = next((name for name in backend.packages if f"{name}.".startswith(f"{module}.")), None)
    with suppress(ImportError, ValueError):  # of a package around it that is missing
        there = module in other.modules if other else needed and importlib.util.find_spec(module)
        needed = None if there else needed
    if needed is None:
        return None
    if other:
        facts |= {"python": other.path}
        return Reason("backend_python_lacks", {**facts, "module": module, "package": backend.packages[needed]})
    return Reason("backend_lacks_package", {**facts, "module": module, "package": backend.packages[needed]})


def is_kernel(file: str, key: str) -> bool:
    """Returns whether a file, by its name, is a backend of the op of a key, and no suite."""
    return Path(file).name in {f"{name_of(key)}_{name}.py" for name in BACKENDS}
