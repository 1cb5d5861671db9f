"""All shards of a plan: measured at once on this host, joined to one run and judged."""

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from perfci import store
from perfci.core import deadline, extensions
from perfci.core.errors import PerfciError
from perfci.core.model.decision import Judgements
from perfci.core.model.run import Run
from perfci.core.settings import Settings
from perfci.core.stopping import Stopped
from perfci.core.wording import spoken
from perfci.extensions.common import joining
from perfci.extensions.shards.part import DIGITS, FOLDER, RULES, merge
from perfci.extensions.shards.plans import UNKNOWN, ShardPlan, plan_shards, read_plan, refuse_difference, write_plan
from perfci.runs.bench import BOARD, Listener, claim_bench
from perfci.runs.decide import decide, open_rules
from perfci.runs.experiment import Experiment, begin_run, check
from perfci.runs.plan import Request
from perfci.runs.rules import hash_rules
from perfci.store.files import uncollected


def merge_shards(
    settings: Settings, sharded: ShardPlan, digest: str, measured: Sequence[tuple[Run, Path]], command: str
) -> tuple[Run, Judgements]:
    """Join the shards of a plan to one run, store it with its launches in the claimed reports folder, and judge it.

    `digest` is the SHA-256 of plan.json. `measured` has the shards' runs with the folders of their launches. Raises
    UsageError as `merge` does, and for other thresholds or baselines than those that the shards knew.
    """
    blank = begin_run(settings, sharded.plan, dataclasses.replace(UNKNOWN, kind=sharded.plan.device), command)
    with uncollected():
        run = merge(sharded, digest, [run for run, _ in measured], blank)
    with open_rules(run, settings) as rules:
        refuse_difference(RULES, hash_rules(rules)[:DIGITS], sharded.rules[:DIGITS])
    # A signature covers both.
    joining.join_launches(settings.reports, {run.id: folder for run, folder in reversed(measured)}.values())
    store.write_run(run, settings.reports)
    with uncollected():
        return run, decide(run, settings)


def check_on_devices(settings: Settings, request: Request, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """Check on several devices of this host at once, a shard and process each. A plain check if there is only one.

    A signal ends all of them, with what they measured saved. Raises PerfciError if one fails, which has printed why.
    """
    sharded = plan_shards(settings, request, listener, 1, None)
    if not sharded.plan.boards:
        return check(settings, request, command, listener)

    def measure(sharded: ShardPlan, path: Path, options: Sequence[str], variables: Mapping[str, str]) -> Stopped | None:
        arguments = ["check", "--plan", str(path), "--project", str(settings.root), *options]
        # Later looks at what a board suspects are taken on the next one, so that no single board fails a case.
        names = [board.visible for board in sharded.plan.boards]
        processes = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", "perfci", *arguments, "--shard", f"{number}/{sharded.shards}"],
                env={**os.environ, **variables, BOARD: ",".join(names[number - 1 :] + names[: number - 1])},
                stdout=subprocess.DEVNULL,
            )
            for number in range(1, sharded.shards + 1)
        ]
        stopped = None
        try:
            codes = [process.wait() for process in processes]
        except Stopped as stop:
            stopped = stop
            for process in processes:
                process.terminate()
            codes = [process.wait() for process in processes]
        for board, code in zip(sharded.plan.boards, codes, strict=True):
            if code and not stopped:
                raise PerfciError("device_failed", device=board.visible, status=code)
        return stopped

    run, judgements = run_shards(settings, sharded, request.deadline, command, measure)
    for groups in extensions.provided("groups"):
        if groups.concern(settings, request, run):
            with claim_bench(settings, listener) as bench:
                bench.spent_s.update(run.spent_s)
                experiment = Experiment.find(bench, request, command)
                run, judgements = groups.look_on(experiment, run, judgements)
    return run, judgements


def run_shards(
    settings: Settings, sharded: ShardPlan, limit: deadline.Deadline | None, command: str,
    measure: Callable[[ShardPlan, Path, Sequence[str], Mapping[str, str]], BaseException | None],
) -> tuple[Run, Judgements]:  # fmt: skip
    """Store a plan, let its shards be measured at once into the reports folder, and merge what came.

    measure: gets the plan, its file, and options and variables for the checks. What it returns is raised at the end.
    """
    # Without a terminal of its own each prints plain lines.
    options, variables = list[str](), {"PERFCI_LANG": spoken(), "TTY_COMPATIBLE": "0"}
    if limit:
        began = deadline.ends(limit) - limit.limit_s + limit.reserve_s
        variables[deadline.STARTED] = datetime.fromtimestamp(began, UTC).isoformat()
        variables[deadline.TIMEOUT] = str(limit.limit_s)
        options = [deadline.OPTION, str(limit.limit_s)] if limit.by == deadline.OPTION else []
    with store.claim_reports(settings.reports):
        shutil.rmtree(settings.reports / FOLDER, ignore_errors=True)
        path = write_plan(sharded, settings.reports / "plan.json")
        sharded, digest = read_plan(path)
        error = measure(sharded, path, options, variables)
        folders = [settings.reports / FOLDER / str(number) for number in range(1, sharded.shards + 1)]
        whole = [(store.read_run(folder), folder) for folder in folders if (folder / store.RUN_FILE).is_file()]
        merged = merge_shards(settings, sharded, digest, whole, command)
    if error:
        raise error
    return merged
