"""Time against size: which cases of an op make a line, and what stands on its axis."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfci.core.model import Limits, OpRun, PerformanceCase
from perfci.core.units import significant
from perfci.report.ceilings import ridge
from perfci.report.frame import ARMS, Spread

FEWEST = 3
"""Fewest sizes of one line: two points show no shape."""

BYTES, OPERATIONS = "bytes moved", "operations"

Point = tuple[float, float]
"""size, microseconds"""


@dataclass(frozen=True)
class Curve:
    """Cases that differ in nothing but their size."""

    name: str
    """what they share and other curves do not: dtype=float16, empty if the op has one curve"""
    arms: Mapping[str, tuple[Point, ...]]
    """by arm, the smallest first. A size that several cases have stands several times"""


@dataclass(frozen=True)
class Limit:
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
    limit: Limit | None = None
    """if the sizes are bytes or operations"""


def scaling(op: OpRun, spreads: Sequence[Spread], limits: Limits | None = None) -> Scaling | None:
    """The op's curves. None if none has FEWEST sizes.

    The size is the bytes that the op declares to move, if it does so for every timed case. It is the operations if
    they are declared too and most cases are bound by arithmetic, whose times bytes do not explain. Else it is the axis
    of numbers that varies, the one with most values if several do. Curves then differ in all other axes.
    """
    timed = [case for case in op.performance if case.blocks]
    if len(timed) < FEWEST:
        return None
    known = limits or Limits()
    named = {case.case: parameters(case.case) for case in timed}
    axis = _declared(timed, known) or _axis(list(named.values()))
    if axis is None:
        return None
    groups = _groups(timed, _apart(list(named.values()), axis))
    most = max(len({_size(case, axis) for case in group} - {None}) for group in groups.values())
    times = {(spread.case, spread.arm): spread.p50_us for spread in spreads}
    curves = (Curve(name, _arms(group, axis, times)) for name, group in groups.items())
    drawn = tuple(curve for curve in curves if curve.arms)
    return Scaling(axis, drawn, _limit(axis, timed, known)) if drawn and most >= FEWEST else None


def _declared(timed: Sequence[PerformanceCase], limits: Limits) -> str | None:
    """The size that the op itself declares for all cases."""
    if not all(case.bytes_moved for case in timed):
        return None
    right = [
        case for case in timed
        if case.flops and (at := ridge(limits, case.dtype)) and case.flops > at * (case.bytes_moved or 0)
    ]  # fmt: skip
    return OPERATIONS if all(case.flops for case in timed) and 2 * len(right) > len(timed) else BYTES


def _limit(axis: str, timed: Sequence[PerformanceCase], limits: Limits) -> Limit | None:
    """The measured copy, or the fastest measured matrix product of the cases' dtypes."""
    if axis == BYTES and limits.copy_gbps:
        return Limit(f"copy limit, {significant(limits.copy_gbps)} GB/s", limits.copy_gbps * 1e3)
    products = [
        limits.matmul_tflops[dtype] for dtype in {case.dtype or "" for case in timed} & limits.matmul_tflops.keys()
    ]
    if axis == OPERATIONS and products:
        return Limit(f"matmul limit, {significant(max(products))} TFLOP/s", max(products) * 1e6)
    return None


def parameters(case: str) -> dict[str, str]:
    """Names and values of a case id.

    >>> parameters("rows=4096,dtype=float16")
    {'rows': '4096', 'dtype': 'float16'}
    """
    return {name: value for name, _, value in (part.partition("=") for part in case.split(","))}


def number(value: str | None) -> float | None:
    """A positive number that may stand on a logarithmic axis.

    >>> number("4096"), number("True"), number("0"), number("nan")
    (4096.0, None, None, None)
    """
    try:
        found = float(value or "")
    except ValueError:
        return None
    return found if found > 0 and math.isfinite(found) else None


def _axis(named: Sequence[Mapping[str, str]]) -> str | None:
    """The axis of positive numbers with most values."""
    names = dict.fromkeys(name for case in named for name in case)
    numeric = [name for name in names if all(number(case.get(name)) is not None for case in named)]
    counts = {name: len({case.get(name) for case in named}) for name in numeric}
    best = max(numeric, key=lambda name: counts[name], default=None)
    return best if best is not None and counts[best] >= FEWEST else None


def _apart(named: Sequence[Mapping[str, str]], axis: str) -> tuple[str, ...]:
    """Axes in which curves differ: those that vary, of numbers only if the size is one of the numbers."""
    names = dict.fromkeys(name for case in named for name in case)
    varying = [name for name in names if len({case.get(name) for case in named}) > 1 and name != axis]
    if axis not in {BYTES, OPERATIONS}:
        return tuple(varying)
    return tuple(name for name in varying if not all(_is_number(case.get(name)) for case in named))


def _is_number(value: str | None) -> bool:
    try:
        return math.isfinite(float(value or ""))
    except ValueError:
        return False


def _groups(timed: Sequence[PerformanceCase], apart: Sequence[str]) -> dict[str, list[PerformanceCase]]:
    found: dict[str, list[PerformanceCase]] = {}
    for case in timed:
        known = parameters(case.case)
        found.setdefault(",".join(f"{name}={known.get(name, '-')}" for name in apart), []).append(case)
    return found


def _size(case: PerformanceCase, axis: str) -> float | None:
    if axis in {BYTES, OPERATIONS}:
        return float((case.bytes_moved if axis == BYTES else case.flops) or 0) or None
    return number(parameters(case.case).get(axis))


def _arms(
    group: Sequence[PerformanceCase], axis: str, times: Mapping[tuple[str, str], float]
) -> dict[str, tuple[Point, ...]]:
    found: dict[str, list[Point]] = {}
    for case in group:
        size = _size(case, axis)
        for arm in ARMS:
            us = times.get((case.case, arm))
            if size and us and math.isfinite(us):
                found.setdefault(arm, []).append((size, us))
    return {arm: tuple(sorted(points)) for arm, points in found.items()}


def through(points: Sequence[Point]) -> tuple[Point, ...]:
    """One point a size, the geometric mean if several cases have it: a line never runs upwards in place.

    >>> [(size, round(us, 6)) for size, us in through([(1.0, 2.0), (1.0, 8.0), (2.0, 5.0)])]
    [(1.0, 4.0), (2.0, 5.0)]
    """
    found: dict[float, list[float]] = {}
    for size, us in points:
        found.setdefault(size, []).append(us)
    return tuple((size, statistics.geometric_mean(times)) for size, times in sorted(found.items()))
