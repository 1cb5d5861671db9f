"""How the launches of a case are distributed: head against base, baseline and reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfci.report.figures import fonts
from perfci.report.figures.sheet import (
    FOOT,
    HEAD,
    WIDE,
    WIDTH,
    Axis,
    Floats,
    Line,
    Mark,
    Panel,
    Sheet,
    linear,
    logarithmic,
    with_title,
)
from perfci.report.figures.style import BLACK, MARKERS, colour_of

BASELINE = "baseline"

STEPS = 200
"""Most steps of a curve that are drawn: an evenly spaced choice of the launches, both ends among them."""

NEAR = 1.3
"""Greatest ratio between the reference and what else is drawn at which they share a panel; beyond it the reference gets
one of its own, since it would press the arms that are compared into a corner."""

_EACH = 1.38
_LEFT, _RIGHT, _GAP, _BETWEEN = 0.5, 0.11, 0.42, 0.14
_STRIP = 0.3
"""Share of a case's width that the reference's own panel takes."""


@dataclass(frozen=True)
class Distribution:
    """One case's times, microseconds, sorted or not."""

    case: str
    arms: Mapping[str, Floats]
    """every launch of each arm"""
    baseline: Floats | None = None
    """medians of the baseline's blocks: its launches are not stored"""
    bold: bool = False


def distributions(cases: Sequence[Distribution], title: str) -> Sheet:
    """The share of launches that took at most so long, a panel a case."""
    across = min(2, len(cases))
    down = -(-len(cases) // across)
    height = HEAD + FOOT + _EACH * down
    width = (WIDTH - _LEFT - _RIGHT - (_LEFT + _GAP - 0.42) * (across - 1)) / across
    panels: list[Panel] = []
    for index, case in enumerate(cases):
        row, column = divmod(index, across)
        box = (_LEFT + column * (width + _LEFT), height - HEAD - _EACH * (row + 1) + 0.17, width, _EACH - 0.5)
        panels += _case(case, box, first=not column, last=index + across >= len(cases))
    return Sheet(title, height, tuple(panels), tuple(_legend(cases)))


def _case(case: Distribution, box: tuple[float, float, float, float], *, first: bool, last: bool) -> Iterator[Panel]:
    known = {arm: times for arm, times in case.arms.items() if len(times)}
    compared = {arm: times for arm, times in known.items() if arm != "reference"}
    left, bottom, width, height = box
    if not compared or "reference" not in known or _near(compared, known["reference"]):
        yield _titled(_panel(case, known, box, first=first, last=last), case)
        return
    strip = width * _STRIP
    main = (left, bottom, width - strip - _BETWEEN, height)
    yield _titled(_panel(case, compared, main, first=first, last=last), case)
    only = {"reference": known["reference"]}
    yield _panel(Distribution(case.case, only), only, (left + width - strip, bottom, strip, height), strip=True)


def _near(compared: Mapping[str, Floats], reference: Floats) -> bool:
    """Whether the reference's median lies so close to the others' that one axis shows all of them."""
    middles = [float(np.median(times)) for times in compared.values()]
    middle = float(np.median(reference))
    return middle < NEAR * max(middles) and min(middles) < NEAR * middle


def _titled(panel: Panel, case: Distribution) -> Panel:
    return with_title(panel, case.case, bold=case.bold)


def _panel(
    case: Distribution,
    arms: Mapping[str, Floats],
    box: tuple[float, float, float, float],
    *,
    first: bool = False,
    last: bool = False,
    strip: bool = False,
) -> Panel:
    seen = [*arms.values(), *([case.baseline] if case.baseline is not None else [])]
    x = _times(seen, "device time of a launch, us" if last else "", 3 if strip else 5)
    marks = [mark for arm in _ordered(arms) for mark in _steps(arm, arms[arm], x)]
    if case.baseline is not None:
        marks += _steps(BASELINE, case.baseline, x)
    y = linear(0, 1, "share" if first else "", most=3)
    return Panel(box, x, y, tuple(marks), case.case, grid="xy", y_labels=not strip)


def _times(seen: Sequence[Floats], label: str, most: int) -> Axis:
    low, high = float(min(times.min() for times in seen)), float(max(times.max() for times in seen))
    if high > WIDE * low:
        return logarithmic(low / 1.05, high * 1.05, label)
    room = 0.03 * (high - low) or 0.01 * low
    return linear(low - room, high + room, label, most=most)


def _ordered(arms: Mapping[str, Floats]) -> list[str]:
    """The usual arms first, so that the kernel is drawn last, over the others."""
    known = [arm for arm in MARKERS if arm in arms]
    return [*sorted(set(arms) - set(known)), *reversed(known)]


def _steps(arm: str, times: Floats, x: Axis) -> Iterator[Mark]:
    """The empirical distribution: of n values the k-th smallest has the share k / n."""
    values, shares = quantiles(times)
    xs = np.repeat(np.append(values, x.high), 2)[:-1]
    ys = np.concatenate(([0.0], np.repeat(shares, 2)))
    line = (tuple(xs.tolist()), tuple(ys.tolist()))
    if arm == BASELINE:
        yield Line(*line, BLACK, 0.9, ":", order=2, name=arm)
    else:
        yield Line(*line, colour_of(arm), 1.2, order=3, name=arm)


def quantiles(times: Floats) -> tuple[Floats, Floats]:
    """Values and the share of all that is at most each; of many values STEPS of them.

    >>> quantiles(np.array([3.0, 1.0]))[0].tolist(), quantiles(np.array([3.0, 1.0]))[1].tolist()
    ([1.0, 3.0], [0.5, 1.0])
    """
    ordered = np.sort(np.asarray(times, dtype=float))
    count = ordered.size
    chosen = np.unique(np.linspace(0, count - 1, min(count, STEPS)).round().astype(int))
    return ordered[chosen], (chosen + 1) / count


def _legend(cases: Sequence[Distribution]) -> Iterator[tuple[str, Mark]]:
    found = {arm for case in cases for arm in case.arms}
    for arm in [*(arm for arm in MARKERS if arm in found), *sorted(found - set(MARKERS))]:
        yield fonts.drawn(arm, 20), Line((), (), colour_of(arm), 1.2)
    if any(case.baseline is not None for case in cases):
        yield "baseline's block medians", Line((), (), BLACK, 0.9, ":")
