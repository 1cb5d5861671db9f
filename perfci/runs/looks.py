"""One look at an op: the worker, or the workers, that it takes, and what is done if one of them cannot do it."""

import dataclasses
from collections.abc import Generator, Sequence

from perfci.core.model import UNTIMED, AccuracyCase, PlannedOp, Reason, Suite, SuiteChange, because
from perfci.runs.bench import Listener
from perfci.runs.record import Record, ends_run
from perfci.runs.tasks import Tasks, changes_suites
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
        if failure and gathered.met_peers and not ends_run(failure) and failure.kind != LATE:
            self._start_afresh(gathered, task)
            gathered.note(because("peers_given_up", failure, op=task.op))
            alone = dataclasses.replace(task, suites=_list_rest(task, gathered), peers=False)
            failure = yield from self._look(alone, gathered, hear)
        return failure

    def _look(self, task: Measure, gathered: Gathered, hear: Listener) -> Working:
        """A process with the base's suites, and one for the op's code. What they cannot time comes after."""
        planned = self._record.planned(task.op)
        if not self._tasks.can_judge_apart(planned, task):
            return (yield from self._look_together(task, gathered, hear))
        refused: dict[str, Reason] = {}
        first, blameless, wrong = OpDone(), True, False

        def listen(message: Message) -> None:
            nonlocal first, blameless, wrong
            if isinstance(message, Refused):
                refused[message.case] = message.reason
            else:
                first = message if isinstance(message, OpDone) else first
                blameless &= not isinstance(message, HostLost)
                wrong |= isinstance(message, AccuracyCase) and message.failure is not None
                hear(message)

        judge, around = self._tasks.judge(task)
        failure = yield from working(judge, around, listen)
        if failure:
            if not (blameless and gathered.begun and failure.kind != LATE and not ends_run(failure)):
                return failure
            # If the base alone does not end the process, the change did.
            alone = dataclasses.replace(judge, host=None, base=None, peers=False)
            if (yield from working(alone, around, lambda _: None)) is None:
                return because("judge_ended", failure, op=planned.op)
        if why := failure or gathered.apart(None):
            self._start_afresh(gathered, task)
            task = dataclasses.replace(task, suites=_list_rest(task, gathered))
            refused = dict.fromkeys(planned.performance, why)
        elif wrong and changes_suites(planned):
            # The change may mean something else than the base: both suites are needed beside each other to tell.
            gathered.forget_all()
            refused = dict.fromkeys(planned.performance, Reason("logic_changed"))
        elif rest := self._tasks.find_rest(planned, task, refused):
            task = rest
        else:
            return None
        apart = SuiteChange() if task.process else (yield from self._compare_suites(planned, task))

        def relay(message: Message) -> None:
            if isinstance(message, Prepared | Finished):
                case = dataclasses.replace(message.case, self_reported=refused[message.case.case])
                message = dataclasses.replace(message, case=case)
            if isinstance(message, OpDone) and task.remaining:
                late, change = first.late or message.late, message.change or first.change
                seconds = (first.measure_s or 0.0) + (message.measure_s or 0.0)
                message = dataclasses.replace(first, late=late, measure_s=seconds, change=change)
            if isinstance(message, OpDone) and message.change:
                weaker = (*message.change.weaker, *(name for name in apart.weaker if name not in message.change.weaker))
                message = dataclasses.replace(message, change=dataclasses.replace(message.change, weaker=weaker))
            if isinstance(message, AccuracyCase) and task.remaining:
                gathered.note_base_suite()
            hear(message)

        return (yield from self._look_together(task, gathered, relay))

    def _compare_suites(self, planned: PlannedOp, task: Measure) -> Generator[Sequence[Running], None, SuiteChange]:
        """What head's suites ask less of, by a process that has the base's kernel in the place of head's.

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
        late = failure is not None and failure.kind == LATE
        why = gathered.apart(failure) if task.base and task.base.plan.cases and not late else None
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


def _list_rest(task: Measure, gathered: Gathered) -> tuple[Suite, ...]:
    """The suites that a second worker of an op has left to do."""
    return tuple(suite for suite in task.suites if suite is Suite.PERFORMANCE or not gathered.has_accuracy)
