"""Cases duelled with commits of their own: what an earlier run left open, or every case with the last release.

`retry`: `accept` refuses an INCONCLUSIVE case, so what is stored of it stays that of the last run that came to a
conclusion. The commit of that run is the last conclusive one of the case, and the case is duelled with it. If a younger
base answered a case, and the op's files changed since its own last conclusive commit, that case is duelled too: what
came in between would never be looked at otherwise.

`compare_with_release`: the stored numbers of accepted runs show a creep late, since a run is noisier than a duel
(how-thresholds-tighten.md). So the release's own files are duelled with those that are checked out. If people accepted
a loss of a case after the release (an epoch of its history), that case is duelled with the commit of that run instead.

The cases of one commit are a group. It is measured like a shard, by the size of the family of all groups. Then all are
joined and judged at once.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from perfci import git, store
from perfci.core.errors import DeviceError, Stopped, UsageError
from perfci.core.model import (
    UNTIMED,
    Again,
    AgainCase,
    Base,
    Baseline,
    Device,
    DuelWhat,
    Fact,
    Gate,
    HistoryRun,
    Judgements,
    Limits,
    OpRun,
    Plan,
    PlannedOp,
    Reason,
    Run,
    Suite,
    Verdict,
)
from perfci.core.settings import Settings
from perfci.core.wording import because
from perfci.git import base as git_base
from perfci.git.base import How
from perfci.git.history import count_between, is_ancestor, list_touching
from perfci.git.tags import LastRelease, find_last_release
from perfci.ops.fingerprint.pins import pins_changed
from perfci.runs import base as base_stage
from perfci.runs.base import BaseTree
from perfci.runs.bench import Bench, Listener, claim_bench
from perfci.runs.decide import baselines_for, decide
from perfci.runs.describe import Described, describe_ops, open_boards
from perfci.runs.effective_thresholds import alpha_of, parse_values, refuse_looser
from perfci.runs.flow import settle
from perfci.runs.plan import Against, Request, estimate_seconds, make_plan
from perfci.runs.record import Recorder, new_run
from perfci.store.history import KEPT, read_history, with_names_of_now
from perfci.store.launches import clear_launches, join_launches

FOLDER = "groups"
"""In the reports folder: groups/<number>/run.json of each commit's cases."""

EVERY = "*"
"""The --case pattern of a run that leaves other cases out, and so says nothing of them."""

BUDGETS = 2
"""Times the earlier run's budget, if none is asked for: that one was too small."""

SHOWN = 10
"""Digits of a commit that people read."""

MOST_NAMED = 5
"""Ops or cases in a sentence."""

MOST_COMMITS = 10_000

NOTHING_TO_DO = frozenset({"release_none", "release_all_aside"})
"""Reasons for having no release that are no fault: a project may not have made one yet."""

Case = tuple[str, str]
"""Op and id."""


@dataclass(frozen=True)
class Group:
    """The cases that are duelled with one commit, and its tree."""

    tree: BaseTree
    cases: tuple[AgainCase, ...]
    planned: tuple[PlannedOp, ...]
    """their ops, with these cases only, here and at the base"""

    @classmethod
    def of(cls, tree: BaseTree, cases: Sequence[AgainCase], planned: Iterable[PlannedOp]) -> Group:
        """The group with no more of its ops than the cases need."""
        mine = {op.op: tuple(case.case for case in cases if case.op == op.op) for op in planned}
        narrowed = (
            dataclasses.replace(
                op,
                accuracy=(),
                performance=mine[op.op],
                audit=(),
                base=dataclasses.replace(op.base, performance=mine[op.op]) if op.base else None,
            )
            for op in planned
            if mine[op.op]
        )
        return cls(tree, tuple(cases), tuple(narrowed))


@dataclass
class Groups:
    """All groups of a run, the cases whose commits are not available, and notes about the rest."""

    groups: list[Group] = field(default_factory=list)
    lost: list[AgainCase] = field(default_factory=list)
    said: list[Reason] = field(default_factory=list)

    @property
    def cases(self) -> tuple[AgainCase, ...]:
        """All cases, with the reason if one cannot be duelled."""
        return (*(case for group in self.groups for case in group.cases), *self.lost)


