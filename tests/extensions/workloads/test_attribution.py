"""Which launch belongs to which call: by the host's times, and in graphs by the order of their nodes."""

import random

import pytest

from perfci.extensions.workloads.attribution import Activity, Attributed, Graph, Heard, attribute, fill, find_offset
from perfci.extensions.workloads.records import Other, Workload

WORKLOAD = Workload("llama")


def launched(at, correlation, start, us, name="k", stream=7, by=None):
    """A launch at a time of the host, and its kernel. Times are microseconds."""
    return [
        Activity("launch", "cudaLaunchKernel", 1e3 * at, 1e3 * (at + 1), correlation),
        Activity("kernel", name, 1e3 * start, 1e3 * (start + us), correlation, stream, by),
    ]


def heard(key, begin, end):
    return Heard(key, 1e3 * begin, 1e3 * end)


def test_a_kernel_belongs_to_the_call_in_which_the_host_launched_it_however_late_it_runs():
    records = [*launched(10, 1, 500, 30), *launched(25, 2, 530, 50), *launched(45, 3, 600, 7, "mul", by="aten::mul")]

    seen = attribute(records, [heard(0, 5, 20), heard(1, 22, 40)])

    assert {key: (taken.us, taken.kernels, taken.count) for key, taken in seen.calls.items()} == {
        0: (30.0, 1, 1),
        1: (50.0, 1, 1),
    }
    filled = fill(WORKLOAD, seen, {0: "norm", 1: "matmul"})
    assert filled.others == (Other("mul", "kernel", "aten::mul", 1, 7.0),)
    assert [(part.name, part.start_us, part.us) for part in filled.timeline] == [
        ("norm", 0.0, 30.0), ("matmul", 30.0, 50.0), ("mul", 100.0, 7.0),
    ]  # fmt: skip


def test_what_a_graph_replays_belongs_to_the_calls_that_were_captured_into_it():
    graph = Graph(4, ((0, 0, 1), (1, 2, 4)))  # the second node is no op's
    replay = [Activity("launch", "cudaGraphLaunch", 1e3, 2e3, 9)]
    kernels = [Activity("kernel", f"k{at}", 1e3 * (10 + 10 * at), 1e3 * (10 + 10 * at + at + 1), 9) for at in range(4)]

    seen = attribute([*replay, *kernels], [], [heard(77, 0, 3)], {77: graph})

    assert (seen.calls[0].us, seen.calls[1].us) == (1.0, 7.0)
    assert (seen.calls[1].count, seen.calls[1].kernels) == (1, 2)
    assert fill(WORKLOAD, seen, {0: "a", 1: "b"}).others == (Other("k1", "kernel", "graph", 1, 2.0),)
    assert seen.untold == 0


def test_replays_and_their_launches_belong_together_by_their_order_if_they_are_as_many():
    late = [Activity("launch", "cudaGraphLaunch", 1e3 * (500 + at), 1e3 * (501 + at), at) for at in range(3)]
    work = [Activity("kernel", "k", 1e3 * (900 + at), 1e3 * (901 + at), at) for at in range(3)]

    seen = attribute(
        [*late, *work], [], [heard(77, 10 * at, 10 * at + 5) for at in range(3)], {77: Graph(1, ((0, 0, 1),))}
    )

    assert (seen.calls[0].count, seen.calls[0].us, seen.untold) == (3, 3.0, 0)


@pytest.mark.parametrize("graphs", [{}, {77: Graph(5, ((0, 0, 5),))}])
def test_replays_of_a_graph_with_other_nodes_than_were_captured_are_counted_as_untold(graphs):
    records = [Activity("launch", "cudaGraphLaunch", 1e3, 2e3, 9), Activity("kernel", "k", 1e4, 2e4, 9)]

    seen = attribute(records, [], [heard(77, 0, 3)], graphs)

    assert seen.untold == 1
    assert [(work.name, work.by, key) for work, key in seen.work] == [("k", "graph", None)]


def test_occupation_counts_what_overlaps_once_and_gaps_between_activities():
    work = [Activity("kernel", "k", 1e3 * start, 1e3 * end) for start, end in ((0, 10), (5, 12), (20, 30), (33, 34))]

    seen = fill(WORKLOAD, Attributed(work=[(one, 0) for one in work]), {0: "norm"})

    assert (seen.busy_us, seen.overlap_us, seen.gaps, seen.longest_gap_us) == (23.0, 5.0, 2, 8.0)


# --- clocks that differ -----------------------------------------------------------------------------------------------

LAYER = (("norm", 1, 40.0), ("qkv", 1, 55.0), ("rotary", 1, 45.0), ("attention", 2, 70.0), ("out", 1, 50.0),
         ("gate", 1, 52.0), (None, 1, 12.0), ("down", 1, 51.0))  # fmt: skip
"""What a layer calls: an op, or none, its launches, and how long the host takes, microseconds."""


def play(layers, offset_us, seed=0):
    """Calls of some layers, and their records by another clock. The device runs far behind the host."""
    rng, keys = random.Random(seed), {name: key for key, (name, _, _) in enumerate(LAYER)}
    at, device, correlation, calls, records = 1.8e15, 1.8e15 + 5000.0, 0, [], []
    for _ in range(layers):
        for name, launches, host in LAYER:
            took = host * rng.uniform(0.8, 1.5)
            if name:
                calls.append(heard(keys[name], at, at + took))
            for place in range(launches):
                correlation += 1
                begin = at + took * (0.55 + 0.3 * place / launches)
                launch, work = (
                    [1e3 * (start + more - offset_us) for more in (0, us)] for start, us in ((begin, 3), (device, 90))
                )
                records.append(Activity("launch", "cuLaunchKernelEx", *launch, correlation))
                records.append(Activity("kernel", str(name), *work, correlation))
                device += 100.0
            at += took + rng.uniform(1.0, 9.0)
    return calls, records, keys


@pytest.mark.parametrize("offset_us", [0.0, 61.0, -137.0, 240.0])
def test_the_offset_between_two_clocks_is_what_gives_like_calls_like_launches(offset_us):
    calls, records, keys = play(200, offset_us)

    offset, agreed = find_offset([one for one in records if one.kind == "launch"], calls)

    assert agreed > 0.99
    moved = [
        Activity(one.kind, one.name, one.start_ns + offset, one.end_ns + offset, one.correlation) for one in records
    ]
    seen = attribute(moved, calls)
    names = {key: name for name, key in keys.items()}
    pairs = [(names.get(key), work.name) for work, key in seen.work]
    right = sum(str(op) == name for op, name in pairs)
    assert right == len(pairs)


def test_records_that_are_of_other_calls_agree_with_none():
    calls, _, _ = play(50, 0.0)
    rng = random.Random(1)
    stray = [
        Activity("launch", "k", at, at + 1, 0)
        for at in (rng.uniform(calls[0].start_ns, calls[-1].end_ns) for _ in calls)
    ]

    assert find_offset(stray, calls)[1] < 0.8
    assert find_offset([], calls) == (0.0, 0.0)
