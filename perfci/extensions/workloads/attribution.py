"""From activity records to what each call of an op took, and to what else the device ran. Pure.

A launch belongs to the call under way when the host made it. What a graph replays belongs to the calls that were
captured into it: its k-th node to the call that made the k-th node.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Kind = Literal["launch", "kernel", "copy", "memset", "communication"]
GRAPH = "graph"  # who launches what a graph replays


@dataclass(frozen=True)
class Activity:
    """A launch by the host, or what the device did for one. Nanoseconds of one clock."""

    kind: Kind
    name: str
    start_ns: float
    end_ns: float
    correlation: int = 0  # that a launch shares with what it launched
    stream: int = 0
    by: str | None = None  # who launched it, as the profiler says


@dataclass(frozen=True)
class Heard:
    """A call of an op, or, with the graph's key, a replay."""

    key: int
    start_ns: float
    end_ns: float


@dataclass(frozen=True)
class Graph:
    """A captured graph: how many nodes it has, and which call made which."""

    nodes: int
    calls: tuple[tuple[int, int, int], ...] = ()  # key, first node, node behind the last


@dataclass
class Taken:
    """What the calls with one key took."""

    us: float = 0.0
    kernels: int = 0
    count: int = 0
    replayed: int = 0


@dataclass
class Attributed:
    """All that the records say."""

    calls: dict[int, Taken] = field(default_factory=lambda: defaultdict(Taken))
    others: dict[tuple[str, str, str | None], list[float]] = field(default_factory=lambda: defaultdict(list))
    """name, kind and who launched it -> microseconds of each"""
    keys: list[int | None] = field(default_factory=list)  # of each activity of the device, in the order of their starts
    work: list[Activity] = field(default_factory=list)  # these activities
    untold: int = 0  # replays of which it is not known which call made which node


def attribute(
    activities: Iterable[Activity],
    calls: Sequence[Heard],
    replays: Sequence[Heard] = (),
    graphs: Mapping[int, Graph] | None = None,
) -> Attributed:
    """Share the device's activities out among calls. calls, replays: neither overlap among themselves."""
    graphs, by_launch = graphs or {}, dict[int, float]()
    work, graph_launches = list[Activity](), set[int]()
    for activity in activities:
        if activity.kind == "launch":
            by_launch[activity.correlation] = (activity.start_ns + activity.end_ns) / 2
            if "GraphLaunch" in activity.name:
                graph_launches.add(activity.correlation)
        else:
            work.append(activity)
    work.sort(key=lambda activity: activity.start_ns)
    calls, replays = (sorted(heard, key=lambda one: one.start_ns) for heard in (calls, replays))
    answer = Attributed(work=work)
    for call in calls:
        answer.calls[call.key].count += 1
    # As many launches of graphs as replays: they belong together by their order, whatever the clocks say.
    launched = sorted((at, one) for one, at in by_launch.items() if one in graph_launches)
    in_order = dict(zip((one for _, one in launched), replays, strict=False)) if len(launched) == len(replays) else {}
    sizes, places = Counter(activity.correlation for activity in work), Counter[int]()
    seen = set[int]()
    for activity in work:
        at = by_launch.get(activity.correlation, activity.start_ns)
        replay = in_order.get(activity.correlation)
        under_way = None if replay else _find_under_way(calls, at)
        key = under_way.key if under_way else None
        by, replay = activity.by, replay or (_find_under_way(replays, at) if key is None else None)
        if replay:
            by, graph = GRAPH, graphs.get(replay.key)
            if graph and graph.nodes == sizes[activity.correlation]:
                place = places[activity.correlation]
                key = next((key for key, first, last in graph.calls if first <= place < last), None)
            if activity.correlation not in seen:
                answer.untold += not graph or graph.nodes != sizes[activity.correlation]
                for captured, *_ in graph.calls if graph else ():
                    answer.calls[captured].count += 1
                    answer.calls[captured].replayed += 1
            seen.add(activity.correlation)
        places[activity.correlation] += 1
        us = (activity.end_ns - activity.start_ns) / 1e3
        answer.keys.append(key)
        if key is None:
            answer.others[activity.name, activity.kind, by].append(us)
        else:
            answer.calls[key].us += us
            answer.calls[key].kernels += 1
    return answer


