"""`perfci creep`: what is checked out against the last release, side by side."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from perfci.cli import answers, language
from perfci.cli.exits import Exit
from perfci.cli.progress import Progress
from perfci.core.wording import say, sentence
from perfci.runs import release as duels
from perfci.runs.plan import Request

FOLDER = "creep"
"""In the project's reports folder, so that the check's own run stays."""


def creep(
    wanted: Request, release: str | None, project: Path, out: Path | None, *, strict: bool, json: bool, html: bool
) -> int:
    """Duel with the release and report as a check does; a sentence and 0 where there is nothing to duel with."""
    where = language.load(project)
    where = dataclasses.replace(where, reports=out.resolve() if out else where.reports / FOLDER)
    with Progress() as progress:
        found, judgements = duels.creep(where, wanted, answers.command(), progress, release)
    if found.plan.ops:
        return answers.told(found, judgements, where, strict=strict, json=json, html=html)
    if json:
        answers.print_answer(found, judgements)
    else:
        answers.plain(*map(sentence, judgements.notes), say("Nothing was duelled."))
    return Exit.OK
