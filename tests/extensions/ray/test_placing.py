"""How shards are placed on the nodes of a cluster, and which nodes are refused, without a cluster."""

import functools
import io
import random
import sys
import tarfile
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from perfci import __version__, store
from perfci.core.environment import installed_versions
from perfci.core.errors import UsageError
from perfci.core.model import OpRun, Reason, Run
from perfci.core.wording import sentence
from perfci.extensions.ray.check import check_on_cluster, measure_shards
from perfci.extensions.ray.cluster import TRIES, Cluster, Node, refuse_unequal, share_out
from perfci.extensions.shards.joined import run_shards
from perfci.extensions.shards.part import ShardPart, check_shard
from perfci.extensions.shards.plans import plan_shards, read_plan
from perfci.runs.plan import Request
from tests.example_runs import environment
from tests.example_runs import run as make_run
from tests.extensions.ray.ray_cluster import StandIn
from tests.git_repositories import commit_all, git

A, B, C = (Node(name, boards) for name, boards in (("a", 2), ("b", 1), ("c", 1)))
NODES = {node.name: node for node in (A, B, C)}
FITS = {"perfci": __version__, "triton": "3.8.0", "torch-npu": None, "time": 1000.0}
FITS["torch"] = installed_versions(["torch"]).get("torch")


class Boards:
    """Nodes with shards that end in any order. Some nodes fail, or some shards on every node."""

    def __init__(self, nodes=NODES, bad=(), deadly=(), seed=0):
        self.nodes, self.bad, self.deadly, self.random = nodes, bad, deadly, random.Random(seed)
        self.begun, self.under_way, self.kept, self.most = [], Counter(), [], Counter()

    def begin(self, node, shard):
        self.begun.append((node, shard))
        self.under_way[node] += self.takes[shard]
        self.most[node] = max(self.most[node], self.under_way[node])
        return len(self.begun) - 1

    def wait(self, handles):
        return self.random.sample(handles, self.random.randint(0, len(handles)))

    def keep(self, handle, node, shard):
        assert self.begun[handle] == (node, shard)
        self.under_way[node] -= self.takes[shard]
        if node in self.bad or shard in self.deadly:
            return Reason("node_failed", {"node": node, "why": "it was lost"})
        self.kept.append(shard)
        return None

    def share(self, count, largest=1, **more):
        """Shards take from one board to as many as the largest, by turns."""
        self.takes = {shard: 1 + shard % largest for shard in range(1, count + 1)}
        return share_out(self.nodes, self.takes, self.begin, self.wait, self.keep, **more)


@pytest.mark.parametrize("seed", range(20))
def test_every_shard_is_measured_once_by_a_board_of_its_own_whatever_ends_first(seed):
    boards = Boards(seed=seed)

    assert boards.share(12) == []
    assert sorted(boards.kept) == [*range(1, 13)] and len(boards.begun) == 12
    assert all(boards.most[name] <= node.boards for name, node in NODES.items())
    assert [shard for _, shard in boards.begun] == sorted(shard for _, shard in boards.begun)  # the longest first


@pytest.mark.parametrize("seed", range(20))
def test_a_shard_with_groups_takes_all_of_its_boards_at_once_and_before_those_of_single_boards(seed):
    boards = Boards(seed=seed)

    assert boards.share(8, largest=2) == []
    assert sorted(boards.kept) == [*range(1, 9)]
    assert {node for node, shard in boards.begun if boards.takes[shard] == 2} == {"a"}  # which alone has two
    assert boards.begun[0] == ("a", 1) and boards.most["a"] == A.boards


@pytest.mark.parametrize("seed", range(20))
def test_what_a_node_was_lost_with_begins_again_elsewhere_and_that_node_gets_no_more(seed):
    boards = Boards(bad={"a"}, seed=seed)

    assert [note.facts["node"] for note in boards.share(12)] == ["a"]
    assert sorted(boards.kept) == [*range(1, 13)]
    assert 1 <= sum(node == "a" for node, _ in boards.begun) <= A.boards


def test_a_shard_that_kills_nodes_is_given_up_before_it_has_killed_all():
    many = {name: Node(name, 1) for name in "abcdef"}
    boards = Boards(many, deadly={1})

    assert len(boards.share(12)) == TRIES
    assert sorted(boards.kept) == [*range(2, 13)]


def test_without_a_node_left_or_time_the_rest_stays_undone():
    lost, late = Boards(bad=NODES), Boards()

    assert len(lost.share(12)) == len(NODES) and lost.kept == []
    assert late.share(12, until=0.0) == [] and late.kept == []


def refused(host, sent=1000.0, received=1000.0):
    with pytest.raises(UsageError) as error:
        refuse_unequal([("a", FITS), ("b", FITS | host)], sent, received)
    return sentence(error.value.reason)


@pytest.mark.parametrize("package", ["perfci", "torch", "triton", "torch-npu"])
def test_a_node_with_another_toolchain_is_named(package):
    assert f"b has {package} 0.1" in refused({package: "0.1"})


