"""What people agreed to when runs are accepted, by what their histories have, and the line that each run leaves there.

Beside a verdict, a loss is looked for beside the stored baseline where that could not judge (another driver, another
thermal regime), and beside the first runs of the history. The last stops a creep of allowed steps.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from perfci import store
from perfci.core.environment import differences, list_differences, unmixable
from perfci.core.errors import UsageError
from perfci.core.model import Baseline, BaselineCase, Comparison, Expected, Fact, Reason, Verdict
from perfci.core.model.basics import Suite
from perfci.core.model.decision import Judgement, Judgements
from perfci.core.model.measured import (
    DUEL,
    KERNEL,
    REFERENCE,
    SPEEDUP,
    ArmBlock,
    OpRun,
    PerformanceCase,
    by_process,
    find_median,
    find_worst_errors,
    list_first_look,
)
from perfci.core.model.run import Run
from perfci.core.model.stored import StoredTensor
from perfci.core.settings import Settings
from perfci.extensions.common.accepted_runs import BoardCounts, Epoch, HistoryCase, HistoryRun, HistoryStored, Spread
from perfci.extensions.common.history import check_history, extend_history, read_history, with_names_of_now
from perfci.extensions.history.series import select_epoch
from perfci.extensions.history.tightening import Rescaled, rescale
from perfci.ops.spec import matches
from perfci.runs.accept import SLOWER, Acceptance, Evidence, accept, find_refusals
from perfci.runs.accept_runs import AcceptOptions, find_planned, list_cases, read_stored
from perfci.runs.effective_thresholds import in_force
from perfci.runs.rules import list_known_ops
from perfci.statistics import exact
from perfci.store.files import held, write_together
from perfci.thresholds.case import CaseThresholds

CONFIRMED = frozenset({Verdict.REGRESSED, Verdict.TOO_SLOW, Verdict.EXPECTED, Verdict.IMPROVED})  # confirm a suspect


def make_line(
    op: str, run: Run, judgements: Judgements, accepted: Collection[str], epoch: Epoch | None = None,
    stored: Baseline | None = None,
) -> HistoryRun | None:  # fmt: skip
    """Returns a history's line on an op's run with these cases accepted. None if it has none and none inconclusive.

    stored: the op's baseline from then on.
    """
    line = next((op_run for op_run in run.ops if op_run.op == op), OpRun(op))
    planned = next((planned_op for planned_op in run.plan.ops if planned_op.op == op), None)
    rows = {row.case: row for row in judgements.rows if row.op == op and row.case and row.suite is Suite.PERFORMANCE}
    cases = tuple(_case(case, run) for case in line.performance if case.case in accepted and list_first_look(case))
    here = [case.case for case in cases]
    inconclusive = tuple(case for case, row in rows.items() if row.verdict is Verdict.INCONCLUSIVE)
    if not cases and not inconclusive:  # inconclusive ones give information about the board
        return None
    return HistoryRun(
        run=run.id, created=run.created, environment=run.environment, cases=cases, inconclusive=inconclusive,
        accuracy=find_worst_errors(line.accuracy) if cases else (),
        epoch=epoch if cases else None,
        renamed=planned.renamed if planned else {},
        renamed_from=planned.renamed_from if planned else None,
        boards=_count_by_board(line, run, rows),
        stored=tuple(map(_keep_stored, line.stored if cases else ())),
        kept=tuple(case.case for case in (stored.cases if stored else ()) if case.case not in {*here, *inconclusive}),
    )  # fmt: skip


def _keep_stored(tensor: StoredTensor) -> HistoryStored:
    extreme = tensor.channels.extreme if tensor.channels else 0
    figures = tensor.clip_ratio, tensor.divergence, tensor.histogram, tensor.amax, tensor.scale
    return HistoryStored(tensor.case, tensor.errors, *figures, extreme)


def _case(case: PerformanceCase, run: Run) -> HistoryCase:
    blocks = list_first_look(case)
    kernels, references = ([block.arms[arm] for block in blocks] for arm in (KERNEL, REFERENCE))
    shifts = [block.shifts[SPEEDUP] for block in blocks if SPEEDUP in block.shifts]
    kernel_us, copy_gbps = _spread(kernels), run.limits.copy_gbps
    # bytes a nanosecond are gigabytes a second
    share = case.bytes_moved / (kernel_us.median_us * 1e3) / copy_gbps if case.bytes_moved and copy_gbps else None

    # The duel's shifts, process by process, if kernel and base were timed although they do the same work.
    is_null = case.base and case.base.same is True and case.base.duelled and not case.base.failure
    duelled = [block for block in case.blocks if DUEL in block.shifts] if is_null else []
    return HistoryCase(
        case=case.case, blocks=len(blocks), kernel_us=kernel_us, reference_us=_spread(references),
        shift=exact.location(shifts).value if shifts else None,
        span_us=find_median(arm.span_us for arm in kernels), rsd=find_median(arm.time.rsd for arm in kernels),
        bytes_moved=case.bytes_moved, flops=case.flops, bandwidth_share=share,
        compile_s=case.compile_s, peak_bytes=case.peak_bytes, errors=case.errors,
        null=tuple(map(tuple, by_process(duelled, [block.shifts[DUEL] for block in duelled]).values())),
        cache=case.cache, board=blocks[0].board,
        clock_mhz=find_median(block.clock_mhz or block.state.sm_clock_mhz for block in blocks),
    )  # fmt: skip


def _spread(arms: Sequence[ArmBlock]) -> Spread:
    low, middle, high = np.quantile([arm.time.median_us for arm in arms], (0.25, 0.5, 0.75))
    return Spread(float(middle), float(low), float(high))


def _count_by_board(op: OpRun, run: Run, rows: Mapping[str, Judgement]) -> tuple[BoardCounts, ...]:
    """Counts the cases that were timed and judged by the board of their first look. Late cases do not count."""
    board_counts: dict[str, BoardCounts] = {}
    for case in op.performance:
        board = next((block.board or run.environment.device.uuid for block in case.blocks if block.process == 0), None)
        row = rows.get(case.case)
        if not board or row is None or case.late:
            continue
        # A quarantined board's results are called INCONCLUSIVE whatever they are, so that counts for nothing.
        advised = any(reason.kind == "board_quarantined" for reason in row.reasons[:1])
        inconclusive = row.verdict is Verdict.INCONCLUSIVE and not advised
        suspect = any(block.process for block in case.blocks) and not inconclusive
        overturned = suspect and not advised and row.verdict not in CONFIRMED
        before = board_counts.get(board, BoardCounts(board, 0))
        counts = (before.inconclusive + inconclusive, before.suspects + suspect, before.overturned + overturned)
        errors = max(block.state.ecc_errors or 0 for block in case.blocks if block.process == 0)
        board_counts[board] = BoardCounts(board, before.judged + 1, *counts, max(before.ecc_errors, errors))
    return tuple(board_counts.values())


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
            used = next((run for run in reversed(earlier) if entry.why in (run.why(case) or "")), None)
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
        new = {run.id for run in fresh.runs}
        began = [run for run in select_epoch(runs, case.case) if run.run not in new]
        alike = [run for run in began if not unmixable(run.environment, environment)]
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
