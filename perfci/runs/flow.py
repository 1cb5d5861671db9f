"""`perfci check` and `perfci list` on this machine: an experiment from its base to its verdicts.

Prints nothing: a `Listener` hears what happens. What was measured is saved after each op.
"""

from perfci.core import extensions
from perfci.core.model import Judgements, Run, Suite
from perfci.core.settings import Settings
from perfci.runs.bench import Listener, claim_bench, open_bench, warm_up
from perfci.runs.describe import Described, describe_ops
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Request, refuse_unfit


def check(settings: Settings, request: Request, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """Measure the ops that were asked for, and judge them. Without an accelerator kernels are still compiled."""
    with claim_bench(settings, listener) as bench:
        warm_up(bench, request.device)  # it imports while git is asked
        experiment = Experiment.find(bench, request, command)
        run, judgements = experiment.check()
        groups = [groups.look_on for groups in extensions.provided("groups")]
        for look_on in (*extensions.provided("end_to_end"), *groups, *extensions.provided("beyond")):
            run, judgements = look_on(experiment, run, judgements)
        if run.plan.device == "cpu" and Suite.PERFORMANCE in request.suites:
            for add_compiled in extensions.provided("compile"):
                run = add_compiled(experiment, run)
            judgements = experiment.judge(run)
    return run, judgements


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
