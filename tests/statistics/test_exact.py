import itertools
import math

import numpy as np
import pytest
import scipy  # its parts are imported when they are first used

from perfci.statistics import exact


def test_a_summary_matches_numpy_and_counts_what_lies_beyond_the_fence():
    times = [10.0, 11.0, 12.0, 13.0, 14.0, 40.0]

    summary = exact.summary(times)

    assert summary.launches == 6
    assert summary.median_us == 12.5
    assert (summary.min_us, summary.max_us) == (10.0, 40.0)
    assert (summary.p25_us, summary.p75_us) == (11.25, 13.75)
    assert summary.mean_us == pytest.approx(100 / 6)
    assert summary.rsd == pytest.approx(np.std(times, ddof=1) / np.mean(times))
    assert summary.outliers == 1


def test_the_launch_shift_hardly_feels_a_clock_that_switches_within_the_block():
    rng = np.random.default_rng(2)
    shifts, ratios = [], []
    for _ in range(200):
        clock = np.where(np.arange(31) < rng.integers(13, 19), 1.0, 1.25)
        a, b = (clock * rng.lognormal(0, 0.002, 31) for _ in range(2))
        flip = rng.random(31) < 0.05
        a = np.where(flip, a[::-1], a)
        shifts.append(exact.launch_shift(a, b))
        ratios.append(math.log(np.median(a) / np.median(b)))

    assert np.std(shifts) < np.std(ratios) / 5


