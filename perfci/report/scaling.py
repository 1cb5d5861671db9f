"""Time against size: which cases of an op make a line, and what stands on its axis."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfci.core.model import Limits, OpRun, PerformanceCase
from perfci.core.units import significant
from perfci.report.ceilings import find_ridge
from perfci.report.frame import ARMS, ArmSpread

FEWEST = 3
"""Fewest sizes of one line: two points show no shape."""

BYTES, OPERATIONS = "bytes moved", "operations"

Point = tuple[float, float]
"""size, microseconds"""


@dataclass(frozen=True)
class Curve:
    """Cases that differ in nothing but their size."""

    name: str
    """what they share and other curves do not: dtype=float16. Empty if the op has one curve"""
    arms: Mapping[str, tuple[Point, ...]]
    """by arm, the smallest first; a size that several cases have stands several times"""


@dataclass(frozen=True)
class Ceiling:
    """What the device was measured to do at best."""

    name: str
    per_us: float
    """bytes or operations a microsecond"""


@dataclass(frozen=True)
class Scaling:
    """An op's times against its sizes."""

    axis: str
    """BYTES, OPERATIONS, or the name of the case's axis"""
    curves: tuple[Curve, ...] = field(default=())
    limit: Ceiling | None = None
    """whether the sizes are bytes or operations"""


def find_curves(op: OpRun, spreads: Sequence[ArmSpread], limits: Limits | None = None) -> Scaling | None:
    """Returns the op's curves, None if none has FEWEST sizes.

    The size is the bytes that the op declares to move, if it does for every timed case. It is the operations instead if
    they are declared too and most cases are bound by arithmetic, whose times bytes do not explain. Else it is the axis
    of positive numbers that varies, the one with most values if several do. Cases are told apart by all other axes that
    vary, except those of numbers if the size is bytes or operations.
    """
    timed, known = [case for case in op.performance if case.blocks], limits or Limits()
    named = [split_case(case.case) for case in timed]
    names = list(dict.fromkeys(name for case in named for name in case))
    varying = [name for name in names if len({case.get(name) for case in named}) > 1]
    numeric = [name for name in varying if all(read_number(case.get(name)) is not None for case in named)]
    if timed and all(case.bytes_moved for case in timed):
        axis = OPERATIONS if _is_arithmetic(timed, known) else BYTES
        sizes = [float((case.bytes_moved if axis == BYTES else case.flops) or 0) for case in timed]
        apart = [name for name in varying if not all(_is_number(case.get(name)) for case in named)]
    elif numeric:
        axis = max(numeric, key=lambda name: len({case.get(name) for case in named}))
        sizes = [read_number(case.get(axis)) or 0.0 for case in named]
        apart = [name for name in varying if name != axis]
    else:
        return None
    times = {(spread.case, spread.arm): spread.p50_us for spread in spreads}
    curves: dict[str, dict[str, list[Point]]] = {}
    for case, values, size in zip(timed, named, sizes, strict=True):
        curve = curves.setdefault(",".join(f"{name}={values.get(name, '-')}" for name in apart), {})
        for arm in ARMS:
            us = times.get((case.case, arm))
            if us and math.isfinite(us):
                curve.setdefault(arm, []).append((size, us))
    drawn = tuple(
        Curve(name, {arm: tuple(sorted(points)) for arm, points in arms.items()})
        for name, arms in curves.items()
        if arms
    )
    most = max((len({size for size, _ in points}) for curve in drawn for points in curve.arms.values()), default=0)
    return Scaling(axis, drawn, _find_limit(axis, timed, known)) if most >= FEWEST else None


def _is_arithmetic(timed: Sequence[PerformanceCase], limits: Limits) -> bool:
    """Whether all cases declare operations, and most lie right of the ridge."""
    right = [
        case for case in timed
        if case.flops and (at := find_ridge(limits, case.dtype)) and case.flops > at * (case.bytes_moved or 0)
    ]  # fmt: skip
    return all(case.flops for case in timed) and 2 * len(right) > len(timed)


def _find_limit(axis: str, timed: Sequence[PerformanceCase], limits: Limits) -> Ceiling | None:
    """The measured copy, or the fastest measured matrix product of the cases' dtypes."""
    if axis == BYTES and limits.copy_gbps:
        return Ceiling(f"copy limit, {significant(limits.copy_gbps)} GB/s", limits.copy_gbps * 1e3)
    products = [
        limits.matmul_tflops[dtype] for dtype in {case.dtype or "" for case in timed} & limits.matmul_tflops.keys()
    ]
    if axis == OPERATIONS and products:
        return Ceiling(f"matmul limit, {significant(max(products))} TFLOP/s", max(products) * 1e6)
    return None


def split_case(case: str) -> dict[str, str]:
    """Names and values of a case id.

    >>> split_case("rows=4096,dtype=float16")
    {'rows': '4096', 'dtype': 'float16'}
    """
    return {name: value for name, _, value in (part.partition("=") for part in case.split(","))}


def read_number(value: str | None) -> float | None:
    """A positive number that may stand on a logarithmic axis.

    >>> read_number("4096"), read_number("True"), read_number("0"), read_number("nan")
    (4096.0, None, None, None)
    """
    try:
        found = float(value or "")
    except ValueError:
        return None
    return found if found > 0 and math.isfinite(found) else None


def _is_number(value: str | None) -> bool:
    try:
        return math.isfinite(float(value or ""))
    except ValueError:
        return False


def average_sizes(points: Sequence[Point]) -> tuple[Point, ...]:
    """One point a size, the geometric mean where several cases have it: a line never runs upwards in place.

    >>> [(size, round(us, 6)) for size, us in average_sizes([(1.0, 2.0), (1.0, 8.0), (2.0, 5.0)])]
    [(1.0, 4.0), (2.0, 5.0)]
    """
    found: dict[float, list[float]] = {}
    for size, us in points:
        found.setdefault(size, []).append(us)
    return tuple((size, statistics.geometric_mean(times)) for size, times in sorted(found.items()))
