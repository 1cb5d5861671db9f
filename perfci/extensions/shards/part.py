"""One shard of a plan, measured here, or looked at again on another board, and the runs of all shards as one.

A shard takes other shards' p values for 1, so whatever it finds slower the whole run finds slower too.
"""

import dataclasses
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci import store
from perfci.core import VERSION, deadline, extensions
from perfci.core.errors import UsageError
from perfci.core.model.basics import Fact, Gate, Reason, Suite, as_fact
from perfci.core.model.decision import Judgements
from perfci.core.model.measured import OpRun, PerformanceCase
from perfci.core.model.place import Environment, board_key
from perfci.core.model.run import Plan, Run, Shard
from perfci.core.settings import Settings
from perfci.core.temporary import temporary_folder
from perfci.extensions.common.joining import add_findings, refuse_mixed
from perfci.extensions.shards.plans import (
    AUTO,
    CPU,
    FAKE,
    UNKNOWN,
    ShardPlan,
    copy_run,
    fingerprint_ops,
    refuse_difference,
)
from perfci.git.command import parse_commit
from perfci.judge.quarantine import TIMED, boards_of
from perfci.runs import base as base_stage
from perfci.runs.bench import BOARD, Bench, Listener, claim_bench, open_bench
from perfci.runs.boards import avoid_boards
from perfci.runs.decide import decide
from perfci.runs.experiment import Experiment, begin_run
from perfci.runs.plan import Request
from perfci.runs.record import join_limits
from perfci.store import launches

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


FOLDER = "shards"  # in the reports folder: shards/<number>/run.json of each shard that was measured here
CONFIRMED = "confirmed"  # the same of each shard that was looked at again on another board

RULES = as_fact("thresholds or baselines")


@dataclass(frozen=True)
class ShardPart:
    """One shard of a stored plan, as it was asked for."""

    sharded: ShardPlan
    plan: str  # SHA-256 of its file
    index: int
    count: int
    device: str = AUTO
    limit: deadline.JobLimit = deadline.NO_LIMIT  # the job's time limit

    @property
    def files(self) -> Mapping[str, str]:
        """Digests of the files of this shard's ops, by op."""
        return {op.op: op.files for op in self.sharded.ops if op.shard == self.index}


