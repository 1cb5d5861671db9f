"""From the runs of a plan's shards to one run, which is judged as if nobody had shared it out. Pure, and strict.

A shard without a whole result never makes the report shorter: what it had to measure is an ERROR, and so is the shard.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from perfci.core.environment import list_differences, unmixable
from perfci.core.errors import UsageError
from perfci.core.model import (
    Environment,
    Fact,
    Joined,
    Limits,
    OpRun,
    PlannedOp,
    Reason,
    Run,
    Shard,
    ShardPlan,
)

DIGITS = 12
"""Of a digest in a sentence."""


def merge(sharded: ShardPlan, plan: str, runs: Sequence[Run], blank: Run) -> Run:
    """One run of the whole plan.

    `plan` is the SHA-256 of plan.json; `blank` a fresh run with its id, command and date, whose environment stands if
    no shard measured anything. Raises UsageError for a run that is none of this plan's shards, was made by another
    perfci, at another commit, on another device model, with another timer or in another environment than the others,
    for ops that its shard was not given, and for two different runs of one shard. One given twice counts once.
    """
    by_shard: dict[int, Run] = {}
    for run in runs:
        index = _refuse_foreign(sharded, plan, run).index
        other = by_shard.setdefault(index, run)
        if other.id != run.id:
            raise UsageError("merge_two_runs", shard=f"{index}/{sharded.shards}", first=other.id, run=run.id)
    shards = dict(sorted(by_shard.items()))
    measured = [run for run in shards.values() if run.ops]
    _refuse_mixed(measured)
    found = {op.op: (op, run) for run in shards.values() for op in run.ops}
    numbers = range(1, sharded.shards + 1)
    lost = {number: why for number in numbers if (why := _find_loss(number, sharded, shards.get(number)))}
    given = {each.op: each.shard for each in sharded.ops}
    ran = [
        found[op.op][0] if op.op in found else OpRun(op.op, failure=op.failure or lost.get(given.get(op.op, 0)))
        for op in sharded.plan.ops
    ]
    ops = tuple(_add_findings(op, found[op.op][1]) if op.op in found else op for op in sharded.plan.ops)
    # Each job has its own time limit; the first that a shard reached counts.
    deadlines = [run.plan.deadline for run in shards.values() if run.plan.deadline]
    whole = dataclasses.replace(
        sharded.plan,
        ops=ops,
        deadline=min(deadlines, key=lambda limit: limit.until, default=None),
        deadline_note=next((run.plan.deadline_note for run in shards.values() if run.plan.deadline_note), None),
    )
    return dataclasses.replace(
        blank,
        environment=_join_environments([run.environment for run in measured], blank.environment),
        plan=whole,
        ops=tuple(sorted(ran, key=lambda op: op.op)),
        limits=join_limits([run.limits for run in shards.values()]),
        stopped=next((run.stopped for run in shards.values() if run.stopped), None),
        wall_s=max((run.wall_s or 0.0 for run in shards.values()), default=None),
        joined=tuple(_describe(number, run) for number, run in shards.items()),
        missing=tuple(lost.values()),
    )


def join_limits(found: Sequence[Limits]) -> Limits:
    """Ceilings measured in several parts: the bandwidth measured first stands; rates are added by dtype."""
    rates: Mapping[str, float] = {dtype: rate for each in reversed(found) for dtype, rate in each.matmul_tflops.items()}
    return Limits(next((each.copy_gbps for each in found if each.copy_gbps is not None), None), rates)


def _refuse_foreign(sharded: ShardPlan, plan: str, run: Run) -> Shard:
    shard = run.shard
    if shard is None:
        raise UsageError("merge_no_shard", run=run.id)
    if run.format != sharded.format:
        raise UsageError("merge_format", run=run.id, found=run.format, planned=sharded.format)
    if shard.plan != plan:
        raise UsageError("merge_plan", run=run.id, found=shard.plan[:DIGITS], planned=plan[:DIGITS])
    if shard.count != sharded.shards or not 1 <= shard.index <= sharded.shards:
        found = f"{shard.index}/{shard.count}"
        raise UsageError("merge_shard_number", run=run.id, found=found, planned=sharded.shards)
    if run.environment.commit != sharded.commit:
        raise UsageError("merge_commit", run=run.id, found=run.environment.commit, planned=sharded.commit)
    if run.perfci != sharded.perfci:
        raise UsageError("merge_version", run=run.id, found=run.perfci, planned=sharded.perfci)
    kind = run.environment.device.kind
    if kind != sharded.plan.device:
        raise UsageError("merge_kind", run=run.id, found=kind, planned=sharded.plan.device)
    given = {each.op for each in sharded.ops if each.shard == shard.index}
    if foreign := sorted({*(op.op for op in run.ops), *(op.op for op in run.plan.ops)} - given):
        name = f"{shard.index}/{sharded.shards}"
        raise UsageError("merge_foreign_op", run=run.id, op=foreign[0], shard=name)
    return shard


def _refuse_mixed(runs: Sequence[Run]) -> None:
    """Boards of one model may differ. All else that may move a number may not."""
    for run in runs[1:]:
        found, other = run.environment.device.key, runs[0].environment.device.key
        if found != other:
            raise UsageError("merge_device", run=run.id, first=runs[0].id, found=found, other=other)
    timed = [run for run in runs if run.environment.timer]
    for run in timed[1:]:
        first, ours, theirs = timed[0], run.environment, timed[0].environment
        if ours.timer != theirs.timer:
            raise UsageError("merge_timer", run=run.id, first=first.id, found=ours.timer, other=theirs.timer)
        if apart := unmixable(theirs, ours):
            raise UsageError("merge_environment", run=run.id, first=first.id, fields=list_differences(apart))


def _find_loss(number: int, sharded: ShardPlan, run: Run | None) -> Reason | None:
    """Why a shard is not whole."""
    given = {each.op for each in sharded.ops if each.shard == number}
    facts: dict[str, Fact] = {"shard": f"{number}/{sharded.shards}", "ops": len(given)}
    if run is None:
        return Reason("shard_missing", facts)
    if run.shard is None or not run.shard.done or given - {op.op for op in run.ops}:
        return Reason("shard_unfinished", {**facts, "run": run.id, "signal": run.stopped})
    return None


def _add_findings(planned: PlannedOp, run: Run) -> PlannedOp:
    """The op as it was planned, with what only its run could find out: that it does not import, or needs processes."""
    ran = next((op for op in run.plan.ops if op.op == planned.op), planned)
    base, apart = planned.base, ran.base.apart if ran.base else None
    base = dataclasses.replace(base, apart=apart) if base and apart else base
    return dataclasses.replace(planned, failure=planned.failure or ran.failure, base=base)


def _join_environments(found: Sequence[Environment], blank: Environment) -> Environment:
    """The first shard's that timed anything; of several boards none is named, and all hosts are."""
    if not found:
        return blank
    first = next((each for each in found if each.timer), found[0])
    boards = {each.device.uuid for each in found}
    device = first.device if len(boards) == 1 else dataclasses.replace(first.device, uuid=None)
    hosts = ", ".join(dict.fromkeys(each.host for each in found))
    return dataclasses.replace(first, device=device, host=hosts, dirty=any(each.dirty for each in found))


def _describe(number: int, run: Run) -> Joined:
    several = ", ".join(board.uuid for board in run.plan.boards if board.uuid)
    board = (several or run.environment.device.uuid) if run.ops else None
    return Joined(number, run.id, run.environment.host, board, run.wall_s)
