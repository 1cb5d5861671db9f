"""The History section of an op in a report: last accepted medians against this run, and steps that nothing explains."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfci.core import units
from perfci.core.model import OpRun, PerformanceCase, Reason, Run, as_fact
from perfci.core.model.measured import KERNEL, find_median, find_worst_errors, list_first_look
from perfci.core.wording import join, say, sentence
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun
from perfci.extensions.history import changepoints
from perfci.extensions.history.changepoints import ChangePoint
from perfci.extensions.history.series import environment_steps
from perfci.report.accuracy import describe_losses
from perfci.report.text import code, plain
from perfci.report.view import Picture, Section, make_table
from perfci.report.words import count_cases, write_change

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
    """A case over the accepted runs, at least one of which has it, and in a run beside them."""

    case: str
    seen: tuple[HistoryCase | None, ...]  # one a run
    changes: tuple[ChangePoint, ...] = ()
    now_us: float | None = None  # of the run's first look. None if it was not timed
    change: float | None = None  # from the newest accepted run to this one, ratio - 1. None if they do not compare

    @property
    def newest(self) -> int:
        """Place of the newest accepted run that has it."""
        return max(place for place, case in enumerate(self.seen) if case)

    @property
    def last_us(self) -> float:
        """The median of that run."""
        return self.medians[-1]

    @property
    def kernel(self) -> tuple[float | None, ...]:
        """Medians in microseconds, one a run."""
        return tuple(case.kernel_us.median_us if case else None for case in self.seen)

    @property
    def medians(self) -> list[float]:
        """Those of the runs that have it."""
        return [us for us in self.kernel if us is not None]

    @property
    def unexplained(self) -> bool:
        """Whether it took a step for the worse that lasts and that nothing explains."""
        return any(change.unexplained for change in self.changes)

    @property
    def rank(self) -> tuple[bool, float]:
        """The least is the first to look at."""
        return not self.unexplained, -abs(self.change or 0.0)


# --- what is read -----------------------------------------------------------------------------------------------------


def make_past(runs: tuple[HistoryRun, ...], cases: set[str] | None = None, *, accepted: bool = False) -> Past:
    """Returns these runs with the steps of their cases. cases: None for all."""
    indexed = changepoints.index_cases(runs)
    chosen = {case: known for case, known in indexed.items() if cases is None or case in cases}
    return Past(runs, {case: changepoints.find_changes(known) for case, known in chosen.items()}, accepted)


def list_trails(past: Past) -> dict[str, Trail]:
    """Returns every case over the runs, without a run beside them. The cases of the newest run come first."""
    names = dict.fromkeys(case.case for run in reversed(past.runs) for case in run.cases)
    runs = [{case.case: case for case in run.cases} for run in past.runs]
    return {name: Trail(name, tuple(run.get(name) for run in runs), past.changes.get(name, ())) for name in names}


def compare_trails(op: OpRun, run: Run, past: Past) -> tuple[Trail, ...]:
    """Returns every case of the run that the history knows, in the run's order, against the newest run that has it."""
    trails = list_trails(past)
    return tuple(_compare(trails[case.case], case, run, past) for case in op.performance if case.case in trails)


def _compare(trail: Trail, case: PerformanceCase, run: Run, past: Past) -> Trail:
    now = find_median(block.arms[KERNEL].time.median_us for block in list_first_look(case))
    last = trail.seen[trail.newest]
    alike = (past.runs[trail.newest].environment.timer, last and last.cache) == (run.environment.timer, case.cache)
    return replace(trail, now_us=now, change=now / trail.last_us - 1 if now is not None and alike else None)


def list_events(past: Past, case: str) -> tuple[tuple[int, str], ...]:
    """What lies between two runs of a case: place of the run after it, and LOSS, ENVIRONMENT or STEP."""
    stepped = {change.after.run for change in past.changes.get(case, ())}
    moved, events = environment_steps(past.runs), []
    for at, run in enumerate(past.runs[1:], 1):
        if run.why(case) is not None:
            events.append((at, LOSS))
        elif run.run in moved:
            events.append((at, ENVIRONMENT))
        elif run.run in stepped:
            events.append((at, STEP))
    return tuple(events)


def write_day(run: HistoryRun) -> str:
    """The date of a run."""
    return plain(run.created[:10], 16)


# --- the section ------------------------------------------------------------------------------------------------------


def make_section(op: OpRun, run: Run, past: Past, pictures: Sequence[Picture] = ()) -> Section | None:
    """The accepted runs beside this one. None if no history has any of its cases."""
    if past.damage:
        name, why = plain(op.op, 80), plain(sentence(past.damage))
        damage = say("The history of {op} is not shown, since it is damaged: {why}", op=name, why=why)
        return Section(say("History"), lines=(damage,))
    shown = compare_trails(op, run, past)
    lines = (*_describe_problems(op.op, shown), *_compare_errors(op, past))
    if not shown and not lines:
        return None
    count = say("{count:accepted run|accepted runs}", count=len(past.runs))
    parts = [count]
    if stepped := sum(trail.unexplained for trail in shown):
        parts.append(say("slower since a step that nothing explains: {cases}", cases=count_cases(stepped)))
    drawn, drawing = sum(picture.shows for picture in pictures), ""
    if drawn not in {0, len(shown)}:
        facts = {"drawn": drawn, "count": len(shown)}
        drawing = say("Drawn are {drawn} of {count} cases: those that stepped, then those that moved most.", **facts)
    rows = [
        (code(one.case), str(len(one.medians)), *map(units.time, (one.last_us, one.now_us)), write_change(one.change))
        for one in shown
    ]
    return Section(
        title=say("History: {what}", what=", ".join(parts)),
        texts=(join(_describe_runs(past, count)),),
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


def _describe_runs(past: Past, count: str) -> Iterator[str]:
    first, last = write_day(past.runs[0]), write_day(past.runs[-1])
    if len(past.runs) == 1:
        yield say("One run was accepted, on {last}.", last=last)
    else:
        yield say("{runs} from {first} to {last}.", runs=count, first=first, last=last)
    if commit := past.runs[-1].environment.commit:
        yield say("The last one is of {commit}.", commit=code(commit[:12]))
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
