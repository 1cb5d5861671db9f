"""Cases duelled with commits of their own: what an earlier run left open, or every case with the last release.

`retry`: `accept` refuses INCONCLUSIVE cases, so each is duelled with the commit of its last conclusive run. So is one
that a younger base answered, if its op's files changed since: nothing else would look at what came in between.

`compare_with_release`: accepted runs show a creep late (how-thresholds-tighten.md), so the release's own files are
duelled. A case with a loss that people accepted since (an epoch) is duelled with the commit of that run instead.

The cases of one commit are a group, measured like a shard by the size of the family of all groups, and judged at once.
"""

import dataclasses
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from perfci import store
from perfci.core.deadline import Timetable
from perfci.core.environment import find_newest
from perfci.core.errors import DeviceError, GitError, UsageError
from perfci.core.model.baseline import Baseline, BaselineCase
from perfci.core.model.basics import Fact, Gate, Reason, Suite, Verdict, because
from perfci.core.model.decision import Judgements
from perfci.core.model.history import HistoryRun
from perfci.core.model.measured import OpRun
from perfci.core.model.place import UNTIMED, Device, Limits
from perfci.core.model.run import Again, AgainCase, Base, DuelWhat, Plan, PlannedOp, Run
from perfci.core.settings import Settings
from perfci.core.stopping import Stopped
from perfci.git.base import How, find_commit
from perfci.git.command import parse_commit
from perfci.git.history import LastRelease, count_between, find_last_release, is_ancestor
from perfci.ops.fingerprint.pins import pins_changed
from perfci.runs import base as base_stage
from perfci.runs.base import BaseTree
from perfci.runs.bench import Listener, claim_bench
from perfci.runs.decide import decide, read_context
from perfci.runs.describe import Described
from perfci.runs.experiment import Experiment
from perfci.runs.merge import add_findings, join_limits
from perfci.runs.plan import Against, Request, estimate_seconds
from perfci.store.history import read_history, with_names_of_now
from perfci.store.launches import clear_launches, join_launches

FOLDER = "groups"  # in the reports folder: groups/<number>/run.json of each commit's cases
EVERY = "*"  # the --case pattern of a run that leaves other cases out
BUDGETS = 2  # times the earlier run's budget, which was too small, unless --budget names one
SHOWN = 10  # digits of a commit that people read


@dataclass
class Group:
    """The cases that are duelled with one commit, as an experiment beside its tree."""

    experiment: Experiment
    cases: list[AgainCase]
    ops: Sequence[PlannedOp]  # beside the base, with all of their cases

    @property
    def base(self) -> Base:
        """The commit."""
        assert self.experiment.tree is not None
        return self.experiment.tree.base

    @property
    def planned(self) -> tuple[PlannedOp, ...]:
        """The ops with these cases only, here and at the base."""
        planned = []
        for op in self.ops:
            mine = tuple(case.case for case in self.cases if case.op == op.op)
            base = dataclasses.replace(op.base, performance=mine) if op.base else None
            if mine:
                planned.append(dataclasses.replace(op, accuracy=(), performance=mine, audit=(), base=base))
        return tuple(planned)


# --- what an earlier run left open ------------------------------------------------------------------------------------


