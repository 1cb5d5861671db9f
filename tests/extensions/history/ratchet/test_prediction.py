"""Bounds for the next accepted run."""

import math

import numpy as np
import pytest

from perfci.extensions.history.ratchet import prediction

BOARD = "GPU-1"


def _factor(runs, chance):
    """Standard deviations above the mean of normal runs that the next one exceeds with this chance."""
    return -prediction.find_student_quantile(chance, runs - 1) * math.sqrt(1 + 1 / runs)


def _normal(count, seed=1, spread=0.01):
    return np.random.default_rng(seed).normal(0.5, spread, count).tolist()


@pytest.mark.parametrize("runs", [8, 20])
def test_the_bound_by_moments_is_passed_as_rarely_as_it_says(runs):
    values = np.random.default_rng(3).normal(size=(200_000, runs + 1))
    bound = values[:, :-1].mean(axis=1) + _factor(runs, 0.01) * values[:, :-1].std(axis=1, ddof=1)

    assert float((values[:, -1] > bound).mean()) == pytest.approx(0.01, abs=0.001)


@pytest.mark.parametrize("dof", [4, 8])
def test_the_robust_bound_is_passed_as_rarely_as_it_says_by_tails_that_it_reckons_with(dof):
    values = np.random.default_rng(4).standard_t(dof, (100_000, 13))
    centres = np.median(values[:, :12], axis=1)
    mads = np.median(np.abs(values[:, :12] - centres[:, None]), axis=1)
    rate = float((values[:, 12] > centres + prediction.find_robust_factor(12, 0.005, dof) * mads).mean())

    assert rate == pytest.approx(0.005, abs=0.001)


def test_one_board_gives_the_textbooks_bound():
    values = _normal(10)
    predict = prediction.predict_by_moments(values, [BOARD] * 10)

    expected = np.mean(values) + _factor(10, 0.001) * np.std(values, ddof=1)
    assert predict.bound(0.001) == pytest.approx(expected)


def test_many_runs_of_two_boards_tell_little_about_the_next_board():
    values = [value + (0.05 if number % 2 else 0.0) for number, value in enumerate(_normal(40, spread=0.001))]
    boards = [f"GPU-{number % 2}" for number in range(40)]
    pooled, apart = prediction.predict_by_moments(values, [BOARD] * 40), prediction.predict_by_moments(values, boards)

    assert apart.runs < 20 < pooled.runs


def test_runs_that_follow_each_other_are_worth_fewer():
    rng = np.random.default_rng(5)
    walk = np.cumsum(rng.normal(size=60)).tolist()

    assert prediction.count_independent(walk) < 15
    assert prediction.count_independent(rng.normal(size=60).tolist()) == 60


def test_one_odd_run_moves_the_robust_bound_little_and_the_other_much():
    values = _normal(20)
    odd = [*values[:-1], 3.0]
    room = [
        [
            form.bound(0.001) - form.centre
            for form in (prediction.predict_robustly(series, 8), prediction.predict_by_moments(series, [BOARD] * 20))
        ]
        for series in (values, odd)
    ]

    assert room[1][0] < 1.5 * room[0][0]
    assert room[1][1] > 20 * room[0][1]


@pytest.mark.parametrize(
    "form", [lambda v: prediction.predict_robustly(v, 8), lambda v: prediction.predict_by_moments(v, [BOARD] * len(v))]
)
def test_the_chance_of_a_bound_is_the_chance_that_was_asked_for(form):
    predicted = form(_normal(15))

    assert predicted.exceeded(predicted.bound(0.002)) == pytest.approx(0.002, rel=0.01)
