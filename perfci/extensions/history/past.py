"""The History section of an op: last accepted medians against this run, and steps that nothing explains."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perfci.core import units
from perfci.core.model import Bearing, OpRun, PerformanceCase, Reason, Run, as_fact
from perfci.core.wording import join, say, sentence
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun
from perfci.extensions.history import changepoints
from perfci.extensions.history.changepoints import ChangePoint
from perfci.extensions.history.series import environment_steps
from perfci.report.accuracy import describe_losses
from perfci.report.text import code, plain
from perfci.report.view import Picture, Section, make_table
from perfci.report.words import count_cases, write_change
from perfci.store.lines import find_worst_errors

LOSS, ENVIRONMENT, STEP = as_fact("loss accepted"), as_fact("environment"), as_fact("step")
TOLD = 5  # most cases of which a sentence is shown


@dataclass(frozen=True)
class Past:
    """An op's accepted runs before a run. An op without a history has none."""

    runs: tuple[HistoryRun, ...] = ()
    """accepted ones of the run's device model, the oldest first, not the run itself, nor what was accepted after it"""
    changes: Mapping[str, tuple[ChangePoint, ...]] = field(default_factory=dict)
    """steps of each case of the newest run"""
    accepted: bool = False  # the run is in the history itself
    damage: Reason | None = None  # why nothing of it is shown


@dataclass(frozen=True)
class Trail:
    """A case over the accepted runs, and in this run."""

    case: str
    seen: tuple[HistoryCase | None, ...]  # one a run
    last_us: float  # median of the newest accepted run that has it
    now_us: float | None  # of this run's first look. None if it was not timed
    change: float | None  # from that to this, ratio - 1, None if the two are timed otherwise
    changes: tuple[ChangePoint, ...] = ()

    @property
    def runs(self) -> int:
        """Accepted runs that have it."""
        return sum(case is not None for case in self.seen)

    @property
    def kernel(self) -> tuple[float | None, ...]:
        """Medians in microseconds, one a run."""
        return tuple(case.kernel_us.median_us if case else None for case in self.seen)

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
    trails, cases_of_runs = [], index_runs(past.runs)
    for case in op.performance:
        seen = tuple(cases.get(case.case) for cases in cases_of_runs)
        place = next((place for place, case in reversed(list(enumerate(seen))) if case), None)
        if place is None or (last := seen[place]) is None:
            continue
        now, last_us = find_median(case), last.kernel_us.median_us
        alike = (past.runs[place].environment.timer, last.cache) == (run.environment.timer, case.cache)
        change = now / last_us - 1 if now is not None and alike else None
        trails.append(Trail(case.case, seen, last_us, now, change, past.changes.get(case.case, ())))
    return tuple(trails)


def index_runs(runs: Sequence[HistoryRun]) -> list[Mapping[str, HistoryCase]]:
    """The cases of each run by name."""
    return [{case.case: case for case in run.cases} for run in runs]


def find_median(case: PerformanceCase) -> float | None:
    """Median of the kernel's block medians in the first process, as a history's line would have it."""
    blocks = [block for block in case.blocks if block.process == 0 and "kernel" in block.arms]
    return statistics.median(block.arms["kernel"].time.median_us for block in blocks) if blocks else None


def list_events(past: Past, case: str) -> tuple[tuple[int, str], ...]:
    """What lies between two runs of a case: place of the run after it, and LOSS, ENVIRONMENT or STEP."""
    stepped = {change.after.run for change in past.changes.get(case, ())}
    moved, events = environment_steps(past.runs), []
    for at, run in enumerate(past.runs[1:], 1):
        if run.epoch and case in run.epoch.cases:
            events.append((at, LOSS))
        elif any(difference.bearing is not Bearing.BOARD for difference in moved.get(run.run, ())):
            events.append((at, ENVIRONMENT))
        elif run.run in stepped:
            events.append((at, STEP))
    return tuple(events)


def write_day(run: HistoryRun) -> str:
    """The date of a run."""
    return plain(run.created[:10], 16)


def make_section(op: OpRun, run: Run, past: Past | None, pictures: Sequence[Picture] = ()) -> Section | None:
    """The accepted runs beside this one. None if no history has any of its cases."""
    if past is None:
        return None
    if past.damage:
        name, why = plain(op.op, 80), plain(sentence(past.damage))
        damage = say("The history of {op} is not shown, since it is damaged: {why}", op=name, why=why)
        return Section(say("History"), lines=(damage,))
    shown = list_trails(op, run, past)
    lines = (*_describe_problems(op.op, shown), *_compare_errors(op, past))
    if not shown and not lines:
        return None
    parts = [say("{count:accepted run|accepted runs}", count=len(past.runs))]
    if stepped := sum(trail.unexplained for trail in shown):
        parts.append(say("slower since a step that nothing explains: {cases}", cases=count_cases(stepped)))
    drawn, drawing = sum(picture.shows for picture in pictures), ""
    if drawn not in {0, len(shown)}:
        facts = {"drawn": drawn, "count": len(shown)}
        drawing = say("Drawn are {drawn} of {count} cases: those that stepped, then those that moved most.", **facts)
    rows = []
    for each in shown:
        times = units.time(each.last_us), units.time(each.now_us)
        rows.append((code(each.case), str(each.runs), *times, write_change(each.change)))
    return Section(
        title=say("History: {what}", what=", ".join(parts)),
        texts=(join(_describe_runs(past)),),
        lines=lines,
        pictures=tuple(pictures),
        pictures_note=drawing,
        table=make_table("case | accepted runs: | last accepted: | this run: | change:", rows),
        folded=True,
    )


def _compare_errors(op: OpRun, past: Past) -> Iterator[str]:
    """Checks that pass and are less exact than in the newest accepted run, without the base's kernel beside them."""
    before = next((run for run in reversed(past.runs) if run.accuracy), None)
    if before is None or any(check.base_errors for check in op.accuracy):
        return iter(())
    then = {case.case: case.errors for case in before.cases} | {case.case: case.errors for case in before.accuracy}
    now = {case.case: case.errors for case in op.performance}
    now |= {case.case: case.errors for case in find_worst_errors(op.accuracy)}
    than = say("in the accepted run of {day}", day=write_day(before))
    return describe_losses(((case, errors, then.get(case)) for case, errors in now.items()), than)


def _describe_runs(past: Past) -> Iterator[str]:
    first, last = past.runs[0], past.runs[-1]
    ends = {"first": plain(first.created[:10], 16), "last": plain(last.created[:10], 16)}
    if len(past.runs) == 1:
        yield say("One run was accepted, on {last}.", last=ends["last"])
    else:
        count = say("{count:accepted run|accepted runs}", count=len(past.runs))
        yield say("{runs} from {first} to {last}.", runs=count, **ends)
    if last.environment.commit:
        yield say("The last one is of {commit}.", commit=code(last.environment.commit[:12]))
    if past.accepted:
        yield say("This run was accepted itself: what stands here is what came before it.")


def _describe_problems(op: str, shown: Sequence[Trail]) -> Iterator[str]:
    """Steps for the worse that nothing explains, the newest of a case, each with what to do next."""
    grave = sorted((trail for trail in shown if trail.unexplained), key=lambda trail: trail.rank)
    for trail in grave[:TOLD]:
        newest = [change for change in trail.changes if change.unexplained][-1]
        yield plain(sentence(changepoints.describe_change(newest, op)))
    if len(grave) > TOLD:
        rest = count_cases(len(grave) - TOLD)
        yield say("Alike: {cases} more; `perfci history --drift {op:sh}` lists them.", cases=rest, op=op)
