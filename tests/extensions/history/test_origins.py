"""Where every threshold comes from."""

from datetime import date

import pytest

from perfci.extensions.history.origins import Layer, explain
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.earned import EarnedFile, write_earned
from perfci.thresholds.layers import STORED_KEYS
from tests.history_examples import CASE, OTHER, accepted, environment, figures
from tests.stored_examples import append_history
from tests.thresholds.earned_examples import earned

KEY = "nvidia-h200"
DAY = date(2026, 12, 1)


@pytest.fixture
def project(settings):
    settings.thresholds.mkdir(exist_ok=True)
    (settings.thresholds / "default.yaml").write_text("# defaults\nmargin: 3 %\nrsd: 6 %\n")
    (settings.thresholds / "relu.yaml").write_text(
        "speedup: 1.2\n"
        "cases:\n"
        "  rows=2:\n"
        "    rsd: 9 %\n"
        "relaxed:\n"
        '  - {key: tau, case: "rows=2", to: 3 %, why: "noisy", until: 2027-01-31}\n'
        '  - {key: margin, to: 9 %, why: "old", until: 2026-01-31}\n'
    )
    append_history(settings.baselines, KEY, "relu", accepted(0, figures(CASE, 100.0), figures(OTHER, 20.0)))
    return settings


def with_values(project, *values, where=None):
    path = project.thresholds / KEY / "relu.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(write_earned(EarnedFile("relu", KEY, path), where or environment(), values))


def shown(project, **options):
    (explained,) = explain(project, ["relu"], day=DAY, **options)
    return explained


def value(explained, key, case=None, part=""):
    return next(value for value in explained.values if (value.key, value.case, value.part) == (key, case, part))


def test_every_key_has_its_place(project):
    explained = shown(project)

    assert {value.key for value in explained.values} == set(CaseThresholds.__dataclass_fields__) - STORED_KEYS
    assert (str(value(explained, "margin").origin), value(explained, "margin").layer) == (
        "thresholds/default.yaml:2",
        Layer.FILE,
    )
    assert str(value(explained, "speedup").origin) == "thresholds/relu.yaml:1"
    assert (str(value(explained, "regime").origin), value(explained, "regime").layer) == ("built in", Layer.BUILT_IN)
    assert value(explained, "registers").value is None


def test_tau_of_a_case_is_that_of_its_length(project):
    explained = shown(project, pattern="rows=*", key="tau")

    assert [(value.case, value.value) for value in explained.values] == [(CASE, 0.01), (OTHER, 0.03)]


def test_a_relaxed_value_names_its_entry_and_what_has_ended_is_said(project):
    explained = shown(project)

    tau = value(explained, "tau", OTHER)
    assert (tau.layer, str(tau.origin), tau.relaxed.why) == (Layer.RELAXED, "thresholds/relu.yaml:6", "noisy")
    assert [reason.kind for reason in explained.ended] == ["relaxed_ended"]


def test_an_earned_value_comes_with_its_record(project):
    with_values(project, earned("tau", 0.0075, CASE), earned("rsd", 0.08, CASE))
    explained = shown(project)

    tau, rsd = value(explained, "tau", CASE), value(explained, "rsd", CASE)
    assert (tau.layer, tau.value, tau.earned.runs) == (Layer.EARNED, 0.0075, 24)
    assert tau.origin.file == f"thresholds/{KEY}/relu.json"
    assert (rsd.layer, rsd.value, rsd.earned.value) == (Layer.FILE, 0.06, 0.08)
