"""What was verified and measured of one op's cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from perfci.core.model.bounds import Amount, Count, Moment, Shift, Time, Whole
from perfci.core.model.closeness import ErrorStats
from perfci.core.model.identity import Identity
from perfci.core.model.lowprec import StoredTensor
from perfci.core.model.place import DeviceState
from perfci.core.model.verdict import Reason

Cache = Literal["cold", "warm"]
"""What L2 held when a timed launch began: nothing of its own (flushed), or what the same call had just used."""


@dataclass(frozen=True)
class AccuracyCase:
    """One accuracy check: a case with one kind of values, layout and seed."""

    case: str
    """id: rows=7,cols=1023,dtype=float16"""
    values: str
    """normal, zeros, ones, tiny, large, subnormal, nan, inf, cancellation"""
    layout: str
    """contiguous, strided, expanded"""
    seed: Whole
    fresh: bool = False
    """this seed was drawn for this run; `--seed` repeats it"""
    errors: ErrorStats | None = None
    reference_errors: ErrorStats | None = None
    """errors of the reference in the case's own dtype"""
    rtol: float | None = None
    atol: float | None = None
    failure: Reason | None = None
    """why the kernel is wrong. None if it passed"""
    raised: bool = False
    """the failure is an exception, not a wrong answer: ERROR instead of WRONG"""
    unchecked: Reason | None = None
    """why this check could not be made on this machine, or why passing it says nothing"""


@dataclass(frozen=True)
class Summary:
    """Launches of one arm in one block, microseconds; diagnostics but for the median."""

    launches: Count
    median_us: Time
    min_us: Time
    p05_us: Time
    p25_us: Time
    p75_us: Time
    p95_us: Time
    max_us: Time
    mean_us: Time
    rsd: Amount
    """sample standard deviation / mean"""
    outliers: Count
    """launches beyond the quartiles by more than 1.5 times their distance (Tukey's fence)"""


PEER = "peer:"
"""What the name of a peer's arm begins with."""


def peer_arm(name: str) -> str:
    """What a peer is called among the arms of a block.

    >>> peer_arm("torch.compile")
    'peer:torch.compile'
    """
    return PEER + name


def is_peer(arm: str) -> bool:
    """Whether an arm is a peer's.

    >>> is_peer("peer:flash"), is_peer("kernel")
    (True, False)
    """
    return arm.startswith(PEER)


@dataclass(frozen=True)
class ArmBlock:
    """One arm in one block."""

    time: Summary
    """device time: all kernels, copies and memsets of a launch summed"""
    span_us: Time | None = None
    """median time from a launch's first start to its last end"""
    host_us: Time | None = None
    """median time that the call itself kept the host busy"""
    activities: Count | None = None
    """kernels, copies and memsets a launch"""
    modes_us: tuple[Time, ...] = ()
    """the levels that the launches fall into, if they are several"""


@dataclass(frozen=True)
class Block:
    """One observation: fresh buffers, then rounds in which every arm is launched once in random order."""

    index: Count
    process: Count
    """0 is the run's first look; 1, 2, ... are re-measurements in fresh processes"""
    started_s: Moment
    """seconds since the start of the run"""
    arms: Mapping[str, ArmBlock]
    """kernel, reference, base; peer:NAME of each peer"""
    shifts: Mapping[str, Shift]
    """'kernel/reference', 'kernel/peer:NAME' -> Hodges-Lehmann shift of the launches' logarithms; positive: the first
    is slower"""
    state: DeviceState = field(default_factory=DeviceState)
    board: str | None = None
    """UUID, if the block was not measured on the run's own board"""


@dataclass(frozen=True)
class BaseArm:
    """What the kernel as of the base revision has to do with a case."""

    identity: Identity | None = None
    same: bool | None = None
    """it does the same device work as the kernel. None if that cannot be told"""
    changes: tuple[Reason, ...] = ()
    """what differs between the two identities"""
    duelled: bool = False
    """it is timed beside the kernel"""
    failure: Reason | None = None
    """why it cannot be: it raises, or is wrong itself"""
    peak_bytes: Count | None = None
    """most device memory that the process held during its call, inputs included"""


@dataclass(frozen=True)
class PeerArm:
    """Another implementation that is timed beside a case's kernel, or why it is not."""

    name: str
    """as the performance suite calls it"""
    first_call_s: Amount | None = None
    """making it and its first call, compilation included"""
    failure: Reason | None = None
    """why it is not timed, or no longer: it does not support the case, raises, is wrong"""


@dataclass(frozen=True)
class CompiledKernel:
    """What the compiler made of one kernel of a launch."""

    name: str
    registers: Count | None = None
    spills: Count | None = None
    shared_bytes: Count | None = None
    warps: Count | None = None
    stages: Count | None = None
    constants: str | None = None
    """values of the compile-time constants: the chosen configuration"""


@dataclass(frozen=True)
class PerformanceCase:
    """One performance case as measured."""

    case: str
    bytes_moved: Count | None = None
    """declared by the op: fewest bytes that must move"""
    flops: Count | None = None
    """declared by the op: floating-point operations"""
    dtype: str | None = None
    compile_s: Amount | None = None
    """first call of the kernel, compilation included, cold cache"""
    warmup_launches: Count | None = None
    footprint_bytes: Count | None = None
    """device memory held by inputs and output"""
    compiled: tuple[CompiledKernel, ...] = ()
    errors: ErrorStats | None = None
    """of the timed outputs that were verified, the worst"""
    blocks: tuple[Block, ...] = ()
    failure: Reason | None = None
    raised: bool = False
    suspicion: tuple[Reason, ...] = ()
    """what looks like cheating or a broken measurement"""
    identity: Identity | None = None
    """what the kernel's call does on the device"""
    peak_bytes: Count | None = None
    """most device memory that the process held during a call, inputs included"""
    base: BaseArm | None = None
    """None if the case is not held against a base"""
    cache: Cache = "cold"
    late: Reason | None = None
    """why it lacks evidence: the time limit was reached before it had its blocks, or further processes"""
    compile_again_s: tuple[Amount, ...] = ()
    """the same first call in the fresh processes that looked again, in their order"""
    peers: tuple[PeerArm, ...] = ()
    """in the suite's order. None if they were not asked for"""


@dataclass(frozen=True)
class OpRun:
    """Everything that one op's worker processes reported."""

    op: str
    accuracy: tuple[AccuracyCase, ...] = ()
    performance: tuple[PerformanceCase, ...] = ()
    failure: Reason | None = None
    """the op as a whole broke: did not import, crashed, hung, ran out of memory"""
    unmeasured: Reason | None = None
    """why speed was not measured at all, such as no accelerator"""
    notes: tuple[Reason, ...] = ()
    tuned: str | None = None
    """digest of the tuned file in force, if the op has one"""
    verify_s: Amount | None = None
    measure_s: Amount | None = None
    busy_share: Amount | None = None
    """share of the measuring phase's wall time in which the device was at work, flush included"""
    wall_s: Amount | None = None
    """seconds of its first worker, or pair of them, from its start to its end"""
    late: Reason | None = None
    """the time limit was reached before it was begun, or before its first worker was done"""
    stored: tuple[StoredTensor, ...] = ()
    """what it stores in low precision, if its accuracy suite declares that"""
