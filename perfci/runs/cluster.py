"""A check that the nodes of a Ray cluster share: a shard an op, each on a board of its own, joined as all shards are.

perfci places the shards itself: what a node dies of or fails at begins again on another, and it gets nothing more.
"""

import contextlib
import dataclasses
import functools
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import perfci
from perfci import store
from perfci.core import deadline
from perfci.core.environment import installed_versions
from perfci.core.errors import MissingPackageError, Stopped, UsageError
from perfci.core.model import Deadline, Fact, Judgements, Reason, Run, ShardPlan, board_key
from perfci.core.settings import CLUSTER, ONE, Settings
from perfci.core.temporary import temporary_folder
from perfci.core.wording import as_fact, say, sentence
from perfci.git.command import ask, require
from perfci.git.repository import find_repository
from perfci.ops.discover import select
from perfci.runs.bench import Listener
from perfci.runs.merge import refuse_mixed
from perfci.runs.plan import Request, cases_to_run
from perfci.runs.record import ends_run
from perfci.runs.shards import AUTO, CPU, FOLDER, plan_shards, run_shards
from perfci.worker.protocol import Position

BOARDS = {"cuda": "GPU", "npu": "NPU"}  # what Ray calls a board of a kind. Kernels run on a CPU for other kinds
PACKAGES = ("perfci", "torch", "triton", "torch-npu")  # that nodes have in one version
TRIES = 3  # how many nodes a shard may fail on
POLL_S, ANSWER_S, GRACE_S = 1.0, 120.0, 30.0  # for a look at the cluster, for a node's versions, after the deadline
PACK_S = 600.0  # for packing two revisions


@dataclasses.dataclass(frozen=True)
class RayNode:
    """A node of a cluster, as Ray describes it."""

    name: str
    boards: int
    model: str = ""  # of its boards, such as H200. Empty if Ray does not name one


def check_on_cluster(
    settings: Settings, request: Request, address: str, command: str, listener: Listener
) -> tuple[Run, Judgements]:
    """Check on the boards of a cluster: `ray` for the one around, else `ray://HOST:PORT`.

    What came back is judged even if nodes are lost. Raises UsageError for a cluster that cannot be reached, has no such
    board, or has a node that differs from the others or from this machine, and GitError without a repository.
    """
    with _connect(address) as ray:
        offered = ray.cluster_resources()
        kind = next((kind for kind, board in BOARDS.items() if offered.get(board)), CPU)
        request = dataclasses.replace(request, devices=ONE, device=kind if request.device == AUTO else request.device)
        board, nodes = BOARDS.get(request.device, "CPU"), dict[str, RayNode]()
        for each in ray.nodes():
            if each["Alive"] and (boards := int(each["Resources"].get(board, 0))):
                model = next(filter(None, (name.partition("accelerator_type:")[2] for name in each["Resources"])), "")
                name = f"{each['NodeManagerHostname']} ({each['NodeManagerAddress']})"
                nodes[each["NodeID"]] = RayNode(name, boards, model)
        if not nodes:
            raise UsageError("cluster_without_boards", address=address, board=board)
        pin = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        task, sent, answers = ray.remote(num_cpus=0, max_retries=0)(_describe_node), time.time(), []
        asked = {node: task.options(scheduling_strategy=pin(node, soft=False)).remote() for node in nodes}
        for node, answer in asked.items():
            with contextlib.suppress(ray.exceptions.RayError):  # it died, or is too slow to be of use
                answers.append((nodes[node].name, ray.get(answer, timeout=ANSWER_S)))
        refuse_unequal(answers, sent, time.time())
        last = store.read_run(settings.reports) if (settings.reports / store.RUN_FILE).is_file() else None
        sharded = plan_shards(settings, request, listener, len(select(settings, request.ops)), last)
        sharded = dataclasses.replace(sharded, shards=max((each.shard for each in sharded.ops), default=0) or 1)
        notes = list[Reason]()
        measure = functools.partial(_measure, ray, address, nodes, notes, settings, request.deadline, listener)
        run, judgements = run_shards(settings, sharded, request.deadline, command, measure)
        return run, dataclasses.replace(judgements, notes=(*judgements.notes, *notes))


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
    except Exception as error:  # each kind of address has errors of its own
        raise _call_unreachable(address, error) from error
    signal.signal(signal.SIGTERM, stop)  # Ray's own would end this process without saving
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a node may lack perfci
    try:
        yield ray
    finally:
        ray.shutdown()


