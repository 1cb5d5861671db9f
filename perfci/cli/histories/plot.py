"""Histories drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.cli.histories.kept import HistoryOptions, Told, shown_of
from perfci.core.errors import UsageError
from perfci.store.files import write_atomically
from perfci.store.past.series import Point, Series, StoredPoint, StoredSeries

if TYPE_CHECKING:
    from perfci.report.charts.runs import RunsChart


def draw(path: Path, found: Sequence[Told], options: HistoryOptions) -> None:
    """The cases that moved most, if they are more than a picture holds; p99 if only stored tensors are shown.

    Raises UsageError for several histories.
    """
    from perfci.report.charts import style
    from perfci.report.charts.runs import draw_runs

    drawable = [one for one in found if one.cases] or [one for one in found if one.stored]
    if len(drawable) != 1:
        names = ", ".join(f"{one.history.op} ({one.history.device})" for one in drawable) or "-"
        raise UsageError("history_plot_one", count=len(drawable), names=names)
    if path.suffix.lower() != ".png":
        raise UsageError("history_plot_png", path=str(path))
    one, last = drawable[0], options.last or 0
    cases: Sequence[Series | StoredSeries] = one.cases or one.stored
    moved = sorted(cases, key=lambda case: _find_move([shown_of(point) for point in case.points[-last:]]), reverse=True)
    shown = [case for case in cases if case in moved[: style.PANELS]]
    title = style.fit(f"{one.history.op} on {one.history.device}: accepted runs", 80)
    note = f"the {len(shown)} of {len(cases)} cases that moved most" if len(shown) < len(cases) else ""
    _, names_of = style.split_names([case.case for case in shown])
    charts = [_make_chart(case, name, last) for case, name in zip(shown, names_of, strict=True)]
    write_atomically(path, style.save_png(draw_runs(charts, title, note)))


def _make_chart(case: Series | StoredSeries, name: str, last: int) -> RunsChart:
    from perfci.report.charts.runs import ENVIRONMENT, LOSS, RunsChart, Upright

    points: Sequence[Point | StoredPoint] = case.points[-last:]
    timed = [point.figures for point in points if isinstance(point, Point)]
    uprights = [(at, LOSS if point.why is not None else ENVIRONMENT) for at, point in enumerate(points)
                if at and (point.why is not None or point.steps)]  # fmt: skip
    return RunsChart(
        name,
        tuple(point.run.created[:10] for point in points),
        tuple(shown_of(point) for point in points),
        tuple((each.kernel_us.p25_us, each.kernel_us.p75_us) for each in timed),
        reference=tuple(each.reference_us.median_us if each.reference_us else None for each in timed),
        uprights=tuple(Upright(at, "", kind) for at, kind in uprights),
        time=isinstance(case, Series),
        unit="p99 error",
    )


def _find_move(values: Sequence[float]) -> float:
    """How many times the least the greatest is."""
    return max(values) / min(values) if min(values) else math.inf if max(values) else 1.0