def _find_under_way(heard: Sequence[Heard], at: float) -> Heard | None:
    place = bisect_right(heard, at, key=lambda one: one.start_ns) - 1
    return heard[place] if place >= 0 and at <= heard[place].end_ns else None


FARTHEST_NS, STEP_NS, SAMPLE = 1e6, 2e3, 1000  # of the search for an offset: its reach, its steps, and calls looked at


def find_offset(launches: Iterable[Activity], heard: Sequence[Heard]) -> tuple[float, float]:
    """Returns what the records' clock is behind the calls', nanoseconds, and the share of calls that agree then.

    With the right offset calls with one key have one number of launches, at least one. It is searched for by that: the
    ends of a wait for the device, of which both clocks could tell, are tens of microseconds off. The layers of a model
    are alike, so of several offsets the nearest to 0 counts, and of a run of equally good ones its middle.
    """
    chosen = sorted(heard, key=lambda one: one.start_ns)[:: max(len(heard) // SAMPLE, 1)]
    middles = np.sort(np.array([(one.start_ns + one.end_ns) / 2 for one in launches]))
    if not chosen or not len(middles):
        return 0.0, 0.0
    origin = chosen[0].start_ns  # so that differences of nanoseconds since 1970 keep their digits
    begins, ends = (np.array([getattr(one, name) - origin for one in chosen]) for name in ("start_ns", "end_ns"))
    middles -= origin
    keys = np.unique([one.key for one in chosen], return_inverse=True)[1]
    offsets = np.arange(-FARTHEST_NS, FARTHEST_NS + STEP_NS, STEP_NS)
    agreed = np.array([_count_agreed(middles + offset, begins, ends, keys) for offset in offsets])
    near = np.flatnonzero(agreed >= agreed.max() - 0.005 * len(chosen))
    best = near[np.argmin(np.abs(offsets[near]))]
    last = best
    while last + 1 in near:
        last += 1
    first = best
    while first - 1 in near:
        first -= 1
    return float(offsets[first] + offsets[last]) / 2, float(agreed[best] / len(chosen))


def _count_agreed(middles: Any, begins: Any, ends: Any, keys: Any) -> int:
    """The number of calls that have as many launches as most calls with their key have, at least one."""
    counts = np.minimum(np.searchsorted(middles, ends, "right") - np.searchsorted(middles, begins, "left"), 62)
    table = np.bincount(keys * 64 + counts, minlength=64 * (keys.max() + 1)).reshape(-1, 64)
    return int(table[:, 1:].max(axis=1).sum())


@dataclass(frozen=True)
class Occupied:
    """How the device's time went, microseconds."""

    busy_us: float = 0.0  # something ran
    overlap_us: float = 0.0  # several things ran at once
    gaps: int = 0  # times in which nothing ran, between two activities
    longest_gap_us: float = 0.0


def measure_occupation(work: Sequence[Activity]) -> Occupied:
    """Sweep over activities, sorted by their starts."""
    if not work:
        return Occupied()
    busy = overlap = longest = 0.0
    gaps, reached = 0, work[0].start_ns
    for activity in work:
        if activity.start_ns > reached:
            gaps, longest = gaps + 1, max(longest, activity.start_ns - reached)
        overlap += max(0.0, min(reached, activity.end_ns) - activity.start_ns)
        busy += max(0.0, activity.end_ns - max(reached, activity.start_ns))
        reached = max(reached, activity.end_ns)
    return Occupied(busy / 1e3, overlap / 1e3, gaps, longest / 1e3)
