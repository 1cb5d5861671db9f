"""The roofline: what cases reach against the ceilings measured on this device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from perfci.core.model import Limits
from perfci.core.units import percent, significant
from perfci.report.ceilings import Place, ridge
from perfci.report.figures import fonts, legend
from perfci.report.figures.sheet import FOOT, HEAD, WIDTH, Axis, Line, Mark, Note, Panel, Points, Sheet, logarithmic
from perfci.report.figures.style import BLACK, CHARACTER, EDGE, INK, SERIES, SHAPES
from perfci.report.text import columns

LABELS = 6
"""Most points that are named; the lowest shares of their ceilings first."""

_HEIGHT = 3.3
_LEFT, _RIGHT = 0.64, 0.2
_ROOM = 34
"""Most characters of a point's name."""

_LINE = 0.13
"""Height of a name, inches."""


def roofline(found: Sequence[Place], limits: Limits, title: str, colours: str = "op") -> Sheet:
    """One panel over operations a byte. colours: op, or case where one op has the picture to itself."""
    dtypes = list(dict.fromkeys(one.dtype for one in found))
    ops = list(dict.fromkeys(one.op for one in found))
    entries = tuple(_legend(ops if colours == "op" else [], dtypes))
    more = legend.extra(name for name, _ in entries)
    panel = _empty(found, limits, dtypes)
    marks = [*_roofs(panel, limits, dtypes), *_points(found, ops, dtypes)]
    panel = Panel(panel.box, panel.x, panel.y, tuple(marks), grid="xy")
    named = tuple(_names(panel, found))
    panel = Panel(panel.box, panel.x, panel.y, (*marks, *named), grid="xy")
    return Sheet(title, HEAD + FOOT + _HEIGHT + more, (panel,), entries)


def _empty(found: Sequence[Place], limits: Limits, dtypes: Sequence[str]) -> Panel:
    ridges = [at for dtype in dtypes if (at := ridge(limits, dtype))]
    peaks = [limits.matmul_tflops[dtype] for dtype in dtypes if dtype in limits.matmul_tflops]
    xs = [*(one.intensity for one in found), *ridges]
    ys = [*(one.tflops for one in found), *peaks, *(one.ceiling for one in found)]
    return Panel(
        box=(_LEFT, FOOT, WIDTH - _LEFT - _RIGHT, _HEIGHT - 0.08),
        x=logarithmic(min(xs) / 2, max(xs) * 2, "operations a byte"),
        y=logarithmic(min(ys) / 2, max(ys) * 1.7, "TFLOP/s"),
    )


def _roofs(panel: Panel, limits: Limits, dtypes: Sequence[str]) -> Iterator[Mark]:
    """The copy's slope up to each ridge, the products' levels from there on, and the ridges."""
    slope = (limits.copy_gbps or 0.0) / 1e3
    ridges = {dtype: at for dtype in dtypes if (at := ridge(limits, dtype))}
    left = max(panel.x.low, panel.y.low / slope)
    right = min(panel.x.high, panel.y.high / slope)
    end = max(ridges.values(), default=right)
    if len(ridges) < len(dtypes):
        end = right
    yield Line((left, end), (left * slope, end * slope), BLACK, 1.2, name="copy")
    for dtype, at in ridges.items():
        peak = limits.matmul_tflops[dtype]
        yield Line((at, panel.x.high), (peak, peak), BLACK, 1.2, name=dtype)
        yield Line((at, at), (panel.y.low, peak), EDGE, 0.8, ":", order=1, name="ridge")
    text = f"copy {significant(limits.copy_gbps or 0)} GB/s"
    middle = (left * end) ** 0.5
    yield Note(text, middle, middle * slope, True, True, shift=(-8, 4), align="right", mono=False, colour=BLACK)
    yield from _levels(panel, limits, ridges)


def _levels(panel: Panel, limits: Limits, ridges: Mapping[str, float]) -> Iterator[Mark]:
    """The dtypes' levels lie close together as a rule: one text tells them all, the highest first."""
    if not ridges:
        return
    names = sorted(ridges, key=lambda dtype: -limits.matmul_tflops[dtype])
    told = ", ".join(f"{fonts.drawn(name, 16)} {significant(limits.matmul_tflops[name])}" for name in names)
    top = limits.matmul_tflops[names[0]]
    yield Note(
        f"matmul TFLOP/s: {told}", panel.x.high, top, True, True, shift=(0, 3), align="right", mono=False, colour=BLACK
    )
    ends = dict.fromkeys(significant(end) for end in (min(ridges.values()), max(ridges.values())))
    ridge_note = f"ridge {' to '.join(ends)}"
    yield Note(ridge_note, min(ridges.values()), panel.y.low, True, True, shift=(-4, 4), align="right", mono=False)


def _points(found: Sequence[Place], ops: Sequence[str], dtypes: Sequence[str]) -> Iterator[Mark]:
    for op in ops:
        for dtype in dtypes:
            mine = [one for one in found if (one.op, one.dtype) == (op, dtype)]
            if mine:
                yield Points(
                    tuple(one.intensity for one in mine),
                    tuple(one.tflops for one in mine),
                    SERIES[ops.index(op) % len(SERIES)],
                    SHAPES[dtypes.index(dtype) % len(SHAPES)],
                    size=5,
                    name=f"{op} {dtype}",
                )


