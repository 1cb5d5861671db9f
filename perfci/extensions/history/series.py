"""Each case, and each stored tensor, over the accepted runs, in the order in which they were accepted."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfci.core.environment import differences, unmixable
from perfci.core.model import Bearing, Difference
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun, HistoryStored


@dataclass(frozen=True)
class HistoryPoint:
    """A case, or a tensor stored in low precision, in one accepted run."""

    run: HistoryRun
    figures: HistoryCase | HistoryStored
    since_last: float | None
    """change of the time, or of p99, against the run before that has it: ratio - 1. None if they do not compare"""
    since_first: float | None  # the same against the first run
    moved: tuple[Difference, ...]
    """differences from the environment of the run before, boards included, that may move a number"""

    @property
    def steps(self) -> tuple[Difference, ...]:
        """Moves other than of the board."""
        return tuple(move for move in self.moved if move.bearing is not Bearing.BOARD)

    @property
    def why(self) -> str | None:
        """Why a loss was accepted, if an epoch begins here for this case."""
        return self.run.why(self.figures.case)

    @property
    def speedup(self) -> float | None:
        """Reference time / kernel time."""
        return self.figures.speedup if isinstance(self.figures, HistoryCase) else None


def list_points(runs: Sequence[HistoryRun], *, stored: bool = False) -> dict[str, list[HistoryPoint]]:
    """Returns every case of an op's runs (oldest first), or every stored tensor, in the order of first appearance."""
    history_points: dict[str, list[HistoryPoint]] = {}
    for run in runs:
        for case in run.stored if stored else run.cases:
            points = history_points.setdefault(case.case, [])
            last, first = (points[-1], points[0]) if points else (None, None)
            moved = _list_moved(last.run, run) if last else ()
            points.append(HistoryPoint(run, case, _compare(run, case, last), _compare(run, case, first), moved))
    return history_points


def _compare(run: HistoryRun, now: HistoryCase | HistoryStored, then: HistoryPoint | None) -> float | None:
    """Times compare if timer and cache are the same. Stored tensors compare with any earlier run."""
    before = then.figures if then else None
    if isinstance(now, HistoryStored) and isinstance(before, HistoryStored):
        p99, earlier = now.errors.p99_abs, before.errors.p99_abs
        return p99 / earlier - 1 if p99 is not None and earlier else None
    if then is None or not isinstance(now, HistoryCase) or not isinstance(before, HistoryCase):
        return None
    alike = (run.environment.timer, now.cache) == (then.run.environment.timer, before.cache)
    return now.kernel_us.median_us / before.kernel_us.median_us - 1 if alike else None


def environment_steps(runs: Sequence[HistoryRun]) -> Mapping[str, tuple[Difference, ...]]:
    """Returns run id -> steps of the environment since the run before, if there are any."""
    steps = {after.run: list_steps(before, after) for before, after in itertools.pairwise(runs)}
    return {run: fields for run, fields in steps.items() if fields}


def list_steps(before: HistoryRun, after: HistoryRun) -> tuple[Difference, ...]:
    """Returns what moved but for the board: runs may change between boards of a model every night."""
    return tuple(move for move in _list_moved(before, after) if move.bearing is not Bearing.BOARD)


def _list_moved(before: HistoryRun, after: HistoryRun) -> tuple[Difference, ...]:
    return tuple(difference for difference in differences([before.environment], after.environment) if difference.moves)


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
    starts = [at for at, run in enumerate(runs) if run.why(case) is not None]
    return tuple(runs[starts[-1] :]) if starts else tuple(runs)
