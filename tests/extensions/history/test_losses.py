"""A loss that no one agreed on is seen against the stored baseline and against the history's first runs."""

from perfci.core.model import Baseline, BaselineBlock, BaselineCase, BaselineRun
from perfci.core.wording import sentence
from perfci.extensions.history.accepting import find_losses
from perfci.thresholds.case import CaseThresholds
from tests.history_examples import CASE, accepted, environment, figures

LENGTH = 100.0
"""Microseconds: tau is 1 %, so that 2 % is always detected."""


def baseline(kernel=1.0, reference=1.0, run="now", cache="cold", timer="activity", key="nvidia-h200", **surroundings):
    block = BaselineBlock(run, LENGTH * kernel, 150.0 * reference, -0.4)
    source = BaselineRun(run, "2026-02-01T00:00:00Z", environment(key=key, timer=timer, **surroundings))
    return Baseline("softmax", key, timer, (source,), (BaselineCase(CASE, (block,) * 5, cache),))


def past(*kernels, case=CASE, reference=1.0, **surroundings):
    """Runs of the history, each with its kernel's time as a part of LENGTH."""
    return [
        accepted(number, figures(case, LENGTH * kernel, 150.0 * reference), **surroundings)
        for number, kernel in enumerate(kernels)
    ]


def found(fresh, stored=None, runs=()):
    return find_losses(fresh, stored, runs, lambda _: CaseThresholds()).get(CASE)


def kind(*arguments):
    reason = found(*arguments)
    if reason:
        assert sentence(reason)
    return reason and reason.kind


def test_what_moves_the_reference_as_well_is_no_kernels_fault():
    assert found(baseline(1.06, 1.05), baseline(run="then")) is None
    assert found(baseline(1.06, 1.03), baseline(run="then")) is not None


def test_a_loss_that_came_with_another_environment_is_told_with_its_fields():
    reason = found(baseline(1.06, driver="590.1"), baseline(run="then"))

    assert reason.kind == "accept_lost_elsewhere"
    assert reason.facts["fields"] == "device.driver 580.1 -> 590.1"


def test_a_loss_that_was_accepted_is_held_against_nobody():
    runs = past(1.0, 1.0, 1.0)
    runs += [accepted(7, figures(CASE, 106.0, 150.0), why="float32 sums")]

    assert found(baseline(1.065), None, runs) is None
    assert kind(baseline(1.09), None, runs) == "accept_crept"


def test_runs_of_another_environment_are_no_beginning():
    assert found(baseline(1.06, driver="590.1"), None, past(1.0, 1.0)) is None
    assert kind(baseline(1.06, uuid="GPU-9"), None, past(1.0, 1.0)) == "accept_crept"
