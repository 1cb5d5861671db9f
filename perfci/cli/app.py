"""The commands and their options; what they do stands in `answers`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import perfci
from perfci.cli.options import (
    HERE,
    Against,
    Baseline,
    BasePython,
    Budget,
    Case,
    Deadline,
    DeviceKey,
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
    RunFile,
    Seed,
    Strict,
    SuiteKind,
    SuiteOption,
    TableFormat,
    Targets,
    Threshold,
    Timer,
    TimerKind,
)

app = typer.Typer(
    name="perfci",
    help="Is each Triton kernel still right, and still fast? A verdict that can be trusted, with its reason.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich takes as long to import as all the rest of `perfci --help`
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Exit codes: 0 ok, 1 perfci itself failed, 2 the gate failed, 3 only warnings, 129, 130 and 143 stopped.",
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> int | None:
    """Hold the options that stand before any command."""
    if version:
        typer.echo(f"perfci {perfci.__version__}")
        raise typer.Exit
    return None


@app.command()
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
    from perfci.pipeline.tightening import refuse_in_pipeline

    refuse_in_pipeline()
    code = answers.check(request, project, strict=strict, json=output is Format.JSON, html=html)
    return thresholds_tighten.after_check(code, project, json=output is Format.JSON)


@app.command()
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


@app.command()
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


@app.command()
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
    from perfci.cli import agains, answers

    wanted = agains.request(str(device), budget, seed, str(timer))
    wanted = answers.within(wanted, devices, answers.time_limit(deadline))
    return agains.again(run, wanted, project, out, strict=strict, json=output is Format.JSON, html=html)


@app.command()
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


@app.command()
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


@app.command()
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


@app.command()
def selftest(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    device: DeviceOption = DeviceKind.AUTO,
    budget: Budget = 1.0,
    seed: Seed = None,
    timer: Timer = TimerKind.AUTO,
    devices: Devices = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Try perfci on this machine: unchanged kernels pass, a planted slow-down and a planted error are found."""
    from perfci.cli import answers

    request = answers.request(op, case, device, budget, seed, "both", timer)
    request = answers.within(request, devices)
    return answers.selftest(request, project, json=output is Format.JSON)


@app.command()
def compare(
    run: RunFile,
    baseline: Baseline = None,
    strict: Strict = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Judge a run against stored baselines or another run; needs no device and no torch."""
    from perfci.cli import answers

    return answers.compare(run, baseline, project, strict=strict, json=output is Format.JSON)


@app.command()
def report(
    run: RunFile,
    baseline: Baseline = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", show_default="beside the run", help="Where to write it."),
    ] = None,
    html: Html = False,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Render a run as Markdown and pictures, JUnit and metrics; needs no device and no torch."""
    from perfci.cli import answers

    return answers.report(run, baseline, out, project, html=html)


@app.command()
def site(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="A new or empty folder, or one that perfci site made.")
    ] = Path("public"),
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Build a static site over the kept history: ops and devices, and a page an op with its trends."""
    from perfci.cli import sites

    return sites.build(project, out, json=output is Format.JSON)


@app.command()
def note(
    run: RunFile,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="PATH",
            show_default="reports/report.md of the job",
            help="The report's place among the job's artefacts, or its address.",
        ),
    ] = None,
    key: Annotated[
        str, typer.Option("--key", metavar="NAME", help="Tells this note from others of perfci in one merge request.")
    ] = "check",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", show_default="off", help="Print the note, and post nothing.")
    ] = False,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Post a run's note in its GitLab merge request, and on GitHub in the step's summary; never fails a job."""
    from perfci.cli import notes

    return notes.post(run, project, report=report, key=key, dry_run=dry_run)


