"""Extensions with commands that go to a cluster: a search, and a round."""

import contextlib
import json
from collections import Counter

import pytest

from perfci import store
from perfci.extensions.agents.logbook import read_logbook
from tests.extensions.lab.tune.test_tuning import BEST
from tests.extensions.lab.tune.test_tuning import Project as Tuned
from tests.extensions.ray.ray_cluster import LostError, StandIn
from tests.flow.conftest import Project
from tests.git_repositories import alone, commit_all, git


def lose_first():
    """Node a answers what it is asked first, which perfci it has, and is lost with the first work that it gets."""
    asked = Counter()

    def around(node):
        asked[node] += 1
        if (node, asked[node]) == ("a", 2):
            raise LostError
        return contextlib.nullcontext()

    return around


@pytest.mark.slow
def test_a_cluster_tunes_an_op_on_each_board_and_elsewhere_if_one_is_lost(monkeypatch, tmp_path, capsys, connect):
    alone(monkeypatch, tmp_path)
    project = Tuned(tmp_path / "project", capsys)
    project.copy_op("smear")
    git(project.root, "init", "-q")
    commit_all(project.root)
    connect(StandIn("ab", lose_first()))

    code, out, err = project.tune("smear", "--on", "ray", "--format", "json")

    assert (code, "Node a (a) failed (it was lost)" in err) == (0, True), err
    loads = {load["op"]: load for load in json.loads(out)}
    assert list(loads) == ["blur", "smear"] and not project.tuned.exists()
    assert loads["blur"]["file"] == str(project.tuned)
    assert [each["config"] for each in loads["smear"]["entries"]] == [*BEST.values()]
    (project.root / "pyproject.toml").write_text('[tool.perfci]\ncluster = "ray"\n')
    space = project.folder.with_name("smear") / "tuned" / "space.json"

    @contextlib.contextmanager
    def around(node):
        """Meanwhile somebody edits the space of smear."""
        space.write_text(space.read_text() + " ")
        yield

    connect(StandIn("ab", around))
    code, out, err = project.tune("smear", "--write")  # goes on with what the cluster has found
    assert (code, "not measured again" in out) == (1, True), err
    assert "smear/tuned was edited" in err and not (space.parent / "fake-one.json").exists()
    assert [load["config"] for load in json.loads(project.tuned.read_text())["configs"]] == [*BEST.values()]


@pytest.mark.slow
def test_a_round_is_measured_on_a_cluster_and_kept_here(topic: Project, connect):
    connect(StandIn("ab", lose_first()))
    commit_all(topic.root)  # so that HEAD is not what the kernel is compared with
    topic.edit("scale", "triton", "US_PER_MEGABYTE = 328.0", "US_PER_MEGABYTE = 300.0")
    words = ("try", "scale", "--why", "fewer bytes", "--expect", "+5%", "--against", "main", "--device", "fake")

    answer = topic.perfci(*words, "--seed", "7", "--on", "ray")

    assert answer.code == 0, answer.err
    (round_,) = read_logbook(topic.root / "kernels" / "scale").rounds
    assert (round_.verdict, round_.number, round_.expected, round_.gain.value > 0.05) == ("kept", 1, 0.05, True)
    assert round_.against == git(topic.root, "rev-parse", "main") != git(topic.root, "rev-parse", "HEAD")
    assert "US_PER_MEGABYTE = 300.0" in git(topic.root, "show", f"{round_.commit}:kernels/scale/scale_triton.py")
    assert store.read_run(topic.root / "reports" / "rounds").plan.base.commit == round_.against
