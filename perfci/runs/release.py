"""Every case against the last release: what many merges took bit by bit, though each passed by itself.

The stored numbers of accepted runs show a creep late, since a run is noisier than a duel (how-thresholds-tighten.md).
So the release's own files are duelled, side by side with those that are checked out, by the thresholds in force. A case
whose loss people accepted after the release (an epoch of its history) is held against the commit of that run instead.
What release and epoch leave the same is not timed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfci import store
from perfci.core.errors import DeviceError, UsageError
from perfci.core.model import (
    UNTIMED,
    Again,
    AgainCase,
    Device,
    DuelWhat,
    Fact,
    HistoryRun,
    Judgements,
    Plan,
    PlannedOp,
    Reason,
    Run,
    Suite,
)
from perfci.core.settings import Settings
from perfci.core.wording import caused
from perfci.git import base as git_base
from perfci.git.base import How
from perfci.git.history import between, is_ancestor, touching
from perfci.git.tags import LastRelease, last_release
from perfci.runs import base as base_stage
from perfci.runs.base import BaseTree
from perfci.runs.bench import Bench, Listener, claimed
from perfci.runs.decide import decide
from perfci.runs.describe import Found, boards, describe_ops
from perfci.runs.effective_thresholds import alpha_of, refuse_looser
from perfci.runs.groups import SHOWN, Group, base_of, forget, is_same, joined, measured, tree_at
from perfci.runs.plan import Against, Request, make_plan
from perfci.runs.rounds import new_run
from perfci.store.history import KEPT, read_history, with_names_of_now

EVERY = "*"
"""The --case pattern of a run that leaves other cases out, and so says nothing of them."""

NOTHING_TO_DO = frozenset({"release_none", "release_all_aside"})
"""Why there is no release, where that is no fault: a project may not have made one yet."""

NOBODY = Device("offline", "no device", "offline")
"""Of a run in which nothing was duelled."""

MOST_NAMED = 5
"""Ops or cases in a sentence."""

MOST_COMMITS = 10_000


@dataclass(frozen=True)
class _Epoch:
    """A loss of a case that people accepted after the release."""

    case: tuple[str, str]
    """op and id"""
    commit: str
    why: str
    failure: Reason | None = None
    """why that commit cannot be had"""


@dataclass(frozen=True)
class _Grouped:
    """The groups, the cases whose commits cannot be had, and what is to be said besides."""

    groups: tuple[Group, ...] = ()
    lost: tuple[AgainCase, ...] = ()
    said: tuple[Reason, ...] = ()

    def __add__(self, other: _Grouped) -> _Grouped:
        return _Grouped((*self.groups, *other.groups), (*self.lost, *other.lost), (*self.said, *other.said))


def creep(
    settings: Settings, request: Request, command: str, listener: Listener, named: str | None = None
) -> tuple[Run, Judgements]:
    """Duel every case with the last release's files, or with those of its epoch since; a run in the reports folder.

    `named` is a revision that takes the release's place. A run without ops, with a note, is one for which there is no
    release, or nothing that it has too. Raises UsageError where the release cannot be told or had, DeviceError where
    nothing can be timed.
    """
    request = dataclasses.replace(request, suites=(Suite.PERFORMANCE,), duel=DuelWhat.CHANGED)
    with claimed(settings, listener) as bench:
        forget(settings.reports)
        # What stands there from another time must not pass for this run's answer.
        blank = _blank(settings, request, command)
        store.write_run(blank, settings.reports)
        release = last_release(settings.root, settings.release_tags, named)
        if isinstance(release, LastRelease):
            return _duelled(bench, request, blank, release)
    if release.kind not in NOTHING_TO_DO:
        raise UsageError(release.kind, **release.facts)
    return blank, Judgements((), notes=(release,))


def _blank(settings: Settings, request: Request, command: str, again: Again | None = None) -> Run:
    plan = Plan((), request.seed or 0, request.budget_s, NOBODY.kind, request.suites, EVERY, again=again or Again())
    return new_run(settings, plan, NOBODY, command)


def _duelled(bench: Bench, request: Request, blank: Run, release: LastRelease) -> tuple[Run, Judgements]:
    settings = bench.settings
    found = describe_ops(bench, request)
    if found.device.kind in UNTIMED:
        raise DeviceError("release_not_timed")
    if request.pattern is not None and not any(op.performance for op in found.ops):
        raise UsageError("no_case_fits", pattern=request.pattern, ops=", ".join(op.op for op in found.ops))
    grouped = _grouped(bench, request, found, release)
    cases = [*(case for group in grouped.groups for case in group.cases), *grouped.lost]
    again = Again("", tuple(cases), release.name, (*_aside(release), *grouped.said))
    if not cases:
        run = dataclasses.replace(blank, plan=dataclasses.replace(blank.plan, again=again))
        store.write_run(run, settings.reports)
        return run, Judgements((), notes=again.said)
    plan = dataclasses.replace(_plan(settings, request, found, grouped, again), boards=boards(bench, request, found))
    run = dataclasses.replace(new_run(settings, plan, found.device, blank.command), id=blank.id, created=blank.created)
    refuse_looser(plan, settings, run.environment, run.created)
    run = measured(bench, request, run, grouped.groups, None)
    return run, decide(run, settings)


def _aside(release: LastRelease) -> Iterator[Reason]:
    if release.aside:
        yield Reason("release_aside", {"tag": release.aside, "release": release.name})


def _plan(settings: Settings, request: Request, found: Found, grouped: _Grouped, again: Again) -> Plan:
    """What all groups measure together; the family is of the ops whose files are not the same. Raises UsageError."""
    base = base_of(grouped.groups)
    against = Against(base, DuelWhat.CHANGED) if base else Against()
    ops = joined(found.ops, grouped.groups, [(case.op, case.case) for case in grouped.lost])
    ops = [op for op in ops if not op.failure]  # they are said; the check of the same commit has them as errors
    changed = [op for op in ops if not is_same(op)]
    # No unchanged case is duelled as a control: the check has such ones every night.
    plan = make_plan(
        request, changed, found.device.kind, against, alpha_of(settings, request.thresholds), found.devices
    )
    return dataclasses.replace(plan, ops=tuple(ops), filter=request.pattern or EVERY, again=again, base_note=None)


# --- which case against which commit ----------------------------------------------------------------------------------


def _grouped(bench: Bench, request: Request, found: Found, release: LastRelease) -> _Grouped:
    """The cases by the commits that they are held against, the release first."""
    sound = [op for op in found.ops if not op.failure]
    runs = {op.op: _history(bench.settings, found.device, op) for op in sound}
    epochs = {epoch.case: epoch for op in sound for epoch in _epochs(bench.settings, op, runs[op.op], release)}
    broken = tuple(_unfit(op.op, release.name, op.failure) for op in found.ops if op.failure)
    tree = tree_at(bench, release.commit, How.RELEASE, 1, release.name)
    grouped = _Grouped(lost=tuple(_lost(epoch) for epoch in epochs.values() if epoch.failure), said=broken)
    if isinstance(tree, Reason):
        if tree.kind != "project_not_in_revision":
            raise UsageError(tree.kind, **tree.facts)
        grouped += _Grouped(said=(Reason("release_lacks_project", {"release": release.name}),))
    else:
        grouped += _group(bench, request, sound, tree, dict.fromkeys(_others(sound, epochs)))
        grouped += _Grouped(said=tuple(_forgotten(bench.settings, grouped.groups, runs, release)))
    for number, commit in enumerate(dict.fromkeys(each.commit for each in epochs.values() if not each.failure), 2):
        mine = {case: epoch.why for case, epoch in epochs.items() if epoch.commit == commit and not epoch.failure}
        grouped += _of_epoch(bench, request, sound, commit, number, mine)
    return grouped


def _others(ops: Sequence[PlannedOp], epochs: Mapping[tuple[str, str], _Epoch]) -> Iterator[tuple[str, str]]:
    yield from ((op.op, case) for op in ops for case in op.performance if (op.op, case) not in epochs)


def _of_epoch(
    bench: Bench,
    request: Request,
    ops: Sequence[PlannedOp],
    commit: str,
    number: int,
    mine: Mapping[tuple[str, str], str],
) -> _Grouped:
    tree = tree_at(bench, commit, How.RELEASE, number)
    if isinstance(tree, Reason):
        lost = (_lost(_Epoch(case, commit, why, _gone(case, commit, tree))) for case, why in mine.items())
        return _Grouped(lost=tuple(lost))
    return _group(bench, request, ops, tree, mine)


def _group(
    bench: Bench,
    request: Request,
    ops: Sequence[PlannedOp],
    tree: BaseTree,
    wanted: Mapping[tuple[str, str], str | None],
) -> _Grouped:
    """Those of a commit's cases that can be duelled against it, and a sentence for the others."""
    head = [op for op in ops if any(name == op.op for name, _ in wanted)]
    planned = base_stage.planned(bench, tree, request, head)
    known = [op for op in planned if op.base and not op.base.failure]
    commits = between(bench.settings.root, tree.base.commit, "HEAD", first_parent=True)
    cases = []
    for op in known:
        touched = _touching(bench.settings, op, tree)
        cases += [
            AgainCase(
                op.op,
                case,
                tree.base.commit,
                is_same(op),
                since=wanted[op.op, case],
                commits=None if isinstance(commits, Reason) else commits,
                touching=touched,
            )
            for case in op.performance
            if (op.op, case) in wanted and op.base and case in op.base.performance
        ]
    said = tuple(_left_out(planned, tree.base.name, wanted))
    return _Grouped((Group.of(tree, cases, known),) if cases else (), said=said)


