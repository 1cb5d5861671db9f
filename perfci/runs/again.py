"""Cases of an earlier run about which nothing could be said, each duelled against its own last conclusive commit.

`accept` refuses an INCONCLUSIVE case, so what is stored of it stays that of the last run that could say something: the
commit of that run is the last conclusive one of the case. Not all cases of an op need have the same.

Cases that the run did answer, but by a base that is younger than their own last conclusive commit, are among them where
the op's files changed since: what came in while nothing could be said would else never be looked at again.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from perfci import git, store
from perfci.core.errors import UsageError
from perfci.core.model import (
    Again,
    AgainCase,
    Base,
    Baseline,
    Device,
    DuelWhat,
    Fact,
    Gate,
    Judgements,
    Plan,
    PlannedOp,
    Reason,
    Run,
    Suite,
    Verdict,
)
from perfci.core.settings import Settings
from perfci.core.wording import caused
from perfci.git.base import How
from perfci.runs import base as base_stage
from perfci.runs import effective_thresholds
from perfci.runs.base import BaseTree
from perfci.runs.bench import Bench, Listener, claimed
from perfci.runs.decide import baselines_for, decide
from perfci.runs.describe import Found, boards, describe_ops
from perfci.runs.groups import SHOWN, Group, base_of, forget, is_same, joined, measured, tree_at
from perfci.runs.plan import Against, Request, make_plan
from perfci.runs.rounds import new_run

EVERY = "*"
"""The --case pattern of a run that leaves other cases out, and so says nothing of them."""

BUDGETS = 2
"""Times the earlier run's budget, where none is asked for: that one was too small."""

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


def again(
    settings: Settings, earlier: Run, request: Request, command: str, listener: Listener
) -> tuple[Run, Judgements]:
    """Duel the INCONCLUSIVE performance cases of a run of the commit that is checked out; a run in the reports folder.

    `request` says device, budget (0: twice the earlier run's), seed and timer; what --threshold said of the earlier run
    holds for this one. A case whose commit cannot be had stays INCONCLUSIVE, with the reason. A run without ops is one
    in which there was nothing to duel. Raises UsageError for a run of another commit, for a shard's, where the device
    is of another model, and where the earlier run's --threshold may not be carried over.
    """
    _refuse(settings, earlier)
    _refuse_thresholds(settings, earlier)
    request = _completed(request, earlier)
    with claimed(settings, listener) as bench:
        forget(settings.reports)
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
    here = git.read(settings.root)
    head = None if isinstance(here, Reason) else here.commit
    if head is None or head != earlier.environment.commit:
        raise UsageError("again_commit", run=earlier.id, found=head, planned=earlier.environment.commit)


def _refuse_thresholds(settings: Settings, earlier: Run) -> None:
    """What loosens is refused in a pipeline, which the earlier run may not have been in; so is what no file takes."""
    now = datetime.now(UTC).isoformat()
    try:
        effective_thresholds.values(earlier.plan.thresholds)
        effective_thresholds.refuse_looser(earlier.plan, settings, earlier.environment, now)
    except UsageError as error:
        if error.reason.kind == "threshold_looser":
            raise UsageError("again_threshold_looser", run=earlier.id, **error.reason.facts) from error
        why = caused("again_threshold_unread", error.reason, run=earlier.id)
        raise UsageError(why.kind, **why.facts) from error


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
        thresholds=request.thresholds or earlier.plan.thresholds,
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
        thresholds=request.thresholds,
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
    run = measured(bench, request, run, groups, earlier)
    return run, decide(run, settings)


def _refuse_device(earlier: Run, found: Device) -> None:
    before = earlier.environment.device
    if found.key != before.key:
        raise UsageError("again_device", run=earlier.id, planned=before.key, found=found.key)


def _groups(bench: Bench, request: Request, found: Found, cases: Sequence[_Case]) -> tuple[list[Group], list[_Case]]:
    """The cases by their commits, the newest run's first; and those that stay as they are, each with why."""
    lost = [case for case in cases if case.failure]
    groups = []
    for number, commit in enumerate(dict.fromkeys(case.commit for case in cases if case.commit), 1):
        mine = [case for case in cases if case.commit == commit]
        tree = tree_at(bench, commit or "", How.AGAIN, number)
        if isinstance(tree, Reason):
            lost += [_gone(case, tree) for case in mine if case.open]
            continue
        group, without = _group(bench, request, found, tree, mine)
        lost += without
        if group.cases:
            groups.append(group)
    return groups, lost


def _gone(case: _Case, why: Reason) -> _Case:
    commit = (case.commit or "")[:SHOWN]
    return dataclasses.replace(
        case, failure=caused("again_commit_gone", why, op=case.op, case=case.case, commit=commit)
    )


def _group(
    bench: Bench, request: Request, found: Found, tree: BaseTree, mine: Sequence[_Case]
) -> tuple[Group, list[_Case]]:
    """Those of a commit's cases that can be duelled against it, and the others with why not."""
    head = [op for op in found.ops if op.op in {case.op for case in mine}]
    planned = {op.op: op for op in base_stage.planned(bench, tree, request, head)}
    asked = [case for case in mine if case.open or not is_same(planned[case.op])]
    told = [dataclasses.replace(case, failure=_not_there(case, planned[case.op], tree, bench)) for case in asked]
    sound = [case for case in told if case.failure is None]
    duelled = [AgainCase(case.op, case.case, tree.base.commit, is_same(planned[case.op])) for case in sound]
    lost = [case for case in told if case.failure and case.open]
    return Group.of(tree, duelled, planned.values()), lost


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
    here = git.read(settings.root)
    return None if isinstance(here, Reason) else here.commit


# --- the plan ---------------------------------------------------------------------------------------------------------


def _plan(
    settings: Settings, request: Request, found: Found, groups: Sequence[Group], lost: Sequence[_Case], earlier: Run
) -> Plan:
    """What all groups measure together; the families are fixed here. Raises UsageError where no duel could fail."""
    base = base_of(groups)
    against = Against(base, DuelWhat.ALL) if base else Against()
    alpha = effective_thresholds.alpha_of(settings, request.thresholds)
    left = [(case.op, case.case) for case in lost]
    planned = joined([op for op in found.ops if op.op in request.ops], groups, left)
    plan = make_plan(request, planned, found.device.kind, against, alpha, found.devices)
    return dataclasses.replace(
        plan, filter=EVERY, skip_unchanged=False, again=Again(earlier.id, tuple(_cases(groups, lost))), base_note=None
    )


def _cases(groups: Sequence[Group], lost: Sequence[_Case]) -> Iterator[AgainCase]:
    yield from (case for group in groups for case in group.cases)
    yield from (AgainCase(case.op, case.case, case.commit, failure=case.failure) for case in lost)
