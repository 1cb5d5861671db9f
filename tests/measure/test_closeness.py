import math
from dataclasses import asdict

import numpy as np
import pytest

from perfci.core.model import ErrorStats
from perfci.measure import closeness
from perfci.measure.closeness import (
    NO_COLUMN,
    ONE_ELEMENT,
    ROUNDED,
    Standard,
    break_answer,
    errors_of,
    find_accepted,
    find_growth,
    find_mismatch,
    finiteness,
    sort_errors,
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
    right, usual_error, mine = (np.asarray(values, float) for values in (right, usual_error, mine))
    usual = right + usual_error
    standard = Standard(right, right, usual, error_stats(usual, right), 0.0, 1e-12, summed, peak)
    accepted = standard.accepts(right + mine)
    assert accepted == (standard.find_share(right + mine) <= 1)
    return accepted


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


def test_of_an_exact_reference_without_a_tolerance_one_answer_alone_passes():
    right = np.array([1.0, -2.0, 0.0, np.nan, np.inf, -np.inf], np.float32)
    standard = Standard(closeness.widen(right), right, right, error_stats(right, right), 0.0, 0.0)
    answers = np.array([1.0, -2.0, -0.0, np.nan, np.inf, -np.inf], np.float32), np.nextafter(right, np.float32(3))

    assert standard.find_share(right.copy()) == standard.find_share(answers[0]) == 0.0
    assert not standard.accepts(answers[1])
    assert closeness.find_accepted(standard, right, "float32", 1.0, stated=False) is None


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
    return dict(break_answer(Standard(right, right, right, ErrorStats(right.size), 0.0, 0.0), dtype, rms))


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


@pytest.mark.parametrize("infinite", [False, True])
def test_of_infinite_inputs_an_infinity_may_stand_for_the_nan_of_another_formula(infinite):
    right, other = np.array([1.0, math.nan]), np.array([1.0, math.inf])
    standard = Standard(right, right, right, error_stats(right, right), 0.0, 0.0, infinite=infinite)

    assert standard.accepts(other) == infinite
    assert not standard.accepts(np.array([1.0, 2.0]))
    assert not standard.accepts(np.array([math.inf, math.nan]))


def test_nothing_is_all_of_nothing_that_is_allowed():
    right = np.array([0.0, 1.0])
    standard = Standard(right, right, right, error_stats(right, right), 0.0, 0.0)

    assert standard.find_share(right) == 0.0
    assert standard.find_share(right + 1e-300) == math.inf


# --- one code for NumPy and torch, block by block ---------------------------------------------------------------------


@pytest.fixture(params=["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def make(request):
    """Makes an array of a library, of a dtype that NumPy has or of one that torch alone has."""
    if request.param == "numpy":
        return lambda values, dtype="float64": np.asarray(values, dtype)
    torch = pytest.importorskip("torch")
    return lambda values, dtype="float64": torch.asarray(values).to(getattr(torch, dtype))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(closeness, "BLOCK", 701)
    monkeypatch.setattr(closeness, "SORTED", 10)


@pytest.mark.parametrize("block", [1, 4, 7, 1000])
def test_mismatches_are_counted_over_blocks_and_the_worst_is_named(monkeypatch, make, block):
    monkeypatch.setattr(closeness, "BLOCK", block)
    expected = make(np.arange(60.0).reshape(3, 4, 5))
    actual = make(np.arange(60.0).reshape(3, 4, 5), "float32")
    actual[0, 1, 2] += 1
    actual[2, 3, 1] -= 5
    actual[1, 0, 0] += 2

    mismatch = find_mismatch(actual, expected, 0.0, 0.5)

    assert (mismatch.count, mismatch.worst_abs, mismatch.worst_index, mismatch.share) == (3, 5.0, (2, 3, 1), 0.0)
    assert find_mismatch(actual, expected, 0.0, 1.0).count == 2
    assert find_mismatch(actual, expected, 0.0, 10.0).share == 0.5
    assert find_mismatch(actual, expected, 1.0, 3.0).share == pytest.approx(1 / (3 + 7))
    assert find_mismatch(actual.swapaxes(1, 2), expected.swapaxes(1, 2), 0.0, 0.5).worst_index == (2, 1, 3)
    assert find_mismatch(make([0.0, 2.0]), make([0.0, 2.0]), 0.5, 0.0) == closeness.Mismatch(0, 0.0, (), 0.0)


@pytest.mark.parametrize(
    ("actual", "expected", "count"),
    [
        (math.nan, math.nan, 0),
        (math.inf, math.inf, 0),
        (math.inf, 1e300, 0),
        (math.nan, 1.0, 1),
        (1.0, math.nan, 1),
        (math.inf, 1.0, 1),
        (math.inf, -math.inf, 1),
        (1.0, math.inf, 1),
        (math.nan, math.inf, 1),
    ],
)
def test_what_is_not_finite_must_agree_after_rounding_to_the_dtype(make, actual, expected, count):
    mismatch = find_mismatch(make([actual], "float32"), make([expected]), 1.0, 1.0)

    assert (mismatch.count, mismatch.worst_abs) == (count, math.inf if count else 0.0)


def drawn(make, dtype, shape=(151, 21), scale=1e-3):
    rng = np.random.default_rng(5)
    exact = rng.normal(size=shape)
    return make(exact + scale * rng.normal(size=shape), dtype), make(exact)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16", "float8_e4m3fn"])
@pytest.mark.parametrize("odd", [False, True])
def test_every_figure_of_blocks_is_that_of_the_whole(small_blocks, monkeypatch, make, dtype, odd):
    try:
        actual, exact = drawn(make, dtype)
    except TypeError:
        pytest.skip("NumPy has no such dtype")
    if odd:
        exact[3, 4] = exact[150, 1] = actual[0, 0] = math.nan
    seen = errors_of(actual, exact)
    monkeypatch.undo()
    whole = errors_of(actual, exact)

    given, wanted = asdict(seen.stats), asdict(whole.stats)
    for name in ("p50_abs", "p90_abs", "p99_abs"):  # an element; of few, it is interpolated between two
        assert given.pop(name) == pytest.approx(wanted.pop(name), rel=0.02)
    assert given.pop("worst_index") == wanted.pop("worst_index")
    assert given.pop("of_allowed") is wanted.pop("of_allowed") is None  # which no output knows alone
    assert given == pytest.approx(wanted, rel=1e-9)
    assert seen.exact == pytest.approx(whole.exact)


@pytest.mark.parametrize("summed", [False, True])
def test_errors_are_sorted_by_size_block_by_block(small_blocks, monkeypatch, make, summed):
    rng = np.random.default_rng(5)
    exact = rng.normal(size=(300, 200)) * 10.0 ** np.arange(-150.0, 150)[:, None]
    exact[3, 4], exact[5, 6], exact[7] = np.nan, np.inf, 0.0
    actual, exact = make(exact * (1 + 1e-6 * rng.normal(size=(300, 200)))), make(exact)
    seen = sort_errors(actual, exact, 1e-6, 1e-30, summed=summed)
    monkeypatch.undo()
    whole = sort_errors(actual, exact, 1e-6, 1e-30, summed=summed)

    np.testing.assert_array_equal(seen.counts, whole.counts)
    np.testing.assert_array_equal(seen.largest, whole.largest)
    assert seen.counts.sum() == 300 * 200 - 2 and (seen.largest > 0).sum() > 400
    assert seen.rms == pytest.approx(whole.rms)


def test_broken_answers_and_growth_are_judged_alike_in_blocks(small_blocks, monkeypatch, make):
    actual, exact = drawn(make, "float32", scale=1e-8)
    grown, other = drawn(make, "float32", scale=0.02)[0], drawn(make, "float32", scale=1e-7)[0]
    facts = closeness.DtypeFacts("float32", 3e38, 1e-38, 1e-45, 2.0**-23)

    def judge():
        usual = errors_of(actual, exact)
        standard = Standard(exact, closeness.round_like(exact, actual), actual, usual.stats, 1e-6, 0.02)
        growth = find_growth(grown, other, exact, actual, facts, 10, 1.0)
        return (
            find_accepted(standard, actual, "float32", usual.exact, stated=False),
            find_accepted(standard, actual, "float32", usual.exact, stated=True),
            growth["index"],
            growth["scale"],
            pytest.approx(growth["value"]),
            find_growth(other, other, exact, actual, facts, 10, 1.0),
        )

    blockwise = judge()
    monkeypatch.undo()
    assert blockwise == judge()
    assert blockwise[0] == ROUNDED and blockwise[1] is None and blockwise[5] is None
