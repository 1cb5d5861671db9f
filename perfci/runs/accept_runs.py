"""Accepted runs to stored baselines and lines of history, op by op."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfci import store
from perfci.core import extensions
from perfci.core.errors import UsageError
from perfci.core.model import Baseline, Comparison, Epoch, Expected, Fact, HistoryRun, PlannedOp, Reason, Run, Verdict
from perfci.core.renames import baseline_of
from perfci.core.settings import Settings
from perfci.ops.discover import pick
from perfci.ops.spec import matches
from perfci.runs.accept import SLOWER, Acceptance, Evidence, accept, find_losses, find_refusals
from perfci.runs.decide import decide
from perfci.runs.effective_thresholds import in_force
from perfci.runs.rules import list_known_ops
from perfci.store.files import write_together
from perfci.store.history import check_history, extend_history, held, history_path, read_history, with_names_of_now
from perfci.store.lines import make_line


@dataclass(frozen=True)
class Rescaled:
    """An extension's changes to the earned targets of an op with accepted losses, and the file to be written."""

    said: tuple[Reason, ...] = ()
    files: Mapping[Path, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class AcceptOptions:
    """How people want runs accepted."""

    dirty: bool = False
    slower: str | None = None  # why a loss is accepted, None if none is
    pattern: str | None = None


def accept_runs(
    runs: Sequence[Run], settings: Settings, names: Sequence[str], options: AcceptOptions
) -> list[Acceptance]:
    """Makes baselines of runs and stores them, op by op, with a line of history a run.

    A loss that no one agreed on is refused. With a reason for `slower`, such cases and no others are accepted, and
    their history begins an epoch. The files of all ops are written, or none. Raises UsageError for an empty reason, if
    no case fits, if none is slower, and as `accept` does. Raises StoredFileError for files.
    """
    if options.slower is not None and not options.slower.strip():
        raise UsageError("accept_without_why")
    measured = list(dict.fromkeys(op.op for run in runs for op in run.ops))
    fitting = (case for op in measured for case in _list_cases(op, runs) if matches(case, options.pattern))
    if options.pattern is not None and not any(fitting):
        raise UsageError("no_case_fits", pattern=options.pattern, ops=", ".join(measured))
    # Judged by the files: what --threshold allowed agrees to no loss.
    plain = [dataclasses.replace(run, plan=dataclasses.replace(run.plan, thresholds={})) for run in runs]
    evidence = [(run, decide(bare, settings)) for run, bare in zip(runs, plain, strict=True)]
    key = runs[0].environment.device.key
    with held(history_path(settings.baselines, key, "any").parent):
        ready = [_weigh(op, evidence, settings, options) for op in pick(measured, names, "op_not_in_run")]
        if options.slower is not None and not any(one.accepted or one.refused for one, _ in ready):
            raise UsageError("accept_none_slower", runs=", ".join(run.id for run in runs))
        files: dict[Path, bytes] = {}
        for one, lines in ready:
            files |= dict([store.encode_baseline(one.baseline, settings.baselines)]) if one.baseline else {}
            files |= extend_history(settings.baselines, key, one.op, lines)
        with held(settings.thresholds):
            acceptances = []
            for one, lines in ready:
                # Targets that were earned are as tight for the accepted kernel as they were for the one before.
                losses = [(line, shifts) for line in lines if (shifts := _list_shifts(one.op, line, evidence))]
                scaled: list[Rescaled] = [
                    rescale(settings, one.op, losses) for rescale in extensions.provided("losses")
                ]
                files |= {path: content for change in scaled for path, content in change.files.items()}
                said = (reason for change in scaled for reason in change.said)
                acceptances.append(dataclasses.replace(one, said=(*one.said, *said)))
            write_together(files)
    return acceptances


def _list_shifts(op: str, line: HistoryRun, evidence: Sequence[Evidence]) -> dict[str, float]:
    """The accepted slow-downs of the cases with an epoch that begins with a line of history, log scale."""
    begun = line.epoch.cases if line.epoch else ()
    rows = [row for run, judged in evidence if run.id == line.run for row in judged.rows if row.op == op]
    shifts = {row.case: _find_shift(row.comparison) for row in rows if row.case in begun}
    return {case: shift for case, shift in shifts.items() if case and shift is not None}


def _find_shift(seen: Comparison | None) -> float | None:
    """The accepted slow-down, log scale: by the duel, else by the screen, None if neither was made."""
    if seen is None:
        return None
    if seen.duel is not None:
        return seen.duel.shift.value
    return math.log1p(seen.screens[0].change.value) if seen.screens else None


def _list_cases(op: str, runs: Sequence[Run]) -> list[str]:
    """Ids of the runs' performance cases of an op, each once, in order."""
    cases = (case.case for run in runs for op_run in run.ops if op_run.op == op for case in op_run.performance)
    return list(dict.fromkeys(cases))


def _weigh(
    op: str, evidence: Sequence[Evidence], settings: Settings, options: AcceptOptions
) -> tuple[Acceptance, list[HistoryRun]]:
    """An op's accepted cases, and its lines of history."""
    runs = [run for run, _ in evidence]
    fresh = accept(op, evidence, dirty=options.dirty)
    existing, past = _read_past(op, runs, settings)
    # Neither relaxed nor asked for otherwise.
    rules = in_force(settings, runs[-1].environment, runs[-1].created, list_known_ops(settings))
    limits = dataclasses.replace(rules.limits, loosened={})
    slow = find_refusals(op, evidence, SLOWER)
    if fresh.baseline:
        slow = find_losses(fresh.baseline, existing, past, lambda case: limits.for_case(op, case)) | slow
    asked = [case for case in _list_cases(op, runs) if matches(case, options.pattern)]
    rows = (row for _, judgements in evidence for row in judgements.rows if row.op == op and row.case)
    excused = {row.case: row.expected for row in rows if row.case and row.verdict is Verdict.EXPECTED}
    said = []
    if options.slower is not None:  # what is slower beyond doubt, and nothing else
        only = [case for case in asked if case in slow or case in excused]
        answer = accept(op, evidence, existing, dirty=options.dirty, only=only)
        whys = dict.fromkeys(answer.accepted, options.slower.strip())
        if only and len(asked) > len(only):
            said.append(Reason("accept_not_slower", {"op": op, "count": len(asked) - len(only)}))
    else:
        earlier = [run for run in past if run.run not in {run.id for run in runs}]
        agreed: dict[str, Expected] = {}
        for case, entry in excused.items():
            if entry is None:
                continue
            # The run with the epoch that used the entry up. Else every merge request could lose as much again by it.
            epochs = ((run, run.epoch) for run in reversed(earlier) if run.epoch and case in run.epoch.cases)
            used = next((run for run, epoch in epochs if entry.why in epoch.why), None)
            if used is None:
                agreed[case] = entry
            elif case in slow:
                facts: dict[str, Fact] = {"op": op, "case": case, "why": entry.why, "run": used.run}
                slow[case] = Reason("accept_entry_spent", {**facts, "file": entry.file, "line": entry.line})
        withheld = {case: reason for case, reason in slow.items() if case not in agreed}
        chosen = None if options.pattern is None else asked
        answer = accept(op, evidence, existing, dirty=options.dirty, only=chosen, withheld=withheld)
        whys = {case: entry.why for case, entry in agreed.items() if case in answer.accepted}

    # The lines of history, oldest run first. A loss begins its epoch with the first run that has the case.
    lines, begun = [], set[str]()
    dirty = None
    for run, judgements in sorted(evidence, key=lambda pair: pair[0].created):
        if run.environment.dirty:
            dirty = dirty or run
            continue
        cases = tuple(case for case in _list_cases(op, [run]) if case in whys and case not in begun)
        epoch = Epoch("; ".join(dict.fromkeys(whys[case] for case in cases)), cases) if cases else None
        line = make_line(op, run, judgements, answer.accepted, epoch, answer.baseline or existing)
        if line and (answer.accepted or options.slower is None):
            lines.append(line)
            begun |= set(cases)
    if dirty and answer.accepted:
        said.append(Reason("accept_dirty_unkept", {"run": dirty.id}))
    return dataclasses.replace(answer, said=tuple(said)), lines


def _read_past(op: str, runs: Sequence[Run], settings: Settings) -> tuple[Baseline | None, tuple[HistoryRun, ...]]:
    """An op's stored baseline and history under the runs' names. Raises StoredFileError if either is damaged."""
    key = runs[0].environment.device.key
    planned = next(
        (planned_op for run in reversed(runs) for planned_op in run.plan.ops if planned_op.op == op), PlannedOp(op)
    )
    stored = read_stored(settings, key, planned)
    check_history(settings.baselines, key, op)
    history = read_history(settings.baselines, key, op, formerly=planned.renamed_from)
    return stored, with_names_of_now(history.runs, planned.renamed)


def read_stored(settings: Settings, key: str, op: PlannedOp) -> Baseline | None:
    """An op's baseline by the names that it and its cases have now."""
    paths = {name: store.baseline_path(settings.baselines, key, name) for name in (op.op, op.renamed_from) if name}
    return baseline_of(op, {name: store.read_baseline(path) for name, path in paths.items() if path.exists()})
