"""Obstacles to an NPU on this machine, found without importing torch, Triton or anything of Ascend's."""

import contextlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfci.core.environment import installed_versions
from perfci.core.model import Reason
from perfci.device.tritons import release
from perfci.extensions.npu import runtime, smi
from perfci.extensions.npu.smi import USABLE, NpuPlace, NpuTable

PACKAGES = ("torch", "torch-npu", "triton", "triton-ascend", "numpy", "pybind11")

HOMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")  # variables that CANN's set_env.sh sets to its folder
PLACES = ("usr/local/Ascend/ascend-toolkit/latest", "usr/local/Ascend/ascend-toolkit", "usr/local/Ascend/cann")
LIBRARY = "libascendcl.so"
PAIRS = {"3.2.0rc4": "8.3", "3.2.0": "8.5", "3.2.1": "9.0", "3.2.2": "9.1"}
"""triton-ascend -> the CANN that its README and release notes name for it"""
_VERSION = re.compile(r"^version=\s*([\w.]+)|_running_version=\[[^:\]]*:([\w.]+)", re.MULTILINE)
_VERSION_FILES = ("*-linux/ascend_toolkit_install.info", "ascend_toolkit_install.info", "version.cfg")
NEW_NUMPY = ((2, 3), 2)  # first torch with a numpy that may be of this major version

REFUTED = frozenset(  # kinds that keep a device from being opened
    {"npu_no_device", "npu_no_permission", "npu_no_pybind11", "npu_no_torch_npu", "npu_no_triton",
     "doctor_npu_cann_unset", "doctor_npu_no_cann", "doctor_npu_no_library"}
)  # fmt: skip


@dataclass(frozen=True)
class NpuHost:
    """All that the rules look at."""

    packages: Mapping[str, str] = field(default_factory=dict)  # installed distributions of PACKAGES
    variables: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()  # device files of chips
    shut: tuple[str, ...] = ()  # device files that this user may not open
    home: str | None = None  # its place by CANN's environment
    found: str | None = None  # where CANN is installed, whatever the environment has
    cann: str | None = None  # its version, as its own files have it
    has_library: bool = True  # CANN's runtime library is where programs look for it
    triton_backends: tuple[str, ...] = ()  # compilers in the folder of `triton`
    triton_plugged: bool = False  # NPUs' compiler is a package that Triton finds by itself: nothing is overwritten
    table: NpuTable = field(default_factory=NpuTable)
    place: NpuPlace | None = None  # the chip that a process gets
    has_gpu: bool = False  # an NVIDIA driver is loaded too
    has_cann: bool = False  # as far as its environment or its usual folder shows

    def judge(self, facts: Any) -> Iterator[tuple[bool, Reason]]:
        """Yield what stands in an NPU's way, and whether it is a problem, but for what the device's failure has.

        facts: `Facts` of the extension doctor, of the whole machine.
        """
        packages, failure = facts.packages, facts.device_failure
        upstream = packages.get("triton") or packages.get("pytorch-triton")
        ascend, plugin = packages.get("triton-ascend"), packages.get("torch-npu")
        if upstream and ascend and not self.triton_plugged:  # both install into one folder, and pip notices nothing
            yield True, Reason("doctor_two_tritons", {"triton": upstream, "ascend": ascend})
        if plugin and not self.has_cann and facts.variables.get(runtime.AUTOLOAD) != "0":
            yield True, Reason("doctor_npu_without_cann", {"version": plugin})
        opened = facts.device is not None and facts.device.kind == "npu" and failure is None
        for trap in traps(self, opened=opened):
            if failure is not None and trap.reason.kind == failure.kind:
                continue
            if trap.reason.kind != "doctor_npu_taken" or facts.state is None:
                yield trap.serious, trap.reason


@dataclass(frozen=True)
class Trap:
    """One thing in the way."""

    reason: Reason
    serious: bool = True  # results would be wrong, noisy or missing


def look(
    variables: Mapping[str, str],
    *,
    root: Path = Path("/"),
    asking: Callable[..., str | None] = smi.ask,
    has_gpu: bool = False,
) -> NpuHost:
    """Look at the machine below `root`. npu-smi is asked only if there is a chip's device file."""
    nodes = runtime.nodes(root / "dev")
    home = next((variables[name] for name in HOMES if variables.get(name)), None)
    installed = next((root / place for place in PLACES if (root / place).is_dir()), None)
    folder = Path(home) if home and Path(home).is_dir() else installed
    libraries = [Path(part) for part in variables.get("LD_LIBRARY_PATH", "").split(os.pathsep) if part]
    libraries += [folder / "lib64"] if folder else []
    monitor = smi.Monitor(asking, variables) if nodes else None
    return NpuHost(
        packages=installed_versions(PACKAGES),
        variables=variables,
        nodes=tuple(map(str, nodes)),
        shut=runtime.find_shut(nodes),
        home=home,
        found=str(installed) if installed else None,
        cann=_read_version(folder),
        has_library=any((library / LIBRARY).exists() for library in libraries),
        triton_backends=find_triton_backends(),
        triton_plugged=bool(importlib.metadata.entry_points(group="triton.backends", name="ascend")),
        table=monitor.table() if monitor else NpuTable(),
        place=monitor.place if monitor else None,
        has_gpu=has_gpu,
        has_cann=HOMES[0] in variables or (root / PLACES[1]).exists(),
    )


