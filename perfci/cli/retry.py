"""`perfci again`: what a run could say nothing about, duelled against the last commits at which something could be."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from perfci import store
from perfci.cli import answers, language
from perfci.cli.exits import Exit
from perfci.cli.progress import Progress
from perfci.core.errors import UsageError
from perfci.core.wording import say
from perfci.runs import again as duels
from perfci.runs.plan import Request

FOLDER = "again"
"""In the project's reports folder, so that the run that is read stays."""


def request(device: str, budget: float | None, seed: int | None, timer: str) -> Request:
    """The options as a request; a budget of 0 is for the pipeline to choose."""
    return Request(device=device, budget_s=budget or 0.0, seed=seed, timer=timer)


def again(path: Path, wanted: Request, project: Path, out: Path | None, *, strict: bool, json: bool, html: bool) -> int:
    """Duel again and report as a check does; at once and with 0 where nothing is INCONCLUSIVE."""
    where = language.load(project)
    where = dataclasses.replace(where, reports=out.resolve() if out else where.reports / FOLDER)
    earlier = store.read_run(path)
    if (path if path.is_dir() else path.parent).resolve() == where.reports:
        raise UsageError("again_over_run", path=str(path))
    with Progress() as progress:
        found, judgements = duels.again(where, earlier, wanted, answers.command(), progress)
    if found.plan.ops:
        return answers.told(found, judgements, where, strict=strict, json=json, html=html)
    if json:
        answers.print_answer(found, judgements)
    else:
        answers.plain(say("Nothing of run {run} is to be duelled again.", run=earlier.id))
    return Exit.OK