def check_shard(settings: Settings, part: ShardPart, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """Measure and judge a shard's ops by the families' sizes. Raises UsageError if the plan is not for what is here."""
    _refuse_other_checkout(settings, part)
    sharded = part.sharded
    ops, limit = tuple(op for op in sharded.plan.ops if op.op in part.files), part.limit
    plan = dataclasses.replace(sharded.plan, ops=ops, removed=(), shard_family=sharded.family)
    plan = dataclasses.replace(plan, deadline=limit.deadline, deadline_note=limit.note)
    shard = Shard(part.plan, part.index, part.count)
    with claim_bench(settings, listener) as bench:
        if plan.ops:
            experiment = _open_shard(bench, part, plan, command)
            experiment.clear()
            run, judgements = _measure_shard(experiment, part, plan, shard)
            # One of several on this host has one board alone.
            for groups in extensions.provided("groups") if not os.environ.get(BOARD) else ():
                run, judgements = groups.look_on(experiment, run, judgements)
        else:
            nowhere = dataclasses.replace(UNKNOWN, kind=plan.device)
            run, judgements = begin_run(settings, plan, nowhere, command), Judgements(())
        run = dataclasses.replace(run, shard=dataclasses.replace(shard, done=True))
        store.write_run(run, settings.reports)
        return run, judgements


def _refuse_other_checkout(settings: Settings, part: ShardPart) -> None:
    sharded = part.sharded
    if part.count != sharded.shards or not 1 <= part.index <= part.count:
        raise UsageError("shard_range", index=part.index, count=part.count, planned=sharded.shards)
    refuse_difference(as_fact("version of perfci"), VERSION, sharded.perfci)
    refuse_difference(as_fact("commit"), parse_commit(settings.root, "HEAD"), sharded.commit)
    for op, digest in fingerprint_ops(settings, [*part.files]).items():
        refuse_difference(as_fact("files"), f"op {op} {digest[:DIGITS]}", f"op {op} {part.files[op][:DIGITS]}")


def confirm_shards(
    settings: Settings, part: ShardPart, measured: Sequence[tuple[Run, Path]], command: str, listener: Listener
) -> Iterator[Reason]:
    """Take the later looks at what one board alone found slower again, on another one: all must agree to fail a case.

    part: of any index. Writes runs of shards into separate folders. `merge_shards` takes them if they come first.
    There is none of a shard if the board here is the same one, or if not all looks come to their end. Yields what was
    done, shard by shard.
    """
    shutil.rmtree(settings.reports / CONFIRMED, ignore_errors=True)
    sharded, count = part.sharded, part.sharded.shards
    blank = begin_run(settings, sharded.plan, dataclasses.replace(UNKNOWN, kind=sharded.plan.device), command)
    whole = merge(sharded, part.plan, [run for run, _ in measured], blank)
    boards = {(op.op, case.case): boards_of(case, whole) for op in whole.ops for case in op.performance}
    slow = [
        (row.op, row.case or "") for row in decide(whole, settings).rows
        if row.suite is Suite.PERFORMANCE and row.verdict in TIMED and row.verdict.gate is Gate.FAILS
    ]  # fmt: skip
    alone = {place: boards[place][0] for place in slow if len(boards.get(place, ())) == 1}
    for run, folder in measured:
        cases = {place for place in alone if place[0] in {op.op for op in run.ops}}
        if cases and run.shard:
            facts: dict[str, Fact] = {"shard": f"{run.shard.index}/{count}", "count": len(cases)}
            facts["board"] = alone[min(cases)]
            with temporary_folder("confirm") as beside:
                copy_run(folder, beside)
                first = _forget_later_looks(run, beside, cases)
                there = dataclasses.replace(part, index=run.shard.index)
                _refuse_other_checkout(settings, there)
                with open_bench(dataclasses.replace(settings, reports=beside), listener) as bench:
                    experiment = _open_shard(bench, there, first.plan, command)
                    again, _ = _measure_shard(experiment, there, first.plan, run.shard, first)
                looked = [case for op in again.ops for case in op.performance if (op.op, case.case) in cases]
                whole_looks = all(len(boards_of(case, again)) > 1 and not case.late for case in looked)
                kind = "confirm_same" if again is first else "confirmed" if whole_looks else "confirm_undone"
                if kind == "confirmed":
                    copy_run(beside, settings.reports / CONFIRMED / str(run.shard.index))
            yield Reason(kind, facts)


def _forget_later_looks(run: Run, folder: Path, cases: Collection[tuple[str, str]]) -> Run:
    """Returns a run, in its folder, with the first looks alone at these cases (op, case)."""

    def forget(op: str, case: PerformanceCase) -> PerformanceCase:
        if (op, case.case) not in cases:
            return case
        for process in {block.process for block in case.blocks} - {0}:
            launches.drop_launches(folder, op, process, [case.case])
        blocks = tuple(block for block in case.blocks if not block.process)
        return dataclasses.replace(case, blocks=blocks, host=tuple(block for block in case.host if not block.process))

    ops = (dataclasses.replace(op, performance=tuple(forget(op.op, case) for case in op.performance)) for op in run.ops)
    return dataclasses.replace(run, ops=tuple(ops))


def _open_shard(bench: Bench, part: ShardPart, plan: Plan, command: str) -> Experiment:
    """The experiment of a shard's plan. Raises UsageError if other rules count here."""
    # A worker opens whatever is here. Only a CPU or a fake device has to be asked for by name.
    kind = plan.device if plan.device in {CPU, FAKE} else AUTO
    request = Request(
        ops=tuple(op.op for op in plan.ops), pattern=plan.filter, suites=plan.suites, duel=plan.duel,
        device=kind if part.device == AUTO else part.device, timer=part.sharded.timer,
        budget_s=plan.budget_s, seed=plan.seed, deadline=part.limit.deadline,
    )  # fmt: skip
    tree = base_stage.write_base(bench, plan.base) if plan.base else None
    experiment = Experiment.beside(bench, request, command, tree)
    refuse_difference(RULES, bench.sealed[experiment.base.rules.root][:DIGITS], part.sharded.rules[:DIGITS])
    return experiment


def _measure_shard(
    experiment: Experiment, part: ShardPart, plan: Plan, shard: Shard, earlier: Run | None = None
) -> tuple[Run, Judgements]:
    """Measure a shard, or what an earlier run of it lacks, on another board if there is one."""
    bench = experiment.bench
    # The plan has what the base has of each op: it need not be described again.
    described = dataclasses.replace(experiment, base=dataclasses.replace(experiment.base, tree=None)).describe()
    used = [earlier.environment.device.uuid or ""] if earlier else []
    avoid_boards(bench, described, (*plan.put_aside, *used))
    refuse_difference(as_fact("device"), described.device.kind, plan.device)
    here, planned = {op.op: op for op in described.ops}, []
    for op in plan.ops:
        other = here[op.op]
        differing = sorted({*op.accuracy, *op.performance} ^ {*other.accuracy, *other.performance})
        if differing and not other.failure:  # an op that does not import here is a separate ERROR
            refuse_difference(as_fact("cases"), f"{op.op} {differing[0]}", None)
        planned.append(dataclasses.replace(op, failure=other.failure))
    plan = dataclasses.replace(plan, ops=tuple(planned), devices=described.devices)
    run = dataclasses.replace(experiment.begin(plan, described.device), shard=shard)
    experiment = dataclasses.replace(experiment, request=dataclasses.replace(experiment.request, device=plan.device))
    if earlier:
        timed = dataclasses.replace(run.environment, timer=earlier.environment.timer)
        refuse_mixed([earlier, dataclasses.replace(run, environment=timed)])
        if not bench.boards and board_key(described.device.uuid or "") in map(board_key, used):
            return earlier, Judgements(())
        earlier = dataclasses.replace(earlier, plan=dataclasses.replace(earlier.plan, devices=described.devices))
        return experiment.settle(earlier)
    seconds = {op.op: op.seconds for op in part.sharded.ops}
    times = deadline.Timetable(seconds, known=part.sharded.last is not None)
    return experiment.settle(experiment.record(run, times))
