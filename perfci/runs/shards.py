"""A plan whose ops are shared out over several runners, each one's part, and all parts joined and judged at once.

A shard knows the size of the families that its cases belong to, and nothing of the others' p values. It counts those as
1, which is what they are at most, so that whatever it finds slower the whole run finds slower too.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import perfci
from perfci import git, store
from perfci.core import deadline
from perfci.core.errors import MissingPackageError, UsageError
from perfci.core.model import Device, Judgements, Plan, PlannedBase, PlannedOp, Reason, Run, Shard, ShardPlan, Suite
from perfci.core.settings import Settings
from perfci.ops.discover import OpFolder, ops, select
from perfci.ops.fingerprint.tree import Tree
from perfci.runs import base as base_stage
from perfci.runs import plan
from perfci.runs.base import BaseTree
from perfci.runs.bench import LOGS, Bench, Listener, claim_bench, open_bench
from perfci.runs.decide import decide, rules_digest
from perfci.runs.describe import describe_ops, find_violation, open_boards
from perfci.runs.effective_thresholds import alpha_of, refuse_looser
from perfci.runs.flow import settle
from perfci.runs.merge import DIGITS, merge
from perfci.runs.plan import Against, Request
from perfci.runs.record import Recorder, new_run
from perfci.store import launches
from perfci.store.launches import join_launches

AUTO, CPU, FAKE = "auto", "cpu", "fake"

WHOLE = frozenset({Suite.ACCURACY, Suite.PERFORMANCE})


@dataclass(frozen=True)
class PlanOptions:
    """What the user asked for beside what a check takes."""

    shards: int = 1
    last: Run | None = None
    """by whose times the shards are balanced"""
    every: bool = False
    """--all: what is unchanged is measured too"""


@dataclass(frozen=True)
class ShardPart:
    """One shard of a stored plan, as it was asked for."""

    sharded: ShardPlan
    plan: str
    """SHA-256 of its file"""
    index: int
    count: int
    device: str = AUTO
    devices: str | None = None
    """--devices"""
    limit: deadline.JobLimit = deadline.NO_LIMIT
    """the job's time limit"""

    @property
    def files(self) -> Mapping[str, str]:
        """Op -> digest of its files, of this shard's ops."""
        return {each.op: each.files for each in self.sharded.ops if each.shard == self.index}


# --- the plan ---------------------------------------------------------------------------------------------------------


def plan_shards(settings: Settings, request: Request, options: PlanOptions, listener: Listener) -> ShardPlan:
    """What all shards together will measure, and which measures what.

    Nothing is imported if the files of all ops are the base's own. Raises UsageError for a request that comes to
    nothing, and MissingPackageError if ops have to be imported and torch is not installed.
    """
    with open_bench(settings, listener) as bench:
        found = base_stage.find(bench, request)
        tree = found if isinstance(found, BaseTree) else None
        against = base_stage.make_against(found, ops(settings), request)
        rules = base_stage.choose_rules(against.base, tree, settings)
        alpha = alpha_of(rules, request.thresholds)
        planned, kind = _plan_ops(bench, request, options, tree, against)
        whole = plan.make_plan(request, planned, kind, against, alpha)
        if options.every:
            whole = dataclasses.replace(whole, skip_unchanged=False)
    shared = plan.share_out(whole, options.shards, options.last)
    prints = _fingerprint(settings, [each.op for each in shared if each.shard])
    return ShardPlan(
        perfci=perfci.__version__,
        created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        commit=_commit_of(settings),
        rules=base_stage.hash_rules(rules),
        alpha=alpha,
        shards=options.shards,
        timer=request.timer,
        plan=whole,
        ops=tuple(dataclasses.replace(each, files=prints.get(each.op, "")) for each in shared),
        family=whole.family,
        seconds=round(sum(each.seconds for each in shared), 3),
        last=options.last.id if options.last else None,
    )


