"""Runs workers and keeps the run's record, on disk after each op."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from perfci import environment, store, thresholds
from perfci.errors import Stopped
from perfci.model import Device, Environment, Limits, Need, OpRun, PlannedOp, Reason, Run, Suite
from perfci.pipeline.base import BaseTree, rules
from perfci.pipeline.bench import Bench, Listener, Place, surroundings
from perfci.pipeline.describe import op_files
from perfci.plan import Request
from perfci.settings import Settings
from perfci.store import launches
from perfci.thresholds import CaseThresholds
from perfci.worker.gather import Gathered
from perfci.worker.pair import Rules, Side, run_pair
from perfci.worker.parent import Surroundings, run_worker
from perfci.worker.protocol import BaseFiles, Job, Measured, Message, Ready


@dataclasses.dataclass(frozen=True)
class Plant:
    """What a self-check plants."""

    slowdown: float = 0.0
    """the kernel is made slower by so many times the slow-down that is allowed"""
    spoiled: bool = False
    """the kernel's output is made wrong"""


NOTHING_PLANTED = Plant()

ENDS_RUN = frozenset({"device_gone", "device_taken"})
"""Failures of an op that every later one would share: the run ends with what it has."""


class Recorder:
    """Runs workers and keeps the run's record."""

    def __init__(
        self, bench: Bench, request: Request, run: Run, tree: BaseTree | None, plant: Plant = NOTHING_PLANTED
    ) -> None:
        self._bench = bench
        self._settings = bench.settings
        self._request = request
        self._run = run
        self._tree = tree
        self._plant = plant
        # A re-measurement goes on with the clock of its run.
        self._began = time.time() - (run.wall_s or 0.0)
        self._files = op_files(bench.settings)
        self._base_files = op_files(tree.settings) if tree and tree.settings.kernels.is_dir() else {}
        self._limits = thresholds.load(rules(run.plan.base, tree, bench.settings).thresholds)
        self._end = next((op.failure for op in run.ops if op.failure and op.failure.kind in ENDS_RUN), None)

    def record(self) -> Run:
        """Every planned op once; one that the base proves unchanged is not run."""
        with self._noting_stops():
            for planned in self._run.plan.ops:
                skipped = self._skipped(planned)
                start = OpRun(planned.op, failure=planned.failure or (None if skipped else self._end))
                if start.failure or skipped:
                    self._keep(start)
                else:
                    self._work(start, self._first_job(planned))
        return self._run

    def record_again(self, needs: Sequence[Need]) -> Run:
        """The cases that are needed, in fresh processes that they were not measured in yet, op by op."""
        with self._noting_stops():
            for op in dict.fromkeys(need.op for need in needs):
                mine = [need for need in needs if need.op == op]
                for process in range(1, 1 + max(need.processes for need in mine)):
                    cases = tuple(
                        need.case for need in mine if need.processes >= process and not self._has(need, process)
                    )
                    if cases and not self._end:
                        start = next(known for known in self._run.ops if known.op == op)
                        self._work(start, self._job(op, process, cases))
        return self._run

    def _skipped(self, op: PlannedOp) -> bool:
        """Its files are the base's own: nothing of it needs the device."""
        return bool(self._run.plan.skip_unchanged and op.base and op.base.same and not op.audit)

    def _has(self, need: Need, process: int) -> bool:
        op = next(op for op in self._run.ops if op.op == need.op)
        return any(
            block.process == process for case in op.performance if case.case == need.case for block in case.blocks
        )

    @contextmanager
    def _noting_stops(self) -> Iterator[None]:
        """A signal is noted in the saved run, also one between two workers."""
        try:
            yield
        except Stopped as stop:
            self._run = dataclasses.replace(self._run, stopped=stop.signal_name)
            store.write_run(self._run, self._settings.reports)
            raise

    def _planned(self, op: str) -> PlannedOp:
        return next(known for known in self._run.plan.ops if known.op == op)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def _first_job(self, op: PlannedOp) -> Job:
        unchanged = self._run.plan.skip_unchanged and op.base is not None and op.base.same
        job = self._job(op.op, cases=op.audit if unchanged else None)
        return dataclasses.replace(job, suites=(Suite.PERFORMANCE,)) if unchanged else job

    def _job(self, op: str, process: int = 0, cases: tuple[str, ...] | None = None) -> Job:
        run_plan, settings = self._run.plan, self._settings
        planned = self._planned(op)
        return Job(
            task="measure",
            ops=(self._files[op],),
            shared_folder=str(settings.kernels),
            device=run_plan.device,
            seed=run_plan.seed,
            suites=run_plan.suites,
            pattern=run_plan.filter,
            cases=cases,
            process=process,
            budget_s=run_plan.budget_s,
            run_started=self._began,
            # One timer a run: once an op was timed, the others take the same one or say that they can't.
            timer=self._run.environment.timer or self._request.timer,
            lock_folder=str(settings.lock_folder) if settings.lock_folder else None,
            lock_wait_s=settings.lock_wait_s,
            root=str(settings.root),
            base=self._base_of(planned),
            limits=self._limits_of(planned),
            planted=self._plant.slowdown,
            spoiled=self._plant.spoiled,
            fake=settings.fake,
        )

    def _base_of(self, op: PlannedOp) -> BaseFiles | None:
        """What a worker needs of the base; nothing where the op cannot be held against it, or nothing is timed."""
        run_plan, base = self._run.plan, op.base
        if self._tree is None or base is None or base.failure or run_plan.device == "cpu":
            return None
        if op.op not in self._base_files:
            return None
        return BaseFiles(
            folder=self._base_files[op.op].folder,
            shared_folder=str(self._tree.settings.kernels),
            root=str(self._tree.settings.root),
            cases=tuple(case for case in op.performance if case in base.performance),
            duel=run_plan.duel,
            audit=op.audit,
            skip_unchanged=run_plan.skip_unchanged,
        )

    def _limits_of(self, op: PlannedOp) -> Mapping[str, CaseThresholds]:
        return {case: self._limits.for_case(op.op, case) for case in op.performance}

    # --- workers ------------------------------------------------------------------------------------------------------

    def _work(self, start: OpRun, job: Job) -> None:
        """One worker, or a pair; whatever was said is kept, however it ends."""
        gathered = Gathered(start, self._run.environment.device.uuid if job.process else None)
        failure: Reason | None = None

        def heard(message: Message) -> None:
            gathered.hear(message)
            self._note(message, start.op, job)
            self._bench.listener(message)

        try:
            if job.base and self._apart(start.op):
                failure = self._pair(job, heard)
                return
            failure = run_worker(job, self._around(job), heard)
            if job.base and (why := gathered.apart(failure)):
                failure = None
                self._part(start.op, why)
                gathered.forget_times()
                launches.drop_launches(self._settings.reports, start.op, job.process)
                rest = tuple(suite for suite in job.suites if suite is Suite.PERFORMANCE or not gathered.verified)
                failure = self._pair(dataclasses.replace(job, suites=rest), heard)
        finally:
            self._end = failure if failure and _ends_run(failure) else self._end
            self._keep(gathered.op_run(failure), gathered.limits)

    def _pair(self, job: Job, heard: Listener) -> Reason | None:
        """A worker for each revision, taking turns."""
        assert self._tree is not None
        assert job.base is not None
        base = job.base
        head = dataclasses.replace(job, base=None, turns=True)
        other = dataclasses.replace(
            head,
            ops=(dataclasses.replace(job.ops[0], folder=base.folder),),
            shared_folder=base.shared_folder,
            root=base.root,
            head_root=job.root,
            suites=(Suite.PERFORMANCE,),
            cases=tuple(case for case in base.cases if job.cases is None or case in job.cases),
            arm="base",
            lock=False,
            cache=self._planned(job.ops[0].op).cache,
            planted=0.0,
            spoiled=False,
        )
        python = self._tree.base.python
        rules = Rules(
            cases=other.cases or (),
            duel=base.duel,
            process=job.process,
            limits=job.limits,
            by_identity=python is None,
            audit=base.audit,
            skip_unchanged=base.skip_unchanged,
        )
        place = self._place(job, f"{job.ops[0].op}-base")
        place = dataclasses.replace(place, root=self._tree.settings.root, python=python)
        return run_pair(Side(head, self._around(job)), Side(other, surroundings(self._bench, place)), rules, heard)

    def _around(self, job: Job) -> Surroundings:
        return surroundings(self._bench, self._place(job, job.ops[0].op))

    def _place(self, job: Job, name: str) -> Place:
        run_plan = self._run.plan
        return Place(name, run_plan.device, process=job.process, devices=run_plan.devices)

    # --- the record ---------------------------------------------------------------------------------------------------

    def _apart(self, op: str) -> bool:
        """Whether the revisions have a process each from the start."""
        return any(one.op == op and one.base is not None and one.base.apart is not None for one in self._run.plan.ops)

    def _part(self, op: str, reason: Reason) -> None:
        """Later processes of this op are pairs from the start."""
        ops = tuple(
            dataclasses.replace(one, base=dataclasses.replace(one.base, apart=reason))
            if one.op == op and one.base
            else one
            for one in self._run.plan.ops
        )
        self._run = dataclasses.replace(self._run, plan=dataclasses.replace(self._run.plan, ops=ops))

    def _note(self, message: Message, op: str, job: Job) -> None:
        # Later looks may be on another board of the host; the run's environment is the first one's.
        if isinstance(message, Ready) and not job.process:
            # An op that is not timed says nothing about the timer; what is known of it stays.
            timer = message.timer or self._run.environment.timer
            found = describe_environment(self._settings, message.device, timer)
            self._run = dataclasses.replace(self._run, environment=found)
        if isinstance(message, Measured):
            block = message.block
            launches.append_launches(
                self._settings.reports, op, message.case, job.process, block.index, message.launches_us
            )

    def _keep(self, op: OpRun, limits: Limits | None = None) -> None:
        others = [known for known in self._run.ops if known.op != op.op]
        merged = _merge_limits(self._run.limits, limits or Limits())
        self._run = dataclasses.replace(
            self._run,
            ops=tuple(sorted([*others, op], key=lambda known: known.op)),
            limits=merged,
            wall_s=round(time.time() - self._began, 3),
        )
        store.write_run(self._run, self._settings.reports)


def _ends_run(failure: Reason) -> bool:
    """A worker that hangs before it has opened the device will not be the last one."""
    return failure.kind in ENDS_RUN or (failure.kind == "worker_hung" and failure.facts.get("where") == "start")


def describe_environment(settings: Settings, device: Device, timer: str | None) -> Environment:
    """The environment of a run of this project."""
    return environment.describe(device, timer, settings.root)


def _merge_limits(known: Limits, new: Limits) -> Limits:
    """The bandwidth measured first stands; rates are added by dtype."""
    rates: Mapping[str, float] = {**new.matmul_tflops, **known.matmul_tflops}
    return Limits(known.copy_gbps or new.copy_gbps, rates)
