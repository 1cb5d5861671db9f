"""Every case duelled with the last release: finds slow-downs that came bit by bit, each of them allowed.

Accepted runs show such a creep late (how-thresholds-tighten.md), so the release's files are duelled. A case with a
loss that people accepted since (an epoch) is duelled with the commit of that run instead, and one whose history has a
step before the release that nothing explains with the commit before that step.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import suppress

from perfci import store
from perfci.core.errors import DeviceError, GitError, UsageError
from perfci.core.model.basics import Fact, Reason, Suite, because
from perfci.core.model.decision import Judgements
from perfci.core.model.place import UNTIMED, Device
from perfci.core.model.run import Again, AgainCase, Base, DuelWhat, PlannedOp, Run
from perfci.core.settings import Settings
from perfci.extensions.common.accepted_runs import HistoryRun
from perfci.extensions.common.history import read_history, with_names_of_now
from perfci.extensions.history import changepoints
from perfci.extensions.history.changepoints import ChangePoint
from perfci.extensions.history.commits import LastRelease, count_between, find_last_release, is_ancestor
from perfci.extensions.history.groups import SHOWN, Group, begin, group_cases, measure_groups, plan_groups
from perfci.git.base import How, find_commit
from perfci.runs.bench import Listener, claim_bench
from perfci.runs.describe import Described
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Request


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
        blank = begin(whole, Device("offline", "no device", "offline"), Again())
        try:
            release = find_last_release(settings.root, settings.release_tags, named)
        except GitError as error:
            if error.reason.kind != "release_none":  # no fault: a project may not have made one yet
                raise
            return blank, Judgements((), notes=(error.reason,))
        described = whole.describe()
        if described.device.kind in UNTIMED:
            raise DeviceError("release_not_timed")
        if request.pattern is not None and not any(op.performance for op in described.ops):
            raise UsageError("no_case_fits", pattern=request.pattern, ops=", ".join(op.op for op in described.ops))
        groups, lost, notes = _group_since_release(whole, described, release)
        cases = (*(case for group in groups for case in group.cases), *lost)
        again = Again("", cases, release.name, notes)
        if not again.cases:
            run = dataclasses.replace(blank, plan=dataclasses.replace(blank.plan, again=again))
            store.write_run(run, settings.reports)
            return run, Judgements((), notes=again.said)
        return measure_groups(whole, blank, plan_groups(whole, described, groups, again), described.device, groups)


def _group_since_release(
    whole: Experiment, described: Described, release: LastRelease
) -> tuple[list[Group], list[AgainCase], tuple[Reason, ...]]:
    """Returns the cases by their commits, those of which these are not available, and notes about what is left out."""
    settings, sound = whole.settings, [op for op in described.ops if not op.failure]
    cases: list[AgainCase] = []
    for op in sound:
        history = read_history(settings.baselines, described.device.key, op.op, formerly=op.renamed_from)
        cases += _choose_commits(settings, op, with_names_of_now(history.runs, op.renamed), release)

    def name_base(commit: str) -> Base:
        return Base(commit, How.RELEASE, release.name if commit == release.commit else commit[:SHOWN])

    groups, refused = group_cases(whole, sound, cases, name_base)
    for group in groups:
        _count_commits(group, settings)
    lost = [case for case in cases if case.failure]
    left_out = {op.op: op.failure for op in described.ops if op.failure}
    for case, why in refused:
        if case.since is not None:
            lost.append(_lose_epoch(case))
        else:
            left_out.setdefault(f"{case.op} {case.case}" if why.kind == "base_lacks_case" else case.op, why)
    notes = (because("release_not_duelled", why, op=op, release=release.name) for op, why in left_out.items())
    return groups, lost, tuple(notes)


def _count_commits(group: Group, settings: Settings) -> None:
    """Note the commits of the main line since the group's, and how many commits touched files of each op."""
    root, commit = settings.root, group.base.commit
    commits = count_between(root, commit, "HEAD", first_parent=True)
    changed = {op.op: op.base.changed for op in group.ops if op.base and op.base.changed}
    touching = {op: count_between(root, commit, "HEAD", files) for op, files in changed.items()}
    group.cases = [dataclasses.replace(case, commits=commits, touching=touching.get(case.op)) for case in group.cases]


def _choose_commits(
    settings: Settings, op: PlannedOp, runs: Sequence[HistoryRun], release: LastRelease
) -> Iterator[AgainCase]:
    """Each case with the release, or with its last accepted loss if the release does not have that yet."""
    histories = changepoints.index_cases(runs)
    for case in op.performance:
        epoch = AgainCase(op.op, case, release.commit)
        if began := next((run for run in reversed(runs) if run.why(case) is not None), None):
            commit = began.environment.commit
            lossy = AgainCase(op.op, case, commit, since=began.why(case))
            ancestor = None
            with suppress(GitError):
                commit = find_commit(settings.root, commit) if commit and not began.environment.dirty else None
                ancestor = commit if commit and is_ancestor(settings.root, commit, "HEAD") else None
            if ancestor is None:
                epoch = _lose_epoch(lossy)
            elif not is_ancestor(settings.root, ancestor, release.commit):
                epoch = lossy
            yield epoch
            continue
        steps = (step for step in changepoints.find_changes(histories.get(case, ())) if step.unexplained)
        older = (_go_back(settings, epoch, step, release) for step in steps)
        yield next((lossy for lossy in older if lossy), epoch)


def _go_back(settings: Settings, case: AgainCase, step: ChangePoint, release: LastRelease) -> AgainCase | None:
    """The case with the commit before a step, if that is older than the release.

    A history shows a step, and not its cause. A duel of the commits before and after confirms it, or does not.
    """
    before = step.before.environment
    with suppress(GitError):
        commit = find_commit(settings.root, before.commit) if before.commit and not before.dirty else None
        if commit and commit != release.commit and is_ancestor(settings.root, commit, release.commit):
            return dataclasses.replace(case, commit=commit, stepped=step.after.created[:10])
    return None


def _lose_epoch(case: AgainCase) -> AgainCase:
    facts: dict[str, Fact] = {"op": case.op, "case": case.case, "commit": (case.commit or "-")[:SHOWN]}
    return dataclasses.replace(case, failure=Reason("release_epoch_lost", facts))
