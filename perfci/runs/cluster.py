"""What the nodes of a Ray cluster do: a check's ops, a shard each, joined as all shards are. Commands. A round.

perfci places the shards itself. If a node dies or fails, what it had begun begins again on another one, and it gets
nothing more.
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
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perfci import store
from perfci.core import VERSION, deadline
from perfci.core.environment import installed_versions
from perfci.core.errors import MissingPackageError, PerfciError, UsageError
from perfci.core.model import Deadline, Fact, Judgements, Reason, Round, Run, ShardPlan, as_fact, board_key
from perfci.core.settings import CLUSTER, ONE, Settings
from perfci.core.stopping import Stopped
from perfci.core.temporary import temporary_folder
from perfci.core.wording import say, sentence, spoken
from perfci.git.command import ask, require
from perfci.git.repository import find_repository
from perfci.ops.discover import select, select_one
from perfci.runs.bench import Listener
from perfci.runs.boards import find_sick
from perfci.runs.merge import refuse_mixed
from perfci.runs.nodes import HERE, NodeAnswer, NodeCommand, unpack
from perfci.runs.plan import Request, cases_to_run
from perfci.runs.record import ends_run
from perfci.runs.rounds import FOLDER as ROUNDS
from perfci.runs.rounds import try_round
from perfci.runs.shards import AUTO, CPU, FOLDER, plan_shards, run_shards
from perfci.store.logbook import FILE, read_logbook
from perfci.worker.protocol import Doing, Position

BOARDS = {"cuda": "GPU", "npu": "NPU"}  # what Ray calls a board of a kind. Kernels run on a CPU for other kinds
PACKAGES = ("perfci", "torch", "triton", "torch-npu")  # that nodes have in one version
TRIES = 3  # how many nodes a shard may fail on
ENDED = frozenset({0, 2, 3})  # exit codes of a command that came to its end
POLL_S, ANSWER_S, GRACE_S = 1.0, 120.0, 30.0  # for a look at the cluster, for a node's versions, after the deadline
PACK_S = 600.0  # for packing two revisions


Answer = tuple[int, str, str, bytes]  # of `_run_there`


@dataclasses.dataclass(frozen=True)
class RayNode:
    """A node of a cluster, as Ray describes it."""

    name: str
    boards: int
    model: str = ""  # of its boards, such as H200. Empty if Ray does not name one


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to, whose nodes fit together."""

    ray: Any
    address: str
    device: str  # what perfci calls its boards: cuda, npu, cpu, or fake if that was asked for
    nodes: Mapping[str, RayNode]  # those with such boards, by Ray's ids


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
        board, nodes = BOARDS.get(device, "CPU"), dict[str, RayNode]()
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
        yield Cluster(ray, address, device, nodes)


def check_on_cluster(
    settings: Settings, request: Request, address: str, command: str, listener: Listener
) -> tuple[Run, Judgements]:
    """Check on the boards of a cluster. What came back is judged even if nodes are lost.

    Raises UsageError as `open_cluster` does, and GitError without a repository.
    """
    with open_cluster(address, request.device) as cluster:
        request = dataclasses.replace(request, devices=ONE, device=cluster.device)
        last = store.read_run(settings.reports) if (settings.reports / store.RUN_FILE).is_file() else None
        sharded = plan_shards(settings, request, listener, len(select(settings, request.ops)), last)
        sharded = dataclasses.replace(sharded, shards=max((each.shard for each in sharded.ops), default=0) or 1)
        notes = list[Reason]()
        measure = functools.partial(_measure, cluster, notes, settings, request.deadline, listener)
        run, judgements = run_shards(settings, sharded, request.deadline, command, measure)
        return run, dataclasses.replace(judgements, notes=(*judgements.notes, *notes))


def run_commands(
    settings: Settings, address: str, device: str, asked: Sequence[NodeCommand], keep: Callable[[int, NodeAnswer], None]
) -> list[Reason]:
    """Has boards of a cluster run commands of perfci, one a board. Returns why nodes had no answer.

    keep: gets the number of a command and what came of it. Raises PerfciError as `open_cluster` does.
    """
    with open_cluster(address, device) as cluster:
        top, calls = require(find_repository(settings.root)).top, {}
        packed = cluster.ray.put(_pack(settings, top))
        for number, each in enumerate(asked):
            given = {os.path.relpath(path, top): content for path, content in each.given.items()}
            calls[number] = _call(settings, top, each.words, packed, given, each.kept)
        return _spread(cluster, calls, lambda number, _, answer: keep(number, NodeAnswer(*answer)))


