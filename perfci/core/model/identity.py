"""What a call does on a device, free of what cannot matter: revisions of a kernel told apart without timing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfci.core.model.bounds import Amount, Count
from perfci.core.model.verdict import Reason


@dataclass(frozen=True)
class LaunchIdentity:
    """One kernel launch."""

    kernel: str
    artefact: str
    """digest of the device code, compiled without line information"""
    grid: tuple[Count, ...]
    warps: Count | None = None
    stages: Count | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    """every argument by name: scalars and constants by value, tensors as `#1 float16[4,8](8,1)@16`, which is storage
    (in order of appearance in the call), dtype, shape, strides and alignment in bytes; beside them, under names with
    blanks, what else a launch takes: shared memory, clusters, cooperative or dependent launch"""


@dataclass(frozen=True)
class Identity:
    """All that one call does: torch operations, launches, and the source of its inputs."""

    operations: tuple[str, ...] = ()
    """in order: torch operations with their arguments, synchronisations, and `launch NAME` where a launch stands"""
    launches: tuple[LaunchIdentity, ...] = ()
    inputs: str = ""
    """digest of the source of make_inputs"""
    choices: tuple[str, ...] = ()
    """what an autotuner chose, or chooses from where it cannot choose"""
    unknown: Reason | None = None
    """why the call could not be captured; such a case is always timed"""


@dataclass(frozen=True)
class KernelBinary:
    """What the compiler made of one kernel for one target."""

    name: str
    artefact: str
    """digest of the device code, as in `LaunchIdentity`"""
    registers: Count | None = None
    """of a thread; vector and accumulation registers on AMD"""
    spill_bytes: Count | None = None
    """registers of a thread that did not fit, bytes of local memory"""
    local_bytes: Count | None = None
    """local memory of a thread, stack and spills together"""
    shared_bytes: Count | None = None
    """of a program"""
    instructions: Count | None = None
    mix: Mapping[str, Count] = field(default_factory=dict)
    """instructions by class: memory, tensor, float, integer, control, other"""
    warps: Count | None = None
    occupancy: Amount | None = None
    """warps that fit on a processor at once, of the most that it holds; from registers, shared memory and warps"""


@dataclass(frozen=True)
class StaticCase:
    """A performance case as captured and compiled for one target, without a device."""

    case: str
    identity: Identity = field(default_factory=Identity)
    binaries: tuple[KernelBinary, ...] = ()
    """each distinct kernel once, in order of its first launch"""
    failure: Reason | None = None
    """why it does not compile for the target"""


@dataclass(frozen=True)
class StaticOp:
    """An op's cases for one target."""

    op: str
    target: str
    """sm_90, gfx942"""
    cases: tuple[StaticCase, ...] = ()
    failure: Reason | None = None
    """the op did not import, or its worker died"""
    unavailable: Reason | None = None
    """which figures are missing, and why: a toolchain without disassembler"""


@dataclass(frozen=True)
class Static:
    """Everything that was compiled without a device."""

    targets: tuple[str, ...]
    toolchain: str
    """what compiled: triton 3.7.1, ptxas 12.9, torch 2.13.0"""
    ops: tuple[StaticOp, ...] = ()
    base_ops: tuple[StaticOp, ...] = ()
    """the same of the base revision, if its files differ"""
