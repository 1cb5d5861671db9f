"""`perfci thresholds tighten`: what accepted runs have earned, as a table of values, written where that is wished."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from perfci.cli import answers, language
from perfci.cli.exits import Exit
from perfci.cli.tables import STYLES, Shown, wrapped
from perfci.core import units
from perfci.core.model import Gate, Reason
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.report.text import NAME_LIMIT, plain, shorten
from perfci.runs.effective_thresholds import place, shown
from perfci.runs.tightening import Tightened, TightenOptions, refuse_in_pipeline
from perfci.runs.tightening import tighten as tightened
from perfci.thresholds.layers import Earned

WIDTH = 100
"""Columns of everything that is printed."""

_KEY, _VALUE, _ALARMS = 16, 11, 12
_RUN = 12
"""Characters of a run's id."""


def tighten(options: TightenOptions, project: Path, *, json: bool) -> int:
    """Show, and write if that is wished; exit 1 where a file could not be read or written."""
    where = language.load(project)
    if options.write:
        refuse_in_pipeline()
    found = tightened(where, options)
    if json:
        answers.print_record([to_data(one, where) for one in found])
    else:
        print_all(lines(found, where, wrote=options.write))
    return Exit.PERFCI_FAILED if any(one.failure for one in found) else Exit.OK


def after_check(code: int, project: Path, *, json: bool) -> int:
    """Write what is earned after a check of this exit code; gives the command's.

    Only accepted runs count, so that the check itself, which nobody has accepted yet, tightens nothing; after one that
    is not green nothing is written at all. Where a program reads the answer, what is said goes to standard error.
    """
    where = language.load(project)
    if code != Exit.OK:
        _print_beside(sentence(Reason("tighten_gate")), json=json)
        return code
    found = tightened(where, TightenOptions(write=True))
    if json:
        moved = sum(len(one.changes) for one in found)
        _print_beside(say("Thresholds that were tightened: {count}.", count=moved), json=True)
    else:
        print_all(lines(found, where, wrote=True))
    failures = [one.failure for one in found if one.failure]
    for reason in failures if json else ():
        _print_beside(sentence(reason), json=True)
    return Exit.PERFCI_FAILED if failures else code


def print_all(parts: Iterable[RenderableType]) -> None:
    """Parts for a terminal or a log."""
    console = Console(highlight=False)
    for part in parts:
        console.print(part, soft_wrap=not console.is_terminal)


def _print_beside(text: str, *, json: bool) -> None:
    print(plain(text), file=sys.stderr if json else sys.stdout)


# --- for programs -----------------------------------------------------------------------------------------------------


def to_data(one: Tightened, where: Settings) -> Mapping[str, Any]:
    """Every field; ratios are of 1."""
    return {
        "op": one.op,
        "device": one.device,
        "changes": [
            {**earned_data(each), "sentence": sentence(why), "kind": why.kind, "facts": dict(why.facts)}
            for each, why in zip(one.changes, one.whys, strict=True)
        ],
        "anew": [earned_data(each) for each in one.anew],
        "renamed": dict(one.renamed),
        "said": [reason_data(each) for each in one.said],
        "failure": reason_data(one.failure) if one.failure else None,
        "written": place(one.path, where.root) if one.path else None,
    }


def earned_data(each: Earned) -> Mapping[str, Any]:
    """A value with its record."""
    names = ("case", "key", "value", "bound", "began", "predicted", "date", "runs", "first", "last", "rescaled", "why")
    found = {name: getattr(each, name) for name in names}
    return {**found, "from": each.before, "to": each.after, "edited": each.edited}


def reason_data(reason: Reason) -> Mapping[str, Any]:
    """A reason with its sentence."""
    return {"kind": reason.kind, "facts": dict(reason.facts), "sentence": sentence(reason)}


# --- for people -------------------------------------------------------------------------------------------------------


def lines(found: Sequence[Tightened], where: Settings, *, wrote: bool) -> Iterator[RenderableType]:
    """Every op with what it has earned, then what became of it."""
    for one in found:
        if one.moves or one.said or one.failure:
            yield from _op(one, where)
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


def _op(one: Tightened, where: Settings) -> Iterator[RenderableType]:
    name, device = plain(one.op, NAME_LIMIT), plain(one.device, NAME_LIMIT)
    yield Text(say("{op} on {device}", op=name, device=device), style="bold")
    for reason in one.said:
        yield text(sentence(reason), "  ")
    last = None
    for each, why in zip(one.changes, one.whys, strict=True):
        if each.case != last:
            yield from (Text(line) for line in wrapped(plain(each.case, NAME_LIMIT), "  ", WIDTH))
            heads = (say("key"), say("now"), say("becomes"), say("ends at"), say("false alarms"), say("runs"))
            yield Text("    " + _columns(heads), style="dim")
        last = each.case
        yield Text("    " + _columns(_cells(each)))
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


def _columns(cells: Sequence[str]) -> str:
    widths = (_KEY, _VALUE, _VALUE, _VALUE, _ALARMS, 0)
    padded = [cell + " " * max(width - cell_len(cell), 0) for cell, width in zip(cells, widths, strict=True)]
    return " ".join(padded).rstrip()


def text(words: str, indent: str = "", style: str = "") -> RenderableType:
    """Words in lines of at most 100 columns."""

    def parts(width: int = WIDTH) -> list[str]:
        return wrapped(plain(words), indent, min(width, WIDTH))

    return Shown(lambda width: [Text(line, style=style) for line in parts(width)], parts)
