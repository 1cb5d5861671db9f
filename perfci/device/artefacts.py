"""What a compiler made of launched kernels, as figures: each distinct binary is read once in a process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perfci.core.model import KernelBinary, Reason
from perfci.device.disassembly import TOOLS, Usage, amd_counts, amd_usage, nvidia_counts, nvidia_usage, tool
from perfci.device.launches import Launched
from perfci.device.noted import artefact
from perfci.device.occupancy import occupancy
from perfci.device.targets import Target

_usages: dict[str, Usage | None] = {}
_counts: dict[str, dict[str, int] | None] = {}


def examine(launches: Iterable[Launched], target: Target) -> None:
    """Count the instructions of binaries that are not known yet, all of them at once."""
    kernels = {artefact(launch.kernel): launch.kernel for launch in launches}
    fresh = {key: kernel.asm for key, kernel in kernels.items() if key not in _counts}
    if target.backend == "npu":  # what is compared is no binary
        _counts.update(dict.fromkeys(fresh))
        return
    if target.backend == "hip":
        _counts.update({key: amd_counts(asm["amdgcn"]) for key, asm in fresh.items()})
        return
    suffix = "a" if target.capability >= (9, 0) else ""  # as Triton compiles: for features of this architecture alone
    counts = nvidia_counts([asm["cubin"] for asm in fresh.values()], f"SM{target.arch}{suffix}")
    _counts.update(zip(fresh, counts, strict=True))


def binaries(launches: Iterable[Launched], target: Target) -> tuple[KernelBinary, ...]:
    """Every distinct kernel once, in order of its first launch; figures that no tool gives are None."""
    first: dict[tuple[str, str], Launched] = {}
    for launch in launches:
        first.setdefault((launch.name, artefact(launch.kernel)), launch)
    examine(first.values(), target)
    return tuple(_binary(launch, target) for launch in first.values())


def unavailable(target: Target) -> Reason | None:
    """Which figures of a target's kernels are missing for want of a program."""
    missing = [name for name in TOOLS if tool(name) is None] if target.backend == "cuda" else []
    figures = " and ".join(TOOLS[name] for name in missing)
    return Reason("static_tool_missing", {"tools": ", ".join(missing), "figures": figures}) if missing else None


def usage(kernel: Any) -> Usage | None:
    """What a thread of a compiled kernel takes; None where that cannot be told."""
    key = artefact(kernel)
    if key not in _usages:
        asm = kernel.asm
        amd = "amdgcn" in asm
        if "npubin" in asm:
            return None
        _usages[key] = (
            amd_usage(asm["amdgcn"]) if amd else nvidia_usage(asm["cubin"], asm.get("ptx"), kernel.metadata.name)
        )
    return _usages[key]


def _binary(launch: Launched, target: Target) -> KernelBinary:
    metadata, key = launch.kernel.metadata, artefact(launch.kernel)
    used, counts = usage(launch.kernel), _counts[key]
    return KernelBinary(
        name=launch.name,
        artefact=key,
        registers=used.registers if used else None,
        spill_bytes=used.spill_bytes if used else None,
        local_bytes=used.local_bytes if used else None,
        shared_bytes=None if target.backend == "npu" else metadata.shared,
        instructions=sum(counts.values()) if counts is not None else None,
        mix=counts or {},
        warps=None if target.backend == "npu" else metadata.num_warps,
        occupancy=_occupancy(used, metadata, target) if used else None,
    )


def _occupancy(used: Usage, metadata: Any, target: Target) -> float:
    columns = getattr(metadata, "tmem_size", None) or 0
    return occupancy(
        target, registers=used.registers, shared=metadata.shared, warps=metadata.num_warps, columns=columns
    )
