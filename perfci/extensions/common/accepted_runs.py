"""An accepted run of main: one line of `baselines/<device key>/<op>.history.jsonl`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from perfci.core.model.basics import Amount, Count, ErrorStats, Shift, Time
from perfci.core.model.measured import Cache, HistoryAccuracy
from perfci.core.model.place import Environment
from perfci.core.model.run import FORMAT
from perfci.core.model.stored import ErrorHistogram, Extent


@dataclass(frozen=True)
class Spread:
    """Of the blocks of one arm: the median of their medians, and the quartiles."""

    median_us: Time
    p25_us: Time
    p75_us: Time


@dataclass(frozen=True)
class HistoryCase:
    """A performance case in one accepted run: figures of its first look."""

    case: str
    blocks: Count  # how many
    kernel_us: Spread
    reference_us: Spread | None = None
    shift: Shift | None = None
    """Hodges-Lehmann centre of the blocks' shifts of kernel against reference, log: speedup is exp(-shift)"""
    span_us: Time | None = None  # median
    rsd: Amount | None = None  # median of the blocks' relative standard deviations
    bytes_moved: Count | None = None  # declared by the op: fewest bytes that must move
    flops: Count | None = None  # declared by the op: floating-point operations
    bandwidth_share: Amount | None = None  # of the copy bandwidth measured in that run
    compile_s: Amount | None = None
    peak_bytes: Count | None = None
    errors: ErrorStats | None = None  # of the timed outputs that were verified
    null: tuple[tuple[Shift, ...], ...] = ()
    """d of each block, process by process, of a duel of two arms that do the same work: this environment's A/A noise"""
    cache: Cache = "cold"
    board: str | None = None  # UUID of the board of its first look, if that is not the run's own
    clock_mhz: Amount | None = None  # median clock beside its blocks

    @property
    def speedup(self) -> float | None:
        """Reference time / kernel time."""
        return None if self.shift is None else math.exp(-self.shift)


@dataclass(frozen=True)
class HistoryStored:
    """A tensor stored in low precision in one accepted run."""

    case: str  # id: stored=a,m=128,k=128,scaling=row,dtype=float8_e4m3fn
    errors: ErrorStats  # of what is stored against the originals
    clip_ratio: Amount = 0.0  # share of the originals that the scale left beyond the dtype's range
    divergence: Amount = 0.0  # of the histogram from that of the accepted run before, nats
    histogram: ErrorHistogram | None = None  # of the absolute errors
    amax: Extent | None = None  # largest magnitude of a group
    scale: Extent | None = None  # of a group
    extreme: Count = 0  # channels with a largest magnitude of 10 times the median of all or more


@dataclass(frozen=True)
class BoardCounts:
    """What a run came to on one board: performance cases with their first look there, accepted or not."""

    board: str  # UUID
    judged: Count  # how many
    inconclusive: Count = 0  # of them: no answer was possible
    suspects: Count = 0  # of them: measured again in fresh processes, and then judged
    overturned: Count = 0  # of the suspects: neither slower nor faster after all
    ecc_errors: Count = 0  # most memory errors beside a block that could not be corrected


@dataclass(frozen=True)
class Epoch:
    """A loss that people accepted: what came before is held against nothing that comes after."""

    why: str
    cases: tuple[str, ...]  # performance cases that it is about


@dataclass(frozen=True)
class HistoryRun:
    """One line: an op in an accepted run on one device model."""

    run: str  # id
    created: str  # ISO 8601, UTC
    environment: Environment  # commit, board, driver and versions included
    cases: tuple[HistoryCase, ...] = ()  # its performance cases that were accepted
    accuracy: tuple[HistoryAccuracy, ...] = ()  # its accuracy cases
    epoch: Epoch | None = None  # it begins with this run
    inconclusive: tuple[str, ...] = ()
    """cases of the run that were not accepted, since nothing is certain about them"""
    kept: tuple[str, ...] = ()
    """further cases, whose stored baselines stayed: the run, or what was accepted of it, had some of the op's cases"""

    def why(self, case: str) -> str | None:
        """Why people accepted a loss of a case with this run. None if they accepted none."""
        return self.epoch.why if self.epoch and case in self.epoch.cases else None

    @property
    def known(self) -> tuple[str, ...]:
        """Performance cases that the op had when this run was accepted."""
        return tuple(dict.fromkeys((*(case.case for case in self.cases), *self.inconclusive, *self.kept)))

    renamed: Mapping[str, str] = field(default_factory=dict)
    """id of a case -> the id that it had before, as the op's suite declares"""
    renamed_from: str | None = None  # name that the op had before: its older lines lie in that op's history
    boards: tuple[BoardCounts, ...] = ()  # what the run came to, board by board. Older lines lack it
    stored: tuple[HistoryStored, ...] = ()  # what it stores in low precision
    format: int = FORMAT
