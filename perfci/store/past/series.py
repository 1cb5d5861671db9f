"""Each case over the accepted runs, in the order in which they were accepted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfci.core.environment import differences, unmixable
from perfci.core.model import Bearing, Difference, HistoryCase, HistoryRun, HistoryStored


@dataclass(frozen=True)
class _InRun:
    run: HistoryRun
    since_last: float | None
    """change against the run before that has it, a ratio - 1, plus is slower or worse. None if they do not compare"""
    since_first: float | None
    """change against the first run"""
    moved: tuple[Difference, ...]
    """differences from the environment of the run before, boards included, that may move a number"""

    @property
    def steps(self) -> tuple[Difference, ...]:
        """What moved besides the board: runs may change between boards of a model every night."""
        return tuple(each for each in self.moved if each.bearing is not Bearing.BOARD)


@dataclass(frozen=True)
class Point(_InRun):
    """A case in one accepted run."""

    figures: HistoryCase

    @property
    def why(self) -> str | None:
        """Why a loss was accepted, if an epoch begins here for this case."""
        epoch = self.run.epoch
        return epoch.why if epoch and self.figures.case in epoch.cases else None

    @property
    def speedup(self) -> float | None:
        """Reference time / kernel time."""
        return None if self.figures.shift is None else math.exp(-self.figures.shift)

    @property
    def spread(self) -> float:
        """Interquartile range of the block medians / their median."""
        return (self.figures.kernel_us.p75_us - self.figures.kernel_us.p25_us) / self.figures.kernel_us.median_us


@dataclass(frozen=True)
class Series:
    """A case over the runs."""

    case: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class StoredPoint(_InRun):
    """A tensor stored in low precision in one accepted run. The changes are those of its p99."""

    figures: HistoryStored

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
    """Returns every case of an op's runs (oldest first), in the order in which cases first appear."""

    def change(now: HistoryCase, run: HistoryRun, then: Point | None) -> float | None:
        if then is None or (run.environment.timer, now.cache) != (then.run.environment.timer, then.figures.cache):
            return None
        return now.kernel_us.median_us / then.figures.kernel_us.median_us - 1

    by_case: dict[str, list[Point]] = {}
    for run in runs:
        for case in run.cases:
            points = by_case.setdefault(case.case, [])
            last, first = (points[-1], points[0]) if points else (None, None)
            moved = _moved(last.run, run) if last else ()
            points.append(Point(run, change(case, run, last), change(case, run, first), moved, case))
    return tuple(Series(case, tuple(points)) for case, points in by_case.items())


def stored_series(runs: Sequence[HistoryRun]) -> tuple[StoredSeries, ...]:
    """Returns the same for every tensor that the op stores in low precision.

    Runs compare with any earlier one, whatever its driver and torch: how those change a cast is part of the question.
    """

    def change(now: HistoryStored, then: StoredPoint | None) -> float | None:
        after, before = now.errors.p99_abs, then.figures.errors.p99_abs if then else None
        return after / before - 1 if after is not None and before else None

    by_case: dict[str, list[StoredPoint]] = {}
    for run in runs:
        for stored in run.stored:
            points = by_case.setdefault(stored.case, [])
            last, first = (points[-1], points[0]) if points else (None, None)
            moved = _moved(last.run, run) if last else ()
            points.append(StoredPoint(run, change(stored, last), change(stored, first), moved, stored))
    return tuple(StoredSeries(case, tuple(points)) for case, points in by_case.items())


def environment_steps(runs: Sequence[HistoryRun]) -> Mapping[str, tuple[Difference, ...]]:
    """Returns run id -> differences from the environment of the run before that may move a number, if there are any."""
    found = {after.run: _moved(before, after) for before, after in itertools.pairwise(runs)}
    return {run: fields for run, fields in found.items() if fields}


def _moved(before: HistoryRun, after: HistoryRun) -> tuple[Difference, ...]:
    return tuple(each for each in differences([before.environment], after.environment) if each.moves)


def select_environment(runs: Sequence[HistoryRun]) -> tuple[HistoryRun, ...]:
    """Returns the runs of the newest one's environment, boards aside: a new driver, torch or Triton starts anew."""

    def list_fields(run: HistoryRun) -> tuple[object, ...]:
        where = run.environment
        device = tuple(value for name, value in vars(where.device).items() if name != "uuid")
        return where.timer, where.python, where.packages, where.variables, device

    # Equal fields are compared fast, and a case has a hundred runs.
    return tuple(
        run
        for run in runs
        if list_fields(run) == list_fields(runs[-1]) or not unmixable(run.environment, runs[-1].environment)
    )


def select_epoch(runs: Sequence[HistoryRun], case: str) -> tuple[HistoryRun, ...]:
    """Returns the runs from the last one on that began an epoch of the case. All if none did."""
    starts = [at for at, run in enumerate(runs) if run.epoch and case in run.epoch.cases]
    return tuple(runs[starts[-1] :]) if starts else tuple(runs)
