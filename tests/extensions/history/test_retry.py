"""An earlier run's open cases, each duelled against its commit, with workers that are functions."""

import importlib
from dataclasses import replace

import pytest

from perfci.core.errors import UsageError
from perfci.core.model.baseline import Baseline, BaselineBlock, BaselineCase, BaselineRun
from perfci.core.model.basics import Verdict
from perfci.core.model.place import Environment
from perfci.core.model.run import Base
from perfci.core.wording import sentence
from perfci.extensions.history import retry as retries
from perfci.runs.decide import decide
from perfci.runs.plan import Request
from tests.git_repositories import commit, commit_all, git
from tests.runs.stand_ins import CASES, DEVICE
from tests.stored_examples import write_baseline

LONG_AGO = "a" * 40
"""A commit that was forced away."""


@pytest.fixture
def main(settings):
    """The project on main: relu changed in the second commit, scale in the third."""
    git(settings.root.parent, "init", "-q", "-b", "main", str(settings.root))
    (settings.root / ".gitignore").write_text("reports/\nbaselines/\n")
    commit_all(settings.root)
    for op in ("relu", "scale"):
        text = (settings.kernels / op / f"{op}_triton.py").read_text()
        commit(settings.root, text + "\n\nFASTER = True\n", f"kernels/{op}/{op}_triton.py")
    return settings


@pytest.fixture
def commits(main):
    """From the first to the third."""
    return git(main.root, "rev-list", "--reverse", "HEAD").split()


@pytest.fixture
def stored(main):
    """Store baselines of two blocks a case, too few for any screen to speak: op -> case -> commits of its runs."""

    def write(dirty=(), **ops):
        for op, cases in ops.items():
            unique = dict.fromkeys(commit for mine in cases.values() for commit in mine)
            environment = Environment(DEVICE, "virtual", "3.11", {}, "host", "Linux")
            runs = tuple(
                BaselineRun(f"run-{index}", f"2026-01-0{index + 1}T00:00:00Z", replace(environment, commit=commit))
                for index, commit in enumerate(unique)
            )
            runs = tuple(
                replace(run, environment=replace(run.environment, dirty=run.environment.commit in dirty))
                for run in runs
            )
            ids = dict(zip(unique, runs, strict=True))
            stored_cases = tuple(
                BaselineCase(case, tuple(BaselineBlock(ids[commit].id, 5.0, 5.0, 0.0) for commit in mine))
                for case, mine in cases.items()
            )
            write_baseline(Baseline(op, DEVICE.key, "virtual", runs, stored_cases), main.baselines)

    return write


@pytest.fixture
def earlier(measure, main, workers):
    """A run of HEAD that is inconclusive for lack of blocks."""

    def run():
        measured = measure(main, device="fake")
        workers.tasks.clear()
        return measured

    return run


@pytest.fixture
def again(main, heard, workers):
    def duelled(run, **request):
        where = replace(main, reports=main.reports / "again")
        return retries.retry(where, run, Request(budget_s=0.0, **request), "perfci check --retry reports", heard.append)

    return duelled


def both(*commits):
    return dict.fromkeys(CASES, commits)


def why(run):
    """Case -> kind of why it is not duelled."""
    return {(case.op, case.case): case.failure and case.failure.kind for case in run.plan.again.cases}


def test_cases_are_grouped_by_their_own_last_conclusive_commits(again, earlier, stored, commits, workers):
    first, second, head = commits
    stored(relu={CASES[0]: (first,), CASES[1]: (second,)}, scale=both(first, second))
    run, judgements = again(earlier())

    held = {(case.op, case.case): case.commit for case in run.plan.again.cases}
    # relu is the same at its second commit and at HEAD, and is duelled anyway: it was inconclusive.
    assert held == {
        ("relu", CASES[0]): first,
        ("relu", CASES[1]): second,
        ("scale", CASES[0]): second,
        ("scale", CASES[1]): second,
    }
    assert {(case.op, case.case) for case in run.plan.again.cases if case.same} == {("relu", CASES[1])}
    first_looks = [(op, cases) for op, process, cases in workers.measured() if process == 0]
    assert sorted(first_looks) == [("relu", CASES[:1]), ("relu", CASES[1:]), ("scale", CASES)]
    assert run.plan.family == 4 and run.environment.commit == head
    assert [len(op.performance) for op in run.ops] == [2, 2]
    assert {(row.op, row.case) for row in judgements.rows if row.case} == set(held)


