"""One look at an op: the worker, or the workers, that it takes, and what is done if one of them cannot do it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from perfci.core.model import (
    UNTIMED,
    AccuracyCase,
    Fact,
    PerformanceCase,
    PlannedOp,
    Reason,
    Suite,
    SuiteChange,
    because,
)
from perfci.judge.accuracy import BROKE_RULES
from perfci.runs.bench import Listener
from perfci.runs.record import Record, ends_run
from perfci.runs.tasks import Tasks, changes_suites, time_all
from perfci.worker.answers import LATE
from perfci.worker.gather import Gathered
from perfci.worker.pair import run_pair
from perfci.worker.process import Running, Working, working
from perfci.worker.protocol import Finished, HostLost, Message, OpDone, Prepared, Refused
from perfci.worker.tasks import Measure, WorkerEnvironment


class Looks:
    """Has workers do an op's task. Each look returns why it failed as a whole."""

    def __init__(self, tasks: Tasks, record: Record) -> None:
        self._tasks, self._record = tasks, record

    def look(self, task: Measure, gathered: Gathered, hear: Listener) -> Working:
        """Do a task, once more without peers if they may be to blame: a kernel is judged by what it does alone."""
        failure = yield from self._look(task, gathered, hear)
        if failure and gathered.met_peers and _may_be_tried_again(failure):
            self._start_afresh(gathered, task)
            gathered.note(because("peers_given_up", failure, op=task.op))
            alone = dataclasses.replace(task, suites=_list_rest(task, gathered), peers=False)
            failure = yield from self._look(alone, gathered, hear)
        return failure

    def _look(self, task: Measure, gathered: Gathered, hear: Listener) -> Working:
        """A process with the base's suites, and one for the op's code. What they cannot time comes after."""
        planned = self._record.planned(task.op)
        if not self._tasks.can_judge_apart(task):
            return (yield from self._look_together(task, gathered, hear))
        apart, (judge, around) = _Apart(planned, task, gathered, hear), self._tasks.judge(task)
        failure = None
        if judge.cases or not task.process:
            failure = yield from working(judge, around, apart.listen)
        if failure and (blamed := (yield from self._blame(apart, judge, around, failure))):
            return blamed
        why = failure or gathered.apart(None)
        if why and task.process:
            return because("judged_no_more", why, op=planned.op, case="; ".join(judge.cases or ()))
        if (rest := self._find_rest(apart, why)) is None:
            return None
        apart.is_judged = why is None
        change = SuiteChange() if task.process else (yield from self._compare_suites(planned, rest))
        return (yield from self._look_together(rest, gathered, functools.partial(apart.relay, rest, change)))

    def _blame(
        self, apart: _Apart, judge: Measure, around: WorkerEnvironment, failure: Reason
    ) -> Generator[Sequence[Running], None, Reason | None]:
        """Returns why the op fails with its judge. None if the base may have ended the process, and another can try."""
        if not (apart.blameless and apart.gathered.begun and _may_be_tried_again(failure)):
            return failure
        # If the base alone does not end the process, the change did.
        alone = dataclasses.replace(judge, host=None, base=None, peers=False)
        ended = yield from working(alone, around, lambda _: None)
        return None if ended else because("judge_ended", failure, op=judge.op)

    def _find_rest(self, apart: _Apart, why: Reason | None) -> Measure | None:
        """The task of what only the op's process can do. why: the judge's process could do nothing."""
        planned, task = apart.planned, apart.task
        if why:
            self._start_afresh(apart.gathered, task)
            apart.refused = dict.fromkeys(planned.performance, why)
            return dataclasses.replace(time_all(task), suites=_list_rest(task, apart.gathered))
        if apart.wrong and changes_suites(planned):
            # The change may mean something else than the base. What its suites find stands beside what the judge found.
            apart.refused = dict.fromkeys(planned.performance, Reason("logic_changed"))
            return dataclasses.replace(time_all(task), by_own=True)
        return self._tasks.find_rest(planned, task, apart.refused)

    def _compare_suites(self, planned: PlannedOp, task: Measure) -> Generator[Sequence[Running], None, SuiteChange]:
        """Questions that head's suites weaken, by a process that has the base's kernel in the place of head's.

        Nothing if they need more than the base's kernel has. The op's process compares them as well.
        """
        changes = [SuiteChange()]

        def hear(message: Message) -> None:
            if isinstance(message, OpDone) and message.change:
                changes.append(message.change)

        if compare := self._tasks.compare_suites(planned, task):
            yield from working(*compare, hear)
        return changes[-1]

    def _look_together(self, task: Measure, gathered: Gathered, hear: Listener) -> Working:
        """One process for both revisions. One each if they are known to need it, or show that they do."""
        base = self._record.planned(task.op).base
        if task.base and base and base.apart and self._record.run.plan.device not in UNTIMED:
            return run_pair(*self._tasks.pair(task), hear)
        failure = yield from working(task, self._tasks.around(task), hear)
        final = failure is not None and not _may_be_tried_again(failure)
        why = gathered.apart(failure) if task.base and task.base.plan.cases and not final else None
        if why is None:
            return failure
        self._record.note_apart(task.op, why)
        self._start_afresh(gathered, task)
        rest = dataclasses.replace(task, suites=_list_rest(task, gathered))
        return run_pair(*self._tasks.pair(rest), hear)

    def _start_afresh(self, gathered: Gathered, task: Measure) -> None:
        cases = task.cases if task.remaining else None
        gathered.forget_times(cases)
        self._record.drop_launches(task, cases)


