"""The parts of all records: numbers within bounds, reasons, verdicts, intervals and errors.

A stored number is far beyond what any device gives, and short of what no arithmetic survives. A file with numbers
outside is refused when it is read, with the place. The published schemas have the same bounds. Within them, logarithms,
ratios and sums of what was read stay finite.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

Time = Annotated[float, Meta(ge=1e-6, le=1e15)]
"""Microseconds that something took: from a picosecond to thirty years, never nothing."""

Shift = Annotated[float, Meta(ge=-50.0, le=50.0)]  # natural logarithm of a ratio of two such times
Change = Annotated[float, Meta(ge=-1.0, le=1e18)]  # a ratio of two such times - 1

Amount = Annotated[float, Meta(ge=0.0, le=1e18)]
"""Seconds, watts, gigabytes a second, a share: what cannot be negative."""

Moment = Annotated[float, Meta(ge=-1e18, le=1e18)]  # seconds since some other moment
Count = Annotated[int, Meta(ge=0, le=2**62)]  # how many, or how many bytes
Launches = Annotated[int, Meta(ge=1, le=2**62)]  # of a sample: one at least
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]  # a whole number that may be negative: a seed, a temperature


BY_PERFCI: Mapping[str, Any] = {"writer": "perfci"}
"""Metadata of a field that perfci alone writes: no message of a worker may have it, as code of an op could write it."""


def is_by_perfci(entry: "Field[Any]") -> bool:
    """Whether perfci alone writes a field of a record."""
    return entry.metadata.get("writer") == "perfci"


Fact = str | Whole | float | bool | None  # a number or word that a sentence about a reason may need


@dataclass(frozen=True)
class Reason:
    """Why something is as it is: a kind, and the numbers that its sentence needs (worded by `perfci.core.wording`)."""

    kind: str
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def seen_from(self, root: Path) -> "Reason":
        """The same with files by their place below a folder: what is made of it is read elsewhere."""
        places = {name: fact.replace(f"{root}/", "") for name, fact in self.facts.items() if isinstance(fact, str)}
        return Reason(self.kind, {**self.facts, **places})


CAUSE = "cause"  # fact that holds the kind of another reason: its sentence with the same facts is shown


def because(kind: str, why: Reason, **facts: Fact) -> Reason:
    """Returns a reason that another one caused. Its template shows the cause at `{cause}`."""
    return Reason(kind, {**why.facts, **facts, CAUSE: why.kind})


def as_fact(english: str) -> str:
    """Marks a text that a reason has as a fact `{name:say}`. It is stored in English and translated with the reason."""
    return english


class Gate(StrEnum):
    """The effect of a verdict on the merge request."""

    OK = "ok"
    WARNS = "warns"
    FAILS = "fails"


class Verdict(StrEnum):
    """The answer about one case."""

    PASS = "PASS"
    UNCHANGED = "UNCHANGED"
    IMPROVED = "IMPROVED"
    REGRESSED = "REGRESSED"
    WRONG = "WRONG"
    TOO_SLOW = "TOO_SLOW"
    ERROR = "ERROR"
    INCONCLUSIVE = "INCONCLUSIVE"
    TAIL = "TAIL"
    EXPECTED = "EXPECTED"
    DRIFTED = "DRIFTED"
    STALE = "STALE"
    SUSPECT = "SUSPECT"
    REMOVED = "REMOVED"
    NEW = "NEW"
    WEAKENED = "WEAKENED"

    @property
    def gate(self) -> Gate:
        """The effect of this verdict on the merge request."""
        if self in _FAILS:
            return Gate.FAILS
        return Gate.WARNS if self in _WARNS else Gate.OK


_FAILS = frozenset({Verdict.REGRESSED, Verdict.WRONG, Verdict.TOO_SLOW, Verdict.WEAKENED, Verdict.ERROR})
_WARNS = frozenset(
    {Verdict.INCONCLUSIVE, Verdict.TAIL, Verdict.DRIFTED, Verdict.STALE, Verdict.SUSPECT, Verdict.REMOVED}
)


class Suite(StrEnum):
    """Which of an op's two suites a case belongs to, or that it is about its compiled kernels or its suites."""

    ACCURACY = "accuracy"
    PERFORMANCE = "performance"
    COMPILED = "compiled"
    SUITES = "suites"


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its confidence interval."""

    value: float
    low: float
    high: float
    confidence: float = 0.95  # with which it holds


@dataclass(frozen=True)
class Look:
    """One case's duel as it stands: d is the shift of kernel against base in one block, log scale, plus is slower."""

    blocks: int
    processes: int
    shift: Interval  # Hodges-Lehmann centre of d with its interval, log scale
    p_slower: float  # exact signed-rank test of d > tau. 1 before the looks that may decide
    p_faster: float  # of d < -tau
    medians: tuple[float, ...]  # of d, one a process
    sizes: tuple[int, ...]  # blocks, one a process
    tau: float  # allowed slow-down, log scale
    p_differs: float = 1.0
    """of |d| >= tau, the larger of two one-sided tests: small where kernel and base are as good as equal"""
    reach: float = 0.0  # how far d may lie beyond its centre by the noise of blocks and processes, log scale
    guard: float | None = None  # how far processes stray in this figure, log scale. None: as a device's time does
    apart: bool = False  # each revision was timed in a separate process: only the final looks can clear it
    adjusted_slower: float = 1.0  # p values adjusted over the cases duelled
    adjusted_faster: float = 1.0


