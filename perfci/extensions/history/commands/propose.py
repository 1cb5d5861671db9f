"""`perfci accept --propose`: baselines and thresholds proposed from a pipeline."""

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from perfci import git
from perfci.cli import language
from perfci.cli.exits import Exit
from perfci.cli.output import print_json, print_lines
from perfci.core import settings
from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.core.wording import say, sentence
from perfci.extensions.history.propose import Fate, ProposalOptions, Proposed, find_prefix, propose
from perfci.report.data import pick
from perfci.report.text import plain


def propose_files(source: Path, branch: str, base: str | None, project: Path, *, dry_run: bool, json: bool) -> Exit:
    """A proposal that fails is a failed job: it would be seen nowhere else."""
    wanted = ProposalOptions(branch, base, dry_run)
    try:
        where = language.load(project)
    except UsageError as error:
        if error.reason.kind != "no_project":
            raise
        where = settings.at(project.resolve())  # in a job without a checkout
    here = git.read(where.root)
    prefix = find_prefix(where.root, os.environ, None if isinstance(here, Reason) else here.root)
    done = propose(source.resolve(), where, wanted, os.environ, prefix)
    proposal = done.proposal
    if json:
        answer = pick(done, "state branch commit merge_request url problems")
        answer["files"] = proposal.files if proposal else ()
        answer["cases"] = [{**asdict(case), "change": case.change} for case in proposal.cases] if proposal else ()
        answer["thresholds"] = [asdict(threshold) for threshold in proposal.thresholds] if proposal else ()
        print_json(answer)
    else:
        print_lines(*map(plain, _describe_proposed(done)))
    for problem in done.problems:
        print(f"perfci: {plain(sentence(problem))}", file=sys.stderr)
    return Exit.PERFCI_FAILED if done.problems else Exit.OK


def _describe_proposed(done: Proposed) -> Iterator[str]:
    proposal = done.proposal
    if done.state is Fate.NOTHING:
        yield say("Nothing to propose: baselines and thresholds are as the branch has them.")
    elif proposal:
        yield say(
            "Cases with other medians: {moved}; stored anew with the same: {same}; runs added to histories: {runs}; "
            "thresholds tightened: {thresholds}.",
            moved=len(proposal.cases),
            same=proposal.same,
            runs=proposal.runs,
            thresholds=len(proposal.thresholds),
        )
        yield from (f"  {path}" for path in proposal.files)
    if done.state is Fate.CONFLICTS:
        yield say("Nothing was written.")
    if done.state is Fate.DRY:
        yield say("Dry run: it would go to branch {branch}, and nothing was written.", branch=done.branch)
    if done.commit:
        yield say("Commit {commit} on branch {branch}.", commit=done.commit[:12], branch=done.branch)
    if done.merge_request is not None:
        yield say("Merge request !{number}: {url}", number=done.merge_request, url=done.url or "")
