"""Boards of a Ray cluster measure shards, one at a time each. A shard of a group takes boards of one node, or waits.

perfci places the shards itself, since Ray takes no list of nodes to avoid: if a node dies or fails, what it had
begun begins again on another one, and it gets nothing more. It packs the work tree itself, as git on a node has to find
the same modes and links.
"""

import contextlib
import io
import os
import re
import signal
import socket
import tarfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perfci.core import VERSION, deadline
from perfci.core.environment import installed_versions
from perfci.core.errors import MissingPackageError, UsageError
from perfci.core.model import Fact, Reason, Run, as_fact, board_key
from perfci.core.settings import CLUSTER, Settings
from perfci.core.stopping import Stopped
from perfci.core.temporary import temporary_folder
from perfci.core.wording import say, sentence
from perfci.extensions.common.joining import refuse_mixed
from perfci.extensions.ray import node as on_node
from perfci.git.command import ask, require
from perfci.git.repository import find_repository
from perfci.runs.record import ends_run

AUTO, CPU = "auto", "cpu"
BOARDS = {"cuda": "GPU", "npu": "NPU"}  # what Ray calls a board of a kind. Kernels run on a CPU for other kinds
TRIES = 3  # how many nodes a command may fail on
ENDED = frozenset({0, 2, 3})  # exit codes of a command that came to its end
POLL_S, ANSWER_S = 1.0, 120.0  # for a look at the cluster, for a node's versions
PACK_S = 600.0  # for packing two revisions


@dataclass(frozen=True)
class Node:
    """A node of a cluster."""

    name: str
    boards: int
    model: str = ""  # of its boards, such as H200. Empty if the cluster does not name one


@dataclass(frozen=True)
class NodeCommand:
    """A command of perfci for boards of a cluster."""

    words: Sequence[str]
    given: Mapping[Path, bytes]  # files that it finds beside those of the work tree
    kept: Path  # folder that comes back
    variables: Mapping[str, str]  # of its environment
    boards: int = 1  # of one node


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to, with nodes that fit together."""

    ray: Any
    address: str
    device: str  # what perfci calls its boards: cuda, npu, cpu, or fake if that was asked for
    nodes: Mapping[str, Node]  # those with such boards, by Ray's ids

    def run(
        self, settings: Settings, commands: Mapping[int, NodeCommand],
        keep: Callable[[int, Node, bytes], Reason | None], revisions: Sequence[str], *,
        show: Callable[[int], None], until: float = inf,
    ) -> list[Reason]:  # fmt: skip
        """Have boards do commands, and keep what they answer. Returns as `share_out` does.

        keep: gets a shard, the node that measured it, and the packed folder. revisions: commits that nodes get beside
        HEAD. show: gets how many are under way. Raises Stopped, and UsageError if the cluster is lost.
        """
        ray, top = self.ray, require(find_repository(settings.root)).top
        packed = ray.put(pack(settings, top, *revisions))
        boards = {number: command.boards for number, command in sorted(commands.items())}

        def begin(node: str, number: int) -> Any:
            call = plan_call(settings, top, commands[number], packed)
            return self._pin(on_node.run_command, node, boards[number]).remote(*call)

        def wait(begun: list[Any]) -> list[Any]:
            show(len(begun))
            return list(ray.wait(begun, timeout=POLL_S)[0])

        def take(task: Any, node: str, number: int) -> Reason | None:
            try:
                code, why, kept = ray.get(task)
            except ray.exceptions.RayError as error:  # with a cause if it was raised there
                code, why, kept = -1, str(getattr(error, "cause", "")) or as_fact("it was lost"), b""
            if code not in ENDED:
                return Reason("node_failed", {"node": self.nodes[node].name, "why": why})
            return keep(number, self.nodes[node], kept)

        try:
            return share_out(self.nodes, boards, begin, wait, take, until)
        except KeyboardInterrupt as stop:  # Ray may make it of a signal
            raise Stopped(signal.SIGINT.name) from stop
        except (ConnectionError, ray.exceptions.RayError) as error:
            raise _call_unreachable(self.address, error) from error

    def find_fault(self, run: Run, node: Node, first: Run | None = None, aside: Collection[str] = ()) -> Reason | None:
        """Returns why a command begins again on another node: the board is gone, taken, sick, or of another model.

        Right is the first run's model, and the one that Ray names. aside: UUIDs of sick boards.
        """
        facts: dict[str, Fact] = {"node": node.name, "what": as_fact("device"), "found": run.environment.device.name}
        lies = node.model.partition("-")[0].lower() not in run.environment.device.name.lower()
        try:
            refuse_mixed([first, run] if first and run.ops else [])
        except UsageError as error:
            return Reason("node_mixed", {**facts, **error.reason.facts})
        if run.ops and lies:
            return Reason("node_mixed", {**facts, "other": node.model})
        lost = next((op.failure for op in run.ops if op.failure and ends_run(op.failure)), None)
        if lost:
            return Reason("node_failed", {"node": node.name, "why": sentence(lost).rstrip(".")})
        board = run.environment.device.uuid
        sick = run.ops and board and board_key(board) in set(map(board_key, aside))
        return Reason("node_sick", {"node": node.name, "board": board}) if sick else None

    def read_versions(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Returns by nodes' names what `describe_node` finds there."""
        asked, answers = {node: self._pin(on_node.describe_node, node, 0).remote() for node in self.nodes}, []
        for node, answer in asked.items():
            with contextlib.suppress(self.ray.exceptions.RayError):  # it died, or is too slow to be of use
                answers.append((self.nodes[node].name, self.ray.get(answer, timeout=ANSWER_S)))
        return answers

    def _pin(self, function: Callable[..., Any], node: str, boards: int) -> Any:
        """A task of Ray's for so many boards of a node."""
        board = BOARDS.get(self.device, "CPU")
        takes = {"GPU": {"num_gpus": boards}, "CPU": {"num_cpus": boards}}.get(board, {"resources": {board: boards}})
        takes = takes if boards else {"num_cpus": 0}
        place = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        return self.ray.remote(max_retries=0, **takes)(function).options(scheduling_strategy=place)


