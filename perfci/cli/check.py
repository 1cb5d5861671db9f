"""`perfci check`: kernels verified, measured and judged; by its options only a part of that, or another experiment."""

import dataclasses
import functools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from perfci import report, store
from perfci.cli import language, options
from perfci.cli.details import show_tables
from perfci.cli.exits import Exit
from perfci.cli.output import (
    Grid,
    conclude,
    get_command,
    print_lines,
    print_parts,
    print_verdicts,
    relative,
    write_json,
)
from perfci.cli.parsing import flag, option
from perfci.cli.progress import Imports, Progress
from perfci.core import deadline as deadlines
from perfci.core.errors import UsageError, require
from perfci.core.files import read_regular
from perfci.core.model import DEFAULT_BUDGET_S, DuelWhat, Gate, Suite
from perfci.core.settings import ONE, Settings, are_devices
from perfci.core.wording import say, sentence
from perfci.judge.notes import note_missing_peers
from perfci.ops.discover import select
from perfci.report import accuracy
from perfci.report.build import tabulate_seconds
from perfci.runs import experiment
from perfci.runs.decide import decide
from perfci.runs.effective_thresholds import parse_options
from perfci.runs.plan import Request

SUITES = {
    "both": (Suite.ACCURACY, Suite.PERFORMANCE),
    "accuracy": (Suite.ACCURACY,),
    "performance": (Suite.PERFORMANCE,),
}


