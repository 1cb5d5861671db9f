"""What the readings of a test mean. Numbers in, findings out: a worker only measures, since an op's code runs in it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from perfci.core.model import Fact, Interval, Reason

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


def trend_p(values: ArrayLike) -> float:
    """One-sided p of the Mann-Kendall test (Mann 1945) that a series rises, exact without ties. 1 if it never moves.

    >>> round(trend_p([1.0, 2.0, 3.0, 4.0]), 4), trend_p([1.0, 1.0, 1.0])
    (0.0417, 1.0)
    """
    from scipy.stats import kendalltau  # which takes half a second

    series = np.asarray(values, dtype=np.float64)
    return float(np.nan_to_num(kendalltau(np.arange(series.size), series, alternative="greater").pvalue, nan=1.0))


def trend(values: ArrayLike) -> Interval:
    """Theil-Sen slope, a step, with Sen's 95 % interval (1968)."""
    from scipy.stats import theilslopes

    slopes = theilslopes(values)
    return Interval(float(slopes.slope), float(slopes.low_slope), float(slopes.high_slope))


LEAST_WINDOWS = 8  # with fewer, a trend cannot be beyond doubt, and a leak looks like a cache that fills
P_LIMIT = 0.01  # a rise counts if chance alone shows one as clear in fewer cases than this

MADE = {DETERMINISM: "calls", STREAMS: "rounds", THREADS: "calls", LARGE: "slices"}
"""Test that compares answers -> the number of answers that it has compared"""


def conclude(said: SoakFinding | SoakMeasured, calls: int, limit: float) -> SoakFinding:
    """Returns what a worker's message means. One that lacks the numbers of a test that was made is an ERROR.

    calls: that memory, speed and answers were to be measured over. limit: ratio by which a call may become slower.
    """
    if isinstance(said, SoakFinding):
        return said
    judged: SoakFinding | None = None
    if said.test == MEMORY:
        judged = judge_memory(said, calls)
    elif said.test == DECAY:
        judged = judge_decay(said, limit)
    else:
        made = said.numbers.get(MADE.get(said.test, ""))
        if isinstance(made, int) and made >= (calls if said.test == DETERMINISM else 1):
            judged = _find(said, Status.PASS)
    unproven = Reason("soak_unproven", {"op": said.op, "case": said.case, "test": said.test})
    return judged or _find(said, Status.ERROR, reason=unproven)


def _find(
    said: SoakMeasured, status: Status, numbers: Mapping[str, Fact] | None = None, reason: Reason | None = None
) -> SoakFinding:
    return SoakFinding(said.op, said.test, said.case, status, reason, said.numbers if numbers is None else numbers)


def _fail(said: SoakMeasured, kind: str, numbers: Mapping[str, Fact]) -> SoakFinding:
    return _find(said, Status.FAIL, numbers, Reason(kind, {"case": said.case, **numbers}))


def _known(said: SoakMeasured, name: str) -> list[float]:
    return [reading for reading in said.series.get(name, ()) if reading is not None]


# --- memory -----------------------------------------------------------------------------------------------------------


def judge_memory(said: SoakMeasured, calls: int) -> SoakFinding | None:
    """Whether calls leave device memory behind. None if there are too few readings to decide."""
    held, outside = _known(said, "held"), _known(said, "outside")
    if len(held) <= LEAST_WINDOWS:
        return None
    for kind, readings in (("soak_leak", held), ("soak_leak_outside", outside)):
        if readings and (grown := find_leak(readings)) is not None:
            return _fail(said, kind, {**said.numbers, "rate": grown / (calls / (len(readings) - 1))})
    return _find(said, Status.PASS)


def find_leak(held: Sequence[float]) -> float | None:
    """Bytes a window that do not come back, by Theil and Sen's slope. None if memory does not go on growing.

    held: bytes at evenly spaced readings. Caches fill in the first quarter, or are full by the end of the third. The
    rise has to be beyond chance (Mann-Kendall).
    """
    size = len(held)
    quarters = [held[size * k // 4 : size * (k + 1) // 4] for k in (1, 2, 3)]
    if min(len(quarter) for quarter in quarters) < 2:
        return None
    second, third, last = (min(quarter) for quarter in quarters)
    if not (second < third < last and held[-1] > quarters[1][-1]):
        return None
    late = held[size // 4 :]
    return trend(late).value if trend_p(late) < P_LIMIT else None


# --- speed ------------------------------------------------------------------------------------------------------------


def judge_decay(said: SoakMeasured, limit: float) -> SoakFinding | None:
    """Whether calls become slower by more than the clock explains. None if there are too few times to decide."""
    medians, clocks = _known(said, "medians_us"), said.series.get("clocks_mhz", ())
    if len(medians) < LEAST_WINDOWS or min(medians) <= 0.0 or len(clocks) != len(medians):
        return None
    decay = measure_decay(medians, clocks)
    numbers: dict[str, Fact] = {**said.numbers, **decay, "limit": limit}
    if not is_beyond(decay, limit):
        return _find(said, Status.PASS, numbers)
    if decay["left"] is None:
        return _fail(said, "soak_decay_unclocked", numbers)
    if decay["left"] > limit:
        return _fail(said, "soak_decay", numbers)
    reason = Reason("soak_clock_explains", {"case": said.case, **numbers})
    return _find(said, Status.PASS, numbers, reason)


def measure_decay(medians_us: Sequence[float], clocks_mhz: Sequence[float | None]) -> dict[str, float | None]:
    """How the time of a call changed over all windows: ratios - 1, positive is slower.

    medians_us: of each window, above 0. `change`, `low`, `high`: Theil and Sen's slope of log medians. `p`: one-sided,
    Mann-Kendall's. `clock`: the clock's. `left`: of the cycles, which a kernel that follows the clock alone keeps.
    """
    times = np.log(np.asarray(medians_us, dtype=np.float64))
    steps, slope = times.size - 1, trend(times)
    slopes = {"change": slope.value, "low": slope.low, "high": slope.high}
    decay: dict[str, float | None] = {name: math.expm1(slope_a_step * steps) for name, slope_a_step in slopes.items()}
    decay |= {"p": trend_p(times), "clock": None, "left": None}
    if all(clocks_mhz):
        clocks = np.log(np.asarray(clocks_mhz, dtype=np.float64))
        decay["clock"], decay["left"] = (math.expm1(trend(series).value * steps) for series in (clocks, times + clocks))
    return decay


def is_beyond(decay: Mapping[str, float | None], limit: float) -> bool:
    """Whether calls became slower by more than the limit beyond doubt."""
    return (decay["low"] or 0.0) > limit and (decay["p"] or 0.0) < P_LIMIT
