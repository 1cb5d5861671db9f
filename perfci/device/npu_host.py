"""What stands in an NPU's way on this machine, found without importing torch, Triton or anything of Ascend's.

What opening the device refuses by itself, with its reason, is not looked for here.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perfci.core.environment import installed_versions
from perfci.core.model import Reason
from perfci.device import npu_runtime, npu_smi
from perfci.device.npu_smi import NpuPlace, NpuTable

PACKAGES = ("torch", "torch-npu", "triton-ascend")

HOMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")  # variables that CANN's set_env.sh sets to its folder
PLACES = ("usr/local/Ascend/ascend-toolkit/latest", "usr/local/Ascend/ascend-toolkit", "usr/local/Ascend/cann")
LIBRARY = "libascendcl.so"

REFUTED = frozenset(  # kinds that keep a device from being opened
    {"npu_no_device", "npu_no_torch_npu", "doctor_npu_cann_unset", "doctor_npu_no_cann", "doctor_npu_no_library"}
)


@dataclass(frozen=True)
class NpuHost:
    """All that the rules look at."""

    packages: Mapping[str, str] = field(default_factory=dict)  # installed distributions of PACKAGES
    variables: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()  # device files of chips
    home: str | None = None  # its place by CANN's environment
    found: str | None = None  # where CANN is installed, whatever the environment has
    has_library: bool = True  # CANN's runtime library is where programs look for it
    triton_plugged: bool = False  # NPUs' compiler is a package that Triton finds by itself: nothing is overwritten
    table: NpuTable = field(default_factory=NpuTable)
    place: NpuPlace | None = None  # the chip that a process gets
    has_gpu: bool = False  # an NVIDIA driver is loaded too


@dataclass(frozen=True)
class Trap:
    """One thing in the way."""

    reason: Reason
    serious: bool = True  # results would be wrong, noisy or missing


def look(
    variables: Mapping[str, str],
    *,
    root: Path = Path("/"),
    asking: Callable[..., str | None] = npu_smi.ask,
    has_gpu: bool = False,
) -> NpuHost:
    """Look at the machine below `root`. npu-smi is asked only if there is a chip's device file."""
    nodes = npu_runtime.nodes(root / "dev")
    home = next((variables[name] for name in HOMES if variables.get(name)), None)
    found = next((root / place for place in PLACES if (root / place).is_dir()), None)
    folder = Path(home) if home and Path(home).is_dir() else found
    libraries = [Path(each) for each in variables.get("LD_LIBRARY_PATH", "").split(os.pathsep) if each]
    libraries += [folder / "lib64"] if folder else []
    monitor = npu_smi.Monitor(asking, variables) if nodes else None
    return NpuHost(
        packages=installed_versions(PACKAGES), variables=variables, nodes=tuple(map(str, nodes)), has_gpu=has_gpu,
        home=home, found=str(found) if found else None,
        has_library=any((each / LIBRARY).exists() for each in libraries),
        triton_plugged=bool(importlib.metadata.entry_points(group="triton.backends", name="ascend")),
        table=monitor.table() if monitor else NpuTable(), place=monitor.place if monitor else None,
    )  # fmt: skip


def traps(host: NpuHost, *, opened: bool = False) -> Iterator[Trap]:
    """What is in the way, in a run's order. That a worker has opened the device refutes what would have kept it."""
    if host.nodes or host.found or {"torch-npu", "triton-ascend"} & host.packages.keys():
        found = _find_traps(host)
        yield from (trap for trap in found if not (opened and trap.reason.kind in REFUTED))


def _find_traps(host: NpuHost) -> Iterator[Trap]:
    torch = host.packages.get("torch", "")
    if host.nodes and host.has_gpu:
        facts = {"torch": torch or "-", "taken": "npu" if "+cpu" in torch else "cuda"}
        yield Trap(Reason("doctor_npu_and_gpu", facts), serious=False)
    if host.nodes and "torch-npu" not in host.packages:
        yield _trap("npu_no_torch_npu", torch=torch or None)
    if host.home and Path(host.home).is_dir():
        if not host.has_library:
            yield _trap("doctor_npu_no_library", folder=host.home, library=LIBRARY)
    elif host.found:
        yield _trap("doctor_npu_cann_unset", folder=host.found)
    elif host.nodes or host.home:
        yield _trap("doctor_npu_no_cann")
    if not host.nodes:
        yield Trap(Reason("npu_no_device"), serious=False)
    # No process of this program has a context while the machine is looked at.
    others = npu_smi.count_foreign(host.table, host.place, os.getpid(), own_context=False)
    if others:
        yield _trap("doctor_npu_taken", count=str(others), npu=str(host.place.npu if host.place else "-"))
    blocking = host.variables.get("ASCEND_LAUNCH_BLOCKING", "0").strip()
    if re.fullmatch(r"[1-9]\d*|true", blocking, re.IGNORECASE):
        yield _trap("doctor_launch_blocking", name="ASCEND_LAUNCH_BLOCKING", value=blocking)


def _trap(kind: str, **facts: str | None) -> Trap:
    return Trap(Reason(kind, facts))
