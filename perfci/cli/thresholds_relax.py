"""`perfci thresholds relax`: a threshold looser for a time, with a reason and a last day."""

from __future__ import annotations

from pathlib import Path

from perfci.cli import answers, language
from perfci.cli.exits import Exit
from perfci.cli.thresholds_tighten import print_all, reason_data, text
from perfci.core.wording import say, sentence
from perfci.report.text import plain
from perfci.runs.effective_thresholds import place, relaxed_note
from perfci.runs.relaxing import RelaxOptions
from perfci.runs.relaxing import relax as relaxed


def relax(options: RelaxOptions, project: Path, *, json: bool) -> int:
    """Write the entry, and say what it does."""
    where = language.load(project)
    done = relaxed(where, options)
    note = relaxed_note(done.entry, None)
    if json:
        answers.print_record({**reason_data(note), "written": place(done.path, where.root), "replaced": done.replaced})
        return Exit.OK
    path = plain(place(done.path, where.root))
    new = say("Written: {path}", path=path)
    print_all([text(say("Written in the place of an older entry: {path}", path=path) if done.replaced else new)])
    print_all([text(sentence(note))])
    print_all([text(say("It holds for merge requests once it is on their target branch: commit it."))])
    return Exit.OK