# --- what an earlier run left open ------------------------------------------------------------------------------------


def retry(
    settings: Settings, earlier: Run, request: Request, command: str, listener: Listener
) -> tuple[Run, Judgements]:
    """Duel the INCONCLUSIVE performance cases of a run of the commit that is checked out; a run in the reports folder.

    `request` gives device, budget (0: twice the earlier run's), seed and timer. The earlier run's --threshold holds for
    this one. A case whose commit is not available stays INCONCLUSIVE, with the reason. A run without ops had nothing to
    duel. Raises UsageError for a run of another commit, a shard's, one of another device model, and if a pipeline does
    not allow the earlier run's --threshold.
    """
    _refuse_retry(settings, earlier)
    device, timer = earlier.environment.device, earlier.environment.timer
    request = dataclasses.replace(
        request,
        device="fake" if request.device == "auto" and device.kind == "fake" else request.device,
        budget_s=request.budget_s or BUDGETS * earlier.plan.budget_s,
        timer=timer if timer and request.timer == "auto" and timer != "virtual" else request.timer,
        suites=(Suite.PERFORMANCE,),
        duel=DuelWhat.ALL,
        thresholds=request.thresholds or earlier.plan.thresholds,
    )
    nobody = Device(device.kind, device.name, device.key)
    with claim_bench(settings, listener) as bench:
        blank = _begin(bench, request, command, nobody, Again(earlier.id), request.thresholds)
        cases, undecided = _find_open_cases(earlier, settings)
        if not cases:
            return blank, Judgements(())
        request = dataclasses.replace(request, ops=tuple(dict.fromkeys(case.op for case in cases)))
        found = describe_ops(bench, request)
        if found.device.key != device.key:
            raise UsageError("again_device", run=earlier.id, planned=device.key, found=found.device.key)
        grouped = _group_by_commit(bench, request, found, cases, undecided)
        if not grouped.cases:
            return blank, Judgements(())
        ops = _join_ops([op for op in found.ops if op.op in request.ops], grouped)
        plan = _plan(settings, request, found, grouped, ops, DuelWhat.ALL)
        plan = dataclasses.replace(plan, filter=EVERY, skip_unchanged=False, again=Again(earlier.id, grouped.cases))
        return _measure(bench, request, blank, plan, found, grouped.groups, earlier)


def _refuse_retry(settings: Settings, earlier: Run) -> None:
    if earlier.shard is not None:
        raise UsageError("again_of_shard", run=earlier.id, shard=f"{earlier.shard.index}/{earlier.shard.count}")
    here = git.read(settings.root)
    head = None if isinstance(here, Reason) else here.commit
    if head is None or head != earlier.environment.commit:
        raise UsageError("again_commit", run=earlier.id, found=head, planned=earlier.environment.commit)
    parse_values(earlier.plan.thresholds)
    try:
        # A pipeline refuses what loosens. The earlier run may not have been in one.
        refuse_looser(earlier.plan, settings, earlier.environment, datetime.now(UTC).isoformat())
    except UsageError as error:
        raise UsageError("again_threshold_looser", run=earlier.id, **error.reason.facts) from error


def _find_open_cases(earlier: Run, settings: Settings) -> tuple[list[AgainCase], set[Case]]:
    """The cases, each with its last conclusive commit or why there is none, and those that were INCONCLUSIVE."""
    baselines, base = baselines_for(earlier, settings), earlier.plan.base
    rows = [row for row in decide(earlier, settings).rows if row.suite is Suite.PERFORMANCE and row.case is not None]
    found, undecided = [], set()
    by_baseline = base if base and base.how == How.BASELINE else None
    for row in rows:
        case = _with_last_commit(row.op, row.case or "", baselines.get(row.op))
        if case.failure and by_baseline:
            # Without a stored commit of its own it has the one that the run was compared with.
            case = dataclasses.replace(case, commit=by_baseline.commit, failure=None)
        younger = by_baseline is not None and case.commit not in {None, by_baseline.commit}
        if row.verdict is Verdict.INCONCLUSIVE:
            undecided.add((case.op, case.case))
            found.append(case)
        elif younger and row.verdict.gate is not Gate.FAILS:
            found.append(case)
    return found, undecided