@contextlib.contextmanager
def open_cluster(address: str, device: str) -> Iterator[Cluster]:
    """Connect to a cluster: `ray` for the one around, else `ray://HOST:PORT`. device: `auto` takes what it has.

    Raises UsageError for a cluster that cannot be reached, has no such board, or has a node that differs from the
    others or from this machine.
    """
    with _connect(address) as ray:
        offered = ray.cluster_resources()
        kind = next((kind for kind, board in BOARDS.items() if offered.get(board)), CPU)
        device = kind if device == AUTO else device
        board, nodes = BOARDS.get(device, "CPU"), dict[str, Node]()
        for node in ray.nodes():
            if node["Alive"] and (boards := int(node["Resources"].get(board, 0))):
                model = next(filter(None, (name.partition("accelerator_type:")[2] for name in node["Resources"])), "")
                name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                nodes[node["NodeID"]] = Node(name, boards, model)
        if not nodes:
            raise UsageError("cluster_without_boards", address=address, board=board)
        cluster, sent = Cluster(ray, address, device, nodes), time.time()
        refuse_unequal(cluster.read_versions(), sent, time.time())
        yield cluster


@contextlib.contextmanager
def _connect(address: str) -> Iterator[Any]:
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError("ray_missing") from error
    stop = signal.getsignal(signal.SIGTERM)
    try:
        if not re.search(CLUSTER, address):
            raise ValueError(say("it is neither ray nor ray://HOST:PORT"))  # noqa: TRY301
        if place := urlsplit(address).netloc:  # Ray itself tries for minutes
            socket.create_connection((urlsplit(address).hostname or place, urlsplit(address).port or 0), 10.0).close()
        for left in reversed(range(TRIES)):  # Ray's proxy loses a client's server at times (ray-project/ray#63202)
            with contextlib.suppress(*[ConnectionAbortedError] * (left > 0)):
                ray.init("auto" if address == "ray" else address, log_to_driver=False, logging_level="ERROR")
                break
    except Exception as error:  # each kind of address has its errors
        raise _call_unreachable(address, error) from error
    signal.signal(signal.SIGTERM, stop)  # Ray's would end this process without saving
    ray.cloudpickle.register_pickle_by_value(on_node)  # a node may lack perfci
    try:
        yield ray
    finally:
        ray.shutdown()


def _call_unreachable(address: str, error: Exception) -> UsageError:
    why = str(error).strip().partition("\n")[0] or type(error).__name__
    return UsageError("cluster_unreachable", address=address, why=why.rstrip("."))


