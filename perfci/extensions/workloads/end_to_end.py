"""A script of the project's as one more case: a step of the model, this change against its base, by the duel's rule.

`kernels/_workloads/<name>.py` runs some steps for each line that it reads, and prints what one takes: `8.31 ms`, or how
many a second: `812 tokens/s`. Both revisions' scripts run at once and take turns, so that neither works while the other
is timed.
"""

import math
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from perfci.core.errors import PerfciError
from perfci.core.model import ArmBlock, BaseArm, Block, Judgements, OpRun, PerformanceCase, PlannedBase, PlannedOp
from perfci.core.model import Run as RunRecord
from perfci.core.model.measured import DUEL
from perfci.core.model.place import UNTIMED
from perfci.extensions.workloads.costs import MODEL, STEP, find_changes
from perfci.extensions.workloads.records import FOLDER
from perfci.runs.bench import WorkerPlace, make_environment
from perfci.runs.experiment import Experiment
from perfci.statistics.exact import summary
from perfci.worker.process import confined
from perfci.worker.tasks import WorkerEnvironment

TURNS, PROCESSES = 12, 4  # turns of each script in one process, and processes at most: a duel's looks
_ANSWER = re.compile(r"\s*([0-9.]+(?:[eE][-+]?\d+)?)\s*(us|ms|s|\w+/s)\s*")
_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


def duel_scripts(experiment: Experiment, run: RunRecord, judgements: Judgements) -> tuple[RunRecord, Judgements]:
    """Adds a case for each script that the base has too, if an op changed and the device is timed."""
    tree, scripts = experiment.tree, sorted((experiment.settings.kernels / FOLDER).glob("[!._]*.py"))
    if tree is None or run.environment.device.kind in UNTIMED or not find_changes(judgements.rows, run):
        return run, judgements
    for script in scripts:
        place = script.relative_to(experiment.settings.root)
        if not (tree.settings.root / place).is_file():
            continue
        op = PlannedOp(f"{MODEL}{script.stem}", performance=(STEP,), base=PlannedBase(performance=(STEP,)))
        plan = replace(run.plan, ops=(*run.plan.ops, op), duel_family=run.plan.duel_family + 1)
        before, outcome = replace(run, plan=plan), OpRun(op.op)
        for process in range(PROCESSES):
            outcome = _look(experiment, run.environment.device.kind, place, outcome, process)
            run = replace(before, ops=(*before.ops, outcome))
            judgements = experiment.judge(run)
            if not any(need.op == op.op for need in judgements.needs):
                break
    return experiment.save(run), judgements


def _look(experiment: Experiment, kind: str, place: Path, outcome: OpRun, process: int) -> OpRun:
    """The outcome with the blocks of one more process of each script, or with why there are none."""
    case = outcome.performance[0] if outcome.performance else PerformanceCase(STEP, base=BaseArm(duelled=True))
    try:
        blocks = (*case.blocks, *_take_turns(experiment, kind, place, process))
    except PerfciError as error:
        return replace(outcome, failure=error.reason)
    return replace(outcome, performance=(replace(case, blocks=blocks),))


def _take_turns(experiment: Experiment, kind: str, place: Path, process: int) -> Iterator[Block]:
    """Yields a block for each pair of turns. Who is first alternates. Raises PerfciError for a script that fails."""
    assert experiment.tree
    began = time.monotonic()
    roots = {"kernel": experiment.settings.root, "base": experiment.tree.settings.root}
    with ExitStack() as stack:
        around = {
            arm: make_environment(experiment.bench, WorkerPlace(f"model-{place.stem}-{arm}", kind, root=root))
            for arm, root in roots.items()
        }
        scripts = {arm: stack.enter_context(_Script(around[arm], root / place)) for arm, root in roots.items()}
        for script in scripts.values():
            script.turn()  # to warm up
        for index in range(TURNS):
            order = list(scripts)[:: -1 if (index + process) % 2 else 1]
            us = {arm: scripts[arm].turn() for arm in order}
            arms = {arm: ArmBlock(summary([us[arm]]), activities=1) for arm in us}
            # A duel is of blocks with a reference, which a script has not: the base stands for it.
            shift = math.log(us["kernel"] / us["base"])
            yield Block(process * TURNS + index, process, time.monotonic() - began, {**arms, "reference": arms["base"]},
                        {DUEL: shift})  # fmt: skip


class _Script(ExitStack):
    """A script under way, confined as a worker is."""

    def __init__(self, around: WorkerEnvironment, path: Path) -> None:
        super().__init__()
        self._path, self._limit_s = path, around.limit_s
        log = self.enter_context(around.log.open("wb"))
        process = subprocess.Popen(
            confined([around.python, str(path)], *around.places), cwd=path.parent, env=dict(around.environment),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0,
        )  # fmt: skip
        assert process.stdin
        assert process.stdout
        self._end, self._ask, self._answer = process.kill, process.stdin, process.stdout
        for undo in (process.wait, process.kill, process.stdin.close, process.stdout.close):
            self.callback(undo)

    def turn(self) -> float:
        """Have it run. Returns what a step takes, microseconds."""
        timer = threading.Timer(self._limit_s, self._end)
        timer.start()
        try:
            self._ask.write(b"\n")
            text = self._answer.readline().decode(errors="replace")
        except OSError:
            text = ""
        finally:
            timer.cancel()
        answer = _ANSWER.fullmatch(text)
        if answer is None or not float(answer[1]):
            raise PerfciError("script_silent", file=str(self._path), text=text.strip()[:80] or None)
        return float(answer[1]) * _US[answer[2]] if answer[2] in _US else 1e6 / float(answer[1])
