"""`perfci check`: kernels verified, measured and judged; by its options only a part of that, or another experiment."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from pathlib import Path
from typing import Annotated

import typer

from perfci import store
from perfci.cli import language
from perfci.cli.chains import print_chains
from perfci.cli.exits import Exit
from perfci.cli.options import (
    HERE,
    Against,
    BasePython,
    Case,
    Deadline,
    DeviceKind,
    DeviceOption,
    Devices,
    Duel,
    DuelKind,
    Format,
    Html,
    Lang,
    Output,
    Peers,
    Project,
    Release,
    Seed,
    Strict,
    SuiteKind,
    SuiteOption,
    Targets,
    Threshold,
    Timer,
    TimerKind,
    takes,
)
from perfci.cli.output import (
    conclude,
    get_command,
    print_answer,
    print_lines,
    print_verdicts,
    relative,
    write_json,
)
from perfci.cli.progress import Progress
from perfci.cli.soak import print_soak
from perfci.cli.thresholds import tighten_after_check
from perfci.core import deadline as deadlines
from perfci.core.errors import UsageError
from perfci.core.model import DuelWhat, Suite
from perfci.core.settings import Settings, are_devices
from perfci.core.wording import say, sentence
from perfci.judge.notes import note_missing_peers
from perfci.runs import flow
from perfci.runs.again import again
from perfci.runs.chains import ChainOptions
from perfci.runs.effective_thresholds import parsed
from perfci.runs.plan import DEFAULT_BUDGET_S, Request
from perfci.runs.release import creep
from perfci.runs.shards import Part, check_shard
from perfci.runs.soak import SoakOptions
from perfci.runs.tightening import refuse_in_pipeline

SUITES = {
    SuiteKind.BOTH: (Suite.ACCURACY, Suite.PERFORMANCE),
    SuiteKind.ACCURACY: (Suite.ACCURACY,),
    SuiteKind.PERFORMANCE: (Suite.PERFORMANCE,),
}


@takes(
    "ops case device budget seed strict html suite timer against duel base_python target devices deadline threshold"
    " peers write_adaptive_thresholds",
    {
        "no_judge": "ops case device budget seed suite timer devices peers",
        "static": "ops case against target strict threshold",
        "retry": "device budget seed timer devices deadline out strict html",
        "against_release": "ops case release device budget seed timer devices deadline threshold out strict html",
        "chain": "ops case device seed",
        "soak": "ops case calls decay_limit device seed timer",
        "plan": "shard device devices deadline",
    },
)
def check(
    ops: Annotated[
        list[str],
        typer.Argument(metavar="OP...", show_default="all ops", help="Ops to check; with --chain names of chains."),
    ] = [],  # noqa: B006 - typer reads the default, nobody changes it
    case: Case = None,
    no_judge: Annotated[
        bool, typer.Option("--no-judge", show_default="off", help="Write reports/run.json, and judge nothing.")
    ] = False,
    static: Annotated[
        bool,
        typer.Option("--static", show_default="off", help="Compile without a device, and judge what changed."),
    ] = False,
    retry: Annotated[
        Path | None,
        typer.Option(
            "--retry",
            metavar="RUN",
            show_default="none",
            help="Duel a run's INCONCLUSIVE cases, each with the last commit at which it was conclusive.",
        ),
    ] = None,
    against_release: Annotated[
        bool,
        typer.Option(
            "--against-release",
            show_default="off",
            help="Duel every case with the last release: finds slow-downs that came bit by bit.",
        ),
    ] = False,
    release: Release = None,
    chain: Annotated[
        bool,
        typer.Option("--chain", show_default="off", help="Check chains of ops as a model calls them, stage by stage."),
    ] = False,
    soak: Annotated[
        bool,
        typer.Option(
            "--soak", show_default="off", help="Call ops a thousand times, on streams and threads, on huge arrays."
        ),
    ] = False,
    calls: Annotated[
        int | None,
        typer.Option(
            "--calls",
            metavar="N",
            min=2,
            max=10**7,
            show_default="1000; 24 without an accelerator",
            help="Calls of each test of --soak.",
        ),
    ] = None,
    decay_limit: Annotated[
        float,
        typer.Option(
            "--decay-limit",
            metavar="PERCENT",
            min=0,
            max=1000,
            help="With --soak: a call may become slower by this over all calls.",
        ),
    ] = 3.0,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", show_default="none", help="Measure one shard; `ci merge` judges."),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            metavar="I/N",
            show_default="none",
            help="Which one, such as $CI_NODE_INDEX/$CI_NODE_TOTAL; goes with --plan.",
        ),
    ] = None,
    device: DeviceOption = DeviceKind.AUTO,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="S",
            min=0.01,
            max=3600,
            show_default="1.0; with --retry twice the run's own",
            help="Device time a case for the first looks, seconds.",
        ),
    ] = None,
    seed: Seed = None,
    suite: SuiteOption = SuiteKind.BOTH,
    timer: Timer = TimerKind.AUTO,
    against: Against = None,
    duel: Duel = DuelKind.CHANGED,
    base_python: BasePython = None,
    target: Targets = None,
    devices: Devices = None,
    deadline: Deadline = None,
    threshold: Threshold = [],  # noqa: B006
    peers: Peers = False,
    write_adaptive_thresholds: Annotated[
        bool,
        typer.Option(
            "--write-adaptive-thresholds",
            show_default="off",
            help="After a green check, tighten thresholds by all accepted runs; not in merge requests.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            show_default="again/ or creep/ in the project's reports/",
            help="Where --retry and --against-release write.",
        ),
    ] = None,
    strict: Strict = False,
    html: Html = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Verify, measure, compare with the base revision and the baselines, judge, and write reports/."""
    json = output is Format.JSON
    if devices is not None and not are_devices(devices):
        raise UsageError("devices_malformed", devices=devices)
    limit = deadlines.find(deadline, os.environ, time.time())
    if plan is not None and shard is None:
        raise UsageError("option_needs", option="--plan", needed="--shard I/N")
    where = language.load(project)
    if plan is not None and shard is not None:
        part = _read_part(plan, shard, str(device), devices, limit)
        return _check_shard(part, where, json=json)
    if chain:
        return print_chains(ChainOptions(tuple(ops), case, str(device), seed), where, json=json)
    if soak:
        options = SoakOptions(tuple(ops), case, calls, decay_limit / 100, str(device), seed, str(timer))
        return print_soak(options, where, json=json)
    request = Request(
        ops=tuple(ops),
        pattern=case,
        device=str(device),
        budget_s=DEFAULT_BUDGET_S if budget is None else budget,
        seed=seed,
        timer=str(timer),
        suites=SUITES[suite],
        against=against,
        duel=DuelWhat(str(duel)),
        base_python=base_python,
        targets=tuple(name.strip() for name in (target or "").split(",") if name.strip()),
        devices=devices,
        thresholds=parsed(threshold) if threshold else {},
        peers=peers,
    )
    if no_judge:
        return _measure(request, where, json=json)
    timed = dataclasses.replace(request, deadline=limit.deadline, deadline_note=limit.note)
    if static:
        return _check_static(request, where, strict=strict, json=json)
    if retry:
        timed = dataclasses.replace(timed, budget_s=budget or 0.0)  # 0: twice the earlier run's
        return _check_again(retry, timed, _writing_to(where, "again", out), strict=strict, json=json, html=html)
    if against_release:
        where = _writing_to(where, "creep", out)
        return _check_release(release, timed, where, strict=strict, json=json, html=html)
    if write_adaptive_thresholds:
        refuse_in_pipeline()
    with Progress() as progress:
        run, judgements = flow.check(where, timed, get_command(), progress)
    code = conclude(run, judgements, where, strict=strict, json=json, html=html)
    return tighten_after_check(code, where, json=json) if write_adaptive_thresholds else code