def refuse_unequal(answers: Sequence[tuple[str, Mapping[str, Any]]], sent: float, received: float) -> None:
    """Raise UsageError for a node with another perfci or torch than this machine's, other versions, or a wrong clock.

    answers: nodes' names with what `describe_node` found, between two epoch seconds. This machine may lack torch.
    """
    here = {**installed_versions(["torch"]), "perfci": VERSION}
    for node, versions in answers:
        if not sent - deadline.SKEW_S <= versions["time"] <= received + deadline.SKEW_S:
            raise UsageError("node_clock", node=node, seconds=round(versions["time"] - received))
        for package in on_node.PACKAGES:
            had, wanted, installed = versions[package], answers[0][1][package], here.get(package)
            if installed and (had or "").partition("+")[0] != installed.partition("+")[0]:
                wanted = installed
            if had != wanted:
                had, wanted = (side or as_fact("none") for side in (had, wanted))
                raise UsageError("node_differs", node=node, package=package, found=had, wanted=wanted)


def share_out(
    nodes: Mapping[str, Node], shards: Mapping[int, int], begin: Callable[[str, int], Any],
    wait: Callable[[list[Any]], Iterable[Any]], keep: Callable[[Any, str, int], Reason | None], until: float = inf,
) -> list[Reason]:  # fmt: skip
    """Have the boards of nodes measure shards, the first ones first. Returns why nodes, or shards, got no more.

    shards: how many boards of one node each takes, all of them at once. Those that take most come first.

    `begin` starts a shard on a node, `wait` returns what ended of all that was begun, and `keep` stores a result, or
    returns what is wrong with it. Then the shard begins again on another node, on three at most, and the node gets no
    more. until: epoch seconds.
    """
    todo, begun = deque(sorted(shards, key=lambda shard: -shards[shard])), dict[Any, tuple[str, int]]()
    tried, faults = defaultdict[int, set[str]](set), dict[str, Reason]()

    def find_place() -> tuple[str, int] | None:
        busy = Counter[str]()
        for node, shard in begun.values():
            busy[node] += shards[shard]
        free = {node: nodes[node].boards - busy[node] for node in nodes if node not in faults}
        for shard in todo if any(free.values()) else ():
            if share := [node for node in free if free[node] >= shards[shard] and node not in tried[shard]]:
                return min(share, key=lambda node: busy[node] / nodes[node].boards), shard
        return None

    while todo or begun:
        while place := find_place():
            todo.remove(place[1])
            begun[begin(*place)] = place
        if not begun or time.time() > until:
            break
        for task in wait([*begun]):
            node, shard = begun.pop(task)
            tried[shard].add(node)
            if fault := keep(task, node, shard):
                faults.setdefault(node, fault)
                todo.extendleft([shard] if len(tried[shard]) < TRIES else [])
    return [*faults.values()]


def plan_call(settings: Settings, top: Path, command: NodeCommand, packed: Any) -> Sequence[Any]:
    """Arguments of `run_command` on a node. packed: the work tree."""
    given = {os.path.relpath(path, top): content for path, content in command.given.items()}
    kept, root = os.path.relpath(command.kept, settings.root), os.path.relpath(settings.root, top)
    return [*command.words], packed, given, root, kept, {**command.variables}, str(top)


def pack(settings: Settings, top: Path, *revisions: str) -> bytes:
    """Returns an archive of the work tree, less what git ignores, with HEAD and these commits in its `.git`."""
    head = ask(top, "rev-parse", "HEAD").strip()
    commits = list(dict.fromkeys([head, *revisions]))
    packed = io.BytesIO()
    with temporary_folder("cluster") as folder, tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        home = folder / ".git"
        for inner in ("objects/pack", "refs"):
            (home / inner).mkdir(parents=True)
        (home / "HEAD").write_text(f"{head}\n")
        (home / "shallow").write_text("".join(f"{commit}\n" for commit in commits))
        objects = ask(top, "rev-list", "--objects", "--no-walk", *commits, limit_s=PACK_S)
        ask(top, "pack-objects", "-q", str(home / "objects" / "pack" / "pack"), given=objects, limit_s=PACK_S)
        ask(folder, "read-tree", "HEAD", variables={"GIT_INDEX_FILE": str(home / "index")})
        names = ask(top, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")[:-1]
        sent = [(top / name, name) for name in dict.fromkeys(names) if os.path.lexists(top / name)]
        for path, name in [(home, ".git"), *sent]:
            if not path.is_relative_to(settings.reports):
                # Without owners: git trusts a repository only if it belongs to anyone who unpacks it.
                archive.add(
                    path, name, filter=lambda member: member.replace(uid=0, gid=0, uname="", gname="", deep=False)
                )
    return packed.getvalue()
