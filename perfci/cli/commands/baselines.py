"""Commands that store runs as baselines, and propose such changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfci.cli.options import HERE, Case, Format, Lang, Ops, Output, Project


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
    from perfci.runs.rebaseline import RebaselineOptions

    wishes = RebaselineOptions(write, why, tuple(include_unexplained), tuple(include_changed_code), dirty)
    return answers.rebaseline(runs, op, project, wishes, cases=cases, json=output is Format.JSON)


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
    from perfci.gitlab.propose import ProposalOptions

    options = ProposalOptions(to=to, target=target, branch=branch, base=base, title=title, dry_run=dry_run)
    return proposals.propose(source, options, project, json=output is Format.JSON)
