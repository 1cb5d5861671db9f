"""One look at an op: the worker, or the workers, that it takes, and what is done if one of them cannot do it."""

import dataclasses
from collections.abc import Generator, Sequence

from perfci.core.model import (
    UNTIMED,
    AccuracyCase,
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
from perfci.worker.gather import Gathered
from perfci.worker.inbox import LATE
from perfci.worker.pair import run_pair
from perfci.worker.process import Running, Working, working
from perfci.worker.protocol import Finished, HostLost, Message, OpDone, Prepared, Refused
from perfci.worker.tasks import Measure


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
        judge, around = self._tasks.judge(task)
        refused: dict[str, Reason] = {}
        first, blameless, wrong = OpDone(), True, False

        def listen(message: Message) -> None:
            nonlocal first, blameless, wrong
            if isinstance(message, Refused) and task.process:
                # What judged it before cannot be joined by times of another source.
                why = because("judged_no_more", message.reason, op=planned.op, case=message.case)
                hear(Prepared(PerformanceCase(message.case, failure=why, raised=True)))
            elif isinstance(message, Refused):
                refused[message.case] = message.reason
            else:
                if isinstance(message, OpDone):
                    first, gathered.ceilings = message, message.limits
                blameless &= not isinstance(message, HostLost)
                wrong |= isinstance(message, AccuracyCase) and message.failure is not None
                hear(message)

        failure = None
        if judge.cases or not task.process:
            failure = yield from working(judge, around, listen)
        if failure:
            if not (blameless and gathered.begun and _may_be_tried_again(failure)):
                return failure
            # If the base alone does not end the process, the change did.
            alone = dataclasses.replace(judge, host=None, base=None, peers=False)
            if (yield from working(alone, around, lambda _: None)) is None:
                return because("judge_ended", failure, op=planned.op)
        why = failure or gathered.apart(None)
        if why and task.process:
            return because("judged_no_more", why, op=planned.op, case="; ".join(judge.cases or ()))
        if why:
            self._start_afresh(gathered, task)
            task = dataclasses.replace(time_all(task), suites=_list_rest(task, gathered))
            refused = dict.fromkeys(planned.performance, why)
        elif wrong and changes_suites(planned):
            # The change may mean something else than the base. What its suites find stands beside what the judge found.
            task = dataclasses.replace(time_all(task), by_own=True)
            refused = dict.fromkeys(planned.performance, Reason("logic_changed"))
        elif rest := self._tasks.find_rest(planned, task, refused):
            task = rest
        else:
            return None
        apart = SuiteChange() if task.process else (yield from self._compare_suites(planned, task))

        def relay(message: Message) -> None:
            if isinstance(message, Prepared | Finished):
                # That it does the base's work is its word alone.
                base = message.case.base and dataclasses.replace(message.case.base, same=None)
                case = dataclasses.replace(message.case, self_reported=refused[message.case.case], base=base)
                message = dataclasses.replace(message, case=case)
            if isinstance(message, OpDone) and task.remaining:
                late, change = first.late or message.late, message.change or first.change
                if not (message.change or late or task.process) and changes_suites(planned):
                    facts = {"what": "suites", "error": "OpDone", "message": "without a comparison"}
                    change = SuiteChange((Reason("weaker_unknown", facts),))
                seconds = (first.measure_s or 0.0) + (message.measure_s or 0.0)
                message = dataclasses.replace(first, late=late, measure_s=seconds, change=change)
            if isinstance(message, OpDone) and message.change:
                weaker = (*message.change.weaker, *(name for name in apart.weaker if name not in message.change.weaker))
                message = dataclasses.replace(message, change=dataclasses.replace(message.change, weaker=weaker))
            if isinstance(message, AccuracyCase) and not why:
                gathered.note_base_suite()
            hear(message)

        return (yield from self._look_together(task, gathered, relay))

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


def _may_be_tried_again(failure: Reason) -> bool:
    """Whether another arrangement of processes may do what one failed to do."""
    return failure.kind not in {LATE, *BROKE_RULES} and not ends_run(failure)


def _list_rest(task: Measure, gathered: Gathered) -> tuple[Suite, ...]:
    """The suites that a second worker of an op has left to do."""
    return tuple(suite for suite in task.suites if suite is Suite.PERFORMANCE or not gathered.has_accuracy)
