"""The flow from a request to verdicts. perfci check and its relatives call it."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence

from perfci import store
from perfci.core import environment
from perfci.core.errors import DeviceError, PerfciError, UsageError
from perfci.core.model import UNTIMED, Device, DuelWhat, Judgements, Need, Plan, Reason, Run, Suite
from perfci.core.settings import Settings
from perfci.ops.discover import ops, select
from perfci.runs import base as base_stage
from perfci.runs import doctor
from perfci.runs.base import BaseTree
from perfci.runs.bench import LOGS, Bench, Listener, Place, both, claimed, opened, surroundings
from perfci.runs.decide import decide
from perfci.runs.describe import boards, describe_ops, describing
from perfci.runs.effective_thresholds import alpha_of, ended, refuse_looser
from perfci.runs.plan import Request, expected_s, make_plan
from perfci.runs.record import NOTHING_PLANTED, Plant, Recorder
from perfci.runs.rounds import new_run, settled
from perfci.runs.selftest import (
    TRIALS,
    CaseNoise,
    SelfTest,
    Trial,
    asked,
    itself,
    noise_table,
    reports_of,
    timed_first,
    trial,
)
from perfci.runs.static import COMPILERS, compile_ops
from perfci.store import launches
from perfci.worker.parent import run_worker
from perfci.worker.protocol import Examined, Message, Ready

OFFLINE = Device("offline", "no device", "offline")
"""Where kernels are compiled without one."""


def describe(settings: Settings, request: Request, listener: Listener) -> tuple[Plan, Device]:
    """Discover the ops, import them once, and fix the plan; no base is looked for."""
    with opened(settings, listener) as bench:
        found = describe_ops(bench, request)
    return make_plan(request, found.ops, found.device.kind, devices=found.devices), found.device


def measure(settings: Settings, request: Request, command: str, listener: Listener) -> Run:
    """Verify and measure every planned op, each in a worker of its own; the run is saved after each.

    Raises Stopped, with the run saved, if a signal arrived.
    """
    with claimed(settings, listener) as bench:
        return _measured(bench, request, command, base_stage.find(bench, request), NOTHING_PLANTED)


def check(settings: Settings, request: Request, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """The whole flow up to the verdicts: measure, decide, fetch what the judge lacks, decide again.

    Where there is no accelerator the kernels are compiled without one too, so that they get a verdict of their own.
    """
    with claimed(settings, listener) as bench:
        tree = base_stage.find(bench, request)
        run, judgements = _checked(bench, request, command, tree, NOTHING_PLANTED)
        if run.plan.device == "cpu" and Suite.PERFORMANCE in request.suites:
            run = _with_static(bench, request, run, tree)
            judgements = decide(run, settings, judged_by=_rules(run, tree, settings))
    return run, judgements


def static(settings: Settings, request: Request, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """Compile every performance case without a device, hold it against the base, and judge; a run without blocks."""
    with claimed(settings, listener) as bench:
        tree = base_stage.find(bench, request)
        found, planned = compile_ops(bench, request, _found(tree))
        plan = make_plan(request, planned, OFFLINE.kind, base_stage.against(tree, ops(settings), request))
        run = dataclasses.replace(new_run(settings, plan, OFFLINE, command), static=found)
        refuse_looser(plan, _rules(run, tree, settings), run.environment, run.created)
        store.write_run(run, settings.reports)
        return run, decide(run, settings, judged_by=_rules(run, tree, settings))


def selftest(settings: Settings, request: Request, command: str, listener: Listener) -> SelfTest:
    """Try perfci on the project's own ops: against themselves, with a planted slow-down, with a planted error.

    Raises DeviceError where nothing can be timed.
    """
    with claimed(reports_of(settings, "unchanged"), listener) as bench:
        if describe_ops(bench, request).device.kind in UNTIMED:
            raise DeviceError("selftest_not_timed")
    names = [op.op for op in select(settings, request.ops)]
    trials: list[Trial] = []
    table: tuple[CaseNoise, ...] = ()
    device = ""
    for name in TRIALS:
        wanted, plant = asked(name, request, names)
        own = reports_of(settings, name)
        with claimed(own, listener) as bench:
            tree = itself(bench) if wanted.duel is DuelWhat.ALL else None
            run, judgements = _checked(bench, wanted, command, tree, plant)
        trials.append(trial(name, judgements))
        if name == "unchanged":
            table, device = noise_table(run, judgements, settings), run.environment.device.name
            names = timed_first(names, judgements)
    return SelfTest(tuple(trials), table, device)


def _checked(
    bench: Bench, request: Request, command: str, tree: BaseTree | Reason | None, plant: Plant
) -> tuple[Run, Judgements]:
    """Measure and decide, until the judge needs no more."""
    run = _measured(bench, request, command, tree, plant)
    return settled(bench, request, run, _found(tree), plant)


def _rules(run: Run, tree: BaseTree | Reason | None, settings: Settings) -> Settings:
    return base_stage.rules(run.plan.base, _found(tree), settings)


def _found(tree: BaseTree | Reason | None) -> BaseTree | None:
    return tree if isinstance(tree, BaseTree) else None


def _with_static(bench: Bench, request: Request, run: Run, tree: BaseTree | Reason | None) -> Run:
    """The run with what its ops compile to; nothing where Triton is not installed, or where perfci does not know it."""
    unknown = any(note.kind == "triton_unknown" for op in run.ops for note in op.notes)
    if unknown or not environment.installed(COMPILERS[:2]):
        return run
    found, _ = compile_ops(bench, request, _found(tree))
    run = dataclasses.replace(run, static=found)
    store.write_run(run, bench.settings.reports)
    return run


def remeasure(run: Run, settings: Settings, request: Request, needs: Sequence[Need], listener: Listener) -> Run:
    """Measure cases again in fresh processes; the run with the new blocks, saved."""
    with claimed(settings, listener) as bench:
        tree = base_stage.materialised(bench, run.plan.base) if run.plan.base else None
        if isinstance(tree, Reason):
            raise UsageError(tree.kind, **tree.facts)
        return Recorder(bench, request, run, tree).record_again(needs)


def examine(settings: Settings, kind: str, listener: Listener) -> doctor.Facts:
    """What the doctor looks at: the device is opened and its timer started in a worker."""
    heard: list[Message] = []
    with opened(settings, listener) as bench:
        job = dataclasses.replace(describing(settings, Request(device=kind), ()), task="examine")
        failure = run_worker(job, surroundings(bench, Place("doctor", kind)), both(heard.append, listener))
    seen = next((m for m in heard if isinstance(m, Examined)), None)
    device = next((m.device for m in heard if isinstance(m, Ready)), None)
    state, timer = (seen.state, seen.timer) if seen else (None, None)
    try:
        select(settings, ())
        lacking = None
    except PerfciError as error:
        lacking = error.reason
    return doctor.gather(settings, device, state, timer, failure, thresholds=ended(settings, device), ops=lacking)


def _measured(bench: Bench, request: Request, command: str, tree: BaseTree | Reason | None, plant: Plant) -> Run:
    """Plan and record a run."""
    settings, base = bench.settings, _found(tree)
    shutil.rmtree(settings.reports / LOGS, ignore_errors=True)
    found = describe_ops(bench, request)
    planned = base_stage.planned(bench, base, request, found.ops) if base else found.ops
    against = base_stage.against(tree, ops(settings), request)
    rules = base_stage.rules(against.base, base, settings)
    alpha = alpha_of(rules, request.thresholds)
    plan = make_plan(request, planned, found.device.kind, against, alpha, found.devices)
    plan = dataclasses.replace(plan, boards=boards(bench, request, found))
    run = new_run(settings, plan, found.device, command)
    refuse_looser(plan, rules, run.environment, run.created)
    shared = plan.boards or plan.deadline
    seconds = expected_s(plan, _before(settings, found.device)) if shared else None
    launches.clear_launches(settings.reports)
    return Recorder(bench, request, run, base, plant, seconds).record()


def _before(settings: Settings, device: Device) -> Run | None:
    """The run of this kind of device whose place this one takes: it knows how long each op takes."""
    try:
        last = store.read_run(settings.reports)
    except (PerfciError, OSError):
        return None
    return last if last.environment.device.key == device.key else None