def try_on_cluster(
    settings: Settings, request: Request, why: str, listener: Listener, command: str, address: str | None, **more: Any
) -> Round:
    """One round as `try_round` judges it, with kernel, best and start measured on one board of a cluster, if any."""
    if not address:
        return try_round(settings, request, why, listener, command, **more)
    sick = find_sick(settings)

    def measure(cluster: Cluster, round_: Round) -> Round:
        op, rounds = select_one(settings, round_.op), settings.reports / ROUNDS
        top, found = require(find_repository(settings.root)).top, list[Round]()
        words = ["try", op.op, "--why", why, "--against", round_.start, "--device", cluster.device, "--on", HERE]
        words += ["--seed", str(request.seed)] if request.seed is not None else []
        packed = cluster.ray.put(_pack(settings, top, str(round_.against), round_.start))
        calls = {1: _call(settings, top, words, packed, {}, [op.folder / FILE, rounds])}

        def keep(_: int, node: RayNode, answer: Answer) -> Reason | None:
            with temporary_folder("round") as folder:
                unpack(answer[-1], [folder / FILE, folder / "run"])
                found[:] = read_logbook(folder).rounds[-1:]
                if (folder / "run" / store.RUN_FILE).is_file():
                    shutil.copytree(folder / "run", rounds, dirs_exist_ok=True)
                    return find_fault(store.read_run(rounds), node, None, sick)
            return None

        listener(Doing("measure", op.op))
        faults = _spread(cluster, calls, keep)
        if not found or found[0].digest != round_.digest:
            reason = faults[-1] if faults else Reason("round_edited", {"op": op.op})
            raise PerfciError(reason.kind, **reason.facts)
        own = {name: getattr(round_, name) for name in ("number", "time", "commit", "expected", "advice")}
        return dataclasses.replace(found[0], **own, counters={})

    with open_cluster(address, request.device) as cluster:
        elsewhere = functools.partial(measure, cluster)
        return try_round(settings, request, why, listener, command, elsewhere=elsewhere, **more)


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
    here = {**installed_versions(["torch"]), "perfci": VERSION}
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
    cluster: Cluster, notes: list[Reason], settings: Settings, limit: Deadline | None, listener: Listener,
    sharded: ShardPlan, path: Path, options: Sequence[str], variables: Mapping[str, str],
) -> BaseException | None:  # fmt: skip
    """Write the folders of all shards that come back, and note what nodes did wrong. Returns what ended it early."""
    top, base = require(find_repository(settings.root)).top, sharded.plan.base
    packed = cluster.ray.put(_pack(settings, top, *([base.commit] if base else [])))
    shares = zip(sharded.ops, sharded.plan.ops, strict=True)
    cases = {share.shard: cases_to_run(sharded.plan, op) for share, op in shares if share.shard}
    done, calls, given = dict[int, Run](), {}, {"plan.json": path.read_bytes()}
    plan = os.path.relpath(top / "plan.json", settings.root)
    for shard in sorted(cases):
        words = ["check", "--plan", plan, "--shard", f"{shard}/{sharded.shards}", *options]
        calls[shard] = _call(settings, top, words, packed, given, [settings.reports / FOLDER / str(shard)], variables)

    def show(begun: int) -> None:
        behind = sum(each for shard, each in cases.items() if shard in done)
        listener(Position(len(done), begun, len(cases), behind, sum(cases.values())))

    def keep(shard: int, node: RayNode, answer: Answer) -> Reason | None:
        own = settings.reports / FOLDER / str(shard)
        shutil.rmtree(own, ignore_errors=True)  # of another node
        unpack(answer[-1], [own])
        run, first = store.read_run(own), next((run for run in done.values() if run.ops), None)
        if fault := find_fault(run, node, first, sharded.plan.put_aside):
            if fault.kind == "node_mixed":
                shutil.rmtree(own)  # else it stands if no other node has a better one
            return fault
        done[shard] = run
        return None

    try:
        until = deadline.ends(limit) + GRACE_S if limit else inf
        notes += _spread(cluster, calls, keep, show, until, "node_failed")
    except (Stopped, UsageError) as error:
        return error
    return None


def _spread(
    cluster: Cluster, calls: Mapping[int, Sequence[Any]],
    keep: Callable[[int, RayNode, Answer], Reason | None],
    show: Callable[[int], None] = lambda _: None, until: float = inf, refusal: str = "node_refused",
) -> list[Reason]:  # fmt: skip
    """Have boards do calls of `_run_there`, and keep what they answer. Returns as `share_out` does.

    show: gets how many are under way. refusal: kind of an error of perfci's own, which may be the op's fault. Raises
    Stopped, and UsageError if the cluster is lost.
    """
    ray, board = cluster.ray, BOARDS.get(cluster.device, "CPU")
    needed = {"num_gpus": 1} if board == "GPU" else {"num_cpus": 1} if board == "CPU" else {"resources": {board: 1}}
    pin = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    task = ray.remote(max_retries=0, **needed)(_run_there)

    def begin(node: str, number: int) -> Any:
        return task.options(scheduling_strategy=pin(node, soft=False)).remote(*calls[number])

    def wait(begun: list[Any]) -> list[Any]:
        show(len(begun))
        return list(ray.wait(begun, timeout=POLL_S)[0])

    def take(task: Any, node: str, number: int) -> Reason | None:
        try:
            answer: Answer = ray.get(task)
        except ray.exceptions.RayError as error:  # with a cause if it was raised there
            answer = -1, str(getattr(error, "cause", "")) or as_fact("it was lost"), "", b""
        code, why, *_ = answer
        if code not in ENDED:
            return Reason(refusal if code == 1 else "node_failed", {"node": cluster.nodes[node].name, "why": why})
        return keep(number, cluster.nodes[node], answer)

    try:
        return share_out(cluster.nodes, sorted(calls), begin, wait, take, until)
    except KeyboardInterrupt as stop:  # Ray may make it of a signal
        raise Stopped(signal.SIGINT.name) from stop
    except (ConnectionError, ray.exceptions.RayError) as error:
        raise _call_unreachable(cluster.address, error) from error


