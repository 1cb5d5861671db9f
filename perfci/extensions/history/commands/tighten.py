"""`perfci thresholds tighten`: what accepted runs have earned, shown and written."""

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated

from rich.console import RenderableType

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.options import flag
from perfci.cli.output import STYLES, Grid, Paragraph, print_found
from perfci.cli.thresholds import head_op, write_chance
from perfci.core.model import Gate, Reason
from perfci.core.wording import say, sentence
from perfci.extensions.history.tightening import Tightened, refuse_in_pipeline
from perfci.extensions.history.tightening import tighten as tighten_by_history
from perfci.report.text import shorten
from perfci.report.view import make_table
from perfci.thresholds.write import show as show_number

_RUN = 12  # characters of a run's id


def tighten(
    ops: options.Ops = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceKey = None,
    write: Annotated[bool, flag("--write", "Write what is shown: thresholds/KEY/OP.json.")] = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Show, and write, what the history of accepted runs has earned: tighter by a quarter of the gap, never looser."""
    where = language.load(project)
    if write:
        refuse_in_pipeline(os.environ)
    found = tighten_by_history(where, ops, device, write=write, pattern=case)
    print_found(found, _show_earned(found, wrote=write), json=output == "json")
    return Exit.PERFCI_FAILED if any(one.failure for one in found) else Exit.OK


COMMANDS = {"thresholds tighten": tighten}


def _show_earned(found: Sequence[Tightened], *, wrote: bool) -> Iterator[RenderableType]:
    """Every op with what it has earned, then what became of it."""
    for one in found:
        if one.moves or one.said or one.failure:
            yield from _show_op(one)
    moved = sum(len(one.changes) for one in found if not one.failure)
    anew = sum(len(one.anew) for one in found if not one.failure)
    if not found:
        yield sentence(Reason("tighten_no_history"))
    elif not any(one.moves for one in found):
        yield say("Nothing to tighten: every threshold is as tight as its accepted runs allow.")
    elif wrote:
        yield say("Thresholds that were tightened: {count}; gone back: {anew}.", count=moved, anew=anew)
    else:
        yield say("Thresholds to tighten: {count}; to go back: {anew}. Nothing was written.", count=moved, anew=anew)
        yield say("Write them: `perfci thresholds tighten --write`")


def _show_op(one: Tightened) -> Iterator[RenderableType]:
    yield head_op(one.op, one.device)
    yield from (Paragraph(reason, 2) for reason in one.said)
    for case, group in groupby(zip(one.changes, one.whys, strict=True), lambda each: each[0].case):
        changes = list(group)
        yield Paragraph(case, 2)
        lines = [
            (
                each.key,
                *(show_number(each.key, value) for value in (each.before, each.after, each.bound)),
                write_chance(each.predicted),
                f"{each.runs}: {shorten(each.first or '-', _RUN)} .. {shorten(each.last or '-', _RUN)}",
            )
            for each, _ in changes
        ]
        below = [[Paragraph(each.why or why, 6, "dim")] for each, why in changes]
        yield Grid(make_table("key | now | becomes | ends at | false alarms: | runs", lines), below=below, indent=4)
    if one.failure:
        yield Paragraph(one.failure, 2, STYLES[Gate.FAILS])
    if one.path:
        yield Paragraph(say("Written: {path}", path=one.path), 2, STYLES[Gate.OK])
