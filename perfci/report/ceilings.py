"""The roofline: ceilings that this run measured, and where the cases are below them.

Williams, Waterman, Patterson: Roofline (CACM 52(4), 2009): attainable = min(peak, bandwidth * operations a byte).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from perfci.core.model import Judgement, Limits, OpRun, PerformanceCase, Verdict
from perfci.report.frame import ArmSpread

UNSOUND = frozenset(
    {Verdict.WRONG, Verdict.ERROR, Verdict.SUSPECT}
)  # verdicts about cases with a time that means nothing


@dataclass(frozen=True)
class CeilingPoint:
    """Where a case is below the ceilings."""

    op: str
    case: str
    dtype: str
    us: float
    intensity: float  # floating-point operations a byte
    tflops: float  # reached
    ceiling: float  # TFLOP/s that its intensity allows
    ridge: float | None
    """intensity from which the matrix product's ceiling holds, None if that is not measured for the dtype"""

    @property
    def share(self) -> float:
        """Returns the share of its ceiling that it reaches."""
        return self.tflops / self.ceiling

    @property
    def by_memory(self) -> bool:
        """Returns whether the copy's ceiling is the lower one."""
        return self.ridge is None or self.intensity < self.ridge


def find_place(op: str, case: PerformanceCase, us: float | None, limits: Limits) -> CeilingPoint | None:
    """Returns None if bytes, operations, time or the ceiling of copies are missing."""
    if not case.bytes_moved or not case.flops or not us or not limits.copy_gbps:
        return None
    intensity, peak = case.flops / case.bytes_moved, limits.matmul_tflops.get(case.dtype or "")
    memory = limits.copy_gbps * intensity / 1e3
    return CeilingPoint(
        op=op,
        case=case.case,
        dtype=case.dtype or "-",
        us=us,
        intensity=intensity,
        tflops=case.flops / us / 1e6,
        ceiling=min(memory, peak) if peak else memory,
        ridge=find_ridge(limits, case.dtype),
    )


def find_ridge(limits: Limits, dtype: str | None) -> float | None:
    """Returns the operations a byte at which both measured ceilings meet."""
    peak = limits.matmul_tflops.get(dtype or "")
    return 1e3 * peak / limits.copy_gbps if peak and limits.copy_gbps else None


@dataclass(frozen=True)
class WorkingPoint:
    """A timed case with a time that is sound."""

    op: str
    case: PerformanceCase
    us: Mapping[str, float]  # of each arm
    place: CeilingPoint | None
    share: float | None  # that its kernel reaches of the lower of its ceilings. None if none is known


def find_points(
    ops: Iterable[OpRun], spreads: Iterable[ArmSpread], judged: Iterable[Judgement], limits: Limits
) -> Iterator[WorkingPoint]:
    """Yields the cases with a sound time, in the order of the run. Without operations their ceiling is the copy's."""
    medians: dict[tuple[str, str], dict[str, float]] = {}
    for spread in spreads:
        medians.setdefault((spread.op, spread.case), {})[spread.arm] = spread.p50_us
    bad = find_unsound(judged)
    for op in ops:
        for case in op.performance:
            us = medians.get((op.op, case.case), {})
            if not case.blocks or not (kernel := us.get("kernel")) or {(op.op, case.case), (op.op, None)} & bad:
                continue
            place, share = find_place(op.op, case, kernel, limits), None
            if place:
                share = place.share
            elif case.bytes_moved and limits.copy_gbps:
                share = case.bytes_moved / kernel / 1e3 / limits.copy_gbps
            yield WorkingPoint(op.op, case, us, place, share)


def find_unsound(judged: Iterable[Judgement]) -> set[tuple[str, str | None]]:
    """Returns op and case of every verdict that makes a time meaningless. Case None is the op as a whole."""
    return {(row.op, row.case) for row in judged if row.verdict in UNSOUND}