def retry(
    settings: Settings, earlier: Run, request: Request, command: str, listener: Listener
) -> tuple[Run, Judgements]:
    """Duel the INCONCLUSIVE performance cases of a run of the checked-out commit, as a run in the reports folder.

    request: device, budget (0: twice the earlier run's), seed, timer. Other values are the earlier run's. A run without
    ops had nothing to duel. Raises UsageError for a run of another commit or device model, a shard's, and for a
    --threshold that a pipeline does not allow.
    """
    head = parse_commit(settings.root, "HEAD")
    if head is None or head != earlier.environment.commit:
        raise UsageError("again_commit", run=earlier.id, found=head, planned=earlier.environment.commit)
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
    with claim_bench(settings, listener) as bench:
        whole = Experiment.beside(bench, request, command, None)
        blank = _begin(whole, dataclasses.replace(device, uuid=None), Again(earlier.id))
        cases, undecided = _find_open_cases(earlier, settings)
        if not cases:
            return blank, Judgements(())
        request = dataclasses.replace(request, ops=tuple(dict.fromkeys(case.op for case in cases)))
        whole = dataclasses.replace(whole, request=request)
        found = whole.describe()
        if found.device.key != device.key:
            raise UsageError("again_device", run=earlier.id, planned=device.key, found=found.device.key)
        groups, refused = _group(whole, found.ops, cases)
        lost = [case for case in cases if case.failure]
        for case, why in refused:
            failure = because("again_not_duelled", why, op=case.op, case=case.case, commit=(case.commit or "")[:SHOWN])
            lost.append(dataclasses.replace(case, failure=failure))
        # Only what was left open is asked again if nothing changed, and stays open if it cannot be asked.
        lost = [case for case in lost if (case.op, case.case) in undecided]
        for group in groups:
            group.cases = [case for case in group.cases if not case.same or (case.op, case.case) in undecided]
        groups = [group for group in groups if group.cases]
        again = Again(earlier.id, (*(case for group in groups for case in group.cases), *lost))
        if not again.cases:
            return blank, Judgements(())
        return _measure(whole, blank, _plan(whole, found, groups, again), found.device, groups, earlier)


def _find_open_cases(earlier: Run, settings: Settings) -> tuple[list[AgainCase], set[tuple[str, str]]]:
    """Returns the cases, each with its last conclusive commit or why it has none, and the INCONCLUSIVE ones."""
    baselines, base = read_context(earlier, settings).baselines, earlier.plan.base
    # A case without a stored commit of its own has the one that the run was compared with.
    other = base.commit if base and base.how == How.BASELINE else None
    stored = {(op, each.case): each for op, known in baselines.items() for each in known.cases}
    found, undecided = [], set()
    for row in decide(earlier, settings).rows:
        if row.suite is not Suite.PERFORMANCE or row.case is None:
            continue
        commit = _find_last_commit(stored.get((row.op, row.case)), baselines.get(row.op)) or other
        failure = None if commit else Reason("again_no_commit", {"op": row.op, "case": row.case})
        is_open = row.verdict is Verdict.INCONCLUSIVE
        if is_open or (other and commit != other and row.verdict.gate is not Gate.FAILS):
            found.append(AgainCase(row.op, row.case, commit, failure=failure))
        if is_open:
            undecided.add((row.op, row.case))
    return found, undecided


def _find_last_commit(stored: BaselineCase | None, baseline: Baseline | None) -> str | None:
    """Returns the newest recorded, clean commit of the runs that a case's stored blocks come from."""
    if baseline is None or stored is None:
        return None
    sources = {block.run for block in stored.blocks}
    clean = [run for run in baseline.runs if run.id in sources and not run.environment.dirty and run.environment.commit]
    newest = find_newest(clean).environment.commit if clean else None
    return newest if newest and re.fullmatch(r"[0-9a-f]{7,64}", newest) else None


# --- since the last release -------------------------------------------------------------------------------------------


def compare_with_release(
    settings: Settings, request: Request, command: str, listener: Listener, named: str | None = None
) -> tuple[Run, Judgements]:
    """Duel every case with the last release's files, or with those of its epoch since, as a run in the reports folder.

    named: a revision in the release's place. A run without ops has a note why. Raises GitError if the release is not
    available, DeviceError if nothing can be timed.
    """
    request = dataclasses.replace(request, suites=(Suite.PERFORMANCE,), duel=DuelWhat.CHANGED)
    with claim_bench(settings, listener) as bench:
        whole = Experiment.beside(bench, request, command, None)
        blank = _begin(whole, Device("offline", "no device", "offline"), Again())
        try:
            release = find_last_release(settings.root, settings.release_tags, named)
        except GitError as error:
            if error.reason.kind != "release_none":  # no fault: a project may not have made one yet
                raise
            return blank, Judgements((), notes=(error.reason,))
        found = whole.describe()
        if found.device.kind in UNTIMED:
            raise DeviceError("release_not_timed")
        if request.pattern is not None and not any(op.performance for op in found.ops):
            raise UsageError("no_case_fits", pattern=request.pattern, ops=", ".join(op.op for op in found.ops))
        groups, lost, notes = _group_since_release(whole, found, release)
        cases = (*(case for group in groups for case in group.cases), *lost)
        again = Again("", cases, release.name, notes)
        if not again.cases:
            run = dataclasses.replace(blank, plan=dataclasses.replace(blank.plan, again=again))
            store.write_run(run, settings.reports)
            return run, Judgements((), notes=again.said)
        return _measure(whole, blank, _plan(whole, found, groups, again), found.device, groups)


