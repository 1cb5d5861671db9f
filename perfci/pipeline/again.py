"""Cases of an earlier run about which nothing could be said, each duelled against its own last conclusive commit.

`accept` refuses an INCONCLUSIVE case, so what is stored of it stays that of the last run that could say something: the
commit of that run is the last conclusive one of the case. Not all cases of an op need have the same. A commit's cases
are a group that is measured as a shard is, by the size of the family of all; then all are joined and judged at once.

Cases that the run did answer, but by a base that is younger than their own last conclusive commit, are among them where
the op's files changed since: what came in while nothing could be said would else never be looked at again.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfci import fingerprint, revision, store, thresholds
from perfci.errors import Stopped, UsageError
from perfci.model import (
    Again,
    AgainCase,
    Base,
    Baseline,
    Device,
    DuelWhat,
    Fact,
    Gate,
    Judgements,
    Limits,
    OpRun,
    Plan,
    PlannedBase,
    PlannedOp,
    Reason,
    Run,
    Suite,
    Verdict,
)
from perfci.pipeline import base as base_stage
from perfci.pipeline.base import BaseTree
from perfci.pipeline.bench import Bench, Listener, claimed
from perfci.pipeline.decide import baselines_for, decide
from perfci.pipeline.describe import Found, boards, describe_ops
from perfci.pipeline.record import Recorder
from perfci.pipeline.rounds import new_run, settled
from perfci.plan import Against, Request, expected_s, make_plan
from perfci.revision.base import How
from perfci.settings import Settings
from perfci.wording import caused

FOLDER = "groups"
"""In the reports folder: groups/<number>/run.json of each commit's cases."""

EVERY = "*"
"""The --case pattern of a run that leaves other cases out, and so says nothing of them."""

BUDGETS = 2
"""Times the earlier run's budget, where none is asked for: that one was too small."""

SHOWN = 10
"""Digits of a commit that people read."""

_DIGITS = re.compile(r"[0-9a-f]{7,64}")
_TIMERS = frozenset({"activity", "event"})


@dataclass(frozen=True)
class _Case:
    """A case to be duelled again."""

    op: str
    case: str
    open: bool = True
    """nothing could be said about it; False where it was answered by a younger base"""
    commit: str | None = None
    failure: Reason | None = None


@dataclass(frozen=True)
class _Group:
    """The cases of one last conclusive commit, and its tree."""

    tree: BaseTree
    cases: tuple[_Case, ...]
    planned: tuple[PlannedOp, ...]
    """their ops, with these cases only"""


def again(
    settings: Settings, earlier: Run, request: Request, command: str, listener: Listener
) -> tuple[Run, Judgements]:
    """Duel the INCONCLUSIVE performance cases of a run of the commit that is checked out; a run in the reports folder.

    `request` says device, budget (0: twice the earlier run's), seed and timer. A case whose commit cannot be had stays
    INCONCLUSIVE, with the reason. A run without ops is one in which there was nothing to duel. Raises UsageError for a
    run of another commit, for a shard's, and where the device is of another model.
    """
    _refuse(settings, earlier)
    request = _completed(request, earlier)
    with claimed(settings, listener) as bench:
        shutil.rmtree(settings.reports / FOLDER, ignore_errors=True)
        store.clear_launches(settings.reports)
        # What stands there from another time must not pass for this run's answer.
        blank = _blank(settings, earlier, request, command)
        store.write_run(blank, settings.reports)
        cases = _wanted(earlier, settings)
        if not cases:
            return blank, Judgements(())
        return _duelled(bench, request, blank, cases, earlier)


def _refuse(settings: Settings, earlier: Run) -> None:
    if earlier.shard is not None:
        shard = f"{earlier.shard.index}/{earlier.shard.count}"
        raise UsageError("again_of_shard", run=earlier.id, shard=shard)
    here = revision.read(settings.root)
    head = None if isinstance(here, Reason) else here.commit
    if head is None or head != earlier.environment.commit:
        raise UsageError("again_commit", run=earlier.id, found=head, planned=earlier.environment.commit)


def _completed(request: Request, earlier: Run) -> Request:
    """With what the earlier run was measured by, where nothing else is asked for."""
    kind, timer = earlier.environment.device.kind, earlier.environment.timer
    return dataclasses.replace(
        request,
        device=kind if request.device == "auto" and kind == "fake" else request.device,
        budget_s=request.budget_s or BUDGETS * earlier.plan.budget_s,
        timer=timer if request.timer == "auto" and timer in _TIMERS else request.timer,
        suites=(Suite.PERFORMANCE,),
        duel=DuelWhat.ALL,
    )


