"""`perfci thresholds`: what every case is judged by, shown, tightened by accepted runs, relaxed for a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import print_json, print_parts, reason_data
from perfci.cli.tables import STYLES, Shown, wrapped
from perfci.core import units
from perfci.core.model import Gate, Reason
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.report.text import NAME_LIMIT, plain, shorten
from perfci.runs.effective_thresholds import place, relaxed_note, shown
from perfci.runs.origins import Explained, ExplainOptions, Layer, Value, explain
from perfci.runs.relaxing import RelaxOptions
from perfci.runs.relaxing import relax as write_relaxed
from perfci.runs.tightening import Tightened, TightenOptions, refuse_in_pipeline
from perfci.runs.tightening import tighten as tighten_by_history
from perfci.thresholds.layers import TAU, Earned

WIDTH = 100
"""Columns of everything that is printed."""

_KEY, _VALUE, _ALARMS = 24, 11, 12
_RUN = 12
"""Characters of a run's id."""

_SHOWN_WIDTHS = (_KEY, _VALUE, _ALARMS, 0)
_MOVED_WIDTHS = (16, _VALUE, _VALUE, _VALUE, _ALARMS, 0)

thresholds = typer.Typer(
    name="thresholds",
    help="What every case is judged by: show where it comes from, tighten what was earned, relax for a time.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=options.CONTEXT,
)


