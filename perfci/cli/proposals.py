"""`perfci accept --propose`: what another job changed, in a merge request or pushed to a branch.

Unlike a note, a proposal that fails is a failed job: nobody else would ever see it.
"""

from __future__ import annotations

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
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.gitlab import propose as proposing
from perfci.gitlab.propose import Fate, ProposalOptions, Proposed
from perfci.report.text import plain


def propose(source: Path, options: ProposalOptions, project: Path, *, json: bool) -> int:
    """Propose, or push. 0 if it is done or nothing was to be done, else 1 with a sentence for each reason."""
    where = _settings(project)
    here = git.read(where.root)
    prefix = proposing.find_prefix(where.root, os.environ, None if isinstance(here, Reason) else here.root)
    done = proposing.propose(source.resolve(), where, options, os.environ, prefix)
    if json:
        print_json(_record(done))
    else:
        print_lines(*map(plain, _told(done)))
    for problem in done.problems:
        print(f"perfci: {plain(sentence(problem))}", file=sys.stderr)
    return Exit.PERFCI_FAILED if done.problems else Exit.OK


def _settings(project: Path) -> Settings:
    """The project's; in a job without a checkout those that hold if nothing else is said."""
    try:
        return language.load(project)
    except UsageError as error:
        if error.reason.kind != "no_project":
            raise
        return settings.at(project.resolve())


def _told(done: Proposed) -> Iterator[str]:
    if done.state is Fate.NOTHING:
        yield say("Nothing to propose: baselines and thresholds are as the branch has them.")
    if done.state is Fate.CONFLICTS or (done.state is Fate.DRY and done.branch is None):
        yield say("Nothing was written.")
    if done.proposal and done.state is not Fate.NOTHING:
        yield from _listed(done)
    if done.state is Fate.DRY and done.branch is not None:
        yield say("Dry run: it would go to branch {branch}, and nothing was written.", branch=done.branch)
    if done.compared:
        yield say(
            "Compared with commit {commit} of this clone: GitLab was not asked.",
            commit=done.compared[:12],
        )
    if done.commit:
        yield say("Commit {commit} on branch {branch}.", commit=done.commit[:12], branch=done.branch)
    if done.merge_request is not None:
        yield say("Merge request !{number}: {url}", number=done.merge_request, url=done.url or "")


def _listed(done: Proposed) -> Iterator[str]:
    assert done.proposal is not None
    found = done.proposal
    yield say(
        "Cases with other medians: {moved}; stored anew with the same: {same}; runs added to histories: {runs}; "
        "thresholds tightened: {thresholds}.",
        moved=len(found.cases),
        same=found.same,
        runs=found.runs,
        thresholds=len(found.thresholds),
    )
    for path in found.files:
        yield f"  {path}"


def _record(done: Proposed) -> dict[str, object]:
    found = done.proposal
    return {
        "state": str(done.state),
        "branch": done.branch,
        "commit": done.commit,
        "merge_request": done.merge_request,
        "url": done.url,
        "files": found.files if found else (),
        "cases": [{**asdict(case), "change": case.change} for case in found.cases] if found else (),
        "thresholds": [asdict(each) for each in found.thresholds] if found else (),
        "problems": [
            {"kind": each.kind, "facts": dict(each.facts), "sentence": sentence(each)} for each in done.problems
        ],
    }
