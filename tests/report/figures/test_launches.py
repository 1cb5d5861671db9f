import numpy as np
import pytest

from perfci.report.figures.launches import STEPS, Distribution, distributions, quantiles


def normal(middle, count=400, spread=0.01, seed=1):
    return middle * np.exp(np.random.default_rng(seed).normal(0, spread, count))


def panels(*cases):
    return distributions(cases, "t").panels


def test_a_curve_rises_from_0_at_the_least_launch_to_1_at_the_greatest():
    (panel,) = panels(Distribution("n=1", {"kernel": np.array([3.0, 1.0, 2.0])}))

    (line,) = panel.lines("kernel")
    assert (line.xs[0], line.ys[0]) == (1.0, 0.0)
    steps = dict(zip(line.xs, line.ys, strict=True))
    assert (steps[1.0], steps[2.0], steps[3.0]) == pytest.approx((1 / 3, 2 / 3, 1.0))


def test_a_reference_far_away_has_a_panel_of_its_own():
    main, side = panels(Distribution("n=1", {"kernel": normal(10), "base": normal(9.9), "reference": normal(30)}))

    assert {line.name for line in main.lines()} == {"kernel", "base"}
    assert {line.name for line in side.lines()} == {"reference"}
    assert main.x.high < 12
    assert side.x.low > 25


def test_a_reference_nearby_shares_the_panel():
    (panel,) = panels(Distribution("n=1", {"kernel": normal(10), "reference": normal(10.5)}))

    assert {line.name for line in panel.lines()} == {"kernel", "reference"}


def test_times_that_span_much_have_a_logarithmic_axis():
    wide = np.append(normal(5), 40.0)

    (narrow,) = panels(Distribution("n=1", {"kernel": normal(5)}))
    (broad,) = panels(Distribution("n=1", {"kernel": wide}))

    assert not narrow.x.log
    assert broad.x.log
    assert broad.x.high > 40


def test_the_baselines_steps_are_its_block_medians():
    medians = np.array([9.8, 10.0, 9.9])

    (panel,) = panels(Distribution("n=1", {"kernel": normal(10)}, medians))

    (line,) = panel.lines("baseline")
    assert sorted(set(line.xs))[:3] == pytest.approx([9.8, 9.9, 10.0])
    assert line.dash == ":"


def test_equal_launches_are_one_step():
    (panel,) = panels(Distribution("n=1", {"kernel": np.full(50, 5.0)}))

    assert panel.x.low < 5.0 < panel.x.high
    assert set(panel.lines("kernel")[0].ys) >= {0.0, 1.0}


def test_of_many_launches_a_choice_is_drawn_that_keeps_both_ends():
    times = normal(10, count=50_000)

    values, shares = quantiles(times)

    assert len(values) <= STEPS
    assert (values[0], values[-1]) == (times.min(), times.max())
    assert shares[-1] == 1.0
    assert values[len(values) // 2] == pytest.approx(np.quantile(times, shares[len(values) // 2]), rel=1e-3)


def test_an_arm_without_launches_is_left_out():
    (panel,) = panels(Distribution("n=1", {"kernel": normal(10), "base": np.array([])}))

    assert {line.name for line in panel.lines()} == {"kernel"}


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_panels_lie_within_the_picture(count):
    cases = [Distribution(f"n={n}", {"kernel": normal(10), "reference": normal(30)}) for n in range(count)]

    sheet = distributions(cases, "t")

    assert len(sheet.panels) == 2 * count
    for left, bottom, width, height in (panel.box for panel in sheet.panels):
        assert left >= 0
        assert bottom >= 0.4
        assert left + width <= 7.5
        assert bottom + height <= sheet.height - 0.6
