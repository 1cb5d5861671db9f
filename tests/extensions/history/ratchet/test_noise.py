"""What A/A duels show about the noise of a case."""

import numpy as np
import pytest

from perfci.extensions.history.ratchet import noise
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
