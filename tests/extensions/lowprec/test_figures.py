"""Formats, histograms and the figures of a stored tensor, compared with known answers."""

import doctest
from types import SimpleNamespace

import numpy as np
import pytest

from perfci.extensions.lowprec import figures as storage
from perfci.extensions.lowprec.figures import FORMATS, HostTensor, channels, group_maxima, measure_figures
from tests.extensions.lowprec.storage_examples import E4M3, E5M2, one, rounded

FORM = FORMATS[E4M3]


def held(original, values, scale=1.0, group=None):
    original, values = np.asarray(original, dtype=float), np.asarray(values, dtype=float)
    return HostTensor(original, values, np.asarray(scale, dtype=float), group or original.shape, FORM)


def figures(tensor):
    return SimpleNamespace(**measure_figures(tensor))


def test_errors_are_those_of_values_times_scale():
    tensor = figures(held([[1.0, 2.0], [4.0, -8.0]], [[1.0, 1.0], [2.0, -4.0]], 2.0))

    assert tensor.errors.max_abs == 1.0
    assert tensor.errors.mean_abs == 0.25
    assert tensor.errors.mean_rel == 0.25
    assert tensor.errors.worst_index == (0, 0)
    assert tensor.scale.least == tensor.scale.most == 2.0
    assert tensor.amax.median == 8.0
    assert tensor.load.most == 8.0 / (2 * 448)


@pytest.mark.parametrize(("dtype", "bits"), [(E4M3, 3), (E5M2, 2)])
def test_the_mean_relative_error_of_a_float_format_is_that_of_its_mantissa(dtype, bits):
    """Of values with a logarithm that is uniform.

    An error is uniform up to half a step, so a quarter of a step in the mean; the mean of 1 / m over mantissas m from 1
    to 2 with a logarithm that is uniform is 1 / (2 ln 2).
    """
    x = np.exp2(np.random.default_rng(0).uniform(-3, 3, (400, 400)))
    tensor = one(x, dtype)

    expected = 2.0**-bits / 4 / (2 * np.log(2))
    assert tensor.errors.mean_rel == pytest.approx(expected, rel=0.02)


def test_the_clip_ratio_is_the_share_beyond_scale_times_the_largest():
    x = np.linspace(-1, 1, 20_001).reshape(3, 6667)
    tensor = one(x, shrink=0.75)

    assert tensor.clip_ratio == pytest.approx(0.25, abs=1e-3)
    assert tensor.load.most == pytest.approx(1 / 0.75, rel=1e-5)
    assert tensor.errors.max_abs == pytest.approx(0.25, abs=1e-3)


def test_values_that_became_zero_are_counted_but_not_zeros():
    tensor = figures(held([[0.0, 1e-9, 1.0, 2.0, 3.0]], [[0.0, 0.0, 1.0, 2.0, 3.0]]))

    assert tensor.lost_ratio == 0.25


def test_every_group_has_its_amax_also_the_last_one_that_is_narrower():
    x = np.arange(14.0).reshape(2, 7)

    np.testing.assert_array_equal(group_maxima(x, (1, 3)), [[2, 5, 6], [9, 12, 13]])
    np.testing.assert_array_equal(group_maxima(x, (2, 7)), [[13]])
    np.testing.assert_array_equal(group_maxima(x, (1, 7)), [[6], [13]])
    np.testing.assert_array_equal(group_maxima(x, (2, 4)), [[10, 13]])


def test_each_value_is_held_against_the_scale_of_its_own_group():
    original = np.array([[1.0, 2.0, 30.0, 40.0, 500.0]])
    scale = np.array([[1.0, 10.0, 100.0]])
    tensor = figures(held(original, [[1.0, 2.0, 3.0, 4.0, 5.0]], scale, (1, 2)))

    assert tensor.errors.max_abs == 0
    assert tensor.groups == 3
    assert (tensor.scale.least, tensor.scale.median, tensor.scale.most) == (1.0, 10.0, 100.0)
    assert (tensor.amax.least, tensor.amax.median, tensor.amax.most) == (2.0, 40.0, 500.0)


def test_the_axis_whose_slices_differ_most_is_the_one_of_the_channels():
    x = np.ones((16, 64))
    x[:, 5] = 40.0

    extremes = channels(x)

    assert (extremes.axis, extremes.count, extremes.extreme, extremes.ratio) == (1, 64, 1, 40.0)
    assert channels(x.T).axis == 0


# --- formats ---


def test_the_examples_in_the_documentation_are_true():
    assert doctest.testmod(storage).failed == 0
    assert doctest.testmod(storage).attempted > 0


@pytest.mark.torch
@pytest.mark.parametrize("name", [name for name in FORMATS if name.startswith("float8")])
def test_the_range_and_the_numbers_of_float8_are_those_of_torch(name):
    torch = pytest.importorskip("torch")
    dtype, form = getattr(torch, name), FORMATS[name]
    every = torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32).to(torch.float64).numpy()

    assert torch.finfo(dtype).max == form.largest
    assert torch.finfo(dtype).smallest_normal == 2.0**form.exponent
    assert form.count_foreign(every) == 0
    values = np.random.default_rng(1).normal(size=4000) * np.logspace(-5, 3, 4000)
    cast = torch.from_numpy(np.clip(values, -form.largest, form.largest)).to(torch.float32).to(dtype)
    np.testing.assert_array_equal(rounded(values.astype(np.float32), name), cast.to(torch.float32).numpy())


# --- histograms ---
