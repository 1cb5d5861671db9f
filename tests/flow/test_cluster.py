"""A check on a Ray cluster of two nodes, on the fake device: nothing is lost, and nothing counts twice."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from perfci import store
from perfci.cli.main import run
from perfci.core.locks import device_lock
from perfci.store.logbook import read_logbook
from tests.flow.conftest import Answer, Project, find_boards
from tests.flow.test_tuning import BEST
from tests.flow.test_tuning import Project as Tuned
from tests.git_repositories import alone, begin_topic, commit_all, git
from tests.processes import NAME, runs_there
from tests.ray_cluster import LIMITS, WAIT_S, LostError, StandIn

needs_ray = pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="no ray: pip install 'perfci[ray]'")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster that starts beside the test. Its nodes inherit the folder that kernels may write."""
    shared = tmp_path_factory.mktemp("shared")
    command, variables = [sys.executable, "-m", "tests.ray_cluster"], {**os.environ, "PERFCI_WRITABLE": str(shared)}
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(command, env=variables, **piped) as process, pytest.MonkeyPatch.context() as patched:

        @functools.cache
        def find_url():
            address, port = json.loads(next(line for line in process.stdout if line.startswith("[")))
            for name, value in ({"RAY_ADDRESS": address} | LIMITS).items():
                patched.setenv(name, str(value))
            return f"ray://127.0.0.1:{port}"

        yield SimpleNamespace(shared=shared, process=process, find_url=find_url)
        process.stdin.close()