def _with_last_commit(op: str, name: str, baseline: Baseline | None) -> AgainCase:
    """The case with the newest recorded, clean commit of the runs that its stored blocks come from."""
    case, facts = AgainCase(op, name), {"op": op, "case": name}
    stored = next((each for each in baseline.cases if each.case == name), None) if baseline else None
    if baseline is None or stored is None:
        return dataclasses.replace(case, failure=Reason("again_no_baseline", facts))
    sources = {block.run for block in stored.blocks}
    clean = [run for run in baseline.runs if run.id in sources and not run.environment.dirty]
    commits = {run.created: run.environment.commit for run in clean if run.environment.commit}
    newest = commits[max(commits)] if commits else ""
    if not newest or not re.fullmatch(r"[0-9a-f]{7,64}", newest):
        return dataclasses.replace(case, failure=Reason("again_no_commit", facts))
    return dataclasses.replace(case, commit=newest)


def _group_by_commit(
    bench: Bench, request: Request, found: Described, cases: Sequence[AgainCase], undecided: Collection[Case]
) -> Groups:
    """The cases by their commits, and those that stay as they are, each with its reason."""
    here = git.read(bench.settings.root)
    head = None if isinstance(here, Reason) else here.commit
    grouped = Groups(lost=[case for case in cases if case.failure])
    for number, commit in enumerate(dict.fromkeys(case.commit for case in cases if case.commit), 1):
        mine = [case for case in cases if case.commit == commit]
        tree = _tree_at(bench, commit or "", How.AGAIN, number)
        if isinstance(tree, Reason):
            for case in (case for case in mine if (case.op, case.case) in undecided):
                facts = {"op": case.op, "case": case.case, "commit": (commit or "")[:SHOWN]}
                grouped.lost.append(dataclasses.replace(case, failure=because("again_commit_gone", tree, **facts)))
            continue
        ours = [op for op in found.ops if op.op in {case.op for case in mine}]
        planned = {op.op: op for op in base_stage.plan_ops(bench, tree, request, ours)}
        duelled = []
        for case in mine:
            op = planned[case.op]
            if (case.op, case.case) not in undecided and _is_same(op):
                continue
            failure = _find_obstacle(case, op, tree.base, head)
            if failure is None:
                duelled.append(AgainCase(case.op, case.case, tree.base.commit, _is_same(op)))
            elif (case.op, case.case) in undecided:
                grouped.lost.append(dataclasses.replace(case, failure=failure))
        if duelled:
            grouped.groups.append(Group.of(tree, duelled, [*planned.values()]))
    return grouped


def _find_obstacle(case: AgainCase, op: PlannedOp, base: Base, head: str | None) -> Reason | None:
    """Why a case cannot be duelled with the commit. None for an op that failed, whose ERROR says more."""
    facts: dict[str, Fact] = {"op": case.op, "case": case.case, "commit": base.name}
    if op.failure:
        return None
    if base.commit == head:
        return Reason("again_nothing_between", facts)
    if op.base is None or op.base.failure:
        return because("again_not_duelled", op.base.failure, **facts) if op.base and op.base.failure else None
    return None if case.case in op.base.performance else Reason("again_case_unknown", facts)


# --- since the last release -------------------------------------------------------------------------------------------


def compare_with_release(
    settings: Settings, request: Request, command: str, listener: Listener, named: str | None = None
) -> tuple[Run, Judgements]:
    """Duel every case with the last release's files, or with those of its epoch since; a run in the reports folder.

    `named` is a revision that takes the release's place. A run without ops, with a note, is one for which there is no
    release, or nothing that both have. Raises UsageError if the release is unknown or not available, DeviceError if
    nothing can be timed.
    """
    request = dataclasses.replace(request, suites=(Suite.PERFORMANCE,), duel=DuelWhat.CHANGED)
    with claim_bench(settings, listener) as bench:
        blank = _begin(bench, request, command, Device("offline", "no device", "offline"), Again())
        release = find_last_release(settings.root, settings.release_tags, named)
        if isinstance(release, LastRelease):
            return _duel_with_release(bench, request, blank, release)
    if release.kind not in NOTHING_TO_DO:
        raise UsageError(release.kind, **release.facts)
    return blank, Judgements((), notes=(release,))


