"""`perfci accept`: runs stored as baselines, a new environment as a step, and both proposed from a pipeline."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from perfci import git, store
from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.options import argument, flag, option
from perfci.cli.output import STYLES, Paragraph, print_found, print_json, print_lines, tell_of
from perfci.core import settings
from perfci.core.errors import UsageError
from perfci.core.model import Gate, Reason
from perfci.core.wording import say, sentence
from perfci.gitlab import propose as proposing
from perfci.gitlab.propose import Fate, ProposalOptions, Proposed
from perfci.report.data import pick
from perfci.report.text import plain
from perfci.report.words import count_cases
from perfci.runs.accept import Acceptance
from perfci.runs.accept_runs import AcceptOptions, accept_runs


@options.takes(
    "runs ops case dirty",
    {
        "slower": "runs ops case dirty why",
        "environment": "runs ops write why include dirty",
        "propose": "artifacts way target branch against dry_run",
    },
)
def accept(
    runs: Annotated[
        list[Path], argument("RUN...", "One or more runs of one device and timer.", "the project's reports/")
    ] = [],  # noqa: B006
    ops: options.OpsOfRun = [],  # noqa: B006
    case: options.Case = None,
    dirty: Annotated[bool, flag("--dirty", "Accept runs of a work tree with uncommitted changes too.")] = False,
    slower: Annotated[bool, flag("--slower", "Accept the cases that are slower, and no others; needs --why.")] = False,
    why: Annotated[
        str | None,
        option("--why", "The reason, stored with it: why cases may be slower, or what changed.", "none", "TEXT"),
    ] = None,
    environment: Annotated[
        bool, flag("--environment", "Show what a new driver, torch or board moved; see --write.")
    ] = False,
    write: Annotated[
        bool, flag("--write", "Write what is shown: with --environment the numbers anew, with a step.")
    ] = False,
    include: Annotated[
        list[str], option("--include", "With --environment: take this op whatever changed.", "none", "OP")
    ] = [],  # noqa: B006
    propose: Annotated[
        bool, flag("--propose", "Propose baselines and thresholds in a merge request; runs no kernels.")
    ] = False,
    artifacts: Annotated[
        Path, option("--artifacts", "With --propose: the project's folder as another job left it.", metavar="DIR")
    ] = options.HERE,
    way: Annotated[
        str,
        option("--as", "With --propose: merge-request, push (to the target), or a branch.", metavar="WHERE"),
    ] = "merge-request",
    target: Annotated[
        str | None, option("--target-branch", "Branch that is to get the files.", "$CI_DEFAULT_BRANCH", "BRANCH")
    ] = None,
    branch: Annotated[str, option("--branch", "Branch of the merge request.", metavar="NAME")] = "perfci/nightly",
    against: Annotated[
        str | None,
        options.compare_with("COMMIT", "$CI_COMMIT_SHA", "the commit that the other job began with, its full id"),
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Show what would be done, and do nothing: with --propose.")] = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Store runs as the baselines of later runs, with a line of history each; exit 2 if anything was refused."""
    json = output == "json"
    if propose:
        wanted = ProposalOptions(to=way, target=target, branch=branch, base=against, dry_run=dry_run)
        return _propose(artifacts, wanted, project, json=json)
    where = language.load(project)
    found = [store.read_run(path) for path in runs or [where.reports]]
    tell_of(found[0], *(runs or [where.reports]))
    if environment:
        rebaseline = options.require_extension("environment", "history", "--environment")
        return Exit(rebaseline(found, where, ops, why or "", tuple(include), write=write, dirty=dirty, json=json))
    accepted = accept_runs(found, where, ops, AcceptOptions(dirty, (why or "") if slower else None, case))
    print_found([pick(one, "op accepted refused said") for one in accepted], describe_acceptances(accepted), json=json)
    return Exit.GATE_FAILED if any(one.refused for one in accepted) else Exit.OK


COMMANDS = {"accept": accept}


def describe_acceptances(accepted: Sequence[Acceptance]) -> Iterator[Paragraph]:
    """What went into the baselines, and what did not and why."""
    for one in accepted:
        text = say("{op}: {cases} accepted", op=one.op, cases=count_cases(len(one.accepted)))
        text += say(", {count} refused", count=len(one.refused)) if one.refused else ""
        yield Paragraph(text, style=STYLES[Gate.FAILS if one.refused else Gate.OK])
        yield from (Paragraph(reason, 2) for reason in (*one.refused, *one.said))


def _propose(source: Path, wanted: ProposalOptions, project: Path, *, json: bool) -> int:
    """Proposes or pushes. A proposal that fails is a failed job: nobody else would ever see it."""
    try:
        where = language.load(project)
    except UsageError as error:
        if error.reason.kind != "no_project":
            raise
        where = settings.at(project.resolve())  # in a job without a checkout
    here = git.read(where.root)
    prefix = proposing.find_prefix(where.root, os.environ, None if isinstance(here, Reason) else here.root)
    done = proposing.propose(source.resolve(), where, wanted, os.environ, prefix)
    found = done.proposal
    if json:
        answer = pick(done, "state branch commit merge_request url problems")
        answer["files"] = found.files if found else ()
        answer["cases"] = [{**asdict(case), "change": case.change} for case in found.cases] if found else ()
        answer["thresholds"] = [asdict(each) for each in found.thresholds] if found else ()
        print_json(answer)
    else:
        print_lines(*map(plain, _describe_proposed(done)))
    for problem in done.problems:
        print(f"perfci: {plain(sentence(problem))}", file=sys.stderr)
    return Exit.PERFCI_FAILED if done.problems else Exit.OK


def _describe_proposed(done: Proposed) -> Iterator[str]:
    found = done.proposal
    if done.state is Fate.NOTHING:
        yield say("Nothing to propose: baselines and thresholds are as the branch has them.")
    elif found:
        yield say(
            "Cases with other medians: {moved}; stored anew with the same: {same}; runs added to histories: {runs}; "
            "thresholds tightened: {thresholds}.",
            moved=len(found.cases),
            same=found.same,
            runs=found.runs,
            thresholds=len(found.thresholds),
        )
        yield from (f"  {path}" for path in found.files)
    if done.state is Fate.CONFLICTS:
        yield say("Nothing was written.")
    if done.state is Fate.DRY:
        yield say("Dry run: it would go to branch {branch}, and nothing was written.", branch=done.branch)
    if done.commit:
        yield say("Commit {commit} on branch {branch}.", commit=done.commit[:12], branch=done.branch)
    if done.merge_request is not None:
        yield say("Merge request !{number}: {url}", number=done.merge_request, url=done.url or "")
