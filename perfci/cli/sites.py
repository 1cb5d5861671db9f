"""`perfci site`: the kept history as pages."""

from __future__ import annotations

from pathlib import Path

from perfci.cli import answers, language
from perfci.cli.exits import Exit
from perfci.cli.histories.data import reason_data
from perfci.core.codec import encode
from perfci.core.wording import say, sentence
from perfci.report import site
from perfci.report.site import Built, words
from perfci.report.text import plain
from perfci.runs.effective_thresholds import layered


def build(project: Path, out: Path, *, json: bool) -> int:
    """Build the site; 3 where a history is damaged or there is none, which the site says too."""
    where = language.load(project)
    found = site.build(where.baselines, where.thresholds, where.root, out, layered(where))
    if json:
        answers.write_json(encode(_data(found)).decode())
    else:
        answers.plain(*(plain(sentence(note)) for note in found.notes))
        path = answers.relative(found.index.resolve())
        answers.plain(say("Site: {path} and {pages}.", path=path, pages=words.pages(len(found.pages))))
        if found.gone:
            answers.plain(say("Taken away, since what it showed is gone: {names}", names=", ".join(found.gone)))
    return Exit.WARNINGS if found.notes else Exit.OK


def _data(found: Built) -> dict[str, object]:
    notes = [reason_data(note) for note in found.notes]
    return {"index": str(found.index), "pages": found.pages, "gone": found.gone, "notes": notes}
