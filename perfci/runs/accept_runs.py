"""Accepted runs to stored baselines, op by op."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from perfci import store
from perfci.core import extensions
from perfci.core.errors import UsageError, require
from perfci.core.model import Baseline, PlannedOp, Run
from perfci.core.renames import baseline_of
from perfci.core.settings import Settings
from perfci.ops.discover import pick
from perfci.ops.spec import matches
from perfci.runs.accept import SLOWER, Acceptance, Evidence, accept, find_refusals
from perfci.runs.decide import decide
from perfci.store.files import held, write_together


@dataclass(frozen=True)
class AcceptOptions:
    """How people want runs accepted."""

    dirty: bool = False
    slower: str | None = None  # why a loss is accepted, None if none is
    pattern: str | None = None


def accept_runs(
    runs: Sequence[Run], settings: Settings, names: Sequence[str], options: AcceptOptions
) -> list[Acceptance]:
    """Makes baselines of runs and stores them, op by op. An extension adds a line of history a run.

    A loss that no one agreed on is refused. With a reason for `slower`, such cases and no others are accepted. Files of
    all ops are written, or none. Raises UsageError for an empty reason, if no case fits, if none is slower, and as
    `accept` does. Raises StoredFileError for files.
    """
    if options.slower is not None and not options.slower.strip():
        raise UsageError("accept_without_why")
    measured = list(dict.fromkeys(op.op for run in runs for op in run.ops if "-" not in op.op))  # a model has none
    fitting = (case for op in measured for case in list_cases(op, runs) if matches(case, options.pattern))
    if options.pattern is not None and not any(fitting):
        raise UsageError("no_case_fits", pattern=options.pattern, ops=", ".join(measured))
    # Judged by the files: what --threshold allowed agrees to no loss.
    plain = [dataclasses.replace(run, plan=dataclasses.replace(run.plan, thresholds={})) for run in runs]
    evidence = [(run, decide(bare, settings)) for run, bare in zip(runs, plain, strict=True)]
    accept_all = next(extensions.provided("accepting"), _accept_all)
    with held(store.baseline_path(settings.baselines, runs[0].environment.device.key, "any").parent):
        accepted: list[Acceptance] = accept_all(pick(measured, names, "op_not_in_run"), evidence, settings, options)
        return accepted


def _accept_all(
    ops: Sequence[str], evidence: Sequence[Evidence], settings: Settings, options: AcceptOptions
) -> list[Acceptance]:
    """Without an extension that keeps a history: no loss is agreed on."""
    if options.slower is not None:
        require("accepting", "history", "--slower")
    runs, answers = [run for run, _ in evidence], []
    for op in ops:
        asked = [case for case in list_cases(op, runs) if matches(case, options.pattern)] if options.pattern else None
        slow, existing = find_refusals(op, evidence, SLOWER), read_stored(settings, find_planned(op, runs), runs[0])
        answers.append(accept(op, evidence, existing, dirty=options.dirty, only=asked, withheld=slow))
    write_together(dict(store.encode_baseline(one.baseline, settings.baselines) for one in answers if one.baseline))
    return answers


def list_cases(op: str, runs: Sequence[Run]) -> list[str]:
    """Ids of the runs' performance cases of an op, each once, in order."""
    cases = (case.case for run in runs for op_run in run.ops if op_run.op == op for case in op_run.performance)
    return list(dict.fromkeys(cases))


def find_planned(op: str, runs: Sequence[Run]) -> PlannedOp:
    """What the last of the runs that has an op declares of it."""
    planned = (planned for run in reversed(runs) for planned in run.plan.ops if planned.op == op)
    return next(planned, PlannedOp(op))


def read_stored(settings: Settings, op: PlannedOp, run: Run) -> Baseline | None:
    """An op's baseline on a run's device by the names that it and its cases have now."""
    key, names = run.environment.device.key, filter(None, (op.op, op.renamed_from))
    paths = {name: store.baseline_path(settings.baselines, key, name) for name in names}
    return baseline_of(op, {name: store.read_baseline(path) for name, path in paths.items() if path.exists()})
