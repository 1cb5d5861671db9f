"""A check that several runners or devices share: one plan, a shard for each, and all shards joined and judged at once.

A shard takes other shards' p values for 1, so whatever it finds slower the whole run finds slower too.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perfci import store
from perfci.core import VERSION, deadline
from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import (
    UNTIMED,
    Device,
    Fact,
    Gate,
    Judgements,
    PerformanceCase,
    Plan,
    PlannedOp,
    Reason,
    Run,
    Shard,
    ShardedOp,
    ShardPlan,
    Suite,
    as_fact,
    board_key,
)
from perfci.core.model import UsedBoard as Board
from perfci.core.settings import ALL, ONE, Settings
from perfci.core.stopping import Stopped
from perfci.core.temporary import temporary_folder
from perfci.core.wording import spoken
from perfci.git.command import parse_commit
from perfci.judge.quarantine import TIMED, boards_of
from perfci.ops.discover import select
from perfci.ops.fingerprint.tree import Tree
from perfci.runs import base as base_stage
from perfci.runs import flow
from perfci.runs.bench import BOARD, Bench, Listener, claim_bench, name_devices, open_bench
from perfci.runs.beside import compare_files
from perfci.runs.boards import avoid_sick
from perfci.runs.decide import decide, open_rules
from perfci.runs.describe import Described, find_violation
from perfci.runs.effective_thresholds import alpha_of
from perfci.runs.experiment import Experiment, begin_run
from perfci.runs.merge import DIGITS, merge, refuse_mixed
from perfci.runs.plan import Request, cases_to_run, share_out
from perfci.runs.rules import hash_rules
from perfci.store import launches
from perfci.store.files import encode, uncollected

FOLDER = "shards"  # in the reports folder: shards/<number>/run.json of each shard that was measured here
CONFIRMED = "confirmed"  # the same of each shard that was looked at again on another board

AUTO, CPU, FAKE = "auto", "cpu", "fake"

RULES = as_fact("thresholds or baselines")

LONGEST = 100  # characters of a difference that are shown

UNKNOWN = Device(AUTO, "no device", "none")


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


# --- the plan ---------------------------------------------------------------------------------------------------------


def plan_shards(
    settings: Settings, request: Request, listener: Listener, shards: int, last: Run | None, *, every: bool = False
) -> ShardPlan:
    """Returns what all shards together will measure, and which shard measures what, or which of request.devices.

    last: a run by whose times shards are balanced. every: unchanged ops too. Imports nothing if all files are the
    base's. Raises UsageError for a request that matches nothing.
    """
    with open_bench(settings, listener) as bench:
        experiment = Experiment.find(bench, request, "")
        base = experiment.base
        skips = base.against.skips and not every and not request.peers and request.pattern is None
        chosen, found = select(settings, request.ops), None
        if skips and not any(map(find_violation, chosen)):
            unlisted = [PlannedOp(op.op, unlisted=True) for op in chosen]
            known = compare_files(base.tree, settings, unlisted)
            found = Described(UNKNOWN, known) if all(op.base and op.base.same for op in known) else None
        kind = last.plan.device if last and request.device == AUTO else request.device
        if found is None:
            # Only importing the ops shows their cases. A machine without an accelerator can do that too.
            anywhere = dataclasses.replace(request, device=FAKE if kind == FAKE else AUTO)
            found = dataclasses.replace(experiment, request=anywhere).describe()
            kind = found.device.kind if kind == AUTO else kind
        whole = experiment.plan(_as_planned(found, kind))
        boards = _choose_boards(request.devices or ONE, kind, found, whole.put_aside)
        whole = dataclasses.replace(whole, boards=boards, skip_unchanged=whole.skip_unchanged and not every)
    shards = len(boards) or shards
    shared = share_out(whole, shards, last)
    prints = _fingerprint(settings, [each.op for each in shared if each.shard])
    return ShardPlan(
        perfci=VERSION,
        created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        commit=parse_commit(settings.root, "HEAD"),
        rules=hash_rules(base.rules), alpha=alpha_of(base.rules, request.thresholds),
        shards=shards, timer=request.timer, plan=whole,
        ops=tuple(dataclasses.replace(each, files=prints.get(each.op, "")) for each in shared),
        family=whole.family,
        seconds=round(sum(each.seconds for each in shared), 3),
        last=last.id if last else None,
    )  # fmt: skip


def _as_planned(described: Described, kind: str) -> Described:
    """What was described, for devices of a kind that may be on another machine."""
    return Described(dataclasses.replace(described.device, kind=kind), described.ops)


def _choose_boards(wanted: str, kind: str, described: Described, sick: Sequence[str]) -> tuple[Board, ...]:
    """The host's devices that --devices names, of all of them those that are not put aside, unless all are.

    Raises UsageError for an unknown index, and one named twice.
    """
    known, aside = name_devices(os.environ, kind, described.visible), set(map(board_key, sick))
    if wanted == ONE or kind in UNTIMED or kind == AUTO or (wanted == ALL and len(known) < 2):
        return ()
    numbers = [*range(len(known))] if wanted == ALL else [int(part) for part in wanted.split(",")]
    if wanted == ALL:
        healthy = [number for number, uuid in enumerate(described.uuids[: len(known)]) if board_key(uuid) not in aside]
        numbers = healthy or numbers
    if missing := [number for number in numbers if number >= len(known)]:
        raise UsageError("devices_missing", index=missing[0], devices=len(known), known=", ".join(known))
    if len({*numbers}) < len(numbers):
        raise UsageError("devices_twice", devices=wanted)
    return tuple(Board(known[number]) for number in numbers)


def _fingerprint(settings: Settings, names: Sequence[str]) -> Mapping[str, str]:
    tree = Tree(settings.root, settings.kernels)
    return {op: tree.fingerprint(op).digest for op in names}


# --- one shard --------------------------------------------------------------------------------------------------------


def check_shard(settings: Settings, part: ShardPart, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """Measure and judge a shard's ops by the families' sizes. Raises UsageError if the plan is not for what is here."""
    _refuse_other_checkout(settings, part)
    sharded = part.sharded
    own, limit = tuple(op for op in sharded.plan.ops if op.op in part.files), part.limit
    mine = dataclasses.replace(sharded.plan, ops=own, removed=(), shard_family=sharded.family)
    mine = dataclasses.replace(mine, deadline=limit.deadline, deadline_note=limit.note)
    shard = Shard(part.plan, part.index, part.count)
    with claim_bench(settings, listener) as bench:
        if mine.ops:
            experiment = _open_shard(bench, part, mine, command)
            experiment.clear()
            run, judgements = _measure_shard(experiment, part, mine, shard)
        else:
            nowhere = dataclasses.replace(UNKNOWN, kind=mine.device)
            run, judgements = begin_run(settings, mine, nowhere, command), Judgements(())
        run = dataclasses.replace(run, shard=dataclasses.replace(shard, done=True))
        store.write_run(run, settings.reports)
        return run, judgements


def _refuse_other_checkout(settings: Settings, part: ShardPart) -> None:
    sharded = part.sharded
    if part.count != sharded.shards or not 1 <= part.index <= part.count:
        raise UsageError("shard_range", index=part.index, count=part.count, planned=sharded.shards)
    _refuse_difference(as_fact("version of perfci"), VERSION, sharded.perfci)
    _refuse_difference(as_fact("commit"), parse_commit(settings.root, "HEAD"), sharded.commit)
    for op, digest in _fingerprint(settings, [*part.files]).items():
        _refuse_difference(as_fact("files"), f"op {op} {digest[:DIGITS]}", f"op {op} {part.files[op][:DIGITS]}")


def confirm_shards(
    settings: Settings, part: ShardPart, found: Sequence[tuple[Run, Path]], command: str, listener: Listener
) -> Iterator[Reason]:
    """Take the later looks at what one board alone found slower again, on another one: all must agree to fail a case.

    part: of any index. Writes runs of shards into folders of their own. `merge_shards` takes them if they come first.
    There is none of a shard if the board here is the same one, or if not all looks come to their end. Yields what was
    done, shard by shard.
    """
    shutil.rmtree(settings.reports / CONFIRMED, ignore_errors=True)
    sharded, count = part.sharded, part.sharded.shards
    blank = begin_run(settings, sharded.plan, dataclasses.replace(UNKNOWN, kind=sharded.plan.device), command)
    whole = merge(sharded, part.plan, [run for run, _ in found], blank)
    boards = {(op.op, case.case): boards_of(case, whole) for op in whole.ops for case in op.performance}
    slow = [
        (row.op, row.case or "") for row in decide(whole, settings).rows
        if row.suite is Suite.PERFORMANCE and row.verdict in TIMED and row.verdict.gate is Gate.FAILS
    ]  # fmt: skip
    alone = {place: boards[place][0] for place in slow if len(boards.get(place, ())) == 1}
    for run, folder in found:
        mine = {place for place in alone if place[0] in {op.op for op in run.ops}}
        if mine and run.shard:
            facts: dict[str, Fact] = {"shard": f"{run.shard.index}/{count}", "count": len(mine)}
            facts["board"] = alone[min(mine)]
            with temporary_folder("confirm") as own:
                store.copy_run(folder, own)
                first = _forget_later_looks(run, own, mine)
                there = dataclasses.replace(part, index=run.shard.index)
                _refuse_other_checkout(settings, there)
                with open_bench(dataclasses.replace(settings, reports=own), listener) as bench:
                    experiment = _open_shard(bench, there, first.plan, command)
                    again, _ = _measure_shard(experiment, there, first.plan, run.shard, first)
                looked = [case for op in again.ops for case in op.performance if (op.op, case.case) in mine]
                whole_looks = all(len(boards_of(case, again)) > 1 and not case.late for case in looked)
                kind = "confirm_same" if again is first else "confirmed" if whole_looks else "confirm_undone"
                if kind == "confirmed":
                    store.copy_run(own, settings.reports / CONFIRMED / str(run.shard.index))
            yield Reason(kind, facts)


def _forget_later_looks(run: Run, folder: Path, cases: Collection[tuple[str, str]]) -> Run:
    """Returns a run, in its folder, with the first looks alone at these cases (op, case)."""

    def forget(op: str, case: PerformanceCase) -> PerformanceCase:
        if (op, case.case) not in cases:
            return case
        for process in {block.process for block in case.blocks} - {0}:
            launches.drop_launches(folder, op, process, [case.case])
        blocks = tuple(block for block in case.blocks if not block.process)
        return dataclasses.replace(case, blocks=blocks, host=tuple(each for each in case.host if not each.process))

    ops = (dataclasses.replace(op, performance=tuple(forget(op.op, case) for case in op.performance)) for op in run.ops)
    return dataclasses.replace(run, ops=tuple(ops))


def _open_shard(bench: Bench, part: ShardPart, mine: Plan, command: str) -> Experiment:
    """The experiment of a shard's plan. Raises UsageError if other rules count here."""
    # A worker opens whatever is here. Only a CPU or a fake device has to be asked for by name.
    kind = mine.device if mine.device in {CPU, FAKE} else AUTO
    request = Request(
        ops=tuple(op.op for op in mine.ops), pattern=mine.filter, suites=mine.suites, duel=mine.duel,
        device=kind if part.device == AUTO else part.device, timer=part.sharded.timer,
        budget_s=mine.budget_s, seed=mine.seed, deadline=part.limit.deadline,
    )  # fmt: skip
    tree = base_stage.write_base(bench, mine.base) if mine.base else None
    experiment = Experiment.beside(bench, request, command, tree)
    _refuse_difference(RULES, bench.sealed[experiment.base.rules.root][:DIGITS], part.sharded.rules[:DIGITS])
    return experiment


