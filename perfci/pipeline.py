"""The one-way flow: discover, plan, [verify, measure], compare, judge; evidence that the judge lacks is fetched here.

Nothing here prints. What happens meanwhile is told to a `Listener`; what was measured is saved after every op.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import perfci
from perfci import doctor, environment, store, thresholds
from perfci.accept import Acceptance, accept
from perfci.compare import compare
from perfci.discover import OpFolder, check_contract, check_files, ops, select
from perfci.errors import PerfciError, Stopped
from perfci.judge import judge
from perfci.model import Baseline, Device, Environment, Judgements, Limits, Need, OpRun, Plan, PlannedOp, Reason, Run
from perfci.plan import Request, draw_seed, make_plan
from perfci.settings import Settings
from perfci.store import launches
from perfci.worker.gather import Gathered
from perfci.worker.parent import Surroundings, run_worker
from perfci.worker.protocol import Described, Examined, Job, Measured, Message, OpFiles, Ready, Step

Listener = Callable[[Message], None]

LOGS = "logs"
"""Folder in reports/ with what workers printed."""


@dataclass(frozen=True)
class Found:
    """What the describing worker found."""

    device: Device
    ops: tuple[PlannedOp, ...]


@dataclass(frozen=True)
class Bench:
    """Where a run's workers run."""

    settings: Settings
    cache: Path
    """the run's own folder of compiled kernels"""
    listener: Listener


def describe(settings: Settings, request: Request, listener: Listener) -> tuple[Plan, Device]:
    """Discover the ops, import them once, and fix the plan."""
    folders = select(ops(settings), request.ops)
    broken = {op.op: reason for op in folders if (reason := contract_violation(op))}
    sound = [op for op in folders if op.op not in broken]
    with tempfile.TemporaryDirectory(prefix="perfci-") as cache:
        found = _described(Bench(settings, Path(cache), listener), request, sound)
    failed = [PlannedOp(op, failure=reason) for op, reason in broken.items()]
    planned = sorted([*found.ops, *failed], key=lambda op: op.op)
    return make_plan(request, planned, found.device.kind), found.device


def contract_violation(op: OpFolder) -> Reason | None:
    """The first thing that is wrong with an op's files, without importing them."""
    missing = check_files(op)
    return missing or next(iter(check_contract(op)), None)


def measure(settings: Settings, request: Request, command: str, listener: Listener) -> Run:
    """Verify and measure every planned op, each in a worker of its own; the run is saved after each.

    Raises Stopped, with the run saved, if a signal arrived.
    """
    plan, device = describe(settings, request, listener)
    run = Run(
        id=f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        perfci=perfci.__version__,
        command=command,
        environment=_environment(settings, device, None),
        plan=plan,
    )
    launches.clear_launches(settings.reports)
    shutil.rmtree(settings.reports / LOGS, ignore_errors=True)
    return _Recorder(settings, request, run, listener).record()


def decide(run: Run, settings: Settings, against: Path | None = None) -> Judgements:
    """Hold a run against stored baselines and thresholds; pure but for reading them.

    `against` is a folder of baselines, or another run (its file, or its folder); None takes the project's baselines.
    """
    limits = thresholds.load(settings.thresholds, _known_ops(settings))
    return judge(run, compare(run, _baselines(run, settings, against), limits), limits)


def accept_runs(
    runs: Sequence[Run], settings: Settings, names: Sequence[str], *, add: bool, dirty: bool
) -> list[Acceptance]:
    """Make baselines of runs and store them, op by op; what is refused is said in each answer."""
    evidence = [(run, decide(run, settings)) for run in runs]
    measured = dict.fromkeys(op.op for run in runs for op in run.ops)
    answers = []
    for op in names or measured:
        path = store.baseline_path(settings.baselines, runs[0].environment.device.key, op)
        existing = store.read_baseline(path) if path.exists() else None
        answer = accept(op, evidence, existing, add=add, dirty=dirty)
        if answer.baseline:
            store.write_baseline(answer.baseline, settings.baselines)
        answers.append(answer)
    return answers


