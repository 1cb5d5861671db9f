"""What is kept of each op on each device model, read one history at a time: all of them would not fit into memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfci import store
from perfci.core.errors import StoredFileError
from perfci.core.model import HistoryRun, Reason, Step
from perfci.report.past import DAMAGE, Past, Trail
from perfci.statistics import changepoints
from perfci.store.history import ENDING, read_history


@dataclass(frozen=True, order=True)
class OpOnDevice:
    """An op on a device model."""

    device: str
    """key"""
    op: str


@dataclass(frozen=True)
class Kept:
    """The history of one place."""

    place: OpOnDevice
    past: Past = field(default_factory=Past)
    problems: tuple[Reason, ...] = ()
    """what could not be read, or looks wrong"""

    @property
    def damaged(self) -> bool:
        """Whether something of it could not be read."""
        return any(problem.kind in DAMAGE or not self.past.runs for problem in self.problems)


def places(baselines: Path) -> tuple[OpOnDevice, ...]:
    """Every op on every device model that has a history, by name."""
    found = [path for path in baselines.glob(f"*/*{ENDING}") if not path.name.startswith(".")]
    return tuple(sorted(OpOnDevice(path.parent.name, path.name.removesuffix(ENDING)) for path in found))


def read(baselines: Path, place: OpOnDevice, root: Path) -> Kept:
    """Returns all about one place. What cannot be read is a problem of the place, and the others go on."""
    try:
        found = read_history(baselines, place.device, place.op)
    except StoredFileError as error:
        return Kept(place, problems=(_relate(error.reason, root),))
    problems, steps = list(found.problems), tuple[Step, ...]()
    try:
        path = store.baseline_path(baselines, place.device, place.op)
        steps = store.read_baseline(path).steps if path.is_file() else ()
    except StoredFileError as error:
        problems.append(error.reason)
    changes = {case: changepoints.find_changes(known) for case, known in changepoints.index_cases(found.runs).items()}
    return Kept(place, Past(found.runs, changes, steps), tuple(_relate(each, root) for each in problems))


def read_all(baselines: Path, root: Path) -> Iterator[Kept]:
    """One after the other."""
    return (read(baselines, place, root) for place in places(baselines))


def _relate(reason: Reason, root: Path) -> Reason:
    """A site is read elsewhere: files by their place in the project, not by that on the machine which built it."""
    facts = {
        name: value.removeprefix(f"{root}/") if isinstance(value, str) else value
        for name, value in reason.facts.items()
    }
    return replace(reason, facts=facts)


def list_trails(past: Past) -> tuple[Trail, ...]:
    """Every case over the runs, without a run beside them. The cases of the newest run come first."""
    names = dict.fromkeys(case.case for run in reversed(past.runs) for case in run.cases)
    known = [{case.case: case for case in run.cases} for run in past.runs]
    found = []
    for name in names:
        seen = tuple(each.get(name) for each in known)
        medians = [each.kernel_us.median_us for each in seen if each]
        found.append(Trail(name, seen, medians[-1], None, find_move(medians), past.changes.get(name, ())))
    return tuple(found)


ENDS = 5
"""Most runs at either end of a change over all kept runs."""


def find_move(values: list[float]) -> float | None:
    """From the median of the first runs to that of the last, ratio - 1. None for fewer than two.

    >>> round(find_move([10.0, 10.2, 11.0, 11.2]), 3)
    0.099
    """
    ends = min(ENDS, len(values) // 2)
    first = statistics.median(values[:ends]) if ends else 0.0
    return statistics.median(values[-ends:]) / first - 1 if first else None


def last_run_with(case: str, runs: tuple[HistoryRun, ...]) -> int | None:
    """Number of the last run that has a case which the newest one lacks: it was renamed, or taken out."""
    newest = next((run for run in reversed(runs) if run.cases or run.inconclusive), None)
    if newest is None or case in {*(each.case for each in newest.cases), *newest.inconclusive}:
        return None
    return max(number for number, run in enumerate(runs, 1) if any(each.case == case for each in run.cases))