def _group_since_release(
    whole: Experiment, found: Described, release: LastRelease
) -> tuple[list[Group], list[AgainCase], tuple[Reason, ...]]:
    """Returns the cases by their commits, those of which these are not available, and notes about what is left out."""
    settings, sound = whole.settings, [op for op in found.ops if not op.failure]
    cases: list[AgainCase] = []
    for op in sound:
        history = read_history(settings.baselines, found.device.key, op.op, formerly=op.renamed_from)
        cases += _choose_commits(settings, op, with_names_of_now(history.runs, op.renamed), release)
    groups, refused = _group(whole, sound, cases, release)
    lost = [case for case in cases if case.failure]
    left_out = {op.op: op.failure for op in found.ops if op.failure}
    for case, why in refused:
        if case.since is not None:
            lost.append(_lose_epoch(case))
        else:
            left_out.setdefault(f"{case.op} {case.case}" if why.kind == "base_lacks_case" else case.op, why)
    notes = (because("release_not_duelled", why, op=op, release=release.name) for op, why in left_out.items())
    return groups, lost, tuple(notes)


def _choose_commits(
    settings: Settings, op: PlannedOp, runs: Sequence[HistoryRun], release: LastRelease
) -> Iterator[AgainCase]:
    """Each case with the release, or with its last accepted loss if the release does not have that yet."""
    for case in op.performance:
        found = AgainCase(op.op, case, release.commit)
        began = next((run for run in reversed(runs) if run.epoch and case in run.epoch.cases), None)
        if began and began.epoch:
            commit = began.environment.commit
            lossy = AgainCase(op.op, case, commit, since=began.epoch.why)
            known = None
            with suppress(GitError):
                commit = find_commit(settings.root, commit) if commit and not began.environment.dirty else None
                known = commit if commit and is_ancestor(settings.root, commit, "HEAD") else None
            if known is None:
                found = _lose_epoch(lossy)
            elif not is_ancestor(settings.root, known, release.commit):
                found = lossy
        yield found


def _lose_epoch(case: AgainCase) -> AgainCase:
    facts: dict[str, Fact] = {"op": case.op, "case": case.case, "commit": (case.commit or "-")[:SHOWN]}
    return dataclasses.replace(case, failure=Reason("release_epoch_lost", facts))


# --- grouping, planning and measuring ---------------------------------------------------------------------------------


