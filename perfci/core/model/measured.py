"""What was verified and measured of one op's cases."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from perfci.core.model.basics import (
    BY_PERFCI,
    Amount,
    Count,
    ErrorStats,
    Launches,
    Moment,
    Reason,
    Shift,
    Time,
    Whole,
    worst,
)
from perfci.core.model.compiled import Identity
from perfci.core.model.place import DeviceState
from perfci.core.model.stored import StoredTensor

Cache = Literal["cold", "warm"]
"""What L2 held when a timed launch began: nothing of its own (flushed), or what the same call had just used."""


@dataclass(frozen=True)
class AccuracyCase:
    """One accuracy check: a case with one kind of values, layout and seed."""

    case: str  # id: rows=7,cols=1023,dtype=float16
    values: str
    """normal, zeros, ones, tiny, large, subnormal, nan, inf, cancellation. Of a search: confident, ties, sorted,
    repeated, wide, constants, subnormal, one nan, one infinity, edges"""
    layout: str  # contiguous, strided, expanded, pitched
    seed: Whole
    fresh: bool = False  # this seed was drawn for this run; `--seed` repeats it
    errors: ErrorStats | None = None
    reference_errors: ErrorStats | None = None  # errors of the reference in the case's dtype
    base_errors: ErrorStats | None = None
    """errors of the base's kernel on the same inputs, of checks that it was called for. Older runs lack them"""
    rtol: float | None = None
    atol: float | None = None
    failure: Reason | None = None  # why the kernel is wrong. None if it passed
    raised: bool = False  # the failure is an exception, not a wrong answer: ERROR instead of WRONG
    unchecked: Reason | None = None
    """why this check could not be made on this machine, or why passing it means nothing"""
    of_base: bool = False  # a check of the base's suite, which differs from that of the change


@dataclass(frozen=True)
class HistoryAccuracy:
    """An accuracy case in one accepted run: the worst of its checks on ordinary values."""

    case: str
    checks: Count  # how many
    errors: ErrorStats


@dataclass(frozen=True)
class Launch:
    """One timed call, as the device reports it."""

    time_us: float  # all device activities summed
    span_us: float | None = None  # from the first activity's start to the last one's end
    host_us: float | None = None  # how long the call kept the host
    activities: int | None = None
    elsewhere: bool = False  # some of it ran on another stream than the one that is timed
    fell_back: str | None = None  # an operation of it that a CPU computed in the device's place
    clock_mhz: float | None = None  # at the end of the rest before it. None if it had none


@dataclass(frozen=True)
class Summary:
    """Launches of one arm in one block, microseconds. Diagnostics but for the median."""

    launches: Launches
    median_us: Time
    min_us: Time
    p05_us: Time
    p25_us: Time
    p75_us: Time
    p95_us: Time
    max_us: Time
    mean_us: Time
    rsd: Amount  # sample standard deviation / mean
    outliers: Count  # launches beyond the quartiles by more than 1.5 times their distance (Tukey's fence)
    slowest_us: tuple[Time, ...] = ()
    """the launches from the 90th percentile on, ascending, and the one before them. Older runs lack them"""

    @property
    def p90_us(self) -> float | None:
        """90th percentile, interpolated between two launches. None of older runs."""
        if not self.slowest_us:
            return None
        place = 0.9 * (self.launches - 1)
        below, above = (self.slowest_us * 2)[:2]  # a single launch has no other
        return below + (place - int(place)) * (above - below)


PEER = "peer:"  # what the name of a peer's arm begins with


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

    time: Summary  # device time: all kernels, copies and memsets of a launch summed
    span_us: Time | None = None  # median time from a launch's first start to its last end
    host_us: Time | None = None  # median time that the call itself kept the host busy
    activities: Count | None = None  # kernels, copies and memsets a launch
    modes_us: tuple[Time, ...] = ()  # the levels that the launches fall into, if they are several


@dataclass(frozen=True)
class Block:
    """One observation: fresh buffers, then rounds in which every arm is launched once in random order."""

    index: Count
    process: Count  # 0 is the run's first look. 1, 2, ... are re-measurements in fresh processes
    started_s: Moment  # seconds since the start of the run
    arms: Mapping[str, ArmBlock]  # kernel, reference, base. peer:NAME of each peer
    shifts: Mapping[str, Shift]
    """'kernel/reference', 'kernel/peer:NAME' -> Hodges-Lehmann shift of the launches' logarithms. Positive: the first
    is slower"""
    state: DeviceState = field(default_factory=DeviceState)
    board: str | None = field(default=None, metadata=BY_PERFCI)
    """UUID, if the block was not measured on the run's board"""
    clock_mhz: Amount | None = None  # mean clock before its launches, by light work. None if that was not asked for
    held: bool = False  # the power limit held the clock down


