"""What was accepted of a run's ops before it: for its report, and for the trends of storage in low precision."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from perfci import store
from perfci.core.errors import StoredFileError
from perfci.core.model import UNTIMED, OpRun, PlannedOp, Run, Step
from perfci.core.settings import Settings
from perfci.measure.lowprec.advice import add_history
from perfci.report.past import Past
from perfci.statistics import changepoints
from perfci.store.history import read_history, with_names_of_now


def add_accepted(op: OpRun, run: Run, rules: Settings) -> OpRun:
    """Returns the op with its stored tensors beside the device model's history, from where the rules are read."""
    if not op.stored:
        return op
    try:
        history = read_history(rules.baselines, run.environment.device.key, op.op).runs
    except StoredFileError:  # accepting and `perfci history` report it
        return op
    earlier = [each for each in history if each.run != run.id]
    return dataclasses.replace(op, stored=tuple(add_history(found, earlier) for found in op.stored))


def read_pasts(run: Run, rules: Settings) -> Mapping[str, Past]:
    """Returns a run's histories by op, of a damaged one only the reason. rules: the project whose baselines count."""
    planned = {op.op: op for op in run.plan.ops}
    timed = [op for op in run.ops if op.performance] if run.plan.device not in UNTIMED else []
    made = {op.op: _read_past(op, planned.get(op.op, PlannedOp(op.op)), run, rules) for op in timed}
    return {op: past for op, past in made.items() if past is not None}


def _read_past(op: OpRun, planned: PlannedOp, run: Run, rules: Settings) -> Past | None:
    """A history under the present names, or why it is not to be relied on."""
    device = run.environment.device.key
    try:
        found = read_history(rules.baselines, device, op.op, formerly=planned.renamed_from)
        damage = next(iter(found.problems), None)
    except StoredFileError as error:
        damage = error.reason
    if damage is not None:
        return Past(damage=damage.seen_from(rules.root))
    runs = with_names_of_now(found.runs, planned.renamed)
    own = next((place for place, each in enumerate(runs) if each.run == run.id), None)
    if not runs[:own]:
        return None
    wanted, known = {case.case for case in op.performance}, changepoints.index_cases(runs[:own])
    changes = {case: changepoints.find_changes(each) for case, each in known.items() if case in wanted}
    steps = read_steps(rules.baselines, device, op.op)
    return Past(runs[:own], changes, steps, accepted=own is not None)


def read_steps(baselines: Path, device: str, op: str) -> tuple[Step, ...]:
    """Returns the steps that `perfci accept --environment` recorded. Empty if the baseline cannot be read."""
    try:
        path = store.baseline_path(baselines, device, op)
        return store.read_baseline(path).steps if path.is_file() else ()
    except StoredFileError:
        return ()
