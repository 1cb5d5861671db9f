"""Comparisons, judgements, and what would make them firmer."""

from collections.abc import Sequence
from dataclasses import dataclass

from perfci.core.model.basics import Gate, Interval, Look, Reason, Suite, Tail, Verdict
from perfci.core.model.measured import HostArm
from perfci.core.model.place import Difference
from perfci.core.model.run import Expected, Suggestion


@dataclass(frozen=True)
class Screen:
    """One process's blocks of a case against its stored baseline."""

    process: int
    blocks: int
    baseline_blocks: int
    change: Interval  # ratio - 1 after the control variate. Plus is slower
    p_slower: float  # one-sided, the margin inside the null hypothesis
    p_faster: float
    beta: float  # weight of the control variate
    correlation: float | None
    margin: float  # allowed slow-down, ratio - 1
    difference_us: float  # of the medians, microseconds. Plus is slower
    reference_change: float  # of the reference against its baseline, ratio - 1
    smallest_p: float  # the least p that these numbers of blocks can give
    adjusted_slower: float = 1.0  # p values adjusted over the run's first looks. 1 for other looks
    adjusted_faster: float = 1.0


def choose_look(screens: Sequence[Screen]) -> Screen:
    """The one whose change stands for all: the middle one, which neither the first look's luck nor an odd one moves."""
    return sorted(screens, key=lambda screen: screen.change.value)[(len(screens) - 1) // 2]


@dataclass(frozen=True)
class PeerFigure:
    """A peer beside a case's kernel."""

    name: str
    us: float | None = None  # median of its block medians. None if it was not timed
    ratio: Interval | None = None
    """peer's time / kernel time, by blocks as the speedup is: below 1 the kernel is the slower one"""
    failure: Reason | None = None  # why it was not timed, or not to the end

    @property
    def faster(self) -> bool:
        """Whether it beats the kernel beyond doubt: the whole 95 % interval lies below 1."""
        return self.ratio is not None and self.ratio.high < 1 and self.ratio.confidence >= PEER_CONFIDENCE


PROCESSES = 2  # fresh processes that must confirm what the first look suspects
PEER_CONFIDENCE = 0.95  # below, as with fewer than six blocks, no peer is called faster


@dataclass(frozen=True)
class SustainedFigure:
    """What an arm gets at the power limit: medians over its turns."""

    arm: str
    us: float  # a call
    clock_mhz: float | None = None
    joules: float | None = None  # a call
    gflops_per_watt: float | None = None  # declared operations by energy


@dataclass(frozen=True)
class Comparison:
    """A performance case held against its baseline."""

    op: str
    case: str
    screens: tuple[Screen, ...] = ()  # one a process, the first look first. Empty if there is nothing to compare
    spans: tuple[Screen, ...] = ()
    """the same of the launch's span, with its wider margin. Empty if a launch is one kernel or spans are unknown"""
    alone: tuple[Screen, ...] = ()
    """the same of the kernel's time, nothing corrected. Only where the reference left the baseline's range"""
    stale: Reason | None = None  # why the stored baseline cannot speak
    known: bool = False  # the baseline has the case
    measured: bool = True  # this run has the case
    speedup: Interval | None = None  # reference time / kernel time
    kernel_us: float | None = None
    reference_us: float | None = None
    baseline_us: float | None = None  # medians of block medians
    activities: float | None = None  # kernels, copies and memsets a launch, median over blocks
    baseline_activities: float | None = None
    duel: Look | None = None  # kernel against base, if both were timed
    duel_span: Look | None = None
    """the same of the launch's span. None if a launch is one kernel or spans are unknown"""
    duel_sustained: Look | None = None
    """the same of arms alone on the device, at its power limit. Its blocks are pairs of turns"""
    sustained: tuple[SustainedFigure, ...] = ()  # of each arm, if the kernel reaches the power limit
    clock_mhz: float | None = None  # median over blocks that count
    tail: Tail | None = None  # what the medians of the duel do not see. None if the run did not record it
    base_us: float | None = None  # median of the base's block medians
    duel_host: Look | None = None  # how long a call keeps the host, kernel against base. None if that hardly shows
    host: HostArm | None = None  # of the kernel, medians over its blocks of host time
    base_host: HostArm | None = None
    differs: tuple[Difference, ...] = ()  # fields in which this run's environment is not that of the case's baseline
    peers: tuple[PeerFigure, ...] = ()  # in the suite's order. Nothing is judged by them


@dataclass(frozen=True)
class Finding:
    """The answer to one question about a case."""

    verdict: Verdict
    reasons: tuple[Reason, ...] = ()
    unsettled: bool = False  # fresh processes would decide it
    processes: int = PROCESSES  # how many, those at hand included
    exact: bool = False  # not a matter of time: neither noise nor a hot device hides it


@dataclass(frozen=True)
class Judgement:
    """The verdict about one case, or about an op as a whole where case is None."""

    op: str
    suite: Suite
    case: str | None
    verdict: Verdict
    reasons: tuple[Reason, ...]  # the first one decided. The others are worth knowing
    comparison: Comparison | None = None
    p_adjusted: float | None = None
    target: str | None = None  # what a compiled kernel was compiled for
    expected: Expected | None = None  # the entry that excuses it, or that does not reach so far, or no more
    warns: bool = False  # the gate warns although the verdict is fine: the entry that excuses it has expired
    fails: bool = False
    """the gate fails although the verdict only warns: it rests on proof that no one agreed to, or a limit wants it"""
    suggested: Suggestion | None = None  # the entry that would excuse it, if one could

    @property
    def gate(self) -> Gate:
        """The effect of this row on the merge request."""
        if self.fails:
            return Gate.FAILS
        return Gate.WARNS if self.warns and self.verdict.gate is Gate.OK else self.verdict.gate


@dataclass(frozen=True)
class Need:
    """Evidence that the judge lacks. The pipeline gets it."""

    op: str
    case: str
    processes: int  # fresh processes that the case should have been measured in, those so far included


@dataclass(frozen=True)
class Judgements:
    """All verdicts of a run, and what would make them firmer."""

    rows: tuple[Judgement, ...]
    needs: tuple[Need, ...] = ()
    notes: tuple[Reason, ...] = ()
    """about the run as a whole: stopped early, foreign processes, throttling, how it is judged"""

    @property
    def gate(self) -> Gate:
        """The worst gate of all rows."""
        gates = {row.gate for row in self.rows}
        return next((gate for gate in (Gate.FAILS, Gate.WARNS) if gate in gates), Gate.OK)