def _plan_ops(
    bench: Bench, request: Request, options: PlanOptions, tree: BaseTree | None, against: Against
) -> tuple[Sequence[PlannedOp], str]:
    """The ops with their cases, and the kind of device that they are planned for."""
    last, chosen = options.last, select(bench.settings, request.ops)
    kind = last.plan.device if last and request.device == AUTO else request.device
    # Peers are timed of every case, and only importing the ops shows which they have.
    files_suffice = against.skips and not options.every and not request.peers and request.pattern is None
    if tree and files_suffice and _all_unchanged(bench.settings, chosen, tree):
        before = _list_ops(tree, last) if last else {}
        return [_unchanged_op(op.op, before.get(op.op)) for op in chosen], kind
    # Only importing ops shows their cases. Without an accelerator torch's CPU build will do.
    if kind != FAKE and importlib.util.find_spec("torch") is None:
        raise MissingPackageError("plan_needs_torch", ops=", ".join(op.op for op in chosen[:5]), count=len(chosen))
    described = describe_ops(bench, dataclasses.replace(request, device=FAKE if kind == FAKE else AUTO))
    found = base_stage.plan_ops(bench, tree, request, described.ops) if tree else described.ops
    return found, described.device.kind if kind == AUTO else kind


def _all_unchanged(settings: Settings, chosen: Sequence[OpFolder], tree: BaseTree) -> bool:
    return base_stage.are_unchanged(tree, settings, [op.op for op in chosen]) and not any(map(find_violation, chosen))


def _list_ops(tree: BaseTree, last: Run) -> Mapping[str, PlannedOp]:
    """The ops that a run of the very base had planned with all of their cases."""
    where, planned = last.environment, last.plan
    if where.dirty or where.commit != tree.base.commit or planned.filter is not None or {*planned.suites} != WHOLE:
        return {}
    return {op.op: op for op in planned.ops if not (op.failure or op.unlisted)}


def _unchanged_op(op: str, before: PlannedOp | None) -> PlannedOp:
    """An op whose files are the base's own. Its cases are those of the last run, if that was one of the base."""
    if before is None:
        return PlannedOp(op, base=PlannedBase(same=True), unlisted=True)
    base = PlannedBase(same=True, performance=before.performance, cache=before.cache)
    return dataclasses.replace(before, base=base, audit=())


def _fingerprint(settings: Settings, names: Sequence[str]) -> Mapping[str, str]:
    tree = Tree(settings.root, settings.kernels)
    return {op: tree.fingerprint(op).digest for op in names}


def _commit_of(settings: Settings) -> str | None:
    here = git.read(settings.root)
    return None if isinstance(here, Reason) else here.commit


# --- one shard --------------------------------------------------------------------------------------------------------