def _group(
    whole: Experiment, ops: Sequence[PlannedOp], cases: Sequence[AgainCase], release: LastRelease | None = None
) -> tuple[list[Group], list[tuple[AgainCase, Reason]]]:
    """Returns the cases by their commits, and those that cannot be duelled with theirs, each with the reason."""
    root, groups, refused = whole.settings.root, list[Group](), list[tuple[AgainCase, Reason]]()
    head = None if release else parse_commit(root, "HEAD")
    for number, commit in enumerate(dict.fromkeys(case.commit or "" for case in cases if not case.failure), 1):
        mine = [case for case in cases if case.commit == commit and not case.failure]
        try:
            tree = _write_tree(whole, commit, number, release)
        except GitError as error:
            refused += [(case, error.reason) for case in mine]
            continue
        beside = _beside(whole, tree, number)
        base, ours = tree.base, [op for op in ops if any(case.op == op.op for case in mine)]
        planned = {op.op: op for op in base_stage.plan_ops(whole.bench, tree, whole.request, ours)}
        # Since a release: the commits of the main line, and how many commits touched an op's files.
        commits = count_between(root, base.commit, "HEAD", first_parent=True) if release else None
        changed = {op: each.base.changed for op, each in planned.items() if release and each.base and each.base.changed}
        touching = {op: count_between(root, base.commit, "HEAD", files) for op, files in changed.items()}
        duelled = []
        for case in mine:
            there = planned[case.op].base
            if base.commit == head:
                refused.append((case, Reason("again_nothing_between")))
            elif there and there.failure:
                refused.append((case, there.failure))
            elif there and case.case not in there.performance:
                refused.append((case, Reason("base_lacks_case", {"base": base.name, "case": case.case})))
            else:  # an op that failed has an ERROR, which is worth more than why it is not duelled
                known = dataclasses.replace(case, commit=base.commit, same=there is not None and there.same)
                duelled.append(dataclasses.replace(known, commits=commits, touching=touching.get(case.op)))
        if duelled:
            groups.append(Group(beside, duelled, [*planned.values()]))
    return groups, refused


def _beside(whole: Experiment, tree: BaseTree, number: int) -> Experiment:
    """The experiment of one group, in a folder of its own."""
    where = dataclasses.replace(whole.settings, reports=whole.settings.reports / FOLDER / str(number))
    bench = dataclasses.replace(whole.bench, settings=where, spent_s={})
    return Experiment.beside(bench, whole.request, whole.command, tree)


def _begin(whole: Experiment, device: Device, again: Again) -> Run:
    """Store a run without ops, so that what an earlier run left there does not pass for this run's answer."""
    reports, request = whole.settings.reports, whole.request
    shutil.rmtree(reports / FOLDER, ignore_errors=True)
    clear_launches(reports)
    plan = Plan((), request.seed or 0, request.budget_s, device.kind, request.suites, EVERY, again=again)
    blank = whole.begin(dataclasses.replace(plan, thresholds=request.thresholds), device)
    store.write_run(blank, reports)
    return blank


def _write_tree(whole: Experiment, commit: str, number: int, release: LastRelease | None) -> BaseTree:
    """Write out the project as it was at a commit that some file or tag names, for the group of this number."""
    found = find_commit(whole.settings.root, commit)
    name = release.name if release and found == release.commit else found[:SHOWN]
    base = Base(found, How.RELEASE if release else How.AGAIN, name)
    tree = base_stage.write_base(whole.bench, base, f"{base_stage.FOLDER}-{number}")
    # A release's arm runs in today's toolchain like the other one: what a new toolchain did since then is no creep.
    if release:
        return tree
    pins = pins_changed(whole.settings.root, tree.settings.root)
    return dataclasses.replace(tree, base=dataclasses.replace(tree.base, changed_pins=pins))


def _join_ops(ops: Iterable[PlannedOp], groups: Sequence[Group], again: Again) -> list[PlannedOp]:
    """Returns the ops with their cases of all groups and those that are lost. Ops without any are left out."""
    found = []
    for op in ops:
        parts = [part for group in groups for part in group.planned if part.op == op.op]
        cases = [case for part in parts for case in part.performance]
        cases += [case.case for case in again.cases if case.op == op.op and case.failure]
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


def _plan(whole: Experiment, found: Described, groups: Sequence[Group], again: Again) -> Plan:
    """Returns what all groups measure together. The families are fixed here, and the boards."""
    against, ops, request = Against(), _join_ops(found.ops, groups, again), whole.request
    changed = ops
    if again.release:
        # Ops that fail have a note. The check of the same commit has them as errors. The family is of the ops that
        # changed. No unchanged case is duelled as a control: the nightly check has those.
        ops = [op for op in ops if not op.failure]
        changed = [op for op in ops if not (op.base and op.base.same)]
    if groups:
        # The commit of most cases, under the names of all. The plan has the commit of each case.
        most = max(groups, key=lambda group: len(group.cases)).base
        bases = [group.base for group in groups]
        names = ", ".join(dict.fromkeys(base.name for base in bases))
        pins = tuple(dict.fromkeys(pin for base in bases for pin in base.changed_pins))
        against = Against(dataclasses.replace(most, name=names, changed_pins=pins), request.duel)
    whole = dataclasses.replace(whole, base=dataclasses.replace(whole.base, against=against))
    plan = whole.plan(dataclasses.replace(found, ops=tuple(changed)))
    plan = dataclasses.replace(plan, ops=tuple(ops), filter=request.pattern or EVERY, base_note=None, again=again)
    return plan if again.release else dataclasses.replace(plan, skip_unchanged=False)


