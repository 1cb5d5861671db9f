"""Histograms of errors in fixed bins, and their divergence."""

import math

import numpy as np
import pytest

from perfci.core.model import ErrorHistogram
from perfci.measure.lowprec.histogram import BINS, EDGES, SMOOTHING, dense, divergence, histogram


def test_the_edges_are_eight_a_decade_from_1e_8_to_1e4():
    assert EDGES[0] == pytest.approx(1e-8) and EDGES[-1] == pytest.approx(1e4)
    assert len(EDGES) == 97 and BINS == 98
    assert np.diff(np.log10(EDGES)) == pytest.approx(1 / 8)


def test_each_error_falls_into_the_bin_whose_lower_edge_it_reaches():
    found = dense(histogram(np.array([0.0, 9e-9, 1e-8, EDGES[1], 1.0, 9999.0, 1e4, 1e9])))

    assert found[0] == 2
    assert found[1] == 1
    assert found[2] == 1
    assert found[1 + EDGES.index(1.0)] == 1
    assert found[BINS - 2] == 1
    assert found[BINS - 1] == 2
    assert found.sum() == 8


def test_empty_bins_at_either_end_are_left_out():
    found = histogram(np.array([1.0, 1.0, 2.0]))

    assert found.counts == (2, 0, 1)
    assert found.start == 1 + EDGES.index(1.0)
    assert histogram(np.array([])) == ErrorHistogram(0)


def test_the_divergence_of_known_histograms_is_the_one_worked_out_by_hand():
    found, accepted = ErrorHistogram(10, (300, 100)), ErrorHistogram(10, (100, 300))
    total = 400 + SMOOTHING * BINS
    p, q = (300 + SMOOTHING) / total, (100 + SMOOTHING) / total

    assert divergence(found, accepted) == pytest.approx(p * math.log(p / q) + q * math.log(q / p), rel=1e-12)


def test_the_divergence_of_the_same_histogram_is_exactly_zero_however_many_it_counts():
    assert divergence(ErrorHistogram(3, (5, 0, 2)), ErrorHistogram(3, (5, 0, 2))) == 0.0


def test_a_bin_that_the_accepted_run_had_nothing_in_does_not_make_it_infinite():
    found = divergence(ErrorHistogram(50, (1000,)), ErrorHistogram(10, (1000,)))

    total = 1000 + SMOOTHING * BINS
    ratio = (1000 + SMOOTHING) / SMOOTHING
    assert found == pytest.approx((1000 + SMOOTHING) / total * math.log(ratio) - SMOOTHING / total * math.log(ratio))


def test_it_grows_the_further_two_histograms_are_apart_and_many_values_of_one_kind_hardly_differ():
    rng = np.random.default_rng(0)
    base, again, wider, far = (histogram(np.abs(rng.normal(size=40_000)) * size) for size in (1, 1, 1.3, 4))

    assert 0 < divergence(again, base) < 0.003 < divergence(wider, base) < divergence(far, base)


def test_an_empty_histogram_says_nothing():
    assert divergence(ErrorHistogram(0), ErrorHistogram(1, (4,))) == 0.0
    assert divergence(ErrorHistogram(1, (4,)), ErrorHistogram(0)) == 0.0


def test_counts_beyond_the_last_bin_of_a_foreign_file_are_kept_in_it():
    assert dense(ErrorHistogram(BINS - 1, (1, 2, 3)))[BINS - 1] == 6