def share_out(
    nodes: Mapping[str, RayNode], shards: Iterable[int], begin: Callable[[str, int], Any],
    wait: Callable[[list[Any]], Iterable[Any]], keep: Callable[[Any, str, int], Reason | None], until: float = inf,
) -> list[Reason]:  # fmt: skip
    """Have the boards of nodes measure shards, the first ones first. Returns why nodes, or shards, got no more.

    `begin` starts a shard on a node, `wait` returns what ended of all that was begun, and `keep` stores a result, or
    returns what is wrong with it. Then the shard begins again on another node, on three at most, and the node gets no
    more unless it only refused this one. until: epoch seconds.
    """
    todo, begun, tried = deque(shards), dict[Any, tuple[str, int]](), defaultdict[int, set[str]](set)
    faults, refused = dict[str, Reason](), dict[int, Reason]()

    def find_place() -> tuple[str, int] | None:
        busy = Counter(node for node, _ in begun.values())
        free = [each for each in nodes if each not in faults and busy[each] < nodes[each].boards]
        for shard in todo if free else ():
            if mine := [each for each in free if each not in tried[shard]]:
                return min(mine, key=lambda each: busy[each] / nodes[each].boards), shard
        return None

    while todo or begun:
        while place := find_place():
            todo.remove(place[1])
            begun[begin(*place)] = place
        if not begun or time.time() > until:
            break
        for each in wait([*begun]):
            node, shard = begun.pop(each)
            tried[shard].add(node)
            refused.pop(shard, None)
            if fault := keep(each, node, shard):
                if fault.kind == "node_refused":
                    refused[shard] = fault
                else:
                    faults.setdefault(node, fault)
                todo.extendleft([shard] if len(tried[shard]) < TRIES else [])
    return [*faults.values(), *refused.values()]


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


def _call(
    settings: Settings, top: Path, words: Sequence[str], packed: Any, given: Mapping[str, bytes], kept: Sequence[Path],
    variables: Mapping[str, str] | None = None,
) -> Sequence[Any]:  # fmt: skip
    """Arguments of `_run_there`. given: files by their place in the repository."""
    shown = {"PERFCI_LANG": spoken(), "TTY_COMPATIBLE": "0", "COLUMNS": str(shutil.get_terminal_size().columns)}
    wanted = [os.path.relpath(each, settings.root) for each in kept]
    return [*words], packed, given, os.path.relpath(settings.root, top), wanted, {**(variables or shown)}, str(top)


def _pack(settings: Settings, top: Path, *revisions: str) -> bytes:
    """Returns an archive of the work tree, less what git ignores, with HEAD and these commits in its `.git`."""
    head = ask(top, "rev-parse", "HEAD").strip()
    commits = list(dict.fromkeys([head, *revisions]))
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


def _run_there(
    words: Sequence[str], files: bytes, given: Mapping[str, bytes], root: str, kept: Sequence[str],
    variables: Mapping[str, str], home: str,
) -> tuple[int, str, str, bytes]:  # fmt: skip
    """Returns a command's exit code, its last line, its output, and an archive of what is kept, by number."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="perfci-node-") as made:
        folder = os.path.realpath(made)
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            archive.extractall(folder, filter="tar")
        for name, content in given.items():
            Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, name).write_bytes(content)
        around = {name: each for name, each in os.environ.items() if name != "OMP_NUM_THREADS"} | {**variables}
        command, place = [sys.executable, "-P", "-c", PROGRAM, *words], Path(folder, root)
        done = subprocess.run(command, env=around, cwd=place, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: PLW1510
        out, last = (each.decode(errors="replace").replace(folder, home) for each in (done.stdout, done.stderr))
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            for number, name in enumerate(kept):
                if (place / name).is_dir():
                    (place / name / ".lock").unlink(missing_ok=True)  # the one here is in use
                if (place / name).exists():
                    archive.add(place / name, str(number))
    return done.returncode, last.strip().rpartition("\n")[2].removeprefix("perfci: "), out, packed.getvalue()
