"""Kernels compiled beside a run that times nothing, or alone; and what accuracy exercises of what is timed."""

import dataclasses

from perfci.core import environment, extensions
from perfci.core.environment import COMPILERS
from perfci.core.errors import require
from perfci.core.model import OFFLINE, Coverage, Device, Judgements, Run
from perfci.core.settings import Settings
from perfci.extensions.static.compiling import compile_ops
from perfci.extensions.static.coverage import cover_ops
from perfci.ops.backends import BACKENDS
from perfci.ops.discover import select
from perfci.runs.bench import Listener, claim_bench, open_bench
from perfci.runs.describe import Described
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Request

NO_DEVICE = Device(OFFLINE, "no device", OFFLINE)  # the device of kernels that are compiled without one


def add_compiled(experiment: Experiment, run: Run) -> Run:
    """Returns a run of the CPU with what its kernels compile to for a target, if a Triton that is known is there."""
    is_known = not any(note.kind == "triton_unknown" for op in run.ops for note in op.notes)
    can_compile = any(extensions.list_places("precompile"))
    if not (is_known and can_compile and environment.installed_versions(COMPILERS[:2])):
        return run
    with experiment.bench.timing("compile"):
        compiled = compile_ops(experiment.bench, experiment.request, experiment.tree)[0]
    return experiment.save(dataclasses.replace(run, static=compiled))


def compile_and_judge(settings: Settings, request: Request, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """Compile every performance case without a device, compare it with the base, and judge. The run has no blocks."""
    require("precompile", "offline", "perfci static")
    with claim_bench(settings, listener) as bench:
        experiment = Experiment.find(bench, request, command)
        with bench.timing("compile"):
            compiled, planned = compile_ops(bench, request, experiment.tree)
        plan = experiment.plan(Described(NO_DEVICE, planned))
        run = dataclasses.replace(experiment.begin(plan, NO_DEVICE), static=compiled)
        changed = [op.op for op in plan.ops if op.base and not op.base.same and not op.failure]
        if changed and environment.installed_versions(COMPILERS[:2]):
            of_triton = [op for op in select(settings, changed) if BACKENDS[op.backend].uses_triton]
            run = dataclasses.replace(run, coverage=cover_ops(bench, of_triton))
        run = experiment.save(run)
        return run, experiment.judge(run)


def cover(settings: Settings, names: tuple[str, ...], listener: Listener) -> tuple[Coverage, ...]:
    """Find out what accuracy exercises of what performance times. Nothing is launched."""
    require("precompile", "offline", "--coverage")
    with open_bench(settings, listener) as bench:
        chosen = [op for op in select(settings, names) if BACKENDS[op.backend].uses_triton]
        return cover_ops(bench, chosen, propose=True)
