"""What a profile of an op finds: where the time of each case goes, and what promises to shorten it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from perfci.core.model.basics import Amount, Count, Reason, Time
from perfci.core.model.measured import Cache, KernelBinary
from perfci.core.model.place import Device, Limits
from perfci.core.model.run import FORMAT


class Bound(StrEnum):
    """What holds a case's time up."""

    MEMORY = "memory"  # DRAM's bandwidth
    COMPUTE = "compute"  # the pipes that calculate
    L2 = "l2"  # the bandwidth of the cache
    OCCUPANCY = "occupancy"  # too few warps or programs are at work to hide latency
    LAUNCH = "launch"  # what a kernel's start takes
    LATENCY = "latency"  # none of these: warps wait for data or for each other


CounterSource = Literal["ncu", "aic_metrics", "virtual", "compiled"]
"""Where counters are from: Nsight Compute, torch_npu, the fake device. compiled: nowhere, only code and times tell."""


@dataclass(frozen=True)
class Advice:
    """A direction that promises to shorten a case's time."""

    id: str  # what to try: fewer_warps, larger_tiles, split_rows, ...
    reason: Reason
    speedup: Amount  # bound that it could reach: time now / least time then
    by: str  # model that the bound is of: roofline, occupancy, waves, launch, traffic


@dataclass(frozen=True)
class CaseProfile:
    """A performance case: what was measured of it, and what that means."""

    case: str
    us: Time | None = None  # device time of a call, median. null if the case failed
    bound: Bound | None = None
    evidence: tuple[Reason, ...] = ()  # why it has this bound, the strongest first
    counters: Mapping[str, Amount] = field(default_factory=dict)
    """of one call by name: bytes, shares from 0 to 1, ratios. `perfci.device.counters.NAMES` has all. Empty if there
    are none"""
    advice: tuple[Advice, ...] = ()  # the two directions that promise most, the best first
    reference_us: Time | None = None  # device time of the reference
    host_us: Amount | None = None  # how long a call keeps the host, of calls in a row
    activities: Count | None = None  # kernels, copies and memsets of a call
    bytes_moved: Count | None = None  # declared by the op: fewest bytes that must move
    flops: Count | None = None  # declared by the op: floating-point operations
    dtype: str | None = None
    cache: Cache = "cold"
    rates: Mapping[str, Amount] = field(default_factory=dict)
    """reached by the declared bytes and operations: gbps, tflops; of_copy, of_matmul: shares of the ceilings"""
    binaries: tuple[KernelBinary, ...] = ()  # each distinct kernel once, in order of its first launch
    programs: Count | None = None  # of the largest launch
    stages: Count | None = None  # of its software pipeline
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
    limits: Limits = field(default_factory=Limits)
    commit: str | None = None  # HEAD of the project
    format: int = FORMAT
