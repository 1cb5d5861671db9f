"""What the kept history of an op shows beside a run: medians over the accepted runs, and what moved them.

The pipeline reads the files. Here are the values that it hands over, and the numbers and marks that both reports and
the pictures are made of.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perfci.core.environment import list_differences
from perfci.core.model import Bearing, HistoryCase, HistoryRun, OpRun, PerformanceCase, Reason, Run, Step
from perfci.report.text import plain
from perfci.statistics.changepoints import ChangePoint
from perfci.store.past.series import environment_steps


@dataclass(frozen=True)
class Past:
    """What was kept of an op before a run. An op without a history has none."""

    runs: tuple[HistoryRun, ...] = ()
    """accepted ones of the run's device model, the oldest first, not the run itself, nor what was accepted after it"""
    changes: Mapping[str, tuple[ChangePoint, ...]] = field(default_factory=dict)
    """steps of each case of the newest run"""
    steps: tuple[Step, ...] = ()
    """changes of the environment that people recorded"""
    accepted: bool = False
    """the run is in the history itself"""
    damage: Reason | None = None
    """why nothing of it is shown"""


Pasts = Mapping[str, Past]
"""By op."""


@dataclass(frozen=True)
class Mark:
    """What lies between a run and the one before it."""

    name: str
    """letters by which pictures and tables name it"""
    at: int
    """place of the run after it"""
    before: HistoryRun
    after: HistoryRun
    fields: str = ""
    """of the environment that changed"""
    recorded: str = ""
    """what people wrote of that when they recorded it"""
    why: str = ""
    """of a loss that was accepted"""
    cases: tuple[str, ...] = ()
    """that it was accepted for"""
    changes: tuple[ChangePoint, ...] = ()
    """steps that cases took here"""

    def about(self, case: str) -> bool:
        """Whether it is about a case. An environment is about all of them."""
        return bool(self.fields) or case in self.cases or any(change.case == case for change in self.changes)


@dataclass(frozen=True)
class Trail:
    """A case over the accepted runs, and in this run."""

    case: str
    seen: tuple[HistoryCase | None, ...]
    """one a run"""
    last_us: float
    """median of the newest accepted run that has it"""
    now_us: float | None
    """of this run's first look. None if it was not timed"""
    change: float | None
    """from that to this, ratio - 1, None if the two are timed otherwise"""
    changes: tuple[ChangePoint, ...] = ()

    @property
    def runs(self) -> int:
        """Accepted runs that have it."""
        return sum(each is not None for each in self.seen)

    @property
    def kernel(self) -> tuple[float | None, ...]:
        """Medians in microseconds, one a run."""
        return tuple(each.kernel_us.median_us if each else None for each in self.seen)

    @property
    def unexplained(self) -> bool:
        """Whether it took a step for the worse that lasts and that nothing explains."""
        return any(change.unexplained for change in self.changes)

    @property
    def rank(self) -> tuple[bool, float]:
        """The least is the first to look at."""
        return not self.unexplained, -abs(self.change or 0.0)


def list_trails(op: OpRun, run: Run, past: Past) -> tuple[Trail, ...]:
    """Every case of the run that the history knows, in the run's order."""
    known = [{case.case: case for case in each.cases} for each in past.runs]
    found = []
    for case in op.performance:
        seen = tuple(each.get(case.case) for each in known)
        place = next((place for place, each in reversed(list(enumerate(seen))) if each), None)
        if place is None or (last := seen[place]) is None:
            continue
        now, last_us = find_median(case), last.kernel_us.median_us
        alike = (past.runs[place].environment.timer, last.cache) == (run.environment.timer, case.cache)
        change = now / last_us - 1 if now is not None and alike else None
        found.append(Trail(case.case, seen, last_us, now, change, past.changes.get(case.case, ())))
    return tuple(found)


def find_median(case: PerformanceCase) -> float | None:
    """Median of the kernel's block medians in the first process, as a history's line would have it."""
    medians = [
        block.arms["kernel"].time.median_us for block in case.blocks if "kernel" in block.arms and block.process == 0
    ]
    return statistics.median(medians) if medians else None


# --- marks ------------------------------------------------------------------------------------------------------------


def find_marks(past: Past, shown: Sequence[Trail]) -> tuple[Mark, ...]:
    """Where the environment changed, a loss was accepted, or one of the cases took a step, in order of the runs."""
    changes: dict[str, list[ChangePoint]] = {}
    for trail in shown:
        for change in trail.changes:
            changes.setdefault(change.after.run, []).append(change)
    names = {trail.case for trail in shown}
    recorded = {run: step.why for step in past.steps for run in step.after.run_ids}
    moved = environment_steps(past.runs)
    found = list[Mark]()
    for at in range(1, len(past.runs)):
        run = past.runs[at]
        fields = [each for each in moved.get(run.run, ()) if each.bearing is not Bearing.BOARD]
        about = tuple(case for case in run.epoch.cases if case in names) if run.epoch else ()
        took = tuple(changes.get(run.run, ()))
        if fields or about or took:
            found.append(
                Mark(
                    name=name_mark(len(found)),
                    at=at,
                    # The run before. Of a step alone it is the last one that has its case.
                    before=past.runs[at - 1] if fields or about else took[0].before,
                    after=run,
                    fields=plain(list_differences(fields)) if fields else "",
                    recorded=plain(recorded.get(run.run, "")) if fields else "",
                    why=plain(run.epoch.why) if run.epoch and about else "",
                    cases=about,
                    changes=took,
                )
            )
    return tuple(found)


def name_mark(place: int) -> str:
    """What the marks of a history are called in their order.

    >>> name_mark(0), name_mark(25), name_mark(26)
    ('A', 'Z', 'AA')
    """
    rest, last = divmod(place, 26)
    return (name_mark(rest - 1) if rest else "") + chr(ord("A") + last)


def write_day(run: HistoryRun) -> str:
    """The date of a run."""
    return plain(run.created[:10], 16)


def write_commits(mark: Mark) -> Iterator[str]:
    """Of the runs on either side, as far as they are known: plain, shortened."""
    for run in (mark.before, mark.after):
        where = run.environment
        yield plain(where.commit or "-", 60)[:12] + ("+" if where.dirty else "")
