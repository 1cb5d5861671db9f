"""The likely cause of a figure beyond its limit, each rule by data made for it."""

from dataclasses import replace

import numpy as np
import pytest

from perfci.core.model import Channels
from perfci.measure.lowprec.accepted import beside
from perfci.measure.lowprec.causes import Cause, cause
from tests.storage_examples import E4M3, E5M2, changed, line, normal, one, sound


def with_outliers(columns=3, size=40.0):
    x = normal()
    x[:, :columns] *= size
    return x


def before(tensor):
    return [line(0, [tensor])]


def test_a_scale_that_clips_is_too_small():
    found = one(normal(), shrink=0.3)

    assert found.clip_ratio > 0.01
    assert cause(found) is Cause.SCALE_SMALL


def test_few_channels_of_extreme_scale_are_named_before_what_they_clip():
    # A scale that suits all other channels: the extreme ones are clipped, and nothing else.
    found = one(with_outliers(), shrink=1 / 25)

    assert found.channels.axis == 1 and found.channels.extreme == 3
    assert 0.001 < found.clip_ratio <= 3 / 256
    assert cause(found) is Cause.CHANNELS


def test_where_more_is_clipped_than_the_extreme_channels_hold_the_scale_is_too_small():
    found = one(with_outliers(), shrink=1 / 400)

    assert found.clip_ratio > found.channels.extreme / found.channels.count
    assert cause(found) is Cause.SCALE_SMALL


def test_many_extreme_channels_are_no_few():
    found = one(with_outliers(columns=30))

    assert found.channels.extreme / found.channels.count > 0.05
    assert cause(found) is not Cause.CHANNELS


def test_channels_that_were_as_extreme_when_the_run_was_accepted_explain_nothing_new():
    found = one(with_outliers())

    assert cause(found) is Cause.CHANNELS
    assert cause(beside(found, before(found))) is not Cause.CHANNELS


def test_a_scale_that_makes_zeros_of_small_values_is_too_large():
    found = one(normal(), shrink=3000.0)

    assert found.lost_ratio > 0.01 and found.clip_ratio == 0
    assert cause(found) is Cause.SCALE_LARGE


def test_int8_loses_small_values_to_a_single_large_one():
    x = normal(rows=64, cols=64)
    x[0] *= 100

    assert one(x, "int8").lost_ratio > 0.1
    assert cause(replace(one(x, "int8"), channels=None)) is Cause.SCALE_LARGE


def test_a_tail_that_drifts_while_the_mean_is_steady_is_told():
    base = sound()[0]
    found = beside(changed(base, p99=1.5, mean=1.02), before(base))

    assert cause(found) is Cause.TAIL


def test_the_rules_of_a_drifted_tail_end_where_they_say():
    base = sound()[0]

    def drifted(p99, mean):
        return cause(beside(changed(base, p99=p99, mean=mean), before(base)))

    assert drifted(1.26, 1.09) is Cause.TAIL
    assert drifted(1.24, 1.0) is Cause.COARSE
    assert drifted(1.26, 1.12) is Cause.MOVED


def test_a_tail_drifts_for_real_where_few_values_grow():
    x = normal()
    grown = x.copy()
    rng = np.random.default_rng(3)
    where = rng.random(x.shape) < 0.012
    grown[where] *= 1.3

    def rough(values):
        """A quantisation that rounds its largest values badly."""
        return one(values, E5M2)

    accepted, now = rough(x), rough(grown)
    # The mean hardly moves, since so few values are concerned.
    assert now.errors.mean_abs / accepted.errors.mean_abs < 1.1
    found = beside(changed(now, p99=1.3 * accepted.errors.p99_abs / now.errors.p99_abs), before(accepted))
    assert cause(found) is Cause.TAIL


def test_where_all_errors_grew_that_is_told():
    base = one(normal())
    found = beside(one(3 * normal()), before(replace(base, case=one(3 * normal()).case)))

    assert found.errors.mean_abs / base.errors.mean_abs == pytest.approx(3, rel=0.05)
    assert cause(found) is Cause.MOVED


@pytest.mark.parametrize("dtype", [E4M3, E5M2, "int8"])
def test_errors_of_rounding_alone_are_the_formats_own(dtype):
    x = normal(size=4.0) if dtype != "int8" else np.random.default_rng(0).uniform(1, 4, (64, 64))

    assert cause(one(x, dtype)) is Cause.COARSE


def test_errors_beyond_what_rounding_makes_have_no_cause_that_is_known():
    found = changed(one(normal()), p99=5.0)

    assert cause(found) is Cause.UNKNOWN


def test_a_format_that_is_not_known_has_no_rounding_either():
    assert cause(replace(one(normal()), dtype="float3")) is Cause.UNKNOWN


def test_a_tensor_whose_channels_are_not_known_is_judged_by_the_rest():
    assert cause(replace(one(with_outliers(), shrink=1 / 40), channels=None)) is Cause.SCALE_SMALL
    assert cause(replace(one(normal()), channels=Channels(1, 256, 0, 1.2))) is Cause.COARSE


def test_an_accepted_run_with_no_error_at_all_is_no_measure():
    base = sound()[0]

    assert cause(beside(changed(base, p99=1.5), before(changed(base, p99=0, mean=0)))) is Cause.COARSE