def _blank(settings: Settings, earlier: Run, request: Request, command: str) -> Run:
    device = earlier.environment.device
    plan = Plan(
        ops=(),
        seed=request.seed or 0,
        budget_s=request.budget_s,
        device=device.kind,
        suites=request.suites,
        filter=EVERY,
        again=Again(earlier.id),
    )
    return new_run(settings, plan, Device(device.kind, device.name, device.key), command)


# --- which cases, and since when --------------------------------------------------------------------------------------


def _wanted(earlier: Run, settings: Settings) -> list[_Case]:
    """The cases, each with its last conclusive commit or why there is none."""
    baselines = baselines_for(earlier, settings)
    rows = [row for row in decide(earlier, settings).rows if row.suite is Suite.PERFORMANCE and row.case is not None]
    found = []
    for row in rows:
        case = _since(_Case(row.op, row.case or "", row.verdict is Verdict.INCONCLUSIVE), baselines.get(row.op))
        case = _by_base(case, earlier.plan.base)
        if case.open or (row.verdict.gate is not Gate.FAILS and _outlived(case, earlier.plan.base)):
            found.append(case)
    return found


def _by_base(case: _Case, base: Base | None) -> _Case:
    """A case without a stored commit of its own has the one that the run was compared with, if there was one."""
    if case.failure is None or base is None or base.how != How.BASELINE:
        return case
    return dataclasses.replace(case, commit=base.commit, failure=None)


def _outlived(case: _Case, base: Base | None) -> bool:
    """Whether the run compared the case with a commit that is not its own last conclusive one."""
    return base is not None and base.how == How.BASELINE and case.commit not in {None, base.commit}


def _since(case: _Case, baseline: Baseline | None) -> _Case:
    """The case with the newest recorded, clean commit of the runs that its stored blocks come from."""
    facts: dict[str, Fact] = {"op": case.op, "case": case.case}
    stored = next((each for each in baseline.cases if each.case == case.case), None) if baseline else None
    if baseline is None or stored is None:
        return dataclasses.replace(case, failure=Reason("again_no_baseline", facts))
    sources = {block.run for block in stored.blocks}
    clean = [run for run in baseline.runs if run.id in sources and not run.environment.dirty]
    commits = {run.created: run.environment.commit for run in clean if run.environment.commit}
    newest = commits[max(commits)] if commits else None
    if newest is None or not _DIGITS.fullmatch(newest):
        return dataclasses.replace(case, failure=Reason("again_no_commit", facts))
    return dataclasses.replace(case, commit=newest)


# --- groups -----------------------------------------------------------------------------------------------------------


def _duelled(
    bench: Bench, request: Request, blank: Run, cases: Sequence[_Case], earlier: Run
) -> tuple[Run, Judgements]:
    settings = bench.settings
    request = dataclasses.replace(request, ops=tuple(dict.fromkeys(case.op for case in cases)))
    found = describe_ops(bench, request)
    _refuse_device(earlier, found.device)
    groups, lost = _groups(bench, request, found, cases)
    if not groups and not lost:
        return blank, Judgements(())
    plan = _plan(settings, request, found, groups, lost, earlier)
    plan = dataclasses.replace(plan, boards=boards(bench, request, found))
    run = dataclasses.replace(new_run(settings, plan, found.device, blank.command), id=blank.id, created=blank.created)
    store.write_run(run, settings.reports)
    runs: list[Run] = []
    for number, group in enumerate(groups, 1):
        where = dataclasses.replace(settings, reports=settings.reports / FOLDER / str(number))
        try:
            runs.append(_measured(dataclasses.replace(bench, settings=where), request, run, group, earlier))
        except Stopped as stop:
            # What it had measured by then it has saved.
            partial = [store.read_run(where.reports)] if (where.reports / store.RUN_FILE).exists() else []
            _keep(settings, dataclasses.replace(run, stopped=stop.signal_name), [*runs, *partial])
            raise
        run = _keep(settings, run, runs)
    return run, decide(run, settings)


def _refuse_device(earlier: Run, found: Device) -> None:
    before = earlier.environment.device
    if found.key != before.key:
        raise UsageError("again_device", run=earlier.id, planned=before.key, found=found.key)


def _groups(bench: Bench, request: Request, found: Found, cases: Sequence[_Case]) -> tuple[list[_Group], list[_Case]]:
    """The cases by their commits, the newest run's first; and those that stay as they are, each with why."""
    lost = [case for case in cases if case.failure]
    groups = []
    for number, commit in enumerate(dict.fromkeys(case.commit for case in cases if case.commit), 1):
        mine = [case for case in cases if case.commit == commit]
        tree = _tree(bench, commit or "", number)
        if isinstance(tree, Reason):
            lost += [_gone(case, tree) for case in mine if case.open]
            continue
        group, without = _group(bench, request, found, tree, mine)
        lost += without
        if group.cases:
            groups.append(group)
    return groups, lost


