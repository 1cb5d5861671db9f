"""A stored tensor beside accepted runs and limits: histories, causes, better ways."""

import math
from dataclasses import replace

import numpy as np
import pytest

from perfci.core.model import ErrorHistogram
from perfci.extensions.lowprec.advice import SMOOTHING, AdviceCause, add_history, divergence, families, find_cause
from perfci.extensions.lowprec.figures import BINS
from tests.extensions.lowprec.storage_examples import E4M3, E5M2, changed, line, measured, normal, one, sound, store


def test_a_family_holds_all_ways_of_storing_one_tensor():
    tensors = families(sound())

    assert {family: len(tensor) for family, tensor in tensors.items()} == {"stored=a": 6, "stored=b": 6}


# --- accepted runs ---


def now():
    return sound()[0]


def test_the_divergence_is_from_the_newest_accepted_run():
    other = measured(lambda **case: store(**case, shrink=0.3))
    history = add_history(now(), [line(0), line(1, other)])

    assert history.divergence == divergence(now().histogram, other[0].histogram) > 0.1
    assert history.accepted == other[0].histogram
    assert add_history(now(), [line(0, other), line(1)]).divergence == 0.0


def test_the_divergence_of_known_histograms_is_the_one_worked_out_by_hand():
    histogram, accepted = ErrorHistogram(10, (300, 100)), ErrorHistogram(10, (100, 300))
    total = 400 + SMOOTHING * BINS
    p, q = (300 + SMOOTHING) / total, (100 + SMOOTHING) / total

    assert divergence(histogram, accepted) == pytest.approx(p * math.log(p / q) + q * math.log(q / p), rel=1e-12)


# --- causes ---


def with_outliers(columns=3, size=40.0):
    x = normal()
    x[:, :columns] *= size
    return x


def before(tensor):
    return [line(0, [tensor])]


def test_a_scale_that_clips_is_too_small():
    tensor = one(normal(), shrink=0.3)

    assert tensor.clip_ratio > 0.01
    assert find_cause(tensor) is AdviceCause.SCALE_SMALL


def test_few_channels_of_extreme_scale_are_named_before_what_they_clip():
    # A scale that suits all other channels: the extreme ones are clipped, and nothing else.
    tensor = one(with_outliers(), shrink=1 / 25)

    assert tensor.channels.axis == 1 and tensor.channels.extreme == 3
    assert 0.001 < tensor.clip_ratio <= 3 / 256
    assert find_cause(tensor) is AdviceCause.CHANNELS


def test_a_scale_that_makes_zeros_of_small_values_is_too_large():
    tensor = one(normal(), shrink=3000.0)

    assert tensor.lost_ratio > 0.01 and tensor.clip_ratio == 0
    assert find_cause(tensor) is AdviceCause.SCALE_LARGE


def test_a_tail_that_drifts_while_the_mean_is_steady_is_told():
    base = sound()[0]
    history = add_history(changed(base, p99=1.5, mean=1.02), before(base))

    assert find_cause(history) is AdviceCause.TAIL


def test_where_all_errors_grew_that_is_told():
    base = one(normal())
    history = add_history(one(3 * normal()), before(replace(base, case=one(3 * normal()).case)))

    assert history.errors.mean_abs / base.errors.mean_abs == pytest.approx(3, rel=0.05)
    assert find_cause(history) is AdviceCause.MOVED


@pytest.mark.parametrize("dtype", [E4M3, E5M2, "int8"])
def test_errors_of_rounding_alone_are_the_formats_own(dtype):
    x = normal(size=4.0) if dtype != "int8" else np.random.default_rng(0).uniform(1, 4, (64, 64))

    assert find_cause(one(x, dtype)) is AdviceCause.COARSE
