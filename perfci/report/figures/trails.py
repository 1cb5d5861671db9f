"""Cases over the accepted runs with this run at the end, compact: two panels side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfci.core.model import Gate
from perfci.report.figures.sheet import Axis, Line, Mark, Note, Panel, Points, Sheet, boxes, linear, spread, with_title
from perfci.report.figures.style import BLACK, COLOURS, GRAVE, INK, OTHER, colour_of
from perfci.report.past import Mark as PastMark
from perfci.report.past import Trail

LEAST_SPAN = 0.02
"""An axis shows at least this share on either side of the median, so that small noise looks small."""

ACROSS = 2
_HEIGHT = 1.08
_LETTER = 0.05
"""Of the axis: a mark nearer than that to the one before it has its line alone."""

ACCEPTED, THIS_RUN, ANCHOR, QUARTILES = "accepted run", "this run", "anchor", "quartiles"

KINDS = ("loss accepted", "environment", "step")
_STYLES = {KINDS[0]: (GRAVE[Gate.FAILS], "-"), KINDS[1]: (OTHER, ":"), KINDS[2]: (INK, "--")}


@dataclass(frozen=True)
class Strip:
    """A case of a picture."""

    label: str
    trail: Trail
    marks: tuple[PastMark, ...]
    """those that are about it"""
    dates: tuple[str, ...]
    """of each run"""


def trails(cases: Sequence[Strip], title: str) -> Sheet:
    """A panel a case: medians of the kernel with their quartiles, the anchor's level, marks, and this run."""
    rows = -(-len(cases) // ACROSS)
    height, grid = boxes(rows, ACROSS, _HEIGHT, left=0.55, gap=0.6, title=0.26)
    places = [box for row in grid for box in row]
    lowest = len(cases) - min(ACROSS, len(cases))
    panels = [
        panel(case, box, labels=index >= lowest)
        for index, (case, box) in enumerate(zip(cases, places, strict=False))
    ]  # fmt: skip
    return Sheet(title, height, tuple(panels), tuple(legend(cases)))


def panel(case: Strip, box: tuple[float, float, float, float], *, labels: bool = True) -> Panel:
    """One case."""
    trail, count = case.trail, len(case.dates)
    known = [(float(place), each) for place, each in enumerate(trail.seen) if each]
    medians = [each.kernel_us.median_us for _, each in known]
    ends = [us for _, each in known for us in (each.kernel_us.p25_us, each.kernel_us.p75_us)]
    now = [trail.now_us] if trail.now_us is not None else []
    y = linear(*spread([*ends, *medians, *now], share=0.12, least=LEAST_SPAN), "us", most=3)
    x = _axis(case.dates)
    kernel = colour_of("kernel")
    marks: list[Mark] = [*_uprights(case.marks, x, y), *_anchor(trail, count)]
    marks += [
        Line((place, place), (each.kernel_us.p25_us, each.kernel_us.p75_us), kernel, 1.0, order=2, name=QUARTILES)
        for place, each in known
    ]
    marks.append(Line(tuple(place for place, _ in known), tuple(medians), kernel, 0.6, order=3))
    marks.append(Points(tuple(place for place, _ in known), tuple(medians), kernel, size=2.2, order=4, name="kernel"))
    if now:
        marks.append(Points((float(count),), tuple(now), BLACK, "D", size=3.6, order=5, name=THIS_RUN))
    return with_title(
        Panel(box, x, y, tuple(marks), trail.case, x_labels=labels), case.label, bold=trail.crept or trail.unexplained
    )


def _axis(dates: Sequence[str]) -> Axis:
    """Runs in their order, with the dates of the first and of one in the middle, and this run behind the last."""
    count = len(dates)
    ticks = [(0.0, dates[0])] if count > 1 else []
    if count >= 8:
        middle = round(count * 0.55)
        ticks.append((float(middle), dates[middle]))
    return Axis(-0.03 * count - 0.6, count + 0.03 * count + 0.6, (*ticks, (float(count), "now")))


def _uprights(marks: Sequence[PastMark], x: Axis, y: Axis) -> Iterator[Mark]:
    last = -1.0
    for mark in marks:
        at = mark.at - 0.5
        colour, dash = _STYLES[kind(mark)]
        yield Line((at, at), (y.low, y.high), colour, 0.9, dash, order=1, name=kind(mark))
        share = (at - x.low) / (x.high - x.low)
        if share - last >= _LETTER:
            last = share
            yield Note(mark.name, at, 1, data_x=True, shift=(1.5, -1), upright="top", colour=colour, bold=True)


def kind(mark: PastMark) -> str:
    """What a mark is drawn as: an accepted loss before a change of the environment before a step."""
    return KINDS[0] if mark.why else KINDS[1] if mark.fields else KINDS[2]


def _anchor(trail: Trail, count: int) -> Iterator[Mark]:
    """Its level over its own runs, and faintly from there on to this run."""
    if trail.anchor_us is not None and trail.anchor is not None:
        first, last = (float(place) for place in trail.anchor)
        level = (trail.anchor_us, trail.anchor_us)
        yield Line((first - 0.4, last + 0.4), level, COLOURS["base"], 2.2, order=2, name=ANCHOR)
        yield Line((last + 0.4, count + 0.4), level, COLOURS["base"], 0.7, "--", order=1)


def legend(cases: Sequence[Strip]) -> Iterator[tuple[str, Mark]]:
    """What the samples show, as far as they occur."""
    yield ACCEPTED, Points((), (), colour_of("kernel"), size=3)
    if any(case.trail.now_us is not None for case in cases):
        yield THIS_RUN, Points((), (), BLACK, "D", size=4)
    if any(case.trail.anchor for case in cases):
        yield ANCHOR, Line((), (), COLOURS["base"], 2.2)
    seen = {kind(mark) for case in cases for mark in case.marks}
    for name in (name for name in KINDS if name in seen):
        colour, dash = _STYLES[name]
        yield name, Line((), (), colour, 0.9, dash)
