"""`perfci note`: the merge request's note, and GitHub's summary of a step. What fails here warns, and gates nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from perfci import store
from perfci.cli import language
from perfci.cli.exits import Exit
from perfci.core.errors import UsageError
from perfci.core.model import Judgements, Reason, Run
from perfci.core.wording import say, sentence
from perfci.gitlab import note
from perfci.gitlab.note_text import compose, find_links, marker
from perfci.report.text import BLOCK_LIMIT, plain
from perfci.runs.decide import decide


def post(path: Path, project: Path, *, report: str | None, key: str, dry_run: bool) -> int:
    """Post the note on a stored run, or print it; exit 0 whatever becomes of it."""
    where = language.load(project)
    _refuse_malformed(key)
    run = store.read_run(path)
    judgements = decide(run, where)
    if dry_run:
        sys.stdout.write(compose(run, judgements, find_links(os.environ, report), key=key))
        return Exit.OK
    _warn([*_posted(run, judgements, report, key), *_summed(run, judgements)])
    return Exit.OK


def _refuse_malformed(key: str) -> None:
    try:
        marker(key)
    except ValueError as error:
        raise UsageError("note_key_malformed", key=key) from error


def _posted(run: Run, judgements: Judgements, report: str | None, key: str) -> Iterable[Reason]:
    """Why the note is not there, or not whole. On GitHub, where there is no note, that is no news."""
    target = note.find_target(os.environ)
    if isinstance(target, Reason):
        return [] if os.environ.get("GITHUB_STEP_SUMMARY") else [target]
    done = note.post(run, judgements, target, find_links(os.environ, report), key=key)
    if done.note is not None:
        new, old = (
            say("The note is new: {number}.", number=done.note),
            say("The note stands: {number}.", number=done.note),
        )
        print(new if done.created else old)
    return done.problems


def _summed(run: Run, judgements: Judgements) -> Iterable[Reason]:
    problem = note.append_summary(run, judgements, find_links(os.environ), os.environ)
    return [problem] if problem else []


def _warn(problems: Iterable[Reason]) -> None:
    for problem in problems:
        print(f"perfci: {plain(sentence(problem), BLOCK_LIMIT)}", file=sys.stderr)
