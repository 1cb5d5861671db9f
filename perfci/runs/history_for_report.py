"""What was accepted before a run, read for its report: histories with creep, steps and what people said of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from perfci.core.errors import StoredFileError
from perfci.core.model import UNTIMED, HistoryRun, OpRun, PlannedOp, Reason, Run
from perfci.core.settings import Settings
from perfci.git.tags import Release
from perfci.report.past import DAMAGE, CasePast, Past
from perfci.runs import drifts
from perfci.statistics import drift
from perfci.store.history import History, read_history, with_names_of_now


def pasts_for(run: Run, settings: Settings, rules: Settings) -> Mapping[str, Past]:
    """The histories of a run's ops by op, from where its rules are read; an op without one is left out.

    settings: the project, whose releases git knows; rules: its baselines, which may be those of the base. A history
    that is damaged says why and nothing else.
    """
    if run.plan.device in UNTIMED:
        return {}
    planned = {op.op: op for op in run.plan.ops}
    timed = [op for op in run.ops if op.performance]
    found = {op.op: _history(op.op, planned.get(op.op, PlannedOp(op.op)), run, rules) for op in timed}
    kept = [each for each in found.values() if isinstance(each, History)]
    known = _releases(kept, settings)
    made = ((op.op, _past(op, found[op.op], run, rules, known)) for op in timed)
    return {op: past for op, past in made if past is not None}


def _history(op: str, planned: PlannedOp, run: Run, rules: Settings) -> History | Reason:
    """A history under the names of now, or why it is not to be relied on."""
    try:
        found = read_history(rules.baselines, run.environment.device.key, op, formerly=planned.renamed_from)
    except StoredFileError as error:
        return _shown(error.reason, rules)
    damage = next((problem for problem in found.problems if problem.kind in DAMAGE), None)
    if damage:
        return _shown(damage, rules)
    return dataclasses.replace(found, runs=with_names_of_now(found.runs, planned.renamed))


def _shown(reason: Reason, rules: Settings) -> Reason:
    """A report is read elsewhere: files by their place in the project."""
    root = f"{rules.root}/"
    facts = {name: value.replace(root, "") if isinstance(value, str) else value for name, value in reason.facts.items()}
    return dataclasses.replace(reason, facts=facts)


def _releases(kept: Sequence[History], settings: Settings) -> Sequence[Release]:
    """About which anchors may lie, asked once for all ops."""
    runs = [run for each in kept for run in each.runs]
    found = drifts.known_releases(runs, settings) if runs else ()
    return () if isinstance(found, Reason) else found


def _past(op: OpRun, found: History | Reason, run: Run, rules: Settings, known: Sequence[Release]) -> Past | None:
    if isinstance(found, Reason):
        return Past(damage=found)
    own = next((place for place, each in enumerate(found.runs) if each.run == run.id), None)
    runs = found.runs[:own]
    if not runs:
        return None
    cases = dict(_cases(op, runs, known))
    return Past(runs, cases, drifts.recorded_steps(rules.baselines, found), accepted=own is not None)


def _cases(op: OpRun, runs: Sequence[HistoryRun], known: Sequence[Release]) -> Iterator[tuple[str, CasePast]]:
    wanted = {case.case for case in op.performance}
    for case, alone in drift.by_case(runs).items():
        if case in wanted:
            found = drifts.of_case(alone, case, known)
            crept = found.creep if found.creep and found.creep.found else None
            said = drifts.creep_reason(op.op, crept, runs, found.release) if crept else None
            yield case, CasePast(found.creep, found.release, said, found.changes)
