"""The plan of a check that several runners or devices share: a shard for each."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perfci.core import VERSION
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.files import read_regular
from perfci.core.model import FORMAT, UNTIMED, Device, Plan, PlannedBase, PlannedOp, Run, as_fact, board_key
from perfci.core.model import UsedBoard as Board
from perfci.core.model.basics import Amount, Count
from perfci.core.settings import ALL, ONE, Settings
from perfci.git.command import parse_commit
from perfci.ops.discover import select
from perfci.ops.fingerprint.tree import Tree
from perfci.runs.base import BaseTree
from perfci.runs.bench import Listener, name_devices, open_bench
from perfci.runs.beside import find_names, fingerprint_both, list_lines, planned_base
from perfci.runs.describe import Described, find_violation
from perfci.runs.effective_thresholds import alpha_of
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Request, cases_to_run, estimate_seconds
from perfci.runs.rules import hash_rules
from perfci.store import RUN_FILE
from perfci.store.files import copy_files, decode, encode, refuse_to_overwrite_unreadable, write_atomically
from perfci.store.launches import LAUNCHES_FILE


@dataclass(frozen=True)
class ShardedOp:
    """Who measures an op."""

    op: str
    shard: Count  # from 1. 0 if nothing of it is measured
    seconds: Amount = 0.0  # seconds that it may take, by the last run or by its number of cases
    files: str = ""  # digest of all files that it needs, SHA-256 in hexadecimal: a shard measures no others


@dataclass(frozen=True)
class ShardPlan:
    """Fixed before anything is measured, for all shards: plan.json."""

    perfci: str  # version
    created: str  # ISO 8601, UTC
    commit: str | None  # HEAD of the project under test. Null outside a repository
    rules: str  # digest of the thresholds and baselines that judge, SHA-256 in hexadecimal
    alpha: Amount  # share of false alarms allowed in each family
    shards: Count  # how many
    timer: str  # asked for: auto, activity or event
    plan: Plan  # of all shards together
    ops: tuple[ShardedOp, ...] = ()  # in the plan's order
    family: Count = 0
    """performance cases that are tested together, of all shards. How many may be duelled stands in the plan"""
    seconds: Amount = 0.0  # device time of all shards together, estimated
    last: str | None = None  # id of the run with the times that balance the shards
    format: int = FORMAT


def read_plan(path: Path) -> tuple[ShardPlan, str]:
    """A plan.json, and the SHA-256 of the file by which its shards know it. Raises StoredFileError."""
    if not path.exists():
        raise StoredFileError("plan_missing", path=str(path))
    return decode(path, ShardPlan), hashlib.sha256(read_regular(path)).hexdigest()


def write_plan(plan: ShardPlan, path: Path) -> Path:
    """Write a plan.json and give its path. Raises StoredFileError as `write_run` does."""
    refuse_to_overwrite_unreadable(path)
    return write_atomically(path, encode(plan, path))


def list_runs(path: Path) -> list[Path]:
    """A run.json, the one in a folder, or those in the folders of a folder, or in their folders."""
    if not path.is_dir() or (path / RUN_FILE).is_file():
        return [path / RUN_FILE if path.is_dir() else path]
    return sorted([*path.glob(f"*/{RUN_FILE}"), *path.glob(f"*/*/{RUN_FILE}")])


def copy_run(source: Path, target: Path) -> None:
    """Copies the files of a run, and no others. Raises StoredFileError for a link or a pipe among them."""
    logs = sorted(path.relative_to(source).as_posix() for path in (source / "logs").glob("*.log"))
    copy_files((RUN_FILE, f"{RUN_FILE}.sig", LAUNCHES_FILE, *logs), source, target)


AUTO, CPU, FAKE = "auto", "cpu", "fake"

LONGEST = 100  # characters of a difference that are shown

UNKNOWN = Device(AUTO, "no device", "none")


def plan_shards(
    settings: Settings, request: Request, listener: Listener, shards: int, last: Run | None, *, every: bool = False
) -> ShardPlan:
    """Returns what all shards together will measure, and which shard measures what, or which of request.devices.

    last: a run with the times that balance the shards. every: unchanged ops too. Imports nothing if all files are the
    base's. Raises UsageError for a request that matches nothing.
    """
    with open_bench(settings, listener) as bench:
        experiment = Experiment.find(bench, request, "")
        base = experiment.base
        skips = base.against.skips and not every and not request.peers and request.pattern is None
        chosen, described = select(settings, request.ops), None
        if skips and not any(map(find_violation, chosen)):
            unlisted = [PlannedOp(op.op, unlisted=True) for op in chosen]
            planned = _compare_files(base.tree, settings, unlisted)
            described = Described(UNKNOWN, planned) if all(op.base and op.base.same for op in planned) else None
        kind = last.plan.device if last and request.device == AUTO else request.device
        if described is None:
            # Only importing the ops shows their cases. A machine without an accelerator can do that too.
            anywhere = dataclasses.replace(request, device=FAKE if kind == FAKE else AUTO, elsewhere=True)
            described = dataclasses.replace(experiment, request=anywhere).describe()
            kind = described.device.kind if kind == AUTO else kind
        whole = experiment.plan(_as_planned(described, kind))
        boards = _choose_boards(request.devices or ONE, kind, described, whole.put_aside)
        whole = dataclasses.replace(whole, boards=boards, skip_unchanged=whole.skip_unchanged and not every)
    shards = len(boards) or shards
    shared = share_out(whole, shards, last)
    prints = fingerprint_ops(settings, [op.op for op in shared if op.shard])
    return ShardPlan(
        perfci=VERSION,
        created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        commit=parse_commit(settings.root, "HEAD"),
        rules=hash_rules(base.rules), alpha=alpha_of(base.rules, request.thresholds),
        shards=shards, timer=request.timer, plan=whole,
        ops=tuple(dataclasses.replace(op, files=prints.get(op.op, "")) for op in shared),
        family=whole.family,
        seconds=round(sum(op.seconds for op in shared), 3),
        last=last.id if last else None,
    )  # fmt: skip


def _as_planned(described: Described, kind: str) -> Described:
    """The description, for devices of a kind that may be on another machine."""
    return Described(dataclasses.replace(described.device, kind=kind), described.ops)


def _choose_boards(wanted: str, kind: str, described: Described, sick: Sequence[str]) -> tuple[Board, ...]:
    """The host's devices that --devices names, of all of them those that are not put aside, unless all are.

    Raises UsageError for an unknown index, and one named twice.
    """
    names, aside = name_devices(os.environ, kind, described.visible), set(map(board_key, sick))
    if wanted == ONE or kind in UNTIMED or kind == AUTO or (wanted == ALL and len(names) < 2):
        return ()
    numbers = [*range(len(names))] if wanted == ALL else [int(number) for number in wanted.split(",")]
    if wanted == ALL:
        healthy = [number for number, uuid in enumerate(described.uuids[: len(names)]) if board_key(uuid) not in aside]
        numbers = healthy or numbers
    if missing := [number for number in numbers if number >= len(names)]:
        raise UsageError("devices_missing", index=missing[0], devices=len(names), known=", ".join(names))
    if len({*numbers}) < len(numbers):
        raise UsageError("devices_twice", devices=wanted)
    return tuple(Board(names[number]) for number in numbers)


def fingerprint_ops(settings: Settings, names: Sequence[str]) -> Mapping[str, str]:
    """Digests of the files of these ops."""
    tree = Tree(settings.root, settings.kernels)
    return {op: tree.fingerprint(op).digest for op in names}


def refuse_foreign_plan(settings: Settings, sharded: ShardPlan, request: Request) -> None:
    """Raise UsageError if a plan is not what `plan_shards` makes of this checkout and request, as far as files show.

    It was made where ops are imported, so that an op could have written it. Here nothing is imported.
    """
    plan, chosen = sharded.plan, [op.op for op in select(settings, request.ops)]
    refuse_difference(as_fact("op"), ", ".join(chosen), ", ".join(op.op for op in plan.ops))
    request = dataclasses.replace(request, seed=plan.seed, budget_s=plan.budget_s)
    with open_bench(settings, lambda _: None) as bench:
        experiment = Experiment.find(bench, request, "")
        rules, tree = experiment.base.rules, experiment.tree
        digest, planned = hash_rules(rules), _compare_files(tree, settings, plan.ops)
        kind = plan.device if request.device == AUTO else request.device
        whole = experiment.plan(Described(dataclasses.replace(UNKNOWN, kind=kind), planned))
    alpha = alpha_of(rules, request.thresholds)
    skips = whole.skip_unchanged and plan.skip_unchanged  # with --all more is measured than has to be
    whole = dataclasses.replace(whole, skip_unchanged=skips, boards=plan.boards, seed_given=plan.seed_given)
    shares, prints = {op.op: op for op in sharded.ops}, fingerprint_ops(settings, chosen)
    parts = []
    for op in whole.ops:
        part, needed = shares.get(op.op, ShardedOp(op.op, 0)), bool(cases_to_run(whole, op))
        skipped = whole.skip_unchanged and op.base is not None and op.base.same
        # Every suite has cases. An op for which the plan lists none has to be one of which nothing is measured.
        needed = needed or not (op.failure or skipped or whole.filter)
        files = prints[op.op] if needed else part.files
        parts.append(dataclasses.replace(part, shard=(part.shard or 1) * needed, files=files))
    commit = parse_commit(settings.root, "HEAD")
    here = dataclasses.replace(sharded, commit=commit, rules=digest, alpha=alpha, plan=whole, ops=tuple(parts))
    here = dataclasses.replace(here, family=whole.family)
    # As they are stored, where numbers have fewer digits.
    ours, theirs = (json.loads(encode(one, Path("plan.json"))) for one in (here, sharded))
    for difference in _list_differences(ours, theirs):
        refuse_difference(*difference)


def _list_differences(here: object, planned: object, place: str = "") -> Iterator[tuple[str, str, str]]:
    """Yields what differs in two trees of JSON, with its place: plan.base.commit."""
    if isinstance(here, dict) and isinstance(planned, dict):
        for name in here | planned:
            yield from _list_differences(here.get(name), planned.get(name), f"{place}.{name}".lstrip("."))
    elif isinstance(here, list) and isinstance(planned, list) and len(here) == len(planned):
        for number, pair in enumerate(zip(here, planned, strict=True)):
            yield from _list_differences(*pair, f"{place}.{number}")
    elif here != planned:
        yield place, str(here)[:LONGEST], str(planned)[:LONGEST]


def refuse_difference(what: str, given: str | None, planned: str | None) -> None:
    """Raise UsageError if something here is not as it was planned."""
    if given != planned:
        raise UsageError("shard_differs", what=what, found=given, planned=planned)


def share_out(plan: Plan, shards: int, last: Run | None = None) -> tuple[ShardedOp, ...]:
    """Each op with its shard and the seconds that it may take, in the plan's order. No shard if it needs no worker.

    Without times of a last run, cases take as long as others took, or the budget. The longest op is given to whichever
    shard has least so far (longest processing time first: at most 4/3 of the best makespan, Graham 1969).
    """
    seconds = estimate_seconds(plan, last)
    loads = dict.fromkeys(range(1, shards + 1), 0.0)
    given: dict[str, int] = {}
    for op in sorted(seconds, key=lambda op: (-seconds[op], op)):
        given[op] = min(loads, key=lambda shard: (loads[shard], shard))
        loads[given[op]] += seconds[op]
    return tuple(ShardedOp(op.op, given.get(op.op, 0), round(seconds.get(op.op, 0.0), 3)) for op in plan.ops)


def _compare_files(tree: BaseTree | None, settings: Settings, planned: Sequence[PlannedOp]) -> tuple[PlannedOp, ...]:
    """Planned ops with what files show of the base: whether it has the op, and which files differ. Imports nothing."""
    if tree is None:
        return tuple(dataclasses.replace(op, base=None) for op in planned)
    before = find_names(tree, settings, planned)
    prints = fingerprint_both(tree, settings, [op.op for op in planned if not op.failure], before)

    def compare(op: PlannedOp) -> PlannedBase | None:
        pair = prints.get(op.op)
        if pair is None or pair[0].same_as(pair[1]):
            return planned_base(op, pair, None, tree)
        changed = pair[0].changed_files(pair[1])
        lines = list_lines(changed, tree.settings.root, settings.root)
        base = op.base or PlannedBase()
        return dataclasses.replace(base, same=False, changed=changed, lines=lines, op=before.get(op.op))

    return tuple(dataclasses.replace(op, base=compare(op)) for op in planned)
