"""Block medians as the run went on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfci.core.model import Block, Gate, Verdict, is_peer
from perfci.report.figures import fonts
from perfci.report.figures.sheet import (
    Axis,
    Band,
    Line,
    Mark,
    Note,
    Panel,
    Points,
    Sheet,
    boxes,
    linear,
    spread,
    with_title,
)
from perfci.report.figures.style import BLACK, GROUND, INK, MARKERS, colour_of

LEAST_SPAN = 0.02
"""A time axis shows at least this share on either side of the median, so that small noise looks small."""

_HEIGHT = 1.12


@dataclass(frozen=True)
class Trace:
    """One case's blocks, and the stored median that they are held against."""

    label: str
    verdict: Verdict | None
    blocks: tuple[Block, ...]
    baseline_us: float | None


def traces(cases: Sequence[Trace], title: str) -> Sheet:
    """Two panels a case, the kernel with its base on the left and the reference on the right, over one time axis."""
    arms = arms_of(cases)
    columns = [
        column
        for column in ([arm for arm in arms if arm != "reference"], [arm for arm in arms if arm == "reference"])
        if column
    ]
    height, grid = boxes(len(cases), len(columns), _HEIGHT)
    x = _time(cases)
    panels = []
    for index, (row, case) in enumerate(zip(grid, cases, strict=True)):
        for box, column in zip(row, columns, strict=True):
            panel = _panel(case, column, box, x, labels=index == len(cases) - 1)
            panels.append(_titled(panel, case) if column is columns[0] else panel)
    return Sheet(title, height, tuple(panels), tuple(_legend([arm for column in columns for arm in column], cases)))


def _time(cases: Sequence[Trace]) -> Axis:
    starts = [block.started_s for case in cases for block in case.blocks]
    return linear(*spread(starts, share=0.05), "seconds since the start of the run", most=6)


def _titled(panel: Panel, case: Trace) -> Panel:
    grave = case.verdict is not None and case.verdict.gate is not Gate.OK
    return with_title(panel, f"{case.label}  {case.verdict}" if grave else case.label, bold=grave)


def _panel(case: Trace, arms: Sequence[str], box: tuple[float, float, float, float], x: Axis, *, labels: bool) -> Panel:
    """Block medians of some arms; blocks of fresh processes hollow and on a shaded ground."""
    marks = [mark for arm in arms for mark in _medians(case, arm)]
    seen = [us for mark in marks if isinstance(mark, Points) for us in mark.ys]
    if not seen:
        nothing = Note("not measured", 0.5, 0.5, align="center", upright="center", mono=False)
        return Panel(box, x, Axis(0, 1), (nothing,), case.label, x_labels=labels)
    if case.baseline_us and "kernel" in arms:
        marks.append(Line((x.low, x.high), (case.baseline_us,) * 2, BLACK, 0.9, ":", order=1, name="baseline"))
        seen.append(case.baseline_us)
    y = linear(*spread(seen, least=LEAST_SPAN), "us", most=3)
    return Panel(box, x, y, (*_shades(case), *marks), case.label, x_labels=labels)


def _medians(case: Trace, arm: str) -> Iterator[Mark]:
    for process in sorted({block.process for block in case.blocks}):
        points = sorted(
            (b.started_s, b.arms[arm].time.median_us) for b in case.blocks if b.process == process and arm in b.arms
        )
        if points:
            times, medians = (tuple(each) for each in zip(*points, strict=True))
            yield Line(times, medians, colour_of(arm), 0.5, order=3)
            yield Points(times, medians, colour_of(arm), MARKERS.get(arm, "D"), hollow=process > 0, order=4, name=arm)


def _shades(case: Trace) -> Iterator[Mark]:
    for process in sorted({block.process for block in case.blocks} - {0}):
        times = [block.started_s for block in case.blocks if block.process == process]
        yield Band((min(times), max(times)), None, GROUND, widen=2.5)


def arms_of(cases: Sequence[Trace]) -> list[str]:
    """Every arm that some block has, the usual ones first; no peers, beside whose times a change would not be seen."""
    found = {arm for case in cases for block in case.blocks for arm in block.arms if not is_peer(arm)}
    return [*(arm for arm in MARKERS if arm in found), *sorted(found - set(MARKERS))]


def _legend(arms: Sequence[str], cases: Sequence[Trace]) -> Iterator[tuple[str, Mark]]:
    for arm in arms:
        yield fonts.drawn(arm, 20), Points((), (), colour_of(arm), MARKERS.get(arm, "D"), size=4)
    if any(block.process for case in cases for block in case.blocks):
        yield "measured again in a fresh process", Points((), (), INK, hollow=True, size=4)
    if any(case.baseline_us for case in cases):
        yield "kernel's baseline", Line((), (), BLACK, 0.9, ":")