def _measure(
    whole: Experiment, blank: Run, plan: Plan, device: Device, groups: Sequence[Group], earlier: Run | None = None
) -> tuple[Run, Judgements]:
    """Measure group by group, each saved, and judge all at once. earlier: for ops' times. Raises Stopped."""
    settings, again = whole.settings, plan.again or Again()
    run = dataclasses.replace(whole.begin(plan, device), id=blank.id, created=blank.created)
    store.write_run(run, settings.reports)
    runs: list[Run] = []
    for group in groups:
        # A group's run is judged by the families of all groups until all are joined.
        share = dataclasses.replace(
            plan, ops=group.planned, base=group.base, shard_family=plan.family,
            again=dataclasses.replace(again, cases=tuple(group.cases)),
        )  # fmt: skip
        request = dataclasses.replace(whole.request, ops=tuple(op.op for op in share.ops), device=plan.device)
        experiment = dataclasses.replace(group.experiment, request=request)
        experiment.settings.reports.mkdir(parents=True, exist_ok=True)
        part = dataclasses.replace(run, plan=share, ops=(), limits=Limits(), wall_s=None)
        times = Timetable(estimate_seconds(share, earlier), known=earlier is not None)
        try:
            runs.append(experiment.settle(experiment.record(part, times))[0])
        except Stopped as stop:
            # What it had measured by then it has saved.
            reports = experiment.settings.reports
            partial = [store.read_run(reports)] if (reports / store.RUN_FILE).exists() else []
            _keep(settings, dataclasses.replace(run, stopped=stop.signal_name), [*runs, *partial], groups)
            raise
        run = _keep(settings, run, runs, groups)
    return run, whole.judge(run)


def _keep(settings: Settings, whole: Run, runs: Sequence[Run], groups: Sequence[Group]) -> Run:
    """Store the run with what the groups so far have measured, and their launches."""
    by_op: dict[str, list[OpRun]] = {}
    for op in (op for run in runs for op in run.ops):
        by_op.setdefault(op.op, []).append(op)
    run = dataclasses.replace(
        whole,
        environment=next((run.environment for run in runs if run.environment.timer), whole.environment),
        plan=dataclasses.replace(whole.plan, ops=tuple(add_findings(op, runs) for op in whole.plan.ops)),
        ops=tuple(_join_runs(parts) for _, parts in sorted(by_op.items())),
        limits=join_limits([run.limits for run in runs]),
        wall_s=round(sum(run.wall_s or 0.0 for run in runs), 3),
        spent_s=sum((Counter(run.spent_s) for run in runs), Counter()),
    )
    # A signature covers both.
    join_launches(settings.reports, [group.experiment.settings.reports for group in groups[: len(runs)]])
    store.write_run(run, settings.reports)
    return run


def _join_runs(parts: Sequence[OpRun]) -> OpRun:
    """Returns one op's results of several groups."""
    return dataclasses.replace(
        parts[-1],
        performance=tuple(case for part in parts for case in part.performance),
        failure=next((part.failure for part in parts if part.failure), None),
        unmeasured=next((part.unmeasured for part in parts if part.unmeasured), None),
        notes=tuple({note.kind + str(note.facts): note for part in parts for note in part.notes}.values()),
        measure_s=sum(part.measure_s or 0.0 for part in parts) or None,
        spent_s=sum((Counter(part.spent_s) for part in parts), Counter()),
    )
