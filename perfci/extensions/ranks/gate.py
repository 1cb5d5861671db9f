"""Groups as part of `perfci check`: where the boards are enough for them, their verdicts are verdicts of the op.

They are kept as notes of the op, so that whatever judges the run later has them. Where there are none a note says so.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from perfci.core.model import DuelWhat, Fact, Gate, Judgement, Judgements, OpRun, Reason, Run, Suite, Verdict, because
from perfci.core.settings import Settings
from perfci.extensions.ranks.declared import find_sizes, read_sizes
from perfci.extensions.ranks.flow import FOLDER, NPU, OpRanks, check_groups
from perfci.extensions.ranks.verdicts import CheckedCase
from perfci.ops.backends import name_of
from perfci.ops.discover import OpFolder, select
from perfci.report.rows import is_model
from perfci.runs.describe import Described, OpSource, describe_sources
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Request

RIGHT, CASE = "ranks_group_right", "ranks_group_case"
"""Kinds of notes: a group of which all cases pass, and one case of another."""


MOST_ON_CPU = 8
"""Ranks of a group on a CPU: processes that share its cores."""


class Groups:
    """What shards and clusters ask of groups."""

    find_sizes = staticmethod(find_sizes)

    @staticmethod
    def concern(settings: Settings, request: Request, run: Run) -> bool:
        """Whether a run has ops of which groups are to be checked."""
        return bool(list_folders(settings, request, run))

    @staticmethod
    def look_on(experiment: Experiment, run: Run, judgements: Judgements) -> tuple[Run, Judgements]:
        """Returns the run with notes of groups that were checked, and its verdicts."""
        request, folders = experiment.request, list_folders(experiment.settings, experiment.request, run)
        if not folders:
            return run, judgements
        kept = dataclasses.replace(experiment.settings, reports=experiment.settings.reports / FOLDER)
        bench = dataclasses.replace(experiment.bench, settings=kept, boards=[])
        asked = dataclasses.replace(
            request, ops=tuple(op.op for op in folders), device=run.plan.device, seed=run.plan.seed
        )  # fmt: skip
        with bench.timing("ranks"):
            described = describe_sources(bench, asked, OpSource(kept, folders))[0]
            jobs = [(op, size) for op in folders for size in find_sizes(op) if size <= _count(described)]
            times = Suite.PERFORMANCE in request.suites
            results = check_groups(bench, asked, experiment.base, described, jobs, times=times) if jobs else ()
        notes = {op.op: [note for one in results if one.op == op.op for note in _note(one)] for op in folders}
        ops = tuple(dataclasses.replace(op, notes=(*op.notes, *notes.get(op.op, ()))) for op in run.ops)
        run = experiment.save(dataclasses.replace(run, ops=ops))
        return run, experiment.judge(run)


def list_folders(settings: Settings, request: Request, run: Run) -> list[OpFolder]:
    """Ops of a run that changed, are right on one rank and are for several."""
    if Suite.ACCURACY not in request.suites:
        return []
    every = request.duel is DuelWhat.ALL
    base = {op.op: op.base for op in run.plan.ops}
    changed = {name for name, planned in base.items() if every or planned is None or not planned.same}
    right = {op.op for op in run.ops if not (op.failure or op.late or any(check.failure for check in op.accuracy))}
    right = {op for op in right & changed if not is_model(op)}
    return [op for op in select(settings, sorted(right)) if find_sizes(op)] if right else []


def _count(described: Described) -> int:
    """Boards that groups of a check may have."""
    return {"cpu": MOST_ON_CPU, NPU: 0}.get(described.device.kind, described.visible)


def _note(found: OpRanks) -> Iterator[Reason]:
    """Yields what the op's notes say of a group."""
    facts: dict[str, Fact] = {"op": found.op, "ranks": found.ranks}
    for reason, verdict in ((found.failure, Verdict.ERROR), (found.undone, Verdict.INCONCLUSIVE)):
        if reason:
            yield because(CASE, reason, **facts, verdict=verdict, suite=Suite.ACCURACY)
    for one in found.cases:
        suite = Suite.ACCURACY if isinstance(one, CheckedCase) else Suite.PERFORMANCE
        why: dict[str, Fact] = {**facts, "case": one.case, "verdict": one.verdict, "suite": suite}
        yield from (because(CASE, reason, **why) for reason in one.reasons if one.verdict.gate is not Gate.OK)
    lacks = found.failure or found.undone or found.skipped
    if not lacks and all(verdict.gate is Gate.OK for verdict in found.verdicts):
        yield Reason(RIGHT, {**facts, "checked": len(found.checked), "timed": len(found.timed)})


def add_rows(run: Run, judgements: Judgements, kernels: Path, _limits: Mapping[str, float]) -> Judgements:
    """Adds the verdicts of groups, and notes about changed ops of which the run has none."""
    rows = [row for op in run.ops for row in _read(op)]
    of_groups = [note for op in run.ops for note in op.notes if note.kind in {RIGHT, CASE}]
    checked = {(name_of(str(note.facts["op"])), note.facts["ranks"]) for note in of_groups}
    changed = {name_of(op.op) for op in run.plan.ops if not (op.base and op.base.same)}
    notes = [
        Reason("ranks_elsewhere", {"op": name, "sizes": ", ".join(map(str, sizes))})
        for path in sorted(kernels.rglob("*_accuracy.py"))
        if (name := path.name.removesuffix("_accuracy.py")) in changed
        and (sizes := [size for size in read_sizes(path) if (name, size) not in checked])
    ]
    if any(note.facts.get("timed") or note.facts.get("suite") == Suite.PERFORMANCE for note in of_groups):
        notes.append(Reason("ranks_reported"))
    broken = {row.op for row in rows if row.verdict.gate is Gate.FAILS}
    # One rank answers as the base does, and so nothing more is said of the op.
    told = {"change_tuning", "change_shared"}
    others = (note for note in judgements.notes if note.kind not in told or note.facts.get("op") not in broken)
    return dataclasses.replace(judgements, rows=(*judgements.rows, *rows), notes=(*others, *notes))


def _read(op: OpRun) -> Iterator[Judgement]:
    """Yields a row for each case of a group that is not fine."""
    cases: dict[str, list[Reason]] = {}
    for note in (note for note in op.notes if note.kind == CASE):
        cases.setdefault(f"ranks={note.facts['ranks']},{note.facts.get('case', '')}".rstrip(","), []).append(note)
    for case, notes in cases.items():
        first = notes[0].facts
        reasons = tuple(Reason(str(note.facts["cause"]), note.facts) for note in notes)
        yield Judgement(op.op, Suite(str(first["suite"])), case, Verdict(str(first["verdict"])), reasons)