def _measure_shard(
    experiment: Experiment, part: ShardPart, mine: Plan, shard: Shard, earlier: Run | None = None
) -> tuple[Run, Judgements]:
    """Measure a shard, or what an earlier run of it lacks, on another board if there is one."""
    bench = experiment.bench
    # The plan has what the base has of each op: it need not be described again.
    found = dataclasses.replace(experiment, base=dataclasses.replace(experiment.base, tree=None)).describe()
    used = [earlier.environment.device.uuid or ""] if earlier else []
    avoid_sick(bench, found, (*mine.put_aside, *used))
    _refuse_difference(as_fact("device"), found.device.kind, mine.device)
    here, planned = {op.op: op for op in found.ops}, []
    for op in mine.ops:
        other = here[op.op]
        differing = sorted({*op.accuracy, *op.performance} ^ {*other.accuracy, *other.performance})
        if differing and not other.failure:  # an op that does not import here is an ERROR of its own
            _refuse_difference(as_fact("cases"), f"{op.op} {differing[0]}", None)
        planned.append(dataclasses.replace(op, failure=other.failure))
    mine = dataclasses.replace(mine, ops=tuple(planned), devices=found.devices)
    run = dataclasses.replace(experiment.begin(mine, found.device), shard=shard)
    experiment = dataclasses.replace(experiment, request=dataclasses.replace(experiment.request, device=mine.device))
    if earlier:
        timed = dataclasses.replace(run.environment, timer=earlier.environment.timer)
        refuse_mixed([earlier, dataclasses.replace(run, environment=timed)])
        if not bench.boards and board_key(found.device.uuid or "") in map(board_key, used):
            return earlier, Judgements(())
        earlier = dataclasses.replace(earlier, plan=dataclasses.replace(earlier.plan, devices=found.devices))
        return experiment.settle(earlier)
    seconds = {op.op: op.seconds for op in part.sharded.ops}
    times = deadline.Timetable(seconds, known=part.sharded.last is not None)
    return experiment.settle(experiment.record(run, times))