def _tree(bench: Bench, commit: str, number: int) -> BaseTree | Reason:
    """The project as it was at a commit that some file names."""
    found = revision.commit(bench.settings.root, commit)
    if isinstance(found, Reason):
        return found
    base = Base(found, How.AGAIN, found[:SHOWN])
    tree = base_stage.materialised(bench, base, f"{base_stage.FOLDER}-{number}")
    if isinstance(tree, Reason):
        return tree
    pins = fingerprint.pins_changed(bench.settings.root, tree.settings.root)
    return dataclasses.replace(tree, base=dataclasses.replace(base, changed_pins=pins))


def _gone(case: _Case, why: Reason) -> _Case:
    commit = (case.commit or "")[:SHOWN]
    return dataclasses.replace(
        case, failure=caused("again_commit_gone", why, op=case.op, case=case.case, commit=commit)
    )


def _group(
    bench: Bench, request: Request, found: Found, tree: BaseTree, mine: Sequence[_Case]
) -> tuple[_Group, list[_Case]]:
    """Those of a commit's cases that can be duelled against it, and the others with why not."""
    head = [op for op in found.ops if op.op in {case.op for case in mine}]
    planned = {op.op: op for op in base_stage.planned(bench, tree, request, head)}
    asked = [case for case in mine if case.open or not _is_same(planned[case.op])]
    told = [dataclasses.replace(case, failure=_not_there(case, planned[case.op], tree, bench)) for case in asked]
    sound = tuple(case for case in told if case.failure is None)
    narrowed = tuple(_narrowed(op, sound) for op in planned.values() if any(case.op == op.op for case in sound))
    lost = [case for case in told if case.failure and case.open]
    return _Group(tree, sound, narrowed), lost


def _is_same(op: PlannedOp) -> bool:
    return op.base is not None and op.base.same


def _not_there(case: _Case, op: PlannedOp, tree: BaseTree, bench: Bench) -> Reason | None:
    """Why a case cannot be duelled against the commit."""
    if op.failure:
        return None  # its op is an ERROR, which says more
    facts: dict[str, Fact] = {"op": case.op, "case": case.case, "commit": tree.base.name}
    if tree.base.commit == _head(bench.settings):
        return Reason("again_nothing_between", facts)
    if op.base is None or op.base.failure:
        return caused("again_not_duelled", op.base.failure, **facts) if op.base and op.base.failure else None
    return None if case.case in op.base.performance else Reason("again_case_unknown", facts)


def _head(settings: Settings) -> str | None:
    here = revision.read(settings.root)
    return None if isinstance(here, Reason) else here.commit


def _narrowed(op: PlannedOp, cases: Iterable[_Case]) -> PlannedOp:
    """The op with the wanted ones of its cases, here and at the base."""
    mine = tuple(case.case for case in cases if case.op == op.op)
    base = dataclasses.replace(op.base, performance=mine) if op.base else None
    return dataclasses.replace(op, accuracy=(), performance=mine, audit=(), base=base)


# --- the plan, and each group's part ----------------------------------------------------------------------------------


def _plan(
    settings: Settings, request: Request, found: Found, groups: Sequence[_Group], lost: Sequence[_Case], earlier: Run
) -> Plan:
    """What all groups measure together; the families are fixed here. Raises UsageError where no duel could fail."""
    base = _base(groups)
    against = Against(base, DuelWhat.ALL) if base else Against()
    alpha = thresholds.load(settings.thresholds).alpha
    joined = [_joined(name, found, groups, lost) for name in request.ops]
    planned = [op for op in joined if op.performance or op.failure]
    plan = make_plan(request, planned, found.device.kind, against, alpha, found.devices)
    return dataclasses.replace(
        plan, filter=EVERY, skip_unchanged=False, again=Again(earlier.id, tuple(_cases(groups, lost))), base_note=None
    )


def _base(groups: Sequence[_Group]) -> Base | None:
    """The commit of most cases, under the names of all; which case was held against which stands in the plan."""
    if not groups:
        return None
    most = max(groups, key=lambda group: len(group.cases)).tree.base
    names = ", ".join(dict.fromkeys(group.tree.base.name for group in groups))
    pins = tuple(dict.fromkeys(pin for group in groups for pin in group.tree.base.changed_pins))
    return dataclasses.replace(most, name=names, changed_pins=pins)


