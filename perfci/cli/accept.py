"""`perfci accept`: runs stored as baselines, a new environment as a step, and both proposed from a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from perfci import store
from perfci.cli import language, options, proposals, rebaselines
from perfci.cli.exits import Exit
from perfci.cli.output import STYLES, Paragraph, print_json, print_parts
from perfci.core.model import Gate
from perfci.core.wording import say
from perfci.gitlab.propose import ProposalOptions
from perfci.report.words import count_cases
from perfci.runs.accept import Acceptance
from perfci.runs.accept_runs import AcceptOptions, accept_runs
from perfci.runs.rebaseline import RebaselineOptions, rebaseline_runs


@options.takes(
    "runs op case add dirty",
    {
        "slower": "runs op case add dirty why",
        "environment": "runs op cases write why include_unexplained include_changed_code dirty",
        "propose": "source to target branch base title dry_run",
    },
)
def accept(
    runs: Annotated[
        list[Path], options.argument("RUN...", "One or more runs of one device and timer.", "the project's reports/")
    ] = [],  # noqa: B006
    op: options.Ops = [],  # noqa: B006
    case: options.Case = None,
    add: Annotated[bool, options.flag("--add", "Keep the blocks stored so far, and put these beside them.")] = False,
    dirty: Annotated[bool, options.flag("--dirty", "Accept runs of a work tree with uncommitted changes too.")] = False,
    slower: Annotated[
        bool, options.flag("--slower", "Accept the cases that are slower, and no others; needs --why.")
    ] = False,
    why: Annotated[
        str | None,
        options.option(
            "--why",
            "Why cases may be slower, or what changed around the kernels: it begins an epoch or a step.",
            "none",
            "TEXT",
        ),
    ] = None,
    environment: Annotated[
        bool,
        options.flag(
            "--environment",
            "Show what a new driver, torch or board moved since the baselines; --write stores it as a step.",
        ),
    ] = False,
    cases: Annotated[bool, options.flag("--cases", "With --environment: show every case under its op.")] = False,
    write: Annotated[bool, options.flag("--write", "With --environment: store the numbers anew, with a step.")] = False,
    include_unexplained: Annotated[
        list[str],
        options.option(
            "--include-unexplained",
            "With --environment: take cases of this op too whose kernel moved and whose reference did not.",
            "none",
            "OP",
        ),
    ] = [],  # noqa: B006
    include_changed_code: Annotated[
        list[str],
        options.option(
            "--include-changed-code",
            "With --environment: take this op although its files changed since its baseline.",
            "none",
            "OP",
        ),
    ] = [],  # noqa: B006
    propose: Annotated[
        bool,
        options.flag(
            "--propose",
            "Propose changed baselines and thresholds in a GitLab merge request; runs nothing of the project.",
        ),
    ] = False,
    source: Annotated[
        Path,
        options.option(
            "--from",
            "With --propose: the project as another job left it, of which baselines/ and thresholds/ are read.",
            metavar="DIR",
        ),
    ] = options.HERE,
    to: Annotated[
        str,
        options.option(
            "--to",
            "With --propose: merge-request; push, to the target branch; or the name of a data branch to push to.",
            metavar="WHERE",
        ),
    ] = "merge-request",
    target: Annotated[
        str | None, options.option("--target", "Branch that is to get the files.", "$CI_DEFAULT_BRANCH", "BRANCH")
    ] = None,
    branch: Annotated[
        str, options.option("--branch", "Branch of the merge request.", metavar="NAME")
    ] = "perfci/nightly",
    base: Annotated[
        str | None,
        options.option(
            "--base",
            "Full id of the commit whose files the other job began with: only what differs is proposed.",
            "$CI_COMMIT_SHA",
            "COMMIT",
        ),
    ] = None,
    title: Annotated[
        str | None, options.option("--title", "Of the merge request and commit.", "perfci's own", "TEXT")
    ] = None,
    dry_run: Annotated[
        bool, options.flag("--dry-run", "With --propose: print what would be proposed, and write nothing.")
    ] = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Store runs as the baselines of later runs, with a line of history each; exit 2 if anything was refused."""
    json = output == "json"
    if propose:
        wanted = ProposalOptions(to=to, target=target, branch=branch, base=base, title=title, dry_run=dry_run)
        return proposals.propose(source, wanted, project, json=json)
    where = language.load(project)
    found = [store.read_run(path) for path in runs or [where.reports]]
    if environment:
        step = RebaselineOptions(write, why or "", tuple(include_unexplained), tuple(include_changed_code), dirty)
        moved = rebaseline_runs(found, where, op, step)
        if json:
            print_json(rebaselines.to_json(moved))
        else:
            print_parts(rebaselines.show_moves(moved, by_case=cases, wrote=write))
        return rebaselines.get_exit_code(moved)
    reason = (why or "") if slower else None
    accepted = accept_runs(found, where, op, AcceptOptions(add, dirty, reason, case))
    if json:
        print_json(
            [{"op": one.op, "accepted": one.accepted, "refused": one.refused, "said": one.said} for one in accepted]
        )
    else:
        print_parts(describe_acceptances(accepted))
    return Exit.GATE_FAILED if any(one.refused for one in accepted) else Exit.OK


COMMANDS = {"accept": accept}


def describe_acceptances(accepted: Sequence[Acceptance]) -> Iterator[Paragraph]:
    """What went into the baselines, and what did not and why."""
    for one in accepted:
        text = say("{op}: {cases} accepted", op=one.op, cases=count_cases(len(one.accepted)))
        text += say(", {count} refused", count=len(one.refused)) if one.refused else ""
        yield Paragraph(text, style=STYLES[Gate.FAILS if one.refused else Gate.OK])
        yield from (Paragraph(reason, 2) for reason in (*one.refused, *one.said))
