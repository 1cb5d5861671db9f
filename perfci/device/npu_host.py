"""What stands in an NPU's way on this machine, told without importing torch, Triton or anything of Ascend's."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perfci.core.environment import installed
from perfci.core.model import Reason
from perfci.device import npu_runtime, npu_smi
from perfci.device.npu_smi import FIT, Place, Table

PACKAGES = ("torch", "torch-npu", "triton", "triton-ascend", "numpy", "pybind11")

HOMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
"""Variables that CANN's set_env.sh sets to its folder."""

PLACES = ("usr/local/Ascend/ascend-toolkit/latest", "usr/local/Ascend/ascend-toolkit", "usr/local/Ascend/cann")
"""Where CANN is installed as a rule."""

DRIVER = "usr/local/Ascend/driver/version.info"
MANAGER = "davinci_manager"
LIBRARY = "libascendcl.so"

NEW_NUMPY = ((2, 3), 2)
"""First torch whose numpy may be of this major version."""

_SET = re.compile(r"[1-9]\d*|true", re.IGNORECASE)
_VERSION = re.compile(r"^\s*(?:version|Version)\s*=\s*(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class NpuHost:
    """All that the rules look at."""

    packages: Mapping[str, str] = field(default_factory=dict)
    """installed distributions of PACKAGES"""
    variables: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    """device files of chips"""
    shut: tuple[str, ...] = ()
    """device files that this user may not open"""
    home: str | None = None
    """where CANN's environment says that it is"""
    found: str | None = None
    """where CANN is installed, whatever the environment says"""
    has_library: bool = True
    """CANN's runtime library is where programs look for it"""
    cann: str | None = None
    driver: str | None = None
    triton_owner: str | None = None
    """the distribution whose `triton` package lies in the folder; None where that can't be told"""
    triton_backends: tuple[str, ...] = ()
    """compilers in the folder of `triton`"""
    triton_plugged: bool = False
    """NPUs' compiler is a package of its own, which Triton finds by its entry point, so that nothing is overwritten"""
    table: Table = field(default_factory=Table)
    place: Place | None = None
    """the chip that a process gets"""
    compatible: str | None = None
    """what npu-smi says of firmware and driver"""
    has_gpu: bool = False
    """an NVIDIA driver is loaded too"""

    @property
    def concerned(self) -> bool:
        """Whether anything here is of Ascend's."""
        return bool(self.nodes or self.found or {"torch-npu", "triton-ascend"} & self.packages.keys())


@dataclass(frozen=True)
class Trap:
    """One thing in the way."""

    reason: Reason
    serious: bool = True
    """results would be wrong, noisy or missing"""


def look(
    variables: Mapping[str, str],
    *,
    root: Path = Path("/"),
    asking: Callable[..., str | None] = npu_smi.ask,
    has_gpu: bool = False,
) -> NpuHost:
    """Look at the machine below `root`; npu-smi is asked only where there is a chip's device file."""
    nodes = npu_runtime.nodes(root / "dev")
    home = next((variables[name] for name in HOMES if variables.get(name)), None)
    found = next((root / place for place in PLACES if (root / place).is_dir()), None)
    folder = Path(home) if home and Path(home).is_dir() else found
    table, place, compatible = _asked(asking, variables) if nodes else (Table(), None, None)
    return NpuHost(
        packages=installed(PACKAGES),
        variables=variables,
        nodes=tuple(map(str, nodes)),
        shut=tuple(str(node) for node in _needed(nodes) if not npu_runtime.may_use(node)),
        home=home,
        found=str(found) if found else None,
        has_library=_has_library(variables, folder),
        cann=_cann_version(folder),
        driver=table.driver or _version_in(root / DRIVER),
        triton_owner=triton_owner(),
        triton_backends=triton_backends(),
        triton_plugged=bool(importlib.metadata.entry_points(group="triton.backends", name="ascend")),
        table=table,
        place=place,
        compatible=compatible,
        has_gpu=has_gpu,
    )


def traps(host: NpuHost, *, opened: bool = False) -> Iterator[Trap]:
    """What is in the way, in the order in which a run would stumble over it; nothing where nothing is of Ascend's.

    opened: a worker has opened the device, which refutes all that would have kept it from doing so.
    """
    if host.concerned:
        for rule in _RULES:
            yield from (trap for trap in rule(host) if not (opened and trap.reason.kind in REFUTED))


REFUTED = frozenset(
    {
        "npu_no_device", "npu_no_permission", "npu_no_pybind11", "npu_no_torch_npu", "npu_no_triton",
        "doctor_npu_cann_gone", "doctor_npu_cann_unset", "doctor_npu_no_cann", "doctor_npu_no_library",
    }
)  # fmt: skip
"""Kinds that keep a device from being opened."""


# --- rules ------------------------------------------------------------------------------------------------------------


def _both_kinds(host: NpuHost) -> Iterator[Trap]:
    if host.nodes and host.has_gpu:
        torch = host.packages.get("torch", "")
        yield _note("doctor_npu_and_gpu", torch=torch or "-", taken="npu" if "+cpu" in torch else "cuda")


def _packages(host: NpuHost) -> Iterator[Trap]:
    torch, plugin = host.packages.get("torch"), host.packages.get("torch-npu")
    if plugin is None and host.nodes:
        yield _trap("npu_no_torch_npu", torch=torch)
    if plugin and torch and _release(plugin) != _release(torch):
        yield _trap("npu_wrong_wheel", torch=torch, torch_npu=plugin, message="the versions differ")
    numpy = host.packages.get("numpy", "0")
    if plugin and torch and _release(torch) < NEW_NUMPY[0] and _release(numpy)[0] >= NEW_NUMPY[1]:
        yield _trap("npu_numpy_too_new", torch_npu=plugin, message=f"numpy {numpy} is installed")


def _triton(host: NpuHost) -> Iterator[Trap]:
    upstream, ascend = host.packages.get("triton"), host.packages.get("triton-ascend")
    if _is_overwritten(host):
        yield _trap("npu_triton_overwritten", triton=upstream or ascend)
    elif not ascend and host.nodes:
        yield _trap("npu_no_triton", package="triton-ascend")
    if ascend and "pybind11" not in host.packages:
        yield _trap("npu_no_pybind11", package="pybind11")


def _is_overwritten(host: NpuHost) -> bool:
    if "triton-ascend" not in host.packages or host.triton_plugged:
        return False
    lacks = bool(host.triton_backends) and "ascend" not in host.triton_backends
    return host.triton_owner == "triton" or lacks


def _cann(host: NpuHost) -> Iterator[Trap]:
    if host.home and not Path(host.home).is_dir():
        yield _trap("doctor_npu_cann_gone", folder=host.home)
    elif host.home is None and host.found:
        yield _trap("doctor_npu_cann_unset", folder=host.found)
    elif host.home is None and host.nodes:
        yield _trap("doctor_npu_no_cann")
    elif host.home and not host.has_library:
        yield _trap("doctor_npu_no_library", folder=host.home, library=LIBRARY)


def _device(host: NpuHost) -> Iterator[Trap]:
    if not host.nodes:
        yield Trap(Reason("npu_no_device"), serious=False)
    if host.shut:
        yield _trap("npu_no_permission", message=", ".join(host.shut))
    if host.compatible is not None and host.compatible.upper() not in {FIT, "NA"}:
        told = {"driver": host.driver, "cann": host.cann, "said": host.compatible}
        yield Trap(Reason("doctor_npu_incompatible", told))
    chip = host.table.chip(host.place)
    if chip is not None and chip.health.upper() not in {FIT, "UNKNOWN"}:
        yield _trap("npu_unhealthy", health=chip.health)
    # No process of this program has a context while the machine is looked at.
    others = npu_smi.foreign(host.table, host.place, os.getpid(), own_context=False)
    if others:
        yield _trap("doctor_npu_taken", count=str(others), npu=str(host.place.npu if host.place else "-"))


def _variables(host: NpuHost) -> Iterator[Trap]:
    if _SET.fullmatch(host.variables.get("ASCEND_LAUNCH_BLOCKING", "0").strip()):
        yield _trap("doctor_npu_blocking", value=host.variables["ASCEND_LAUNCH_BLOCKING"])
    if host.variables.get("TASK_QUEUE_ENABLE", "1").strip() == "0":
        yield _note("doctor_npu_no_queue", value="0")
    yield from _visible(host)


def _visible(host: NpuHost) -> Iterator[Trap]:
    """Logical numbers of devices are counted from 0 in a container too, and npu-smi counts cards."""
    given = host.variables.get(npu_smi.VISIBLE, "").strip()
    if not given or not host.nodes:
        return
    first = npu_smi.visible_number(0, host.variables)
    if not re.fullmatch(r"\d+(\s*,\s*\d+)*", given) or first is None or first >= len(host.nodes):
        yield _trap("doctor_npu_visible_wrong", value=given, count=str(len(host.nodes)))
    elif host.place is not None:
        card, chip = str(host.place.npu), str(host.place.chip)
        yield _note("doctor_npu_visible", value=given, first=str(first), npu=card, chip=chip)


_RULES: tuple[Callable[[NpuHost], Iterator[Trap]], ...] = (
    _both_kinds, _packages, _triton, _cann, _device, _variables,
)  # fmt: skip


def _trap(kind: str, **facts: str | None) -> Trap:
    return Trap(Reason(kind, facts))


def _note(kind: str, **facts: str | None) -> Trap:
    return Trap(Reason(kind, facts), serious=False)


def _release(version: str) -> tuple[int, int]:
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    return (*numbers, 0, 0)[0], (*numbers, 0, 0)[1]


# --- looking ----------------------------------------------------------------------------------------------------------


def _asked(asking: Callable[..., str | None], variables: Mapping[str, str]) -> tuple[Table, Place | None, str | None]:
    monitor = npu_smi.Monitor(0, asking, variables)
    return monitor.table(), monitor.place, monitor.compatibility()


def _needed(nodes: list[Path]) -> list[Path]:
    return [*nodes, nodes[0].parent / MANAGER] if nodes else []


def _has_library(variables: Mapping[str, str], home: Path | None) -> bool:
    folders = [Path(folder) for folder in variables.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
    return any((folder / LIBRARY).exists() for folder in [*folders, *([home / "lib64"] if home else [])])


def _cann_version(home: Path | None) -> str | None:
    """As the installer notes it, in a file of its own for each machine, or for the whole."""
    if home is None:
        return None
    files = [home / "version.cfg", *sorted(home.glob("*/ascend_*_install.info")), *sorted(home.glob("ascend_*.info"))]
    return next((version for file in files if (version := _version_in(file))), None)


def _version_in(file: Path) -> str | None:
    try:
        found = _VERSION.search(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return found[1].strip("[]") if found else None


def triton_owner() -> str | None:
    """Whose `triton/__init__.py` lies there: both distributions put theirs in one place, and pip compares nothing."""
    owners = [name for name in ("triton", "triton-ascend") if _owns(name)]
    return owners[0] if len(owners) == 1 else None


def _owns(name: str) -> bool:
    """Whether a distribution's front file of Triton is the one that it recorded when it was installed."""
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        return False
    mine = next((file for file in files if file.as_posix() == "triton/__init__.py"), None)
    if mine is None or mine.hash is None or mine.hash.mode not in hashlib.algorithms_available:
        return False
    try:
        digest = hashlib.new(mine.hash.mode, Path(str(mine.locate())).read_bytes()).digest()
    except OSError:
        return False
    return _plain(digest) == mine.hash.value


def _plain(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def triton_backends() -> tuple[str, ...]:
    """Compilers in the folder of `triton`, as far as can be told without importing it; none where it has no folder."""
    try:
        spec = importlib.util.find_spec("triton")
    except (ImportError, ValueError):
        return ()
    places = list(spec.submodule_search_locations or []) if spec else []
    folders = (folder for place in places for folder in Path(place).glob("backends/*/compiler.py"))
    return tuple(sorted({folder.parent.name for folder in folders}))