COMMANDS = {"check": check}


def _writing_to(where: Settings, folder: str, out: Path | None = None) -> Settings:
    """With a reports folder of its own, so that the run of a plain check stays."""
    return dataclasses.replace(where, reports=out.resolve() if out else where.reports / folder)


def _check_static(request: Request, where: Settings, *, strict: bool, json: bool) -> int:
    """Compile without a device, and judge."""
    where = _writing_to(where, "static")
    request = dataclasses.replace(request, device="cpu", suites=(Suite.PERFORMANCE,))
    with Progress() as progress:
        run, judgements = flow.static(where, request, get_command(), progress)
    return conclude(run, judgements, where, strict=strict, json=json)


def _check_again(path: Path, request: Request, where: Settings, *, strict: bool, json: bool, html: bool) -> int:
    """Duel what is INCONCLUSIVE in an earlier run, and report as a check does."""
    earlier = store.read_run(path)
    if (path if path.is_dir() else path.parent).resolve() == where.reports:
        raise UsageError("again_over_run", path=str(path))
    with Progress() as progress:
        run, judgements = again(where, earlier, request, get_command(), progress)
    if run.plan.ops:
        return conclude(run, judgements, where, strict=strict, json=json, html=html)
    if json:
        print_answer(run, judgements)
    else:
        print_lines(say("Nothing of run {run} is to be duelled again.", run=earlier.id))
    return Exit.OK


