"""Verdicts of a stored run: by whose rules, and what they leave alone."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from perfci import pipeline, store
from perfci.model import Verdict
from perfci.plan import Request
from tests.git_repositories import commit_all, git


def files_of(settings):
    return {path: path.read_bytes() for path in settings.root.rglob("*") if path.is_file()}


def test_a_run_held_against_itself_changes_nothing_on_disk(measure, workers, settings):
    run = measure()
    before = files_of(settings)

    judgements = pipeline.decide(run, settings)

    assert {row.op for row in judgements.rows} == {"relu", "scale"}
    assert files_of(settings) == before


def test_check_measures_again_only_where_the_judge_asks(workers, settings, heard):
    run, judgements = pipeline.check(settings, Request(seed=7), "perfci check", heard.append)

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


def test_a_merge_request_is_judged_by_the_rules_of_its_base(measure, workers, strict):
    run = measure(strict)

    judgements = pipeline.decide(run, strict)

    assert run.plan.base.changed_rules == ("thresholds/default.yaml",)
    assert "speedup_too_few_blocks" in reasons(judgements)
    assert judgements.notes[0].kind == "rules_changed"


def test_a_revision_that_was_asked_for_leaves_the_rules_at_hand_in_force(measure, workers, strict):
    run = measure(strict, against="main")

    judgements = pipeline.decide(run, strict)

    assert run.plan.base.changed_rules == ("thresholds/default.yaml",)
    assert "speedup_too_few_blocks" not in reasons(judgements)
    assert judgements.notes[0].kind == "rules_differ"


def test_where_git_no_longer_has_the_bases_rules_the_ones_at_hand_are_used_and_it_is_said(
    measure, workers, strict, tmp_path
):
    run = measure(strict)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = dataclasses.replace(
        strict,
        root=elsewhere,
        **{name: elsewhere / name for name in ("kernels", "baselines", "thresholds", "reports")},
    )

    judgements = pipeline.decide(run, moved)

    assert "speedup_too_few_blocks" not in reasons(judgements)
    assert [note.kind for note in judgements.notes if note.kind.startswith("rules_")] == ["rules_gone"]


def test_rules_that_are_at_hand_are_not_got_from_git_again(measure, workers, strict, monkeypatch):
    run = measure(strict)
    expected = pipeline.decide(run, strict)
    monkeypatch.setattr(importlib.import_module("perfci.pipeline.decide"), "materialise", None)
    base = dataclasses.replace(strict, thresholds=strict.root.parent / "base" / "thresholds")
    base.thresholds.mkdir(parents=True)
    (base.thresholds / "default.yaml").write_text("speedup: 3\n")

    assert pipeline.decide(run, strict, judged_by=base) == expected


def test_an_unchanged_op_is_unchanged_without_having_been_run(measure, workers, forked):
    judgements = pipeline.decide(measure(forked), forked)

    assert {row.verdict for row in judgements.rows if row.op == "scale"} == {Verdict.UNCHANGED}
    assert store.read_run(forked.reports).ops[1].performance == ()
