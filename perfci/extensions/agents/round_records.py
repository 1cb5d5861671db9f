"""Rounds of optimising an op: one line each of `kernels/<op>/optimization.jsonl`, its logbook."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from perfci.core.model.basics import Amount, Count, Interval, Reason, Time
from perfci.core.model.measured import KernelChange
from perfci.core.model.run import FORMAT


class RoundVerdict(StrEnum):
    """The outcome of a round."""

    KEPT = "kept"  # faster beyond doubt in a case or more, slower in none: the best round from now on
    EQUAL = "equal"  # nothing that matters changed, or nothing could be shown
    SLOWER = "slower"
    MIXED = "mixed"  # faster in some cases, slower in others
    WRONG = "wrong"  # the answer is wrong: not timed
    REFUSED = "refused"  # not a round at all: nothing changed, or more than a round may change
    ERROR = "error"  # it raised, crashed or could not be measured

    @property
    def counts(self) -> bool:
        """Whether it takes one of the rounds that a start has: one that was not judged does not."""
        return self not in {RoundVerdict.REFUSED, RoundVerdict.ERROR}


@dataclass(frozen=True)
class RoundCase:
    """A performance case in a round. Gains are ratios - 1 of times, the other's / the kernel's: 0.2 is 20 % faster."""

    case: str
    us: Time | None = None  # of the kernel, or of the best round if that does the same work. null if not timed
    best_us: Time | None = None  # of the round that it was timed beside
    reference_us: Time | None = None
    best: Interval | None = None  # gain over the best round before
    start: Interval | None = None  # gain over the start
    bytes_moved: Count | None = None  # as declared


@dataclass(frozen=True)
class Round:
    """One round: a change of an op's kernel that was tried, why, and what came of it."""

    op: str
    number: Count  # 1, 2, ... in the op's logbook
    why: str
    verdict: RoundVerdict
    time: str  # ISO 8601, UTC
    start: str  # the commit from which the kernel is optimised
    commit: str | None = None
    """the start's tree with the kernel's files as they were tried, kept by refs/perfci/rounds/OP/NUMBER"""
    best: Count = 0  # number of the round that it was compared with. 0 for the start
    against: str | None = None  # that round's commit
    expected: float | None = None  # gain that was hoped for: 0.2 is 20 % faster
    kinds: tuple[str, ...] = ()  # of change: tuning, interface, logic. Several at once show less of each
    changed: tuple[KernelChange, ...] = ()
    files: tuple[str, ...] = ()  # that differ from the round that it was compared with, below the project's root
    digest: str | None = None  # of all files that the op needs, SHA-256 in hexadecimal
    device: str | None = None  # its key
    cases: tuple[RoundCase, ...] = ()
    gain: Interval | None = None
    """geometric mean over the cases of the gain over the best round before, widened for the rounds so far"""
    total: Interval | None = None  # the same over the start. null if it was not timed beside it
    place: Count = 0  # among the rounds of this start that were tried, in error too. 0 for one that was not
    reasons: tuple[Reason, ...] = ()  # the first one decided
    counters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """case -> counters of the op's last profile when it was tried"""
    advice: str | None = None  # kind of advice of that profile that it follows
    seconds: Amount | None = None  # that it took
    format: int = FORMAT

    @property
    def speedup(self) -> float | None:
        """Geometric mean over the cases of reference time / kernel time. None if one was not timed."""
        logs = [math.log(case.reference_us / case.us) for case in self.cases if case.us and case.reference_us]
        return math.exp(sum(logs) / len(logs)) if logs and len(logs) == len(self.cases) else None
