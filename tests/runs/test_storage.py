"""Figures of storage in low precision beside their history, and their slow drift."""

from dataclasses import replace

import pytest

from perfci.core.model import OpRun, Plan, Run
from perfci.core.settings import Settings
from perfci.core.wording import sentence
from perfci.runs import drifts
from perfci.runs.drifts import beside_accepted
from perfci.statistics import drift
from perfci.statistics.drift import ANCHOR, RECENT, STORED_LEAST, stored_creep
from perfci.store.history import append_history
from tests.history_examples import environment
from tests.storage_examples import changed, line, sound

TENSOR = sound()[0]
LENGTH = ANCHOR + RECENT


def history(count=LENGTH, **own):
    """Runs with one tensor, whose figures are functions of the run's number."""
    return [
        line(number, [changed(TENSOR, **{name: at(number) for name, at in own.items()})]) for number in range(count)
    ]


def creep(runs, figure="stored_p99", **more):
    return stored_creep(runs, TENSOR.case, figure, **more)


def test_steady_figures_do_not_creep():
    for figure in drift.STORED_ZEROS:
        found = creep(history(), figure)
        assert (found.found, found.change, found.threshold) == (False, 0.0, STORED_LEAST)


def test_what_grows_bit_by_bit_is_told_although_no_step_is_large():
    found = creep(history(30, p99=lambda number: 1.01**number))

    assert found.found
    assert found.change == pytest.approx(1.01**22.5 - 1, rel=0.05)
    assert found.anchor == tuple(f"run{number}" for number in range(10))
    assert found.recent == tuple(f"run{number}" for number in range(25, 30))


def test_clipping_counts_from_one_in_a_thousand_on_and_divergence_from_a_hundredth():
    assert not creep(history(clip_ratio=lambda number: 9e-4 if number >= ANCHOR else 0.0), "clip_ratio").found
    assert creep(history(clip_ratio=lambda number: 2e-3 if number >= ANCHOR else 0.0), "clip_ratio").found
    assert not creep(history(divergence=lambda number: 9e-3 if number >= ANCHOR else 0.0), "divergence").found
    assert creep(history(divergence=lambda number: 0.02 if number >= ANCHOR else 0.0), "divergence").found


def test_runs_of_all_environments_count_since_that_is_what_may_move_them():
    runs = [replace(each, environment=environment(torch="2.12.0")) if number > 9 else each
            for number, each in enumerate(history(p99=lambda number: 1.5 if number > 9 else 1.0))]  # fmt: skip

    assert creep(runs).found


def test_drifts_are_found_of_the_tensors_that_fit_the_pattern_and_told_in_a_sentence():
    runs = history(p99=lambda number: 1.5 if number >= ANCHOR else 1.0)

    ((found, release),) = drifts.find_stored_drifts(runs, ())
    assert (found.figure, release) == ("stored_p99", None)
    assert drifts.find_stored_drifts(runs, (), "stored=b,*") == ()
    assert drifts.find_stored_drifts([], ()) == ()
    text = sentence(drifts.describe_stored_creep("op", found, runs, release))
    assert "has drifted: its stored_p99 is +50.0 %" in text
    assert "`perfci history --op op`" in text


# --- beside the history of a run --------------------------------------------------------------------------------------


def run_of(number=99):
    return Run(f"run{number}", "2026-02-01T00:00:00Z", "0", "-", environment(), Plan((), 1, 1.0, "cuda"), ())


@pytest.fixture
def settings(tmp_path):
    return Settings(tmp_path, *(tmp_path / name for name in ("kernels", "baselines", "thresholds", "reports")))


def kept(settings, runs):
    for each in runs:
        append_history(settings.baselines, "nvidia-h200", "op", each)


def test_a_run_takes_the_figures_of_its_history_along(settings):
    kept(settings, history(3))

    found = beside_accepted(OpRun("op", stored=sound()), run_of(), settings)

    assert [each.run for each in found.stored[0].before] == ["run0", "run1", "run2"]
    assert found.stored[1].before == ()


def test_a_history_that_cannot_be_read_costs_nothing(settings):
    path = settings.baselines / "nvidia-h200" / "op.history.jsonl"
    path.mkdir(parents=True)

    op = OpRun("op", stored=sound())
    assert beside_accepted(op, run_of(), settings) == op