def _joined(name: str, found: Found, groups: Sequence[_Group], lost: Sequence[_Case]) -> PlannedOp:
    """An op with its cases of all groups, and those that are not measured."""
    op = next(each for each in found.ops if each.op == name)
    parts = [part for group in groups for part in group.planned if part.op == name]
    left = tuple(case.case for case in lost if case.op == name)
    cases = tuple(dict.fromkeys((*(case for part in parts for case in part.performance), *left)))
    bases = [part.base for part in parts if part.base]
    return dataclasses.replace(op, accuracy=(), performance=cases, audit=(), base=_one_base(bases))


def _one_base(bases: Sequence[PlannedBase]) -> PlannedBase | None:
    if not bases:
        return None
    return dataclasses.replace(
        bases[0],
        same=all(base.same for base in bases),
        changed=tuple(dict.fromkeys(file for base in bases for file in base.changed)),
        performance=tuple(dict.fromkeys(case for base in bases for case in base.performance)),
        apart=next((base.apart for base in bases if base.apart), None),
    )


def _cases(groups: Sequence[_Group], lost: Sequence[_Case]) -> Iterator[AgainCase]:
    for group in groups:
        same = {op.op: _is_same(op) for op in group.planned}
        yield from (AgainCase(case.op, case.case, group.tree.base.commit, same[case.op]) for case in group.cases)
    yield from (AgainCase(case.op, case.case, case.commit, failure=case.failure) for case in lost)


def _measured(bench: Bench, request: Request, whole: Run, group: _Group, earlier: Run) -> Run:
    """The group's own run: what it is judged by on the way are the families of all groups."""
    assert whole.plan.again is not None
    mine = tuple(each for each in whole.plan.again.cases if each.commit == group.tree.base.commit and not each.failure)
    names = tuple(op.op for op in group.planned)
    plan = dataclasses.replace(
        whole.plan,
        ops=group.planned,
        base=group.tree.base,
        shard_family=whole.plan.family,
        again=dataclasses.replace(whole.plan.again, cases=mine),
    )
    own = dataclasses.replace(request, ops=names, device=whole.plan.device)
    run = dataclasses.replace(whole, plan=plan, ops=(), limits=Limits(), wall_s=None)
    bench.settings.reports.mkdir(parents=True, exist_ok=True)
    seconds = expected_s(plan, earlier) if plan.boards or plan.deadline else None
    run = Recorder(bench, own, run, group.tree, seconds=seconds).record()
    run, _ = settled(bench, own, run, group.tree)
    return run


# --- all of them ------------------------------------------------------------------------------------------------------


def _keep(settings: Settings, whole: Run, runs: Sequence[Run]) -> Run:
    """The run with what the groups so far have measured, stored with their launches."""
    by_op: dict[str, list[OpRun]] = {}
    for run in runs:
        for op in run.ops:
            by_op.setdefault(op.op, []).append(op)
    timed = next((run.environment for run in runs if run.environment.timer), whole.environment)
    run = dataclasses.replace(
        whole,
        environment=timed,
        plan=dataclasses.replace(whole.plan, ops=tuple(_apart(op, runs) for op in whole.plan.ops)),
        ops=tuple(_one_run(parts) for _, parts in sorted(by_op.items())),
        limits=_limits(runs),
        wall_s=round(sum(run.wall_s or 0.0 for run in runs), 3),
    )
    store.write_run(run, settings.reports)
    store.join_launches(
        settings.reports, [settings.reports / FOLDER / str(number) for number in range(1, len(runs) + 1)]
    )
    return run


def _apart(op: PlannedOp, runs: Sequence[Run]) -> PlannedOp:
    """The op with what only measuring it could find out: that its revisions need a process each."""
    found = [each.base for run in runs for each in run.plan.ops if each.op == op.op and each.base]
    why = next((base.apart for base in found if base.apart), None)
    return dataclasses.replace(op, base=dataclasses.replace(op.base, apart=why)) if op.base and why else op


def _one_run(parts: Sequence[OpRun]) -> OpRun:
    """What became of an op in several groups."""
    last = parts[-1]
    return dataclasses.replace(
        last,
        performance=tuple(case for part in parts for case in part.performance),
        failure=next((part.failure for part in parts if part.failure), None),
        unmeasured=next((part.unmeasured for part in parts if part.unmeasured), None),
        notes=tuple(
            note for at, part in enumerate(parts) for note in part.notes if at == 0 or note not in parts[0].notes
        ),
        measure_s=sum(part.measure_s or 0.0 for part in parts) or None,
    )


def _limits(runs: Sequence[Run]) -> Limits:
    rates: Mapping[str, float] = {
        dtype: rate for run in reversed(runs) for dtype, rate in run.limits.matmul_tflops.items()
    }
    return Limits(next((run.limits.copy_gbps for run in runs if run.limits.copy_gbps), None), rates)