@dataclass(frozen=True)
class Tail:
    """What the median of launches does not see of a duel: few launches, blocks or processes that take far longer.

    Ratios - 1, plus is slower. Of the kernel's launches against the base's in the same blocks.
    """

    mean: float  # mean over the blocks of the ratio of both means
    costs: tuple[float, ...]  # the same less the duel's slow-down, one a process
    p90: float  # of the 90th percentiles, median over the blocks
    p: float
    """the smaller of two exact signed-rank tests, of means and of 90th percentiles, over the blocks in which they are
    farther apart than is allowed"""
    share: float  # least share of the kernel's launches that are slow: beyond 99 % of the base's by twice tau
    base_share: float  # of the base's launches
    times: float  # median of these launches of the kernel / the base's median. 1 if there are none
    apart: float = 0.0  # by how much the slower of two levels is slower than the others, if the blocks fall into levels
    slow_blocks: int = 0  # blocks on that level
    slow_processes: int = 0  # processes with blocks that are on it, if no process has blocks on both
    p_mean: float = 1.0  # exact signed-rank test of the whole ratio of the means, the duel's slow-down in it, above tau
    reach: float = 0.0  # how far that mean ratio may lie beyond `mean` by the noise of blocks and processes
    split: float = 0.0  # share of the blocks in which the kernel's launches fall into levels


@dataclass(frozen=True)
class ErrorStats:
    """Errors of an output against the float64 reference, over its finite elements."""

    count: Count
    max_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    mean_rel: float | None = None
    p50_abs: float | None = None
    p90_abs: float | None = None
    p99_abs: float | None = None
    rmse: float | None = None
    worst_index: tuple[Count, ...] = ()  # where max_abs stands in the output
    l2: float | None = None
    """relative error in the L2 norm, ||output - exact|| / ||exact|| with ||x|| = sqrt(sum of x_i^2), in float64, over
    the elements that are finite in both, of all outputs of the call together. 0 if both norms are 0, None if only
    ||exact|| is, and where there is no such element"""
    of_allowed: Amount | None = None
    """the largest error as a share of what is allowed: of the tolerance, or, beyond that, of what the errors of the
    reference in the same dtype allow. None of what failed, and of older runs"""


def worst(error_stats: Sequence[ErrorStats]) -> ErrorStats:
    """Errors of several outputs, one at least: each figure at its worst. The place is that of the greatest error."""
    figures = {}
    for name in (entry.name for entry in fields(ErrorStats) if entry.name not in {"count", "worst_index"}):
        finite = [value for stat in error_stats if (value := getattr(stat, name)) is not None and math.isfinite(value)]
        figures[name] = max(finite, default=None)
    greatest = max(error_stats, key=lambda stat: stat.max_abs if stat.max_abs is not None else -1.0)
    return ErrorStats(sum(stat.count for stat in error_stats), worst_index=greatest.worst_index, **figures)
