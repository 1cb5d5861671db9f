"""How records and events become launches; no device is needed for that."""

import os
from dataclasses import dataclass, field

import pytest

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("torch")
    pytest.importorskip("triton")

import torch

from perfci.core.errors import DeviceError, RecordsLostError
from perfci.device.seam import WARMING
from perfci.device.timers import NAME, ActivitySession, Record, event_session
from perfci.extensions.npu.device import BATCH, SHORT_BYTES, count_batch
from tests.extensions.npu.scripted_npu import Chip, Flush, event_of

pytestmark = pytest.mark.torch


class Line:
    """A device that executes one thing after the other and keeps records."""

    def __init__(self):
        self.now = 0
        self.records = []

    def run(self, name, duration, gap=100):
        self.now += gap
        self.records.append(Record(self.now, duration, name))
        self.now += duration

    def __call__(self):
        self.run(NAME, 35_000)

    def mark(self):
        self.run("spin_kernel", 35_000)
        self.run(NAME, 900)

    def kernels(self, *durations):
        def call():
            for duration in durations:
                self.run("kernel", duration)
            return durations

        return call


@pytest.fixture
def line():
    return Line()


@pytest.fixture
def session(line):
    return ActivitySession(line)


def finished(session, line):
    session.pause()
    session.finish(line.records[::-1])
    return session.launches()


def test_all_kernels_between_two_flushes_are_one_launch(session, line):
    assert session.launch(line.kernels(1000, 2500)) == (1000, 2500)
    session.launch(line.kernels(4000))

    first, second = finished(session, line)

    assert (first.time_us, first.span_us, first.activities) == (3.5, 3.6, 2)
    assert (second.time_us, second.span_us, second.activities) == (4.0, 4.0, 1)
    assert first.host_us > 0


def test_what_runs_after_a_pause_belongs_to_no_launch(session, line):
    session.launch(line.kernels(1000))
    session.pause()
    line.run("verification", 900_000)
    session.launch(line.kernels(2000))

    assert [launch.time_us for launch in finished(session, line)] == [1.0, 2.0]


def test_a_rest_before_a_launch_is_counted_to_none_and_shows_the_clock(line):
    def rest(us):
        line.run("spin_kernel", 5_550)  # 10,000 cycles at 2,000 MHz, and what a rest takes beside them
        return 10_000

    session = ActivitySession(line, rest)
    session.launch(line.kernels(1000), rest_us=5.0)
    session.pause()
    line.run("verification", 900_000)
    session.launch(line.kernels(2000), rest_us=5.0)
    session.launch(line.kernels(3000))

    first, second, third = finished(session, line)
    assert [launch.time_us for launch in (first, second, third)] == [1.0, 2.0, 3.0]
    assert [launch.activities for launch in (first, second, third)] == [1, 1, 1]
    assert first.clock_mhz == second.clock_mhz == pytest.approx(2000)
    assert third.clock_mhz is None


def test_a_kernel_that_spins_keeps_its_own_time_beside_the_rest(line):
    def spinning():
        line.run("spin_kernel", 7000)

    session = ActivitySession(line, lambda us: line.run("spin_kernel", 5_550) or 10_000)
    for _ in range(2):
        session.launch(spinning, rest_us=5.0)

    assert [launch.time_us for launch in finished(session, line)] == [7.0, 7.0]


def test_a_call_that_raises_costs_its_own_launch_only(session, line):
    def broken():
        line.run("half done", 700)
        raise RuntimeError("no stream")

    session.launch(line.kernels(1000))
    with pytest.raises(RuntimeError, match="no stream"):
        session.launch(broken)
    session.launch(line.kernels(3000))

    assert [launch.time_us for launch in finished(session, line)] == [1.0, 3.0]


def test_a_warm_launch_is_what_follows_its_mark_and_the_calls_that_warm_are_summed_to_none(session, line):
    cold, warm = line.kernels(9000, 8000), line.kernels(1000, 2000)
    calls = iter([*[cold] * WARMING, warm, *[cold] * WARMING, line.kernels(4000)])

    def call():
        return next(calls)()

    assert session.launch(call, warm=True) == (1000, 2000)
    session.launch(call, warm=True)
    session.launch(line.kernels(700))

    first, second, cold = finished(session, line)
    assert (first.time_us, first.activities, first.span_us) == (3.0, 2, 3.1)
    assert (second.time_us, second.activities) == (4.0, 1)
    assert cold.time_us == 0.7


@pytest.mark.parametrize("change", ["lost", "added"])
def test_a_missing_or_foreign_flush_is_an_error_and_no_wrong_time(session, line, change):
    session.launch(line.kernels(1000))
    session.launch(line.kernels(2000))
    if change == "lost":
        del line.records[2]
    else:
        line()

    with pytest.raises(DeviceError) as caught:
        finished(session, line)

    seen = {"lost": 2, "added": 4}[change]
    # Only what was lost may be measured again: who adds flushes would add them again.
    assert isinstance(caught.value, RecordsLostError) is (change == "lost")
    assert caught.value.reason.facts == {"expected": 3, "seen": seen}


# --- events, on a chip that keeps its time ------------------------------------------------------------------------


@dataclass
class Call:
    """A call that shows its arguments, as perfci's arms do."""

    chip: Chip
    inputs: dict = field(default_factory=dict)
    us: tuple[float, ...] = (5.0,)
    calls: int = 0

    def __call__(self):
        self.chip.run("kernel", self.us[min(self.calls, len(self.us) - 1)], gap_us=0)
        self.calls += 1
        return self.calls


def short(size=1):
    return {"x": torch.zeros(size), "sizes": [3, torch.zeros(2)]}


def long():
    return {"x": torch.empty(SHORT_BYTES // 4, device="meta")}


@pytest.fixture
def chip():
    return Chip()


def time_calls(chip, *calls, warm=False):
    with event_session(Flush(chip), event_of(chip), chip.synchronize, batch=count_batch) as opened:
        results = [opened.launch(call, warm=warm) for call in calls]
    return opened, results


def test_a_short_call_is_timed_several_at_a_time_and_told_as_one(chip):
    call = Call(chip, short(), (13.0, 5.0))
    opened, results = time_calls(chip, call)

    assert call.calls == BATCH
    assert results == [BATCH]
    assert [launch.time_us for launch in opened.launches()] == pytest.approx([(13 + (BATCH - 1) * 5) / BATCH])


def test_arms_on_the_same_inputs_are_timed_alike_whatever_they_take(chip):
    inputs = short(100)

    assert count_batch(Call(chip, inputs, (1.0,))) == count_batch(Call(chip, inputs, (9000.0,))) == BATCH
    assert count_batch(Call(chip, long(), (1.0,))) == 1
    assert count_batch(lambda: None) == 1


def test_a_warm_call_follows_others_untimed(chip):
    call = Call(chip, long(), (50.0,) * WARMING + (5.0,))
    opened, _ = time_calls(chip, call, warm=True)

    assert [launch.time_us for launch in opened.launches()] == pytest.approx([5.0])