@dataclass(frozen=True)
class Measured:
    """One block of a case, with its raw launches in order of time, microseconds."""

    case: str
    block: Block
    launches_us: Mapping[str, tuple[Time, ...]]


def choose_regime(blocks: Sequence[Block]) -> Sequence[Block]:
    """Returns the blocks at the free clock if they are at least half of them, otherwise all.

    At a clock that the power limit holds down, arms that take turns differ by less than each does alone.
    """
    free = [block for block in blocks if not block.held]
    return free if 2 * len(free) >= len(blocks) else blocks


@dataclass(frozen=True)
class SustainedTurn:
    """An arm alone on the device, launched back to back until its clock and power have settled."""

    arm: str
    process: Count
    us: Time  # a call, by the host's clock
    clock_mhz: Amount | None = None
    joules: Amount | None = None  # a call, by the board's energy counter


@dataclass(frozen=True)
class HostArm:
    """One arm's calls in a row in one block of host time, microseconds a call: the shortest of its turns."""

    host_us: Time  # until the last call has returned
    loop_us: Time  # until the device has done their work as well: what a user's loop takes


@dataclass(frozen=True)
class HostBlock:
    """One observation of host time: kernel and base make so many calls in a row, in turns, timed from outside."""

    index: Count
    process: Count
    calls: Count  # of a turn
    arms: Mapping[str, HostArm]  # kernel, base
    shift: Shift | None = None
    """logarithm of kernel's by base's host time. None without a base"""


@dataclass(frozen=True)
class BaseArm:
    """What the kernel as of the base revision has to do with a case."""

    identity: Identity | None = None
    same: bool | None = None  # it does the same device work as the kernel. None if that is not known
    changes: tuple[Reason, ...] = ()  # what differs between the two identities, or why one is not known
    duelled: bool = False  # it is timed beside the kernel
    failure: Reason | None = None  # why it cannot be: it raises, or is wrong itself
    peak_bytes: Count | None = None  # most device memory that the process held during its call, inputs included
    turns: bool = False  # it is timed in a separate process, in turns with the kernel's
    compiled: tuple[CompiledKernel, ...] = ()  # what the compiler made of its kernels, unless they are the same


@dataclass(frozen=True)
class PeerArm:
    """Another implementation that is timed beside a case's kernel, or why it is not."""

    name: str  # as the performance suite calls it
    failure: Reason | None = None  # why it is not timed, or no longer: it does not support the case, raises, is wrong


PARAMETERS = ("warps", "stages", "registers", "shared_bytes", "spills")  # of a compiled kernel, beside its constants
COMPILED = PARAMETERS[2:]  # what the compiler makes of the other parameters


@dataclass(frozen=True)
class KernelChange:
    """What differs between the compiled kernels of two revisions, by identity: stages 4 -> 3."""

    name: str  # of PARAMETERS, grid, or a constant such as BLOCK
    was: str  # in the revision, or round, that it was compared with
    now: str  # in this one


@dataclass(frozen=True)
class CompiledKernel:
    """What the compiler made of one kernel of a launch."""

    name: str
    registers: Count | None = None
    spills: Count | None = None
    shared_bytes: Count | None = None
    warps: Count | None = None
    stages: Count | None = None
    constants: str | None = None  # values of the compile-time constants: the chosen configuration

    @property
    def parameters(self) -> Mapping[str, str]:
        """The constants, what it was launched with, and what the compiler made of it, by name. None is left out."""
        constants = (part.partition("=") for part in (self.constants or "").split(",") if "=" in part)
        named = {name: value for name, _, value in constants} | {name: str(getattr(self, name)) for name in PARAMETERS}
        return {name: value for name, value in named.items() if value != "None"}


@dataclass(frozen=True)
class PerformanceCase:
    """One performance case as measured."""

    case: str
    bytes_moved: Count | None = None  # declared by the op: fewest bytes that must move
    flops: Count | None = None  # declared by the op: floating-point operations
    dtype: str | None = None
    compile_s: Amount | None = None
    """first call of the kernel, with the import of its file and compilation, cold cache"""
    footprint_bytes: Count | None = None  # device memory held by inputs and output
    compiled: tuple[CompiledKernel, ...] = ()
    errors: ErrorStats | None = None  # of the timed outputs that were verified, the worst
    blocks: tuple[Block, ...] = field(default=(), metadata=BY_PERFCI)
    failure: Reason | None = None
    raised: bool = False
    suspicion: tuple[Reason, ...] = ()  # what looks like cheating or a broken measurement
    identity: Identity | None = None  # what the kernel's call does on the device
    peak_bytes: Count | None = None  # most device memory that the process held during a call, inputs included
    base: BaseArm | None = None  # None if the case is not held against a base
    cache: Cache = "cold"
    late: Reason | None = field(default=None, metadata=BY_PERFCI)
    """why it lacks evidence: the time limit was reached before it had its blocks, or further processes"""
    self_reported: Reason | None = field(default=None, metadata=BY_PERFCI)
    """why the process that timed it also ran the op's code, where a base's suites judge the op"""
    compile_again_s: tuple[Amount, ...] = field(default=(), metadata=BY_PERFCI)
    """the same first call in the fresh processes that looked again, in their order"""
    peers: tuple[PeerArm, ...] = ()  # in the suite's order. None if they were not asked for
    sustained: tuple[SustainedTurn, ...] = ()
    """turns at the power limit, in their order. Turns of kernel and base that follow one another are a pair"""
    host: tuple[HostBlock, ...] = ()  # of a case with a device time so short that its host time shows
    unhosted: Reason | None = None  # why host times end early, or are not compared with the base's
    chosen_again: tuple[tuple[str, ...], ...] = field(default=(), metadata=BY_PERFCI)
    """what autotuners chose for kernel and base in the fresh processes that looked again, in their order"""

    @property
    def chosen(self) -> tuple[str, str]:
        """What autotuners chose for kernel and base in this process. Empty texts without any."""
        choices = self.identity.choices if self.identity else ()
        before = self.base.identity.choices if self.base and self.base.identity else choices
        return "; ".join(choices), "; ".join(before)


