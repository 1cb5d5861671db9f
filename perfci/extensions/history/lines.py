"""One accepted run of an op as the line that its history keeps."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from perfci.core.model import Baseline
from perfci.core.model.basics import Suite, Verdict
from perfci.core.model.decision import Judgement, Judgements
from perfci.core.model.measured import ArmBlock, OpRun, PerformanceCase
from perfci.core.model.run import Run
from perfci.core.model.stored import StoredTensor
from perfci.extensions.common.accepted_runs import BoardCounts, Epoch, HistoryCase, HistoryRun, HistoryStored, Spread
from perfci.statistics import exact
from perfci.store.lines import (
    DUEL,
    KERNEL,
    REFERENCE,
    SPEEDUP,
    by_process,
    find_median,
    find_worst_errors,
    list_first_look,
)

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