def _call_unreachable(address: str, error: Exception) -> UsageError:
    why = str(error).strip().partition("\n")[0] or type(error).__name__
    return UsageError("cluster_unreachable", address=address, why=why.rstrip("."))


def refuse_unequal(answers: Sequence[tuple[str, Mapping[str, Any]]], sent: float, received: float) -> None:
    """Raise UsageError for a node with another perfci or torch than this machine's, other versions, or a wrong clock.

    answers: nodes' names with what `_describe_node` found, between two epoch seconds. This machine may lack torch.
    """
    here = {**installed_versions(["torch"]), "perfci": perfci.__version__}
    for node, found in answers:
        if not sent - deadline.SKEW_S <= found["time"] <= received + deadline.SKEW_S:
            raise UsageError("node_clock", node=node, seconds=round(found["time"] - received))
        for package in PACKAGES:
            had, wanted, own = found[package], answers[0][1][package], here.get(package)
            if own and (had or "").partition("+")[0] != own.partition("+")[0]:
                wanted = own
            if had != wanted:
                had, wanted = (each or as_fact("none") for each in (had, wanted))
                raise UsageError("node_differs", node=node, package=package, found=had, wanted=wanted)


def _measure(
    ray: Any, address: str, nodes: Mapping[str, RayNode], notes: list[Reason], settings: Settings,
    limit: Deadline | None, listener: Listener,
    sharded: ShardPlan, path: Path, options: Sequence[str], variables: Mapping[str, str],
) -> BaseException | None:  # fmt: skip
    """Write the folders of all shards that come back, and note what nodes did wrong. Returns what ended it early."""
    board = BOARDS.get(sharded.plan.device, "CPU")
    needed = {"num_gpus": 1} if board == "GPU" else {"num_cpus": 1} if board == "CPU" else {"resources": {board: 1}}
    top = require(find_repository(settings.root)).top
    places = [os.path.relpath(settings.root, top), os.path.relpath(settings.reports, settings.root)]
    fixed = (ray.put(_pack(settings, top, sharded)), path.read_bytes(), places, [*options], {**variables})
    pin = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    task = ray.remote(max_retries=0, **needed)(_check_there)
    shares = zip(sharded.ops, sharded.plan.ops, strict=True)
    cases = {share.shard: cases_to_run(sharded.plan, op) for share, op in shares if share.shard}
    done = dict[int, Run]()

    def begin(node: str, shard: int) -> Any:
        return task.options(scheduling_strategy=pin(node, soft=False)).remote(f"{shard}/{sharded.shards}", *fixed)

    def wait(begun: list[Any]) -> list[Any]:
        behind = sum(each for shard, each in cases.items() if shard in done)
        listener(Position(len(done), len(begun), len(cases), behind, sum(cases.values())))
        return list(ray.wait(begun, timeout=POLL_S)[0])

    def keep(answer: Any, node: str, shard: int) -> Reason | None:
        try:
            code, why, packed = ray.get(answer)
        except ray.exceptions.RayError as error:  # with a cause if it was raised there
            code, why, packed = None, str(getattr(error, "cause", "")) or as_fact("it was lost"), b""
        if code != 0:
            return Reason("node_failed", {"node": nodes[node].name, "why": why})
        own = settings.reports / FOLDER / str(shard)
        shutil.rmtree(own, ignore_errors=True)  # of another node
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(own.parent, filter="data")
        run, first = store.read_run(own), next((run for run in done.values() if run.ops), None)
        if fault := find_fault(run, nodes[node], first, sharded.plan.put_aside):
            if fault.kind == "node_mixed":
                shutil.rmtree(own)  # else it stands if no other node has a better one
            return fault
        done[shard] = run
        return None

    try:
        notes += share_out(nodes, sorted(cases), begin, wait, keep, deadline.ends(limit) + GRACE_S if limit else inf)
    except (Stopped, KeyboardInterrupt) as stop:  # Ray may make the latter of a signal
        return stop if isinstance(stop, Stopped) else Stopped(signal.SIGINT.name)
    except (ConnectionError, ray.exceptions.RayError) as error:
        return _call_unreachable(address, error)
    return None


