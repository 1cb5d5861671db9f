"""Commands that share a check among several runners."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfci.cli.options import (
    HERE,
    Against,
    Budget,
    Case,
    DeviceKind,
    DeviceOption,
    Duel,
    DuelKind,
    Format,
    Html,
    Lang,
    Ops,
    Output,
    Peers,
    Project,
    Seed,
    Strict,
    SuiteKind,
    SuiteOption,
    Threshold,
    Timer,
    TimerKind,
)


def plan(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    device: DeviceOption = DeviceKind.AUTO,
    budget: Budget = 1.0,
    seed: Seed = None,
    suite: SuiteOption = SuiteKind.BOTH,
    timer: Timer = TimerKind.AUTO,
    against: Against = None,
    duel: Duel = DuelKind.CHANGED,
    shards: Annotated[
        int, typer.Option("--shards", metavar="N", min=1, max=10_000, help="How many runners share the ops.")
    ] = 1,
    last: Annotated[
        Path | None,
        typer.Option(
            "--last", metavar="RUN", show_default="none", help="A run by whose times the shards are balanced."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write it.")] = Path("plan.json"),
    every: Annotated[
        bool, typer.Option("--all", show_default="off", help="Measure what is unchanged by its files too.")
    ] = False,
    threshold: Threshold = [],  # noqa: B006
    peers: Peers = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Fix what several runners will measure: changed ops, shards, families; imports nothing where files tell."""
    from perfci.cli import answers
    from perfci.cli import shards as sharding

    request = answers.request(op, case, device, budget, seed, suite, timer)
    request = answers.against(request, against, duel, None, None)
    request = answers.beside(answers.judged_by(request, threshold), peers=peers)
    return sharding.plan(request, project, out, shards=shards, last=last, every=every, json=output is Format.JSON)


def merge(
    plan: Annotated[Path, typer.Option("--plan", metavar="FILE", help="The plan of its shards.")] = Path("plan.json"),
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", show_default="none", help="Runs of its shards, or the folder that holds them."
        ),
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", show_default="the project's reports/", help="Where to write it all."),
    ] = None,
    strict: Strict = False,
    html: Html = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Join the runs of a plan's shards, judge them as one, and write reports/; needs no device and no torch."""
    from perfci.cli import shards

    return shards.merge(runs, plan, out, project, strict=strict, json=output is Format.JSON, html=html)
