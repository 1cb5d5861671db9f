"""Verdicts of a stored run: by which rules, and what they leave alone."""

import dataclasses
import importlib

import pytest

from perfci.core.errors import StoredFileError
from perfci.core.model import ErrorStats
from perfci.runs import experiment
from perfci.runs.decide import decide
from perfci.runs.plan import Request
from tests.git_repositories import commit_all, git


def test_check_measures_again_only_where_the_judge_asks(workers, settings, heard):
    run, judgements = experiment.check(settings, Request(seed=7), "perfci check", heard.append)

    assert judgements.needs == ()
    assert [process for _, process, _ in workers.measured()] == [0, 0]
    assert [op.op for op in run.ops] == ["relu", "scale"]


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def strict(forked):
    """On main a speedup of 3 is wanted, which the branch does without."""
    git(forked.root, "checkout", "-q", "main")
    forked.thresholds.mkdir()
    (forked.thresholds / "default.yaml").write_text("speedup: 3\n")
    commit_all(forked.root)
    git(forked.root, "checkout", "-q", "topic")
    git(forked.root, "rebase", "-q", "main")
    (forked.thresholds / "default.yaml").unlink()
    commit_all(forked.root)
    return forked


def reasons(judgements, op="relu"):
    return {reason.kind for row in judgements.rows if row.op == op for reason in row.reasons}


@pytest.mark.parametrize(
    ("limit", "kind"),
    [
        ("compile_s: 0.5", "compile_suspected"),
        ("bandwidth_share: 50 %", None),
        ("max_abs: 0", "checked_errors_in_places"),
    ],
)
def test_every_figure_of_a_merge_request_has_the_limit_of_its_base(measure, workers, forked, limit, kind):
    git(forked.root, "checkout", "-q", "main")
    forked.thresholds.mkdir()
    (forked.thresholds / "default.yaml").write_text(f"{limit}\n")
    commit_all(forked.root)
    git(forked.root, "checkout", "-q", "topic")
    git(forked.root, "rebase", "-q", "main")
    (forked.thresholds / "default.yaml").write_text("rsd: 6 %\n")
    commit_all(forked.root)
    run = measure(forked)
    errors = ErrorStats(1, 0.5)
    ops = tuple(
        dataclasses.replace(op, accuracy=tuple(dataclasses.replace(check, errors=errors) for check in op.accuracy))
        for op in run.ops
    )

    kinds = reasons(decide(dataclasses.replace(run, ops=ops), forked))

    # Without bytes_moved a share for all ops is not meant for this one.
    assert {kind for kind in kinds if kind.startswith(("compile_", "bandwidth_", "checked_"))} == {kind} - {None}


def test_a_slow_first_call_is_looked_at_in_two_fresh_processes(settings, heard, workers):
    settings.thresholds.mkdir()
    (settings.thresholds / "relu.yaml").write_text("compile_s: 0.5\n")

    run, judgements = experiment.check(settings, Request(("relu",), seed=7), "perfci check", heard.append)

    assert {case.compile_again_s for op in run.ops for case in op.performance} == {(2.0, 3.0)}
    assert "compile_too_slow" in reasons(judgements)


def test_where_git_no_longer_has_the_bases_rules_the_ones_at_hand_are_used_and_it_is_said(
    measure, workers, strict, tmp_path
):
    run = measure(strict)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = dataclasses.replace(
        strict, root=elsewhere, **{name: elsewhere / name for name in ("kernels", "baselines", "thresholds", "reports")}
    )

    judgements = decide(run, moved)

    assert "speedup_too_few_blocks" not in reasons(judgements)
    assert [note.kind for note in judgements.notes if note.kind.startswith("rules_")] == ["rules_gone"]


# --- expected entries of the change -----------------------------------------------------------------------------------

ENTRY = '  - {{case: "{}", up_to: 6 %, why: "agreed", until: 2027-01-31}}\n'


@pytest.fixture
def asking(strict):
    """The branch asks for an entry, keeps one that main has, takes another out, and loosens its rules besides."""
    git(strict.root, "checkout", "-q", "main")
    (strict.thresholds / "relu.yaml").write_text("expected:\n" + ENTRY.format("rows=1") + ENTRY.format("rows=2"))
    commit_all(strict.root)
    git(strict.root, "checkout", "-q", "topic")
    git(strict.root, "rebase", "-q", "main")
    (strict.thresholds / "relu.yaml").write_text("expected:\n" + ENTRY.format("*") + ENTRY.format("rows=1"))
    commit_all(strict.root)
    return strict


def seen(monkeypatch):
    """What the judge was given, run by run."""
    given = []
    module = importlib.import_module("perfci.runs.decide")
    real = module.judge
    monkeypatch.setattr(module, "judge", lambda *arguments: given.append(arguments) or real(*arguments))
    return given


def test_the_entries_of_a_merge_request_are_recorded_and_those_that_it_adds_are_told_first(measure, workers, asking):
    run = measure(asking)

    judgements = decide(run, asking)

    assert [(entry.case, entry.line, entry.added) for entry in run.plan.base.expected] == [
        ("*", 2, True),
        ("rows=1", 3, False),
    ]
    assert [note.kind for note in judgements.notes][:2] == ["rules_changed", "expected_added"]
    assert [note.kind for note in judgements.notes].count("expected_added") == 1
    # The loosened speedup is not the change's to decide.
    assert "speedup_too_few_blocks" in reasons(judgements)


def test_a_merge_request_is_judged_by_its_bases_entries_and_those_that_it_adds(measure, workers, asking, monkeypatch):
    run, given = measure(asking), seen(monkeypatch)

    decide(run, asking)

    limits = given[0][2].ops["relu"]
    assert [(entry.case, entry.file, entry.line) for entry in limits.expected] == [
        ("*", "thresholds/relu.yaml", 2),
        ("rows=1", "thresholds/relu.yaml", 3),
    ]
    assert [entry.case for entry in limits.dropped] == ["rows=2"]


def test_an_entry_can_be_tried_on_a_stored_run_before_it_is_committed(measure, workers, asking, monkeypatch):
    run, given = measure(asking), seen(monkeypatch)

    (asking.thresholds / "relu.yaml").write_text("expected:\n" + ENTRY.format("rows=9"))
    judgements = decide(run, asking)

    assert [entry.case for entry in given[0][2].ops["relu"].expected] == ["rows=9"]
    assert "rows=9" in next(note for note in judgements.notes if note.kind == "expected_added").facts["case"]


def test_a_broken_entry_of_the_change_stops_it_before_anything_is_measured(measure, workers, asking):
    (asking.thresholds / "relu.yaml").write_text("expected:\n  - {case: '*'}\n")

    with pytest.raises(StoredFileError) as caught:
        measure(asking)

    assert caught.value.reason.kind == "entry_lacks"
    assert workers.measured() == []