def share_out(
    nodes: Mapping[str, RayNode], shards: Iterable[int], begin: Callable[[str, int], Any],
    wait: Callable[[list[Any]], Iterable[Any]], keep: Callable[[Any, str, int], Reason | None], until: float = inf,
) -> list[Reason]:  # fmt: skip
    """Have the boards of nodes measure shards, the first ones first. Returns why nodes got no more of them.

    `begin` starts a shard on a node, `wait` returns what ended of all that was begun, and `keep` stores a result, or
    returns what is wrong with it. Then the shard begins again on another node, on three at most. until: epoch seconds.
    """
    todo, faults, tries, begun = deque(shards), dict[str, Reason](), Counter[int](), dict[Any, tuple[str, int]]()
    while todo or begun:
        busy = Counter(node for node, _ in begun.values())
        while todo and (free := [each for each in nodes if each not in faults and busy[each] < nodes[each].boards]):
            node, shard = min(free, key=lambda each: busy[each] / nodes[each].boards), todo.popleft()
            begun[begin(node, shard)] = node, shard
            busy[node] += 1
        if not begun or time.time() > until:
            break
        for each in wait([*begun]):
            node, shard = begun.pop(each)
            if fault := keep(each, node, shard):
                faults.setdefault(node, fault)
                tries[shard] += 1
                todo.extendleft([shard] if tries[shard] < TRIES else [])
    return [*faults.values()]


def find_fault(run: Run, node: RayNode, first: Run | None, aside: Collection[str] = ()) -> Reason | None:
    """Returns why a shard begins again on another node: this one's board is gone, taken, sick, or of another model.

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


def _pack(settings: Settings, top: Path, sharded: ShardPlan) -> bytes:
    """Returns an archive of the work tree, less what git ignores, with HEAD and the base in its `.git`."""
    head = ask(top, "rev-parse", "HEAD").strip()
    commits = list(dict.fromkeys([head, *([sharded.plan.base.commit] if sharded.plan.base else [])]))
    packed = io.BytesIO()
    with temporary_folder("cluster") as folder, tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        home = folder / ".git"
        for each in ("objects/pack", "refs"):
            (home / each).mkdir(parents=True)
        (home / "HEAD").write_text(f"{head}\n")
        (home / "shallow").write_text("".join(f"{each}\n" for each in commits))
        objects = ask(top, "rev-list", "--objects", "--no-walk", *commits, limit_s=PACK_S)
        ask(top, "pack-objects", "-q", str(home / "objects" / "pack" / "pack"), given=objects, limit_s=PACK_S)
        ask(folder, "read-tree", "HEAD", variables={"GIT_INDEX_FILE": str(home / "index")})
        names = ask(top, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")[:-1]
        sent = [(top / name, name) for name in dict.fromkeys(names) if os.path.lexists(top / name)]
        for path, name in [(home, ".git"), *sent]:
            if not path.is_relative_to(settings.reports):
                # Without owners: git trusts a repository only if it belongs to whoever unpacks it.
                archive.add(path, name, filter=lambda each: each.replace(uid=0, gid=0, uname="", gname="", deep=False))
    return packed.getvalue()


# --- on a node, which may lack perfci: only the standard library ------------------------------------------------------

# It ends with its Ray worker, as that ends with its node, and frees its lock.
PROGRAM = """import ctypes, runpy, signal
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
runpy.run_module("perfci", run_name="__main__", alter_sys=True)"""

# What a shard's check would find: a Ray worker has other paths.
VERSIONS = f"""import importlib.metadata as known, json
found = dict((each.name, each.version) for each in reversed([*known.distributions()]))
print(json.dumps(dict((name, found.get(name)) for name in {PACKAGES})))"""


def _describe_node() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(subprocess.check_output([sys.executable, "-P", "-c", VERSIONS]))
    return {**found, "time": time.time()}


def _check_there(
    shard: str, files: bytes, plan: bytes, places: Sequence[str], options: Sequence[str], variables: Mapping[str, str]
) -> tuple[int, str, bytes]:
    """Returns the exit code of a shard's check, its last line, and an archive of its folder."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="perfci-node-") as folder:
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            archive.extractall(folder, filter="tar")
        root, sent = Path(folder, places[0]), Path(folder, "plan.json")
        sent.write_bytes(plan)
        around = {name: each for name, each in os.environ.items() if name != "OMP_NUM_THREADS"} | {**variables}
        command = [sys.executable, "-P", "-c", PROGRAM, "check", "--plan", str(sent), "--shard", shard, *options]
        done = subprocess.run(command, env=around, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        found = root / places[1] / "shards" / shard.partition("/")[0]
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            if found.is_dir():
                archive.add(found, found.name)
    return done.returncode, last.removeprefix("perfci: "), packed.getvalue()
