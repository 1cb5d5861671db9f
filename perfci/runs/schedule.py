"""Runs a run's workers: in which order, how many at once, and as far as time goes."""

import dataclasses
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perfci.core import deadline, extensions
from perfci.core.cores import count_cores
from perfci.core.deadline import Timetable
from perfci.core.model import AccuracyCase, Device, Measured, Need, OpRun, PlannedOp, Reason, Run, Suite
from perfci.core.stages import OF_BASE
from perfci.measure.stored import find_checks
from perfci.ops.backends import BACKENDS, backend_of, find_kernel
from perfci.runs.base import BaseTree
from perfci.runs.bench import Bench, warm_up
from perfci.runs.looks import Gathered, Looks
from perfci.runs.plan import Request, cases_to_run
from perfci.runs.record import ENDS_RUN, Record, ends_run
from perfci.runs.rules import choose_rules
from perfci.runs.tasks import Tasks
from perfci.worker.answers import LATE
from perfci.worker.process import Running, side_by_side
from perfci.worker.protocol import (
    DONE,
    Doing,
    Finished,
    Holding,
    LockAsked,
    Message,
    OpDone,
    Position,
    Prepared,
    Ready,
    Timing,
)
from perfci.worker.tasks import NOTHING_PLANTED, Measure, Plant


class Precompiler:
    """Compiles nothing. One of an extension compiles beside the looks."""

    def __init__(self, bench: Bench, tasks: Tasks, board: Device) -> None:
        self._bench, self._tasks, self._board = bench, tasks, board
        self.seconds = dict[tuple[str, str], float]()  # (op, case) -> seconds of a core that it took to compile

    def begin(
        self, tasks: Sequence[Measure], ends: float | None, at_once: Collection[str], *, with_base: bool
    ) -> list[Iterator[Sequence[Running]]]:
        """Returns lanes that compile what first looks will launch, in their order, to go side by side with the looks.

        ends: when lanes end, seconds since the epoch. at_once: ops whose looks do not wait. with_base: what bases
        launch too.
        """
        return []

    def find_compiled(self, ops: Sequence[str]) -> str | None:
        """Returns the first of these ops that is compiled. None if there is none yet."""
        return next(iter(ops), None)

    def wait(self, ops: Sequence[str]) -> Generator[Sequence[Running], None, str]:
        """Returns the first of these ops that is compiled, when there is one. Only this wait counts as compiling."""
        yield from ()
        return ops[0]

    def drop(self, *ops: str) -> None:
        """Compile no more of these ops: a process of theirs does so itself, or has ended, or none will begin."""

    def stand_still(self, *, still: bool) -> None:
        """Compile nothing until it may go on."""


_Later = tuple[str, int, tuple[str, ...]]
"""A later look: op, process, cases."""

LOOKERS = 2  # looks at a time on a device: as one prepares its cases, the next one imports
START, LATER, PREPARE, WAIT = "start", "later", "prepare", "wait"
STEPS = {"suites": "accuracy", "accuracy": "accuracy", PREPARE: PREPARE, "peers": PREPARE, "measure": "measure"}
"""What a worker says it is doing -> the step that its seconds belong to. All else is starting, importing and ending."""


class Stopwatch:
    """Where the seconds of one op's workers go, by the stages that they report. Those without the device are no op's.

    A second worker of an op may wait for the look at another one.
    """

    def __init__(self) -> None:
        self.step, self._spent_s = START, Counter[str]()
        self._since = time.monotonic()  # the clock of the day may go back

    def hear(self, message: Message) -> None:
        """Take one message: it ends the step before, if it begins another one."""
        if isinstance(message, Doing | OpDone | LockAsked | Holding):
            stage = message.stage.removesuffix(OF_BASE) if isinstance(message, Doing) else START
            now = time.monotonic()
            self._spent_s[self.step] += now - self._since  # type: ignore[assignment]
            self.step, self._since = WAIT if isinstance(message, LockAsked) else STEPS.get(stage, START), now

    def stop(self) -> Mapping[str, float]:
        """Returns the seconds of each step so far."""
        self.hear(OpDone())
        return {step: round(seconds, 3) for step, seconds in self._spent_s.items() if step != WAIT}