@pytest.fixture
def topic(project: Project, monkeypatch, tmp_path):
    alone(monkeypatch, tmp_path)
    begin_topic(project.root)
    project.edit("scale", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 328.0")
    project.edit("relu", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 319.2")
    return project


def stated(answer):
    keys = ("verdict", "gate", "change", "kernel_us", "base_us", "p_adjusted")
    return {place: {key: row[key] for key in keys} for place, row in answer.rows.items()}


@needs_ray
@pytest.mark.slow
@pytest.mark.nightly
def test_if_a_node_is_killed_in_the_middle_the_verdicts_are_those_of_one_machine(topic: Project, cluster):
    pipe = cluster.shared / "pipe"
    waiting = (
        f"import os\n    if os.environ.get('WHICH') == 'node' and os.path.exists({str(pipe)!r}):\n"
        f"        open({str(pipe)!r}, 'w').write({NAME})\n        fake.hang()\n    fake.work("
    )
    for op in ("scale", "relu"):  # whichever of them the node gets
        topic.edit(op, "triton", "fake.work(", waiting)  # as all that was edited, it is not committed
    topic.check()
    # As it was stored, with six significant digits.
    one = topic.perfci("compare", str(topic.root / "reports"), "--format", "json")
    assert one.code == 2 and one.verdicts("scale") == {"REGRESSED", "PASS"}
    path = topic.root / "pyproject.toml"
    settings = f'[tool.perfci]\ncluster = "{cluster.find_url()}"\nenvironment = ["WHICH"]\n'
    path.write_text(settings + path.read_text())
    os.mkfifo(pipe)

    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reader:
        process = topic.start("check", "--device", "fake", "--format", "json", "--seed", "7")
        while not select.select([reader], [], [], 1.0)[0]:
            assert process.poll() is None, process.communicate()
        hung = reader.read()
    cluster.process.stdin.write("kill the node\n")
    out, err = process.communicate(timeout=WAIT_S)
    several = Answer(process.returncode, out, err)

    assert (several.code, stated(several)) == (one.code, stated(one)), several.err
    assert "it was lost" in out  # the node
    record = topic.run_record()
    assert ([op.op for op in record.ops], record.missing) == (["relu", "row_sum", "scale"], ())
    assert not any(op.failure for op in record.ops)
    found = [(op.op, case.case) for op in record.ops for case in op.performance]
    assert len(found) == len({*found}) and {op for op, _ in found} == {"relu", "scale"}
    ended = time.monotonic() + WAIT_S
    while runs_there(hung):  # it is asked to end when its node dies
        assert time.monotonic() < ended
        time.sleep(0.1)


@needs_ray
@pytest.mark.slow
@pytest.mark.nightly
def test_a_cluster_without_a_board_is_refused(topic: Project, cluster):
    cluster.find_url()
    process = topic.start("check", "--device", "npu", "--on", "ray")
    _, err = process.communicate(timeout=WAIT_S)

    assert (process.returncode, "NPU" in err) == (1, True), err


@pytest.mark.slow
def test_what_finds_a_board_taken_or_sick_begins_again_elsewhere(project, monkeypatch, tmp_path, connect):
    """Another master holds the board of node a for as long as this check lasts, and that of node b is sick."""
    alone(monkeypatch, tmp_path)
    project.plant_sick("FAKE-1")
    begin_topic(project.root)
    project.edit("relu", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 319.2")
    path = project.root / "pyproject.toml"
    settings = f'[tool.perfci]\nlock_folder = "{tmp_path}"\nlock_wait_s = 0.1\n[tool.perfci.fake]\nlocked = true\n'
    path.write_text(path.read_text().replace("[tool.perfci.fake]\n", settings))

    @contextlib.contextmanager
    def around(node):
        monkeypatch.setenv("PERFCI_BOARD", str("ab".index(node)))
        with device_lock("FAKE-0", tmp_path, lambda _: None):
            yield

    connect(StandIn("ab", around))
    answer = project.check("relu", "--suite", "performance", "--on", "ray")

    run, notes = project.run_record(), json.loads(answer.out)["notes"]
    found = [(each["kind"], each["facts"]["node"]) for each in notes if "node" in each["facts"]]
    assert found == [("node_failed", "a (a)"), ("node_sick", "b (b)")]
    # Without another node a result stands, which says more than that a shard is missing.
    assert (find_boards(run), run.ops[0].failure) == ({"FAKE-1"}, None)
    assert run.plan.put_aside == ("FAKE-1",)
    assert run.missing == ()


@pytest.fixture
def connect(monkeypatch):
    """A function that makes perfci take a stand-in for the cluster that it connects to."""
    return lambda ray: monkeypatch.setattr("perfci.runs.cluster._connect", lambda _: contextlib.nullcontext(ray))


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
    found = {each["op"]: each for each in json.loads(out)}
    assert list(found) == ["blur", "smear"] and not project.tuned.exists()
    assert found["blur"]["file"] == str(project.tuned)
    assert [each["config"] for each in found["smear"]["entries"]] == [*BEST.values()]
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
    assert [each["config"] for each in json.loads(project.tuned.read_text())["configs"]] == [*BEST.values()]


@pytest.mark.slow
def test_a_round_is_measured_on_a_cluster_and_kept_here(topic: Project, connect):
    connect(StandIn("ab", lose_first()))
    commit_all(topic.root)  # so that HEAD is not what the kernel is compared with
    topic.edit("scale", "triton", "US_PER_MEGABYTE = 328.0", "US_PER_MEGABYTE = 300.0")
    words = ("try", "scale", "--why", "fewer bytes", "--expect", "+5%", "--against", "main", "--device", "fake")

    answer = topic.perfci(*words, "--seed", "7", "--on", "ray")

    assert answer.code == 0, answer.err
    (found,) = read_logbook(topic.root / "kernels" / "scale").rounds
    assert (found.verdict, found.number, found.expected, found.gain.value > 0.05) == ("kept", 1, 0.05, True)
    assert found.against == git(topic.root, "rev-parse", "main") != git(topic.root, "rev-parse", "HEAD")
    assert "US_PER_MEGABYTE = 300.0" in git(topic.root, "show", f"{found.commit}:kernels/scale/scale_triton.py")
    assert store.read_run(topic.root / "reports" / "rounds").plan.base.commit == found.against


def test_a_cluster_that_is_not_there_or_is_none_is_named(topic: Project, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    for address in ("ray://127.0.0.1:1", "k8s://somewhere"):
        answer = topic.check("--on", address)

        assert (answer.code, address in answer.err) == (1, True)


def test_a_cluster_goes_with_a_plain_check_alone(topic: Project):
    answer = topic.perfci("check", "--static", "--on", "ray")

    assert (answer.code, "--static" in answer.err, "--on" in answer.err) == (1, True, True)


def test_without_ray_its_extra_is_named(project: Project, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)

    assert run(["check", "--on", "ray", "--project", str(project.root)]) == 1
    assert "pip install 'perfci[ray]'" in capsys.readouterr().err