def check_shard(settings: Settings, part: ShardPart, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """Measure a shard's ops, and fetch what the judge lacks by the families' sizes. The run is saved after each op.

    A shard without ops starts no worker. Raises UsageError if the plan is not of what is here, naming both.
    """
    _refuse_another_plan(settings, part)
    sharded = part.sharded
    mine = dataclasses.replace(
        sharded.plan,
        ops=tuple(op for op in sharded.plan.ops if op.op in part.files),
        removed=(),
        shard_family=sharded.family,
        deadline=part.limit.deadline,
        deadline_note=part.limit.note,
    )
    shard = Shard(part.plan, part.index, part.count)
    with claim_bench(settings, listener) as bench:
        shutil.rmtree(settings.reports / LOGS, ignore_errors=True)
        launches.clear_launches(settings.reports)
        if mine.ops:
            run, judgements = _measure_shard(bench, part, mine, shard, command)
        else:
            nowhere = Device(mine.device, "no device", "none")
            run, judgements = new_run(settings, mine, nowhere, command), Judgements(())
        run = dataclasses.replace(run, shard=dataclasses.replace(shard, done=True))
        store.write_run(run, settings.reports)
        return run, judgements


def _measure_shard(bench: Bench, part: ShardPart, mine: Plan, shard: Shard, command: str) -> tuple[Run, Judgements]:
    settings = bench.settings
    # A worker opens whatever is here. Only a CPU or a fake device has to be asked for by name.
    kind = mine.device if mine.device in {CPU, FAKE} else AUTO
    request = Request(
        ops=tuple(op.op for op in mine.ops),
        pattern=mine.filter,
        device=kind if part.device == AUTO else part.device,
        budget_s=mine.budget_s,
        seed=mine.seed,
        timer=part.sharded.timer,
        suites=mine.suites,
        duel=mine.duel,
        devices=part.devices,
        deadline=part.limit.deadline,
    )
    found = describe_ops(bench, request)
    if found.device.kind != mine.device:
        raise UsageError("shard_device", planned=mine.device, found=found.device.kind)
    boards = open_boards(bench, request, found)
    mine = dataclasses.replace(mine, ops=_refuse_other_cases(mine, found.ops), devices=found.devices, boards=boards)
    tree = base_stage.write_base(bench, mine.base) if mine.base else None
    if isinstance(tree, Reason):
        raise UsageError(tree.kind, **tree.facts)
    rules = base_stage.choose_rules(mine.base, tree, settings)
    _refuse_other_rules(part.sharded, base_stage.hash_rules(rules))
    request = dataclasses.replace(request, device=mine.device)
    run = dataclasses.replace(new_run(settings, mine, found.device, command), shard=shard)
    refuse_looser(mine, rules, run.environment, run.created)
    seconds = {each.op: each.seconds for each in part.sharded.ops}
    run = Recorder(bench, request, run, tree, seconds=seconds).record()
    return settle(bench, request, run, tree)


def _refuse_other_cases(mine: Plan, found: Sequence[PlannedOp]) -> tuple[PlannedOp, ...]:
    """The planned ops. One that does not import here is an ERROR of its own, one with other cases is refused."""
    here = {op.op: op for op in found}
    for op in mine.ops:
        other = here[op.op]
        if other.failure is None and (other.accuracy, other.performance) != (op.accuracy, op.performance):
            counts = {"planned": len(op.accuracy + op.performance), "found": len(other.accuracy + other.performance)}
            differing = sorted({*op.accuracy, *op.performance} ^ {*other.accuracy, *other.performance})
            raise UsageError("shard_cases", op=op.op, case=differing[0] if differing else None, **counts)
    return tuple(dataclasses.replace(op, failure=here[op.op].failure) for op in mine.ops)


def _refuse_another_plan(settings: Settings, part: ShardPart) -> None:
    sharded, kind = part.sharded, part.sharded.plan.device
    if part.count != sharded.shards:
        raise UsageError("shard_count", found=part.count, planned=sharded.shards)
    if not 1 <= part.index <= part.count:
        raise UsageError("shard_range", index=part.index, count=part.count)
    if perfci.__version__ != sharded.perfci:
        raise UsageError("shard_version", found=perfci.__version__, planned=sharded.perfci)
    if (commit := _commit_of(settings)) != sharded.commit:
        raise UsageError("shard_commit", found=commit, planned=sharded.commit)
    if part.device not in {AUTO, kind}:
        raise UsageError("shard_device", planned=kind, found=part.device)
    prints = _fingerprint(settings, [*part.files])
    for op, files in part.files.items():
        if prints[op] != files:
            raise UsageError("shard_files", op=op, found=prints[op][:DIGITS], planned=files[:DIGITS])


def _refuse_other_rules(sharded: ShardPlan, digest: str) -> None:
    if digest != sharded.rules:
        raise UsageError("shard_rules", found=digest[:DIGITS], planned=sharded.rules[:DIGITS])


# --- all of them ------------------------------------------------------------------------------------------------------


def merge_shards(
    settings: Settings, sharded: ShardPlan, digest: str, found: Sequence[tuple[Run, Path]], command: str
) -> tuple[Run, Judgements]:
    """One run of the whole plan, stored with its launches in the reports folder, and judged.

    `digest` is the SHA-256 of plan.json; `found` the shards' runs with the folders of their launches. Raises UsageError
    for runs that are none of its shards, as `merge.merge` does, and if other thresholds or baselines judge than those
    that the shards knew.
    """
    blank = new_run(settings, sharded.plan, Device(sharded.plan.device, "no device", "none"), command)
    run = merge(sharded, digest, [run for run, _ in found], blank)
    _refuse_other_rules(sharded, rules_digest(run, settings))
    with store.claim_reports(settings.reports):
        store.write_run(run, settings.reports)
        join_launches(settings.reports, {run.id: folder for run, folder in found}.values())
    return run, decide(run, settings)
