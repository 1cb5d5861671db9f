"""A profile of an op: where the time of each case goes, and what promises to shorten it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from perfci.core.model.basics import Amount, Count, Reason, Time
from perfci.core.model.compiled import KernelBinary
from perfci.core.model.place import Device
from perfci.core.model.run import FORMAT
from perfci.device.seam import Counters, CounterSource


class Bound(StrEnum):
    """The bound of a case's time."""

    MEMORY = "memory"  # DRAM's bandwidth
    COMPUTE = "compute"  # the pipes that calculate
    L2 = "l2"  # the bandwidth of the cache
    OCCUPANCY = "occupancy"  # too few warps or programs are at work to hide latency
    LAUNCH = "launch"  # what a kernel's start takes
    LATENCY = "latency"  # none of these: warps wait for data or for each other


@dataclass(frozen=True)
class Looked:
    """A worker's findings in an op's calls: counters, and what the compiler made of its kernels."""

    counters: Counters = field(default_factory=Counters)
    binaries: Mapping[str, tuple[KernelBinary, ...]] = field(default_factory=dict)
    target: str | None = None  # architecture of the device, if perfci has the facts of it


@dataclass(frozen=True)
class Advice:
    """A direction that promises to shorten a case's time."""

    id: str  # what to try: fewer_warps, larger_tiles, more_programs, ...
    reason: Reason
    speedup: Amount  # bound that it could reach: time now / least time then
    by: str  # model that the bound is of: roofline, occupancy, waves, launch, host, traffic, stalls


@dataclass(frozen=True)
class CaseProfile:
    """A performance case: what was measured of it, and what that means."""

    case: str
    us: Time | None = None  # device time of a call. null if the case failed
    bound: Bound | None = None
    evidence: tuple[Reason, ...] = ()  # for this bound, the strongest first
    counters: Mapping[str, Amount] = field(default_factory=dict)
    """of one call: bytes, shares from 0 to 1, ratios. `counters.NAMES` explains them"""
    advice: tuple[Advice, ...] = ()  # the two directions that promise most, the best first
    host_us: Time | None = None  # how long a call keeps the host, of calls in a row, if that shows
    activities: Count | None = None  # kernels, copies and memsets of a call
    programs: Count | None = None  # of its largest launch
    bytes_moved: Count | None = None  # declared by the op: fewest bytes that must move
    rates: Mapping[str, Amount] = field(default_factory=dict)
    """reached by declared bytes and operations: gbps, tflops; of_copy, of_matmul: shares of the ceilings"""
    binaries: tuple[KernelBinary, ...] = ()  # each distinct kernel once, in order of its first launch
    failure: Reason | None = None


@dataclass(frozen=True)
class Profile:
    """The last profile of an op: `reports/profiles/<op>.json`."""

    op: str
    device: Device
    time: str  # ISO 8601, UTC
    source: CounterSource = "compiled"
    note: Reason | None = None  # why there are no counters
    cases: tuple[CaseProfile, ...] = ()
    digest: str | None = None  # of all files that the op needs, SHA-256 in hexadecimal, as they were profiled
    format: int = FORMAT
