"""Cases against the last release, on the fake device in a real git repository: creep that no single check sees."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

from perfci import store
from tests.closed_schemas import faults
from tests.flow.conftest import find_boards
from tests.git_repositories import commit_all, git
from tests.history_examples import accepted, figures
from tests.stored_examples import append_history

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
    for night, (commit, kernel_us) in enumerate(zip(commits, us, strict=True)):
        took_us = kernel_us * math.exp(rng.normal(0, 0.003))
        case = figures(timed, kernel_us=took_us, reference_us=150.0, shift=math.log(took_us / 150.0))
        day = f"2026-{1 + night // 28:02}-{1 + night % 28:02}T00:00:00Z"
        one = replace(accepted(0, case), run=f"run{night}", created=day, environment=replace(device, commit=commit))
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
