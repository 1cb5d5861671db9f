"""Kernels compiled beside a run that times nothing, or alone; and what accuracy exercises of what is timed."""

import dataclasses
import os
from collections.abc import Iterator, Sequence

from perfci.core import environment, extensions
from perfci.core.environment import COMPILERS
from perfci.core.errors import require
from perfci.core.model import OFFLINE, Coverage, Device, Judgements, Reason, Run
from perfci.core.settings import Settings
from perfci.extensions.common.targets import TARGETS
from perfci.extensions.static.compiling import compile_ops
from perfci.extensions.static.tasks import Cover, Covered, Exercised, conclude
from perfci.ops.backends import BACKENDS
from perfci.ops.discover import OpFolder, select
from perfci.runs.bench import (
    Bench,
    Listener,
    WorkerPlace,
    claim_bench,
    list_files,
    make_environment,
    open_bench,
    place_ops,
    warm_up,
)
from perfci.runs.describe import Described, find_violation
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Request
from perfci.worker.process import Running, side_by_side, working
from perfci.worker.protocol import Message


def cover_ops(bench: Bench, ops: Sequence[OpFolder], *, propose: bool = False) -> tuple[Coverage, ...]:
    """Look through the launches of every case, as on the first target of the settings.

    propose: find cases to add too, which takes most of the time.
    """
    target = next((name for name in bench.settings.targets if name in TARGETS), "sm_90")
    waiting, coverage = list(ops), dict[str, Coverage]()
    warm_up(bench, "cpu")

    def look() -> Iterator[Sequence[Running]]:
        while waiting:
            op = waiting.pop(0)
            if broken := find_violation(op):
                coverage[op.op] = Coverage(op.op, target, failure=broken)
                continue

            said = list[Exercised]()

            def hear(message: Message, said: list[Exercised] = said) -> None:
                if isinstance(message, Exercised):
                    said.append(message)
                elif isinstance(message, Covered):
                    coverage[message.op] = conclude(said, message)
                bench.listener(message)

            task = Cover(place=place_ops(bench.settings, list_files([op])), target=target, propose=propose)
            # Its kernels are interpreted, whatever device there is.
            around = make_environment(bench, WorkerPlace(f"coverage-{op.op}", "cpu", bench.settings.root))
            failure = yield from working(task, around, hear)
            coverage.setdefault(op.op, Coverage(op.op, target, failure=failure or Reason("worker_silent")))

    side_by_side([look() for _ in range(min(len(waiting), os.cpu_count() or 1))])
    return tuple(coverage[op.op] for op in ops)


NO_DEVICE = Device(OFFLINE, "no device", OFFLINE)  # the device of kernels that are compiled without one


def add_compiled(experiment: Experiment, run: Run) -> Run:
    """Returns a run of the CPU with what its kernels compile to for a target, if a Triton that is known is there."""
    is_known = not any(note.kind == "triton_unknown" for op in run.ops for note in op.notes)
    can_compile = any(extensions.list_places("precompile"))
    if not (is_known and can_compile and environment.installed_versions(COMPILERS[:2])):
        return run
    with experiment.bench.timing("compile"):
        skips = run.plan.skip_unchanged
        compiled = compile_ops(experiment.bench, experiment.request, experiment.tree, skips=skips)[0]
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
