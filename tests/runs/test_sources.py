"""Where the thresholds in force for a run come from, for its report."""

from __future__ import annotations

import pytest

from perfci.report.sources import SetBy
from perfci.runs.sources import list_set_values
from tests.runs.test_effective_thresholds import case_of, kept
from tests.thresholds.earned_examples import earned


@pytest.fixture(autouse=True)
def _no_pipeline(monkeypatch):
    for name in ("CI", "GITLAB_CI"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(measure, workers):
    return measure()


def write(settings, *lines):
    settings.thresholds.mkdir(exist_ok=True)
    (settings.thresholds / "scale.yaml").write_text("speedup: 1.2\n" + "".join(lines))


def relaxed(key="tau", to="to: 9 %, ", until="2999-01-01", case=""):
    return "relaxed:\n" + f'  - {{key: {key}, {case}{to}why: "noisy, see !43", until: {until}}}\n'


def test_an_earned_value_has_its_file_and_what_people_wrote(run, settings):
    write(settings)
    kept(settings, run, earned("speedup", 1.31, case_of(run)))
    (found,) = list_set_values(run, settings)

    assert (found.layer, found.key, found.value, found.without) == (SetBy.EARNED, "speedup", "1.31", "1.2")
    assert found.where.startswith(f"thresholds/{run.environment.device.key}/scale.yaml:")
    assert (found.op, found.case, found.runs, found.date) == ("scale", case_of(run), 24, "2026-11-21")


def test_an_earned_tau_is_held_against_that_of_the_kernels_length(run, settings):
    kept(settings, run, earned("tau", 0.001, case_of(run)))
    (found,) = list_set_values(run, settings)

    assert found.value == "0.1 %"
    assert found.without in {"1 %", "1.5 %", "2.5 %", "5 %"}


def test_a_relaxed_entry_has_its_expiry_its_reason_and_what_it_loosens(run, settings):
    write(settings, relaxed())
    (found,) = list_set_values(run, settings)

    assert (found.layer, found.key, found.value, found.until) == (SetBy.RELAXED, "tau", "9 %", "2999-01-01")
    assert found.why == "noisy, see !43"
    assert found.where == "thresholds/scale.yaml:3"
    assert found.without == "1 % ... 5 %"


def test_a_relaxed_entry_stands_in_the_place_of_what_was_earned(run, settings):
    write(settings, relaxed("speedup", to=""))
    kept(settings, run, earned("speedup", 1.31, case_of(run)))
    (found,) = list_set_values(run, settings)

    assert (found.layer, found.value) == (SetBy.RELAXED, "")
    assert found.without in {"1.2 ... 1.31", "1.31"}


def test_a_value_of_the_command_line_stands_above_all_others(measure, workers, settings):
    write(settings)
    run = measure(thresholds={"speedup": "1.4", "alpha": "2 %"})
    kept(settings, run, earned("speedup", 1.31, case_of(run)))
    found = {each.key: each for each in list_set_values(run, settings)}

    assert set(found) == {"speedup", "alpha"}
    assert found["speedup"].layer is SetBy.GIVEN
    assert (found["speedup"].value, found["speedup"].where) == ("1.4", "--threshold")
    assert found["speedup"].without.startswith("1.2")
    assert found["alpha"].without == "1 %"
