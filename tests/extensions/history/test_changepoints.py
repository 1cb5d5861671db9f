"""Steps over accepted runs: where they are, how sure, and what explains them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from perfci.core.wording import sentence
from perfci.extensions.common.accepted_runs import Epoch
from perfci.extensions.history import changepoints
from perfci.extensions.history.changepoints import Cause
from tests.extensions.history.ratchet.histories import CASE, ELSEWHERE, HERE, run


def noise(count, spread=0.003, seed=1, tails=None):
    rng = np.random.default_rng(seed)
    return rng.normal(0, spread, count) if tails is None else spread * rng.standard_t(tails, count)


def stepped(count=60, at=40, size=0.02, spread=0.003, seed=1, reference=0.0, environments=None, boards=None, **more):
    """Runs whose kernel takes that much more from a place on, and whose reference takes the given amount more."""
    kernel, ratio = noise(count, spread, seed), noise(count, spread, seed + 1)
    kernel[at:] += math.log1p(size)
    ratio[at:] += math.log1p(size) - math.log1p(reference)
    return [
        replaced(
            run(
                number,
                environment=(environments or {}).get(number, HERE),
                board=(boards or ["GPU-1"] * count)[number],
                kernel_us=100 * math.exp(kernel[number]),
                shift=ratio[number],
                **more,
            ),
            number,
        )
        for number in range(count)
    ]


def replaced(made, number, **changes):
    """With its commit."""
    return replace(made, environment=replace(made.environment, commit=f"{number:040x}", **changes))


def find(history):
    return changepoints.find_changes(changepoints.index_cases(history)[CASE])


def only(history):
    (change,) = find(history)
    return change


def said(change):
    text = sentence(changepoints.describe_change(change, "softmax"))
    assert "{" not in text
    return text


# --- the statistic ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("effect", "seed"), [(0.02, 0), (0.02, 1), (-0.02, 2), (0.05, 3)])
def test_a_step_is_found_where_it_is_or_a_run_beside_it(effect, seed):
    series = noise(100, seed=seed)
    series[37:] += effect

    (cut,) = changepoints.find_cuts(series)
    assert abs(cut - 37) <= 1


@pytest.mark.parametrize("tails", [None, 2])
def test_noise_of_any_tails_has_no_more_alarms_than_the_rate_allows(tails):
    alarms = sum(bool(changepoints.find_cuts(noise(60, seed=seed, tails=tails))) for seed in range(1500))

    assert alarms <= 4  # half of 1 in 1,000: 0.75 expected, and 5 or more once in 1,000 times


def test_six_runs_after_a_step_are_enough_and_two_are_not():
    series = noise(66, seed=2)
    series[60:] += 0.05

    assert changepoints.find_cuts(series) == (60,)
    assert changepoints.find_cuts(series[:62]) == ()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match="finite"):
        changepoints.find_cuts([0.0] * 30 + [bad])


# --- what explains a step ---------------------------------------------------------------------------------------------


def test_a_step_of_the_kernel_has_its_commits_and_size_and_the_bisection_that_finds_it():
    change = only(stepped())

    assert (change.cause, change.figure, change.unexplained) == (Cause.KERNEL, "kernel_us", True)
    assert (change.before.run, change.after.run) == ("r39", "r40")
    assert change.size.low < 0.02 < change.size.high and change.size.high - change.size.low < 0.01
    assert change.runs == (40, 20)
    command = f"perfci bisect softmax --case {CASE} --against {39:040x}"[: -40 + 12]
    assert command in said(change) and f"{40:040x}"[:12] in said(change)


def test_a_new_driver_is_nobodys_fault():
    new = replace(HERE, device=replace(HERE.device, driver="590.1"))
    change = only(stepped(environments=dict.fromkeys(range(40, 60), new)))

    assert (change.cause, change.unexplained) == (Cause.ENVIRONMENT, False)
    assert "device.driver 580.159 -> 590.1" in said(change)


def test_a_step_that_lies_a_run_beside_a_new_environment_is_put_there_where_it_fits_as_well():
    history = stepped(environments=dict.fromkeys(range(40, 60), ELSEWHERE), size=0.02)
    late = replace(history[40], cases=(replace(history[40].cases[0], kernel_us=history[39].cases[0].kernel_us),))

    changes = find([*history[:40], late, *history[41:]])

    assert [(change.after.run, change.cause) for change in changes] == [("r40", Cause.ENVIRONMENT)]


def test_a_loss_that_was_accepted_is_no_news():
    history = stepped()
    history[40] = replace(history[40], epoch=Epoch("float32 sums", (CASE,)))
    change = only(history)

    assert (change.cause, change.why, change.unexplained) == (Cause.ACCEPTED, "float32 sums", False)
    assert "float32 sums" in said(change)


def test_a_loss_that_was_accepted_later_ends_the_matter():
    history = stepped()
    history[50] = replace(history[50], epoch=Epoch("agreed in !9", (CASE,)))
    change = only(history)

    assert (change.cause, change.why, change.unexplained) == (Cause.KERNEL, "agreed in !9", False)
    assert "agreed in !9" in said(change)


def test_what_the_reference_did_too_is_not_the_kernels_doing():
    change = only(stepped(reference=0.02))

    assert (change.cause, change.unexplained) == (Cause.REFERENCE, False)
    assert change.reference == pytest.approx(0.02, abs=0.003)
    assert "reference" in said(change)


def test_a_reference_that_moves_alone_is_told_by_the_speedup():
    change = only(stepped(size=0.0, reference=-0.03))

    assert (change.figure, change.cause) == ("speedup", Cause.REFERENCE)
    assert "its reference moved" in said(change)


def test_a_kernel_whose_clock_hides_the_step_is_told_by_the_speedup():
    history = stepped(size=0.02)
    clock = noise(60, 0.04, seed=9)
    shaken = [
        replace(
            one, cases=(replace(one.cases[0], kernel_us=replace(one.cases[0].kernel_us, median_us=100 * math.exp(c))),)
        )
        for one, c in zip(history, clock, strict=True)
    ]
    change = only(shaken)

    assert (change.figure, change.cause, change.after.run) == ("speedup", Cause.KERNEL, "r40")


def test_boards_that_were_never_used_before_explain_a_step_and_boards_by_turns_do_not():
    moved = only(stepped(boards=["GPU-1"] * 40 + ["GPU-2"] * 20))
    by_turns = only(stepped(boards=[f"GPU-{number % 3}" for number in range(60)]))

    assert (moved.cause, by_turns.cause) == (Cause.BOARD, Cause.KERNEL)
    assert "perfci history --boards" in said(moved)


def with_time(case, times):
    return replace(case, kernel_us=replace(case.kernel_us, median_us=times * case.kernel_us.median_us))


@pytest.mark.parametrize("size", [0.01, 0.02])
def test_where_another_board_joined_the_runs_of_one_board_say_whether_it_was_the_kernel(size):
    boards = ["GPU-1"] * 40 + ["GPU-2", "GPU-2", "GPU-1"] * 7
    of_all = only(stepped(size=size, boards=boards[:60]))
    slower = [
        replace(one, cases=(with_time(one.cases[0], 1 + size * (board == "GPU-2")),))
        for one, board in zip(stepped(size=0.0, boards=boards[:60]), boards, strict=False)
    ]

    assert of_all.cause is Cause.KERNEL
    assert not any(change.unexplained for change in find(slower))


def test_runs_that_resemble_the_one_before_have_no_more_steps_than_others():
    rng, r = np.random.default_rng(4), 0.7
    values = rng.normal(0, 0.003, (400, 60))
    for at in range(1, 60):
        values[:, at] = r * values[:, at - 1] + math.sqrt(1 - r * r) * values[:, at]

    assert changepoints.estimate_correlation(noise(100, seed=2)) == 0.0
    assert sum(bool(changepoints.find_cuts(row)) for row in values) <= 40


def test_a_creep_shows_as_steps():
    series = noise(60) + 0.001 * np.arange(60)

    assert changepoints.find_cuts(series)


def test_a_step_that_went_back_is_history():
    history = stepped(count=80, at=30, size=0.03)
    calm = stepped(count=80, size=0.0, seed=3)
    first, second = find([*history[:55], *calm[55:]])

    assert (first.lasting, first.unexplained, second.size.value < 0) == (False, False, True)
    assert "came back" in said(first) and "faster" in said(second)


def test_a_step_below_a_quarter_of_a_per_cent_is_never_told():
    assert find(stepped(size=0.002, spread=0.0001)) == ()
