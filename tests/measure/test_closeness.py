import math

import numpy as np
import pytest

from perfci.core.model import ErrorStats
from perfci.measure.closeness import (
    NO_COLUMN,
    ONE_ELEMENT,
    ROUNDED,
    Standard,
    break_answer,
    errors_of,
    finiteness,
)


def error_stats(actual, expected):
    return errors_of(actual, expected).stats


def test_error_stats_match_numpy():
    rng = np.random.default_rng(1)
    expected = rng.normal(size=(20, 30))
    actual = expected + rng.normal(0, 0.01, (20, 30))
    error = np.abs(actual - expected)

    errors = error_stats(actual, expected)

    assert errors.count == 600
    assert errors.max_abs == error.max()
    assert errors.mean_abs == pytest.approx(error.mean())
    assert errors.max_rel == pytest.approx((error / np.abs(expected)).max())
    assert errors.mean_rel == pytest.approx((error / np.abs(expected)).mean())
    assert (errors.p50_abs, errors.p90_abs, errors.p99_abs) == pytest.approx(np.quantile(error, (0.5, 0.9, 0.99)))
    assert errors.rmse == pytest.approx(math.sqrt((error**2).mean()))
    assert errors.worst_index == np.unravel_index(error.argmax(), error.shape)


def test_errors_are_told_over_what_is_finite_in_both():
    actual = np.array([1.0, np.nan, np.inf, 4.0, 5.5])
    expected = np.array([1.0, 2.0, 3.0, np.nan, 5.0])

    errors = error_stats(actual, expected)

    assert (errors.count, errors.max_abs, errors.worst_index) == (2, 0.5, (4,))


def accepts(right, usual_error, mine, summed=False, peak=2.0):
    """Whether an answer that is off by `mine` is accepted, beside a reference that is off by `usual_error`."""
    right, usual_error, mine = (np.asarray(each, float) for each in (right, usual_error, mine))
    usual = right + usual_error
    standard = Standard(right, right, usual, error_stats(usual, right), 0.0, 1e-12, summed, peak)
    return standard.accepts(right + mine)


@pytest.mark.parametrize(
    ("mine", "usual", "passes"),
    [
        ([1.0, -1.0], [1.0, 1.0], True),
        ([2.0, 2.0], [1.0, 1.0], True),
        ([2.0, 2.0], [1.0, 0.9], False),  # root mean square too large
        ([0.0, 2.0], [1.0, 0.9], True),
        ([0.0, 2.1], [1.0, 1.0], False),  # largest error too large
        ([1e-9, 1e-9], [0.0, 0.0], False),
    ],
)
def test_twice_the_references_own_errors_pass_in_mean_and_in_the_worst(mine, usual, passes):
    assert accepts([1.0, 1.0], usual, mine) is passes


@pytest.mark.parametrize(("error", "passes"), [(5.9, True), (6.1, False)])
def test_one_element_of_many_may_be_off_by_its_own_multiple_of_the_references_largest_error(error, passes):
    mine, usual = np.zeros(1000), np.ones(1000)
    mine[7] = error
    assert accepts(np.ones(1000), usual, mine, peak=6.0) is passes
    assert not accepts(np.ones(1000), usual, mine)


def test_errors_of_large_elements_excuse_no_wrong_small_ones():
    right = np.where(np.arange(1000) < 500, 1.0, 1e6) * np.linspace(1.0, 1.5, 1000)
    usual = np.where(right < 10, 1e-7, 0.1)

    assert accepts(right, usual, usual)
    assert accepts(right, usual, np.where(right < 10, 1.9e-7, 0.0))
    assert not accepts(right, usual, np.where(right < 10, 1e-3, 0.0))
    assert accepts(right, usual, np.where(right < 10, 0.0, 0.19))


def test_a_small_sum_may_be_as_wrong_as_its_row():
    right = np.full((4, 100), 1e3)
    right[:, ::7] = 1e-4  # where terms cancel
    usual = np.where(right > 1, 0.1, 0.0)

    assert accepts(right, usual, np.where(right > 1, 0.0, 0.1), summed=True)
    assert not accepts(right, usual, np.where(right > 1, 0.0, 0.1))


# --- the L2 error -----------------------------------------------------------------------------------------------------


def l2(actual, expected):
    return error_stats(np.array(actual, float), np.array(expected, float)).l2


@pytest.mark.parametrize("scale", [5e-324 * 2**20, 1e-310, 1e-200, 1e200, 1e307])
def test_the_l2_error_of_tiny_and_huge_numbers_neither_vanishes_nor_overflows(scale):
    many = np.array([6.0, 8.0] * 5000) * scale

    assert l2(1.5 * many, many) == pytest.approx(0.5, rel=1e-5)


def broken(right, dtype="float32"):
    rms = float(np.sqrt(np.mean(right[np.isfinite(right)] ** 2)))
    return break_answer(Standard(right, right, right, ErrorStats(right.size), 0.0, 0.0), dtype, rms)


def test_an_answer_is_broken_in_every_way_that_changes_it():
    rows = np.random.default_rng(0).normal(size=(6, 5))

    assert len(broken(rows)) == 6
    assert ROUNDED not in broken(rows, "float16")
    assert ROUNDED not in broken(np.sign(rows))
    assert "an answer with its rows in another order" not in broken(np.tile(rows[0], (4, 1)))
    assert NO_COLUMN not in broken(np.where(np.arange(5) < 4, rows, 1e-3))
    assert list(broken(np.array(3.01))) == ["zeros", ONE_ELEMENT, ROUNDED]


def test_infinities_and_nan_stay_in_an_answer_that_is_wrong_in_its_numbers():
    right = np.where(np.eye(4), np.inf, np.random.default_rng(0).normal(size=(4, 4)))
    right[0, 1] = np.nan

    broken_cases = broken(right)

    assert all(np.array_equal(finiteness(broken_cases[name]), finiteness(right)) for name in (ONE_ELEMENT, ROUNDED))


# --- what is allowed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "share"),
    [
        ([0.0, 0.0], 0.0),
        ([0.3, 0.0], 0.3 / 1.1),  # of the tolerance: 1 + 0.1 of the value
        ([0.0, 10.5], 0.5),
        ([2.2, 0.0], 0.55),  # beyond that of twice the reference's largest error, and of the same of its mean
        ([4.0, 0.0], 1.0),
        ([4.1, 0.0], 4.1 / 4),
        ([math.nan, 0.0], math.inf),
    ],
)
def test_the_share_of_what_is_allowed_is_1_where_an_output_is_only_just_right(mine, share):
    right, usual = np.array([1.0, 200.0]), np.array([2.0, 2.0])
    standard = Standard(right, right, right + usual, error_stats(right + usual, right), 0.1, 1.0)

    assert standard.find_share(right + np.array(mine)) == pytest.approx(share)
    assert standard.accepts(right + np.array(mine)) is (share <= 1)


def test_nothing_is_all_of_nothing_that_is_allowed():
    right = np.array([0.0, 1.0])
    standard = Standard(right, right, right, error_stats(right, right), 0.0, 0.0)

    assert standard.find_share(right) == 0.0
    assert standard.find_share(right + 1e-300) == math.inf
