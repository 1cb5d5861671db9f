"""Commands that run kernels: right and fast, without a device, in chains, and for long."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfci.cli.options import (
    HERE,
    Against,
    BasePython,
    Budget,
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
    Ops,
    Output,
    Peers,
    Project,
    Seed,
    Strict,
    SuiteKind,
    SuiteOption,
    Targets,
    Threshold,
    Timer,
    TimerKind,
)


def check(
    op: Ops = [],  # noqa: B006 - typer reads the default, nobody changes it
    case: Case = None,
    device: DeviceOption = DeviceKind.AUTO,
    budget: Budget = 1.0,
    seed: Seed = None,
    strict: Strict = False,
    html: Html = False,
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
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan", metavar="FILE", show_default="none", help="Measure one shard of a plan; `perfci merge` judges."
        ),
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
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Verify, measure, compare with the base revision and the baselines, judge, and write reports/."""
    from perfci.cli import answers

    if plan is not None or shard is not None:
        from perfci.cli import shards

        # What differs from the defaults was asked for, and the plan has an answer of its own to it.
        fixed: dict[str, object] = {
            "--op": op, "--case": case, "--seed": seed is not None, "--budget": budget != 1.0, "--against": against,
            "--suite": suite is not SuiteKind.BOTH, "--timer": timer is not TimerKind.AUTO, "--target": target,
            "--base-python": base_python, "--duel": duel is not DuelKind.CHANGED, "--strict": strict, "--html": html,
            "--threshold": threshold, "--write-adaptive-thresholds": write_adaptive_thresholds, "--peers": peers,
        }  # fmt: skip
        shards.refuse(fixed)
        return shards.check_part(
            plan, shard, str(device), project, json=output is Format.JSON, devices=devices, deadline=deadline
        )
    request = answers.request(op, case, device, budget, seed, suite, timer)
    request = answers.against(request, against, duel, base_python, target)
    request = answers.within(request, devices, answers.time_limit(deadline))
    request = answers.beside(answers.judged_by(request, threshold), peers=peers)
    if not write_adaptive_thresholds:
        return answers.check(request, project, strict=strict, json=output is Format.JSON, html=html)
    from perfci.cli import thresholds_tighten
    from perfci.runs.tightening import refuse_in_pipeline

    refuse_in_pipeline()
    code = answers.check(request, project, strict=strict, json=output is Format.JSON, html=html)
    return thresholds_tighten.after_check(code, project, json=output is Format.JSON)


def run(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    device: DeviceOption = DeviceKind.AUTO,
    budget: Budget = 1.0,
    seed: Seed = None,
    suite: SuiteOption = SuiteKind.BOTH,
    timer: Timer = TimerKind.AUTO,
    devices: Devices = None,
    peers: Peers = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Verify and measure only: write reports/run.json and judge nothing."""
    from perfci.cli import answers

    request = answers.request(op, case, device, budget, seed, suite, timer)
    request = answers.beside(answers.within(request, devices), peers=peers)
    return answers.run(request, project, json=output is Format.JSON)


def static(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    against: Against = None,
    target: Targets = None,
    strict: Strict = False,
    threshold: Threshold = [],  # noqa: B006
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Compile every case without a device, and say what changed since the base: no noise, on any machine."""
    from perfci.cli import answers

    request = answers.request(op, case, "cpu", 1.0, None, "performance", "auto")
    request = answers.against(request, against, "changed", None, target)
    request = answers.judged_by(request, threshold)
    return answers.static(request, project, strict=strict, json=output is Format.JSON)


def chain(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", show_default="all", help="Chain to check: kernels/_chains/NAME_chain.py."),
    ] = None,
    case: Case = None,
    device: DeviceOption = DeviceKind.AUTO,
    seed: Seed = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Check chains of ops as a model calls them: the whole, and where an error or a NaN came in."""
    from perfci.cli import chaining
    from perfci.runs.chains import ChainOptions

    wishes = ChainOptions(name, case, str(device), seed)
    return chaining.checked(wishes, project, json=output is Format.JSON)


def soak(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    calls: Annotated[
        int | None,
        typer.Option(
            "--calls",
            metavar="N",
            min=2,
            max=10**7,
            show_default="1000; 24 without an accelerator",
            help="Calls of each test.",
        ),
    ] = None,
    decay_limit: Annotated[
        float,
        typer.Option(
            "--decay-limit", metavar="PERCENT", min=0, max=1000, help="A call may become slower by this over all calls."
        ),
    ] = 3.0,
    device: DeviceOption = DeviceKind.AUTO,
    seed: Seed = None,
    timer: Timer = TimerKind.AUTO,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Call ops a thousand times, on streams, from threads and on huge arrays: leaks, decay, answers that change."""
    from perfci.cli import soaking
    from perfci.runs.soak import SoakOptions

    wishes = SoakOptions(tuple(op), case, calls, decay_limit / 100, str(device), seed, str(timer))
    return soaking.soaked(wishes, project, json=output is Format.JSON)
