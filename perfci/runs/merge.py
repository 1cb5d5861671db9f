"""From the runs of a plan's shards to one run, which is judged as if nobody had shared it out: pure, and picky.

A shard that gave no result, or no whole one, is no shorter report: what it was to measure is an ERROR, and so is it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from perfci.core.environment import mixed, told
from perfci.core.errors import UsageError
from perfci.core.model import (
    Environment,
    Fact,
    Joined,
    Limits,
    OpRun,
    Plan,
    PlannedBase,
    PlannedOp,
    Reason,
    Run,
    Shard,
    ShardPlan,
)

__all__ = ["merge"]

DIGITS = 12
"""Of a digest in a sentence."""


def merge(sharded: ShardPlan, plan: str, runs: Sequence[Run], blank: Run) -> Run:
    """One run of the whole plan.

    `plan` is the SHA-256 of plan.json; `blank` a fresh run with its id, command and date, whose environment stands
    where no shard measured anything. Raises UsageError for a run that is none of this plan's shards, was made by
    another perfci, at another commit, on another device model, with another timer or in another environment than the
    others, for ops that its shard was not given, and for two different runs of one shard; one given twice counts once.
    """
    shards = _by_shard(sharded, plan, runs)
    _refuse_mixed([run for run in shards.values() if run.ops])
    found = {op.op: (op, run) for run in shards.values() for op in run.ops}
    lost = {number: reason for number in _numbers(sharded) if (reason := _lost(number, sharded, shards.get(number)))}
    given = {each.op: each.shard for each in sharded.ops}
    ran = [
        found[op.op][0] if op.op in found else OpRun(op.op, failure=op.failure or lost.get(given.get(op.op, 0)))
        for op in sharded.plan.ops
    ]
    ops = tuple(_as_run(op, found[op.op][1]) if op.op in found else op for op in sharded.plan.ops)
    return dataclasses.replace(
        blank,
        environment=_environment([run.environment for run in shards.values() if run.ops], blank.environment),
        plan=_timed(dataclasses.replace(sharded.plan, ops=ops), [run.plan for run in shards.values()]),
        ops=tuple(sorted(ran, key=lambda op: op.op)),
        limits=_limits([run.limits for run in shards.values()]),
        stopped=next((run.stopped for run in shards.values() if run.stopped), None),
        wall_s=max((run.wall_s or 0.0 for run in shards.values()), default=None),
        joined=tuple(_joined(number, shards[number]) for number in sorted(shards)),
        missing=tuple(lost[number] for number in sorted(lost)),
    )


def _numbers(sharded: ShardPlan) -> range:
    return range(1, sharded.shards + 1)


# --- what is refused --------------------------------------------------------------------------------------------------


def _by_shard(sharded: ShardPlan, plan: str, runs: Sequence[Run]) -> Mapping[int, Run]:
    """Each run by its shard's number."""
    found: dict[int, Run] = {}
    for run in runs:
        shard = _checked(sharded, plan, run)
        other = found.setdefault(shard.index, run)
        if other.id != run.id:
            raise UsageError("merge_two_runs", shard=_name(shard.index, sharded), first=other.id, run=run.id)
    return dict(sorted(found.items()))


def _checked(sharded: ShardPlan, plan: str, run: Run) -> Shard:
    shard = run.shard
    if shard is None:
        raise UsageError("merge_no_shard", run=run.id)
    if run.format != sharded.format:
        raise UsageError("merge_format", run=run.id, found=run.format, planned=sharded.format)
    if shard.plan != plan:
        raise UsageError("merge_plan", run=run.id, found=shard.plan[:DIGITS], planned=plan[:DIGITS])
    if shard.count != sharded.shards or shard.index not in _numbers(sharded):
        found = f"{shard.index}/{shard.count}"
        raise UsageError("merge_shard_number", run=run.id, found=found, planned=sharded.shards)
    if run.environment.commit != sharded.commit:
        raise UsageError("merge_commit", run=run.id, found=run.environment.commit, planned=sharded.commit)
    if run.perfci != sharded.perfci:
        raise UsageError("merge_version", run=run.id, found=run.perfci, planned=sharded.perfci)
    if run.environment.device.kind != sharded.plan.device:
        found = run.environment.device.kind
        raise UsageError("merge_kind", run=run.id, found=found, planned=sharded.plan.device)
    given = {each.op for each in sharded.ops if each.shard == shard.index}
    if foreign := sorted({*(op.op for op in run.ops), *(op.op for op in run.plan.ops)} - given):
        raise UsageError("merge_foreign_op", run=run.id, op=foreign[0], shard=_name(shard.index, sharded))
    return shard