@app.command()
def accept(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="One or more runs of the same device and timer.")
    ],
    op: Ops = [],  # noqa: B006
    add: Annotated[
        bool,
        typer.Option("--add", show_default="off", help="Keep the blocks stored so far, and put these beside them."),
    ] = False,
    dirty: Annotated[
        bool,
        typer.Option("--dirty", show_default="off", help="Accept runs of a work tree with uncommitted changes too."),
    ] = False,
    case: Case = None,
    slower: Annotated[
        bool,
        typer.Option(
            "--slower", show_default="off", help="Accept the cases that are slower, and no others; needs --why."
        ),
    ] = False,
    why: Annotated[
        str | None,
        typer.Option("--why", metavar="TEXT", show_default="none", help="Why they may be: it begins an epoch."),
    ] = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Store runs as the baselines that later runs are held against, with a line of history each."""
    from perfci.cli import answers

    json = output is Format.JSON
    return answers.accept(runs, op, project, add=add, dirty=dirty, json=json, slower=slower, why=why, case=case)


@app.command()
def history(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="KEY", show_default="all", help="Folder of the device: nvidia-h200."),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--last", metavar="N", min=1, show_default="20", help="Newest runs of each case that are shown."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", show_default="none", help="Draw the cases of one op, too."),
    ] = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Show what accepted runs left behind: each case over time, with epochs and changes of the environment."""
    from perfci.cli import histories

    wishes = histories.Wishes(tuple(op), case, device, last, plot)
    return histories.history(wishes, project, json=output is Format.JSON)


@app.command()
def drift(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="KEY", show_default="all", help="Folder of the device: nvidia-h200."),
    ] = None,
    release: Annotated[
        str | None,
        typer.Option(
            "--release",
            metavar="REV",
            show_default="the newest tag before HEAD with runs enough, else the first runs",
            help="What the last runs are held against: a tag, branch or commit.",
        ),
    ] = None,
    strict: Strict = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Say where accepted runs crept or stepped, between which commits, and what explains it."""
    from perfci.cli import drifting

    return drifting.drift(op, case, device, release, project, strict=strict, json=output is Format.JSON)


@app.command()
def boards(
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="KEY", show_default="all", help="Folder of the device: nvidia-h200."),
    ] = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Hold the boards of a device against each other, from what accepted runs left behind."""
    from perfci.cli import drifting

    return drifting.boards(device, project, json=output is Format.JSON)


