"""What `perfci check` and `perfci list` do on this machine: an experiment from its base to its verdicts.

Prints nothing: a `Listener` hears what happens. What was measured is saved after each op.
"""

import dataclasses

from perfci.core import environment
from perfci.core.model import Coverage, Device, Judgements, Run, Suite
from perfci.core.settings import Settings
from perfci.ops.discover import select
from perfci.runs.bench import Listener, claim_bench, open_bench, warm_up
from perfci.runs.coverage import cover_ops
from perfci.runs.describe import Described, describe_ops
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Request, refuse_unfit
from perfci.runs.static import COMPILERS, compile_ops

OFFLINE = Device("offline", "no device", "offline")  # the device of kernels that are compiled without one


def check(settings: Settings, request: Request, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """Measure the ops that were asked for, and judge them. Without an accelerator kernels are still compiled."""
    with claim_bench(settings, listener) as bench:
        warm_up(bench, request.device)  # it imports while git is asked
        experiment = Experiment.find(bench, request, command)
        run, judgements = experiment.check()
        compilers = environment.installed_versions(COMPILERS[:2])
        is_known = not any(note.kind == "triton_unknown" for op in run.ops for note in op.notes)
        if run.plan.device == "cpu" and Suite.PERFORMANCE in request.suites:
            if is_known and compilers:
                with bench.timing("compile"):
                    compiled = compile_ops(bench, request, experiment.tree)[0]
                run = experiment.save(dataclasses.replace(run, static=compiled))
            judgements = experiment.judge(run)
    return run, judgements


def cover(settings: Settings, names: tuple[str, ...], listener: Listener) -> tuple[Coverage, ...]:
    """Find out what accuracy exercises of what performance times. Nothing is launched."""
    with open_bench(settings, listener) as bench:
        return cover_ops(bench, select(settings, names), propose=True)


def describe(settings: Settings, request: Request, listener: Listener) -> Described:
    """Discover the ops, and import them once. No base is looked for. Raises UsageError if no case fits."""
    with open_bench(settings, listener) as bench:
        described = describe_ops(bench, request)
    refuse_unfit(request, described.ops)
    return described


def measure(settings: Settings, request: Request, command: str, listener: Listener) -> Run:
    """Measure every planned op, and judge nothing. Raises Stopped, with the run saved, if a signal arrived."""
    with claim_bench(settings, listener) as bench:
        experiment = Experiment.find(bench, request, command)
        return experiment.save(experiment.measure())


def static(settings: Settings, request: Request, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """Compile every performance case without a device, compare it with the base, and judge. The run has no blocks."""
    with claim_bench(settings, listener) as bench:
        experiment = Experiment.find(bench, request, command)
        with bench.timing("compile"):
            compiled, planned = compile_ops(bench, request, experiment.tree)
        plan = experiment.plan(Described(OFFLINE, planned))
        run = dataclasses.replace(experiment.begin(plan, OFFLINE), static=compiled)
        changed = [op.op for op in plan.ops if op.base and not op.base.same and not op.failure]
        if changed and environment.installed_versions(COMPILERS[:2]):
            run = dataclasses.replace(run, coverage=cover_ops(bench, select(settings, changed)))
        run = experiment.save(run)
        return run, experiment.judge(run)
