"""A check on a Ray cluster of two nodes, on the fake device: nothing is lost, and nothing counts twice."""

import contextlib
import functools
import importlib.util
import json
import os
import select
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from perfci.cli.main import run
from perfci.core.locks import device_lock
from tests.extensions.ranks.talking import make_project, plant
from tests.extensions.ray.ray_cluster import LIMITS, WAIT_S, StandIn
from tests.flow.conftest import Answer, Project, find_boards
from tests.git_repositories import begin_topic
from tests.processes import NAME, runs_there

needs_ray = pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="no ray: pip install 'perfci[ray]'")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster that starts beside the test. Its nodes inherit the folder that kernels may write."""
    shared = tmp_path_factory.mktemp("shared")
    command, variables = (
        [sys.executable, "-m", "tests.extensions.ray.ray_cluster"],
        {**os.environ, "PERFCI_WRITABLE": str(shared)},
    )
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


def stated(answer):
    keys = ("verdict", "gate", "change", "kernel_us", "base_us", "p_adjusted")
    return {place: {key: row[key] for key in keys} for place, row in answer.rows.items()}


@needs_ray
@pytest.mark.slow
@pytest.mark.nightly
def test_if_a_node_is_killed_in_the_middle_the_verdicts_are_those_of_one_machine(
    topic: Project, cluster, monkeypatch: pytest.MonkeyPatch
):
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
    measured_cases = [(op.op, case.case) for op in record.ops for case in op.performance]
    assert len(measured_cases) == len({*measured_cases}) and {op for op, _ in measured_cases} == {"relu", "scale"}
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


@pytest.mark.nightly  # test_placing.py has nodes that are lost, and tests/flow/test_devices.py a sick board
def test_what_finds_a_board_taken_or_sick_begins_again_elsewhere(project, monkeypatch, tmp_path, connect):
    """Another master holds the board of node a for as long as this check lasts, and that of node b is sick."""
    project.plant_sick("FAKE-1")
    path = project.root / "pyproject.toml"
    settings = f'[tool.perfci]\nlock_folder = "{tmp_path}"\nlock_wait_s = 0.1\n[tool.perfci.fake]\nlocked = true\n'
    path.write_text(path.read_text().replace("[tool.perfci.fake]\n", settings))
    begin_topic(project.root)
    project.edit("relu", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 319.2")

    @contextlib.contextmanager
    def around(node):
        with pytest.MonkeyPatch.context() as there, device_lock("FAKE-0", tmp_path, lambda _: None):
            there.setenv("PERFCI_BOARD", str("ab".index(node)))
            # The folder of locks is what this process grants: a node knows of no base.
            there.setenv("CI", "true")
            yield

    connect(StandIn("ab", around))
    answer = project.check("relu", "--suite", "performance", "--on", "ray")

    run, notes = project.run_record(), json.loads(answer.out)["notes"]
    notes_of_nodes = [(note["kind"], note["facts"]["node"]) for note in notes if "node" in note["facts"]]
    assert notes_of_nodes == [("node_failed", "a (a)"), ("node_sick", "b (b)")]
    # Without another node a result stands, which says more than that a shard is missing.
    assert (find_boards(run), run.ops[0].failure) == ({"FAKE-1"}, None)
    assert run.plan.put_aside == ("FAKE-1",)
    assert run.missing == ()


@pytest.mark.slow
def test_a_shard_with_a_group_takes_its_boards_as_one_task_and_the_verdicts_are_those_of_the_check(
    tmp_path, connect, capsys
):
    project = make_project(tmp_path, devices=2)
    plant(project, "a hidden message")
    ray = StandIn(boards=3)
    connect(ray)
    code = run(["check", "--on", "ray", "--device", "fake", "--case", "m=64*", "--project", str(project)])

    assert (code, ray.takes) == (2, [{"num_cpus": 2}])
    said = " ".join(capsys.readouterr().out.split())
    assert "REGRESSED talk ranks=2,m=64,dtype=float32" in said
    assert "talk is for groups of 4 ranks as well, and none of that size was checked here" in said


def test_a_cluster_that_is_not_there_or_is_none_is_named(topic: Project, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    for address in ("ray://127.0.0.1:1", "k8s://somewhere"):
        answer = topic.check("--on", address)

        assert (answer.code, address in answer.err) == (1, True)


def test_a_cluster_goes_with_a_plain_check_alone(topic: Project):
    answer = topic.perfci("check", "--no-judge", "--on", "ray")

    assert (answer.code, "--no-judge" in answer.err, "--on" in answer.err) == (1, True, True)


def test_without_ray_its_extra_is_named(project: Project, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)

    assert run(["check", "--on", "ray", "--project", str(project.root)]) == 1
    assert "pip install 'perfci[ray]'" in capsys.readouterr().err