def _check_release(
    release: str | None, request: Request, where: Settings, *, strict: bool, json: bool, html: bool
) -> int:
    """Duel with the release and report as a check does; a sentence and 0 if there is nothing to duel with."""
    request = dataclasses.replace(request, suites=(Suite.PERFORMANCE,))
    with Progress() as progress:
        run, judgements = creep(where, request, get_command(), progress, release)
    if run.plan.ops:
        return conclude(run, judgements, where, strict=strict, json=json, html=html)
    if json:
        print_answer(run, judgements)
    else:
        print_lines(*map(sentence, judgements.notes), say("Nothing was duelled."))
    return Exit.OK


def _measure(request: Request, where: Settings, *, json: bool) -> int:
    """Measure without judging."""
    with Progress() as progress:
        run = flow.measure(where, dataclasses.replace(request, duel=DuelWhat.NONE), get_command(), progress)
    path = where.reports / store.RUN_FILE
    if json:
        write_json(path.read_text(encoding="utf-8"))
        return Exit.OK
    missing = note_missing_peers(run.plan)
    print_lines(
        *([sentence(missing)] if missing else []),
        say("Run: {path}", path=relative(path)),
        say("Next: `perfci compare` judges it, `perfci report` renders it."),
    )
    return Exit.OK


def _read_part(plan: Path, shard: str, device: str, devices: str | None, limit: deadlines.Found) -> Part:
    sharded, digest = store.read_plan(plan)
    numbers = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard, re.ASCII)
    if not numbers:
        raise UsageError("shard_malformed", shard=shard)
    return Part(sharded, digest, int(numbers[1]), int(numbers[2]), device, devices, limit)


def _check_shard(part: Part, where: Settings, *, json: bool) -> int:
    """Measure one shard; `perfci ci merge` judges it, so this ends with 0 unless perfci itself fails."""
    where = dataclasses.replace(where, reports=where.reports / "shards" / str(part.index))
    with Progress() as progress:
        run, judgements = check_shard(where, part, get_command(), progress)
    if json:
        print_answer(run, judgements)
        return Exit.OK
    shard = f"{part.index}/{part.count}"
    if run.ops:
        print_verdicts(run, judgements, shard=shard)
    else:
        print_lines(say("Shard {shard}: there is nothing for it to measure.", shard=shard))
    print_lines(say("Run: {path}", path=relative(where.reports / store.RUN_FILE)))
    return Exit.OK
