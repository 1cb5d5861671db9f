"""One accepted run of an op as the line that its history keeps."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from perfci.core.model import (
    AccuracyCase,
    ArmBlock,
    Block,
    BoardCounts,
    Epoch,
    ErrorStats,
    HistoryAccuracy,
    HistoryCase,
    HistoryRun,
    HistoryStored,
    Judgement,
    Judgements,
    OpRun,
    PerformanceCase,
    Run,
    Spread,
    StoredTensor,
    Suite,
    Verdict,
)
from perfci.core.model.closeness import worst
from perfci.statistics import exact

KERNEL, REFERENCE, BASE = "kernel", "reference", "base"
SPEEDUP, DUEL = f"{KERNEL}/{REFERENCE}", f"{KERNEL}/{BASE}"

CACHE_MULTIPLE = 4
"""Only a case that moves so many times the L2 cache tells of the bandwidth of memory."""

ORDINARY = "normal"
"""Values whose errors tell how exact a kernel is; others are at the ends of what a dtype holds."""

CONFIRMED = frozenset({Verdict.REGRESSED, Verdict.TOO_SLOW, Verdict.EXPECTED, Verdict.IMPROVED})
"""Verdicts by which a suspect was one."""


def line(
    op: str, run: Run, judgements: Judgements, accepted: Collection[str], epoch: Epoch | None = None
) -> HistoryRun | None:
    """What is kept of an op in a run of which these performance cases were accepted.

    None where nothing was, unless it is known of cases that nothing could be said about them: that tells of the board.
    """
    found = next((each for each in run.ops if each.op == op), OpRun(op))
    planned = next((each for each in run.plan.ops if each.op == op), None)
    cases = tuple(_case(case, run) for case in found.performance if case.case in accepted and _first_look(case))
    unsaid = tuple(
        row.case
        for row in judgements.rows
        if row.op == op and row.case and row.suite is Suite.PERFORMANCE and row.verdict is Verdict.INCONCLUSIVE
    )
    if not cases and not unsaid:
        return None
    return HistoryRun(
        run=run.id,
        created=run.created,
        environment=run.environment,
        cases=cases,
        accuracy=worst_errors(found.accuracy) if cases else (),
        epoch=epoch if cases else None,
        inconclusive=unsaid,
        renamed=planned.renamed if planned else {},
        renamed_from=planned.renamed_from if planned else None,
        boards=_boards(found, run, judgements),
        stored=tuple(map(_stored, found.stored)) if cases else (),
    )


def _stored(found: StoredTensor) -> HistoryStored:
    return HistoryStored(
        case=found.case,
        errors=found.errors,
        clip_ratio=found.clip_ratio,
        divergence=found.divergence,
        histogram=found.histogram,
        amax=found.amax,
        scale=found.scale,
        extreme=found.channels.extreme if found.channels else 0,
    )


def _first_look(case: PerformanceCase) -> tuple[Block, ...]:
    """Re-measured blocks are left out: only suspects get them, so that they would bias what is kept."""
    return tuple(block for block in case.blocks if block.process == 0 and {KERNEL, REFERENCE} <= block.arms.keys())


def _case(case: PerformanceCase, run: Run) -> HistoryCase:
    blocks = _first_look(case)
    kernels, references = ([block.arms[arm] for block in blocks] for arm in (KERNEL, REFERENCE))
    shifts = [block.shifts[SPEEDUP] for block in blocks if SPEEDUP in block.shifts]
    kernel_us = _spread(kernels)
    return HistoryCase(
        case=case.case,
        blocks=len(blocks),
        kernel_us=kernel_us,
        reference_us=_spread(references),
        shift=exact.location(shifts).value if shifts else None,
        span_us=_median(arm.span_us for arm in kernels),
        rsd=_median(arm.time.rsd for arm in kernels),
        bytes_moved=case.bytes_moved,
        flops=case.flops,
        bandwidth_share=_share(case.bytes_moved, kernel_us.median_us, run.limits.copy_gbps),
        compile_s=case.compile_s,
        peak_bytes=case.peak_bytes,
        errors=case.errors,
        null=_null(case),
        cache=case.cache,
        board=blocks[0].board,
    )


def _spread(arms: Sequence[ArmBlock]) -> Spread:
    low, middle, high = np.quantile([arm.time.median_us for arm in arms], (0.25, 0.5, 0.75))
    return Spread(float(middle), float(low), float(high))


def _share(moved: int | None, kernel_us: float, copy_gbps: float | None) -> float | None:
    """Bytes a nanosecond are gigabytes a second."""
    return moved / (kernel_us * 1e3) / copy_gbps if moved and copy_gbps else None


def from_memory(bytes_moved: int | None, cache: str, l2_bytes: int | None) -> bool:
    """Whether a case's bytes must come from memory, so that its share of the copy bandwidth may have a limit."""
    return bool(bytes_moved and l2_bytes) and cache == "cold" and (bytes_moved or 0) >= CACHE_MULTIPLE * (l2_bytes or 0)


def _null(case: PerformanceCase) -> tuple[tuple[float, ...], ...]:
    """The shift of every block, process by process, where kernel and base were timed although they do the same work."""
    if case.base is None or case.base.same is not True or not case.base.duelled or case.base.failure:
        return ()
    by_process: dict[int, list[float]] = {}
    for block in case.blocks:
        if DUEL in block.shifts:
            by_process.setdefault(block.process, []).append(block.shifts[DUEL])
    return tuple(tuple(by_process[process]) for process in sorted(by_process))


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


# --- boards -----------------------------------------------------------------------------------------------------------


def _boards(op: OpRun, run: Run, judgements: Judgements) -> tuple[BoardCounts, ...]:
    """Cases that were timed and judged, by the board of their first look; what time ran out for tells of no board."""
    rows = {row.case: row for row in judgements.rows if row.op == op.op and row.suite is Suite.PERFORMANCE}
    found: dict[str, BoardCounts] = {}
    for case in op.performance:
        board = next((block.board or run.environment.device.uuid for block in case.blocks if block.process == 0), None)
        if board and case.case in rows and not case.late:
            found[board] = _counted(found.get(board, BoardCounts(board, 0)), case, rows[case.case])
    return tuple(found.values())


def _counted(known: BoardCounts, case: PerformanceCase, row: Judgement) -> BoardCounts:
    # What a quarantined board says is called INCONCLUSIVE whatever it is, which tells nothing about the board.
    advised = any(reason.kind == "board_quarantined" for reason in row.reasons[:1])
    unsaid = row.verdict is Verdict.INCONCLUSIVE and not advised
    suspect = any(block.process for block in case.blocks) and not unsaid
    overturned = suspect and not advised and row.verdict not in CONFIRMED
    return BoardCounts(
        known.board,
        known.judged + 1,
        known.inconclusive + unsaid,
        known.suspects + suspect,
        known.overturned + overturned,
    )


# --- accuracy ---------------------------------------------------------------------------------------------------------


def worst_errors(checks: Sequence[AccuracyCase]) -> tuple[HistoryAccuracy, ...]:
    """Of each case the worst errors of its checks on ordinary values that passed.

    Limits are learnt from them and hold for them. Checks without errors, such as those of integers, are left out.
    """
    by_case: dict[str, list[ErrorStats]] = {}
    for check in checks:
        if check.values == ORDINARY and check.errors and not check.failure and not check.unchecked:
            by_case.setdefault(check.case, []).append(check.errors)
    return tuple(HistoryAccuracy(case, len(found), worst(found)) for case, found in by_case.items())
