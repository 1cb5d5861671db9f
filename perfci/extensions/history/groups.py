"""Cases duelled with commits of their own. Those of one commit are a group, measured like a shard of all groups."""

import dataclasses
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from perfci import store
from perfci.core.deadline import Timetable
from perfci.core.errors import GitError
from perfci.core.model.basics import Reason
from perfci.core.model.decision import Judgements
from perfci.core.model.measured import OpRun
from perfci.core.model.place import Device, Limits
from perfci.core.model.run import Again, AgainCase, Base, Plan, PlannedOp, Run
from perfci.core.settings import Settings
from perfci.core.stopping import Stopped
from perfci.extensions.common.joining import add_findings, join_launches
from perfci.git.base import How, find_commit
from perfci.git.command import parse_commit
from perfci.ops.fingerprint.pins import pins_changed
from perfci.runs import base as base_stage
from perfci.runs.base import BaseTree
from perfci.runs.beside import plan_ops
from perfci.runs.describe import Described
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Against, estimate_seconds
from perfci.runs.record import join_limits
from perfci.store.launches import clear_launches

FOLDER = "groups"  # in the reports folder: groups/<number>/run.json of each commit's cases
EVERY = "*"  # the --case pattern of a run that leaves other cases out
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
            cases = tuple(case.case for case in self.cases if case.op == op.op)
            base = dataclasses.replace(op.base, performance=cases) if op.base else None
            if cases:
                planned.append(dataclasses.replace(op, accuracy=(), performance=cases, audit=(), base=base))
        return tuple(planned)


def group_cases(
    whole: Experiment, ops: Sequence[PlannedOp], cases: Sequence[AgainCase], name: Callable[[str], Base]
) -> tuple[list[Group], list[tuple[AgainCase, Reason]]]:
    """Returns the cases by their commits, and those that cannot be duelled with theirs, each with the reason.

    name: makes the base of a commit.
    """
    root, groups, refused = whole.settings.root, list[Group](), list[tuple[AgainCase, Reason]]()
    sound = [case for case in cases if not case.failure]
    for number, commit in enumerate(dict.fromkeys(case.commit or "" for case in sound), 1):
        here = [case for case in sound if case.commit == commit]
        try:
            tree = _write_tree(whole, name(find_commit(root, commit)), number)
        except GitError as error:
            refused += [(case, error.reason) for case in here]
            continue
        beside, base, names = _beside(whole, tree, number), tree.base, {case.op for case in here}
        planned = plan_ops(whole.bench, tree, whole.request, [op for op in ops if op.op in names])
        of_base, duelled = {op.op: op.base for op in planned}, []
        for case in here:
            there = of_base[case.op]
            if base.how == How.AGAIN and base.commit == parse_commit(root, "HEAD"):
                refused.append((case, Reason("again_nothing_between")))
            elif there and there.failure:
                refused.append((case, there.failure))
            elif there and case.case not in there.performance:
                refused.append((case, Reason("base_lacks_case", {"base": base.name, "case": case.case})))
            else:  # an op that failed has an ERROR, which is worth more than why it is not duelled
                duelled.append(dataclasses.replace(case, commit=base.commit, same=there is not None and there.same))
        if duelled:
            groups.append(Group(beside, duelled, planned))
    return groups, refused


def _beside(whole: Experiment, tree: BaseTree, number: int) -> Experiment:
    """The experiment of one group, in a separate folder."""
    where = dataclasses.replace(whole.settings, reports=whole.settings.reports / FOLDER / str(number))
    bench = dataclasses.replace(whole.bench, settings=where, spent_s={})
    return Experiment.beside(bench, whole.request, whole.command, tree)


def begin(whole: Experiment, device: Device, again: Again) -> Run:
    """Store a run without ops, so that what an earlier run left there does not pass for this run's answer."""
    reports, request = whole.settings.reports, whole.request
    shutil.rmtree(reports / FOLDER, ignore_errors=True)
    clear_launches(reports)
    plan = Plan((), request.seed or 0, request.budget_s, device.kind, request.suites, EVERY, again=again)
    blank = whole.begin(dataclasses.replace(plan, thresholds=request.thresholds), device)
    store.write_run(blank, reports)
    return blank


def _write_tree(whole: Experiment, base: Base, number: int) -> BaseTree:
    """Write out the project as it was at a commit, for the group of this number."""
    tree = base_stage.write_base(whole.bench, base, f"{base_stage.FOLDER}-{number}")
    # A release's arm runs in today's toolchain like the other one: what a new toolchain did since then is no creep.
    if base.how == How.RELEASE:
        return tree
    pins = pins_changed(whole.settings.root, tree.settings.root)
    return dataclasses.replace(tree, base=dataclasses.replace(tree.base, changed_pins=pins))


def _join_ops(ops: Iterable[PlannedOp], groups: Sequence[Group], again: Again) -> list[PlannedOp]:
    """Returns the ops with their cases of all groups and those that are lost. Ops without any are left out."""
    joined = []
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
            joined.append(dataclasses.replace(op, accuracy=(), performance=performance, audit=(), base=base))
    return joined


def plan_groups(whole: Experiment, described: Described, groups: Sequence[Group], again: Again) -> Plan:
    """Returns what all groups measure together. The families are fixed here, and the boards."""
    against, ops, request = Against(), _join_ops(described.ops, groups, again), whole.request
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
    plan = whole.plan(dataclasses.replace(described, ops=tuple(changed)))
    plan = dataclasses.replace(plan, ops=tuple(ops), filter=request.pattern or EVERY, base_note=None, again=again)
    return plan if again.release else dataclasses.replace(plan, skip_unchanged=False)


def measure_groups(
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
