"""Groups as part of `perfci check`: where the boards are enough for them, their verdicts are verdicts of the op.

They are kept as notes of the op, so that whatever judges the run later has them. Where there are none a note says so.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from perfci.core.model import DuelWhat, Fact, Gate, Judgement, Judgements, OpRun, Reason, Run, Suite, Verdict, because
from perfci.extensions.ranks.declared import find_sizes, read_sizes
from perfci.extensions.ranks.flow import FOLDER, OpRanks, check_groups
from perfci.ops.backends import name_of
from perfci.ops.discover import select
from perfci.report.rows import is_model
from perfci.runs.describe import Described, OpSource, describe_sources
from perfci.runs.experiment import Experiment

RIGHT, CASE = "ranks_group_right", "ranks_group_case"
"""Kinds of notes: a group of which all cases pass, and one case of another."""


def look_on(experiment: Experiment, run: Run, judgements: Judgements) -> tuple[Run, Judgements]:
    """Returns the run with notes of groups that were checked, and its verdicts."""
    request, base = experiment.request, {op.op: op.base for op in run.plan.ops}
    every = request.duel is DuelWhat.ALL
    changed = {name for name, planned in base.items() if every or planned is None or not planned.same}
    wrong = {op.op for op in run.ops if op.failure or op.late or any(check.failure for check in op.accuracy)}
    right = {op.op for op in run.ops if not is_model(op.op)} & changed - wrong
    folders = [op for op in select(experiment.settings, sorted(right)) if find_sizes(op)] if right else []
    # A group takes all of its time at once, which a time limit may not have.
    if not folders or request.suites != (Suite.ACCURACY, Suite.PERFORMANCE) or request.deadline:
        return run, judgements
    kept = dataclasses.replace(experiment.settings, reports=experiment.settings.reports / FOLDER)
    bench = dataclasses.replace(experiment.bench, settings=kept, boards=[])
    asked = dataclasses.replace(
        request, ops=tuple(op.op for op in folders), device=run.plan.device, seed=run.plan.seed
    )  # fmt: skip
    with bench.timing("ranks"):
        described = describe_sources(bench, asked, OpSource(kept, folders))[0]
        jobs = [(op, size) for op in folders for size in find_sizes(op) if size <= _count(described)]
        results = check_groups(bench, asked, experiment.base, described, jobs) if jobs else ()
    notes = {op.op: [note for one in results if one.op == op.op for note in _note(one)] for op in folders}
    ops = tuple(dataclasses.replace(op, notes=(*op.notes, *notes.get(op.op, ()))) for op in run.ops)
    run = experiment.save(dataclasses.replace(run, ops=ops))
    return run, experiment.judge(run)


def _count(described: Described) -> int:
    """Boards that groups of a check may have: none on a CPU, where the interpreter takes minutes for a group."""
    return 0 if described.device.kind == "cpu" else described.visible


def _note(found: OpRanks) -> Iterator[Reason]:
    """Yields what the op's notes say of a group."""
    facts: dict[str, Fact] = {"op": found.op, "ranks": found.ranks}
    if found.skipped:
        return
    if found.failure:
        yield because(CASE, found.failure, **facts, verdict=Verdict.ERROR, suite=Suite.ACCURACY)
    judged = (
        *((Suite.ACCURACY, one.case, one.verdict, one.reasons) for one in found.checked),
        *((Suite.PERFORMANCE, one.case, one.verdict, one.reasons) for one in found.timed),
    )
    for suite, case, verdict, reasons in judged:
        why: dict[str, Fact] = {**facts, "case": case, "verdict": verdict, "suite": suite}
        yield from (because(CASE, reason, **why) for reason in reasons if verdict.gate is not Gate.OK)
    if all(verdict.gate is Gate.OK for verdict in found.verdicts) and not found.failure:
        yield Reason(RIGHT, {**facts, "checked": len(found.checked), "timed": len(found.timed)})


def add_rows(run: Run, judgements: Judgements, kernels: Path, _limits: Mapping[str, float]) -> Judgements:
    """Adds the verdicts of groups, and notes about changed ops of which the run has none."""
    rows = [row for op in run.ops for row in _read(op)]
    grouped = {op.op for op in run.ops if any(note.kind in {RIGHT, CASE} for note in op.notes)}
    alone = {name_of(op.op) for op in run.plan.ops if op.op not in grouped and not (op.base and op.base.same)}
    notes = [
        Reason("ranks_elsewhere", {"op": name, "sizes": ", ".join(map(str, sizes))})
        for path in sorted(kernels.rglob("*_accuracy.py"))
        if (name := path.name.removesuffix("_accuracy.py")) in alone and (sizes := read_sizes(path))
    ]
    return dataclasses.replace(judgements, rows=(*judgements.rows, *rows), notes=(*judgements.notes, *notes))


def _read(op: OpRun) -> Iterator[Judgement]:
    """Yields a row for each case of a group that is not fine."""
    cases: dict[str, list[Reason]] = {}
    for note in (note for note in op.notes if note.kind == CASE):
        cases.setdefault(f"ranks={note.facts['ranks']},{note.facts.get('case', '')}".rstrip(","), []).append(note)
    for case, notes in cases.items():
        first = notes[0].facts
        facts = {"alone": _write_command(op.op, first)}
        reasons = tuple(Reason(str(note.facts["cause"]), {**note.facts, **facts}) for note in notes)
        yield Judgement(op.op, Suite(str(first["suite"])), case, Verdict(str(first["verdict"])), reasons)


def _write_command(op: str, facts: Mapping[str, Fact]) -> str:
    """The words of the command that checks this case alone, as `report.steps` completes them."""
    suite = "--accuracy" if facts["suite"] == Suite.ACCURACY else "--seed"
    case = f"--case={facts['case']}" if "case" in facts else ""
    return f"ranks {op} --size {facts['ranks']} {case} {suite} --against"
