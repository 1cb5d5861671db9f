"""From the runs of a plan's shards to one run. Pure, and strict: a shard without a complete result is an ERROR."""

import dataclasses
from collections.abc import Sequence

from perfci.core.errors import UsageError
from perfci.core.model import Environment, Fact, OpRun, Reason, Run, Shard, as_fact
from perfci.extensions.common.joining import add_findings, refuse_mixed
from perfci.extensions.shards.files import ShardPlan
from perfci.runs.record import join_limits

DIGITS = 12  # digits of a digest in a sentence


def merge(sharded: ShardPlan, plan: str, runs: Sequence[Run], blank: Run) -> Run:
    """Returns one run of the plan. plan: SHA-256 of plan.json. blank: a fresh run, for what no shard has.

    Raises UsageError for a run that is no shard of this plan, for runs with times that cannot be compared, and for two
    different runs of one shard. Of a run that is given twice the first one counts.
    """
    by_shard: dict[int, Run] = {}
    for run in runs:
        index = _refuse_foreign(sharded, plan, run).index
        other = by_shard.setdefault(index, run)
        if other.id != run.id:
            raise UsageError("merge_two_runs", shard=f"{index}/{sharded.shards}", first=other.id, run=run.id)
    shards = dict(sorted(by_shard.items()))
    measured = [run for run in shards.values() if run.ops]
    refuse_mixed(measured)
    several = len({run.environment.device.uuid for run in measured}) > 1
    op_runs = {op.op: _name_board(op, run) if several else op for run in measured for op in run.ops}
    given, lost = {op.op: op.shard for op in sharded.ops}, dict[int, Reason]()
    for number in range(1, sharded.shards + 1):
        names, part = {op for op in given if given[op] == number}, shards.get(number)
        facts: dict[str, Fact] = {"shard": f"{number}/{sharded.shards}", "ops": len(names)}
        if part is None:
            lost[number] = Reason("shard_missing", facts)
        elif part.shard is None or not part.shard.done or names - {op.op for op in part.ops}:
            lost[number] = Reason("shard_unfinished", {**facts, "run": part.id, "signal": part.stopped})
    ran = [
        op_runs.get(op.op) or OpRun(op.op, failure=op.failure or lost.get(given.get(op.op, 0)))
        for op in sharded.plan.ops
    ]
    # Each job has its time limit. The one that ends first counts.
    deadlines = [run.plan.deadline for run in shards.values() if run.plan.deadline]
    deadline = min(deadlines, key=lambda limit: limit.until, default=None)
    longest = max(shards.values(), key=lambda run: run.took_s or 0.0, default=None)  # they ran side by side
    note = next((run.plan.deadline_note for run in shards.values() if run.plan.deadline_note), None)
    boards = (
        dataclasses.replace(board, uuid=shards[number].environment.device.uuid if number in shards else None)
        for number, board in enumerate(sharded.plan.boards, 1)
    )
    ops = tuple(add_findings(op, measured) for op in sharded.plan.ops)
    whole = dataclasses.replace(sharded.plan, boards=tuple(boards), ops=ops, deadline=deadline, deadline_note=note)
    return dataclasses.replace(
        blank,
        environment=_join_environments([run.environment for run in measured], blank.environment),
        plan=whole,
        ops=tuple(sorted(ran, key=lambda op: op.op)),
        limits=join_limits([run.limits for run in shards.values()]),
        stopped=next((run.stopped for run in shards.values() if run.stopped), None),
        wall_s=longest.wall_s if longest else None,
        spent_s=longest.spent_s if longest else {},
        missing=tuple(lost.values()),
    )


def _refuse_foreign(sharded: ShardPlan, plan: str, run: Run) -> Shard:
    shard = run.shard
    if shard is None:
        raise UsageError("merge_no_shard", run=run.id)
    given = {op.op for op in sharded.ops if op.shard == shard.index}
    foreign = sorted({*(op.op for op in run.ops), *(op.op for op in run.plan.ops)} - given)
    in_range = shard.count == sharded.shards and 1 <= shard.index <= sharded.shards
    expected: tuple[tuple[str, object, object], ...] = (
        (as_fact("format"), run.format, sharded.format),
        (as_fact("plan"), shard.plan[:DIGITS], plan[:DIGITS]),
        (as_fact("shard"), f"{shard.index}/{shard.count}", f"{shard.index if in_range else 1}/{sharded.shards}"),
        (as_fact("commit"), run.environment.commit, sharded.commit),
        (as_fact("version of perfci"), run.perfci, sharded.perfci),
        (as_fact("kind of device"), run.environment.device.kind, sharded.plan.device),
        (as_fact("op"), *((foreign[0], ", ".join(sorted(given)) or "-") if foreign else (None, None))),
    )
    for what, here, planned in expected:
        if here != planned:
            raise UsageError("merge_foreign", run=run.id, what=what, found=str(here), planned=str(planned))
    return shard


def _name_board(op: OpRun, run: Run) -> OpRun:
    """Returns an op in which all blocks name their board, since the merged run has several."""
    board = run.environment.device.uuid
    cases = []
    for case in op.performance:
        blocks = (block if block.board else dataclasses.replace(block, board=board) for block in case.blocks)
        cases.append(dataclasses.replace(case, blocks=tuple(blocks)))
    return dataclasses.replace(op, performance=tuple(cases))


def _join_environments(environments: Sequence[Environment], blank: Environment) -> Environment:
    """Returns the environment of the first shard that timed anything, without a board if there are several."""
    if not environments:
        return blank
    first = next((environment for environment in environments if environment.timer), environments[0])
    boards = {environment.device.uuid for environment in environments}
    device = first.device if len(boards) == 1 else dataclasses.replace(first.device, uuid=None)
    hosts = ", ".join(dict.fromkeys(environment.host for environment in environments))
    return dataclasses.replace(
        first, device=device, host=hosts, dirty=any(environment.dirty for environment in environments)
    )