# --- names that overlap nothing ---------------------------------------------------------------------------------------

_Box = tuple[float, float, float, float]
"""left, bottom, right, top in inches"""


def _names(panel: Panel, found: Sequence[Place]) -> Iterator[Mark]:
    """Names of the points furthest below their ceilings, each where it covers no point and no other name."""
    _, _, width, height = panel.box
    spots = [
        (float(panel.x.at([one.intensity])[0]) * width, float(panel.y.at([one.tflops])[0]) * height) for one in found
    ]
    taken: list[_Box] = [(x - 0.05, y - 0.05, x + 0.05, y + 0.05) for x, y in spots]
    taken += _covered(panel)
    names: list[_Box] = []
    ranked = sorted(zip(found, spots, strict=True), key=lambda pair: pair[0].share)
    for one, (x, y) in ranked[:LABELS]:
        rightmost = 2 * sum(other > x for other, _ in spots) <= len(spots)
        text = f"{fonts.drawn(_short(one), _ROOM)} {percent(one.share)}"
        boxes = _around(x, y, columns(text) * CHARACTER, right=rightmost)
        box = next((box for box in boxes if _free(box, taken, width, height) and _clear(x, y, box, names)), None)
        if box is None:
            continue
        taken.append(box)
        names.append(box)
        end = _end(x, y, box)
        if math.dist(end, (x, y)) > 0.13:
            foot = (_inside(panel.x, end[0] / width), _inside(panel.y, end[1] / height))
            yield Line((one.intensity, foot[0]), (one.tflops, foot[1]), EDGE, 0.6, order=1, name="leader")
        left, middle = box[0], (box[1] + box[3]) / 2
        yield Note(text, left / width, middle / height, upright="center", colour=INK)


def _end(x: float, y: float, box: _Box) -> tuple[float, float]:
    """The place of a box that is nearest to a point."""
    return min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])


def _clear(x: float, y: float, box: _Box, names: Sequence[_Box]) -> bool:
    """Whether the line from a point to its name crosses no other name."""
    end = _end(x, y, box)
    steps = [(x + (end[0] - x) * part / 20, y + (end[1] - y) * part / 20) for part in range(21)]
    return not any(l <= at <= r and b <= up <= t for at, up in steps for l, b, r, t in names)  # noqa: E741


def _short(one: Place) -> str:
    """The case without its dtype, which the marker's shape shows, and its op, which the colour does."""
    return ",".join(part for part in one.case.split(",") if part != f"dtype={one.dtype}") or one.case


def _inside(axis: Axis, share: float) -> float:
    """The value at a share of a logarithmic axis."""
    return float(axis.low * (axis.high / axis.low) ** share)


def _covered(panel: Panel) -> list[_Box]:
    """What names may not cover: the ceilings, point by point, and the texts about them at the top right."""
    _, _, width, height = panel.box
    found: list[_Box] = []
    for line in panel.lines():
        if line.width > 1:
            xs, ys = (axis.at(ends) for axis, ends in ((panel.x, line.xs), (panel.y, line.ys)))
            steps = np.linspace(0, 1, 80)
            for x, y in zip(xs[0] + (xs[1] - xs[0]) * steps, ys[0] + (ys[1] - ys[0]) * steps, strict=True):
                found.append((x * width - 0.01, y * height - 0.02, x * width + 0.01, y * height + 0.02))
    for note in panel.marks:
        if isinstance(note, Note):
            x, y = float(panel.x.at([note.x])[0]) * width, float(panel.y.at([note.y])[0]) * height
            wide = columns(note.text) * CHARACTER * (-1 if note.align == "right" else 1)
            found.append((min(x, x + wide), y, max(x, x + wide), y + 0.3))
    return found


def _around(x: float, y: float, wide: float, *, right: bool) -> Iterator[_Box]:
    """Places beside, below and above a point, those away from the other points first."""
    half = _LINE / 2
    sides = (x + 0.09, x - 0.09 - wide) if right else (x - 0.09 - wide, x + 0.09)
    beside = [(left, y) for left in sides]
    above = [(left, y + up) for up in (-0.15, 0.15) for left in (*sides, x - wide / 2)]
    steps = [(left, y - 0.15 * step) for step in range(2, 9) for left in (*sides, x - wide / 2)]
    for left, middle in (*beside, *above, *steps):
        yield left, middle - half, left + wide, middle + half


def _free(box: _Box, taken: Sequence[_Box], width: float, height: float) -> bool:
    left, bottom, right, top = box
    inside = left >= 0 and bottom >= 0.02 and right <= width and top <= height
    return inside and not any(left < r and x < right and bottom < t and b < top for x, b, r, t in taken)


def _legend(ops: Sequence[str], dtypes: Sequence[str]) -> Iterator[tuple[str, Mark]]:
    for index, op in enumerate(ops):
        yield fonts.drawn(op, 30), Points((), (), SERIES[index % len(SERIES)], size=5)
    for index, dtype in enumerate(dtypes):
        yield fonts.drawn(dtype, 20), Points((), (), INK, SHAPES[index % len(SHAPES)], hollow=True, size=5)
    yield "measured ceiling", Line((), (), BLACK, 1.2)