def _refuse_difference(what: str, found: str | None, planned: str | None) -> None:
    if found != planned:
        raise UsageError("shard_differs", what=what, found=found, planned=planned)


# --- all of them ------------------------------------------------------------------------------------------------------


def refuse_foreign_plan(settings: Settings, sharded: ShardPlan, request: Request) -> None:
    """Raise UsageError if a plan is not what `plan_shards` makes of this checkout and request, as far as files show.

    It was made where ops are imported, so that an op could have written it. Here nothing is imported.
    """
    plan, chosen = sharded.plan, [op.op for op in select(settings, request.ops)]
    _refuse_difference(as_fact("op"), ", ".join(chosen), ", ".join(op.op for op in plan.ops))
    request = dataclasses.replace(request, seed=plan.seed, budget_s=plan.budget_s)
    with open_bench(settings, lambda _: None) as bench:
        experiment = Experiment.find(bench, request, "")
        rules, tree = experiment.base.rules, experiment.tree
        digest, known = hash_rules(rules), compare_files(tree, settings, plan.ops)
        kind = plan.device if request.device == AUTO else request.device
        whole = experiment.plan(Described(dataclasses.replace(UNKNOWN, kind=kind), known))
    alpha = alpha_of(rules, request.thresholds)
    skips = whole.skip_unchanged and plan.skip_unchanged  # with --all more is measured than has to be
    whole = dataclasses.replace(whole, skip_unchanged=skips, boards=plan.boards, seed_given=plan.seed_given)
    shares, prints = {op.op: op for op in sharded.ops}, _fingerprint(settings, chosen)
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
    found, planned = (json.loads(encode(each, Path("plan.json"))) for each in (here, sharded))
    for place, ours, theirs in _list_differences(found, planned):
        _refuse_difference(place, ours, theirs)


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


