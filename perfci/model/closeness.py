"""How far an output is from the float64 reference."""

from __future__ import annotations

from dataclasses import dataclass

from perfci.model.bounds import Count


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
    the elements that are finite in both, of all outputs of the call together; 0 where both norms are 0, None where only
    ||exact|| is, and where there is no such element"""