@thresholds.command("show", cls=options.Command)
def show(
    op: options.Ops = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceKey = None,
    key: Annotated[str | None, options.option("--key", "Only this threshold, such as tau.", "all", "KEY")] = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Explain every value in force: built in, a file's line, earned by accepted runs, or relaxed; measures nothing."""
    found = explain(language.load(project), ExplainOptions(tuple(op), case, device, key))
    if output == "json":
        print_json([_explained_data(one) for one in found])
    else:
        print_parts(_explain(found))
    return Exit.OK


@thresholds.command("tighten", cls=options.Command)
def tighten(
    op: options.Ops = [],  # noqa: B006
    device: options.DeviceKey = None,
    write: Annotated[bool, options.flag("--write", "Write thresholds/KEY/OP.yaml; without, only show.")] = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Show, and write, what the history of accepted runs has earned: tighter by a quarter of the gap, never looser."""
    where = language.load(project)
    if write:
        refuse_in_pipeline()
    found = tighten_by_history(where, TightenOptions(tuple(op), device, write))
    if output == "json":
        print_json([_tightened_data(one, where) for one in found])
    else:
        print_parts(_tightened(found, where, wrote=write))
    return Exit.PERFCI_FAILED if any(one.failure for one in found) else Exit.OK


@thresholds.command("relax", cls=options.Command)
def relax(
    key: Annotated[str, options.argument("KEY", "The threshold, such as tau.")],
    op: Annotated[str, options.option("--op", "The op whose file gets the entry.", metavar="OP")],
    why: Annotated[str, options.option("--why", "Why, for whoever reads it later.", metavar="TEXT")],
    until: Annotated[
        str, options.option("--until", "Last day on which it holds: 2027-01-31; a year at most.", metavar="DATE")
    ],
    case: options.Case = None,
    device: options.DeviceKey = None,
    to: Annotated[
        str | None, options.option("--to", "Allowed meanwhile: '3 %'.", "what people wrote, nothing earned", "VALUE")
    ] = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Loosen a threshold for a time, by an entry with a reason and a last day in the op's file."""
    where = language.load(project)
    done = write_relaxed(where, RelaxOptions(key, op, why, until, case, device, to))
    note = relaxed_note(done.entry, None)
    if output == "json":
        print_json({**reason_data(note), "written": place(done.path, where.root), "replaced": done.replaced})
        return Exit.OK
    path = plain(place(done.path, where.root))
    new = say("Written: {path}", path=path)
    print_parts(
        text(each)
        for each in (
            say("Written in the place of an older entry: {path}", path=path) if done.replaced else new,
            sentence(note),
            say("It holds for merge requests once it is on their target branch: commit it."),
        )
    )
    return Exit.OK


COMMANDS = {"thresholds": thresholds}


def tighten_after_check(code: int, where: Settings, *, json: bool) -> int:
    """Write what is earned after a check of this exit code; gives the command's.

    Only accepted runs count, so that the check itself, which nobody has accepted yet, tightens nothing; after one that
    is not green nothing is written at all. Where a program reads the answer, what is said goes to standard error.
    """
    if code != Exit.OK:
        _print_beside(sentence(Reason("tighten_gate")), json=json)
        return code
    found = tighten_by_history(where, TightenOptions(write=True))
    if json:
        moved = sum(len(one.changes) for one in found)
        _print_beside(say("Thresholds that were tightened: {count}.", count=moved), json=True)
    else:
        print_parts(_tightened(found, where, wrote=True))
    failures = [one.failure for one in found if one.failure]
    for reason in failures if json else ():
        _print_beside(sentence(reason), json=True)
    return Exit.PERFCI_FAILED if failures else code


def _print_beside(text: str, *, json: bool) -> None:
    print(plain(text), file=sys.stderr if json else sys.stdout)


# --- for programs


def _explained_data(one: Explained) -> Mapping[str, Any]:
    """Ratios are of 1, times microseconds."""
    return {
        "op": one.op,
        "device": one.device,
        "apart": one.apart,
        "ended": [reason_data(each) for each in one.ended],
        "values": [_value_data(each) for each in one.values],
    }


def _value_data(each: Value) -> Mapping[str, Any]:
    return {
        "case": each.case,
        "key": each.key,
        "part": each.part or None,
        "value": each.value,
        "text": each.text,
        "layer": str(each.layer),
        "file": each.origin.file,
        "line": each.origin.line or None,
        "under_case": each.origin.case,
        "predicted": each.predicted,
        "earned": _earned_data(each.earned) if each.earned else None,
        "relaxed": reason_data(relaxed_note(each.relaxed, None)) if each.relaxed else None,
    }


def _tightened_data(one: Tightened, where: Settings) -> Mapping[str, Any]:
    """Every field; ratios are of 1."""
    return {
        "op": one.op,
        "device": one.device,
        "changes": [
            {**_earned_data(each), "sentence": sentence(why), "kind": why.kind, "facts": dict(why.facts)}
            for each, why in zip(one.changes, one.whys, strict=True)
        ],
        "anew": [_earned_data(each) for each in one.anew],
        "renamed": dict(one.renamed),
        "said": [reason_data(each) for each in one.said],
        "failure": reason_data(one.failure) if one.failure else None,
        "written": place(one.path, where.root) if one.path else None,
    }


def _earned_data(each: Earned) -> Mapping[str, Any]:
    """A value with its record."""
    names = ("case", "key", "value", "bound", "began", "predicted", "date", "runs", "first", "last", "rescaled", "why")
    found = {name: getattr(each, name) for name in names}
    return {**found, "from": each.before, "to": each.after, "edited": each.edited}


# --- for people


def _explain(found: Sequence[Explained]) -> Iterator[RenderableType]:
    for at, one in enumerate(found):
        if at:
            yield Text("")
        yield from _explained_op(one)
    if not found:
        yield text(say("There are no ops here."))


def _explained_op(one: Explained) -> Iterator[RenderableType]:
    name = plain(one.op, NAME_LIMIT)
    facts = {"op": name, "device": plain(one.device or "", NAME_LIMIT)}
    yield Text(say("{op} on {device}", **facts) if one.device else name, style="bold")
    for reason in _said(one):
        yield text(sentence(reason), "  ", STYLES[Gate.WARNS])
    common = [each for each in one.values if each.case is None]
    if common:
        yield Text(f"  {say('every case that is not listed below')}")
        yield from _table(common)
    for case in dict.fromkeys(each.case for each in one.values if each.case is not None):
        yield from (Text(line) for line in wrapped(plain(case, NAME_LIMIT), "  ", WIDTH))
        yield from _table([each for each in one.values if each.case == case])


def _said(one: Explained) -> Iterator[Reason]:
    yield from one.ended
    if one.apart:
        yield Reason("earned_apart", {"ops": one.op, "device": one.device, "fields": one.apart})


def _table(values: Sequence[Value]) -> Iterator[RenderableType]:
    heads = (say("key"), say("value"), say("false alarms"), say("from"))
    yield Text("    " + _columns(heads, _SHOWN_WIDTHS), style="dim")
    for each in values:
        source = say("built in") if each.layer is Layer.BUILT_IN else plain(str(each.origin), NAME_LIMIT)
        line = "    " + _columns((_key(each), _text(each), chance(each.predicted), source), _SHOWN_WIDTHS)
        yield from (Text(part) for part in ([line] if cell_len(line) <= WIDTH else _broken(line, source)))
        yield from (text(told, "      ", "dim") for told in _record(each))


def _broken(line: str, source: str) -> list[str]:
    """A file's name that is too long goes on a line of its own."""
    return [line.removesuffix(source).rstrip(), *wrapped(source, "      ", WIDTH)]


def _key(each: Value) -> str:
    if not each.part:
        return each.key
    if each.key == TAU:
        return say("{key} from {length} us on", key=each.key, length=each.part)
    return f"{each.key} {each.part}"


def _text(each: Value) -> str:
    return say("anything") if each.value is None else each.text


def _record(each: Value) -> Iterator[str]:
    if each.relaxed:
        yield sentence(relaxed_note(each.relaxed, None))
    if each.earned is None:
        return
    own = each.earned
    facts = {
        "value": shown(own.key, own.value),
        "before": shown(own.key, own.before),
        "began": shown(own.key, own.began),
        "date": own.date,
        "runs": own.runs,
        "first": plain(own.first or "-", NAME_LIMIT),
        "last": plain(own.last or "-", NAME_LIMIT),
    }
    told = say("earned {value} on {date}: from {before}, began at {began}, runs {runs}: {first} .. {last}", **facts)
    if each.layer is Layer.EARNED:
        yield told
    else:
        yield f"{told}; {say('it has no effect now')}"
    if own.edited:
        yield say("edited by hand since: perfci wrote {after}", after=shown(own.key, own.after))
    if own.why:
        yield plain(own.why)


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * max(width - cell_len(cell), 0) for cell, width in zip(cells, widths, strict=True)]
    return " ".join(padded).rstrip()


def _tightened(found: Sequence[Tightened], where: Settings, *, wrote: bool) -> Iterator[RenderableType]:
    """Every op with what it has earned, then what became of it."""
    for one in found:
        if one.moves or one.said or one.failure:
            yield from _tightened_op(one, where)
    moved = sum(len(one.changes) for one in found if not one.failure)
    anew = sum(len(one.anew) for one in found if not one.failure)
    if not found:
        yield text(sentence(Reason("tighten_no_history")))
    elif not (moved or anew or any(one.moves for one in found)):
        yield text(say("Nothing to tighten: every threshold is as tight as its accepted runs allow."))
    elif wrote:
        yield text(say("Thresholds that were tightened: {count}; gone back: {anew}.", count=moved, anew=anew))
    else:
        told = say("Thresholds to tighten: {count}; to go back: {anew}. Nothing was written.", count=moved, anew=anew)
        yield text(told)
        yield text(say("Write them: perfci thresholds tighten --write"))


def _tightened_op(one: Tightened, where: Settings) -> Iterator[RenderableType]:
    name, device = plain(one.op, NAME_LIMIT), plain(one.device, NAME_LIMIT)
    yield Text(say("{op} on {device}", op=name, device=device), style="bold")
    for reason in one.said:
        yield text(sentence(reason), "  ")
    last = None
    for each, why in zip(one.changes, one.whys, strict=True):
        if each.case != last:
            yield from (Text(line) for line in wrapped(plain(each.case, NAME_LIMIT), "  ", WIDTH))
            heads = (say("key"), say("now"), say("becomes"), say("ends at"), say("false alarms"), say("runs"))
            yield Text("    " + _columns(heads, _MOVED_WIDTHS), style="dim")
        last = each.case
        yield Text("    " + _columns(_cells(each), _MOVED_WIDTHS))
        yield text(each.why if each.why else sentence(why), "      ", "dim")
    if one.failure:
        yield text(sentence(one.failure), "  ", STYLES[Gate.FAILS])
    if one.path:
        yield text(say("Written: {path}", path=plain(place(one.path, where.root))), "  ", STYLES[Gate.OK])


def _cells(each: Earned) -> tuple[str, ...]:
    first, last = (shorten(plain(run or "-", NAME_LIMIT), _RUN) for run in (each.first, each.last))
    values = (shown(each.key, value) for value in (each.before, each.after, each.bound))
    return (each.key, *values, chance(each.predicted), f"{each.runs}: {first} .. {last}")


def chance(value: float | None) -> str:
    """A share of case checks; what no simulation saw is told as less than it could have seen."""
    if value is None:
        return "-"
    return "< 0.01 %" if value < 0.0001 else f"{100 * value:.2g} %" if value < 0.01 else units.percent(value)


def text(words: str, indent: str = "", style: str = "") -> RenderableType:
    """Words in lines of at most 100 columns."""

    def parts(width: int = WIDTH) -> list[str]:
        return wrapped(plain(words), indent, min(width, WIDTH))

    return Shown(lambda width: [Text(line, style=style) for line in parts(width)], parts)