@dataclass
class Pace:
    """How far a run is with its ops, or with later looks, which may be under way several at once."""

    cases: Mapping[str, int]  # those of each op, or of each later look
    accuracy: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # op -> accuracy cases among them
    later: bool = False
    _began: dict[str, float] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _seen: dict[str, set[tuple[Suite, str]]] = field(default_factory=dict)  # finished cases
    _checked: dict[str, str] = field(default_factory=dict)  # accuracy case that more checks of may come

    def begin(self, name: str) -> None:
        """Note that an op is begun."""
        self._began[name], self._seen[name] = time.monotonic(), set()

    def end(self, name: str) -> None:
        """Note that an op has ended, whether it was begun or left out."""
        self._done.add(name)

    def hear(self, name: str, message: Message) -> bool:
        """Take one message of an op's workers. Returns whether one more case is done."""
        seen, checked = self._seen[name], self._checked.get(name)
        before = len(seen)
        if isinstance(message, AccuracyCase) and message.case in self.accuracy.get(name, ()):
            self._checked[name] = message.case
        if checked and (self._checked[name] != checked or (isinstance(message, Doing) and message.stage != "accuracy")):
            seen.add((Suite.ACCURACY, checked))
        if isinstance(message, Finished):
            seen.add((Suite.PERFORMANCE, message.case.case))
        return len(seen) > before

    def find_position(self, expected: Callable[[str], float | None]) -> Position:
        """Returns where the run is now. expected: seconds of an op as a whole, None if nothing is known yet."""
        took = {name: time.monotonic() - at for name, at in self._began.items() if name not in self._done}
        finished = {name: min(len(self._seen[name]), self.cases[name]) for name in took}
        cases, whole = sum(finished.values()), sum(self.cases[name] for name in self._done)
        # The first op of a project: as long a case as its cases so far.
        a_case = sum(took.values()) / cases if cases else None
        left = []
        for name, count in self.cases.items():
            seconds = expected(name) or (a_case and count * a_case)
            if name not in self._done:
                left.append(None if seconds is None else max(seconds - took.get(name, 0.0), 0.0))
        estimates = [seconds for seconds in left if seconds is not None]
        # As many at once as now.
        left_s = (
            max(max(estimates, default=0.0), sum(estimates) / max(len(took), 1))
            if len(estimates) == len(left)
            else None
        )
        number = len(self._done), len(took), len(self.cases)
        return Position(*number, whole + cases, sum(self.cases.values()), left_s, self.later)