@options.shows(
    "perfci check --op broadcast  # one op, beside the branch's base and its baselines",
    "perfci check matmul --against v1.2  # beside another revision than the branch's base",
    "perfci check softmax --watch -q  # again after every change",
)
@options.takes(
    "ops backend case device budget seed strict html suite timer against duel base_python devices deadline threshold"
    " timings verbose last_failed quiet report_back thorough sanitize",
    {
        "toolchain": "ops backend case device budget seed suite timer devices deadline threshold strict html"
        " timings verbose quiet",
        "no_judge": "ops backend case device budget seed suite timer last_failed",
        "retry": "device budget seed timer deadline out strict html timings verbose quiet",
        "against_release": "ops backend case against device budget seed timer deadline threshold out strict html"
        " timings verbose quiet",
        "watch": "ops backend case device budget seed strict html suite timer against duel base_python devices"
        " threshold timings verbose quiet thorough sanitize",
        "confirm": "plan device deadline",
        "plan": "shard device deadline",
        "on": "ops backend case device budget seed strict html suite timer against duel deadline threshold"
        " timings verbose last_failed quiet",
    },
)
def check(
    ops: options.Ops = [],  # noqa: B006 - typer reads the default, no one changes it
    backend: options.Backends = [],  # noqa: B006
    case: options.Case = None,
    last_failed: options.LastFailed = False,
    watch: options.Watch = False,
    thorough: Annotated[
        bool, flag("--thorough", "Check every configuration, of unchanged ops too.", group=options.OTHERWISE)
    ] = False,
    sanitize: Annotated[
        bool, flag("--sanitize", "Also run probe cases under sanitizers.", group=options.OTHERWISE)
    ] = False,
    quiet: options.Quiet = False,
    no_judge: Annotated[
        bool, flag("--no-judge", "Write reports/run.json, and judge nothing.", group=options.OTHERWISE)
    ] = False,
    retry: Annotated[
        Path | None,
        option(
            "--retry",
            "Duel a run's INCONCLUSIVE cases, each with its last conclusive commit.",
            "none",
            "RUN",
            group=options.OTHERWISE,
        ),
    ] = None,
    against_release: Annotated[
        bool,
        flag(
            "--against-release",
            "Duel every case with the last release: finds slow-downs that came bit by bit.",
            group=options.OTHERWISE,
        ),
    ] = False,
    plan: Annotated[
        Path | None,
        option(
            "--plan", "Plan that `ci plan` wrote: measure one shard of it.", "none", "FILE", group=options.OTHERWISE
        ),
    ] = None,
    shard: Annotated[
        str | None,
        option(
            "--shard",
            "Which one, such as $CI_NODE_INDEX/$CI_NODE_TOTAL; goes with --plan.",
            "none",
            "I/N",
            group=options.OTHERWISE,
        ),
    ] = None,
    confirm: Annotated[
        Path | None,
        option(
            "--confirm",
            "With --plan: re-measure here what a single board found slower.",
            "none",
            "RUNS",
            group=options.OTHERWISE,
        ),
    ] = None,
    device: options.DeviceOption = "auto",
    budget: Annotated[
        float | None,
        option(
            "--budget",
            "Seconds to measure: each case.",
            "1.0; with --retry twice the run's",
            "S",
            min=0.01,
            max=3600,
            group=options.MEASURED,
        ),
    ] = None,
    seed: options.Seed = None,
    suite: options.SuiteOption = "both",
    timer: options.Timer = "auto",
    against: options.Against = None,
    duel: options.Duel = "changed",
    base_python: options.BasePython = None,
    toolchain: options.Toolchain = [],  # noqa: B006
    devices: options.Devices = None,
    on: options.On = None,
    deadline: options.Deadline = None,
    threshold: options.Threshold = [],  # noqa: B006
    out: Annotated[
        Path | None,
        option("--out", "Where to write: --retry and --against-release.", "again/ or creep/ in reports/", "DIR"),
    ] = None,
    strict: options.Strict = False,
    html: options.Html = False,
    timings: Annotated[bool, flag("--timings", "Show where each second went.")] = False,
    report_back: Annotated[
        bool, flag("--report-back", "Also write reports/report-back.zip, for a chip on which perfci has not run yet.")
    ] = False,
    verbose: Annotated[bool, flag("--verbose", "Show the errors of every case too, those that pass as well.")] = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Verify, measure, compare with the base revision and the baselines, judge, and write reports/."""
    asked = dict(locals())
    json = output == "json"
    _refuse_malformed(devices, plan, shard, confirm, contrary=quiet and verbose)
    limit = deadlines.find(deadline, os.environ, time.time())
    where = language.load(project)
    if watch:
        require("watch", "lab", "--watch")(functools.partial(check, **{**asked, "watch": False}), project, ops)
    if last_failed:
        ops = list_failed(where, ops, strict=strict)
    if toolchain:
        require("toolchain", "lab", "--toolchain")(toolchain, where)
    if plan is not None:
        check_planned = require("shards", "shards", "--plan").check_planned
        return Exit(check_planned(plan, shard, confirm, device, limit, where, json=json))
    request = make_request(
        ops, case, device, suite, against, duel, threshold, backends=backend, seed=seed, timer=timer,
        budget_s=DEFAULT_BUDGET_S if budget is None else budget, base_python=base_python,
        devices=devices or where.devices, deadline=limit.deadline, deadline_note=limit.note,
        thorough=thorough, sanitize=sanitize,
    )  # fmt: skip
    if no_judge:
        return _measure(request, where, json=json)
    if html:
        require(*report.RENDERER)  # before hours of measuring
    if thorough or sanitize:
        require("beyond", "beyond", "--thorough" if thorough else "--sanitize")
    nothing = say("Nothing was duelled.")
    with Progress(quiet=quiet) as shown:
        progress = Imports(shown, request.suites)
        if retry:
            where, earlier = _set_reports(where, "again", out), store.read_run(retry)
            if (retry if retry.is_dir() else retry.parent).resolve() == where.reports:
                raise UsageError("again_over_run", path=str(retry))
            request = dataclasses.replace(request, budget_s=budget or 0.0)  # 0: twice the earlier run's
            nothing = say("Nothing of run {run} is to be duelled again.", run=earlier.id)
            retry_cases = require("retry", "history", "--retry")
            run, judgements = retry_cases(where, earlier, request, get_command(), progress)
        elif against_release:
            where = _set_reports(where, "creep", out)
            compare = require("creep", "history", "--against-release")
            run, judgements = compare(where, request, get_command(), progress, against)
        elif on != "here" and (cluster := on or (where.cluster if devices is base_python is None else None)):
            check_on_cluster = require("cluster", "ray", "--on, or cluster in [tool.perfci],")
            run, judgements = check_on_cluster(where, request, cluster, get_command(), progress)
        elif request.devices not in {None, ONE}:
            check_on_devices = require("shards", "shards", "--devices").check_on_devices
            run, judgements = check_on_devices(where, request, get_command(), progress)
        else:
            run, judgements = experiment.check(where, request, get_command(), progress)
    if run.plan.again and not run.plan.ops:
        if json:
            print_verdicts(run, judgements, json=True)
        else:
            print_lines(*map(sentence, judgements.notes), nothing)
        return Exit.OK
    progress.join()
    began = time.monotonic()
    code = conclude(run, judgements, where, strict=strict, json=json, html=html, quiet=quiet)
    if not json:  # which has all this in run.json
        errors = (part for op in run.ops for part in show_tables(accuracy.make_parts(op)))
        seconds = Grid(tabulate_seconds(run, time.monotonic() - began), say("Where the time went"))
        print_parts([*(errors if verbose else ()), *([seconds] if timings else ())])
    if report_back:
        path = require("report_back", "npu", "--report-back")(where, device, run.plan.ops[0].op)
        print(say("Look into {path}, and attach it to an issue of perfci.", path=relative(path)), file=sys.stderr)
    return code


COMMANDS = {"check": check}


def make_request(
    ops: Sequence[str], case: str | None, device: str, suite: str, against: str | None, duel: str,
    thresholds: Sequence[str], *, backends: Sequence[str] = (), **more: Any,
) -> Request:  # fmt: skip
    """What was asked for by the options that `check` shares with those that prepare and join its shards."""
    return Request(
        options.name_backends(ops, backends), case, device, suites=SUITES[suite], against=against, duel=DuelWhat(duel),
        thresholds=parse_options(thresholds), peers=options.SIDE_BY_SIDE in ",".join(backends).split(","), **more,
    )  # fmt: skip


def _refuse_malformed(
    devices: str | None, plan: Path | None, shard: str | None, confirm: Path | None, *, contrary: bool
) -> None:
    if contrary:
        raise UsageError("options_exclude", first="--quiet", second="--verbose")
    if devices is not None and not are_devices(devices):
        raise UsageError("devices_malformed", devices=devices)
    if (plan is None) != (shard is None and confirm is None):
        given, needed = ("--plan", "--shard I/N") if plan else ("--confirm", "--plan")
        raise UsageError("option_needs", option=given, needed=needed)


def list_failed(where: Settings, names: list[str], *, strict: bool) -> list[str]:
    """The ops, of those that were named, that failed in the last run. All if none did (a line of progress has it)."""
    reports, known = where.reports, [op.op for op in select(where, options.name_backends(names, []))]
    failed: list[str] = []
    if (reports / store.RUN_FILE).exists():
        run = store.read_run(reports)
        rows = decide(run, where).rows
        bad = {row.op for row in rows if row.gate is Gate.FAILS or (strict and row.gate is Gate.WARNS)}
        failed = [op for op in known if op in bad]
        text = say("Failed in run {run}: {ops}.", run=run.id, ops=", ".join(failed))
        print(text if failed else say("Nothing failed in run {run}: all are checked.", run=run.id), file=sys.stderr)
    else:
        print(say("There is no run in {folder} yet: all are checked.", folder=relative(reports)), file=sys.stderr)
    return failed or names


def _set_reports(where: Settings, folder: str, out: Path | None = None) -> Settings:
    """Returns settings with another reports folder, so that the run of a plain check stays."""
    return dataclasses.replace(where, reports=out.resolve() if out else where.reports / folder)


def _measure(request: Request, where: Settings, *, json: bool) -> int:
    """Measure without judging."""
    with Progress() as progress:
        request = dataclasses.replace(request, duel=DuelWhat.NONE, deadline=None, deadline_note=None)
        run = experiment.measure(where, request, get_command(), progress)
    path = where.reports / store.RUN_FILE
    if json:
        write_json(read_regular(path).decode())
        return Exit.OK
    missing = note_missing_peers(run.plan)
    print_lines(
        *([sentence(missing)] if missing else []),
        say("Run: {path}", path=relative(path)),
        say("Next: `perfci compare` judges it, `perfci report` renders it."),
    )
    return Exit.OK
