"""Runs workers and keeps the run's record, on disk after each op. However it ends, what they sent is kept."""

import contextlib
import dataclasses
import math
import os
import secrets
import shutil
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from perfci import git, store
from perfci.core import VERSION, deadline, environment
from perfci.core.deadline import Timetable
from perfci.core.model import (
    UNTIMED,
    AccuracyCase,
    Device,
    Environment,
    Limits,
    Need,
    OpRun,
    Plan,
    PlannedOp,
    Reason,
    Run,
    Suite,
    SuiteChange,
    because,
)
from perfci.core.settings import Settings
from perfci.core.stopping import Stopped
from perfci.core.wording import say
from perfci.ops.discover import ops
from perfci.ops.identity import DuelPlan
from perfci.runs.base import BaseTree, choose_rules
from perfci.runs.bench import (
    Bench,
    Listener,
    WorkerPlace,
    list_files,
    make_environment,
    move_path,
    place_ops,
    plan_opening,
    warm_up,
)
from perfci.runs.effective_thresholds import of_run
from perfci.runs.histories import add_accepted
from perfci.runs.merge import join_limits
from perfci.runs.pace import LATER, Pace, Stopwatch
from perfci.runs.plan import Request, cases_to_run, draw_seed
from perfci.store import launches
from perfci.worker.gather import Gathered
from perfci.worker.inbox import LATE
from perfci.worker.pair import PairSide, run_pair
from perfci.worker.parent import Working, side_by_side, working
from perfci.worker.process import Running, WorkerEnvironment
from perfci.worker.protocol import (
    DONE,
    Doing,
    Finished,
    HostLost,
    LockAsked,
    Measured,
    Message,
    OpDone,
    Prepared,
    Ready,
    Refused,
)
from perfci.worker.tasks import (
    BASE,
    NOTHING_PLANTED,
    BaseFiles,
    CompileAhead,
    Host,
    Measure,
    OpFiles,
    Place,
    Plant,
    Serve,
)

ENDS_RUN = frozenset({"device_gone", "device_taken"})  # failures that every later op would share

SPLIT = frozenset({"cuda", "cpu", "fake"})  # devices whose calls can be handed to another process

AFTER_S = 1.0  # seconds after head's end that its base is ended


