"""Histories drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from perfci.cli.histories.kept import HistoryOptions, Told, shown_of
from perfci.core.errors import UsageError
from perfci.report.text import plain
from perfci.store.past.series import Series, StoredSeries


def draw(path: Path, found: Sequence[Told], options: HistoryOptions) -> None:
    """The cases that moved most, where they are more than a picture holds; p99 where only stored tensors are shown.

    Raises UsageError for several histories.
    """
    from perfci.report import figures

    one = _drawable(path, found)
    name = f"{plain(one.history.op, 60)} on {plain(one.history.device, 60)}"
    cases, last = one.cases or one.stored, options.last or 0
    chosen = _chosen(cases, last)
    rest = f", the {len(chosen)} of {len(cases)} cases that moved most" if len(chosen) < len(cases) else ""
    title = figures.drawn(f"{name}: accepted runs{rest}", 100)
    if one.cases:
        cut = [Series(case.case, case.points[-last:]) for case in one.cases if case.case in chosen]
        sheet = figures.trends([figures.Trend(_label(case.case), case) for case in cut], title)
    else:
        kept = [StoredSeries(case.case, case.points[-last:]) for case in one.stored if case.case in chosen]
        sheet = figures.stored_trends([figures.StoredTrend(_label(case.case), case) for case in kept], title)
    with figures.style():
        figures.save(sheet, path)


def _label(case: str) -> str:
    from perfci.report import figures

    return figures.label(case).replace("\n", "")


def _drawable(path: Path, found: Sequence[Told]) -> Told:
    """The one history that there is to draw: of times, or of stored tensors where no time is shown."""
    drawable = [one for one in found if one.cases] or [one for one in found if one.stored]
    if len(drawable) != 1:
        names = ", ".join(f"{one.history.op} ({one.history.device})" for one in drawable) or "-"
        raise UsageError("history_plot_one", count=len(drawable), names=names)
    if path.suffix.lower() != ".png":
        raise UsageError("history_plot_png", path=str(path))
    return drawable[0]


def _chosen(cases: Sequence[Series] | Sequence[StoredSeries], last: int) -> set[str]:
    """Ids of those that moved most in so many of their newest runs, as many as a picture holds."""
    from perfci.report.figures.trends import MOST_CASES

    moved = {case.case: _moved([shown_of(point) for point in case.points[-last:]]) for case in cases}
    return set(sorted(moved, key=lambda case: moved[case], reverse=True)[:MOST_CASES])


def _moved(values: Sequence[float]) -> float:
    """How many times the least the greatest is."""
    return max(values) / min(values) if min(values) else math.inf if max(values) else 1.0
