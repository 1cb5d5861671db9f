"""Commands that duel with other revisions of the project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfci.cli.options import (
    HERE,
    Budget,
    Case,
    Deadline,
    DeviceKind,
    DeviceOption,
    Devices,
    Format,
    Html,
    Lang,
    Ops,
    Output,
    Project,
    RunFile,
    Seed,
    Strict,
    SuiteKind,
    Threshold,
    Timer,
    TimerKind,
)


def again(
    run: RunFile,
    device: Annotated[
        DeviceKind, typer.Option("--device", help="Where kernels run; auto takes the kind that the run was on.")
    ] = DeviceKind.AUTO,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="S",
            min=0.01,
            max=3600,
            show_default="twice the run's own",
            help="Device time a case for the first looks, seconds.",
        ),
    ] = None,
    seed: Seed = None,
    timer: Timer = TimerKind.AUTO,
    devices: Devices = None,
    deadline: Deadline = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", show_default="again/ in the project's reports/", help="Where to write."),
    ] = None,
    strict: Strict = False,
    html: Html = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Duel a run's INCONCLUSIVE cases, each against the last commit at which something could be said about it."""
    from perfci.cli import answers, retry

    wanted = retry.request(str(device), budget, seed, str(timer))
    wanted = answers.within(wanted, devices, answers.time_limit(deadline))
    return retry.again(run, wanted, project, out, strict=strict, json=output is Format.JSON, html=html)


def creep(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    release: Annotated[
        str | None,
        typer.Option(
            "--release",
            metavar="REV",
            show_default="the newest tag before HEAD",
            help="What cases are held against: a tag, branch or commit of HEAD's history.",
        ),
    ] = None,
    device: DeviceOption = DeviceKind.AUTO,
    budget: Budget = 1.0,
    seed: Seed = None,
    timer: Timer = TimerKind.AUTO,
    devices: Devices = None,
    deadline: Deadline = None,
    threshold: Threshold = [],  # noqa: B006
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", show_default="creep/ in the project's reports/", help="Where to write."),
    ] = None,
    strict: Strict = False,
    html: Html = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Duel every case with the last release, and so find slow-downs that came bit by bit."""
    from perfci.cli import answers, creeps

    wanted = answers.request(op, case, device, budget, seed, SuiteKind.PERFORMANCE, timer)
    wanted = answers.judged_by(answers.within(wanted, devices, answers.time_limit(deadline)), threshold)
    return creeps.creep(wanted, release, project, out, strict=strict, json=output is Format.JSON, html=html)


def bisect(
    good: Annotated[str, typer.Argument(metavar="GOOD", help="A revision at which the op was still fast, or right.")],
    bad: Annotated[str, typer.Argument(metavar="BAD", help="A later one at which it no longer is.")],
    op: Annotated[
        str | None, typer.Option("--op", metavar="OP", show_default="none: give one", help="The op to look at.")
    ] = None,
    case: Case = None,
    device: DeviceOption = DeviceKind.AUTO,
    budget: Budget = 1.0,
    seed: Seed = None,
    timer: Timer = TimerKind.AUTO,
    first_parent: Annotated[
        bool,
        typer.Option("--first-parent", show_default="off", help="Try the main line only; a merge counts as a whole."),
    ] = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Find the commit between two revisions that made an op slower, or wrong, by duels, and say how sure that is."""
    from perfci.cli import answers, bisects
    from perfci.runs.bisect_revisions import BisectOptions

    request = answers.request([], case, device, budget, seed, "both", timer)
    return bisects.bisect(
        BisectOptions(op or "", good, bad, request, first_parent), project, json=output is Format.JSON
    )