class Recorder:
    """Runs workers and keeps the run's record."""

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
        self._bench, self._settings, self._request = bench, bench.settings, request
        self._run, self._tree, self._plant = run, tree, plant
        # A re-measurement goes on with the clock of its run.
        self._began = time.monotonic() - (run.wall_s or 0.0)
        self._files = {each.op: each for each in list_files(ops(bench.settings))}
        self._base_files = {each.op: each for each in (list_files(tree.ops) if tree else ())}
        self._rules = choose_rules(run.plan.base, tree, bench.settings)
        self._limits = of_run(run, self._rules).limits
        self._end = next((op.failure for op in run.ops if op.failure and op.failure.kind in ENDS_RUN), None)
        took = {op.op: op.wall_s for op in run.ops if op.wall_s is not None}
        # Where nothing is timed, as many ops at once as there are cores.
        lanes = count_cores() if run.plan.device == "cpu" else 1
        self._times = dataclasses.replace(times or Timetable({}), took=took, lanes=lanes)
        self._pace, self._later_s = Pace({}), dict[str, float]()  # seconds that each later look may take
        self._ahead_s = dict[tuple[str, str], float]()  # (op, case) -> seconds that it took to compile ahead
        self.idle = True  # whether no worker was begun: asking again brings nothing
        warm_up(bench, run.plan.device)

    def record(self, cases: tuple[str, ...] | None = None) -> Run:
        """Every planned op once, but for those proven unchanged and those out of time. cases: None for all planned."""
        plan = self._run.plan
        with self._note_stops():
            waiting = {}
            for op in plan.ops:
                # An op that is not sound, or that its files prove unchanged, stands in the run and has no worker.
                if op.failure or (plan.skip_unchanged and op.base and op.base.same and not op.audit):
                    self._keep(OpRun(op.op, failure=op.failure))
                else:
                    waiting[op.op] = op
            queue = self._times.order([*waiting], self._left_s())
            counts = {name: cases_to_run(plan, waiting[name]) for name in queue}
            self._pace = Pace(counts, {name: op.accuracy for name, op in waiting.items()})
            if queue and not self._end and plan.device == "cuda":
                self._compile_ahead([self._first_task(waiting[name], cases) for name in queue])
            side_by_side([self._look_in_turn(queue, waiting, cases) for _ in range(self._times.lanes)])
        return self._run

    def _compile_ahead(self, first: Sequence[Measure]) -> None:
        """Compile what cases launch into the caches of their workers: on all cores, and before anything is measured."""
        tasks: list[tuple[Measure, BaseTree | None]] = [(task, None) for task in first]
        if self._tree and not self._tree.base.python:
            tasks += [(self._base_task(task), self._tree) for task in first if task.base]
        # In two parts at least, so that the op that takes longest does not keep all others waiting.
        board, parts = self._run.environment.device, max(count_cores() // len(tasks), 2)
        waiting = [(task, tree, index) for index in range(parts) for task, tree in tasks]
        ends = None if (left_s := self._left_s()) is None else time.time() + left_s / 2

        def compile_parts() -> Iterator[Sequence[Running]]:
            while waiting and (ends is None or time.time() < ends):
                task, tree, index = waiting.pop(0)
                # What it prints is not kept, and why it fails is found out by the op's own process.
                log = self._bench.folder / "ahead.log"
                around = dataclasses.replace(self._around(task, tree), until_s=ends, log=log)
                ahead = CompileAhead(
                    place=task.place, board=board, part=(index, parts),
                    suites=task.suites, pattern=task.pattern, cases=task.cases,
                )  # fmt: skip

                def hear(message: Message, op: str = task.op, own: bool = tree is None) -> None:
                    if isinstance(message, Prepared) and own and message.case.compile_s:
                        self._ahead_s[op, message.case.case] = message.case.compile_s

                yield from working(ahead, around, hear)

        op = say("{count:op|ops}", count=len(first)) if first[1:] else first[0].op
        self._bench.listener(Doing("static", op))
        with self._bench.timing("compile"):
            side_by_side([compile_parts() for _ in range(min(count_cores(), len(waiting)))])

    def _look_in_turn(
        self, queue: list[str], waiting: Mapping[str, PlannedOp], cases: tuple[str, ...] | None
    ) -> Iterator[Sequence[Running]]:
        while queue:
            yield from self._look_first(waiting[queue.pop(0)], queue, cases)

    def record_again(self, needs: Sequence[Need]) -> Run:
        """The needed cases in fresh processes, op by op. Those for which there is no time are marked so."""
        with self._note_stops():
            looks = {}
            for op in dict.fromkeys(need.op for need in needs):
                wanted = [need for need in needs if need.op == op]
                known = next(each for each in self._run.ops if each.op == op).performance
                for process in range(1, 1 + max(need.processes for need in wanted)):
                    done = {case.case for case in known for block in case.blocks if block.process == process}
                    done |= {case.case for case in known for block in case.host if block.process == process}
                    cases = tuple(need.case for need in wanted if need.processes >= process and need.case not in done)
                    if cases:
                        name = _name_look(op, process)
                        looks[name] = op, process, cases
                        self._later_s[name] = self._times.later(op, len(cases) / max(len(known), 1))
            self._pace = Pace({name: len(cases) for name, (*_, cases) in looks.items()}, later=True)
            for op, process, cases in looks.values():
                if not self._end:
                    side_by_side([self._look_again(op, process, cases)])
        return self._run

    def _look_first(
        self, planned: PlannedOp, others: Sequence[str], cases: tuple[str, ...] | None
    ) -> Iterator[Sequence[Running]]:
        """The op's first process, unless the run has ended or there is no time left for it."""
        start = OpRun(planned.op, failure=self._end)
        if self._end:
            self._pace.end(planned.op)
            self._keep(start)
        elif (left_s := self._left_s()) is not None and left_s <= 0.0:
            # Written with the others: many that are not reached cost no time that there is not.
            self._pace.end(planned.op)
            self._put(dataclasses.replace(start, late=self._late("op_not_reached", op=planned.op)))
        else:
            yield from self._work(start, self._until(self._first_task(planned, cases), others))

    def _look_again(self, op: str, process: int, cases: tuple[str, ...]) -> Iterator[Sequence[Running]]:
        """One fresh process, unless it could not be done in time: half of one would show nothing."""
        start = next(known for known in self._run.ops if known.op == op)
        left_s = self._left_s()
        if left_s is None or left_s >= self._times.later(op, len(cases) / max(len(start.performance), 1)):
            task = self._task(op, process, cases)
            limits = {case: each.compile_s for case, each in task.limits.items() if each.compile_s is not None}
            took = {each.case: each.compile_s or 0.0 for each in start.performance}
            if any(took.get(case, 0.0) > limits.get(case, math.inf) for case in cases):  # a first call compiles again
                shutil.rmtree(self._around(task).environment["TRITON_CACHE_DIR"], ignore_errors=True)
            yield from self._work(start, self._until(task, ()))
        else:
            self._pace.end(_name_look(op, process))
            late = self._late("looks_late")
            marked = (
                dataclasses.replace(case, late=case.late or late) if case.case in cases else case
                for case in start.performance
            )
            self._put(dataclasses.replace(start, performance=tuple(marked)))

    # --- time ---------------------------------------------------------------------------------------------------------

    def _left_s(self) -> float | None:
        """Seconds until workers are to end by themselves. None without a time limit."""
        limit = self._request.deadline
        return None if limit is None else deadline.ends(limit) - deadline.wind_down(limit) - time.time()

    def _show_position(self) -> None:
        """Tell the listener how far the run is."""
        times = self._times
        known = times.expected if times.known or times.took else lambda _: None
        self._bench.listener(self._pace.find_position(self._later_s.get if self._pace.later else known))

    def _late(self, kind: str, **facts: str) -> Reason:
        assert self._request.deadline is not None
        return Reason(kind, {**facts, **deadline.facts(self._request.deadline)})

    def _until(self, task: Measure, others: Sequence[str]) -> Measure:
        """The task with the time that it may take while others wait."""
        left_s = self._left_s()
        if left_s is None:
            return task
        allowed_s = left_s if task.process else self._times.allowed(task.op, others, left_s)
        return dataclasses.replace(task, until_s=time.time() + allowed_s)

    @contextmanager
    def _note_stops(self) -> Iterator[None]:
        """The run is saved at the end with what time did not reach, and with the signal that ended it."""
        try:
            yield
        except Stopped as stop:
            self._run = dataclasses.replace(self._run, stopped=stop.signal_name)
            raise
        finally:
            store.write_run(self._run, self._settings.reports)

    def _planned(self, op: str) -> PlannedOp:
        return next(known for known in self._run.plan.ops if known.op == op)

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _task(self, op: str, process: int = 0, cases: tuple[str, ...] | None = None) -> Measure:
        run_plan, settings = self._run.plan, self._settings
        planned = self._planned(op)
        base = self._base_of(planned)
        # Drawn anew, so that no op finds it in the plan, or in what was saved of the processes before.
        seed = run_plan.seed if run_plan.seed_given else draw_seed()
        # One timer a run: once an op was timed, the others take the same one, or fail if they cannot.
        timer = self._run.environment.timer or self._request.timer
        return Measure(
            place=place_ops(settings, (self._files[op],), self._bench.home),
            opening=plan_opening(settings, run_plan.device, seed, timer, process),
            suites=run_plan.suites,
            pattern=run_plan.filter,
            cases=cases,
            budget_s=run_plan.budget_s,
            run_started=self._began,
            base=base,
            cache=planned.base.cache if base and planned.base and base.judges else None,
            ceilings=self._run.limits,
            limits={case: self._limits.for_case(op, case) for case in planned.performance},
            plant=self._plant,
            peers=run_plan.peers and not process,
        )

    def _first_task(self, planned: PlannedOp, cases: tuple[str, ...] | None) -> Measure:
        """The task of an op's first process. cases: None for all that are planned."""
        unchanged = self._run.plan.skip_unchanged and planned.base is not None and planned.base.same
        chosen = planned.audit if unchanged else planned.performance if self._run.plan.again else None
        task = self._task(planned.op, cases=chosen if cases is None else cases)
        return dataclasses.replace(task, suites=(Suite.PERFORMANCE,)) if unchanged else task

    def _base_task(self, task: Measure) -> Measure:
        """The same task on the base's files."""
        assert task.base is not None
        base, here = task.base, task.place
        place = Place((OpFiles(task.op, base.folder),), base.shared_folder, base.root, here.head_root or here.root)
        return dataclasses.replace(task, place=place)

    def _base_of(self, op: PlannedOp) -> BaseFiles | None:
        """What a worker needs of the base. Nothing if the op cannot be compared with it, or nothing of it is used."""
        run_plan, base, files = self._run.plan, op.base, self._base_files.get(op.op)
        if self._tree is None or base is None or files is None:
            return None
        # Suites are compared although the kernels cannot be called alike.
        compares = not base.same and self._tree.base.suites and not base.unjudged
        judges = compares and not base.failure
        if base.failure and not (compares and base.failure.kind == "base_signature"):
            return None
        if run_plan.device in UNTIMED and not compares:
            return None
        return BaseFiles(
            folder=files.folder,
            shared_folder=str(self._tree.settings.kernels),
            root=str(self._tree.settings.root),
            plan=DuelPlan(
                () if base.failure else tuple(case for case in op.performance if case in base.performance),
                run_plan.duel,
                op.audit,
                run_plan.skip_unchanged,
                self._tree.base.python is None,
            ),
            differs=not base.same,
            compares=compares,
            judges=judges,
        )

    # --- workers ------------------------------------------------------------------------------------------------------

    def _work(self, start: OpRun, task: Measure) -> Iterator[Sequence[Running]]:
        """One worker, or a pair. Whatever was sent is kept, however it ends."""
        gathered = Gathered(start, self._run.environment.device.uuid if task.process else None)
        self.idle = False
        failure: Reason | None = None
        began, watch = time.monotonic(), Stopwatch()  # the clock of the day may go back
        name = _name_look(start.op, task.process)
        self._pace.begin(name)
        self._show_position()

        def hear(message: Message) -> None:
            if isinstance(message, Prepared | Finished) and not task.process and message.case.compile_s is not None:
                compile_s = message.case.compile_s + self._ahead_s.get((start.op, message.case.case), 0.0)
                message = dataclasses.replace(message, case=dataclasses.replace(message.case, compile_s=compile_s))
            gathered.hear(message)
            watch.hear(message)
            if self._pace.hear(name, message):
                self._show_position()
            # Later looks may be on another board of the host. The run's environment is the first one's.
            if isinstance(message, Ready) and not task.process:
                # An op that is not timed does not change what is known of the timer.
                timer = message.timer or self._run.environment.timer
                found = describe_environment(self._settings, message.device, timer)
                self._run = dataclasses.replace(self._run, environment=found)
            if isinstance(message, LockAsked) and message.displaced:
                gathered.note(message.displaced)
            if isinstance(message, Measured):
                folder, block = self._settings.reports, message.block
                launches.append_launches(folder, start.op, message.case, task.process, block.index, message.launches_us)
            self._bench.listener(message)

        try:
            failure = yield from self._measure(task, gathered, hear)
            if failure and gathered.met_peers and not ends_run(failure) and failure.kind != LATE:
                # Once more without peers: whoever was to blame, the kernel is judged by what it does alone.
                self._start_afresh(gathered, task)
                gathered.note(because("peers_given_up", failure, op=start.op))
                rest = _rest(task, gathered)
                failure = yield from self._measure(dataclasses.replace(task, suites=rest, peers=False), gathered, hear)
        finally:
            self._end = failure if failure and ends_run(failure) else self._end
            found = add_accepted(self._as_found(gathered, failure, task), self._run, self._rules)
            spent, took_s = found.spent_s, time.monotonic() - began
            if task.process:
                spent = {**spent, LATER: round(spent.get(LATER, 0.0) + took_s, 3)}
            else:
                spent = watch.stop()
                self._times = self._times.noting(start.op, took_s)
                seed = None if self._run.plan.seed_given else task.seed
                found = dataclasses.replace(found, wall_s=round(took_s, 3), seed=seed)
            self._pace.end(name)
            found = dataclasses.replace(found, spent_s=spent)
            self._keep(found, gathered.limits)
        self._show_position()
        self._bench.listener(Doing(DONE, start.op))

    def _start_afresh(self, gathered: Gathered, task: Measure) -> None:
        cases = task.cases if task.remaining else None
        gathered.forget_times(cases)
        launches.drop_launches(self._settings.reports, task.op, task.process, cases)

    def _measure(self, task: Measure, gathered: Gathered, hear: Listener) -> Working:
        """A process with the base's suites, and one for the op's own code. What they cannot time comes after."""
        planned = self._planned(task.op)
        if not self._can_judge_apart(planned, task):
            return (yield from self._measure_together(task, gathered, hear))
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

        judge, around = self._judge_task(task), self._around(task, self._tree)
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
            task = dataclasses.replace(task, suites=_rest(task, gathered))
            refused = dict.fromkeys(planned.performance, why)
        elif wrong and _changes_suites(planned):
            # The change may mean something else than the base: both suites are needed beside each other to tell.
            gathered.forget_all()
            refused = dict.fromkeys(planned.performance, Reason("logic_changed"))
        elif rest := self._rest_of_own(planned, task, refused):
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
                weaker = (*message.change.weaker, *(each for each in apart.weaker if each not in message.change.weaker))
                message = dataclasses.replace(message, change=dataclasses.replace(message.change, weaker=weaker))
            if isinstance(message, AccuracyCase) and task.remaining:
                gathered.note_base_suite()
            hear(message)

        return (yield from self._measure_together(task, gathered, relay))

    def _compare_suites(self, planned: PlannedOp, task: Measure) -> Generator[Sequence[Running], None, SuiteChange]:
        """What head's suites ask less of, by a process that has the base's kernel in the place of head's.

        Nothing if they need more than the base's kernel has. The op's own process compares them as well.
        """
        assert self._tree is not None
        assert task.base is not None
        op, base, tree, found = planned.op, task.base, self._tree.settings.root, [SuiteChange()]
        files = [f"{op}_{part}.py" for part in ("accuracy", "baseline", "performance")]
        if planned.base is None or not {Path(each).name for each in planned.base.changed}.intersection(files):
            return found[0]
        root = self._bench.folder / "suites" / op
        shutil.rmtree(root, ignore_errors=True)  # of an attempt before
        shutil.copytree(tree, root, symlinks=True, copy_function=os.link)
        folder = move_path(Path(base.folder), tree, root)
        for name in files:
            (folder / name).unlink(missing_ok=True)  # a link to the base's file
            shutil.copyfile(task.folder / name, folder / name)
        shared, head_root = move_path(Path(base.shared_folder), tree, root), task.place.head_root or task.place.root
        compare = dataclasses.replace(
            task,
            place=Place((OpFiles(op, str(folder)),), str(shared), str(root), head_root),
            opening=dataclasses.replace(task.opening, lock=False),
            suites=(),
            remaining=True,
            peers=False,
        )

        def hear(message: Message) -> None:
            if isinstance(message, OpDone) and message.change:
                found.append(message.change)

        place = WorkerPlace(f"{op}-suites", self._run.plan.device, root, until_s=task.until_s)
        yield from working(compare, make_environment(self._bench, place), hear)
        return found[-1]

    def _rest_of_own(self, planned: PlannedOp, task: Measure, refused: dict[str, Reason]) -> Measure | None:
        """The task of what only the op's own process can do: its own suites, and cases that the judge's left out."""
        assert planned.base is not None
        new = [case for case in planned.performance if case not in planned.base.performance]
        refused |= dict.fromkeys(new, Reason("case_is_new"))
        stored = planned.stored and Suite.ACCURACY in task.suites
        checks = not task.process and (_changes_suites(planned) or stored)
        cases = tuple(case for case in refused if task.cases is None or case in task.cases)
        if not checks and not (cases and Suite.PERFORMANCE in task.suites):
            return None
        assert task.base is not None
        plan = dataclasses.replace(task.base.plan, cases=tuple(case for case in task.base.plan.cases if case in cases))
        base = dataclasses.replace(task.base, plan=plan)
        return dataclasses.replace(
            task, suites=task.suites if checks else (Suite.PERFORMANCE,), cases=cases, base=base, remaining=True
        )

    def _can_judge_apart(self, planned: PlannedOp, task: Measure) -> bool:
        """Whether the base's suites can judge the op's kernel from another process."""
        tree, device, here = self._tree, self._run.plan.device, self._run.environment
        if tree and tree.base.python:
            # Another Triton's binaries can be launched from the base's process, but not another torch.
            same = tree.base.commit == here.commit and tree.base.packages.get("torch") == here.packages.get("torch")
            if not same or device != "cuda":
                return False
        return bool(task.base and task.base.judges and tree and not planned.renamed and device in SPLIT)

    def _judge_task(self, task: Measure) -> Measure:
        """The task of the process that has the base's suites, and nothing of the op under test but answers."""
        assert task.base is not None
        base = task.base

        def host(task: Measure, around: WorkerEnvironment, arm: str) -> Host:
            return Host(
                Serve(place=task.place, opening=dataclasses.replace(task.opening, lock=False, seed=0, arm=arm)),
                around.environment,
                str(around.folder),
                str(around.log),
                around.limit_s,
                around.python,
                str(around.shown_from or around.folder),
                tuple(map(str, around.writable)),
            )

        judge = self._base_task(task)
        return dataclasses.replace(
            judge,
            cases=base.plan.cases
            if task.cases is None
            else tuple(each for each in task.cases if each in base.plan.cases),
            host=host(task, self._around(task), task.opening.arm),
            base_host=host(judge, self._around(task, self._tree), BASE),
        )

    def _measure_together(self, task: Measure, gathered: Gathered, hear: Listener) -> Working:
        """One process for both revisions. One each if they are known to need it, or show that they do."""
        op = task.op
        known = self._planned(op).base
        if task.base and known and known.apart and self._run.plan.device not in UNTIMED:
            return self._pair(task, hear)
        failure = yield from working(task, self._around(task), hear)
        late = failure is not None and failure.kind == LATE
        why = gathered.apart(failure) if task.base and task.base.plan.cases and not late else None
        if why is None:
            return failure
        # Later processes of this op are pairs from the start.
        ops = tuple(
            dataclasses.replace(each, base=dataclasses.replace(each.base, apart=why))
            if each.op == op and each.base
            else each
            for each in self._run.plan.ops
        )
        self._run = dataclasses.replace(self._run, plan=dataclasses.replace(self._run.plan, ops=ops))
        self._start_afresh(gathered, task)
        return self._pair(dataclasses.replace(task, suites=_rest(task, gathered)), hear)

    def _as_found(self, gathered: Gathered, failure: Reason | None, task: Measure) -> OpRun:
        """The op's record, with what lacks evidence if its time was up."""
        late = gathered.late or (failure is not None and failure.kind == LATE)
        if not late or task.until_s is None:
            return gathered.op_run(failure)
        op = task.op
        found = gathered.op_run(None, self._late("looks_late" if task.process else "case_late"), task.cases)
        if task.process:
            short = [case.case for case in found.performance if case.late and case.case in (task.cases or ())]
            launches.drop_launches(self._settings.reports, op, task.process, short)
            return found
        return dataclasses.replace(found, late=self._late("checks_late" if gathered.checking else "op_late", op=op))

    def _pair(self, task: Measure, hear: Listener) -> Reason | None:
        """A worker for each revision, taking turns."""
        assert self._tree is not None
        assert task.base is not None
        base = task.base
        planned = self._planned(task.op)
        # Head's process has the base's suites too. It does not call the base's kernel.
        judged, cache = base if base.compares else None, task.cache or planned.cache
        peers, by_round = task.peers and bool(planned.peers), self._run.plan.device in SPLIT
        head = dataclasses.replace(task, base=judged, cache=cache, peers=peers, by_round=by_round)
        other = dataclasses.replace(
            self._base_task(dataclasses.replace(head, base=base)),
            base=None,
            suites=(Suite.PERFORMANCE,),
            # Its own suite does not know a case by the name of now.
            cases=tuple(
                case
                for case in base.plan.cases
                if (task.cases is None or case in task.cases) and case not in planned.renamed
            ),
            opening=dataclasses.replace(head.opening, arm=BASE, lock=False),
            peers=False,
            plant=NOTHING_PLANTED,
        )
        duels = dataclasses.replace(base.plan, cases=other.cases or ())
        sides = PairSide(head, self._around(task)), PairSide(other, self._around(task, self._tree))
        return run_pair(*sides, duels, hear)

    def _around(self, task: Measure, base: BaseTree | None = None) -> WorkerEnvironment:
        """The surroundings of an op's worker, or of the base's in a pair."""
        limit, plan, until_s = self._request.deadline, self._run.plan, None
        if limit is not None and task.until_s is not None:
            # A worker that does not end is ended. Its base follows a moment later, or it would be to blame.
            until_s = task.until_s + deadline.wind_down(limit) + (AFTER_S if base else 0.0)
        place = WorkerPlace(
            f"{task.op}-base" if base else task.op,
            plan.device,
            base.settings.root if base else None,
            base.base.python if base else None,
            task.process,
            plan.devices,
            until_s,
        )
        return make_environment(self._bench, place)

    # --- the record ---------------------------------------------------------------------------------------------------

    def _keep(self, op: OpRun, limits: Limits | None = None) -> None:
        """Put an op into the record, on disk too."""
        self._put(op, limits)
        store.write_run(self._run, self._settings.reports)

    def _put(self, op: OpRun, limits: Limits | None = None) -> None:
        others = [known for known in self._run.ops if known.op != op.op]
        self._run = dataclasses.replace(
            self._run,
            ops=tuple(sorted([*others, op], key=lambda known: known.op)),
            limits=join_limits([self._run.limits, limits or Limits()]),
            wall_s=round(time.monotonic() - self._began, 3),
        )


def _changes_suites(planned: PlannedOp) -> bool:
    """Whether an op differs from its base in more than its kernel and the kernel's tuned files."""
    kernel = {f"{planned.op}_triton.py", "tuned"}
    changed = planned.base.changed if planned.base else ()
    return any(kernel.isdisjoint({Path(file).name, Path(file).parent.name}) for file in changed)


def _name_look(op: str, process: int) -> str:
    """The name by which the run's pace knows a process of an op: the first one's is the op's."""
    return f"{op}/{process}" if process else op


def count_cores() -> int:
    """How many of this machine's cores the process may use at a time."""
    known = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # a container's share, by the second version of cgroups
        share, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        known = min(known, max(int(share) // int(period), 1))
    return known


def ends_run(failure: Reason) -> bool:
    """Whether every later op would fail alike. A worker that hangs before it has opened the device is not the last."""
    return failure.kind in ENDS_RUN or (failure.kind == "worker_hung" and failure.facts.get("where") == "start")


def _rest(task: Measure, gathered: Gathered) -> tuple[Suite, ...]:
    """The suites that a second worker of an op has left to do."""
    return tuple(suite for suite in task.suites if suite is Suite.PERFORMANCE or not gathered.has_accuracy)


def new_run(settings: Settings, plan: Plan, device: Device, command: str) -> Run:
    """A run in which nothing was measured yet, with an id of its own."""
    now = datetime.now(UTC)
    return Run(
        id=f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        created=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        perfci=VERSION,
        command=command,
        environment=describe_environment(settings, device, None),
        plan=plan,
    )


def describe_environment(settings: Settings, device: Device, timer: str | None) -> Environment:
    """Returns the environment of a run of this project at its commit. There is no commit if git cannot find one."""
    here = git.read(settings.root)
    if isinstance(here, Reason):
        return environment.describe(device, timer)
    return environment.describe(device, timer, commit=here.commit, branch=here.branch, dirty=here.dirty)