@pytest.mark.parametrize("package", ["perfci", "triton"])
def test_a_node_without_a_package_is_named(package):
    assert f"b has {package} none" in refused({package: None})


def test_a_node_with_another_torch_than_this_machine_is_named_if_all_nodes_have_it(monkeypatch):
    nodes = [("a", {**FITS, "torch": "2.9.0+cu130"})]
    for here in ({"torch": "2.9.0+cpu"}, {}):  # a build for another device, and a machine that only calls
        monkeypatch.setattr("perfci.extensions.ray.cluster.installed_versions", lambda _, here=here: here)
        refuse_unequal(nodes, 1000.0, 1000.0)

    monkeypatch.setattr("perfci.extensions.ray.cluster.installed_versions", lambda _: {"torch": "2.8.0+cpu"})
    with pytest.raises(UsageError) as error:
        refuse_unequal(nodes, 1000.0, 1000.0)
    assert "a has torch 2.9.0+cu130, not 2.8.0+cpu" in sentence(error.value.reason)


def test_a_clock_that_is_wrong_by_hours_is_named_and_a_slow_answer_is_not():
    assert "b differs from the one here by 7200 s" in refused({"time": 8200.0})
    assert "b differs from the one here by -7200 s" in refused({"time": -6200.0})
    refuse_unequal([("slow", FITS), ("fast", FITS | {"time": 1900.0})], 1000.0, 2000.0)


def board(name, key):
    """A run that was measured on a board."""
    run = make_run([OpRun("relu")])
    device = replace(environment().device, name=name, key=key)
    return replace(run, environment=replace(run.environment, device=device))


def find_fault(run, node, first):
    return Cluster(None, "ray", "cuda", NODES).find_fault(run, node, first)


def test_a_node_that_lies_about_its_board_is_found_by_what_its_run_names():
    one, other = board("NVIDIA H200", "nvidia-h200"), board("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb")
    honest, liar, silent = Node("a", 1, "H200"), Node("b", 1, "H200"), Node("c", 1)

    assert find_fault(one, honest, None) is find_fault(one, silent, one) is None
    assert find_fault(other, Node("d", 1, "A100-80G"), None) is None
    for fault, name in ((find_fault(other, liar, None), "b"), (find_fault(other, silent, one), "c")):
        assert f"Node {name} " in sentence(fault) and "A100" in sentence(fault).upper()
    gone = replace(one, ops=(OpRun("relu", failure=Reason("device_gone", {"device": "cuda", "why": "lost"})),))
    assert "Node c failed (The device cuda can no longer be opened" in sentence(find_fault(gone, silent, one))
    empty: Run = replace(other, ops=())
    assert find_fault(empty, liar, one) is None  # it measured nothing


@pytest.mark.parametrize(("aborted", "kind"), [(TRIES - 1, "cluster_without_boards"), (TRIES, "cluster_unreachable")])
def test_a_server_of_rays_that_dies_before_it_serves_is_asked_for_again(monkeypatch, settings, aborted, kind):
    answers = [ConnectionAbortedError("Initialization failure from server")] * aborted + [None]

    def init(address, **_):
        if error := answers.pop(0):
            raise error

    nothing = SimpleNamespace(register_pickle_by_value=lambda _: None)
    ray = SimpleNamespace(init=init, cluster_resources=dict, nodes=list, shutdown=lambda: None, cloudpickle=nothing)
    monkeypatch.setitem(sys.modules, "ray", ray)

    with pytest.raises(UsageError) as error:
        check_on_cluster(settings, Request(), "ray", "perfci check", lambda _: None)
    assert error.value.reason.kind == kind


def test_if_the_cluster_is_lost_what_came_back_is_judged_and_saved(settings, workers, heard):
    git(settings.root, "init", "--quiet")
    commit_all(settings.root)
    sharded = plan_shards(settings, Request(device="fake", seed=7), heard.append, 2, None)

    def wait(begun, timeout):
        """The first shard comes back, measured here. Then the cluster is gone."""
        if len(begun) < 2:
            raise ConnectionError("the head is gone")
        return begun[:1], begun[1:]

    def get(task):
        number = int(task.arguments[0][-1].partition("/")[0])
        folder = settings.root.parent / "node" / str(number)
        part = ShardPart(*read_plan(settings.reports / "plan.json"), number, 2)
        check_shard(replace(settings, reports=folder), part, "perfci check", heard.append)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(folder, ".")
        return 0, "", packed.getvalue()

    ray = StandIn()
    ray.wait, ray.get = wait, get
    measure = functools.partial(measure_shards, Cluster(ray, "ray", "fake", NODES), [], settings, None, heard.append)

    with pytest.raises(UsageError) as error:
        run_shards(settings, sharded, None, "perfci check", measure)
    assert "the head is gone" in sentence(error.value.reason)
    merged = store.read_run(settings.reports)
    assert [bool(op.failure) for op in merged.ops] == [False, True] and len(merged.missing) == 1
