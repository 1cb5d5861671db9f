"""Every case against the last release or its epoch since, with workers that are functions."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

from perfci import store
from perfci.core.errors import GitError
from perfci.core.model import Verdict
from perfci.core.wording import sentence
from perfci.extensions.history.creep import compare_with_release
from perfci.runs.plan import Request
from tests.closed_schemas import faults
from tests.flow.conftest import find_boards
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


STEPS = 14
"""Merges that each make scale slower by STEP."""

STEP = 0.004


class Released:
    """A project on main, of two ops, tagged as v1 at its first commit."""

    def __init__(self, project):
        self.project = project
        self.root = project.root
        shutil.rmtree(self.root / "kernels" / "row_sum")
        git(self.root, "init", "-q", "-b", "main")
        (self.root / ".gitignore").write_text("reports/\n__pycache__/\n")
        self.first = commit_all(self.root)
        git(self.root, "tag", "v1")
        self.us = 320.0

    def creep(self, steps=STEPS):
        """Merges that each make scale a little slower; the last one's commit."""
        for _ in range(steps):
            before, self.us = self.us, round(self.us * (1 + STEP), 3)
            self.project.edit("scale", "triton", f"US_PER_MEGABYTE = {before}", f"US_PER_MEGABYTE = {self.us}")
            head = commit_all(self.root)
        return head

    def duel(self, *arguments, code=None):
        answer = self.project.perfci(
            "check", "--against-release", "--device", "fake", "--format", "json", "--seed", "7", *arguments
        )
        assert code is None or answer.code == code, (answer.out, answer.err)
        return answer

    @property
    def run(self):
        return store.read_run(self.root / "reports" / "creep")


@pytest.fixture
def released(project):
    return Released(project)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_creep_of_steps_that_no_check_sees_is_found_against_the_release(released):
    head = released.creep()
    last = released.project.check("--against", "HEAD~1")
    assert "REGRESSED" not in last.verdicts("scale"), last.out
    path = released.root / "pyproject.toml"
    path.write_text(path.read_text() + "devices = 2\n")
    released.project.plant_sick("FAKE-0")

    answer = released.duel(code=2)

    assert (answer.verdicts("scale"), answer.verdicts("relu")) == ({"REGRESSED"}, {"UNCHANGED"})
    row = next(row for row in answer.rows.values() if row["op"] == "scale")
    crept = next(reason for reason in row["also"] if reason["kind"] == "release_crept")
    told = crept["facts"]
    ends = f"--against {released.first[:12]} --bad {head[:12]}"
    place = f"--device fake --project {released.root}"
    assert told["command"] == f"perfci bisect scale --case {row['case']} {ends} {place}"
    assert (told["release"], told["commits"], told["touching"]) == ("v1", STEPS, STEPS)
    assert 0.05 < told["change"] < 0.06 and "bit by bit" in crept["sentence"]
    run = released.run
    assert find_boards(run) == {"FAKE-1"} and run.plan.put_aside == ("FAKE-0",)
    assert (run.plan.base.how, run.plan.base.name, run.plan.again.release) == ("release", "v1", "v1")
    assert run.ops[0].performance == () and run.ops[0].op == "relu", "what the release has alike is not timed"
    assert faults(json.loads((released.root / "reports/creep/run.json").read_text()), "run.schema.json") == []
    stored = released.project.perfci("compare", str(released.root / "reports" / "creep"), "--format", "json")
    assert (stored.code, stored.verdicts("scale")) == (2, {"REGRESSED"})


def _accept_nights(released, commits, us):
    """A history of scale: nights of these commits, with the kernel's times."""
    device = released.run.environment
    timed = next(one.case for one in released.run.plan.again.cases if one.op == "scale")
    rng = np.random.default_rng(3)
    for night, (revision, kernel_us) in enumerate(zip(commits, us, strict=True)):
        took_us = kernel_us * math.exp(rng.normal(0, 0.003))
        case = figures(timed, kernel_us=took_us, reference_us=150.0, shift=math.log(took_us / 150.0))
        day = f"2026-{1 + night // 28:02}-{1 + night % 28:02}T00:00:00Z"
        one = replace(accepted(0, case), run=f"run{night}", created=day, environment=replace(device, commit=revision))
        append_history(released.root / "baselines", device.device.key, "scale", one)
    return timed


def test_a_step_of_a_history_is_the_machines_if_the_duel_with_the_commit_before_it_shows_none(released):
    released.project.edit("scale", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 320.1")
    second = commit_all(released.root)
    git(released.root, "tag", "-d", "v1")
    git(released.root, "tag", "v2")
    (released.root / "README.md").write_text("later\n")
    commit_all(released.root)
    released.duel()
    case = _accept_nights(released, [released.first] * 30 + [second] * 10, [100.0] * 30 + [103.0] * 10)
    before = released.project.perfci("history", "scale", "--drift", "--device-key", released.run.environment.device.key)

    released.duel(code=0)
    after = released.project.perfci("history", "scale", "--drift", "--device-key", released.run.environment.device.key)

    held = {(one.case, one.commit, one.stepped) for one in released.run.plan.again.cases if one.op == "scale"}
    assert (case, released.first, "2026-02-03") in held
    assert (before.code, after.code) == (3, 0)
    assert "the machine moved, and not the kernel" in " ".join(after.out.split())


def test_without_a_release_there_is_a_sentence_and_nothing_fails(released):
    git(released.root, "tag", "-d", "v1")

    answer = released.project.perfci("check", "--against-release", "--device", "fake")

    assert (answer.code, answer.err) == (0, "")
    assert "there is no release to compare with: tag one" in " ".join(answer.out.split())
    assert released.run.plan.ops == released.run.ops == () and released.run.plan.again.cases == ()
    told = json.loads(released.duel(code=0).out)
    assert (told["gate"], [note["kind"] for note in told["notes"]]) == ("ok", ["release_none"])
