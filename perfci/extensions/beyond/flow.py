"""Ops looked at after a check: a wrong case is shrunk, and what a suite states is checked. A worker for each op."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator

from perfci.core.files import read_regular
from perfci.core.model import AccuracyCase, Judgements, OpRun, Reason, Run, Suite
from perfci.core.settings import Settings
from perfci.extensions.beyond.configurations import SPACE
from perfci.extensions.beyond.formula import MODE, Trace, compare_formulas, read_traces
from perfci.extensions.beyond.sanitize import compiles_in, follow_log, list_tools, surround, tell
from perfci.extensions.beyond.task import SHRINK_S, LookBeyond
from perfci.judge.accuracy import sort_failed
from perfci.ops.backends import backend_of, find_kernel, name_of
from perfci.ops.discover import select
from perfci.runs.bench import WorkerPlace, list_files, make_environment, plan_opening
from perfci.runs.experiment import Experiment
from perfci.runs.needed import place_needed
from perfci.worker.process import run_worker
from perfci.worker.protocol import Doing, Message, OpDone
from perfci.worker.tasks import OpFiles, WorkerEnvironment

SHARE, LEAST_S = 0.05, 0.2
"""Of the seconds that the op's checks took, and at least: what an ordinary check spends on configurations"""

STATES = re.compile(rb"(?m)^[^#\n]*\b(invariant|permutes|idempotent|graph|gradients)\s*=")
"""What a suite that states a property has in its file. Others cost no worker"""


def look_on(experiment: Experiment, run: Run, judgements: Judgements) -> tuple[Run, Judgements]:
    """Returns the run with what was found of each op, and its verdicts."""
    if Suite.ACCURACY not in run.plan.suites:
        return run, judgements
    ops = tuple(_look_at(experiment, run, op) for op in run.ops)
    if ops == run.ops:
        return run, judgements
    run = experiment.save(dataclasses.replace(run, ops=ops))
    return run, experiment.judge(run)


def _look_at(experiment: Experiment, run: Run, op: OpRun) -> OpRun:
    """Returns an op with the checks that were made of it here. Of one that broke, or that nothing ran of, none."""
    if not op.accuracy or op.failure or op.late:
        return op
    (files,) = list_files(select(experiment.settings, (op.op,)))
    failed = sort_failed(op.accuracy)
    with experiment.bench.timing("beyond"):
        if not failed and experiment.request.sanitize:
            op = _sanitize(experiment, run, op, files)
        if not failed and experiment.request.thorough and run.plan.device == "cuda" and compiles_in(MODE):
            op = dataclasses.replace(op, notes=(*op.notes, *_compare_formulas(experiment, run, op, files)))
        thorough = experiment.request.thorough or states_properties(files) or has_choices(files, run.plan.device)
        if failed[0].raised if failed else not thorough:
            return op
        return _run(experiment, run, op, files, failed[0] if failed else None)


def _sanitize(experiment: Experiment, run: Run, op: OpRun, files: OpFiles) -> OpRun:
    """Have each sanitizer watch the op's probe cases."""
    tools, checks = list_tools(run.plan.device), list[AccuracyCase]()
    task = dataclasses.replace(_plan(experiment, run, files), watched=True)
    for tool in tools:
        around = surround(_surround(experiment, run, task), tool)
        read_log = follow_log(around, tool)
        heard = _perform(experiment, task, around)
        checks += tell(tool, read_log(), heard.failure, task.place.root)
    note = Reason("sanitized", {"op": op.op, "tools": ", ".join(tools)}) if tools else Reason("sanitizers_missing")
    return dataclasses.replace(op, accuracy=(*op.accuracy, *checks), notes=(*op.notes, note))


def _compare_formulas(experiment: Experiment, run: Run, op: OpRun, files: OpFiles) -> Iterator[Reason]:
    """Yields notes about the formula of an op, beside the base's if its files differ."""
    tree, planned = experiment.tree, next(planned for planned in run.plan.ops if planned.op == op.op)
    head = _trace(experiment, run, dataclasses.replace(_plan(experiment, run, files), chosen=list_chosen(op)))
    base: list[Trace] | None = None
    if tree and planned.base and not planned.base.same and tree.base.python is None:
        (before,) = list_files(select(tree.settings, (planned.base.op or op.op,)))
        base = _trace(experiment, run, _plan(experiment, run, before, tree.settings))
    yield from compare_formulas(op.op, head, base)


