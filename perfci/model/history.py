"""What is kept of an accepted run of main: one line of `baselines/<device key>/<op>.history.jsonl`."""

from __future__ import annotations

from dataclasses import dataclass

from perfci.model.bounds import Amount, Count, Shift, Time
from perfci.model.measured import Cache, ErrorStats
from perfci.model.place import Environment
from perfci.model.run import FORMAT


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
    blocks: Count
    kernel_us: Spread
    reference_us: Spread | None = None
    shift: Shift | None = None
    """Hodges-Lehmann centre of the blocks' shifts of kernel against reference, log: speedup is exp(-shift)"""
    span_us: Time | None = None
    """median"""
    rsd: Amount | None = None
    """median of the blocks' relative standard deviations"""
    bytes_moved: Count | None = None
    flops: Count | None = None
    bandwidth_share: Amount | None = None
    """of the copy bandwidth measured in that run"""
    compile_s: Amount | None = None
    peak_bytes: Count | None = None
    errors: ErrorStats | None = None
    """of the timed outputs that were verified"""
    null: tuple[tuple[Shift, ...], ...] = ()
    """d of each block, process by process, of a duel of two arms that do the same work: this environment's A/A noise"""
    cache: Cache = "cold"


@dataclass(frozen=True)
class HistoryAccuracy:
    """An accuracy case in one accepted run: the worst of its checks on ordinary values."""

    case: str
    checks: Count
    errors: ErrorStats


@dataclass(frozen=True)
class Epoch:
    """A loss that people accepted: what came before is held against nothing that comes after."""

    why: str
    cases: tuple[str, ...]
    """performance cases that it is about"""


@dataclass(frozen=True)
class HistoryRun:
    """One line: an op in an accepted run on one device model."""

    run: str
    """id"""
    created: str
    """ISO 8601, UTC"""
    environment: Environment
    """commit, board, driver and versions included"""
    cases: tuple[HistoryCase, ...] = ()
    accuracy: tuple[HistoryAccuracy, ...] = ()
    epoch: Epoch | None = None
    """it begins with this run"""
    inconclusive: tuple[str, ...] = ()
    """cases of the run that were not accepted, since nothing could be said about them"""
    format: int = FORMAT
