"""From activity records to what each call of an op took, and to what else the device ran. Pure.

A launch belongs to the call under way when the host made it. What a graph replays belongs to the calls that were
captured into it: its k-th node to the call that made the k-th node.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from perfci.extensions.workloads.records import Other, Slice, Workload

Kind = Literal["launch", "kernel", "copy", "memset", "communication"]
GRAPH = "graph"  # who launches what a graph replays
SLICES = 4000  # most of a time line that are stored


_COMMUNICATION = ("nccl", "rccl", "nvshmem", "hccl")


def name_kind(name: str) -> Kind:
    """Returns what a device does by the name of its activity.

    >>> name_kind("Memcpy HtoD (Pageable -> Device)"), name_kind("ncclDevKernel_AllReduce"), name_kind("softmax")
    ('copy', 'communication', 'kernel')
    """
    lower = name.lower()
    if lower.startswith(("memcpy", "memset")):
        return "copy" if lower.startswith("memcpy") else "memset"
    return "communication" if any(word in lower for word in _COMMUNICATION) else "kernel"


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


@dataclass
class Attributed:
    """All that the records say."""

    calls: dict[int, Taken] = field(default_factory=lambda: defaultdict(Taken))
    work: list[tuple[Activity, int | None]] = field(default_factory=list)
    """what the device did, by its starts, with the key of the call that it belongs to"""
    untold: int = 0  # replays of which it is not known which call made which node


def attribute(
    activities: Iterable[Activity],
    calls: Sequence[Heard],
    replays: Sequence[Heard] = (),
    graphs: Mapping[int, Graph] | None = None,
) -> Attributed:
    """Share the device's activities out among calls. calls, replays: neither overlap among themselves."""
    graphs, answer, by_kind = graphs or {}, Attributed(), defaultdict[bool, list[Activity]](list)
    for activity in activities:
        by_kind[activity.kind == "launch"].append(activity)
    launches = {launch.correlation: (launch.start_ns + launch.end_ns) / 2 for launch in by_kind[True]}
    work = sorted(by_kind[False], key=lambda activity: activity.start_ns)
    calls, replays = (sorted(heard, key=lambda one: one.start_ns) for heard in (calls, replays))
    for call in calls:
        answer.calls[call.key].count += 1
    # As many launches of graphs as replays: they belong together by their order, whatever the clocks say.
    graph_launches = [launch.correlation for launch in by_kind[True] if "GraphLaunch" in launch.name]
    graph_launches = sorted(dict.fromkeys(graph_launches), key=launches.__getitem__)
    in_order = dict(zip(graph_launches, replays, strict=True)) if len(graph_launches) == len(replays) else {}
    sizes, places = Counter(activity.correlation for activity in work), Counter[int]()
    for given in work:
        activity, one = given, given.correlation
        at, replay = launches.get(one, given.start_ns), in_order.get(one)
        call_under_way = None if replay else _find_under_way(calls, at)
        key = call_under_way.key if call_under_way else None
        if replay := replay or (None if call_under_way else _find_under_way(replays, at)):
            activity, graph = replace(given, by=GRAPH), graphs.get(replay.key)
            is_told = graph is not None and graph.nodes == sizes[one]
            captured = graph.calls if graph else ()
            key = next((key for key, first, last in captured if is_told and first <= places[one] < last), None)
            if not places[one]:
                answer.untold += not is_told
                for made, *_ in captured:
                    answer.calls[made].count += 1
        places[one] += 1
        answer.work.append((activity, key))
        if key is not None:
            answer.calls[key].us += (activity.end_ns - activity.start_ns) / 1e3
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
    keys = np.unique([one.key for one in chosen], return_inverse=True)[1]
    offsets = np.arange(-FARTHEST_NS, FARTHEST_NS + STEP_NS, STEP_NS)
    agreed = np.array([_count_agreed(middles - origin + offset, begins, ends, keys) for offset in offsets])
    near = np.flatnonzero(agreed >= agreed.max() - 0.005 * len(chosen))
    runs = np.split(near, np.flatnonzero(np.diff(near) > 1) + 1)
    best = min(runs, key=lambda run: np.abs(offsets[run]).min())
    return float(offsets[best[0]] + offsets[best[-1]]) / 2, float(agreed[best].max() / len(chosen))


def _count_agreed(middles: Any, begins: Any, ends: Any, keys: Any) -> int:
    """The number of calls that have as many launches as most calls with their key have, at least one."""
    counts = np.minimum(np.searchsorted(middles, ends, "right") - np.searchsorted(middles, begins, "left"), 62)
    table = np.bincount(keys * 64 + counts, minlength=64 * (keys.max() + 1)).reshape(-1, 64)
    return int(table[:, 1:].max(axis=1).sum())


def fill(
    workload: Workload, seen: Attributed, ops: Mapping[int, str], makers: Mapping[str, str | None] | None = None
) -> Workload:
    """Returns the workload with how the device's time went, what no op launched, and the time line of a step.

    ops: of each key. makers: who launches a kernel of a name. The time line is the middle one of as many equal parts of
    the records as there are steps.
    """
    if not seen.work:
        return workload
    busy = overlap = longest = gaps = 0.0
    first = reached = seen.work[0][0].start_ns
    others = defaultdict[tuple[str, str, str | None], list[float]](list)
    for one, key in seen.work:
        if one.start_ns > reached:
            gaps, longest = gaps + 1, max(longest, one.start_ns - reached)
        overlap += max(0.0, min(reached, one.end_ns) - one.start_ns)
        busy += max(0.0, one.end_ns - max(reached, one.start_ns))
        reached = max(reached, one.end_ns)
        if key is None:
            by = one.by or (makers or {}).get(one.name)
            others[one.name, one.kind, by].append((one.end_ns - one.start_ns) / 1e3)
    made = (Other(*names, len(us), sum(us)) for names, us in others.items())
    length = (reached - first) / workload.steps
    begin = first + (workload.steps // 2) * length
    parts = [(one, key) for one, key in seen.work if begin <= one.start_ns < begin + length][:SLICES]
    return replace(
        workload, busy_us=busy / 1e3, overlap_us=overlap / 1e3, gaps=int(gaps), longest_gap_us=longest / 1e3,
        others=tuple(sorted(made, key=lambda other: -other.us)),
        timeline=tuple(
            Slice((one.start_ns - begin) / 1e3, (one.end_ns - one.start_ns) / 1e3, one.stream,
                  one.name if key is None else ops[key])
            for one, key in parts
        ),
    )  # fmt: skip