def _duel_with_release(bench: Bench, request: Request, blank: Run, release: LastRelease) -> tuple[Run, Judgements]:
    settings, found = bench.settings, describe_ops(bench, request)
    if found.device.kind in UNTIMED:
        raise DeviceError("release_not_timed")
    if request.pattern is not None and not any(op.performance for op in found.ops):
        raise UsageError("no_case_fits", pattern=request.pattern, ops=", ".join(op.op for op in found.ops))
    grouped = _group_since_release(bench, request, found, release)
    aside = [Reason("release_aside", {"tag": release.aside, "release": release.name})] if release.aside else []
    again = Again("", grouped.cases, release.name, (*aside, *grouped.said))
    if not again.cases:
        run = dataclasses.replace(blank, plan=dataclasses.replace(blank.plan, again=again))
        store.write_run(run, settings.reports)
        return run, Judgements((), notes=again.said)
    # Ops that fail have a note; the check of the same commit has them as errors.
    ops = [op for op in _join_ops(found.ops, grouped) if not op.failure]
    # The family is of the ops that changed. The nightly check has unchanged cases as controls; none is duelled here.
    changed = [op for op in ops if not _is_same(op)]
    plan = _plan(settings, request, found, grouped, changed, DuelWhat.CHANGED)
    plan = dataclasses.replace(plan, ops=tuple(ops), filter=request.pattern or EVERY, again=again)
    return _measure(bench, request, blank, plan, found, grouped.groups, None)


def _group_since_release(bench: Bench, request: Request, found: Described, release: LastRelease) -> Groups:
    """The cases by the commits that they are duelled with, the release first."""
    settings, sound = bench.settings, [op for op in found.ops if not op.failure]
    runs: dict[str, Sequence[HistoryRun]] = {}
    epochs: dict[Case, AgainCase] = {}
    for op in sound:
        history = read_history(settings.baselines, found.device.key, op.op, formerly=op.renamed_from)
        runs[op.op] = with_names_of_now(history.runs, op.renamed)
        epochs |= {(case.op, case.case): case for case in _find_epochs(settings, op, runs[op.op], release)}
    grouped = Groups(lost=[case for case in epochs.values() if case.failure])
    grouped.said += [_leave_out(op.op, release.name, op.failure) for op in found.ops if op.failure]
    tree = _tree_at(bench, release.commit, How.RELEASE, 1, release.name)
    if isinstance(tree, BaseTree):
        others = [(op.op, case) for op in sound for case in op.performance if (op.op, case) not in epochs]
        _add_group(grouped, bench, request, sound, tree, dict.fromkeys(others))
        grouped.said += _note_forgotten(settings, grouped.groups, runs, release)
    elif tree.kind == "project_not_in_revision":
        grouped.said.append(Reason("release_lacks_project", {"release": release.name}))
    else:
        raise UsageError(tree.kind, **tree.facts)
    known = [case for case in epochs.values() if not case.failure]
    for number, commit in enumerate(dict.fromkeys(case.commit or "" for case in known), 2):
        mine = {(case.op, case.case): case.since for case in known if case.commit == commit}
        tree = _tree_at(bench, commit, How.RELEASE, number)
        if isinstance(tree, BaseTree):
            _add_group(grouped, bench, request, sound, tree, mine)
        else:
            for case, why in mine.items():
                grouped.lost.append(AgainCase(*case, commit, failure=_epoch_gone(case, commit, tree), since=why))
    return grouped