def merge_shards(
    settings: Settings, sharded: ShardPlan, digest: str, found: Sequence[tuple[Run, Path]], command: str
) -> tuple[Run, Judgements]:
    """Join the shards of a plan to one run, store it with its launches in the claimed reports folder, and judge it.

    `digest` is the SHA-256 of plan.json. `found` has the shards' runs with the folders of their launches. Raises
    UsageError as `merge` does, and for other thresholds or baselines than those that the shards knew.
    """
    blank = begin_run(settings, sharded.plan, Device(sharded.plan.device, "no device", "none"), command)
    with uncollected():
        run = merge(sharded, digest, [run for run, _ in found], blank)
    with open_rules(run, settings) as rules:
        _refuse_difference(RULES, hash_rules(rules)[:DIGITS], sharded.rules[:DIGITS])
    # A signature covers both.
    launches.join_launches(settings.reports, {run.id: folder for run, folder in reversed(found)}.values())
    store.write_run(run, settings.reports)
    with uncollected():
        return run, decide(run, settings)


def check_on_devices(settings: Settings, request: Request, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """Check on several devices of this host at once, a shard and process each. A plain check if there is only one.

    A signal ends all of them, with what they measured saved. Raises PerfciError if one fails, which has said why.
    """
    sharded = plan_shards(settings, request, listener, 1, None)
    if not sharded.plan.boards:
        return flow.check(settings, request, command, listener)

    def measure(sharded: ShardPlan, path: Path, options: Sequence[str], variables: Mapping[str, str]) -> Stopped | None:
        arguments = ["check", "--plan", str(path), "--project", str(settings.root), *options]
        # Later looks at what a board suspects are taken on the next one, so that no single board fails a case.
        names = [board.visible for board in sharded.plan.boards]
        processes = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", "perfci", *arguments, "--shard", f"{number}/{sharded.shards}"],
                env={**os.environ, **variables, BOARD: ",".join(names[number - 1 :] + names[: number - 1])},
                stdout=subprocess.DEVNULL,
            )
            for number in range(1, sharded.shards + 1)
        ]
        stopped = None
        try:
            codes = [process.wait() for process in processes]
        except Stopped as stop:
            stopped = stop
            for process in processes:
                process.terminate()
            codes = [process.wait() for process in processes]
        for board, code in zip(sharded.plan.boards, codes, strict=True):
            if code and not stopped:
                raise PerfciError("device_failed", device=board.visible, status=code)
        return stopped

    return run_shards(settings, sharded, request.deadline, command, measure)