def traps(host: NpuHost, *, opened: bool = False) -> Iterator[Trap]:
    """Obstacles in a run's order. That a worker has opened the device refutes what would have kept it."""
    if host.nodes or host.found or {"torch-npu", "triton-ascend"} & host.packages.keys():
        traps = (trap for rule in (_check_packages, _check_cann, _check_device) for trap in rule(host))
        yield from (trap for trap in traps if not (opened and trap.reason.kind in REFUTED))


def _check_packages(host: NpuHost) -> Iterator[Trap]:
    torch, plugin = host.packages.get("torch", ""), host.packages.get("torch-npu")
    if host.nodes and host.has_gpu:
        facts = {"torch": torch or "-", "taken": "npu" if "+cpu" in torch else "cuda"}
        yield Trap(Reason("doctor_npu_and_gpu", facts), serious=False)
    if plugin is None and host.nodes:
        yield _trap("npu_no_torch_npu", torch=torch or None)
    if plugin and torch and release(plugin) != release(torch):
        yield _trap("npu_wrong_wheel", torch=torch, torch_npu=plugin, message="the versions differ")
    numpy = host.packages.get("numpy", "0")
    if plugin and torch and release(torch) < NEW_NUMPY[0] and release(numpy)[0] >= NEW_NUMPY[1]:
        yield _trap("npu_numpy_too_new", torch_npu=plugin, message=f"numpy {numpy} is installed")
    upstream, ascend = host.packages.get("triton"), host.packages.get("triton-ascend")
    if ascend and not host.triton_plugged and host.triton_backends and "ascend" not in host.triton_backends:
        yield _trap("npu_triton_overwritten", triton=upstream or ascend)
    elif not ascend and host.nodes:
        yield _trap("npu_no_triton", package="triton-ascend")
    if ascend and "pybind11" not in host.packages:
        yield _trap("npu_no_pybind11", package="pybind11")


def _read_version(folder: Path | None) -> str | None:
    """CANN's version by the files of its toolkit. None if it has none of them."""
    for file in (file for name in _VERSION_FILES if folder for file in sorted(folder.glob(name))):
        with contextlib.suppress(OSError):
            if version := _VERSION.search(file.read_text(encoding="utf-8", errors="replace")):
                return version[1] or version[2]
    return None


def _check_cann(host: NpuHost) -> Iterator[Trap]:
    ascend = host.packages.get("triton-ascend", "")
    if host.cann and (wanted := PAIRS.get(ascend.partition(".post")[0])) and not host.cann.startswith(wanted):
        facts: dict[str, Any] = {"version": ascend, "wanted": wanted, "cann": host.cann}
        yield Trap(Reason("doctor_npu_cann_other", facts), serious=False)
    if host.home and Path(host.home).is_dir():
        if not host.has_library:
            yield _trap("doctor_npu_no_library", folder=host.home, library=LIBRARY)
    elif host.found:
        yield _trap("doctor_npu_cann_unset", folder=host.found)
    elif host.nodes or host.home:
        yield _trap("doctor_npu_no_cann")


def _check_device(host: NpuHost) -> Iterator[Trap]:
    if not host.nodes:
        yield Trap(Reason("npu_no_device"), serious=False)
    if host.shut:
        yield _trap("npu_no_permission", message=", ".join(host.shut))
    chip = host.table.chip(host.place)
    if chip is not None and chip.health.upper() not in USABLE:
        yield _trap("npu_unhealthy", health=chip.health)
    # No process of this program has a context while the machine is looked at.
    others = smi.count_foreign(host.table, host.place, os.getpid(), own_context=False)
    if others:
        yield _trap("doctor_npu_taken", count=str(others), npu=str(host.place.npu if host.place else "-"))
    blocking = host.variables.get("ASCEND_LAUNCH_BLOCKING", "0").strip()
    if re.fullmatch(r"[1-9]\d*|true", blocking, re.IGNORECASE):
        yield _trap("doctor_launch_blocking", name="ASCEND_LAUNCH_BLOCKING", value=blocking)


def _trap(kind: str, **facts: str | None) -> Trap:
    return Trap(Reason(kind, facts))


def find_triton_backends() -> tuple[str, ...]:
    """Compilers in the folder of `triton`, found without importing it. None if it has no folder."""
    spec = importlib.util.find_spec("triton")
    places = list(spec.submodule_search_locations or []) if spec else []
    folders = (folder for place in places for folder in Path(place).glob("backends/*/compiler.py"))
    return tuple(sorted({folder.parent.name for folder in folders}))
