"""The flow of a check: find the base, describe the ops, plan, record, judge, and record more until the judge is sure.

Prints nothing: a `Listener` hears what happens. What was measured is saved after each op. Each step has its module.
"""

import contextlib
import dataclasses
import math
import shutil
from collections.abc import Callable

from perfci import store
from perfci.core import environment
from perfci.core.deadline import Timetable
from perfci.core.errors import PerfciError
from perfci.core.model import Coverage, Device, Judgement, Judgements, Need, Plan, Run, Suite
from perfci.core.settings import Settings
from perfci.ops.discover import select
from perfci.runs import base as base_stage
from perfci.runs.base import BaseTree, FoundBase
from perfci.runs.bench import LOGS, Bench, Listener, claim_bench, open_bench, warm_up
from perfci.runs.boards import avoid_sick, find_sick
from perfci.runs.coverage import cover_ops
from perfci.runs.decide import decide
from perfci.runs.describe import describe_ops
from perfci.runs.effective_thresholds import alpha_of, refuse_looser
from perfci.runs.plan import Request, estimate_seconds, make_plan
from perfci.runs.record import NOTHING_PLANTED, Plant, Recorder, new_run
from perfci.runs.static import COMPILERS, compile_ops
from perfci.store import launches

OFFLINE = Device("offline", "no device", "offline")  # the device of kernels that are compiled without one
ROUNDS = 4  # how often the judge may ask for more at most: a duel asks twice, a screen once

SHORT = frozenset({"too_slow_suspected", "bandwidth_suspected", "compile_suspected"})  # of a target, by one look


