"""The thresholds in force for a run, --threshold among them, from the plan to the report's first lines."""

import dataclasses

import pytest

from perfci import store
from perfci.core.errors import UsageError
from perfci.core.model import Verdict
from perfci.core.wording import sentence
from perfci.report import rows
from perfci.runs import effective_thresholds, experiment
from perfci.runs.accept_runs import AcceptOptions, accept_runs
from perfci.runs.decide import decide
from perfci.runs.plan import Request
from perfci.thresholds.earned import EarnedFile, write_earned
from tests.git_repositories import commit_all, git
from tests.thresholds.earned_examples import earned


@pytest.fixture
def people(settings):
    """What people wrote: a target for scale, and two entries of which one has ended."""
    settings.thresholds.mkdir(exist_ok=True)
    (settings.thresholds / "scale.yaml").write_text(
        "speedup: 1.2\n"
        "relaxed:\n"
        '  - {key: rsd, to: 20 %, why: "noisy runner", until: 2999-01-01}\n'
        '  - {key: tau, to: 9 %, why: "long ago", until: 2020-01-01}\n'
    )
    return settings


def said(judgements):
    return [(note.kind, sentence(note)) for note in judgements.notes]


def kept(settings, run, *values):
    """Earned values of scale for the run's device and environment."""
    where = run.environment
    path = settings.thresholds / where.device.key / "scale.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(write_earned(EarnedFile("scale", where.device.key, path), where, values))


def case_of(run, op="scale"):
    return next(each for each in run.plan.ops if each.op == op).performance[0]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("tau", "threshold_option"),
        ("=2 %", "threshold_option"),
        ("tau=", "threshold_option"),
        ("tua=2 %", "threshold_option_key"),
        ("floor_us=1", "threshold_option_key"),
        ("tau=2", "threshold_option_value"),
        ("tau=nan", "threshold_option_value"),
        ("tau=-1 %", "threshold_option_value"),
        ("speedup=1.2 %", "threshold_option_value"),
        ("speedup=[1]", "threshold_option_value"),
        ("speedup=*x", "threshold_option_value"),
        ("tau=%", "threshold_option_value"),
    ],
)
def test_what_no_file_could_say_no_option_can(given, kind):
    with pytest.raises(UsageError) as caught:
        effective_thresholds.parse_options([given])

    assert caught.value.reason.kind == kind
    assert "--threshold" in str(caught.value)


def test_an_option_is_recorded_and_judges_the_run_wherever_it_is_read(measure, workers, people):
    run = measure(thresholds={"speedup": "1000"})

    assert run.plan.thresholds == {"speedup": "1000"}
    assert store.read_run(people.reports).plan.thresholds == {"speedup": "1000"}
    verdicts = {row.verdict for row in decide(run, people).rows if row.op == "scale" and row.case}
    assert Verdict.PASS not in verdicts
    assert ("thresholds_given", "This run is judged by --threshold on its command line: speedup 1000.") in said(
        decide(run, people)
    )


def test_what_loosens_is_said_before_anything_else(measure, workers, people):
    run = measure(thresholds={"speedup": "1.1", "tau": "0.5 %"})

    first, second, *_ = said(decide(run, people))

    assert first[0] == "threshold_loosened"
    assert "1.2 is in force" in first[1]
    assert second[0] == "thresholds_given"
    assert {first[0], second[0]} <= rows.FIRST  # above the table of verdicts, in every report


@pytest.mark.parametrize("asked", [{"speedup": "1.1"}, {"tau": "9 %"}, {"alpha": "0.1 %"}])
def test_in_a_pipeline_no_option_loosens(measure, workers, people, monkeypatch, asked):
    monkeypatch.setenv("CI", "true")

    with pytest.raises(UsageError) as caught:
        measure(thresholds=asked)

    assert caught.value.reason.kind == "threshold_looser"
    assert workers.measured() == []


def test_what_was_allowed_on_a_command_line_makes_no_baseline(measure, workers, people):
    (people.thresholds / "scale.yaml").write_text("speedup: 1000\n")
    run = measure(thresholds={"speedup": "0.01"})
    run = dataclasses.replace(run, environment=dataclasses.replace(run.environment, dirty=False))

    answers = accept_runs([run], people, ["scale"], AcceptOptions(dirty=True))

    assert answers[0].accepted == ()


def test_entries_that_hold_and_that_have_ended_are_said(measure, workers, people):
    notes = dict(said(decide(measure(), people)))

    assert "rsd of scale is relaxed to 20 % until 2999-01-01" in notes["relaxed_to"]
    assert "scale.yaml, line 4" in notes["relaxed_ended"]


def test_earned_values_judge_in_their_environment_alone(measure, workers, people):
    run = measure()
    kept(people, run, earned("speedup", 999.0, case_of(run)))
    assert effective_thresholds.of_run(run, people).limits.for_case("scale", case_of(run)).speedup == 999.0

    where = dataclasses.replace(run.environment, packages={**run.environment.packages, "triton": "99"})
    elsewhere = dataclasses.replace(run, environment=where)

    assert effective_thresholds.of_run(elsewhere, people).limits.for_case("scale", case_of(run)).speedup == 1.2
    assert "earned_apart" in dict(said(decide(elsewhere, people)))


def test_a_merge_request_is_judged_by_what_its_base_has_earned(forked, workers, measure, heard):
    run = measure(forked, duel="none")
    git(forked.root, "checkout", "-q", "main")
    kept(forked, run, earned("speedup", 999.0, case_of(run)))
    commit_all(forked.root)
    git(forked.root, "checkout", "-q", "topic")
    git(forked.root, "rebase", "-q", "main")
    (forked.thresholds / run.environment.device.key / "scale.json").unlink()
    commit_all(forked.root)

    run, judgements = experiment.check(forked, Request(seed=7), "perfci check", heard.append)

    assert f"thresholds/{run.environment.device.key}/scale.json" in run.plan.base.changed_rules
    assert "rules_changed" in dict(said(judgements))
    assert judgements.notes[0].kind == "rules_changed"
