"""What `perfci accept --environment` shows: what changed around the kernels, and what that moved, op by op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from perfci.cli.exits import Exit
from perfci.cli.tables import STYLES, Shown, wrapped
from perfci.core import units
from perfci.core.model import Difference, Gate, Interval, Reason
from perfci.core.wording import say, sentence
from perfci.report import words
from perfci.report.text import NAME_LIMIT, plain
from perfci.runs.rebaseline import CaseMove, Common, Rebaselined

_COUNT, _CHANGE, _GAP = 5, 29, "  "


def shown(found: Sequence[Rebaselined], *, by_case: bool, wrote: bool) -> Iterator[RenderableType]:
    """Lines for a terminal or a log; `by_case` shows every case under its op."""
    moved = [one for one in found if one.survey.cases]
    common = {one.survey.differs for one in moved}
    width = max([cell_len(say("op")), *(cell_len(name) for one in moved for name in _names(one, by_case))], default=0)
    if len(common) == 1:
        yield from _differences(common.pop())
    if moved:
        yield Text(_line(width, say("op"), say("cases"), say("kernel"), say("reference")), style="dim")
    for one in found:
        yield from _op(one, width, by_case=by_case, alone=len({each.survey.differs for each in moved}) > 1)
    yield from _said(found)
    yield from _closing(found, wrote=wrote)


def exit_code(found: Sequence[Rebaselined]) -> Exit:
    """1 where a file could not be read or written, 2 where anything was withheld, else 0."""
    if any(one.failure for one in found):
        return Exit.PERFCI_FAILED
    return Exit.GATE_FAILED if any(one.withheld for one in found) else Exit.OK


def to_json(found: Sequence[Rebaselined]) -> list[Mapping[str, Any]]:
    """The same for programs: every case, every field; changes are ratios - 1, times microseconds."""
    return [
        {
            "op": one.survey.op,
            "differs": [_field(each) for each in one.survey.differs],
            "kernel": one.survey.kernel,
            "reference": one.survey.reference,
            "cases": [_case(move, one.taken) for move in one.survey.cases],
            "same": one.survey.same,
            "new": one.survey.new,
            "withheld": [_reason(reason) for reason in one.withheld],
            "said": [_reason(reason) for reason in one.said],
            "failure": _reason(one.failure) if one.failure else None,
            "written": str(one.path) if one.path else None,
        }
        for one in found
    ]


def _field(each: Difference) -> Mapping[str, Any]:
    return {
        "field": each.field,
        "before": each.before,
        "after": each.after,
        "bearing": str(each.bearing),
        "moves": each.moves,
    }


def _case(move: CaseMove, taken: Sequence[str]) -> Mapping[str, Any]:
    return {
        "case": move.case,
        "kernel": move.kernel,
        "reference": move.reference,
        "before_us": move.before_us,
        "after_us": move.after_us,
        "unexplained": move.unexplained,
        "taken": move.case in taken,
    }


def _reason(reason: Reason) -> Mapping[str, Any]:
    return {"kind": reason.kind, "facts": dict(reason.facts), "sentence": sentence(reason)}


def _differences(differs: Sequence[Difference]) -> Iterator[RenderableType]:
    width = max((len(each.field) for each in differs), default=0)
    if differs:
        yield Text(say("Changed since the baselines:"))
    for each in differs:
        before, after = (plain("-" if value is None else value) for value in (each.before, each.after))
        aside = "" if each.moves else " " + say("(no matter for times)")
        yield Text(f"  {plain(each.field):<{width}}  {before} -> {after}{aside}", style="" if each.moves else "dim")


def _names(one: Rebaselined, by_case: bool) -> list[str]:
    own = [plain(one.survey.op, NAME_LIMIT)]
    return [*own, *(_indented(move) for move in one.survey.cases)] if by_case else own


def _indented(move: CaseMove) -> str:
    return f"  {plain(move.case, NAME_LIMIT)}"


def _op(one: Rebaselined, width: int, *, by_case: bool, alone: bool) -> Iterator[RenderableType]:
    seen, name = one.survey, plain(one.survey.op, NAME_LIMIT)
    style = STYLES[Gate.FAILS] if one.failure else STYLES[Gate.WARNS] if one.withheld else ""
    if seen.kernel and seen.reference and seen.largest:
        count = str(len(seen.cases))
        yield Text(_line(width, name, count, _common(seen.kernel), _common(seen.reference)), style=style)
        if len(seen.cases) > 1 and not by_case:
            most, case = seen.largest.kernel.value, plain(seen.largest.case, NAME_LIMIT)
            yield Text("  " + say("most: {change:+%} {case}", change=most, case=case), style="dim")
    if alone and seen.cases:
        yield from _differences(seen.differs)
    if by_case:
        yield from (Text(_case_line(move, width)) for move in seen.cases)
    for move in seen.unexplained:
        yield Text("  " + _alone(move), style=STYLES[Gate.WARNS])
    for reason in (*([one.failure] if one.failure else ()), *one.withheld):
        yield _sentence(sentence(reason), "  ")
    if one.path:
        yield Text("  " + say("Written: {path}", path=plain(_relative(one.path))), style=STYLES[Gate.OK])


def _said(found: Sequence[Rebaselined]) -> Iterator[RenderableType]:
    """What else is to be known, once for all ops of which it is so."""
    reasons = [reason for one in found for reason in one.said]
    for at, reason in enumerate(reasons):
        if reason not in reasons[:at]:
            ops = ", ".join(plain(one.survey.op, NAME_LIMIT) for one in found if reason in one.said)
            yield _sentence(f"{ops}: {sentence(reason)}", "")


def _case_line(move: CaseMove, width: int) -> str:
    times = f"{units.time(move.before_us)} -> {units.time(move.after_us)}"
    return _line(width, _indented(move), "", _ranged(move.kernel), _ranged(move.reference), times)


def _alone(move: CaseMove) -> str:
    return say(
        "the kernel alone: {case}, kernel {kernel:+%}, reference {reference:+%}",
        case=plain(move.case, NAME_LIMIT),
        kernel=move.kernel.value,
        reference=move.reference.value,
    )


def _line(width: int, name: str, count: str, kernel: str, reference: str, times: str = "") -> str:
    columns = ((name, width), (count, _COUNT), (kernel, _CHANGE), (reference, _CHANGE))
    cells = [*(text + " " * (wide - cell_len(text)) for text, wide in columns), times]
    return _GAP.join(cells).rstrip()


def _common(what: Common) -> str:
    return _changes(what.mean, what.least, what.most)


def _ranged(change: Interval) -> str:
    return _changes(change.value, change.low, change.high)


def _changes(value: float, low: float, high: float) -> str:
    texts = (units.percent(each, signed=True) for each in (value, low, high))
    return "{} ({} .. {})".format(*texts)


def _sentence(words: str, indent: str) -> RenderableType:
    text = plain(words)
    return Shown(lambda width: [Text(line) for line in wrapped(text, indent, width)], lambda: wrapped(text, indent))


def _relative(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _closing(found: Sequence[Rebaselined], *, wrote: bool) -> Iterator[RenderableType]:
    taken = sum(len(one.taken) for one in found)
    cases = words.count_cases(taken)
    if wrote and taken:
        yield Text(say("{cases} stored anew, with a step that says why.", cases=cases))
    elif wrote:
        yield Text(say("Nothing was written."))
    elif taken:
        yield Text(say("Nothing was written. Store {cases} anew, with a step: --write --why TEXT", cases=cases))