def _add_group(
    grouped: Groups,
    bench: Bench,
    request: Request,
    ops: Sequence[PlannedOp],
    tree: BaseTree,
    wanted: Mapping[Case, str | None],
) -> None:
    """Add those of a commit's cases that can be duelled with it, and a note about the others."""
    root, name = bench.settings.root, tree.base.name
    head = [op for op in ops if any(own == op.op for own, _ in wanted)]
    planned = base_stage.plan_ops(bench, tree, request, head)
    count = count_between(root, tree.base.commit, "HEAD", first_parent=True)
    cases, lacking = [], []
    for op in planned:
        if op.base is None:
            continue
        if op.base.failure:
            if op.base.failure.kind == "base_lacks_op":
                lacking.append(op.op)
            continue
        changed = op.base.changed
        touched = list_touching(root, tree.base.commit, "HEAD", changed, MOST_COMMITS) if changed else None
        commits = None if isinstance(count, Reason) else count
        own = None if touched is None or isinstance(touched, Reason) else len(touched)
        for case in op.performance:
            if (op.op, case) in wanted and case in op.base.performance:
                why = wanted[op.op, case]
                cases.append(AgainCase(op.op, case, tree.base.commit, _is_same(op), None, why, commits, own))
    if cases:
        grouped.groups.append(Group.of(tree, cases, planned))
    if lacking:
        facts: dict[str, Fact] = {"release": name, "count": len(lacking), "ops": _name_some(lacking)}
        grouped.said.append(Reason("release_lacks_ops", facts))
    for op in planned:
        if op.base is None or op.op in lacking:
            continue
        gone = [case for case in op.performance if (op.op, case) in wanted and case not in op.base.performance]
        if op.base.failure:
            grouped.said.append(_leave_out(op.op, name, op.base.failure))
        elif gone:
            facts = {"op": op.op, "release": name, "count": len(gone), "cases": _name_some(gone)}
            grouped.said.append(Reason("release_lacks_cases", facts))


def _leave_out(op: str, name: str, why: Reason | None) -> Reason:
    return because("release_not_duelled", why or Reason("worker_silent"), op=op, release=name)


