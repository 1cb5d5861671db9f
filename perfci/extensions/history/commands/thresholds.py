"""`perfci thresholds`: what every case is judged by, shown, tightened by accepted runs, relaxed for a time."""

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated

from rich.console import RenderableType

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import STYLES, Grid, Paragraph, print_found
from perfci.cli.parsing import Command, argument, flag, make_group, option
from perfci.core import units
from perfci.core.model import Gate, Reason
from perfci.core.wording import say, sentence
from perfci.extensions.history.origins import Explained, Layer, Value, explain
from perfci.extensions.history.origins import relax as write_relaxed
from perfci.extensions.history.tightening import Tightened, refuse_in_pipeline
from perfci.extensions.history.tightening import tighten as tighten_by_history
from perfci.report.data import write_plain
from perfci.report.text import plain, shorten
from perfci.report.view import make_table
from perfci.runs.effective_thresholds import relaxed_note
from perfci.thresholds.layers import TAU
from perfci.thresholds.write import show as show_number

_RUN = 12  # characters of a run's id

thresholds = make_group(
    "thresholds", "What every case is judged by: show where it comes from, tighten what was earned, relax for a time."
)


@thresholds.command("show", cls=Command)
def show(
    ops: options.Ops = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceKey = None,
    key: Annotated[str | None, option("--key", "Only this threshold, such as tau.", "all", "KEY")] = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Explain every value in force: built in, a file's line, earned by accepted runs, or relaxed; measures nothing."""
    values = explain(language.load(project), ops, case, device, key)
    print_found(values, _show_values(values), json=output == "json")
    return Exit.OK


@thresholds.command("tighten", cls=Command)
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
    tightened = tighten_by_history(where, ops, device, write=write, pattern=case)
    print_found(tightened, _show_earned(tightened, wrote=write), json=output == "json")
    return Exit.PERFCI_FAILED if any(one.failure for one in tightened) else Exit.OK


@thresholds.command("relax", cls=Command)
def relax(
    key: Annotated[str, argument("KEY", "The threshold, such as tau.")],
    why: Annotated[str, option("--why", "The reason, stored with it.", metavar="TEXT")],
    until: Annotated[str, option("--until", "Last day on which it holds: 2027-01-31; a year at most.", metavar="DATE")],
    ops: Annotated[list[str], options.name_op(options.REQUIRED)] = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceKey = None,
    value: Annotated[
        str | None, option("--value", "Allowed meanwhile: '3 %'.", "what people wrote, nothing earned", "VALUE")
    ] = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Loosen a threshold for a time, by an entry with a reason and a last day in the op's file."""
    where = language.load(project)
    op = options.take_one(ops)
    entry, replaced = write_relaxed(where, key, op, why=why, until=until, case=case, device=device, to=value)
    note, path = relaxed_note(entry, None), plain(entry.file)
    answer = {**write_plain(note), "written": entry.file, "replaced": replaced}
    new = say("Written: {path}", path=path)
    written = say("Written in the place of an older entry: {path}", path=path) if replaced else new
    commit = say("It holds for merge requests once it is on their target branch: commit it.")
    print_found(answer, [written, sentence(note), commit], json=output == "json")
    return Exit.OK


COMMANDS = {"thresholds": thresholds}


def _show_values(table: Sequence[Explained]) -> Iterator[RenderableType]:
    for one in table:
        yield _head(one.op, one.device)
        apart = Reason("earned_apart", {"ops": one.op, "device": one.device, "fields": one.apart})
        for reason in (*one.ended, *([apart] if one.apart else [])):
            yield Paragraph(reason, 2, STYLES[Gate.WARNS])
        for case, group in groupby(one.values, lambda value: value.case):
            values = list(group)
            yield Paragraph(case or say("every case that is not listed below"), 2)
            lines = [
                (
                    say("{key} from {length} us on", key=value.key, length=value.part)
                    if value.part and value.key == TAU
                    else f"{value.key} {value.part}".strip(),
                    say("anything") if value.value is None else value.text,
                    write_chance(value.predicted),
                    say("built in") if value.layer is Layer.BUILT_IN else str(value.origin),
                )
                for value in values
            ]
            below = [[Paragraph(text, 6, "dim") for text in _describe_record(value)] for value in values]
            yield Grid(make_table("key | value | false alarms: | from", lines), below=below, indent=4)
    if not table:
        yield say("There are no ops here.")


def _head(op: str, device: str | None) -> Paragraph:
    return Paragraph(say("{op} on {device}", op=op, device=device) if device else op, style="bold")


def _describe_record(each: Value) -> Iterator[str]:
    if each.relaxed:
        yield sentence(relaxed_note(each.relaxed, None))
    earned = each.earned
    if earned is None:
        return
    value, before, began, after = (
        show_number(earned.key, n) for n in (earned.value, earned.before, earned.began, earned.after)
    )
    text = say(
        "earned {value} on {date}: from {before}, began at {began}, runs {runs}: {first} .. {last}",
        **{"value": value, "before": before, "began": began, "date": earned.date, "runs": earned.runs},
        first=earned.first or "-",
        last=earned.last or "-",
    )
    yield text if each.layer is Layer.EARNED else f"{text}; {say('it has no effect now')}"
    if earned.edited:
        yield say("edited by hand since: perfci wrote {after}", after=after)
    if earned.why:
        yield earned.why


def _show_earned(tighteneds: Sequence[Tightened], *, wrote: bool) -> Iterator[RenderableType]:
    """Every op with what it has earned, then what became of it."""
    for one in tighteneds:
        if one.moves or one.said or one.failure:
            yield from _show_op(one)
    moved = sum(len(one.changes) for one in tighteneds if not one.failure)
    anew = sum(len(one.anew) for one in tighteneds if not one.failure)
    if not tighteneds:
        yield sentence(Reason("tighten_no_history"))
    elif not any(one.moves for one in tighteneds):
        yield say("Nothing to tighten: every threshold is as tight as its accepted runs allow.")
    elif wrote:
        yield say("Thresholds that were tightened: {count}; gone back: {anew}.", count=moved, anew=anew)
    else:
        yield say("Thresholds to tighten: {count}; to go back: {anew}. Nothing was written.", count=moved, anew=anew)
        yield say("Write them: `perfci thresholds tighten --write`")


def _show_op(one: Tightened) -> Iterator[RenderableType]:
    yield _head(one.op, one.device)
    yield from (Paragraph(reason, 2) for reason in one.said)
    for case, group in groupby(zip(one.changes, one.whys, strict=True), lambda change: change[0].case):
        changes = list(group)
        yield Paragraph(case, 2)
        lines = [
            (
                change.key,
                *(show_number(change.key, value) for value in (change.before, change.after, change.bound)),
                write_chance(change.predicted),
                f"{change.runs}: {shorten(change.first or '-', _RUN)} .. {shorten(change.last or '-', _RUN)}",
            )
            for change, _ in changes
        ]
        below = [[Paragraph(change.why or why, 6, "dim")] for change, why in changes]
        yield Grid(make_table("key | now | becomes | ends at | false alarms: | runs", lines), below=below, indent=4)
    if one.failure:
        yield Paragraph(one.failure, 2, STYLES[Gate.FAILS])
    if one.path:
        yield Paragraph(say("Written: {path}", path=one.path), 2, STYLES[Gate.OK])


def write_chance(value: float | None) -> str:
    """A share of case checks. If no simulation saw one, it is less than that could have seen."""
    if value is None:
        return "-"
    return "< 0.01 %" if value < 0.0001 else f"{100 * value:.2g} %" if value < 0.01 else units.percent(value)
