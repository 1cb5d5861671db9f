"""The least tau that a noise bears."""

import pytest

from perfci.extensions.history.ratchet import noise
from perfci.extensions.history.ratchet.noise import NullNoise, Scale

FAMILY, ALPHA = 30, 0.01


def _noise(block, ratio):
    return NullNoise(Scale(block, ratio), Scale(block, ratio), 40)


def _least(block, ratio=0.3, floor=0.0025, ceiling=0.01, family=FAMILY):
    return noise.find_least_tau(_noise(block, ratio), family, ALPHA, floor, ceiling)


def test_quiet_blocks_bear_the_floor():
    assert _least(0.0002) == 0.0025


def test_noise_beyond_the_ceiling_bears_nothing():
    assert _least(0.05) is None


def test_processes_that_stray_cost_more_than_blocks_that_do():
    assert _least(0.001, ratio=3.0) > _least(0.002, ratio=0.0)


def test_what_is_least_keeps_all_that_is_asked_and_a_little_less_does_not():
    measured = _noise(0.003, 0.5)
    least = noise.find_least_tau(measured, FAMILY, ALPHA, 0.001, 0.02)

    assert noise.predict_rates(least, measured, FAMILY, ALPHA).bearable
    assert not noise.predict_rates(least / 1.02, measured, FAMILY, ALPHA).bearable


def test_no_predicted_rate_is_told_as_zero():
    told = noise.predict_rates(0.01, _noise(0.0001, 0.1), FAMILY, ALPHA)

    assert 0 < told.alarms <= 1e-4
    assert (told.undecided, told.blocks, told.seen) == (0.0, 4.0, 1.0)


def test_the_default_sees_its_promise_in_noise_as_it_was_recorded():
    told = noise.predict_rates(0.01, _noise(0.0015, 0.5), FAMILY, ALPHA)

    assert told.bearable
    assert told.seen > 0.99


def test_false_alarms_are_predicted_from_the_upper_bound_and_the_rest_from_the_likely_one():
    quiet, loud = Scale(0.0005, 0.3), Scale(0.004, 3.0)
    both, calm = (noise.predict_rates(0.004, NullNoise(upper, quiet, 40), FAMILY, ALPHA) for upper in (loud, quiet))

    assert both.alarms > 10 * calm.alarms
    assert (both.seen, both.blocks, both.undecided) == (calm.seen, calm.blocks, calm.undecided)


@pytest.mark.parametrize("family", [1, 1000])
def test_a_larger_family_asks_for_a_larger_tau_or_the_same(family):
    assert _least(0.003, family=1) <= _least(0.003, family=family)