def _refuse_mixed(runs: Sequence[Run]) -> None:
    """Boards of one model may differ; all else that may move a number may not."""
    for run in runs[1:]:
        first = runs[0]
        ours, theirs = run.environment, first.environment
        if ours.device.key != theirs.device.key:
            found, other = ours.device.key, theirs.device.key
            raise UsageError("merge_device", run=run.id, first=first.id, found=found, other=other)
    timed = [run for run in runs if run.environment.timer]
    for run in timed[1:]:
        first = timed[0]
        if run.environment.timer != first.environment.timer:
            timers = {"found": run.environment.timer, "other": first.environment.timer}
            raise UsageError("merge_timer", run=run.id, first=first.id, **timers)
        if apart := mixed(first.environment, run.environment):
            raise UsageError("merge_environment", run=run.id, first=first.id, fields=told(apart))


# --- what is joined ---------------------------------------------------------------------------------------------------


def _lost(number: int, sharded: ShardPlan, run: Run | None) -> Reason | None:
    """Why a shard is not whole."""
    given = {each.op for each in sharded.ops if each.shard == number}
    facts: dict[str, Fact] = {"shard": _name(number, sharded), "ops": len(given)}
    if run is None:
        return Reason("shard_missing", facts)
    if run.shard is None or not run.shard.done or given - {op.op for op in run.ops}:
        return Reason("shard_unfinished", {**facts, "run": run.id, "signal": run.stopped})
    return None


def _name(number: int, sharded: ShardPlan) -> str:
    return f"{number}/{sharded.shards}"


def _as_run(planned: PlannedOp, run: Run) -> PlannedOp:
    """The op as it was planned, with what only its run could find out: that it does not import, or needs processes."""
    ran = next((op for op in run.plan.ops if op.op == planned.op), planned)
    return dataclasses.replace(planned, failure=planned.failure or ran.failure, base=_base(planned.base, ran.base))


def _base(planned: PlannedBase | None, ran: PlannedBase | None) -> PlannedBase | None:
    apart = ran.apart if ran else None
    return dataclasses.replace(planned, apart=apart) if planned and apart else planned


def _environment(found: Sequence[Environment], blank: Environment) -> Environment:
    """The first shard's that timed anything; of several boards none is named, and all hosts are."""
    if not found:
        return blank
    first = next((each for each in found if each.timer), found[0])
    boards = {each.device.uuid for each in found}
    device = first.device if len(boards) == 1 else dataclasses.replace(first.device, uuid=None)
    hosts = ", ".join(dict.fromkeys(each.host for each in found))
    return dataclasses.replace(first, device=device, host=hosts, dirty=any(each.dirty for each in found))


def _timed(plan: Plan, found: Sequence[Plan]) -> Plan:
    """With the time limit that a shard reached first, and what was ignored of one; each job has its own."""
    limits = [each.deadline for each in found if each.deadline]
    return dataclasses.replace(
        plan,
        deadline=min(limits, key=lambda limit: limit.until, default=None),
        deadline_note=next((each.deadline_note for each in found if each.deadline_note), None),
    )


def _limits(found: Sequence[Limits]) -> Limits:
    """The bandwidth measured first stands; rates are added by dtype."""
    rates = {dtype: rate for each in reversed(found) for dtype, rate in each.matmul_tflops.items()}
    return Limits(next(_bandwidths(found), None), rates)


def _bandwidths(found: Sequence[Limits]) -> Iterator[float]:
    return (each.copy_gbps for each in found if each.copy_gbps is not None)


def _joined(number: int, run: Run) -> Joined:
    several = ", ".join(board.uuid for board in run.plan.boards if board.uuid)
    board = (several or run.environment.device.uuid) if run.ops else None
    return Joined(number, run.id, run.environment.host, board, run.wall_s)
