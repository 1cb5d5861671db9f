"""What moved between a stored baseline and fresh runs, and the step that it becomes."""

import math

import numpy as np
import pytest

from perfci.core.model import Baseline, BaselineBlock, BaselineCase, BaselineRun
from perfci.extensions.history.rebaseline import add_step, survey
from perfci.thresholds.case import CaseThresholds
from tests.decision_examples import environment

CASES = ("rows=1", "rows=2", "rows=3")


def blocks(kernel_us, reference_us, run, seed=0):
    """Ten blocks with noise of 0.3 %."""
    noise = np.random.default_rng(seed).lognormal(0, 0.003, (10, 2))
    pairs = np.array([kernel_us, reference_us]) * noise
    return tuple(BaselineBlock(run, k, r, math.log(k / r)) for k, r in pairs.tolist())


def stored(run="old", kernel=1.0, reference=1.0, cases=CASES, us=50.0, seed=0, **surroundings):
    """A baseline of one run; kernel and reference take `kernel` and `reference` times as long as usual."""
    commit = surroundings.pop("commit", "c" * 40)
    made = BaselineRun(run, f"2026-01-0{1 + (run != 'old')}", environment(commit=commit, **surroundings))
    timed = tuple(BaselineCase(case, blocks(us * kernel, 1.5 * us * reference, run, seed)) for case in cases)
    return Baseline("op", "nvidia-h200", "activity", (made,), timed)


def fresh(kernel=1.0, reference=1.0, **options):
    return stored("new", kernel, reference, **{"driver": "590", "seed": 1} | options)


def seen(new, old=None, **limits):
    return survey(old or stored(), new, lambda case: CaseThresholds(**limits))


def unexplained(new, **limits):
    return [move.case for move in seen(new, **limits).cases if move.unexplained]


# --- what moved -------------------------------------------------------------------------------------------------------


def test_each_case_tells_how_far_kernel_and_reference_moved():
    rebaselined = seen(fresh(1.05, 1.04))

    move = rebaselined.cases[0]
    assert [one.case for one in rebaselined.cases] == list(CASES)
    assert move.kernel.value == pytest.approx(0.05, abs=0.005)
    assert move.kernel.low < 0.05 < move.kernel.high
    assert move.reference.value == pytest.approx(0.04, abs=0.005)
    assert (move.before_us, move.after_us) == pytest.approx((50.0, 52.5), rel=0.005)
    assert [(differ.field, differ.before, differ.after) for differ in rebaselined.differs] == [
        ("device.driver", "580", "590")
    ]


@pytest.mark.parametrize(
    ("kernel", "reference", "alone"),
    [
        (1.05, 1.05, False),
        (0.95, 0.95, False),
        (1.06, 1.05, False),
        (1.00, 1.06, False),
        (1.07, 1.05, False),
        (1.015, 1.0, False),
        (1.06, 1.00, True),
        (0.94, 1.00, True),
        (1.05, 0.95, True),
        (1.15, 1.05, True),
    ],
    ids=[
        "with it", "faster with it", "a little more", "only the reference", "half as much again", "within the margin",
        "the kernel alone", "faster alone", "against it", "far more than it",
    ],
)  # fmt: skip
def test_a_kernel_that_moved_where_its_reference_did_not_is_not_explained(kernel, reference, alone):
    assert bool(unexplained(fresh(kernel, reference))) is alone


@pytest.mark.parametrize(
    ("kernel", "reference", "alone"), [(1.0, 0.8, False), (0.8, 0.8, False), (0.9, 0.8, True), (1.05, 0.8, True)]
)
def test_a_reference_that_was_replaced_explains_only_what_moved_as_far_as_it(kernel, reference, alone):
    assert bool(unexplained(fresh(kernel, reference, torch="2.13"))) is alone


# --- which cases ------------------------------------------------------------------------------------------------------


def test_a_case_that_went_through_the_step_already_stays_as_it_is():
    half = add_step(stored(), fresh(), seen(fresh()), ["rows=1"], "now", "driver")

    rebaselined = seen(stored("newer", driver="590", seed=2), half)

    assert [move.case for move in rebaselined.cases] == ["rows=2", "rows=3"]


# --- the step ---------------------------------------------------------------------------------------------------------


def test_a_step_holds_both_sides_and_how_far_each_case_moved():
    new = fresh(1.05, 1.05, host="elsewhere")

    rebaselined = add_step(stored(), new, seen(new), CASES, "2026-03-01T00:00:00Z", "driver 590")

    (step,) = rebaselined.steps
    assert (step.date, step.why) == ("2026-03-01T00:00:00Z", "driver 590")
    assert [differ.field for differ in step.differs] == ["device.driver"]
    assert (step.before.run_ids, step.before.driver, step.before.boards) == (("old",), "580", ("GPU-1",))
    assert (step.after.run_ids, step.after.driver, step.after.commits) == (("new",), "590", ("c" * 40,))
    assert step.after.packages == {"torch": "2.11"}
    assert [case.case for case in step.cases] == list(CASES)
    assert step.cases[0].kernel == pytest.approx(0.05, abs=0.005)
    assert rebaselined.cases == new.cases
    assert rebaselined.runs == new.runs
