"""The result of one test of one case."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from perfci.core.model import Fact, Reason

THREADS, MEMORY, DECAY, DETERMINISM, STREAMS, LARGE = TESTS = (
    "threads", "memory", "decay", "determinism", "streams", "large",
)  # fmt: skip
"""In the order of a case's tests: threads first, since the first calls of all have to come at once."""

DECAY_LIMIT = 0.03  # a call may become slower by this ratio over all calls


class Status(StrEnum):
    """How a test ended."""

    PASS = "PASS"
    FAIL = "FAIL"
    SKIPPED = "SKIPPED"
    ERROR = "ERROR"


@dataclass(frozen=True)
class SoakFinding:
    """The result of one test of one case, or of all cases of an op."""

    op: str
    test: str  # one of TESTS, or "" if the op could not be tried at all
    case: str | None  # None: all cases
    status: Status
    reason: Reason | None = None  # why it did not pass, or what a reader of its numbers should know
    numbers: Mapping[str, Fact] = field(default_factory=dict)
    """bytes, microseconds (`_us`), ratios and counts, by name (listed in docs/soak.md)"""


@dataclass(frozen=True)
class SoakMeasured:
    """What a worker reports of a test in which it saw nothing that is wrong by itself. See `verdicts.conclude`."""

    op: str
    test: str
    case: str | None
    numbers: Mapping[str, Fact] = field(default_factory=dict)
    series: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)  # readings over the calls, by name


def name_test(test: str, case: str | None) -> str:
    """Returns one text for a test of a case.

    >>> name_test("memory", "rows=4")
    'memory rows=4'
    """
    return f"{test} {case or '*'}"