def _touching(settings: Settings, op: PlannedOp, tree: BaseTree) -> int | None:
    changed = op.base.changed if op.base else ()
    if not changed:
        return None
    found = touching(settings.root, tree.base.commit, "HEAD", changed, MOST_COMMITS)
    return None if isinstance(found, Reason) else len(found)


def _left_out(
    planned: Sequence[PlannedOp], name: str, wanted: Mapping[tuple[str, str], str | None]
) -> Iterator[Reason]:
    """What the commit does not have, op by op; ops that came later in one sentence."""
    new = [op.op for op in planned if op.base and op.base.failure and op.base.failure.kind == "base_lacks_op"]
    if new:
        yield Reason("release_lacks_ops", {"release": name, "count": len(new), "ops": _named(new)})
    for op in planned:
        if op.op in new or op.base is None:
            continue
        if op.base.failure:
            yield _unfit(op.op, name, op.base.failure)
            continue
        gone = [case for case in op.performance if (op.op, case) in wanted and case not in op.base.performance]
        if gone:
            facts: dict[str, Fact] = {"op": op.op, "release": name, "count": len(gone), "cases": _named(gone)}
            yield Reason("release_lacks_cases", facts)


def _unfit(op: str, name: str, why: Reason | None) -> Reason:
    return caused("release_not_duelled", why or Reason("worker_silent"), op=op, release=name)


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")


