"""Time against size, both logarithmic: a line an arm, a colour a kind of case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfci.core.units import significant, size
from perfci.report.figures import fonts, legend
from perfci.report.figures.sheet import (
    FOOT,
    HEAD,
    WIDTH,
    Axis,
    Line,
    Mark,
    Panel,
    Points,
    Sheet,
    logarithmic,
    powers,
)
from perfci.report.figures.style import BLACK, INK, MARKERS, SERIES
from perfci.report.scaling import BYTES, OPERATIONS, Curve, Scaling, through

_HEIGHT = 2.9
_LEFT, _RIGHT = 0.64, 0.25
_DASHES = {"kernel": "-", "base": "-.", "reference": "--"}
_WIDTHS = {"kernel": 1.4, "base": 1.0, "reference": 0.8}


def sizes(found: Scaling, title: str) -> Sheet:
    """One panel; curves beyond those that have a colour of their own are left to the tables."""
    curves = chosen(found)
    points = [point for curve in curves for each in curve.arms.values() for point in each]
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    times = [us for _, us in points] + [end / found.limit.per_us for end in (low, high) if found.limit]
    entries = tuple(_legend(curves, found))
    more = legend.extra(name for name, _ in entries)
    panel = Panel(
        box=(_LEFT, FOOT, WIDTH - _LEFT - _RIGHT, _HEIGHT - 0.08),
        x=_sizes(found.axis, low / 1.25, high * 1.25),
        y=logarithmic(min(times) / 1.3, max(times) * 1.3, "us", shown=lambda us: f"{us:.10g}"),
        marks=(*_limit(found, low, high), *(mark for i, curve in enumerate(curves) for mark in _curve(curve, i))),
        grid="xy",
    )
    return Sheet(title, HEAD + FOOT + _HEIGHT + more, (panel,), entries)


def chosen(found: Scaling) -> tuple[Curve, ...]:
    """The curves with most sizes, as many as there are colours, in their own order."""
    best = sorted(found.curves, key=lambda curve: -max(map(len, curve.arms.values()), default=0))[: len(SERIES)]
    return tuple(curve for curve in found.curves if curve in best)


def _sizes(axis: str, low: float, high: float) -> Axis:
    if axis == BYTES:
        return powers(low, high, axis, shown=lambda value: size(value).replace(".0 ", " ").replace(".00 ", " "))
    if axis == OPERATIONS:
        return logarithmic(low, high, axis, shown=_operations)
    label = fonts.drawn(axis, 40)
    return powers(low, high, label, shown=lambda value: significant(value) if value < 1 else f"{value:.0f}")


def _operations(count: float) -> str:
    scale, unit = next(
        ((10**power, unit) for power, unit in ((12, " T"), (9, " G"), (6, " M")) if count >= 10**power), (1, "")
    )
    return f"{count / scale:.10g}{unit}"


def _limit(found: Scaling, low: float, high: float) -> Iterator[Mark]:
    if found.limit:
        times = (low / found.limit.per_us, high / found.limit.per_us)
        yield Line((low, high), times, BLACK, 1.0, ":", order=2, name="limit")


def _curve(curve: Curve, index: int) -> Iterator[Mark]:
    colour = SERIES[index]
    for arm, points in curve.arms.items():
        line = tuple(zip(*through(points), strict=True))
        yield Line(line[0], line[1], colour, _WIDTHS.get(arm, 1.0), _DASHES.get(arm, ":"), order=3, name=arm)
        xs, ys = tuple(zip(*points, strict=True))
        yield Points(xs, ys, colour, MARKERS.get(arm, "D"), hollow=arm != "kernel", size=4, order=4, name=arm)


def _legend(curves: Sequence[Curve], found: Scaling) -> Iterator[tuple[str, Mark]]:
    for arm in dict.fromkeys(arm for curve in curves for arm in curve.arms):
        yield arm, Points((), (), INK, MARKERS.get(arm, "D"), hollow=arm != "kernel", size=4)
    if len(curves) > 1 or curves[0].name:
        for index, curve in enumerate(curves):
            yield fonts.drawn(curve.name, 48), Line((), (), SERIES[index], 2)
    if found.limit:
        yield found.limit.name, Line((), (), BLACK, 1.0, ":")
