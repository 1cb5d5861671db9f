"""Cases of one run that are held against commits of their own: a commit's cases are a group.

A group is measured as a shard is, by the size of the family of all; then all are joined and judged at once.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci import store
from perfci.core.errors import Stopped
from perfci.core.model import AgainCase, Base, Limits, OpRun, PlannedBase, PlannedOp, Reason, Run
from perfci.core.settings import Settings
from perfci.git import base as git_base
from perfci.git.base import How
from perfci.ops.fingerprint.pins import pins_changed
from perfci.runs import base as base_stage
from perfci.runs.base import BaseTree
from perfci.runs.bench import Bench
from perfci.runs.plan import Request, expected_s
from perfci.runs.record import Recorder
from perfci.runs.rounds import settled
from perfci.store.launches import clear_launches, join_launches

FOLDER = "groups"
"""In the reports folder: groups/<number>/run.json of each commit's cases."""

SHOWN = 10
"""Digits of a commit that people read."""


@dataclass(frozen=True)
class Group:
    """The cases that are held against one commit, and its tree."""

    tree: BaseTree
    cases: tuple[AgainCase, ...]
    planned: tuple[PlannedOp, ...]
    """their ops, with these cases only"""

    @classmethod
    def of(cls, tree: BaseTree, cases: Sequence[AgainCase], planned: Iterable[PlannedOp]) -> Group:
        """Of ops that were held against the commit's, only what the cases ask for."""
        asked = {case.op for case in cases}
        return cls(tree, tuple(cases), tuple(_narrowed(op, cases) for op in planned if op.op in asked))


def _narrowed(op: PlannedOp, cases: Iterable[AgainCase]) -> PlannedOp:
    """The op with the wanted ones of its cases, here and at the base."""
    mine = tuple(case.case for case in cases if case.op == op.op)
    base = dataclasses.replace(op.base, performance=mine) if op.base else None
    return dataclasses.replace(op, accuracy=(), performance=mine, audit=(), base=base)


def is_same(op: PlannedOp) -> bool:
    """Whether all files of an op are those of the commit that it is held against."""
    return op.base is not None and op.base.same


def tree_at(bench: Bench, commit: str, how: How, number: int, name: str | None = None) -> BaseTree | Reason:
    """The project as it was at a commit that some file or tag names, written out for the group of this number.

    A release's arm runs in today's toolchain like the other one; what a new toolchain did since then is no creep.
    """
    found = git_base.commit(bench.settings.root, commit)
    if isinstance(found, Reason):
        return found
    base = Base(found, how, name or found[:SHOWN])
    tree = base_stage.materialised(bench, base, f"{base_stage.FOLDER}-{number}")
    if isinstance(tree, Reason) or how is How.RELEASE:
        return tree
    pins = pins_changed(bench.settings.root, tree.settings.root)
    return dataclasses.replace(tree, base=dataclasses.replace(base, changed_pins=pins))


# --- what all groups measure together ---------------------------------------------------------------------------------


def base_of(groups: Sequence[Group]) -> Base | None:
    """The commit of most cases, under the names of all; which case was held against which stands in the plan."""
    if not groups:
        return None
    most = max(groups, key=lambda group: len(group.cases)).tree.base
    names = ", ".join(dict.fromkeys(group.tree.base.name for group in groups))
    pins = tuple(dict.fromkeys(pin for group in groups for pin in group.tree.base.changed_pins))
    return dataclasses.replace(most, name=names, changed_pins=pins)


def joined(ops: Iterable[PlannedOp], groups: Sequence[Group], left: Sequence[tuple[str, str]] = ()) -> list[PlannedOp]:
    """Ops with their cases of all groups and those that are left, by op and id; ops without any are left out."""
    found = [_joined(op, groups, [case for name, case in left if name == op.op]) for op in ops]
    return [op for op in found if op.performance or op.failure]


def _joined(op: PlannedOp, groups: Sequence[Group], left: Sequence[str]) -> PlannedOp:
    parts = [part for group in groups for part in group.planned if part.op == op.op]
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


# --- measuring them ---------------------------------------------------------------------------------------------------


def forget(reports: Path) -> None:
    """What an earlier run left of its groups in the reports folder goes."""
    shutil.rmtree(reports / FOLDER, ignore_errors=True)
    clear_launches(reports)


def measured(bench: Bench, request: Request, run: Run, groups: Sequence[Group], earlier: Run | None) -> Run:
    """A planned run with what its groups measure, one after the other; saved after each, launches too.

    `earlier` knows what ops take. Raises Stopped, with the run saved, if a signal arrived.
    """
    settings = bench.settings
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
    return run


def _measured(bench: Bench, request: Request, whole: Run, group: Group, earlier: Run | None) -> Run:
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
    join_launches(settings.reports, [settings.reports / FOLDER / str(number) for number in range(1, len(runs) + 1)])
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
