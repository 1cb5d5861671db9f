"""What `perfci accept --environment` shows: what changed around the kernels, and what that moved, op by op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from perfci.cli.exits import Exit
from perfci.cli.output import STYLES, Grid, Paragraph, pick, reason_data, relative
from perfci.core import units
from perfci.core.model import Difference, Gate
from perfci.core.wording import say, sentence
from perfci.report.view import make_table
from perfci.report.words import count_cases
from perfci.runs.rebaseline import Rebaselined


def show_moves(found: Sequence[Rebaselined], *, by_case: bool, wrote: bool) -> Iterator[RenderableType]:
    """What moved, op by op; `by_case` shows every case under its op."""
    moved = [one for one in found if one.survey.cases]
    common = {one.survey.differs for one in moved}
    if len(common) == 1:
        yield from _show_differences(common.pop())
    lines, styles, below = [], [], []
    for one in moved:
        seen = one.survey
        means = [
            _write_change(each.mean, each.least, each.most) if each else "-" for each in (seen.kernel, seen.reference)
        ]
        lines.append((seen.op, str(len(seen.cases)), *means, "-"))
        styles.append(STYLES[Gate.FAILS] if one.failure else STYLES[Gate.WARNS] if one.withheld else "")
        parts = list(_show_differences(seen.differs)) if common else []
        if len(seen.cases) > 1 and not by_case and seen.largest:
            most, case = seen.largest.kernel.value, seen.largest.case
            parts.append(Paragraph(say("most: {change:+%} {case}", change=most, case=case), 4, "dim"))
        below.append([*parts, *_show_rest(one)])
        for move in seen.cases if by_case else ():
            changes = [_write_change(each.value, each.low, each.high) for each in (move.kernel, move.reference)]
            lines.append((move.case, "", *changes, f"{units.time(move.before_us)} -> {units.time(move.after_us)}"))
            styles.append("dim")
            below.append([])
    if lines:
        table = make_table("op | cases: | kernel: | reference: | time:", lines)
        yield Grid(table, styles=styles, below=below)
    for one in found:
        if one not in moved:
            yield from _show_rest(one)
    reasons = dict.fromkeys(sentence(reason) for one in found for reason in one.said)
    for text in reasons:
        ops = ", ".join(one.survey.op for one in found if text in map(sentence, one.said))
        yield Paragraph(f"{ops}: {text}")
    taken = sum(len(one.taken) for one in found)
    if wrote and taken:
        yield Paragraph(say("{cases} stored anew, with a step that says why.", cases=count_cases(taken)))
    elif wrote:
        yield Paragraph(say("Nothing was written."))
    elif taken:
        text = say("Nothing was written. Store {cases} anew, with a step: --write --why TEXT", cases=count_cases(taken))
        yield Paragraph(text)


def _show_differences(differs: Sequence[Difference]) -> Iterator[Paragraph]:
    if differs:
        yield Paragraph(say("Changed since the baselines:"))
    for each in differs:
        before, after = ("-" if value is None else value for value in (each.before, each.after))
        aside = "" if each.moves else " " + say("(no matter for times)")
        yield Paragraph(f"{each.field}: {before} -> {after}{aside}", 2, "" if each.moves else "dim")


def _show_rest(one: Rebaselined) -> Iterator[Paragraph]:
    """Cases whose kernel moved alone, what was withheld, and what was written."""
    for move in one.survey.unexplained:
        text = say(
            "the kernel alone: {case}, kernel {kernel:+%}, reference {reference:+%}",
            case=move.case,
            kernel=move.kernel.value,
            reference=move.reference.value,
        )
        yield Paragraph(text, 4, STYLES[Gate.WARNS])
    yield from (Paragraph(reason, 4) for reason in (one.failure, *one.withheld) if reason)
    if one.path:
        yield Paragraph(say("Written: {path}", path=relative(one.path)), 4, STYLES[Gate.OK])


def _write_change(value: float, low: float, high: float) -> str:
    texts = (units.percent(each, signed=True) for each in (value, low, high))
    return "{} ({} .. {})".format(*texts)


def get_exit_code(found: Sequence[Rebaselined]) -> Exit:
    """1 if a file could not be read or written, 2 if anything was withheld, else 0."""
    if any(one.failure for one in found):
        return Exit.PERFCI_FAILED
    return Exit.GATE_FAILED if any(one.withheld for one in found) else Exit.OK


def to_json(found: Sequence[Rebaselined]) -> list[Mapping[str, Any]]:
    """The same for programs: every case, every field; changes are ratios - 1, times microseconds."""
    return [
        {
            "op": one.survey.op,
            "differs": [
                pick(each, "field before after moves", bearing=str(each.bearing)) for each in one.survey.differs
            ],
            **pick(one.survey, "kernel reference"),
            "cases": [
                pick(move, "case kernel reference before_us after_us unexplained", taken=move.case in one.taken)
                for move in one.survey.cases
            ],
            **pick(one.survey, "same new"),
            "withheld": [reason_data(reason) for reason in one.withheld],
            "said": [reason_data(reason) for reason in one.said],
            "failure": reason_data(one.failure) if one.failure else None,
            "written": str(one.path) if one.path else None,
        }
        for one in found
    ]
