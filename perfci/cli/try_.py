"""`perfci try`: one round of optimising an op; and `perfci history --rounds`, which shows all of them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Annotated

from rich.console import RenderableType

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.options import argument, option
from perfci.cli.output import STYLES, Grid, Paragraph, get_command, print_found, relative
from perfci.cli.progress import Progress
from perfci.core import deadline as deadlines
from perfci.core.errors import UsageError
from perfci.core.model import Fact, Gate, Round, RoundVerdict
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.ops.discover import ops, select
from perfci.report import rounds as report
from perfci.report.data import pick
from perfci.report.rounds import list_changes, tabulate_cases, write_gain
from perfci.runs.plan import DEFAULT_BUDGET_S, Request
from perfci.runs.rounds import FOLDER, try_round
from perfci.store.files import write_atomically
from perfci.store.logbook import count_patterns, read_logbook

_GATES = {"kept": Gate.OK, "equal": Gate.WARNS, "slower": Gate.WARNS, "mixed": Gate.WARNS}  # of others: FAILS
_CODES = {Gate.OK: Exit.OK, Gate.WARNS: Exit.WARNINGS, Gate.FAILS: Exit.GATE_FAILED}


def try_op(
    op: Annotated[str, argument("OP", "The op whose kernel was changed.")],
    why: Annotated[str, option("--why", "The hypothesis: what was changed, and why it should be faster.", "", "TEXT")],
    expect: Annotated[str | None, option("--expect", "The gain hoped for, such as +20%.", "none", "GAIN")] = None,
    advice: Annotated[
        str | None, option("--advice", "The advice of the last profile that it follows.", "none", "KIND")
    ] = None,
    start: Annotated[
        str | None, option("--start", "Revision from which a new series begins.", "that of the last round", "REV")
    ] = None,
    rounds: Annotated[
        int | None, option("--rounds", "Rounds that a start has.", "the project's, else 5", "N", min=1, max=1000)
    ] = None,
    device: options.DeviceOption = "auto",
    budget: options.Budget = DEFAULT_BUDGET_S,
    seed: options.Seed = None,
    deadline: options.Deadline = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Judge a change of an op's kernel against the best round so far, and store the round in the op's logbook."""
    where, limit = language.load(project), deadlines.find(deadline, os.environ, time.time())
    request = Request((op,), None, device, budget, seed, deadline=limit.deadline)
    gain = re.fullmatch(r"\+?(\d{1,4}(?:\.\d+)?)\s*%", expect.strip()) if expect else None
    if expect and not gain:
        raise UsageError("round_gain", text=expect)
    expected = float(gain[1]) / 100 if gain else None
    with Progress() as progress:
        found = try_round(
            where, request, why, progress, get_command(), expected=expected, start=start, most=rounds, advice=advice
        )
    print_found(found, show_round(found), json=output == "json")
    return _CODES[_GATES.get(found.verdict, Gate.FAILS)]


COMMANDS = {"try": try_op}


def show_round(found: Round) -> Iterator[RenderableType]:
    """One round: its verdict with its reasons, what changed, and its cases."""
    against = say("round {number}", number=found.best) if found.best else say("the start")
    facts: dict[str, Fact] = {"op": found.op, "number": found.number, "verdict": str(found.verdict), "against": against}
    head = say("{op}, round {number} against {against}: {verdict}", **facts)
    yield Paragraph(head, style=STYLES[_GATES.get(found.verdict, Gate.FAILS)])
    yield from (Paragraph(reason, 2) for reason in found.reasons)
    if found.changed:
        yield Paragraph(say("Changed: {changes}", changes="; ".join(list_changes(found))), 2)
    if found.expected is not None and found.gain:
        got = write_gain(found.gain)
        yield Paragraph(say("Expected {expected:+%}, got {gain}", expected=found.expected, gain=got), 2)
    if found.total and found.best:
        yield Paragraph(say("Since the start: {gain}", gain=write_gain(found.total)), 2)
    if found.cases:
        yield Grid(tabulate_cases(found))
    if found.verdict is not RoundVerdict.KEPT and found.commit:
        yield Paragraph(say("Back to the best so far:"), 2)
        yield Paragraph(f"git restore --source {str(found.against)[:10]} -- {' '.join(found.files)}", 4)


def show_rounds(where: Settings, names: Sequence[str], *, json: bool) -> int:
    """The logbooks of ops as tables, and the record and picture of each, written into reports/rounds/."""
    logbooks = {op.op: read_logbook(op.folder) for op in ops(where)}
    everywhere = [each for logbook in logbooks.values() for each in logbook.rounds]
    chosen = {op.op: logbooks[op.op] for op in select(where, names)}
    found = {op: logbook for op, logbook in chosen.items() if logbook.rounds or logbook.problems}
    shown: list[RenderableType] = [] if found else [say("No round was tried yet: perfci try begins one.")]
    for op, logbook in found.items():
        styles = [STYLES[_GATES.get(each.verdict, Gate.FAILS)] for each in logbook.rounds]
        shown += [Paragraph(op, style="bold"), *(Paragraph(each, 2, STYLES[Gate.WARNS]) for each in logbook.problems)]
        shown += [Grid(report.tabulate_rounds(logbook.rounds), styles=styles)]
        files = report.write_files(op, logbook.rounds, everywhere) if logbook.rounds else {}
        written = [write_atomically(where.reports / FOLDER / name, content) for name, content in files.items()]
        shown += [say("Record: {path}", path=relative(path)) for path in written[:1]]
    patterns = count_patterns(everywhere)
    shown += [Paragraph(report.write_pattern(*item)) for item in patterns.items()]
    counts = [{"name": at[0], "raised": at[1], "kept": kept, "tried": tried} for at, (kept, tried) in patterns.items()]
    logs = [{"op": op, **pick(logbook, "rounds problems")} for op, logbook in found.items()]
    print_found({"ops": logs, "patterns": counts}, shown, json=json)
    return Exit.WARNINGS if any(logbook.problems for logbook in found.values()) else Exit.OK
