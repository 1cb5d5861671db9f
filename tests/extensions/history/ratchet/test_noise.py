"""What A/A duels show about the noise of a case."""

import numpy as np
import pytest

from perfci.extensions.history.ratchet import noise
from perfci.extensions.history.ratchet.noise import NullNoise, Scale
from tests.extensions.history.ratchet.histories import nulls


def _first(count, **how):
    return noise.select_usable(nulls(count, **how))


def test_a_null_is_a_duel_with_the_four_blocks_of_a_first_look():
    assert noise.select_usable([(), ((),), ((0.1, 0.1, 0.1),), ((0.1, 0.2, 0.3, 0.4), (9.0,) * 12)]) == [
        (0.1, 0.2, 0.3, 0.4)
    ]


def test_nineteen_nulls_say_nothing():
    with pytest.raises(ValueError, match="19 A/A duels are fewer than 20"):
        noise.bound_scales(_first(19))


def test_the_bound_lies_above_the_truth_and_comes_nearer():
    bounds = [noise.bound_scales(_first(count, block=0.001)).upper.block for count in (20, 60, 200)]

    # A normal block of 0.1 % has the mean deviation of a t with 4 degrees of freedom and a scale of 0.08 %.
    assert bounds == sorted(bounds, reverse=True)
    assert all(bound > 0.0008 for bound in bounds)
    assert bounds[-1] < 0.0011


def test_blocks_beyond_the_shortest_null_are_not_read():
    first = _first(30, blocks=4)
    longer = [(*blocks, 5.0, 5.0) for blocks in first]

    assert noise.bound_scales([*longer[:-1], first[-1]]) == noise.bound_scales(first)


def test_the_chances_of_all_looks_sum_up_to_what_may_be_missed():
    looks = [noise.allot_chance(count) for count in range(20, 3000)]

    assert looks[0] == noise.MISSED / 2
    assert sum(dict.fromkeys(looks)) < noise.MISSED
    assert looks == sorted(looks, reverse=True)


def test_a_look_at_every_null_stays_above_the_truth_in_nineteen_of_twenty_lives():
    rng, lives, ratio, low = np.random.default_rng(6), 150, 0.8, 0
    for _ in range(lives):
        d = noise.draw_duels(rng, 80, ratio)[:, 0, :6].tolist()
        bounds = [noise.bound_scales(d[:count]) for count in range(20, 81, 5)]
        low += any(bound.upper.block < 1 or bound.upper.process < ratio for bound in bounds)

    # 5 % are allowed; of 150 lives more than 15 would be seen once in a thousand times.
    assert low <= 15


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
