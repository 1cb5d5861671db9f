"""Every case against the last release or its epoch since, with workers that are functions."""

from dataclasses import replace

import pytest

from perfci.core.errors import GitError
from perfci.core.model import Verdict
from perfci.core.wording import sentence
from perfci.extensions.history.creep import compare_with_release
from perfci.runs.plan import Request
from tests.git_repositories import commit, commit_all, git
from tests.history_examples import accepted, figures
from tests.runs.stand_ins import CASES, DEVICE
from tests.stored_examples import append_history

GONE = "a" * 40
"""A commit that was forced away."""


def changed(settings, op, text):
    path = f"kernels/{op}/{op}_triton.py"
    return commit(settings.root, (settings.root / path).read_text() + text, path)


@pytest.fixture
def main(settings):
    """The project on main: v1 is its first commit; then relu changed, then scale, then relu again."""
    git(settings.root.parent, "init", "-q", "-b", "main", str(settings.root))
    (settings.root / ".gitignore").write_text("reports/\nbaselines/\n")
    commit_all(settings.root)
    git(settings.root, "tag", "v1")
    for number, op in enumerate(("relu", "scale", "relu")):
        changed(settings, op, f"\n\nFASTER{number} = True\n")
    return settings


@pytest.fixture
def commits(main):
    """From the first to the fourth."""
    return git(main.root, "rev-list", "--reverse", "HEAD").split()


@pytest.fixture
def epoch(main):
    """Note that a loss of cases of an op was accepted at a commit."""

    def began(op, commit_id, *cases, dirty=False, number=1):
        line = accepted(number, *map(figures, cases or CASES), why="agreed", key=DEVICE.key, commit=commit_id)
        line = replace(line, environment=replace(line.environment, dirty=dirty))
        append_history(main.baselines, DEVICE.key, op, line)

    return began


@pytest.fixture
def creep(main, heard, workers):
    def duelled(named=None, **request):
        where = replace(main, reports=main.reports / "creep")
        asked = Request(**{"device": "fake", "seed": 7} | request)
        return compare_with_release(where, asked, "perfci check --against-release", heard.append, named)

    return duelled


def held(run):
    """Op and case -> commit, why its epoch began, whether its files are the same, why it is not duelled."""
    return {
        (case.op, case.case): (case.commit, case.since, case.same, case.failure and case.failure.kind)
        for case in run.plan.again.cases
    }


def said(run):
    return [reason.kind for reason in run.plan.again.said]


def test_every_case_is_held_against_the_release(creep, commits, workers):
    run, judgements = creep()

    assert held(run) == {(op, case): (commits[0], None, False, None) for op in ("relu", "scale") for case in CASES}
    assert {(case.op, case.commits, case.touching) for case in run.plan.again.cases} == {
        ("relu", 3, 2),
        ("scale", 3, 1),
    }
    assert (run.plan.base.name, run.plan.family, said(run)) == ("v1", 4, [])
    assert {case for op, process, case in workers.measured() if process == 0} == {CASES}
    assert judgements.notes[0].kind == "compared_release"
    assert "with the last release, v1" in sentence(judgements.notes[0])


def test_a_case_whose_loss_was_accepted_since_is_held_against_that_runs_commit(creep, commits, epoch, workers):
    epoch("relu", commits[3], CASES[0])
    epoch("scale", commits[1])
    run, judgements = creep()

    assert held(run) == {
        ("relu", CASES[0]): (commits[3], "agreed", True, None),
        ("relu", CASES[1]): (commits[0], None, False, None),
        ("scale", CASES[0]): (commits[1], "agreed", False, None),
        ("scale", CASES[1]): (commits[1], "agreed", False, None),
    }
    rows = {(row.op, row.case): row for row in judgements.rows if row.case}
    assert rows["relu", CASES[0]].verdict is Verdict.UNCHANGED, "its epoch began with the files of now"
    assert sorted(run.plan.base.name.split(", ")) == sorted(["v1", commits[3][:10], commits[1][:10]])


def test_an_epoch_whose_commit_cannot_be_had_leaves_its_cases_inconclusive(creep, commits, epoch, main):
    git(main.root, "checkout", "-q", "-b", "side", commits[1])
    side = commit(main.root, "side")
    git(main.root, "checkout", "-q", "main")
    epoch("relu", GONE, CASES[0])
    epoch("relu", commits[1], CASES[1], dirty=True, number=2)
    epoch("scale", side)

    run, judgements = creep()

    kinds = {case: row[3] for case, row in held(run).items()}
    assert kinds == {(op, case): "release_epoch_lost" for op in ("relu", "scale") for case in CASES}
    assert {row.verdict for row in judgements.rows} == {Verdict.INCONCLUSIVE}
    told = " ".join(sentence(row.reasons[0]) for row in judgements.rows)
    assert GONE[:10] in told and "perfci accept --slower --why TEXT" in told


@pytest.mark.parametrize("named", ["v9", "side"])
def test_a_revision_that_cannot_take_the_releases_place_is_refused(creep, main, commits, named):
    git(main.root, "checkout", "-q", "-b", "side", commits[1])
    commit(main.root, "side")
    git(main.root, "checkout", "-q", "main")

    with pytest.raises(GitError) as raised:
        creep(named)

    assert raised.value.reason.kind == "release_unknown"
    assert sentence(raised.value.reason)
