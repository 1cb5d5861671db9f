"""One look at an op: the worker, or the workers, that it takes, and what is done if one of them cannot do it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field

from perfci.core.model.basics import Fact, Reason, Suite, because, worst
from perfci.core.model.measured import AccuracyCase, Block, Measured, OpRun, PerformanceCase, SuiteChange
from perfci.core.model.place import UNTIMED, Limits
from perfci.core.model.run import PlannedOp
from perfci.core.model.stored import StoredTensor
from perfci.judge.accuracy import BROKE_RULES
from perfci.runs.bench import Listener
from perfci.runs.record import Record, ends_run
from perfci.runs.tasks import Tasks, changes_suites, time_all
from perfci.worker.answers import LATE
from perfci.worker.pair import working_in_turns
from perfci.worker.process import Running, Working, working
from perfci.worker.protocol import Apart, Doing, Finished, HostLost, Message, OpDone, Prepared, Ready, Refused
from perfci.worker.tasks import Measure, WorkerEnvironment


class Gathered:
    """Collects one op's messages, from its first worker and from re-measurements."""

    def __init__(self, start: OpRun, board: str | None = None) -> None:
        """`start`: what is known of the op. `board`: UUID of the run's own. Blocks from another note theirs."""
        self._op, self._start, self._board = start, start, board
        self._again = bool(start.performance)
        self._elsewhere: str | None = None
        self._stage = ""
        self._apart: Reason | None = None
        self._notes: tuple[Reason, ...] = ()
        self._whole: set[str] = set()  # cases that this worker is done with
        self.late = False  # the time was up before all was done
        self.met_peers = False  # whether peers were called
        self.limits = Limits()  # of the device, by its worker
        self.ceilings = Limits()  # of the device, by the judge's process
        self._cases: dict[str, PerformanceCase] = {}
        self._blocks: dict[str, list[Block]] = {}
        self.forget_times()

    def forget_times(self, cases: Collection[str] | None = None) -> None:
        """Go back to what was known of these performance cases, or of all, at the start."""
        before = {case.case: case for case in self._op.performance}
        for name in (*self._cases, *before) if cases is None else cases:
            self._cases.pop(name, None)
            self._blocks.pop(name, None)
            if name in before:
                self._cases[name], self._blocks[name] = before[name], list(before[name].blocks)
            self._whole.discard(name)

    def hear(self, message: Message) -> None:
        """Take one message."""
        match message:
            case AccuracyCase():
                self._op = dataclasses.replace(self._op, accuracy=(*self._op.accuracy, message))
            case StoredTensor():
                self._op = dataclasses.replace(self._op, stored=(*self._op.stored, message))
            case Prepared(case) if not self._again:
                self._cases[case.case] = case
            case Measured(name, block, _):
                self._blocks.setdefault(name, []).append(dataclasses.replace(block, board=self._elsewhere))
            case Ready(device):
                other = self._board is not None and device.uuid != self._board
                self._elsewhere = device.uuid if other else None
            case Doing(stage):
                self._stage = stage
                self.met_peers |= stage == "peers"
            case Apart(reason):
                self._apart = reason
            case Finished(case, short):
                self.late |= short
                self._cases[case.case] = self._merge(case, whole=not short)
                if not short:
                    self._whole.add(case.case)
            case Prepared(case):
                self._cases[case.case] = self._merge(case, whole=False)
            case OpDone():
                self.late |= message.late
                if not self._again:
                    self.limits = message.limits
                    names = ("unmeasured", "notes", "tuned", "verify_s", "measure_s", "change")
                    self._op = dataclasses.replace(self._op, **{name: getattr(message, name) for name in names})

    def note(self, reason: Reason) -> None:
        """Add a note about the op as a whole, once."""
        if reason not in (*self._notes, *self._start.notes):
            self._notes = (*self._notes, reason)

    def note_base_suite(self) -> None:
        """Note that the checks so far are those of the base's suite, and that the op's differs."""
        if not any(check.of_base for check in self._op.accuracy):
            before = tuple(dataclasses.replace(check, of_base=True) for check in self._op.accuracy)
            self._op = dataclasses.replace(self._op, accuracy=before)

    @property
    def begun(self) -> bool:
        """Whether the op's functions were called, so that they may be to blame for how the worker ended."""
        return self._stage not in {"", "start", "import"}

    @property
    def checking(self) -> bool:
        """Whether accuracy is what it was last at: it is not known that all of it is done."""
        return self._stage == "accuracy"

    @property
    def has_accuracy(self) -> bool:
        """Whether the accuracy suite was run."""
        return bool(self._op.accuracy)

    def apart(self, failure: Reason | None) -> Reason | None:
        """Returns why the revisions need a process each, after a worker for both. None if they do not."""
        if failure and self._stage in {"prepare", "measure"}:
            return because("died_together", failure, op=self._op.op)
        reason, self._apart = self._apart, None
        return None if failure else reason

    def op_run(
        self, failure: Reason | None = None, late: Reason | None = None, wanted: Collection[str] | None = None
    ) -> OpRun:
        """Returns the record of the op. late: why the wanted cases, or all, lack what this worker was to bring."""
        cases = []
        for name, case in self._cases.items():
            lacking = late if late and (wanted is None or name in wanted) and name not in self._whole else None
            if lacking and self._again:
                cases.append(dataclasses.replace(case, late=lacking))
            else:
                earlier = None if name in self._whole else case.late
                blocks = tuple(self._blocks.get(name, ()))
                cases.append(dataclasses.replace(case, blocks=blocks, late=lacking or earlier))
        notes = (*self._notes, *self._op.notes)
        return dataclasses.replace(self._op, performance=tuple(cases), failure=failure or self._op.failure, notes=notes)

    def _merge(self, case: PerformanceCase, *, whole: bool) -> PerformanceCase:
        """A re-measurement adds its failures, suspicions, errors, host times and first call: the rest stands."""
        if not self._again:
            return case
        first = self._cases[case.case]
        suspicion = (*first.suspicion, *(reason for reason in case.suspicion if reason not in first.suspicion))
        errors = tuple(stats for stats in (first.errors, case.errors) if stats)
        first = dataclasses.replace(first, suspicion=suspicion, errors=worst(errors) if errors else None)
        if not first.failure:
            first = dataclasses.replace(first, failure=case.failure, raised=case.raised)
        if first.base and not first.base.failure and case.base and case.base.failure:
            first = dataclasses.replace(first, base=dataclasses.replace(first.base, failure=case.base.failure))
        first = dataclasses.replace(first, unhosted=first.unhosted or case.unhosted)
        if whole:
            again_s = () if case.compile_s is None else (case.compile_s,)
            first = dataclasses.replace(
                first,
                sustained=(*first.sustained, *case.sustained),
                host=(*first.host, *case.host),
                compile_again_s=(*first.compile_again_s, *again_s),
                chosen_again=(*first.chosen_again, *([case.chosen] if any(case.chosen) else [])),
            )
        return first


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
            return (yield from working_in_turns(*self._tasks.pair(task), hear))
        failure = yield from working(task, self._tasks.around(task), hear)
        final = failure is not None and not _may_be_tried_again(failure)
        why = gathered.apart(failure) if task.base and task.base.plan.cases and not final else None
        if why is None:
            return failure
        self._record.note_apart(task.op, why)
        self._start_afresh(gathered, task)
        rest = dataclasses.replace(task, suites=_list_rest(task, gathered))
        return (yield from working_in_turns(*self._tasks.pair(rest), hear))

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
