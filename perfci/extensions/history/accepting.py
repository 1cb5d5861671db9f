"""What people agreed to when runs are accepted, by what their histories have, and the line that each run leaves there.

Beside a verdict, a loss is looked for beside the stored baseline where that could not judge (another driver, another
thermal regime), and beside the first runs of the history. The last stops a creep of allowed steps.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from perfci import store
from perfci.core.environment import differences, list_differences, unmixable
from perfci.core.errors import UsageError
from perfci.core.model import Baseline, BaselineCase, Comparison, Expected, Fact, Reason, Verdict
from perfci.core.settings import Settings
from perfci.extensions.common.accepted_runs import Epoch, HistoryRun
from perfci.extensions.common.history import check_history, extend_history, read_history, with_names_of_now
from perfci.extensions.history.lines import make_line
from perfci.extensions.history.tightening import Rescaled, rescale
from perfci.ops.spec import matches
from perfci.runs.accept import SLOWER, Acceptance, Evidence, accept, find_refusals
from perfci.runs.accept_runs import AcceptOptions, find_planned, list_cases, read_stored
from perfci.runs.effective_thresholds import in_force
from perfci.runs.rules import list_known_ops
from perfci.store.files import held, write_together
from perfci.thresholds.case import CaseThresholds

FIRST = 5  # runs of the history that a case is compared with: one alone may have been lucky

Limits = Callable[[str], CaseThresholds]  # case id -> its thresholds


def accept_all(
    ops: Sequence[str], evidence: Sequence[Evidence], settings: Settings, options: AcceptOptions
) -> list[Acceptance]:
    """Stores baselines of some ops, with a line of history a run. See `perfci.runs.accept_runs`.

    The history of a case with an accepted loss begins an epoch.
    """
    key = evidence[0][0].environment.device.key
    ready = [_weigh(op, evidence, settings, options) for op in ops]
    if options.slower is not None and not any(one.accepted or one.refused for one, _ in ready):
        raise UsageError("accept_none_slower", runs=", ".join(run.id for run, _ in evidence))
    files: dict[Path, bytes] = {}
    for one, lines in ready:
        files |= dict([store.encode_baseline(one.baseline, settings.baselines)]) if one.baseline else {}
        files |= extend_history(settings.baselines, key, one.op, lines)
    with held(settings.thresholds):
        acceptances = []
        for one, lines in ready:
            # Targets that were earned are as tight for the accepted kernel as they were for the one before.
            losses = [(line, shifts) for line in lines if (shifts := _list_shifts(one.op, line, evidence))]
            change: Rescaled = rescale(settings, one.op, losses)
            files |= change.files
            acceptances.append(dataclasses.replace(one, said=(*one.said, *change.said)))
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


def _weigh(
    op: str, evidence: Sequence[Evidence], settings: Settings, options: AcceptOptions
) -> tuple[Acceptance, list[HistoryRun]]:
    """An op's accepted cases, and its lines of history."""
    runs = [run for run, _ in evidence]
    fresh = accept(op, evidence, dirty=options.dirty)
    planned = find_planned(op, runs)
    existing = read_stored(settings, planned, runs[0])
    key = runs[0].environment.device.key
    check_history(settings.baselines, key, op)
    past = with_names_of_now(
        read_history(settings.baselines, key, op, formerly=planned.renamed_from).runs, planned.renamed
    )
    # Neither relaxed nor asked for otherwise.
    rules = in_force(settings, runs[-1].environment, runs[-1].created, list_known_ops(settings))
    limits = dataclasses.replace(rules.limits, loosened={})
    slow = find_refusals(op, evidence, SLOWER)
    if fresh.baseline:
        slow = find_losses(fresh.baseline, existing, past, lambda case: limits.for_case(op, case)) | slow
    asked = [case for case in list_cases(op, runs) if matches(case, options.pattern)]
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
        cases = tuple(case for case in list_cases(op, [run]) if case in whys and case not in begun)
        epoch = Epoch("; ".join(dict.fromkeys(whys[case] for case in cases)), cases) if cases else None
        line = make_line(op, run, judgements, answer.accepted, epoch, answer.baseline or existing)
        if line and (answer.accepted or options.slower is None):
            lines.append(line)
            begun |= set(cases)
    if dirty and answer.accepted:
        said.append(Reason("accept_dirty_unkept", {"run": dirty.id}))
    return dataclasses.replace(answer, said=tuple(said)), lines


def find_losses(
    fresh: Baseline, stored: Baseline | None, runs: Sequence[HistoryRun], limits: Limits
) -> dict[str, Reason]:
    """Returns case id -> why its new numbers are a loss that no one agreed on. runs: the op's history.

    Slower by more than twice tau, and by that much more than the reference: what moves both is no kernel's fault.
    """
    losses = {}
    accepted = {(case.case, case.cache): case for case in (stored.cases if stored else ())}
    epochs = [frozenset(run.epoch.cases) if run.epoch else frozenset() for run in runs]
    past = {(run.run, case.case, case.cache): case for run in runs for case in run.cases}
    for case in fresh.cases:
        environment = next(run.environment for run in fresh.runs if run.id == case.blocks[0].run)
        times = _find_medians(case)
        allowed = math.log1p(2 * limits(case.case).allowed(times[0], fresh.timer))
        where: dict[str, Fact] = {"op": fresh.op, "case": case.case}
        old = None
        if stored and (stored.device, stored.timer) == (environment.device.key, environment.timer):
            old = accepted.get((case.case, case.cache))
        if stored and old and old.blocks and (facts := _measure_loss(times, _find_medians(old), allowed)):
            used = {block.run for block in old.blocks}
            then = [run.environment for run in stored.runs if run.id in used]
            moved = list_differences([difference for difference in differences(then, environment) if difference.moves])
            facts |= {"fields": moved} if moved else {}
            losses[case.case] = Reason("accept_lost_elsewhere" if moved else "accept_lost", where | facts)
            continue
        # The first runs of the case since its last epoch that were made in the same environment.
        began = max((at for at, cases in enumerate(epochs) if case.case in cases), default=0)
        fresh_runs = {run.id for run in fresh.runs}
        alike = [
            run for run in runs[began:] if run.run not in fresh_runs and not unmixable(run.environment, environment)
        ]
        seen = [(run, past.get((run.run, case.case, case.cache))) for run in alike]
        timed = [(run, figures.kernel_us, figures.reference_us) for run, figures in seen if figures]
        first = [(run, kernel.median_us, reference.median_us) for run, kernel, reference in timed if reference][:FIRST]
        if first:
            before = statistics.median(us for _, us, _ in first), statistics.median(us for _, _, us in first)
            since: dict[str, Fact] = {"count": len(first), "since": first[0][0].created[:10]}
            if facts := _measure_loss(times, before, allowed):
                losses[case.case] = Reason("accept_crept", where | facts | since)
    return losses


def _measure_loss(now: tuple[float, float], before: tuple[float, float], allowed: float) -> dict[str, Fact] | None:
    """The facts of a loss of kernel and reference times, None if it is none. allowed: log scale."""
    kernel, reference = (math.log(after / then) for after, then in zip(now, before, strict=True))
    if kernel <= allowed or kernel - reference <= allowed:
        return None
    changes = {"change": math.expm1(kernel), "reference_change": math.expm1(reference)}
    return {**changes, "allowed": math.expm1(allowed)}


def _find_medians(case: BaselineCase) -> tuple[float, float]:
    """Medians of block medians of kernel and reference, microseconds."""
    blocks = case.blocks
    return statistics.median(block.kernel_us for block in blocks), statistics.median(
        block.reference_us for block in blocks
    )
