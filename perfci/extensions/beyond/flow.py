"""Ops looked at after a check: of each op that is wrong, one wrong case is shrunk. A worker for each op."""

import dataclasses

from perfci.core.model import AccuracyCase, Judgements, OpRun, Run
from perfci.extensions.beyond.task import LookBeyond
from perfci.judge.accuracy import sort_failed
from perfci.ops.backends import backend_of, find_kernel
from perfci.ops.discover import select
from perfci.runs.bench import WorkerPlace, list_files, make_environment, plan_opening
from perfci.runs.experiment import Experiment
from perfci.runs.needed import place_needed
from perfci.worker.process import run_worker
from perfci.worker.protocol import Message

SHRINK_S = 20.0
"""Seconds in which a wrong case is shrunk. Softmax in the interpreter needs one or two."""


def look_on(experiment: Experiment, run: Run, judgements: Judgements) -> tuple[Run, Judgements]:
    """Returns the run with the least wrong case of each op that is wrong, and its verdicts."""
    ops = tuple(_look_at(experiment, run, op) for op in run.ops)
    if ops == run.ops:
        return run, judgements
    run = experiment.save(dataclasses.replace(run, ops=ops))
    return run, experiment.judge(run)


def _look_at(experiment: Experiment, run: Run, op: OpRun) -> OpRun:
    """Returns an op with its least wrong case, if it is wrong and its time is not up."""
    wrong = next(iter(sort_failed(op.accuracy)), None)
    if wrong is None or wrong.raised or op.failure or op.late:
        return op
    with experiment.bench.timing("beyond"):
        more = _run(experiment, run, op.op, wrong)
    return dataclasses.replace(op, accuracy=(*op.accuracy, *more))


def _run(experiment: Experiment, run: Run, op: str, wrong: AccuracyCase) -> list[AccuracyCase]:
    """Have a worker shrink a case. What it says before it fails counts."""
    bench, plan, checks = experiment.bench, run.plan, list[AccuracyCase]()

    def hear(message: Message) -> None:
        if isinstance(message, AccuracyCase) and message.failure:
            checks.append(message)
        bench.listener(message)

    place = place_needed(bench, bench.settings, list_files(select(bench.settings, (op,))))
    opening = plan_opening(bench.settings, plan.device, plan.seed)
    task = LookBeyond(place=place, opening=opening, wrong=wrong, budget_s=SHRINK_S)
    backend = backend_of(find_kernel(op, task.folder))
    run_worker(
        task, make_environment(bench, WorkerPlace(f"beyond-{op}", plan.device, place.root, backend=backend)), hear
    )
    return checks