def examine(settings: Settings, kind: str, listener: Listener) -> doctor.Facts:
    """What the doctor looks at: the device is opened and its timer started in a worker."""
    heard: list[Message] = []
    with tempfile.TemporaryDirectory(prefix="perfci-") as cache:
        bench = Bench(settings, Path(cache), listener)
        job = _describing(settings, Request(device=kind), ())
        job = dataclasses.replace(job, task="examine")
        failure = run_worker(job, _surroundings(bench, kind, "doctor"), _both(heard.append, listener))
    seen = next((m for m in heard if isinstance(m, Examined)), None)
    device = next((m.device for m in heard if isinstance(m, Ready)), None)
    return doctor.gather(settings, device, seen.state if seen else None, seen.timer if seen else None, failure)


def check(settings: Settings, request: Request, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """The whole flow up to the verdicts: measure, decide, fetch what the judge lacks, decide again."""
    run = measure(settings, request, command, listener)
    judgements = decide(run, settings)
    if judgements.needs:
        run = remeasure(run, settings, request, judgements.needs, listener)
        judgements = decide(run, settings)
    return run, judgements


def remeasure(run: Run, settings: Settings, request: Request, needs: Sequence[Need], listener: Listener) -> Run:
    """Measure cases again in fresh processes; the run with the new blocks, saved."""
    return _Recorder(settings, request, run, listener).record_again(needs)


class _Recorder:
    """Runs workers and keeps the run's record, on disk after each op."""

    def __init__(self, settings: Settings, request: Request, run: Run, listener: Listener) -> None:
        self._settings = settings
        self._request = request
        self._run = run
        self._listener = listener
        # A re-measurement goes on with the clock of its run.
        self._began = time.time() - (run.wall_s or 0.0)
        self._files = {op.op: OpFiles(op.op, str(op.folder)) for op in ops(settings)}

    def record(self) -> Run:
        """Every planned op once."""
        with self._bench() as bench:
            for planned in self._run.plan.ops:
                start = OpRun(planned.op, failure=planned.failure)
                if planned.failure is None:
                    self._work(bench, start, self._job(planned.op))
                else:
                    self._keep(start)
        return self._run

    def record_again(self, needs: Sequence[Need]) -> Run:
        """The cases that are needed, in fresh processes, op by op."""
        with self._bench() as bench:
            for op in dict.fromkeys(need.op for need in needs):
                mine = [need for need in needs if need.op == op]
                for process in range(1, 1 + max(need.processes for need in mine)):
                    cases = tuple(need.case for need in mine if need.processes >= process)
                    start = next(known for known in self._run.ops if known.op == op)
                    self._work(bench, start, self._job(op, process, cases))
        return self._run

    @contextmanager
    def _bench(self) -> Iterator[Bench]:
        """A bench with a cache of its own; a signal is noted in the saved run, also one between two workers."""
        try:
            with tempfile.TemporaryDirectory(prefix="perfci-") as cache:
                yield Bench(self._settings, Path(cache), self._listener)
        except Stopped as stop:
            self._run = dataclasses.replace(self._run, stopped=stop.signal_name)
            store.write_run(self._run, self._settings.reports)
            raise

    def _job(self, op: str, process: int = 0, cases: tuple[str, ...] | None = None) -> Job:
        plan, settings = self._run.plan, self._settings
        return Job(
            task="measure",
            ops=(self._files[op],),
            shared_folder=str(settings.kernels),
            device=plan.device,
            seed=plan.seed,
            suites=plan.suites,
            pattern=plan.filter,
            cases=cases,
            process=process,
            budget_s=plan.budget_s,
            run_started=self._began,
            # One timer a run: once an op was timed, the others take the same one or say that they can't.
            timer=self._run.environment.timer or self._request.timer,
            lock_folder=str(settings.lock_folder) if settings.lock_folder else None,
            fake=settings.fake,
        )

    def _work(self, bench: Bench, start: OpRun, job: Job) -> None:
        """One worker; whatever it said is kept, however it ends."""
        gathered = Gathered(start)

        def heard(message: Message) -> None:
            gathered.hear(message)
            self._note(message, start.op, job)
            self._listener(message)

        failure = None
        try:
            failure = run_worker(job, _surroundings(bench, self._run.plan.device, start.op), heard)
        finally:
            self._keep(gathered.op_run(failure), gathered.limits)

    def _note(self, message: Message, op: str, job: Job) -> None:
        if isinstance(message, Ready):
            # An op that is not timed says nothing about the timer; what is known of it stays.
            timer = message.timer or self._run.environment.timer
            found = _environment(self._settings, message.device, timer)
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


def _known_ops(settings: Settings) -> list[str] | None:
    return [op.op for op in ops(settings)] if settings.kernels.is_dir() else None


def _baselines(run: Run, settings: Settings, against: Path | None) -> Mapping[str, Baseline]:
    folder = against or settings.baselines
    if folder.is_file() or (folder / store.RUN_FILE).is_file():
        return _as_baselines(store.read_run(folder), settings)
    return store.read_baselines(folder, run.environment.device.key)


def _as_baselines(other: Run, settings: Settings) -> Mapping[str, Baseline]:
    """Another run in the place of the stored baselines; its refused cases are left out."""
    limits = thresholds.load(settings.thresholds, _known_ops(settings))
    evidence = [(other, judge(other, compare(other, {}, limits), limits))]
    answers = [accept(op.op, evidence, dirty=True) for op in other.ops]
    return {answer.op: answer.baseline for answer in answers if answer.baseline}


def _described(bench: Bench, request: Request, sound: Sequence[OpFolder]) -> Found:
    """Import all sound ops in one worker; one that kills it is named, and the rest are imported by another."""
    device: Device | None = None
    planned: list[PlannedOp] = []
    waiting = list(sound)
    while waiting or device is None:
        heard: list[Message] = []
        job = _describing(bench.settings, request, waiting)
        failure = run_worker(job, _surroundings(bench, request.device, "describe"), _both(heard.append, bench.listener))
        device = next((m.device for m in heard if isinstance(m, Ready)), device)
        planned += [m.planned for m in heard if isinstance(m, Described)]
        if device is None:
            raise _as_error(failure)
        if failure is not None:
            last = next((m.op for m in reversed(heard) if isinstance(m, Step)), waiting[0].op)
            planned.append(PlannedOp(last, failure=failure))
        done = {op.op for op in planned}
        waiting = [op for op in waiting if op.op not in done]
    return Found(device, tuple(planned))


def _describing(settings: Settings, request: Request, waiting: Sequence[OpFolder]) -> Job:
    return Job(
        task="describe",
        ops=tuple(OpFiles(op.op, str(op.folder)) for op in waiting),
        shared_folder=str(settings.kernels),
        device=request.device,
        seed=request.seed or draw_seed(),
        suites=request.suites,
        pattern=request.pattern,
        fake=settings.fake,
    )


def _as_error(failure: Reason | None) -> PerfciError:
    reason = failure or Reason("worker_silent")
    return PerfciError(reason.kind, **reason.facts)


def _surroundings(bench: Bench, device: str, name: str) -> Surroundings:
    settings = bench.settings
    variables = environment.worker_environment(os.environ, settings.environment, device == "cpu", bench.cache)
    return Surroundings(variables, settings.root, settings.reports / LOGS / f"{name}.log", settings.time_limit_s)


def _environment(settings: Settings, device: Device, timer: str | None) -> Environment:
    return environment.describe(device, timer, settings.root)


def _merge_limits(known: Limits, new: Limits) -> Limits:
    """The bandwidth measured first stands; rates are added by dtype."""
    rates: Mapping[str, float] = {**new.matmul_tflops, **known.matmul_tflops}
    return Limits(known.copy_gbps or new.copy_gbps, rates)


def _both(first: Listener, second: Listener) -> Listener:
    def heard(message: Message) -> None:
        first(message)
        second(message)

    return heard