def _trace(experiment: Experiment, run: Run, task: LookBeyond) -> list[Trace]:
    """What calls give if their kernels have fpsan compiled in. Nothing if the worker fails."""
    around = surround(_surround(experiment, run, task), MODE)
    return read_traces(_perform(experiment, dataclasses.replace(task, traced=True), around).notes)


def _plan(experiment: Experiment, run: Run, files: OpFiles, settings: Settings | None = None) -> LookBeyond:
    """The task of a worker on one op. settings: of the base's project for one of its ops."""
    bench, plan = experiment.bench, run.plan
    place = place_needed(bench, settings or bench.settings, (files,))
    return LookBeyond(place=place, opening=plan_opening(bench.settings, plan.device, plan.seed), pattern=plan.filter)


def _surround(experiment: Experiment, run: Run, task: LookBeyond) -> WorkerEnvironment:
    """What such a worker runs in."""
    backend = backend_of(find_kernel(task.op, task.folder))
    place = WorkerPlace(f"beyond-{task.op}", run.plan.device, task.place.root, backend=backend)
    return make_environment(experiment.bench, place)


def states_properties(files: OpFiles) -> bool:
    """Whether an op's accuracy suite states what its cases do not check."""
    return bool(STATES.search(read_regular(files.folder / f"{name_of(files.op)}_accuracy.py")))


def has_choices(files: OpFiles, device: str) -> bool:
    """Whether an op may have several configurations: tuned files, autotuners, or a kernel that lies elsewhere.

    On a GPU each has to be compiled, so that an ordinary check looks at none for their sake.
    """
    if device != "cpu":
        return False
    tuned = any(path.name != SPACE for path in (files.folder / "tuned").glob("*.json"))
    texts = [read_regular(path) for path in sorted(files.folder.glob("*.py"))]
    return tuned or any(b"autotune" in text for text in texts) or not any(b"triton.jit" in text for text in texts)


def list_chosen(op: OpRun) -> tuple[str, ...]:
    """Returns what autotuners chose in timed calls, the most frequent first."""
    chosen = Counter(choice for case in op.performance if case.identity for choice in case.identity.choices)
    return tuple(choice for choice, _ in chosen.most_common())


def _run(experiment: Experiment, run: Run, op: OpRun, files: OpFiles, wrong: AccuracyCase | None) -> OpRun:
    """Have a worker look at an op. If it fails, what it was doing is one more check that failed."""
    budget_s = None if experiment.request.thorough else max(LEAST_S, SHARE * (op.verify_s or 0.0))
    budget_s = SHRINK_S if wrong else budget_s
    task = dataclasses.replace(_plan(experiment, run, files), wrong=wrong, budget_s=budget_s, chosen=list_chosen(op))
    heard = _perform(experiment, task, _surround(experiment, run, task))
    if heard.failure and wrong is None:
        ended = AccuracyCase(heard.case, "normal", "contiguous", 0, failure=heard.failure, raised=True)
        heard.checks.append(ended)
    return dataclasses.replace(op, accuracy=(*op.accuracy, *heard.checks), notes=(*op.notes, *heard.notes))


@dataclasses.dataclass
class Heard:
    """What a worker sent before it ended."""

    checks: list[AccuracyCase] = dataclasses.field(default_factory=list)
    notes: tuple[Reason, ...] = ()
    case: str = "-"  # the last one that it was busy with
    failure: Reason | None = None  # its own end, if that was none it should have


def _perform(experiment: Experiment, task: LookBeyond, around: WorkerEnvironment) -> Heard:
    """Have a worker do a task."""
    heard = Heard()

    def hear(message: Message) -> None:
        match message:
            case AccuracyCase():
                heard.checks.append(message)
            case Doing():
                heard.case = message.case or "-"
            case OpDone():
                heard.notes = message.notes
        experiment.bench.listener(message)

    heard.failure = run_worker(task, around, hear)
    return heard
