"""A nightly run's INCONCLUSIVE cases, duelled again on the fake device in a real git repository."""

import json
import re
import shutil

import pytest

from perfci import store
from perfci.store.launches import read_launches
from tests.closed_schemas import faults
from tests.flow.conftest import find_boards
from tests.git_repositories import commit_all, git

THROTTLED = '\nthrottle = ["thermal"]\n'


class Nightly:
    """A project on main with baselines that were accepted at its first commit, and committed after.

    kept: a folder in which the first test leaves it for the others.
    """

    def __init__(self, project, kept):
        self.project = project
        self.root = project.root
        if not kept.exists():
            self._begin()
            shutil.copytree(self.root, kept)
        shutil.rmtree(self.root)
        shutil.copytree(kept, self.root)
        self.first = git(self.root, "rev-parse", "HEAD~1")

    def _begin(self):
        shutil.rmtree(self.root / "kernels" / "row_sum")
        git(self.root, "init", "-q", "-b", "main")
        (self.root / ".gitignore").write_text("reports/\n__pycache__/\n")
        commit_all(self.root)
        self.project.check()
        assert self.project.accept().code == 0
        commit_all(self.root)

    def slow_down(self, op, us, before="320.0"):
        self.project.edit(op, "triton", f"US_PER_MEGABYTE = {before}", f"US_PER_MEGABYTE = {us}")
        return commit_all(self.root)

    def hot_check(self):
        """The whole project, on a device so hot that everything is inconclusive."""
        settings = self.root / "pyproject.toml"
        text = settings.read_text()
        settings.write_text(text + THROTTLED)
        answer = self.project.check()
        settings.write_text(text)
        return answer

    def again(self, *arguments):
        return self.project.perfci("check", "--retry", str(self.root / "reports"), "--format", "json", *arguments)

    @property
    def run(self):
        return store.read_run(self.root / "reports" / "again")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("nightly") / "project"


@pytest.fixture
def nightly(project, kept):
    return Nightly(project, kept)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_slow_down_that_noise_hid_is_found_between_two_commits(nightly):
    head = nightly.slow_down("scale", 344.0)
    path = nightly.root / "pyproject.toml"
    path.write_text(path.read_text() + "devices = 2\n")
    nightly.project.plant_sick("FAKE-0")
    hot = nightly.hot_check()
    assert hot.code == 3 and hot.verdicts("scale") >= {"INCONCLUSIVE"}, hot.out

    answer = nightly.again("--seed", "7")

    assert answer.code == 2, answer.err
    assert answer.verdicts("scale") == {"REGRESSED"}
    assert answer.verdicts("relu") <= {"UNCHANGED", "PASS"}
    row = next(row for row in answer.rows.values() if row["op"] == "scale")
    since = next(note for note in row["also"] if note["kind"] == "slower_since")
    case = row["case"]
    bisection = f"perfci bisect scale --case {case} --against {nightly.first[:12]} --bad {head[:12]}"
    assert since["facts"]["command"] == f"{bisection} --project {nightly.root}"
    run = nightly.run
    assert (run.plan.base.how, run.plan.base.commit) == ("again", nightly.first)
    assert faults(json.loads((nightly.root / "reports/again/run.json").read_text()), "run.schema.json") == []
    text = (nightly.root / "reports" / "again" / "report.md").read_text()
    assert "duelled again" in text
    # Judged again from the file it has the same verdicts, and the run that was read is still there.
    stored = nightly.project.perfci("compare", str(nightly.root / "reports" / "again"), "--format", "json")
    assert (stored.code, stored.verdicts("scale")) == (2, {"REGRESSED"})
    first = store.read_run(nightly.root / "reports")
    assert first.id == run.plan.again.run
    # Later looks are taken on another board, but for one that is sick.
    for told in (first, run):
        assert find_boards(told) == {"FAKE-1"} and told.plan.put_aside == ("FAKE-0",)
    assert "FAKE-0" in text


@pytest.mark.nightly
@pytest.mark.slow
def test_each_case_is_held_against_its_own_last_conclusive_commit(nightly):
    """Two inconclusive ops, one of which was accepted later than the other."""
    nightly.slow_down("scale", 344.0)
    second = nightly.slow_down("relu", 312.0)
    nightly.project.check()
    assert nightly.project.perfci("accept", str(nightly.root / "reports"), "--op", "relu").code == 0
    commit_all(nightly.root)
    head = nightly.slow_down("relu", 312.08, "312.0")
    nightly.hot_check()

    answer = nightly.again("--seed", "7")

    commits = {case.op: case.commit for case in nightly.run.plan.again.cases}
    assert commits == {"relu": second, "scale": nightly.first}
    assert (answer.code, answer.verdicts("scale"), "REGRESSED" in answer.verdicts("relu")) == (2, {"REGRESSED"}, False)
    assert git(nightly.root, "rev-parse", "HEAD") == head
    before = {op: store.read_baseline(nightly.root / f"baselines/fake-one/{op}.json") for op in ("relu", "scale")}
    assert nightly.project.perfci("accept", str(nightly.root / "reports" / "again")).code == 2  # the slower ones
    after = {op: store.read_baseline(nightly.root / f"baselines/fake-one/{op}.json") for op in ("relu", "scale")}
    assert after["scale"] == before["scale"]
    assert [case.case for case in after["relu"].cases] == [case.case for case in before["relu"].cases]
    assert {run.environment.commit for run in after["relu"].runs} == {head}
    rows = read_launches(nightly.root / "reports" / "again").rows
    assert {row.op for row in rows} == {"relu", "scale"}


def test_a_run_about_which_all_could_be_said_needs_nothing_again(nightly):
    nightly.project.check()

    answer = nightly.project.perfci("check", "--retry", str(nightly.root / "reports"))

    assert (answer.code, answer.err) == (0, "")
    assert re.search(r"Nothing of run \S+ is to be duelled again", answer.out)
    assert nightly.run.ops == ()
    accepted = nightly.project.perfci("accept", str(nightly.root / "reports" / "again"))
    assert accepted.code == 0
