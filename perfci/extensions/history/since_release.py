"""How the cases of an op changed since a release, by its accepted runs."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfci.core.environment import differences
from perfci.core.model import Bearing, HistoryRun
from perfci.core.wording import say
from perfci.extensions.history import changepoints
from perfci.store.history import KEPT

ENDS = 3  # most runs at either end: one noisy run does not move their median, and older ones are of older commits


@dataclass(frozen=True)
class Release:
    """The release that accepted runs are compared with."""

    name: str  # of its tag, or as it was named
    commits: frozenset[str]  # its and all before it


@dataclass(frozen=True)
class Since:
    """An op on a device since a release."""

    changes: Mapping[str, float] = field(default_factory=dict)  # case -> ratio - 1, plus is slower
    notes: tuple[str, ...] = ()  # what else may have moved the times

    @property
    def worst(self) -> str:
        """The case that changed most for the worse. Empty if nothing is known."""
        return max(self.changes, key=self.changes.__getitem__, default="")

    @property
    def most(self) -> float | None:
        """Change of the worst case."""
        return self.changes.get(self.worst)

    @property
    def mean(self) -> float | None:
        """Geometric mean of the changes."""
        logs = [math.log1p(change) for change in self.changes.values()]
        return math.expm1(statistics.fmean(logs)) if logs else None


def find_ends(runs: Sequence[HistoryRun], release: Release | None) -> tuple[Sequence[HistoryRun], Sequence[HistoryRun]]:
    """Returns the last runs up to a release and the newest after it. Without one the first and last of those kept."""
    if release is None:
        kept = runs[-KEPT:]
        ends = min(ENDS, len(kept) // 2)
        return kept[:ends], kept[len(kept) - ends :]
    # Runs stand in the order of acceptance, so one with a commit that is unknown here lies where its neighbours do.
    places = [at for at, run in enumerate(runs, 1) if run.environment.commit in release.commits]
    place = places[-1] if places else 0
    return runs[max(place - ENDS, 0) : place], runs[place:][-ENDS:]


def measure_since(runs: Sequence[HistoryRun], release: Release | None) -> Since:
    """Returns the change of each case of the newest run, from the median of one end to that of the other."""
    before, after = find_ends(runs, release)
    if not before or not after:
        return Since()
    old, changes = {run.run for run in before}, {}
    for case, points in changepoints.index_cases((*before, *after)).items():
        sides: tuple[list[float], list[float]] = ([], [])
        for run, each in points:
            sides[run.run not in old].append(each.kernel_us.median_us)
        then, now = (statistics.median(side) if side else 0.0 for side in sides)
        if then and now and math.isfinite(100 * now / then):
            changes[case] = now / then - 1
    moved = differences([run.environment for run in before], after[-1].environment)
    between = runs[runs.index(before[-1]) + 1 :]
    notes = []
    if any(move.moves and move.bearing is not Bearing.BOARD for move in moved):
        notes.append(say("new environment"))
    if any(run.epoch and not changes.keys().isdisjoint(run.epoch.cases) for run in between):
        notes.append(say("accepted loss"))
    return Since(changes, tuple(notes))
