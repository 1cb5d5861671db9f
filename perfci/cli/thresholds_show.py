"""`perfci thresholds show`: every value in force, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from perfci.cli import answers, language
from perfci.cli.exits import Exit
from perfci.cli.tables import STYLES, wrapped
from perfci.cli.thresholds_tighten import WIDTH, chance, earned_data, print_all, reason_data, text
from perfci.core.model import Gate, Reason
from perfci.core.wording import say, sentence
from perfci.report.text import NAME_LIMIT, plain
from perfci.runs.effective_thresholds import relaxed_note, shown
from perfci.runs.origins import Explained, ExplainOptions, Layer, Value, explain
from perfci.thresholds.layers import TAU

_KEY, _VALUE, _ALARMS = 24, 11, 12


def show(options: ExplainOptions, project: Path, *, json: bool) -> int:
    """Print what holds; exit 0 also where entries have ended, which is said."""
    found = explain(language.load(project), options)
    if json:
        answers.print_record([_as_data(one) for one in found])
    else:
        print_all(_shown(found))
    return Exit.OK


# --- for programs -----------------------------------------------------------------------------------------------------


def _as_data(one: Explained) -> Mapping[str, Any]:
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
        "earned": earned_data(each.earned) if each.earned else None,
        "relaxed": reason_data(relaxed_note(each.relaxed, None)) if each.relaxed else None,
    }


# --- for people -------------------------------------------------------------------------------------------------------


def _shown(found: Sequence[Explained]) -> Iterator[RenderableType]:
    for at, one in enumerate(found):
        if at:
            yield Text("")
        yield from _op(one)
    if not found:
        yield text(say("There are no ops here."))


def _op(one: Explained) -> Iterator[RenderableType]:
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
    yield Text("    " + _columns(heads), style="dim")
    for each in values:
        source = say("built in") if each.layer is Layer.BUILT_IN else plain(str(each.origin), NAME_LIMIT)
        line = "    " + _columns((_key(each), _text(each), chance(each.predicted), source))
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


def _columns(cells: Sequence[str]) -> str:
    widths = (_KEY, _VALUE, _ALARMS, 0)
    padded = [cell + " " * max(width - cell_len(cell), 0) for cell, width in zip(cells, widths, strict=True)]
    return " ".join(padded).rstrip()