def _name_some(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")


def _find_epochs(
    settings: Settings, op: PlannedOp, runs: Sequence[HistoryRun], release: LastRelease
) -> Iterator[AgainCase]:
    """The last accepted loss of each case, if the release does not have it yet."""
    for case in op.performance:
        began = next((run for run in reversed(runs) if run.epoch and case in run.epoch.cases), None)
        if began is None or began.epoch is None:
            continue
        commit, failure = began.environment.commit, None
        if commit is None or began.environment.dirty:
            failure = Reason("release_epoch_unknown", {"op": op.op, "case": case, "run": began.run})
        elif isinstance(known := git_base.commit(settings.root, commit), Reason):
            failure = _epoch_gone((op.op, case), commit, known)
        elif is_ancestor(settings.root, known, "HEAD") is not True:
            failure = Reason("release_epoch_aside", {"op": op.op, "case": case, "commit": commit[:SHOWN]})
        if failure or is_ancestor(settings.root, commit or "", release.commit) is not True:
            yield AgainCase(op.op, case, commit or None, failure=failure, since=began.epoch.why)


def _epoch_gone(case: Case, commit: str, why: Reason) -> Reason:
    return because("release_epoch_gone", why, op=case[0], case=case[1], commit=commit[:SHOWN])


def _note_forgotten(
    settings: Settings, groups: Sequence[Group], runs: Mapping[str, Sequence[HistoryRun]], release: LastRelease
) -> Iterator[Reason]:
    """Losses accepted between the release and the oldest run that is kept would count as creep."""
    ops = []
    for op in (op for group in groups for op in group.planned if not _is_same(op)):
        known = runs[op.op]
        oldest = known[0].environment.commit if len(known) >= KEPT else None
        if oldest and is_ancestor(settings.root, oldest, release.commit) is False:
            ops.append(op.op)
    if ops:
        facts: dict[str, Fact] = {"release": release.name, "count": len(ops), "ops": _name_some(ops), "kept": KEPT}
        yield Reason("release_before_history", facts)


# --- planning and measuring groups ------------------------------------------------------------------------------------


def _begin(
    bench: Bench,
    request: Request,
    command: str,
    device: Device,
    again: Again,
    thresholds: Mapping[str, str] | None = None,
) -> Run:
    """A stored run without ops, so that what stands there from another time does not pass for this run's answer."""
    reports = bench.settings.reports
    shutil.rmtree(reports / FOLDER, ignore_errors=True)
    clear_launches(reports)
    plan = Plan((), request.seed or 0, request.budget_s, device.kind, request.suites, EVERY, again=again)
    blank = new_run(bench.settings, dataclasses.replace(plan, thresholds=thresholds or {}), device, command)
    store.write_run(blank, reports)
    return blank


def _is_same(op: PlannedOp) -> bool:
    """Whether all files of an op are those of the commit that it is compared with."""
    return op.base is not None and op.base.same


def _tree_at(bench: Bench, commit: str, how: How, number: int, name: str | None = None) -> BaseTree | Reason:
    """The project as it was at a commit that some file or tag names, written out for the group of this number."""
    found = git_base.commit(bench.settings.root, commit)
    if isinstance(found, Reason):
        return found
    tree = base_stage.write_base(bench, Base(found, how, name or found[:SHOWN]), f"{base_stage.FOLDER}-{number}")
    # A release's arm runs in today's toolchain like the other one: what a new toolchain did since then is no creep.
    if isinstance(tree, Reason) or how is How.RELEASE:
        return tree
    pins = pins_changed(bench.settings.root, tree.settings.root)
    return dataclasses.replace(tree, base=dataclasses.replace(tree.base, changed_pins=pins))


def _join_ops(ops: Iterable[PlannedOp], grouped: Groups) -> list[PlannedOp]:
    """Ops with their cases of all groups and those that are lost; ops without any are left out."""
    found = []
    for op in ops:
        parts = [part for group in grouped.groups for part in group.planned if part.op == op.op]
        cases = [case for part in parts for case in part.performance]
        cases += [case.case for case in grouped.lost if case.op == op.op]
        bases = [part.base for part in parts if part.base]
        base = None
        if bases:
            base = dataclasses.replace(
                bases[0],
                same=all(base.same for base in bases),
                changed=tuple(dict.fromkeys(file for base in bases for file in base.changed)),
                performance=tuple(dict.fromkeys(case for base in bases for case in base.performance)),
                apart=next((base.apart for base in bases if base.apart), None),
            )
        if cases or op.failure:
            performance = tuple(dict.fromkeys(cases))
            found.append(dataclasses.replace(op, accuracy=(), performance=performance, audit=(), base=base))
    return found


def _plan(
    settings: Settings, request: Request, found: Described, grouped: Groups, ops: Sequence[PlannedOp], duel: DuelWhat
) -> Plan:
    """What all groups measure together. The families are fixed here. Raises UsageError if no duel could fail."""
    against = Against()
    if trees := [(len(group.cases), group.tree.base) for group in grouped.groups]:
        # The commit of most cases, under the names of all. The plan has which case is compared with which.
        most, bases = max(trees, key=lambda each: each[0])[1], [base for _, base in trees]
        names = ", ".join(dict.fromkeys(base.name for base in bases))
        pins = tuple(dict.fromkeys(pin for base in bases for pin in base.changed_pins))
        against = Against(dataclasses.replace(most, name=names, changed_pins=pins), duel)
    alpha = alpha_of(settings, request.thresholds)
    plan = make_plan(request, ops, found.device.kind, against, alpha, found.devices)
    return dataclasses.replace(plan, base_note=None)


def _measure(
    bench: Bench,
    request: Request,
    blank: Run,
    plan: Plan,
    found: Described,
    groups: Sequence[Group],
    earlier: Run | None,
) -> tuple[Run, Judgements]:
    """The groups measured one after the other, saved after each with its launches, and judged at once.

    `earlier` knows how long ops take. Raises Stopped, with the run saved, if a signal arrived.
    """
    settings = bench.settings
    plan = dataclasses.replace(plan, boards=open_boards(bench, request, found))
    run = dataclasses.replace(new_run(settings, plan, found.device, blank.command), id=blank.id, created=blank.created)
    refuse_looser(plan, settings, run.environment, run.created)
    store.write_run(run, settings.reports)
    runs: list[Run] = []
    for number, group in enumerate(groups, 1):
        where = dataclasses.replace(settings, reports=settings.reports / FOLDER / str(number))
        where.reports.mkdir(parents=True, exist_ok=True)
        try:
            runs.append(_measure_group(dataclasses.replace(bench, settings=where), request, run, group, earlier))
        except Stopped as stop:
            # What it had measured by then it has saved.
            partial = [store.read_run(where.reports)] if (where.reports / store.RUN_FILE).exists() else []
            _keep(settings, dataclasses.replace(run, stopped=stop.signal_name), [*runs, *partial])
            raise
        run = _keep(settings, run, runs)
    return run, decide(run, settings)


def _measure_group(bench: Bench, request: Request, whole: Run, group: Group, earlier: Run | None) -> Run:
    """The group's own run; until all are joined it is judged by the families of all groups."""
    assert whole.plan.again is not None
    commit = group.tree.base.commit
    mine = tuple(each for each in whole.plan.again.cases if each.commit == commit and not each.failure)
    plan = dataclasses.replace(
        whole.plan,
        ops=group.planned,
        base=group.tree.base,
        shard_family=whole.plan.family,
        again=dataclasses.replace(whole.plan.again, cases=mine),
    )
    own = dataclasses.replace(request, ops=tuple(op.op for op in group.planned), device=plan.device)
    run = dataclasses.replace(whole, plan=plan, ops=(), limits=Limits(), wall_s=None)
    seconds = estimate_seconds(plan, earlier) if plan.boards or plan.deadline else None
    run = Recorder(bench, own, run, group.tree, seconds=seconds).record()
    return settle(bench, own, run, group.tree)[0]


def _keep(settings: Settings, whole: Run, runs: Sequence[Run]) -> Run:
    """The run with what the groups so far have measured, stored with their launches."""
    by_op: dict[str, list[OpRun]] = {}
    for run in runs:
        for op in run.ops:
            by_op.setdefault(op.op, []).append(op)
    rates = {dtype: rate for run in reversed(runs) for dtype, rate in run.limits.matmul_tflops.items()}
    run = dataclasses.replace(
        whole,
        environment=next((run.environment for run in runs if run.environment.timer), whole.environment),
        plan=dataclasses.replace(whole.plan, ops=tuple(_note_apart(op, runs) for op in whole.plan.ops)),
        ops=tuple(_join_runs(parts) for _, parts in sorted(by_op.items())),
        limits=Limits(next((run.limits.copy_gbps for run in runs if run.limits.copy_gbps), None), rates),
        wall_s=round(sum(run.wall_s or 0.0 for run in runs), 3),
    )
    store.write_run(run, settings.reports)
    folders: list[Path] = [settings.reports / FOLDER / str(number) for number in range(1, len(runs) + 1)]
    join_launches(settings.reports, folders)
    return run


def _note_apart(op: PlannedOp, runs: Sequence[Run]) -> PlannedOp:
    """The op with what only measuring it could find out: that its revisions need a process each."""
    found = [each.base for run in runs for each in run.plan.ops if each.op == op.op and each.base]
    why = next((base.apart for base in found if base.apart), None)
    return dataclasses.replace(op, base=dataclasses.replace(op.base, apart=why)) if op.base and why else op


def _join_runs(parts: Sequence[OpRun]) -> OpRun:
    """One op's results of several groups."""
    notes = [note for at, part in enumerate(parts) for note in part.notes if at == 0 or note not in parts[0].notes]
    return dataclasses.replace(
        parts[-1],
        performance=tuple(case for part in parts for case in part.performance),
        failure=next((part.failure for part in parts if part.failure), None),
        unmeasured=next((part.unmeasured for part in parts if part.unmeasured), None),
        notes=tuple(notes),
        measure_s=sum(part.measure_s or 0.0 for part in parts) or None,
    )
