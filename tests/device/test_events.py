"""The timer of the second tier, on a real GPU."""

from __future__ import annotations

import os
import statistics

import pytest

if "CI" not in os.environ:  # where a missing package is a failure
    pytest.importorskip("torch")

import torch

pytestmark = [pytest.mark.torch, pytest.mark.cuda]


@pytest.fixture(scope="module")
def flush():
    from perfci.device.flush import Flush

    return Flush(torch.cuda.get_device_properties(0).L2_cache_size, "cuda")


def medians(flush, call, launches=20):
    from perfci.device.events import event_session

    call()
    with event_session(flush) as session:
        for _ in range(launches):
            session.launch(call)
    return session, statistics.median(launch.time_us for launch in session.launches())


def test_an_event_pair_reads_twice_the_time_for_twice_the_work(flush):
    x = torch.randn(2048, 2048, device="cuda")
    out = torch.empty_like(x)

    def products(count):
        for _ in range(count):
            torch.matmul(x, x, out=out)

    _, four = medians(flush, lambda: products(4))
    _, eight = medians(flush, lambda: products(8))

    assert eight / four == pytest.approx(2, rel=0.15)


def test_host_work_before_the_launch_is_hidden_by_the_spin(flush):
    x = torch.ones(1 << 20, device="cuda")
    out = torch.empty_like(x)

    def slow_wrapper():
        sum(range(1000))  # some 10 us of the host
        torch.add(x, 1.0, out=out)

    _, plain = medians(flush, lambda: torch.add(x, 1.0, out=out))
    session, slow = medians(flush, slow_wrapper)

    assert slow == pytest.approx(plain, abs=3)
    assert statistics.median(launch.host_us for launch in session.launches()) > 5


def test_an_event_pairs_span_is_its_time_and_its_activities_are_unknown(flush):
    x = torch.ones(1 << 20, device="cuda")
    session, _ = medians(flush, lambda: x.add_(1.0), launches=3)

    assert all(launch.span_us == launch.time_us and launch.activities is None for launch in session.launches())
    assert len(session.launches()) == 3


def test_the_device_is_busy_for_launches_and_flushes(flush):
    x = torch.ones(1 << 26, device="cuda")
    session, median = medians(flush, lambda: x.add_(1.0))

    assert session.busy_s() > 20 * median * 1e-6 * 0.9
    assert session.busy_s() < 20 * (median + 1000) * 1e-6


def test_the_flush_reads_all_of_its_buffer(flush):
    flush._source.fill_(1)
    flush()
    torch.cuda.synchronize()

    assert int(flush._sink.sum()) == flush._count
    flush._source.zero_()
