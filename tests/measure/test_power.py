"""Kernels that the power limit holds down, on the fake device: the limit is 700 W, and rests draw 100 W."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from perfci.core.model import choose_regime
from perfci.core.model.measured import BASE, KERNEL, REFERENCE
from perfci.device.fake import FREE_MHZ, FakeDevice, FakeSpec, work
from perfci.device.source import inputs_digest
from perfci.measure import blocks
from perfci.measure.bench import BaseKernel, Rig
from perfci.measure.power import HELD, MARK_US, PROBE_S
from perfci.measure.prepare import prepare
from perfci.ops.identity import DuelPlan
from perfci.ops.spec import Performance
from perfci.statistics.duel_rule import BLOCKS, FIRST, WHOLE

CASE = {"rows": 4}
SPEC = FakeSpec(power_limit_w=700.0, spike_share=0.0)


def drawing(us, watts):
    def kernel(x):
        work(us, watts)
        return x * 2

    return kernel


def make_inputs(rows, device, seed):
    return {"x": np.random.default_rng(seed).normal(size=rows)}


def measured(kernel, base=None, reference=None, process=0, cases=("rows=4",), spec=SPEC):
    """The case's subject, and how long every launch rested."""
    device = FakeDevice(spec, 1)
    suite = Performance(kernel, reference or drawing(300, 500), make_inputs, [CASE])
    against = base and BaseKernel(base, Path("/b"), Path("/h"), inputs_digest(make_inputs), DuelPlan(cases=cases))
    rig = Rig(suite, device, lambda error: {"message": str(error)}, 1, process, 1.0, 0.0, base=against)
    subject = prepare(rig, CASE)
    blocks.measure(rig, [subject], lambda *_: None)
    return subject


def turns(subject):
    return [turn.arm for turn in subject.sustained]


def shift(subject):
    return median(block.shifts[f"{KERNEL}/{BASE}"] for block in choose_regime(subject.blocks))


def test_a_kernel_that_reaches_the_power_limit_is_timed_at_the_free_clock():
    subject = measured(drawing(530, 900), base=drawing(500, 900))

    assert not any(block.held for block in subject.blocks)
    assert min(block.clock_mhz for block in subject.blocks) > HELD * FREE_MHZ
    assert shift(subject) == pytest.approx(math.log(530 / 500), abs=0.002)


def test_what_draws_more_power_is_slower_sustained_though_it_takes_as_long_at_the_free_clock():
    subject = measured(drawing(501, 945), base=drawing(500, 900))
    of = {arm: median(turn.us for turn in subject.sustained if turn.arm == arm) for arm in (KERNEL, BASE)}

    assert shift(subject) == pytest.approx(0.002, abs=0.002)
    assert of[KERNEL] / of[BASE] == pytest.approx(945 / 900, rel=0.005)


def test_sustained_turns_are_pairs_in_the_order_a_b_b_a_and_go_on_while_they_alone_are_open():
    cleared = measured(drawing(501, 900), base=drawing(500, 900))
    lost = measured(drawing(530, 900), base=drawing(500, 900))
    open_ = measured(drawing(501, 945), base=drawing(500, 900))
    again = measured(drawing(501, 945), base=drawing(500, 900), process=1)

    assert turns(cleared) == [REFERENCE, *(KERNEL, BASE, BASE, KERNEL) * (FIRST // 2)]
    assert turns(lost) == turns(cleared)
    assert turns(open_) == [REFERENCE, *(KERNEL, BASE, BASE, KERNEL) * (BLOCKS // 2)]
    assert turns(again) == [REFERENCE, *(BASE, KERNEL, KERNEL, BASE) * (WHOLE // 2)]


def test_a_kernel_below_the_limit_hardly_rests_and_gets_no_turns():
    subject = measured(drawing(530, 600), base=drawing(500, 600))

    assert (subject.rest_us, turns(subject)) == (MARK_US, [])
    assert not any(block.held for block in subject.blocks)


def test_a_short_kernel_does_not_rest_at_all():
    subject = measured(drawing(12, 900), base=drawing(11, 900))

    assert (subject.rest_us, turns(subject)) == (0.0, [])
    assert {block.clock_mhz for block in subject.blocks} == {None}


def test_a_kernel_that_does_the_work_of_its_base_gets_no_turns():
    subject = measured(drawing(500, 900), base=drawing(500, 900))

    assert subject.facts.base.same
    assert turns(subject) == []


def test_a_kernel_without_a_base_gets_a_turn_beside_its_reference():
    subject = measured(drawing(500, 900))

    assert turns(subject) == [REFERENCE, KERNEL]
    assert [turn.joules for turn in subject.sustained] == pytest.approx([300e-6 * 500, 500e-6 * 900])


def test_if_another_arm_reaches_the_limit_blocks_are_taken_again_with_longer_rests():
    subject = measured(drawing(501, 600), base=drawing(500, 600), reference=drawing(900, 900))

    # The first block begins on a cool board.
    assert [block.held for block in subject.blocks] == [False, True, True, True, False, False, False]
    assert subject.rest_us > MARK_US


def test_at_a_clock_that_cannot_be_kept_up_all_blocks_count():
    subject = measured(drawing(510, 600), base=drawing(500, 600), reference=drawing(60_000, 1200))

    assert all(block.held for block in subject.blocks)
    assert choose_regime(subject.blocks) == subject.blocks


def test_an_arm_that_raises_in_its_turn_is_to_blame():
    calls = iter(range(1 << 20))

    def base(x):
        work(500, 900)
        if next(calls) > 2000:
            raise RuntimeError("out of breath")
        return x * 2

    subject = measured(drawing(530, 900), base=base)

    assert subject.facts.base.failure.kind == "base_raised"
    assert subject.failure is None
    assert REFERENCE in turns(subject)
    assert len(turns(subject)) < 1 + 2 * FIRST


def test_a_kernel_for_which_the_device_waits_on_the_host_takes_no_turns(monkeypatch):
    honest = FakeDevice.sustain
    monkeypatch.setattr(FakeDevice, "sustain", lambda *given: replace(honest(*given), waited=0.1))

    assert turns(measured(drawing(530, 900), base=drawing(500, 900))) == []


def test_a_kernel_whose_host_is_slower_is_not_kept_busy_to_see_whether_it_reaches_the_limit(monkeypatch):
    honest, asked = FakeDevice.sustain, []

    def sustain(device, call, seconds):
        asked.append(seconds)
        return replace(honest(device, call, seconds), waited=0.0)

    monkeypatch.setattr(FakeDevice, "sustain", sustain)
    subject = measured(drawing(530, 900), base=drawing(500, 900))

    assert subject.limited_us is None
    assert subject.rest_us >= MARK_US
    assert sum(asked) < PROBE_S
