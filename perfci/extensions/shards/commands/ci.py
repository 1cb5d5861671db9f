"""`perfci ci plan` and `perfci ci merge`: a plan for several runners, and their runs merged."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from perfci import store
from perfci.cli import language, options
from perfci.cli.check import make_request
from perfci.cli.exits import Exit
from perfci.cli.output import conclude, get_command, print_lines, relative, write_json
from perfci.cli.parsing import Command, argument, flag, option
from perfci.cli.progress import Progress
from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.core.wording import say, sentence
from perfci.extensions.shards.joined import merge_shards
from perfci.extensions.shards.plans import ShardPlan, list_runs, plan_shards, read_plan, refuse_foreign_plan, write_plan
from perfci.report.text import BLOCK_LIMIT, plain
from perfci.store import signature
from perfci.store.files import encode

SHOWN = 8  # ops of a shard that are named


def add_commands(ci: Any) -> None:
    """Add both to the commands of `perfci ci`."""
    ci.command("plan", cls=Command)(plan)
    ci.command("merge", cls=Command)(merge)


def plan(
    ops: options.Ops = [],  # noqa: B006
    backend: options.Backends = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    budget: options.Budget = 1.0,
    seed: options.Seed = None,
    suite: options.SuiteOption = "both",
    timer: options.Timer = "auto",
    against: options.Against = None,
    duel: options.Duel = "changed",
    shards: Annotated[int, option("--shards", "How many runners share the ops.", metavar="N", min=1, max=10_000)] = 1,
    balance: Annotated[
        Path | None, option("--balance", "A run by whose times the shards are balanced.", "none", "RUN")
    ] = None,
    out: Annotated[Path, option("--out", "Where to write.", metavar="FILE")] = Path("plan.json"),
    every: Annotated[bool, flag("--all", "Measure what is unchanged by its files too.")] = False,
    threshold: options.Threshold = [],  # noqa: B006
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Fix what several runners will measure: changed ops, shards, families; imports nothing if files show it."""
    where = language.load(project)
    # Asked before the work that it is to hold the result of. The reports folder is made by perfci itself.
    if out.resolve().parent != where.reports.resolve() and not out.parent.is_dir():
        raise UsageError("out_folder_missing", path=str(out), folder=str(out.parent))
    request = make_request(
        ops, case, device, suite, against, duel, threshold, backends=backend, budget_s=budget, seed=seed, timer=timer
    )
    with Progress() as progress:
        plan = plan_shards(where, request, progress, shards, store.read_run(balance) if balance else None, every=every)
    path = write_plan(plan, out)
    if output == "json":
        write_json(encode(plan, path).decode())
    else:
        print_lines(*(plain(line, BLOCK_LIMIT) for line in _describe_plan(plan)))
        print_lines(say("Plan: {path}", path=relative(path)))
    return Exit.OK


def merge(
    plan: Annotated[
        Path, option("--plan", "Plan that `ci plan` wrote.", metavar="FILE", group=options.OTHERWISE)
    ] = Path("plan.json"),
    runs: Annotated[list[Path], argument("RUN...", "Runs of its shards, or the folder that holds them.", "none")] = [],  # noqa: B006
    out: Annotated[Path | None, option("--out", "Where to write.", "the project's reports/", "DIR")] = None,
    ops: options.OpsOfRun = [],  # noqa: B006
    backend: options.Backends = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    suite: options.SuiteOption = "both",
    against: options.Against = None,
    duel: options.Duel = "changed",
    threshold: options.Threshold = [],  # noqa: B006
    strict: options.Strict = False,
    html: options.Html = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Join the runs of a plan's shards, judge them as one, and write reports/; needs no device and no torch.

    Options that choose what is compared are those that the plan was made with.
    """
    where = language.load(project)
    where = dataclasses.replace(where, reports=out.resolve()) if out else where
    sharded, digest = read_plan(plan)
    paths = [run for given in runs for run in list_runs(given)]
    target = (where.reports / store.RUN_FILE).resolve()
    if target in {path.resolve() for path in paths}:
        raise UsageError("merge_over_shard", path=str(target))
    request = make_request(ops, case, device, suite, against, duel, threshold, backends=backend)
    refuse_foreign_plan(where, sharded, request)
    for path in paths:
        signature.check(path)
    parts = [(store.read_run(path), path.parent) for path in paths]
    with store.claim_reports(where.reports):
        run, judgements = merge_shards(where, sharded, digest, parts, get_command())
    return conclude(run, judgements, where, strict=strict, json=output == "json", html=html)


def _describe_plan(plan: ShardPlan) -> Iterator[str]:
    """The base, what is left to measure, and each shard's share."""
    run, base = [op for op in plan.ops if op.shard], plan.plan.base
    if base:
        yield say("Compared with {name} ({commit}).", name=base.name, commit=base.commit[:10])
    counts = {"run": len(run), "ops": len(plan.ops), "family": plan.family, "duels": plan.plan.duel_family}
    yield say(
        "{run} of {ops} ops are measured; {family} performance cases are tested together, {duels} at most in duels.",
        **counts,
    )
    minutes, seconds = divmod(round(plan.seconds), 60)
    facts = {"minutes": minutes, "seconds": seconds, "seed": plan.plan.seed}
    yield say("Device time: about {minutes} min {seconds} s in all; seed {seed}.", **facts)
    if plan.plan.put_aside:
        yield sentence(Reason("boards_put_aside", {"boards": ", ".join(plan.plan.put_aside)}))
    for number in range(1, plan.shards + 1):
        mine = [case for case in run if case.shard == number]
        names = [planned.op for planned in mine[:SHOWN]] + (
            [f"... (+{len(mine) - SHOWN})"] if len(mine) > SHOWN else []
        )
        share = {"number": number, "count": plan.shards, "seconds": sum(planned.seconds for planned in mine)}
        yield say("Shard {number}/{count}: about {seconds:n} s: {ops}", ops=", ".join(names) or "-", **share)
