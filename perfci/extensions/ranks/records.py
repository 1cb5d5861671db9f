"""What travels between a group's processes, and from its worker to the run: numbers, no verdicts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfci.core.model import Amount, Count, Reason, Time, Whole

NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
"""Variables of every process of a group. NVLink multicast stays off: a program that ends badly with it can leave the
boards of a host unusable."""

KERNEL, REFERENCE, BASE = "kernel", "reference", "base"
COMMUNICATE, COMPUTE = "communicate", "compute"

ALL = -1
"""In place of a rank: the launch as a whole, which is as long as its slowest rank."""

# --- between the leader of a group and its ranks ----------------------------------------------------------------------


@dataclass(frozen=True)
class OpPlace:
    """Where an op lives as of one revision."""

    op: str
    folder: Path
    shared: Path
    root: Path


@dataclass(frozen=True)
class RankPlace:
    """What one rank's process is told when it starts."""

    rank: int
    ranks: int
    device: str  # cuda or cpu
    head: OpPlace
    base: OpPlace | None
    meeting: Path  # file through which the ranks find each other
    places: Path  # file that all ranks write to how far they are
    stack: Path  # file that this rank writes its stack to when it is asked
    limit_s: float
    board: int = 0  # index among the devices that this process sees
    hears: bool = False  # the driver, so that launches of both revisions can be compared: that takes seconds


@dataclass(frozen=True)
class Ask:
    """One thing that all ranks are asked to do together."""

    do: str  # list, check, prepare, clocks, links, block
    case: str = ""
    seed: int = 0
    order: tuple[str, ...] = ()  # of a block: arms, launch by launch


@dataclass(frozen=True)
class Answer:
    """One rank's answer to an `Ask`."""

    failure: Reason | None = None  # its call raised, or its files break the contract
    body: Mapping[str, Any] = field(default_factory=dict)


# --- from the leader to the run ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupReady:
    """All ranks are in the group, and have imported the op."""

    backend: str  # nccl, gloo or virtual
    accuracy: tuple[str, ...]  # ids of cases
    performance: tuple[str, ...]
    boards: tuple[str, ...] = ()  # UUIDs, by rank


@dataclass(frozen=True)
class RankError:
    """How far one rank's output is from float64."""

    error: Amount = 0.0  # ||output - exact||
    exact: Amount = 0.0  # ||exact||
    usual: Amount = 0.0  # the same of the reference in the case's dtype
    count: Count = 0  # elements
    wrong: Count = 0  # beyond the tolerance
    worst: str = ""  # index of the worst of them
    share: Amount = 0.0  # the largest error as a share of what is allowed
    repeats: bool = True  # a second call gave the same bits
    kept: bool = True  # the inputs were left as they were
    form: str = ""  # how shape or dtype differ from the reference's
    outside: Count = 0  # addresses outside its arrays that the kernel used, as far as the device shows it


@dataclass(frozen=True)
class RanksChecked:
    """One case of the accuracy suite."""

    case: str
    seed: Whole
    ranks: tuple[RankError, ...] = ()
    rtol: Amount = 0.0
    atol: Amount = 0.0
    failure: Reason | None = None  # a rank raised
    exact_repeats: bool = True  # the op says that it gives the same bits each time


@dataclass(frozen=True)
class ClocksCompared:
    """How far the ranks' clocks are apart, by what they show behind barriers, microseconds, rank by rank."""

    offset_us: tuple[float, ...]
    spread_us: tuple[Amount, ...]
    """half of the distance between the quartiles of the offset: what a barrier and the clocks leave unknown"""


@dataclass(frozen=True)
class LinksMeasured:
    """Ceilings of a rank."""

    link_gbs: Amount | None = None  # of a copy to the next rank, the slowest of all pairs that copied at once
    bandwidth_gbs: Amount | None = None  # of its memory
    tflops: Mapping[str, Amount] = field(default_factory=dict)


@dataclass(frozen=True)
class CasePrepared:
    """One case of the performance suite before it is timed."""

    case: str
    arms: tuple[str, ...] = ()
    same: tuple[bool, ...] = ()  # by rank: kernel and base do the same work
    unknown: Reason | None = None  # why a rank's work could not be captured
    failure: Reason | None = None
    sent_bytes: Count | None = None  # that one rank sends, by formula
    moved_bytes: Count | None = None  # through one rank's memory, likewise
    flops: Count | None = None  # of one rank: an op's `flops` are of all together
    dtype: str = ""
    activations: tuple[Count, Count, Count] | None = None  # rows, columns, bytes of an element: what a layer passes on


@dataclass(frozen=True)
class RanksBlock:
    """One block of a case: arm -> rank -> launches in order of time, microseconds."""

    case: str
    index: Count
    times_us: Mapping[str, tuple[tuple[Time, ...], ...]]
    skew_us: Amount | None = None
    """half of the distance between the quartiles of how far two ranks' clocks are apart when launches begin"""
    counted_bytes: tuple[Count, ...] = ()
    """by rank: what the board's counters say that crossed its links in this block, of all arms"""


@dataclass(frozen=True)
class LinksCounted:
    """What counters saw leave the ranks' boards while all launched one arm alone: turn -> rank -> bytes a launch."""

    case: str
    kernel: tuple[tuple[Amount, ...], ...]
    base: tuple[tuple[Amount, ...], ...]