# --- signed rank ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 3, 6, 11])
def test_the_signed_rank_distribution_is_that_of_every_combination_of_signs(blocks):
    sums = [
        sum(rank for rank, sign in enumerate(signs, 1) if sign) for signs in itertools.product((0, 1), repeat=blocks)
    ]
    expected = [np.mean(np.array(sums) >= w) for w in range(blocks * (blocks + 1) // 2 + 1)]

    assert exact.signed_rank_tail(blocks) == pytest.approx(expected)


@pytest.mark.parametrize("tau", [0.0, 0.01])
def test_the_signed_rank_p_is_scipys(tau):
    rng = np.random.default_rng(3)
    for _ in range(20):
        d = rng.normal(0.01, 0.02, 12)
        expected = scipy.stats.wilcoxon(d - tau, alternative="greater", method="exact").pvalue
        assert exact.signed_rank_p(d, tau) == pytest.approx(expected)


def test_the_signed_rank_interval_ends_where_the_test_turns():
    d = np.random.default_rng(5).normal(0.03, 0.02, 12)

    location = exact.location(d)

    assert exact.signed_rank_p(d, location.low - 1e-9) <= 0.025 < exact.signed_rank_p(d, location.low + 1e-9)
    assert location.low < location.value < location.high
    assert location.confidence == 0.95


# --- rank sum ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("blocks", "others"), [(1, 1), (2, 3), (4, 4), (3, 6)])
def test_the_rank_sum_distribution_is_that_of_every_order(blocks, others):
    counts = [
        sum(place - rank for rank, place in enumerate(places))
        for places in itertools.combinations(range(blocks + others), blocks)
    ]
    expected = [np.mean(np.array(counts) >= u) for u in range(blocks * others + 1)]

    assert exact.rank_sum_tail(blocks, others) == pytest.approx(expected)


def test_the_rank_sum_p_is_scipys_with_the_margin_inside_the_null():
    rng = np.random.default_rng(6)
    for _ in range(20):
        x, y = rng.normal(0.03, 0.02, 9), rng.normal(0, 0.02, 25)
        above = scipy.stats.mannwhitneyu(x - 0.02, y, alternative="greater", method="exact").pvalue
        below = scipy.stats.mannwhitneyu(x + 0.02, y, alternative="less", method="exact").pvalue
        assert exact.pairs(x, y).p_above(0.02) == pytest.approx(above)
        assert exact.pairs(x, y).p_below(-0.02) == pytest.approx(below)


@pytest.mark.parametrize(
    ("family", "alpha", "baseline"), [(1, 0.01, 30), (30, 0.01, 30), (500, 0.01, 12), (9, 0.05, 3)]
)
def test_the_blocks_needed_are_the_fewest_that_can_pass(family, alpha, baseline):
    needed = exact.blocks_needed(family, alpha, baseline)

    assert family * exact.smallest_p(needed, baseline) <= alpha
    assert needed == 1 or family * exact.smallest_p(needed - 1, baseline) > alpha


def test_the_two_sample_shift_is_the_median_difference_with_the_tests_own_interval():
    rng = np.random.default_rng(8)
    x, y = rng.normal(0.05, 0.02, 8), rng.normal(0, 0.02, 20)
    pairs = exact.pairs(x, y)

    shift = pairs.shift()

    assert shift.value == pytest.approx(np.median(np.subtract.outer(x, y)))
    assert pairs.p_above(shift.low - 1e-9) <= 0.025 < pairs.p_above(shift.low + 1e-9)
    assert pairs.p_below(shift.high + 1e-9) <= 0.025 < pairs.p_below(shift.high - 1e-9)


# --- simulation: error rates within what chance allows ----------------------------------------------------------------


def test_under_the_null_p_is_below_alpha_no_more_often_than_alpha():
    rng = np.random.default_rng(9)
    rank_sum = sum(
        exact.pairs(rng.gumbel(0.02, 0.01, 8), rng.gumbel(0, 0.01, 24)).p_above(0.02) <= 0.05 for _ in range(2000)
    )
    signed = sum(exact.signed_rank_p(rng.laplace(0.02, 0.01, 12), 0.02) <= 0.05 for _ in range(2000))

    assert scipy.stats.binomtest(rank_sum, 2000, 0.05, alternative="greater").pvalue > 1e-3
    assert scipy.stats.binomtest(signed, 2000, 0.05, alternative="greater").pvalue > 1e-3
    assert min(rank_sum, signed) > 50


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(10)
    held = {"pairs": 0, "location": 0}
    for _ in range(1000):
        two = exact.pairs(rng.normal(0.03, 0.02, 8), rng.normal(0, 0.02, 24)).shift()
        one = exact.location(rng.normal(0.03, 0.02, 12))
        held["pairs"] += two.low <= 0.03 <= two.high
        held["location"] += one.low <= 0.03 <= one.high

    for count in held.values():
        assert scipy.stats.binomtest(count, 1000, 0.95, alternative="less").pvalue > 1e-3
        assert count < 1000


# --- control variate and Holm -----------------------------------------------------------------------------------------


def _clocked(blocks, follow, noise=0.002, seed=11):
    rng = np.random.default_rng(seed)
    clock = rng.normal(0, 0.05, blocks)
    return follow * clock + rng.normal(0, noise, blocks), clock + rng.normal(0, noise, blocks)


def test_the_weight_is_what_the_kernel_follows_its_reference_by():
    weight = exact.control_weight(*_clocked(30, 1.2), runs=[1, 2, 3] * 10)

    assert weight.beta == pytest.approx(1.2, abs=0.03)
    assert weight.correlation > 0.99


@pytest.mark.parametrize(
    ("blocks", "follow", "noise", "runs"),
    [(18, 1.0, 0.002, 3), (30, 1.0, 0.002, 2), (30, 0.0, 0.002, 3), (30, 1.0, 0.08, 3), (30, -1.0, 0.002, 3)],
    ids=["too few blocks", "too few runs", "does not follow", "too noisy", "runs against it"],
)
def test_the_weight_is_zero_unless_the_reference_is_known_to_help(blocks, follow, noise, runs):
    kernel, reference = _clocked(blocks, follow, noise)

    assert exact.control_weight(kernel, reference, [number % runs for number in range(blocks)]).beta == 0.0


def test_holm_gives_the_textbook_answer():
    assert exact.holm([0.01, 0.04, 0.03, 0.005], family=4) == pytest.approx([0.03, 0.06, 0.06, 0.02])


# --- levels of a block's launches -------------------------------------------------------------------------------------


def _two_levels(rng, launches=30, apart=0.03, spread=0.005):
    slower = rng.permutation(launches) < rng.integers(launches // 4, 3 * launches // 4)
    return 100 * np.exp(np.log1p(apart) * slower + rng.normal(0, spread, launches))


def test_two_levels_three_per_cent_apart_are_seen_and_stated():
    rng = np.random.default_rng(13)
    splits = [exact.modes(_two_levels(rng)) for _ in range(400)]

    assert sum(len(levels) == 2 for levels in splits) >= 380
    assert np.mean([levels for levels in splits if len(levels) == 2], axis=0) == pytest.approx([100, 103], rel=0.002)


UNIMODAL = {
    "normal": (lambda rng: rng.normal(0, 0.01, 30), 0.005),
    "quiet": (lambda rng: rng.normal(0, 0.001, 30), 0.0),
    "heavy tails": (lambda rng: 0.01 * rng.standard_t(3, 30), 0.005),
    "drift": (lambda rng: np.linspace(0, 0.03, 30) + rng.normal(0, 0.002, 30), 0.005),
    "spikes": (lambda rng: rng.normal(0, 0.005, 30) + (rng.random(30) < 0.05) * rng.uniform(0.1, 1, 30), 0.01),
    "uniform": (lambda rng: rng.uniform(-0.02, 0.02, 30), 0.07),
    "skewed": (lambda rng: rng.exponential(0.02, 30), 0.05),
}


@pytest.mark.parametrize("noise", UNIMODAL)
def test_noise_about_one_level_is_rarely_taken_for_several(noise):
    rng = np.random.default_rng(14)
    draw, most = UNIMODAL[noise]

    several = sum(len(exact.modes(100 * np.exp(draw(rng)))) > 1 for _ in range(1000))

    assert several <= most * 1000
