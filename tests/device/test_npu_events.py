"""Event pairs on a chip that keeps its own time."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import pytest

if "CI" not in os.environ:  # where a missing package is a failure
    pytest.importorskip("torch")
    pytest.importorskip("triton")

import torch

from perfci.device.npu_events import BATCH, SHORT_BYTES, batch, npu_event_session
from perfci.device.seam import WARMING
from tests.device.scripted_npu import Chip, Flush, event_of

pytestmark = pytest.mark.torch


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


def session(chip, *calls, warm=False):
    with npu_event_session(Flush(chip), event_of(chip), chip.synchronize) as opened:
        results = [opened.launch(call, warm=warm) for call in calls]
    return opened, results


def test_a_long_call_is_timed_alone(chip):
    opened, results = session(chip, Call(chip, long(), (5.0, 90.0)), Call(chip, long(), (7.0,)))

    assert [launch.time_us for launch in opened.launches()] == pytest.approx([5.0, 7.0])
    assert results == [1, 1]


def test_a_short_call_is_timed_several_at_a_time_and_told_as_one(chip):
    call = Call(chip, short(), (13.0, 5.0))
    opened, results = session(chip, call)

    assert call.calls == BATCH
    assert results == [BATCH]
    assert [launch.time_us for launch in opened.launches()] == pytest.approx([(13 + (BATCH - 1) * 5) / BATCH])


def test_arms_on_the_same_inputs_are_timed_alike_whatever_they_take(chip):
    inputs = short(100)

    assert batch(Call(chip, inputs, (1.0,))) == batch(Call(chip, inputs, (9000.0,))) == BATCH
    assert batch(Call(chip, long(), (1.0,))) == 1
    assert batch(lambda: None) == 1


def test_a_warm_call_follows_others_untimed(chip):
    call = Call(chip, long(), (50.0,) * WARMING + (5.0,))
    opened, _ = session(chip, call, warm=True)

    assert [launch.time_us for launch in opened.launches()] == pytest.approx([5.0])


def test_the_device_was_at_work_in_the_flushes_too(chip):
    opened, _ = session(chip, Call(chip, long(), (60.0,)))

    # The scripted flush takes 240 us behind a gap of one.
    assert opened.busy_s() == pytest.approx((60 + 241) / 1e6)