def test_a_case_whose_commit_cannot_be_had_stays_inconclusive_with_its_reason(again, earlier, stored, commits):
    stored(relu={CASES[0]: (LONG_AGO,), CASES[1]: (commits[0],)})
    run, judgements = again(earlier())

    assert why(run)["relu", CASES[0]] == "again_not_duelled" and why(run)["relu", CASES[1]] is None
    row = next(row for row in judgements.rows if row.op == "relu" and row.case == CASES[0])
    assert row.verdict is Verdict.INCONCLUSIVE
    assert LONG_AGO[:10] in sentence(row.reasons[0]) and "git fetch" in sentence(row.reasons[0])


def test_a_case_without_a_baseline_is_duelled_against_the_runs_own_base(again, earlier, stored, commits):
    stored(relu=both(commits[0]))
    run = earlier()
    assert run.plan.base.commit == commits[0]

    measured, _ = again(run)

    assert {(case.op, case.commit) for case in measured.plan.again.cases} == {
        ("relu", commits[0]),
        ("scale", commits[0]),
    }


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.UNCHANGED, Verdict.DRIFTED, Verdict.REGRESSED])
def test_what_a_younger_base_answered_is_asked_again_where_files_changed(
    again, earlier, stored, commits, monkeypatch, verdict
):
    """Cases that are the same at their commit are skipped, and failures have been found already."""
    first, second, head = commits
    stored(relu=both(second), scale=both(first))
    run = earlier()
    run = replace(run, plan=replace(run.plan, base=Base(head, "baseline", head[:10])))

    def decided(given, *told, **more):
        test = decide(given, *told, **more)
        rows = tuple(replace(row, verdict=verdict) for row in test.rows)
        return replace(test, rows=rows) if given.id == run.id else test

    monkeypatch.setattr(importlib.import_module("perfci.extensions.history.retry"), "decide", decided)
    test, _ = again(run)

    asked = {(case.op, case.commit) for case in test.plan.again.cases}
    assert asked == (set() if verdict is Verdict.REGRESSED else {("scale", first)})


def test_a_run_of_another_commit_is_refused_with_both_named(again, earlier, main):
    run = earlier()
    head = commit(main.root, "later")

    with pytest.raises(UsageError) as raised:
        again(run)

    assert raised.value.reason.kind == "again_commit"
    assert raised.value.reason.facts["found"] == head
    assert raised.value.reason.facts["planned"] == run.environment.commit


def test_what_the_command_line_asked_of_the_run_holds_for_its_answer(again, main, measure, workers, stored, commits):
    stored(relu=both(commits[0]), scale=both(commits[0]))
    earlier = measure(main, device="fake", thresholds={"tau": "0.4 %", "alpha": "2 %"})
    run, judgements = again(earlier)

    assert run.plan.thresholds == {"tau": "0.4 %", "alpha": "2 %"}
    (note,) = (note for note in judgements.notes if note.kind == "thresholds_carried")
    assert sentence(note) == (
        f"This run is judged by --threshold on the command line of run {earlier.id}, which it answers: "
        "tau 0.4 %; alpha 2 %."
    )
    assert all(row.comparison.duel.tau == pytest.approx(0.004, rel=0.01) for row in judgements.rows if row.comparison)


def test_in_a_pipeline_what_loosened_the_run_is_not_carried_over(again, measure, main, stored, commits, monkeypatch):
    stored(relu=both(commits[0]))
    earlier = measure(main, device="fake", thresholds={"tau": "9 %"})
    again(earlier)
    monkeypatch.setenv("CI", "true")

    with pytest.raises(UsageError) as caught:
        again(earlier)

    assert caught.value.reason.kind == "threshold_looser"
    assert "tau" in str(caught.value)
