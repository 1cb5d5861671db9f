"""What a call does on a device, what its kernels compile to without one, and what accuracy exercises of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfci.core.model.basics import Amount, Count, Reason


@dataclass(frozen=True)
class LaunchIdentity:
    """One kernel launch."""

    kernel: str
    artefact: str  # digest of the device code, compiled without line information
    grid: tuple[Count, ...]
    warps: Count | None = None
    stages: Count | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    """every argument by name: scalars and constants by value, tensors as `#1 float16[4,8](8,1)@16`, which is storage
    (in order of appearance in the call), dtype, shape, strides and alignment in bytes. Beside them, under names with
    blanks, what else a launch takes: shared memory, clusters, cooperative or dependent launch"""


@dataclass(frozen=True)
class Identity:
    """All that one call does: torch operations, launches, and the source of its inputs."""

    operations: tuple[str, ...] = ()
    """in order: torch operations with their arguments, synchronisations, and `launch NAME` where a launch stands"""
    launches: tuple[LaunchIdentity, ...] = ()
    inputs: str = ""  # digest of the source of make_inputs
    choices: tuple[str, ...] = ()  # what an autotuner chose, or chooses from where it cannot choose
    unknown: Reason | None = None  # why the call could not be captured. Such a case is always timed


@dataclass(frozen=True)
class KernelBinary:
    """What the compiler made of one kernel for one target."""

    name: str
    artefact: str  # digest of the device code, as in `LaunchIdentity`
    registers: Count | None = None  # of a thread. Vector and accumulation registers on AMD
    spill_bytes: Count | None = None  # registers of a thread that did not fit, bytes of local memory
    local_bytes: Count | None = None  # local memory of a thread, stack and spills together
    shared_bytes: Count | None = None  # of a program
    instructions: Count | None = None
    mix: Mapping[str, Count] = field(default_factory=dict)
    """instructions by class: memory, tensor, float, integer, control, other"""
    traits: Mapping[str, Count] = field(default_factory=dict)
    """instructions that are double: in 64-bit floating point, tensor: matrix products, warpgroup: those of several
    warps (wgmma, tcgen05), asynchronous: copies into shared memory, global: accesses of global memory. global_bytes:
    what the latter move for a thread, bytes. Nothing without a disassembler. Of an NPU barriers, double_buffers:
    buffers that are filled while their other half is used, unbuffered: 1 if the compiler gave these up, and bytes of
    its memories: ub_bytes, l1_bytes, l0a_bytes, l0b_bytes, l0c_bytes"""
    warps: Count | None = None
    occupancy: Amount | None = None
    """warps that fit on a processor at once, of the most that it holds. From registers, shared memory and warps"""


@dataclass(frozen=True)
class StaticCase:
    """A performance case as captured and compiled for one target, without a device."""

    case: str
    identity: Identity = field(default_factory=Identity)
    binaries: tuple[KernelBinary, ...] = ()  # each distinct kernel once, in order of its first launch
    failure: Reason | None = None  # why it does not compile for the target


@dataclass(frozen=True)
class StaticOp:
    """An op's cases for one target."""

    op: str
    target: str  # sm_90, gfx942
    cases: tuple[StaticCase, ...] = ()
    failure: Reason | None = None  # the op did not import, or its worker died
    unavailable: Reason | None = None  # which figures are missing, and why: a toolchain without disassembler


@dataclass(frozen=True)
class Static:
    """Everything that was compiled without a device."""

    targets: tuple[str, ...]
    toolchain: str  # what compiled: triton 3.7.1, ptxas 12.9, torch 2.13.0
    ops: tuple[StaticOp, ...] = ()
    base_ops: tuple[StaticOp, ...] = ()  # the same of the base revision, if its files differ
    base_toolchain: str = ""  # what compiled these, if it is another one


@dataclass(frozen=True, order=True)
class Feature:
    """Something that launches of an op exercise: a compiled kernel, or a program or turn of it after the first."""

    kernel: str  # name in its source
    constants: str  # values of the compile-time constants
    dtypes: str = ""  # of the tensors, by parameter. Empty for a program or turn
    what: str = "compiled"  # or `program`, `turn`
    place: str = ""  # axis of the grid. Function and line of the loop


@dataclass(frozen=True)
class CoverageGap:
    """What accuracy cases never exercise of what a performance case times."""

    case: str  # of the performance suite
    features: tuple[Feature, ...]  # what its launches exercise first, of all performance cases
    add: str | None = None  # cases to add, as Python. None if the accuracy suite cannot make such a case


@dataclass(frozen=True)
class Coverage:
    """What accuracy cases exercise of what performance cases time, as launched on one target."""

    op: str  # its folder's name
    target: str  # what the launches are looked through as: sm_90
    gaps: tuple[CoverageGap, ...] = ()  # performance cases with something that accuracy never exercises
    unrun: tuple[str, ...] = ()  # lines of jitted functions that no case runs: FILE:LINE
    unseen: tuple[str, ...] = ()  # cases with launches that could not be looked through
    failure: Reason | None = None  # why what performance launches could not be looked through
