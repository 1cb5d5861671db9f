"""Each case over the accepted runs, in the order in which they were accepted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfci.core.environment import differences
from perfci.core.model import Bearing, Difference, HistoryCase, HistoryRun, HistoryStored


@dataclass(frozen=True)
class Point:
    """A case in one accepted run; changes are ratios - 1, plus is slower."""

    run: HistoryRun
    figures: HistoryCase
    since_last: float | None
    """against the run before that has the case; None for the first, and where the two are timed otherwise"""
    since_first: float | None
    """against the first run"""
    moved: tuple[Difference, ...] = ()
    """fields of the environment, boards included, that may move a number and are not those of the run before"""
    why: str | None = None
    """of the epoch that begins here for this case: a loss that was accepted"""

    @property
    def steps(self) -> tuple[Difference, ...]:
        """What moved but the board: runs may change between boards of a model every night."""
        return _steps(self.moved)

    @property
    def speedup(self) -> float | None:
        """Reference time / kernel time."""
        return None if self.figures.shift is None else math.exp(-self.figures.shift)

    @property
    def spread(self) -> float:
        """Distance of the quartiles of the block medians, of their median."""
        return (self.figures.kernel_us.p75_us - self.figures.kernel_us.p25_us) / self.figures.kernel_us.median_us


@dataclass(frozen=True)
class Series:
    """A case over the runs."""

    case: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class StoredPoint:
    """A tensor stored in low precision in one accepted run; changes of its p99 are ratios - 1, plus is worse."""

    run: HistoryRun
    figures: HistoryStored
    since_last: float | None
    """against the run before that has it; None for the first, and where either has no p99 or the earlier one is 0"""
    since_first: float | None
    """against the first run"""
    moved: tuple[Difference, ...] = ()
    """fields of the environment, boards included, that may move a number and are not those of the run before"""

    @property
    def steps(self) -> tuple[Difference, ...]:
        """What moved but the board."""
        return _steps(self.moved)

    @property
    def why(self) -> str | None:
        """No epoch ever begins here: a figure beyond its limit is WRONG, which nobody can accept."""
        return None


@dataclass(frozen=True)
class StoredSeries:
    """A tensor stored in low precision over the runs."""

    case: str
    points: tuple[StoredPoint, ...]


def series(runs: Sequence[HistoryRun]) -> tuple[Series, ...]:
    """Every case of an op's runs (oldest first), in the order in which cases first appear."""
    by_case: dict[str, list[Point]] = {}
    for run in runs:
        for case in run.cases:
            points = by_case.setdefault(case.case, [])
            points.append(_point(run, case, points))
    return tuple(Series(case, tuple(points)) for case, points in by_case.items())


def stored_series(runs: Sequence[HistoryRun]) -> tuple[StoredSeries, ...]:
    """The same of every tensor that the op stores in low precision.

    Its figures are held against any run before, whatever driver and torch that had: what those change in a cast is part
    of what is looked for.
    """
    by_case: dict[str, list[StoredPoint]] = {}
    for run in runs:
        for stored in run.stored:
            points = by_case.setdefault(stored.case, [])
            points.append(_stored_point(run, stored, points))
    return tuple(StoredSeries(case, tuple(points)) for case, points in by_case.items())


def environment_steps(runs: Sequence[HistoryRun]) -> Mapping[str, tuple[Difference, ...]]:
    """Id of each run whose environment differs from that of the run before in what may move a number -> the fields."""
    found = {after.run: _moved(before, after) for before, after in itertools.pairwise(runs)}
    return {run: fields for run, fields in found.items() if fields}


def _point(run: HistoryRun, case: HistoryCase, before: Sequence[Point]) -> Point:
    last, first = (before[-1], before[0]) if before else (None, None)
    return Point(
        run=run,
        figures=case,
        since_last=_change(run, case, last),
        since_first=_change(run, case, first),
        moved=_moved(last.run, run) if last else (),
        why=run.epoch.why if run.epoch and case.case in run.epoch.cases else None,
    )


def _stored_point(run: HistoryRun, stored: HistoryStored, before: Sequence[StoredPoint]) -> StoredPoint:
    last, first = (before[-1], before[0]) if before else (None, None)
    return StoredPoint(
        run=run,
        figures=stored,
        since_last=_grown(stored, last),
        since_first=_grown(stored, first),
        moved=_moved(last.run, run) if last else (),
    )


def _grown(stored: HistoryStored, other: StoredPoint | None) -> float | None:
    now, then = stored.errors.p99_abs, other.figures.errors.p99_abs if other else None
    return now / then - 1 if now is not None and then else None


def _steps(moved: Sequence[Difference]) -> tuple[Difference, ...]:
    return tuple(each for each in moved if each.bearing is not Bearing.BOARD)


def _change(run: HistoryRun, case: HistoryCase, other: Point | None) -> float | None:
    if other is None or (run.environment.timer, case.cache) != (other.run.environment.timer, other.figures.cache):
        return None
    return case.kernel_us.median_us / other.figures.kernel_us.median_us - 1


def _moved(before: HistoryRun, after: HistoryRun) -> tuple[Difference, ...]:
    return tuple(each for each in differences([before.environment], after.environment) if each.moves)
