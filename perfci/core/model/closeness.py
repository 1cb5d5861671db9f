"""How far an output is from the float64 reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfci.core.model.bounds import Count


@dataclass(frozen=True)
class ErrorStats:
    """Errors of an output against the float64 reference, over its finite elements."""

    count: Count
    max_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    mean_rel: float | None = None
    p50_abs: float | None = None
    p90_abs: float | None = None
    p99_abs: float | None = None
    rmse: float | None = None
    worst_index: tuple[Count, ...] = ()
    """where max_abs stands in the output"""
    l2: float | None = None
    """relative error in the L2 norm, ||output - exact|| / ||exact|| with ||x|| = sqrt(sum of x_i^2), in float64, over
    the elements that are finite in both, of all outputs of the call together. 0 if both norms are 0, None if only
    ||exact|| is, and where there is no such element"""


def worst(found: Sequence[ErrorStats]) -> ErrorStats:
    """Errors of several outputs, one at least: each figure at its worst. The place is that of the greatest error."""

    def most(figure: Callable[[ErrorStats], float | None]) -> float | None:
        return max(
            (value for each in found if (value := figure(each)) is not None and math.isfinite(value)), default=None
        )

    greatest = max(found, key=lambda each: each.max_abs if each.max_abs is not None else -1.0)
    return ErrorStats(
        count=sum(each.count for each in found),
        max_abs=most(lambda each: each.max_abs),
        mean_abs=most(lambda each: each.mean_abs),
        max_rel=most(lambda each: each.max_rel),
        mean_rel=most(lambda each: each.mean_rel),
        p50_abs=most(lambda each: each.p50_abs),
        p90_abs=most(lambda each: each.p90_abs),
        p99_abs=most(lambda each: each.p99_abs),
        rmse=most(lambda each: each.rmse),
        worst_index=greatest.worst_index,
        l2=most(lambda each: each.l2),
    )