# --- what was accepted since ------------------------------------------------------------------------------------------


def _history(settings: Settings, device: Device, op: PlannedOp) -> tuple[HistoryRun, ...]:
    """The op's accepted runs under the names of now. Raises StoredFileError where the file cannot be read."""
    found = read_history(settings.baselines, device.key, op.op, formerly=op.renamed_from)
    return with_names_of_now(found.runs, op.renamed)


def _epochs(settings: Settings, op: PlannedOp, runs: Sequence[HistoryRun], release: LastRelease) -> Iterator[_Epoch]:
    """The last accepted loss of each case, where the release does not have it yet."""
    for case in op.performance:
        began = next((run for run in reversed(runs) if run.epoch and case in run.epoch.cases), None)
        if began is None or began.epoch is None:
            continue
        commit, why = began.environment.commit or "", began.epoch.why
        failure = _trouble((op.op, case), began, settings)
        inside = failure is None and is_ancestor(settings.root, commit, release.commit)
        if inside is not True:
            yield _Epoch((op.op, case), commit, why, failure)


def _trouble(case: tuple[str, str], began: HistoryRun, settings: Settings) -> Reason | None:
    """Why a case cannot be held against the files with which its epoch began."""
    op, name = case
    commit = began.environment.commit
    if commit is None or began.environment.dirty:
        return Reason("release_epoch_unknown", {"op": op, "case": name, "run": began.run})
    found = git_base.commit(settings.root, commit)
    if isinstance(found, Reason):
        return _gone(case, commit, found)
    inside = is_ancestor(settings.root, found, "HEAD")
    return None if inside is True else Reason("release_epoch_aside", {"op": op, "case": name, "commit": commit[:SHOWN]})


def _gone(case: tuple[str, str], commit: str, why: Reason) -> Reason:
    return caused("release_epoch_gone", why, op=case[0], case=case[1], commit=commit[:SHOWN])


def _lost(epoch: _Epoch) -> AgainCase:
    return AgainCase(*epoch.case, epoch.commit or None, failure=epoch.failure, since=epoch.why)


def _forgotten(
    settings: Settings, groups: Sequence[Group], runs: Mapping[str, Sequence[HistoryRun]], release: LastRelease
) -> Iterator[Reason]:
    """That losses accepted between the release and the oldest run that is kept would count as creep."""
    ops = []
    for op in (op for group in groups for op in group.planned if not is_same(op)):
        known = runs[op.op]
        oldest = known[0].environment.commit if len(known) >= KEPT else None
        if oldest and is_ancestor(settings.root, oldest, release.commit) is False:
            ops.append(op.op)
    if ops:
        facts: dict[str, Fact] = {"release": release.name, "count": len(ops), "ops": _named(ops), "kept": KEPT}
        yield Reason("release_before_history", facts)