def run_shards(
    settings: Settings, sharded: ShardPlan, limit: deadline.Deadline | None, command: str,
    measure: Callable[[ShardPlan, Path, Sequence[str], Mapping[str, str]], BaseException | None],
) -> tuple[Run, Judgements]:  # fmt: skip
    """Store a plan, let its shards be measured at once into the reports folder, and merge what came.

    measure: gets the plan, its file, and options and variables for the checks. What it returns is raised at the end.
    """
    # Without a terminal of its own each prints plain lines.
    options, variables = list[str](), {"PERFCI_LANG": spoken(), "TTY_COMPATIBLE": "0"}
    if limit:
        began = deadline.ends(limit) - limit.limit_s + limit.reserve_s
        variables[deadline.STARTED] = datetime.fromtimestamp(began, UTC).isoformat()
        variables[deadline.TIMEOUT] = str(limit.limit_s)
        options = [deadline.OPTION, str(limit.limit_s)] if limit.by == deadline.OPTION else []
    with store.claim_reports(settings.reports):
        shutil.rmtree(settings.reports / FOLDER, ignore_errors=True)
        path = store.write_plan(sharded, settings.reports / "plan.json")
        sharded, digest = store.read_plan(path)
        error = measure(sharded, path, options, variables)
        folders = [settings.reports / FOLDER / str(number) for number in range(1, sharded.shards + 1)]
        whole = [(store.read_run(folder), folder) for folder in folders if (folder / store.RUN_FILE).is_file()]
        merged = merge_shards(settings, sharded, digest, whole, command)
    if error:
        raise error
    return merged
