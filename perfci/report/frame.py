"""The tables behind the report: one row a block and arm, and what is pooled from them. The one home of pandas."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from perfci.core.model import DeviceState, Run, Summary, is_peer
from perfci.store.launches import LaunchRow

if TYPE_CHECKING:
    import pandas as pd

P99_LAUNCHES = 500  # fewest launches whose 99th percentile is shown: below, it rests on fewer than five of them
ARMS = ("kernel", "base", "reference")  # The order in which arms are shown. Other arms follow.

QUANTILES = (0.0, 0.05, 0.5, 0.95, 0.99)

_KEYS = ("op", "case", "dtype", "arm", "process", "block", "started_s")
_ARM = ("span_us", "host_us", "activities")
_BASE = ("change_base", "peer_ratio")
_SUMMARY = tuple("p90_us" if f.name == "slowest_us" else f.name for f in fields(Summary))
_TIMES = attrgetter(*_SUMMARY)
_ARMS = attrgetter(*_ARM)
_STATE = attrgetter(*(f.name for f in fields(DeviceState)))
COLUMNS = (*_KEYS, *_SUMMARY, *_ARM, *(f.name for f in fields(DeviceState)), *_BASE, "board")


@dataclass(frozen=True)
class ArmSpread:
    """One arm of a case over all its blocks. Times are in microseconds."""

    op: str
    case: str
    arm: str
    blocks: int
    launches: int
    min_us: float
    p05_us: float
    p50_us: float
    p95_us: float
    p99_us: float | None  # None if there are too few launches, or only the blocks' summaries
    rsd: float
    outliers: int
    span_us: float | None
    host_us: float | None
    activities: float | None
    exact: bool  # of all launches together, not of the blocks' summaries


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


def tabulate_blocks(run: Run) -> pd.DataFrame:
    """COLUMNS, one row a block and arm. The kernel's have `change_base`, a ratio - 1, a peer's `peer_ratio` to it."""
    import pandas as pd

    return pd.DataFrame.from_records(list(_make_records(run)), columns=list(COLUMNS))


def join(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Tables one behind the other, with every column that any of them has. Those without rows only name theirs."""
    import pandas as pd

    found = list(tables)
    columns = dict.fromkeys(name for table in found for name in table.columns)
    return pd.concat([table.astype(object) for table in found], ignore_index=True).reindex(columns=list(columns))


def tabulate_launches(rows: Iterable[LaunchRow]) -> pd.DataFrame:
    """Raw launches with the columns op, case, process, block, arm, us: one row a launch, in time order."""
    import pandas as pd

    records = [(row.op, row.case, row.process, row.block, row.arm, row.us) for row in rows]
    table = pd.DataFrame.from_records(records, columns=["op", "case", "process", "block", "arm", "us"])
    return table.explode("us", ignore_index=True).astype({"us": "float64"}).dropna(subset=["us"])


def pool_spreads(table: pd.DataFrame, raw: pd.DataFrame | None = None) -> tuple[ArmSpread, ...]:
    """Every arm of every case: quantiles and RSD of all raw launches, else medians over the blocks of their own."""
    keys = ["op", "case", "arm"]
    pooled = table.groupby(keys, sort=False).agg(
        blocks=("median_us", "size"),
        launches=("launches", "sum"),
        min_us=("min_us", "min"),
        p05_us=("p05_us", "median"),
        p50_us=("median_us", "median"),
        p95_us=("p95_us", "median"),
        rsd=("rsd", "median"),
        outliers=("outliers", "sum"),
        span_us=("span_us", "median"),
        host_us=("host_us", "median"),
        activities=("activities", "max"),
    )
    pooled = pooled.assign(p99_us=float("nan"), exact=False)
    if raw is not None:
        grouped = raw.groupby(keys, sort=False)["us"]
        exact = grouped.quantile(np.array(QUANTILES)).unstack()
        exact.columns = ["min_us", "p05_us", "p50_us", "p95_us", "p99_us"]
        exact["p99_us"] = exact["p99_us"].where(grouped.size() >= P99_LAUNCHES)
        exact["rsd"] = grouped.std() / grouped.mean()
        pooled.update(exact)
        pooled["exact"] = pooled.index.isin(exact.index)
    known = pooled.reset_index().astype(object)
    records: list[dict[Any, Any]] = known.where(known.notna(), None).to_dict("records")
    found = [ArmSpread(**row) for row in records]
    places = {key: place for place, key in enumerate(dict.fromkeys((one.op, one.case) for one in found))}
    ranks = {arm: rank for rank, arm in enumerate(ARMS)}
    return tuple(sorted(found, key=lambda one: (places[one.op, one.case], ranks.get(one.arm, len(ARMS)))))


def find_clocks(table: pd.DataFrame) -> Clocks:
    """What the device reported over all blocks of the run."""
    once = table.drop_duplicates(["op", "case", "process", "block"])
    counts = once["throttle"].explode().dropna().value_counts()
    shown = {f.name for f in fields(Clocks)} - {"blocks", "throttle"}
    ranges = {}
    for name in shown:
        seen = once[name].dropna()
        ranges[name] = (float(seen.min()), float(seen.max())) if len(seen) else None
    throttle = tuple((str(reason), int(count)) for reason, count in counts.items())
    return Clocks(**ranges, blocks=len(once), throttle=throttle)


def _make_records(run: Run) -> Iterator[tuple[Any, ...]]:
    for op in run.ops:
        for case in op.performance:
            for block in case.blocks:
                place = (block.process, block.index, block.started_s)
                for arm, timed in block.arms.items():
                    change = peer_ratio = math.nan
                    if arm == "kernel":
                        change = math.expm1(block.shifts.get("kernel/base", math.nan))
                    elif is_peer(arm):
                        peer_ratio = math.exp(-block.shifts.get(f"kernel/{arm}", math.nan))
                    numbers = (*_TIMES(timed.time), *_ARMS(timed), *_STATE(block.state))
                    yield (op.op, case.case, case.dtype, arm, *place, *numbers, change, peer_ratio, block.board)
