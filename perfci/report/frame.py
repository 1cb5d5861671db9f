"""What is pooled from a run's blocks: each arm's launches, and what the device reported beside them."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from perfci.core.model import PerformanceCase, Run, Summary
from perfci.core.model.measured import find_median
from perfci.statistics import exact

P99_LAUNCHES = 100  # fewest launches for a 99th percentile: of fewer it is the slowest
ARMS = ("kernel", "base", "reference")  # The order in which arms are shown. Other arms follow.
HOST = "host"


@dataclass(frozen=True)
class ArmSpread:
    """One arm of a case over all its blocks, microseconds. Medians over the blocks of each one's figure, or pooled.

    What is pooled is of all launches together. Where it says so, each block's shift is taken out first: a launch
    counts as its time / the block's median * the median of these medians.
    """

    op: str
    case: str
    arm: str
    blocks: int
    launches: int
    min_us: float  # pooled
    p50_us: float
    p90_us: float | None  # None of older runs
    p99_us: float | None  # pooled, each block's shift taken out. None of few launches, and of older runs
    mean_us: float  # pooled
    sd_us: float  # standard deviation, pooled, each block's shift taken out
    rsd: float  # the same / mean
    iqr_us: float  # distance of the quartiles
    outliers: int
    span_us: float | None = None
    host_us: float | None = None
    activities: float | None = None


@dataclass(frozen=True)
class Clocks:
    """Least and greatest of what the device reported beside the blocks. None if it reported nothing."""

    sm_clock_mhz: tuple[float, float] | None
    memory_clock_mhz: tuple[float, float] | None
    temperature_c: tuple[float, float] | None
    power_w: tuple[float, float] | None
    foreign_processes: tuple[float, float] | None
    blocks: int
    throttle: tuple[tuple[str, int], ...]  # (reason, blocks in which it held the clock down), the most frequent first


def pool_spreads(run: Run) -> tuple[ArmSpread, ...]:
    """Every arm of every case of a run."""
    return tuple(spread for op in run.ops for case in op.performance for spread in pool_case(op.op, case))


def pool_case(op: str, case: PerformanceCase) -> Iterator[ArmSpread]:
    """Every arm of a case in the order in which arms are shown, and as `host` how long the kernel's calls kept that.

    Of the host each block has one value, of its calls in a row, which here counts as a launch.
    """
    arms = dict.fromkeys(arm for block in case.blocks for arm in block.arms)
    for arm in sorted(arms, key=lambda arm: ARMS.index(arm) if arm in ARMS else len(ARMS)):
        timed = [block.arms[arm] for block in case.blocks if arm in block.arms]
        yield replace(
            _pool(op, case.case, arm, [one.time for one in timed]),
            span_us=find_median(one.span_us for one in timed),
            host_us=find_median(one.host_us for one in timed),
            activities=max((one.activities for one in timed if one.activities is not None), default=None),
        )
    found = (block.arms.get("kernel") for block in case.host or case.blocks)
    if hosts := [one.host_us for one in found if one and one.host_us]:
        yield replace(_pool(op, case.case, HOST, [exact.summary(hosts)]), blocks=len(hosts))


def _pool(op: str, case: str, arm: str, times: Sequence[Summary]) -> ArmSpread:
    launches, p50 = sum(time.launches for time in times), statistics.median(time.median_us for time in times)
    mean = sum(time.launches * time.mean_us for time in times) / max(launches, 1)
    squares = sum(max(time.launches - 1, 0) * (time.rsd * time.mean_us) ** 2 for time in times)
    sd = math.sqrt(squares / max(launches - len(times), 1))
    complete, p99 = all(time.slowest_us for time in times), None
    if complete and launches >= P99_LAUNCHES:
        slowest = np.sort([us / time.median_us for time in times for us in time.slowest_us])
        # Counted from the greatest, since each block keeps its slowest tenth alone.
        place = len(slowest) - 1 - 0.01 * (launches - 1)
        p99 = p50 * float(np.interp(place, np.arange(len(slowest)), slowest))
    return ArmSpread(
        op, case, arm, len(times), launches, min(time.min_us for time in times), p50,
        find_median(time.p90_us for time in times) if complete else None, p99, mean, sd, sd / mean if mean else 0.0,
        statistics.median(time.p75_us - time.p25_us for time in times), sum(time.outliers for time in times),
    )  # fmt: skip


def find_clocks(run: Run) -> Clocks:
    """What the device reported over all blocks of the run."""
    states = [block.state for op in run.ops for case in op.performance for block in case.blocks]
    ranges = {}
    for name in {f.name for f in fields(Clocks)} - {"blocks", "throttle"}:
        seen = [float(value) for state in states if (value := getattr(state, name)) is not None]
        ranges[name] = (min(seen), max(seen)) if seen else None
    throttle = Counter(reason for state in states for reason in state.throttle)
    return Clocks(**ranges, blocks=len(states), throttle=tuple(throttle.most_common()))
