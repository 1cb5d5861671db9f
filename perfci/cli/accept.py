"""`perfci accept`: runs stored as baselines, a new environment as a step, and both proposed from a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfci import store
from perfci.cli import language, proposals, rebaselines, tables
from perfci.cli.exits import Exit
from perfci.cli.options import HERE, Case, Format, Lang, Ops, Output, Project, takes
from perfci.cli.output import print_json, print_parts
from perfci.gitlab.propose import ProposalOptions
from perfci.runs.accept_runs import AcceptOptions, accept_runs
from perfci.runs.rebaseline import RebaselineOptions, rebaseline_runs


@takes(
    "runs op case add dirty",
    {
        "slower": "runs op case add dirty why",
        "environment": "runs op cases write why include_unexplained include_changed_code dirty",
        "propose": "source to target branch base title dry_run",
    },
)
def accept(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", show_default="the project's reports/", help="One or more runs of one device and timer."
        ),
    ] = [],  # noqa: B006
    op: Ops = [],  # noqa: B006
    case: Case = None,
    add: Annotated[
        bool,
        typer.Option("--add", show_default="off", help="Keep the blocks stored so far, and put these beside them."),
    ] = False,
    dirty: Annotated[
        bool,
        typer.Option("--dirty", show_default="off", help="Accept runs of a work tree with uncommitted changes too."),
    ] = False,
    slower: Annotated[
        bool,
        typer.Option(
            "--slower", show_default="off", help="Accept the cases that are slower, and no others; needs --why."
        ),
    ] = False,
    why: Annotated[
        str | None,
        typer.Option(
            "--why",
            metavar="TEXT",
            show_default="none",
            help="Why cases may be slower, or what changed around the kernels: it begins an epoch or a step.",
        ),
    ] = None,
    environment: Annotated[
        bool,
        typer.Option(
            "--environment",
            show_default="off",
            help="Show what a new driver, torch or board moved since the baselines; --write stores it as a step.",
        ),
    ] = False,
    cases: Annotated[
        bool, typer.Option("--cases", show_default="off", help="With --environment: show every case under its op.")
    ] = False,
    write: Annotated[
        bool,
        typer.Option("--write", show_default="off", help="With --environment: store the numbers anew, with a step."),
    ] = False,
    include_unexplained: Annotated[
        list[str],
        typer.Option(
            "--include-unexplained",
            metavar="OP",
            show_default="none",
            help="With --environment: take cases of this op too whose kernel moved and whose reference did not.",
        ),
    ] = [],  # noqa: B006
    include_changed_code: Annotated[
        list[str],
        typer.Option(
            "--include-changed-code",
            metavar="OP",
            show_default="none",
            help="With --environment: take this op although its files changed since its baseline.",
        ),
    ] = [],  # noqa: B006
    propose: Annotated[
        bool,
        typer.Option(
            "--propose",
            show_default="off",
            help="Propose changed baselines and thresholds in a GitLab merge request; runs nothing of the project.",
        ),
    ] = False,
    source: Annotated[
        Path,
        typer.Option(
            "--from",
            metavar="DIR",
            help="With --propose: the project as another job left it, of which baselines/ and thresholds/ are read.",
        ),
    ] = HERE,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="With --propose: merge-request; push, to the target branch; or the name of a data branch to push to.",
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
        bool,
        typer.Option(
            "--dry-run", show_default="off", help="With --propose: print what would be proposed, and write nothing."
        ),
    ] = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Store runs as the baselines of later runs, with a line of history each; exit 2 if anything was refused."""
    json = output is Format.JSON
    if propose:
        wanted = ProposalOptions(to=to, target=target, branch=branch, base=base, title=title, dry_run=dry_run)
        return proposals.propose(source, wanted, project, json=json)
    where = language.load(project)
    found = [store.read_run(path) for path in runs or [where.reports]]
    if environment:
        options = RebaselineOptions(write, why or "", tuple(include_unexplained), tuple(include_changed_code), dirty)
        moved = rebaseline_runs(found, where, op, options)
        if json:
            print_json(rebaselines.to_json(moved))
        else:
            print_parts(rebaselines.shown(moved, by_case=cases, wrote=write))
        return rebaselines.exit_code(moved)
    reason = (why or "") if slower else None
    accepted = accept_runs(found, where, op, AcceptOptions(add, dirty, reason, case))
    if json:
        print_json(
            [{"op": one.op, "accepted": one.accepted, "refused": one.refused, "said": one.said} for one in accepted]
        )
    else:
        print_parts(tables.acceptances(accepted))
    return Exit.GATE_FAILED if any(one.refused for one in accepted) else Exit.OK


COMMANDS = {"accept": accept}