@app.command()
def propose(
    source: Annotated[
        Path,
        typer.Option(
            "--from",
            metavar="DIR",
            help="The project as another job left it: its baselines/ and thresholds/ are read, as data.",
        ),
    ] = HERE,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="merge-request; push, to the target branch itself; or the name of a data branch to push to.",
        ),
    ] = "merge-request",
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="BRANCH", show_default="$CI_DEFAULT_BRANCH", help="Branch that is to get the files."
        ),
    ] = None,
    branch: Annotated[
        str, typer.Option("--branch", metavar="NAME", help="Branch of the merge request.")
    ] = "perfci/nightly",
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="COMMIT",
            show_default="$CI_COMMIT_SHA",
            help="Full id of the commit whose files the other job began with: only what differs is proposed.",
        ),
    ] = None,
    title: Annotated[
        str | None,
        typer.Option("--title", metavar="TEXT", show_default="perfci's own", help="Of the merge request and commit."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", show_default="off", help="Print what would be proposed, and write nothing.")
    ] = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Propose changed baselines and thresholds in a GitLab merge request, or push them; runs nothing of the project."""
    from perfci.cli import proposals
    from perfci.propose import Wishes

    wishes = Wishes(to=to, target=target, branch=branch, base=base, title=title, dry_run=dry_run)
    return proposals.propose(source, wishes, project, json=output is Format.JSON)


@app.command()
def rebaseline(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Fresh runs in the environment of now, of one device and timer."),
    ],
    op: Ops = [],  # noqa: B006
    cases: Annotated[bool, typer.Option("--cases", show_default="off", help="Show every case under its op.")] = False,
    write: Annotated[
        bool,
        typer.Option("--write", show_default="off", help="Store the numbers anew, with a step that says why."),
    ] = False,
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", show_default="none", help="What changed around the kernels.")
    ] = "",
    include_unexplained: Annotated[
        list[str],
        typer.Option(
            "--include-unexplained",
            metavar="OP",
            show_default="none",
            help="Take cases of this op too whose kernel moved where its reference did not.",
        ),
    ] = [],  # noqa: B006
    include_changed_code: Annotated[
        list[str],
        typer.Option(
            "--include-changed-code",
            metavar="OP",
            show_default="none",
            help="Take this op although its files changed since its baseline.",
        ),
    ] = [],  # noqa: B006
    dirty: Annotated[
        bool,
        typer.Option("--dirty", show_default="off", help="Take runs of a work tree with uncommitted changes too."),
    ] = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Show what a new driver, torch or board moved since the baselines, op by op; store it as a step."""
    from perfci.cli import answers
    from perfci.pipeline.rebaseline import Wishes

    wishes = Wishes(write, why, tuple(include_unexplained), tuple(include_changed_code), dirty)
    return answers.rebaseline(runs, op, project, wishes, cases=cases, json=output is Format.JSON)


@app.command()
def bisect(
    good: Annotated[str, typer.Argument(metavar="GOOD", help="A revision at which the op was still fast, or right.")],
    bad: Annotated[str, typer.Argument(metavar="BAD", help="A later one at which it no longer is.")],
    op: Annotated[
        str | None, typer.Option("--op", metavar="OP", show_default="none: it is needed", help="The op to look at.")
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
    from perfci.pipeline.bisect_revisions import Wishes

    request = answers.request([], case, device, budget, seed, "both", timer)
    return bisects.bisect(Wishes(op or "", good, bad, request, first_parent), project, json=output is Format.JSON)


@app.command()
def tune(
    op: Annotated[str, typer.Argument(metavar="OP", help="The op whose configurations are searched.")],
    case: Case = None,
    device: DeviceOption = DeviceKind.AUTO,
    budget: Annotated[
        float,
        typer.Option(
            "--budget",
            metavar="S",
            min=0.01,
            max=7 * 24 * 3600,
            help="Seconds that this call searches; the next goes on.",
        ),
    ] = 600.0,
    device_spec: Annotated[
        str | None,
        typer.Option(
            "--device-spec",
            metavar="NAME",
            show_default="the device at hand",
            help="Tune by a static model for a device that is not here: a file of kernels/_devices, such as low-bw.",
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", show_default="off", help="Write the tuned file instead of showing the diff.")
    ] = False,
    seed: Seed = None,
    timer: Timer = TimerKind.AUTO,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Search an op's configurations: a coarse grid, then steps around the best; checking never tunes."""
    from perfci.cli import tuning
    from perfci.pipeline.tuning import Wishes

    wishes = Wishes(op, case, str(device), budget, seed, str(timer), device_spec, write)
    return tuning.tuned(wishes, project, json=output is Format.JSON)


@app.command()
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
    from perfci.pipeline.chains import Wishes

    wishes = Wishes(name, case, str(device), seed)
    return chaining.checked(wishes, project, json=output is Format.JSON)


@app.command()
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
    from perfci.pipeline.soak import Wishes

    wishes = Wishes(tuple(op), case, calls, decay_limit / 100, str(device), seed, str(timer))
    return soaking.soaked(wishes, project, json=output is Format.JSON)


@app.command("list")
def list_(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    device: DeviceOption = DeviceKind.AUTO,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """List the ops and their cases."""
    from perfci.cli import answers

    return answers.list_ops(op, case, device, project, json=output is Format.JSON)


@app.command()
def show(
    run: RunFile,
    op: Ops = [],  # noqa: B006
    case: Case = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Show a run in detail: every case's times, blocks, compiled kernels and errors."""
    from perfci.cli import answers

    return answers.show(run, op, case, project, json=output is Format.JSON)


@app.command()
def export(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One or more runs, one behind the other.")],
    output: Annotated[TableFormat, typer.Option("--format", help="parquet needs the package pyarrow.")] = (
        TableFormat.CSV
    ),
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", show_default="standard output", help="File to write, or to replace."),
    ] = None,
    verdicts: Annotated[
        bool,
        typer.Option(
            "--verdicts", show_default="off", help="Judge the runs too: verdict, reason and change of each case."
        ),
    ] = False,
    project: Annotated[
        Path | None,
        typer.Option(
            "--project",
            metavar="DIR",
            show_default="the one around each run",
            help="A folder of the project that judges.",
        ),
    ] = None,
    lang: Lang = None,
) -> int:
    """Write what was measured as a table, one row a block and arm: for pandas, a spreadsheet, a database."""
    from perfci.cli import exports

    return exports.export(runs, str(output), out, project, verdicts=verdicts)


@app.command()
def doctor(output: Output = Format.TEXT, project: Project = HERE, lang: Lang = None) -> int:
    """Look at this machine: what is installed, the device, its timer and state, and known traps."""
    from perfci.cli import answers

    return answers.doctor(project, json=output is Format.JSON)


@app.command()
def init(
    owners: Annotated[
        list[str],
        typer.Option(
            "--owners",
            metavar="@TEAM",
            show_default="a line to fill in",
            help="Who approves changes to thresholds/ and baselines/; repeat for several.",
        ),
    ] = [],  # noqa: B006
    install: Annotated[
        str | None,
        typer.Option(
            "--install",
            metavar="SPEC",
            show_default="as perfci was installed here",
            help="What pip installs perfci from in CI, such as git+https://HOST/perfci.git@TAG.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", show_default="off", help="Show the changes, and write nothing.")
    ] = False,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Set a repository up: folders, thresholds, settings, CI jobs, owners; shows what it adds, takes nothing away."""
    from perfci.cli import inits

    return inits.set_up(project, owners, install, dry_run=dry_run)


@app.command("new")
def new_(
    op: Annotated[
        str, typer.Argument(metavar="OP", help="Name of the op, perhaps in folders: flash, attention/flash.")
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE:FUNCTION",
            show_default="a kernel to fill in",
            help="Make an op of a function that launches Triton kernels.",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="PATH",
            show_default="none",
            help="What --from is compared with, by its dotted path: torch.nn.functional.softmax.",
        ),
    ] = None,
    sketches: Annotated[
        Path | None,
        typer.Option(
            "--from-kernelgen", metavar="DIR", show_default="none", help="Make an op of KernelGen's files in a folder."
        ),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", min=0, show_default="the newest", help="Which of KernelGen's versions."),
    ] = None,
    fake: Annotated[
        bool,
        typer.Option("--fake", show_default="off", help="An op for the fake device, to try perfci out without torch."),
    ] = False,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Write a new op's four files: ready to run, around a function that you have, or of KernelGen's sketches."""
    from perfci.cli import news

    return news.make(op, project, source=source, reference=reference, sketches=sketches, version=version, fake=fake)


@app.command()
def demo(
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", show_default="a temporary folder", help="Where to build the project."),
    ] = None,
    lang: Lang = None,
) -> int:
    """See a red gate in ten seconds: a fake device, one kernel made slower and one wrong. No torch needed."""
    from perfci.cli import demo as demonstration

    return demonstration.demo(keep)


thresholds = typer.Typer(
    name="thresholds",
    help="What every case is judged by: show where it comes from, tighten what was earned, relax for a time.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
app.add_typer(thresholds)


@thresholds.command("show")
def thresholds_show(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    device: DeviceKey = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", show_default="all", help="Only this threshold, such as tau.")
    ] = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Explain every value in force: built in, a file's line, earned by accepted runs, or relaxed; measures nothing."""
    from perfci.cli import thresholds_show as showing
    from perfci.pipeline.origins import Wishes

    return showing.show(Wishes(tuple(op), case, device, key), project, json=output is Format.JSON)


@thresholds.command("tighten")
def thresholds_tighten(
    op: Ops = [],  # noqa: B006
    device: DeviceKey = None,
    write: Annotated[
        bool, typer.Option("--write", show_default="off", help="Write thresholds/KEY/OP.yaml; without, only show.")
    ] = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Show, and write, what the history of accepted runs has earned: tighter by a quarter of the gap, never looser."""
    from perfci.cli import thresholds_tighten as tightening
    from perfci.pipeline.tightening import Wishes

    return tightening.tighten(Wishes(tuple(op), device, write), project, json=output is Format.JSON)


@thresholds.command("relax")
def thresholds_relax(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The threshold, such as tau.")],
    op: Annotated[str, typer.Option("--op", metavar="OP", help="The op whose file gets the entry.")],
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Why, for whoever reads it later.")],
    until: Annotated[
        str, typer.Option("--until", metavar="DATE", help="Last day on which it holds: 2027-01-31; a year at most.")
    ],
    case: Case = None,
    device: DeviceKey = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="VALUE", show_default="what people wrote, nothing earned", help="Allowed meanwhile: '3 %'."
        ),
    ] = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Loosen a threshold for a time, by an entry with a reason and a last day in the op's file."""
    from perfci.cli import thresholds_relax as relaxing
    from perfci.pipeline.relaxing import Wishes

    wishes = Wishes(key, op, why, until, case, device, to)
    return relaxing.relax(wishes, project, json=output is Format.JSON)
