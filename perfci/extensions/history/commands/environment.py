"""`perfci accept --environment`: what a changed environment moved, shown and recorded as a step."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import RenderableType

from perfci.cli.exits import Exit
from perfci.cli.output import STYLES, Grid, Paragraph, print_found, relative
from perfci.core import units
from perfci.core.model import Difference, Gate, Run
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.history.rebaseline import Rebaselined, RebaselineOptions, rebaseline_runs
from perfci.report.data import pick
from perfci.report.view import make_table
from perfci.report.words import count_cases


def rebaseline(
    runs: Sequence[Run], where: Settings, ops: Sequence[str], why: str, include: tuple[str, ...], *,
    write: bool, dirty: bool, json: bool,
) -> int:  # fmt: skip
    """Show what moved, and store it on request; exit 2 if anything was withheld."""
    moved = rebaseline_runs(runs, where, ops, RebaselineOptions(write, why, include, dirty))
    print_found([describe_for_programs(one) for one in moved], show_moves(moved, wrote=write), json=json)
    if any(one.failure for one in moved):
        return Exit.PERFCI_FAILED
    return Exit.GATE_FAILED if any(one.withheld for one in moved) else Exit.OK


def show_moves(rebaselined: Sequence[Rebaselined], *, wrote: bool) -> Iterator[RenderableType]:
    """Changes around the kernels, and what they moved, op by op."""
    moved = [one for one in rebaselined if one.cases]
    common = {one.differs for one in moved}
    if len(common) == 1:
        yield from _show_differences(common.pop())
    lines, styles, below = [], [], []
    for one in moved:
        kernel = _write_changes([move.kernel.value for move in one.cases])
        reference = _write_changes([move.reference.value for move in one.cases])
        lines.append((one.op, str(len(one.cases)), kernel, reference))
        styles.append(STYLES[Gate.FAILS] if one.failure else STYLES[Gate.WARNS] if one.withheld else "")
        below.append([*(_show_differences(one.differs) if common else ()), *_show_rest(one)])
    if lines:
        yield Grid(make_table("op | cases: | kernel: | reference:", lines), styles=styles, below=below)
    for one in rebaselined:
        yield from () if one in moved else _show_rest(one)
    for text in dict.fromkeys(sentence(reason) for one in rebaselined for reason in one.said):
        ops = ", ".join(one.op for one in rebaselined if text in map(sentence, one.said))
        yield say("{op}: {told}", op=ops, told=text)
    taken = sum(len(one.taken) for one in rebaselined)
    if wrote and taken:
        yield say("{cases} stored anew, with a step that says why.", cases=count_cases(taken))
    elif wrote:
        yield say("Nothing was written.")
    elif taken:
        yield say("Nothing was written. Store {cases} anew, with a step: --write --why TEXT", cases=count_cases(taken))


def _show_differences(differs: Sequence[Difference]) -> Iterator[Paragraph]:
    yield Paragraph(say("Changed since the baselines:"))
    for field in differs:
        before, after = ("-" if value is None else value for value in (field.before, field.after))
        aside = "" if field.moves else " " + say("(no matter for times)")
        yield Paragraph(f"{field.field}: {before} -> {after}{aside}", 2, "" if field.moves else "dim")


def _write_changes(changes: Sequence[float]) -> str:
    """The median of the cases' changes, with the least and the greatest."""
    middle, low, high = (units.percent(change, signed=True) for change in (median(changes), min(changes), max(changes)))
    return f"{middle} ({low} .. {high})"


def _show_rest(one: Rebaselined) -> Iterator[Paragraph]:
    """Cases in which the kernel moved alone, what was withheld, and what was written."""
    for move in (move for move in one.cases if move.unexplained):
        facts = {"kernel": move.kernel.value, "reference": move.reference.value}
        text = say("the kernel alone: {case}, kernel {kernel:+%}, reference {reference:+%}", case=move.case, **facts)
        yield Paragraph(text, 4, STYLES[Gate.WARNS])
    yield from (Paragraph(reason, 4) for reason in (one.failure, *one.withheld) if reason)
    if one.path:
        yield Paragraph(say("Written: {path}", path=relative(one.path)), 4, STYLES[Gate.OK])


def describe_for_programs(one: Rebaselined) -> Mapping[str, Any]:
    """Every case, every field. Changes are ratios - 1, times microseconds."""
    names = "case kernel reference before_us after_us unexplained"
    return {
        **pick(one, "op withheld said failure"),
        "differs": [pick(field, "field before after moves bearing") for field in one.differs],
        "cases": [pick(move, names, taken=move.case in one.taken) for move in one.cases],
        "written": str(one.path) if one.path else None,
    }