class Recorder:
    """Records what workers measure of a run's ops."""

    def __init__(
        self,
        bench: Bench,
        request: Request,
        run: Run,
        tree: BaseTree | None,
        plant: Plant = NOTHING_PLANTED,
        times: Timetable | None = None,
    ) -> None:
        """`times`: what the ops' first looks may take, if that is known."""
        self._bench, self._request, self._tree = bench, request, tree
        self._rules = choose_rules(run.plan.base, tree.settings if tree else None, bench.settings)
        self._record = Record(run, bench.settings)
        self._tasks = Tasks(bench, request, self._record, tree, self._rules, plant)
        self._looks = Looks(self._tasks, self._record)
        self._end = next((op.failure for op in run.ops if op.failure and op.failure.kind in ENDS_RUN), None)
        took = {op.op: op.wall_s for op in run.ops if op.wall_s is not None}
        # Where nothing is timed, as many ops at once as there are cores.
        lanes = count_cores() if run.plan.device == "cpu" else 1
        self._times = dataclasses.replace(times or Timetable({}), took=took, lanes=lanes)
        self._pace, self._later_s = Pace({}), dict[str, float]()  # seconds that each later look may take
        precompiler = next(extensions.provided("precompile"), Precompiler)
        self._precompiler = precompiler(bench, self._tasks, run.environment.device)
        self.idle = True  # whether no worker was begun: asking again brings nothing
        self._has_device: str | None = None  # the look that is under way, until its last message
        self._is_preparing = False  # so that nothing is timed now
        self._next: str | None = None  # the look that has begun to import, and has the device next
        self._watches = dict[str, Stopwatch]()  # of each look, since it was its turn
        self._under_way = set[str]()  # ops with a look that has not been recorded
        warm_up(bench, run.plan.device)

    def record(self, cases: tuple[str, ...] | None = None) -> Run:
        """Every planned op once, but for those proven unchanged and those out of time. cases: None for all planned."""
        plan = self._record.run.plan
        with self._record.note_stops():
            waiting = {}
            for op in plan.ops:
                # An op that is not sound, or that its files prove unchanged, stands in the run and has no worker.
                if op.failure or (plan.skip_unchanged and op.base and op.base.same and not op.audit):
                    self._record.keep(OpRun(op.op, failure=op.failure))
                else:
                    waiting[op.op] = op
            queue = self._times.order([*waiting], self._left_s())
            counts = {name: cases_to_run(plan, waiting[name]) for name in queue}
            self._pace = Pace(counts, {name: op.accuracy for name, op in waiting.items()})
            lanes = self._precompile(queue, waiting, cases) if plan.device == "cuda" and not self._end else []
            lookers = self._times.lanes if plan.device == "cpu" else LOOKERS
            looking = [self._look_in_turn(queue, waiting, cases) for _ in range(lookers)]
            side_by_side([*looking, *lanes])
        return self._record.run

    def _precompile(
        self, queue: list[str], waiting: Mapping[str, PlannedOp], cases: tuple[str, ...] | None
    ) -> list[Iterator[Sequence[Running]]]:
        """Lanes that compile what ops of the queue launch. The op that is looked at first comes to its head."""
        tasks = {name: self._tasks.measure_first(waiting[name], cases) for name in queue}
        # Triton's first, as other compilers need a process that imports. The shortest first: the device waits little.
        queue.sort(key=lambda name: (not _uses_triton(tasks[name]), self._times.expected(name)))
        at_once = [name for name in queue if Suite.ACCURACY in tasks[name].suites][:1]  # meanwhile cores are free
        queue.sort(key=lambda name: name not in at_once)
        ends = None if (left_s := self._left_s()) is None else time.time() + left_s / 2
        with_base = self._tree is not None and not self._tree.base.python
        return self._precompiler.begin([tasks[name] for name in queue], ends, at_once, with_base=with_base)

    def _look_in_turn(
        self, queue: list[str], waiting: Mapping[str, PlannedOp], cases: tuple[str, ...] | None
    ) -> Iterator[Sequence[Running]]:
        while queue:
            if not self._may_begin(queue):
                yield ()
                continue
            if self._has_device and not self._is_shared:
                op = self._precompiler.find_compiled(queue)
                if op is None:
                    yield ()
                    continue
            else:
                self._has_device = queue[0]  # while it is waited for, no other begins
                op = yield from self._precompiler.wait(queue)
                self._has_device = None
            queue.remove(op)
            yield from self._take_turn(op, self._look_first(waiting[op], queue, cases))
            self._precompiler.drop(op, *(queue if self._end else ()))

    @property
    def _is_shared(self) -> bool:
        """Whether looks share the device, on which nothing is timed."""
        return self._record.run.plan.device == "cpu"

    def _may_begin(self, left: Collection[str]) -> bool:
        """Whether another look may begin. Beside one that prepares it may import, if time for those left is ample."""
        if self._next or self._is_shared or not self._has_device:
            return not self._next
        return self._is_preparing and self._times.is_ample([*left, self._has_device], self._left_s())

    def _take_turn(self, name: str, look: Iterator[Sequence[Running]]) -> Iterator[Sequence[Running]]:
        """Go on with a look once no other has the device. Until then its process imports, and is not heard."""
        self._watches[name] = Stopwatch()
        if self._has_device and not self._is_shared:
            self._next = name
            next(look, None)
            while self._has_device:
                yield ()
            self._next, self._watches[name] = None, Stopwatch()
        self._has_device, self._is_preparing = name, False
        self._pace.begin(name)
        self._show_position()
        yield from look
        self._leave_device(name)

    def _leave_device(self, look: str) -> None:
        """The next look may go on: meanwhile the processes of this one end."""
        if self._has_device == look:
            self._has_device = None

    def record_again(self, needs: Sequence[Need]) -> Run:
        """The needed cases in fresh processes, op by op. Those for which there is no time are marked so."""
        with self._record.note_stops():
            looks = {}
            for op in dict.fromkeys(need.op for need in needs):
                wanted = [need for need in needs if need.op == op]
                measured = self._record.measured(op).performance
                for process in range(1, 1 + max(need.processes for need in wanted)):
                    done = {case.case for case in measured for block in case.blocks if block.process == process}
                    done |= {case.case for case in measured for block in case.host if block.process == process}
                    cases = tuple(need.case for need in wanted if need.processes >= process and need.case not in done)
                    if cases:
                        name = _name_look(op, process)
                        looks[name] = op, process, cases
                        self._later_s[name] = self._times.later(op, len(cases) / max(len(measured), 1))
            self._pace = Pace({name: len(cases) for name, (*_, cases) in looks.items()}, later=True)
            queue = [*looks.items()]
            side_by_side([self._look_again_in_turn(queue) for _ in range(LOOKERS)])
        return self._record.run

    def _look_again_in_turn(self, queue: list[tuple[str, _Later]]) -> Iterator[Sequence[Running]]:
        while queue and not self._end:
            name, (op, process, cases) = queue[0]
            if not self._may_begin([op]) or op in self._under_way:  # its record is that of the look before
                yield ()
                continue
            queue.pop(0)
            yield from self._take_turn(name, self._look_again(op, process, cases))

    def _look_first(
        self, planned: PlannedOp, others: Sequence[str], cases: tuple[str, ...] | None
    ) -> Iterator[Sequence[Running]]:
        """The op's first process, unless the run has ended or there is no time left for it."""
        start = OpRun(planned.op, failure=self._end)
        if self._end:
            self._pace.end(planned.op)
            self._record.keep(start)
        elif (left_s := self._left_s()) is not None and left_s <= 0.0:
            # Written with the others: many that are not reached cost no time that there is not.
            self._pace.end(planned.op)
            self._record.put(dataclasses.replace(start, late=self._late("op_not_reached", op=planned.op)))
        else:
            yield from self._work(start, self._until(self._tasks.measure_first(planned, cases), others))

    def _look_again(self, op: str, process: int, cases: tuple[str, ...]) -> Iterator[Sequence[Running]]:
        """One fresh process, unless it could not be done in time: half of one would show nothing."""
        start = self._record.measured(op)
        left_s = self._left_s()
        if left_s is None or left_s >= self._times.later(op, len(cases) / max(len(start.performance), 1)):
            task = self._tasks.measure(op, process, cases)
            limits = {case: limit.compile_s for case, limit in task.limits.items() if limit.compile_s is not None}
            took = {measured.case: measured.compile_s or 0.0 for measured in start.performance}
            if any(took.get(case, 0.0) > limits.get(case, math.inf) for case in cases):  # a first call compiles again
                shutil.rmtree(self._tasks.around(task).environment["TRITON_CACHE_DIR"], ignore_errors=True)
            yield from self._work(start, self._until(task, ()))
        else:
            self._pace.end(_name_look(op, process))
            late = self._late("looks_late")
            marked = (
                dataclasses.replace(case, late=case.late or late) if case.case in cases else case
                for case in start.performance
            )
            self._record.put(dataclasses.replace(start, performance=tuple(marked)))

    def _work(self, start: OpRun, task: Measure) -> Iterator[Sequence[Running]]:
        """One look. Whatever was sent is kept, however it ends."""
        record, name = self._record, _name_look(start.op, task.process)
        gathered = Gathered(start, record.run.environment.device.uuid if task.process else None)
        self.idle = False
        self._under_way.add(start.op)
        failure: Reason | None = None

        def hear(message: Message) -> None:
            watch = self._watches[name]
            if isinstance(message, Prepared | Finished) and not task.process and message.case.compile_s is not None:
                compile_s = message.case.compile_s + self._precompiler.seconds.get((start.op, message.case.case), 0.0)
                message = dataclasses.replace(message, case=dataclasses.replace(message.case, compile_s=compile_s))
            gathered.hear(message)
            watch.hear(message)
            if isinstance(message, OpDone):
                self._leave_device(name)
            if self._has_device == name:
                self._is_preparing = watch.step == PREPARE
            self._precompiler.stand_still(still=watch.step == "measure")
            if isinstance(message, Doing) and message.stage == "prepare":
                self._precompiler.drop(start.op)
            if self._pace.hear(name, message):
                self._show_position()
            # Later looks may be on another board of the host. The run's environment is the first one's.
            if isinstance(message, Ready) and not task.process:
                record.note_device(message.device)
            if isinstance(message, Timing) and not task.process:
                record.note_device(timer=message.timer)
            if isinstance(message, LockAsked) and message.displaced:
                gathered.note(message.displaced)
            if isinstance(message, Measured):
                record.keep_launches(task, message)
            self._bench.listener(message)

        try:
            failure = yield from self._looks.look(task, gathered, hear)
        finally:
            self._precompiler.stand_still(still=False)
            self._end = failure if failure and ends_run(failure) else self._end
            op = self._sum_up(gathered, failure, task)
            accepted = find_checks().add_history(op, record.run, self._rules) if op.stored else op
            watch = self._watches.pop(name)
            spent, of_look = accepted.spent_s, watch.stop()
            took_s = sum(of_look.values())
            if task.process:
                spent = {**spent, LATER: round(spent.get(LATER, 0.0) + took_s, 3)}
            else:
                spent = of_look
                self._times = self._times.noting(start.op, took_s)
                seed = None if record.run.plan.seed_given else task.seed
                accepted = dataclasses.replace(accepted, wall_s=round(took_s, 3), seed=seed)
            self._pace.end(name)
            is_judged = self._tree is not None and self._tree.base.suites
            ceilings = gathered.ceilings if is_judged else gathered.limits
            record.keep(dataclasses.replace(accepted, spent_s=spent), gathered.limits, ceilings)
            self._under_way.discard(start.op)
        self._show_position()
        self._bench.listener(Doing(DONE, start.op))

    def _sum_up(self, gathered: Gathered, failure: Reason | None, task: Measure) -> OpRun:
        """The op's record, with what lacks evidence if its time was up."""
        # A worker's word that its time was up is taken if it was.
        cut = gathered.late and task.until_s is not None and time.time() >= task.until_s
        if not (cut or (failure is not None and failure.kind == LATE)) or task.until_s is None:
            return gathered.op_run(failure)
        op = gathered.op_run(None, self._late("looks_late" if task.process else "case_late"), task.cases)
        if task.process:
            short = [case.case for case in op.performance if case.late and case.case in (task.cases or ())]
            self._record.drop_launches(task, short)
            return op
        return dataclasses.replace(op, late=self._late("checks_late" if gathered.checking else "op_late", op=task.op))

    # --- time ---------------------------------------------------------------------------------------------------------

    def _left_s(self) -> float | None:
        """Seconds until workers are to end by themselves. None without a time limit."""
        limit = self._request.deadline
        return None if limit is None else deadline.ends(limit) - deadline.wind_down(limit) - time.time()

    def _until(self, task: Measure, others: Sequence[str]) -> Measure:
        """The task with the time that it may take while others wait."""
        left_s = self._left_s()
        if left_s is None:
            return task
        allowed_s = left_s if task.process else self._times.allowed(task.op, others, left_s)
        return dataclasses.replace(task, until_s=time.time() + allowed_s)

    def _late(self, kind: str, **facts: str) -> Reason:
        assert self._request.deadline is not None
        return Reason(kind, {**facts, **deadline.facts(self._request.deadline)})

    def _show_position(self) -> None:
        """Report to the listener how far the run is."""
        times = self._times
        expected = times.expected if times.known or times.took else lambda _: None
        self._bench.listener(self._pace.find_position(self._later_s.get if self._pace.later else expected))


def _name_look(op: str, process: int) -> str:
    """The name by which the run's pace knows a process of an op: the first one's is the op's."""
    return f"{op}/{process}" if process else op


def _uses_triton(task: Measure) -> bool:
    (files,) = task.place.ops
    return BACKENDS[backend_of(find_kernel(files.name, files.folder))].uses_triton