def check(settings: Settings, request: Request, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """Measure the ops that were asked for, and judge them. Without an accelerator kernels are still compiled."""
    with claim_bench(settings, listener) as bench:
        warm_up(bench, request.device)  # it imports while git is asked
        with bench.timing("base"):
            base = base_stage.find(bench, request)
        run, judgements = check_against(bench, request, command, base)
        known = not any(note.kind == "triton_unknown" for op in run.ops for note in op.notes)
        if run.plan.device == "cpu" and Suite.PERFORMANCE in request.suites:
            if known and environment.installed_versions(COMPILERS[:2]):
                with bench.timing("compile"):
                    compiled = compile_ops(bench, request, base.tree)[0]
                run = dataclasses.replace(run, static=compiled, spent_s=bench.spent_s)
                store.write_run(run, settings.reports)
            base_stage.hold_rules(bench, settings, base.rules)
            judgements = decide(run, settings, judged_by=base.rules)
    return run, judgements


def cover(settings: Settings, names: tuple[str, ...], listener: Listener) -> tuple[Coverage, ...]:
    """Find out what accuracy exercises of what performance times. Nothing is launched."""
    with open_bench(settings, listener) as bench:
        return cover_ops(bench, select(settings, names), propose=True)


def check_against(
    bench: Bench, request: Request, command: str, base: FoundBase, plant: Plant = NOTHING_PLANTED
) -> tuple[Run, Judgements]:
    """Check against a base that was found: record the run, and judge it until the judge needs no more."""
    run = record_run(bench, request, command, base, plant)
    return settle(bench, request, run, base.tree, plant)


def record_run(bench: Bench, request: Request, command: str, base: FoundBase, plant: Plant = NOTHING_PLANTED) -> Run:
    """Plan a run, then verify and measure every planned op, each in a worker of its own."""
    settings = bench.settings
    shutil.rmtree(settings.reports / LOGS, ignore_errors=True)
    base_stage.hold_rules(bench, settings)
    with bench.timing("describe"):
        found = base_stage.describe_against(bench, request, base.tree)
    alpha = alpha_of(base.rules, request.thresholds)
    plan = make_plan(request, found.ops, found.device.kind, base.against, alpha, found.devices)
    plan = dataclasses.replace(plan, put_aside=find_sick(base.rules))
    avoid_sick(bench, found, plan.put_aside)
    run = new_run(settings, plan, found.device, command)
    refuse_looser(plan, base.rules, run.environment, run.created)
    last = None
    with contextlib.suppress(PerfciError, OSError):
        # The run whose place this one takes knows how long each op takes.
        last = store.read_run(settings.reports)
    last = last if last and last.ops and last.environment.device.key == found.device.key else None
    times = Timetable(estimate_seconds(plan, last), known=last is not None)
    launches.clear_launches(settings.reports)
    return Recorder(bench, request, run, base.tree, plant, times).record()


def settle(
    bench: Bench, request: Request, run: Run, tree: BaseTree | None, plant: Plant = NOTHING_PLANTED,
    is_open: Callable[[Judgements], bool] = lambda found: bool(found.needs),
) -> tuple[Run, Judgements]:  # fmt: skip
    """Judge a run whose first looks were taken, fetch what the judge lacks, and judge again.

    is_open: whether more processes could change what the caller wants to know.
    """
    rules = base_stage.choose_rules(run.plan.base, tree, bench.settings)
    base_stage.hold_rules(bench, bench.settings, rules)
    with bench.timing("judge"):
        judgements = decide(run, bench.settings, judged_by=rules)
    for _ in range(ROUNDS):
        if not is_open(judgements):
            break
        recorder = Recorder(bench, request, run, tree, plant)
        for needs in order_needs(judgements) if request.deadline else [judgements.needs]:
            run = recorder.record_again(needs)
        base_stage.hold_rules(bench, bench.settings, rules)
        with bench.timing("judge"):
            judgements = decide(run, bench.settings, judged_by=rules)
        if recorder.idle:
            break
    run = dataclasses.replace(run, spent_s=bench.spent_s)
    store.write_run(run, bench.settings.reports)
    return run, judgements


def order_needs(judgements: Judgements) -> list[tuple[Need, ...]]:
    """Returns what the judge lacks, in the order to fetch it: cases that look slowest first, as they may fail."""

    def weigh(row: Judgement) -> float:
        """How much slower a case looks, in slow-downs that are allowed. Infinite if it falls short of its target."""
        seen = row.comparison
        if seen is None:
            return 0.0
        if any(reason.kind in SHORT for reason in row.reasons):
            return math.inf
        looks = (seen.duel, seen.duel_span, seen.duel_host, seen.duel_sustained)
        duels = [look.shift.value / look.tau for look in looks if look and look.tau > 0.0]
        screens = [each.change.value / each.margin for each in (*seen.screens[:1], *seen.spans[:1]) if each.margin]
        return max(duels or screens, default=0.0)

    against = {(row.op, row.case): weigh(row) for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    strength = {need: against.get((need.op, need.case), 0.0) for need in judgements.needs}
    suspects = sorted((need for need in strength if strength[need] > 0.0), key=lambda need: -strength[need])
    others = tuple(need for need in strength if strength[need] <= 0.0)
    return [each for each in (tuple(suspects), others) if each]


def describe(settings: Settings, request: Request, listener: Listener) -> Plan:
    """Discover the ops, import them once, and fix the plan. No base is looked for."""
    with open_bench(settings, listener) as bench:
        found = describe_ops(bench, request)
    return make_plan(request, found.ops, found.device.kind, devices=found.devices)


def measure(settings: Settings, request: Request, command: str, listener: Listener) -> Run:
    """Measure every planned op, and judge nothing. Raises Stopped, with the run saved, if a signal arrived."""
    with claim_bench(settings, listener) as bench:
        with bench.timing("base"):
            base = base_stage.find(bench, request)
        run = dataclasses.replace(record_run(bench, request, command, base), spent_s=bench.spent_s)
        store.write_run(run, settings.reports)
        return run


def static(settings: Settings, request: Request, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """Compile every performance case without a device, compare it with the base, and judge. The run has no blocks."""
    with claim_bench(settings, listener) as bench:
        with bench.timing("base"):
            base = base_stage.find(bench, request)
        base_stage.hold_rules(bench, settings)
        with bench.timing("compile"):
            found, planned = compile_ops(bench, request, base.tree)
        plan = make_plan(request, planned, OFFLINE.kind, base.against)
        run = dataclasses.replace(new_run(settings, plan, OFFLINE, command), static=found, spent_s=bench.spent_s)
        changed = [op.op for op in plan.ops if op.base and not op.base.same and not op.failure]
        if changed and environment.installed_versions(COMPILERS[:2]):
            run = dataclasses.replace(run, coverage=cover_ops(bench, select(settings, changed)))
        refuse_looser(plan, base.rules, run.environment, run.created)
        store.write_run(run, settings.reports)
        base_stage.hold_rules(bench, settings, base.rules)
        return run, decide(run, settings, judged_by=base.rules)
