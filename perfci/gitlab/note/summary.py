"""The note's text as a job's summary on GitHub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perfci.core.model import Judgements, Reason, Run
from perfci.gitlab.note.body import Links, compose

VARIABLE = "GITHUB_STEP_SUMMARY"

LIMIT = 1_048_576
"""Bytes of a step's summary: beyond them GitHub shows none of it."""

LEAST = 2_000
"""Bytes below which there is no room to say anything."""


def summarise(run: Run, judgements: Judgements, links: Links, environ: Mapping[str, str]) -> Reason | None:
    """Append the note's text, without pictures, to the file that GITHUB_STEP_SUMMARY names; why not, or None.

    Nothing is done, and nothing is wrong, where that is not set.
    """
    name = environ.get(VARIABLE, "")
    if not name:
        return None
    path = Path(name)
    bare = Links(links.report, links.job, links.pipeline)
    try:
        taken = path.stat().st_size if path.exists() else 0
        room = LIMIT - taken - 2
        if room < LEAST:
            return Reason("step_summary_full", {"path": name, "taken": taken})
        text = compose(run, judgements, bare, limit=room)
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"\n{text}" if taken else text)
    except OSError as error:
        return Reason("step_summary_unwritable", {"path": name, "why": error.strerror or str(error)})
    return None