@dataclass
class _Apart:
    """What a judge's process has reported of an op, and what the op's process adds to it."""

    planned: PlannedOp
    task: Measure
    gathered: Gathered
    hear: Listener
    refused: dict[str, Reason] = field(default_factory=dict)  # cases that the judge could not time, and why
    first: OpDone = field(default_factory=OpDone)  # the judge's last message
    blameless: bool = True  # the op's code did not end the judge's process, as far as known
    wrong: bool = False  # the judge has found a wrong answer
    is_judged: bool = False

    def listen(self, message: Message) -> None:
        """Hear the judge."""
        if isinstance(message, Refused) and self.task.process:
            # What judged it before cannot be joined by times of another source.
            why = because("judged_no_more", message.reason, op=self.planned.op, case=message.case)
            self.hear(Prepared(PerformanceCase(message.case, failure=why, raised=True)))
        elif isinstance(message, Refused):
            self.refused[message.case] = message.reason
        else:
            if isinstance(message, OpDone):
                self.first, self.gathered.ceilings = message, message.limits
            self.blameless &= not isinstance(message, HostLost)
            self.wrong |= isinstance(message, AccuracyCase) and message.failure is not None
            self.hear(message)

    def relay(self, rest: Measure, change: SuiteChange, message: Message) -> None:
        """Hear the op's process. change: what a comparison of its suites beside it has found."""
        if isinstance(message, Prepared | Finished):
            # That it does the base's work is its word alone.
            base = message.case.base and dataclasses.replace(message.case.base, same=None)
            case = dataclasses.replace(message.case, self_reported=self.refused[message.case.case], base=base)
            message = dataclasses.replace(message, case=case)
        if isinstance(message, OpDone):
            message = self._join(self._add(message) if rest.remaining else message, change)
        if isinstance(message, AccuracyCase) and self.is_judged:
            self.gathered.note_base_suite()
        self.hear(message)

    def _add(self, message: OpDone) -> OpDone:
        """The judge's last message, with what the op's process did beside it."""
        first, late, change = self.first, self.first.late or message.late, message.change or self.first.change
        if not (message.change or late or self.task.process) and changes_suites(self.planned):
            facts: dict[str, Fact] = {"what": "suites", "error": "OpDone", "message": "without a comparison"}
            change = SuiteChange((Reason("weaker_unknown", facts),))
        seconds = (first.measure_s or 0.0) + (message.measure_s or 0.0)
        return dataclasses.replace(first, late=late, measure_s=seconds, change=change)

    def _join(self, message: OpDone, change: SuiteChange) -> OpDone:
        if message.change is None:
            return message
        weaker = (*message.change.weaker, *(name for name in change.weaker if name not in message.change.weaker))
        return dataclasses.replace(message, change=dataclasses.replace(message.change, weaker=weaker))


def _may_be_tried_again(failure: Reason) -> bool:
    """Whether another arrangement of processes may do what one failed to do."""
    return failure.kind not in {LATE, *BROKE_RULES} and not ends_run(failure)


def _list_rest(task: Measure, gathered: Gathered) -> tuple[Suite, ...]:
    """The suites that a second worker of an op has left to do."""
    return tuple(suite for suite in task.suites if suite is Suite.PERFORMANCE or not gathered.has_accuracy)