@dataclass(frozen=True)
class SuiteChange:
    """What a change does to an op's suites and reference, compared with those of its base."""

    weaker: tuple[Reason, ...] = ()  # what they ask less of
    differs: tuple[Reason, ...] = ()  # what the reference answers otherwise


@dataclass(frozen=True)
class OpRun:
    """Everything that one op's worker processes reported."""

    op: str
    accuracy: tuple[AccuracyCase, ...] = ()
    performance: tuple[PerformanceCase, ...] = ()
    failure: Reason | None = None  # the op as a whole broke: did not import, crashed, hung, ran out of memory
    unmeasured: Reason | None = None  # why speed was not measured at all, such as no accelerator
    notes: tuple[Reason, ...] = ()
    tuned: str | None = None  # digest of the tuned file in force, if the op has one
    verify_s: Amount | None = None
    measure_s: Amount | None = None
    wall_s: Amount | None = None  # seconds of its first worker, or pair of them, from its start to its end
    late: Reason | None = None  # the time limit was reached before it was begun, or before its first worker was done
    stored: tuple[StoredTensor, ...] = ()  # what it stores in low precision, if its accuracy suite declares that
    change: SuiteChange | None = None  # None if the base has the same files, or its suites are not known
    seed: Whole | None = None  # of its first process, unless it is the plan's
    spent_s: Mapping[str, Amount] = field(default_factory=dict)
    """seconds of its workers by step: start, accuracy, prepare, measure, end, and later for all of later looks"""


T = TypeVar("T")

KERNEL, REFERENCE, BASE = "kernel", "reference", "base"
SPEEDUP, DUEL = f"{KERNEL}/{REFERENCE}", f"{KERNEL}/{BASE}"

CACHE_MULTIPLE = 4  # a case measures the bandwidth of memory only if it moves so many times the L2 cache
ORDINARY = "normal"  # Values with errors that show how exact a kernel is. Others are at the ends of a dtype's range.


def list_first_look(case: PerformanceCase) -> tuple[Block, ...]:
    """Blocks measured again are left out: only suspects have them, so they would bias history and baseline."""
    return tuple(block for block in case.blocks if block.process == 0 and {KERNEL, REFERENCE} <= block.arms.keys())


def by_process(blocks: Sequence[Block | HostBlock], quantities: Sequence[T]) -> dict[int, list[T]]:
    """Returns quantities, one a block, by process, the first look first."""
    by_number: dict[int, list[T]] = {}
    for block, quantity in sorted(zip(blocks, quantities, strict=True), key=lambda pair: pair[0].process):
        by_number.setdefault(block.process, []).append(quantity)
    return by_number


def find_median(values: Iterable[float | None]) -> float | None:
    """Returns the median of the values that are known."""
    median = [value for value in values if value is not None]
    return statistics.median(median) if median else None


def from_memory(bytes_moved: int | None, cache: str, l2_bytes: int | None) -> bool:
    """Returns whether a case's bytes must come from memory, so that its share of the copy bandwidth has a limit."""
    return bool(bytes_moved and l2_bytes) and cache == "cold" and (bytes_moved or 0) >= CACHE_MULTIPLE * (l2_bytes or 0)


def find_worst_errors(checks: Sequence[AccuracyCase]) -> tuple[HistoryAccuracy, ...]:
    """Returns each case's worst errors of passed checks on ordinary values, from which limits are learnt."""
    by_case: dict[str, list[ErrorStats]] = {}
    for check in checks:
        if check.values == ORDINARY and check.errors and not check.failure and not check.unchecked:
            by_case.setdefault(check.case, []).append(check.errors)
    return tuple(HistoryAccuracy(case, len(errors), worst(errors)) for case, errors in by_case.items())
