"""One accepted run of an op as the line that its history keeps."""

import statistics
from collections.abc import Iterable, Sequence
from typing import TypeVar

from perfci.core.model import HistoryAccuracy
from perfci.core.model.basics import ErrorStats, worst
from perfci.core.model.measured import AccuracyCase, Block, HostBlock, PerformanceCase

T = TypeVar("T")

KERNEL, REFERENCE, BASE = "kernel", "reference", "base"
SPEEDUP, DUEL = f"{KERNEL}/{REFERENCE}", f"{KERNEL}/{BASE}"

CACHE_MULTIPLE = 4  # a case measures the bandwidth of memory only if it moves so many times the L2 cache
ORDINARY = "normal"  # Values with errors that show how exact a kernel is. Others are at the ends of a dtype's range.


def list_first_look(case: PerformanceCase) -> tuple[Block, ...]:
    """Blocks measured again are left out: only suspects have them, so they would bias history and baseline."""
    return tuple(block for block in case.blocks if block.process == 0 and {KERNEL, REFERENCE} <= block.arms.keys())


def by_process(blocks: Sequence[Block | HostBlock], quantities: Sequence[T]) -> dict[int, list[T]]:
    """Returns quantities, one a block, by process, the first look first."""
    by_number: dict[int, list[T]] = {}
    for block, quantity in sorted(zip(blocks, quantities, strict=True), key=lambda pair: pair[0].process):
        by_number.setdefault(block.process, []).append(quantity)
    return by_number


def find_median(values: Iterable[float | None]) -> float | None:
    """Returns the median of the values that are known."""
    median = [value for value in values if value is not None]
    return statistics.median(median) if median else None


def from_memory(bytes_moved: int | None, cache: str, l2_bytes: int | None) -> bool:
    """Returns whether a case's bytes must come from memory, so that its share of the copy bandwidth has a limit."""
    return bool(bytes_moved and l2_bytes) and cache == "cold" and (bytes_moved or 0) >= CACHE_MULTIPLE * (l2_bytes or 0)


def find_worst_errors(checks: Sequence[AccuracyCase]) -> tuple[HistoryAccuracy, ...]:
    """Returns each case's worst errors of passed checks on ordinary values, from which limits are learnt."""
    by_case: dict[str, list[ErrorStats]] = {}
    for check in checks:
        if check.values == ORDINARY and check.errors and not check.failure and not check.unchecked:
            by_case.setdefault(check.case, []).append(check.errors)
    return tuple(HistoryAccuracy(case, len(errors), worst(errors)) for case, errors in by_case.items())
