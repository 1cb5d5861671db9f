"""Limits on storage in low precision are learnt from accepted runs like any other."""

from dataclasses import replace

import pytest

from perfci.core.model import Suite
from perfci.core.wording import sentence
from perfci.extensions.history.ratchet import steps
from perfci.extensions.history.ratchet.steps import KEYS
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import OpThresholds, Thresholds
from tests.extensions.history.ratchet.histories import HERE
from tests.extensions.lowprec.storage_examples import changed, line, sound

TENSOR = sound()[0]
KEY = {key.name: key for key in KEYS}
STORED = ("stored_p99", "clip_ratio", "divergence")


def history(count=40, **figures_of):
    """Accepted runs with a tensor that has these figures, one a run."""
    return [
        replace(line(number, [changed(TENSOR, **{name: figure_at(number) for name, figure_at in figures_of.items()})]),
                environment=HERE)
        for number in range(count)
    ]  # fmt: skip


def propose(runs, **limits):
    op = OpThresholds(CaseThresholds(), ((TENSOR.case, limits),))
    limits_of = Thresholds(ops={"op": op}) if limits else Thresholds()
    return {change.key: change for change in steps.propose(runs, limits_of, "op", family=1)}


def test_a_history_of_storage_earns_limits_on_its_three_figures_and_no_others():
    proposal = propose(history())

    assert set(proposal) == set(STORED)
    assert {change.suite for change in proposal.values()} == {Suite.ACCURACY}
    assert {change.case for change in proposal.values()} == {TENSOR.case}


def test_the_clip_ratio_goes_a_quarter_of_the_way_from_its_default_to_what_never_matters():
    change = propose(history())["clip_ratio"]

    assert change.before == 0.02
    bound = 1e-3 * 2.718281828**0.5
    assert change.bound == pytest.approx(bound, rel=1e-3)
    assert change.after == pytest.approx(0.02 - 0.25 * (0.02 - bound), rel=1e-3)
    assert sentence(change.why)


def test_step_by_step_it_comes_as_near_as_what_was_clipped_bears():
    runs, value = history(clip_ratio=lambda number: 0.004 + 0.0002 * (number % 3)), 0.02
    for _ in range(60):
        change = propose(runs, clip_ratio=value).get("clip_ratio")
        if change is None:
            break
        assert change.after < value
        value = change.after

    assert 0.0044 < value < 0.01


def test_a_divergence_without_a_limit_begins_well_above_what_was_seen():
    change = propose(history())["divergence"]

    assert change.before is None
    assert change.after == pytest.approx(1e-2 * 2.718281828**2, rel=1e-2)


def test_limits_on_the_errors_of_outputs_are_not_learnt_from_storage():
    runs = history()

    for name in ("mean_abs", "rmse", "p99_abs", "max_abs"):
        assert steps.read_series(runs, Suite.ACCURACY, TENSOR.case, KEY[name]).values == ()
