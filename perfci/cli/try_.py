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
from perfci.cli.output import STYLES, Grid, Paragraph, get_command, print_found, print_lines, relative
from perfci.cli.progress import Progress
from perfci.core import deadline as deadlines
from perfci.core.errors import UsageError
from perfci.core.model import Fact, Gate, Round, RoundVerdict
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.ops.discover import ops, select
from perfci.report import rounds as report
from perfci.report.rounds import tabulate_cases, write_change, write_gain
from perfci.runs.plan import DEFAULT_BUDGET_S, Request
from perfci.runs.rounds import FOLDER, try_round
from perfci.store.files import write_atomically
from perfci.store.logbook import count_patterns, read_logbook

GATES = {RoundVerdict.KEPT: Gate.OK, RoundVerdict.WRONG: Gate.FAILS, RoundVerdict.REFUSED: Gate.FAILS,
         RoundVerdict.ERROR: Gate.FAILS}  # fmt: skip
CODES = {Gate.OK: Exit.OK, Gate.WARNS: Exit.WARNINGS, Gate.FAILS: Exit.GATE_FAILED}


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
    timer: options.Timer = "auto",
    deadline: options.Deadline = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Judge a change of an op's kernel against the best round so far, and store the round in the op's logbook."""
    where, limit = language.load(project), deadlines.find(deadline, os.environ, time.time())
    request = Request((op,), None, device, budget, seed, timer, deadline=limit.deadline)
    with Progress() as progress:
        found = try_round(
            where, request, why, progress, get_command(), expected=_read_gain(expect), start=start, most=rounds,
            advice=advice,
        )  # fmt: skip
    print_found(found, show_round(found), json=output == "json")
    return CODES[GATES.get(found.verdict, Gate.WARNS)]


COMMANDS = {"try": try_op}


def _read_gain(text: str | None) -> float | None:
    """A gain as a ratio - 1. Raises UsageError for what is none.

    >>> _read_gain("+20%"), _read_gain("7.5 %"), _read_gain(None)
    (0.2, 0.075, None)
    """
    if text is None:
        return None
    found = re.fullmatch(r"\+?(\d{1,4}(?:\.\d+)?)\s*%", text.strip())
    if not found:
        raise UsageError("round_gain", text=text)
    return float(found[1]) / 100


def show_round(found: Round) -> Iterator[RenderableType]:
    """One round: its verdict with its reasons, what changed, and its cases."""
    against = say("round {number}", number=found.best) if found.best else say("the start")
    facts: dict[str, Fact] = {"op": found.op, "number": found.number, "verdict": str(found.verdict), "against": against}
    style = STYLES[GATES.get(found.verdict, Gate.WARNS)]
    yield Paragraph(say("{op}, round {number} against {against}: {verdict}", **facts), style=style)
    yield from (Paragraph(reason, 2) for reason in found.reasons)
    if found.changed:
        yield Paragraph(say("Changed: {changes}", changes="; ".join(map(write_change, found.changed))), 2)
    if found.expected is not None and found.gain:
        got = write_gain(found.gain)
        yield Paragraph(say("Expected {expected:+%}, got {gain}", expected=found.expected, gain=got), 2)
    if found.total and found.best:
        yield Paragraph(say("Since the start: {gain}", gain=write_gain(found.total)), 2)
    if found.cases:
        yield Grid(tabulate_cases(found))
    if found.verdict is not RoundVerdict.KEPT and found.commit:
        files = " ".join(found.files)
        yield Paragraph(say("Back to the best so far:"), 2)
        yield Paragraph(f"git restore --source {str(found.against)[:10]} -- {files}", 4)


def show_rounds(where: Settings, names: Sequence[str], *, json: bool) -> int:
    """The logbooks of ops as tables, and the record and picture of each, written into reports/rounds/."""
    chosen = [(op, read_logbook(op.folder)) for op in select(where, names)]
    found = [(op.op, logbook) for op, logbook in chosen if logbook.rounds or logbook.problems or names]
    everywhere = [each for op in ops(where) for each in read_logbook(op.folder).rounds]
    patterns = count_patterns(everywhere)
    shown: list[RenderableType] = []
    written: list[str] = []
    for op, logbook in found:
        shown += [*([""] if shown else []), Paragraph(op, style="bold")]
        shown += [Paragraph(problem, 2, STYLES[Gate.WARNS]) for problem in logbook.problems]
        if not logbook.rounds:
            shown.append(Paragraph(say("No round was tried yet: perfci try begins one."), 2))
            continue
        styles = [STYLES[GATES.get(each.verdict, Gate.WARNS)] for each in logbook.rounds]
        shown.append(Grid(report.tabulate_rounds(logbook.rounds), styles=styles))
        folder = where.reports / FOLDER
        for name, content in report.write_files(op, logbook.rounds, everywhere).items():
            written.append(relative(write_atomically(folder / name, content)))
    shown += [Paragraph(report.write_pattern(*item)) for item in patterns.items()]
    listed = [{"name": at[0], "raised": at[1], "kept": kept, "tried": tried} for at, (kept, tried) in patterns.items()]
    logs = [{"op": op, "rounds": logbook.rounds, "problems": logbook.problems} for op, logbook in found]
    print_found({"ops": logs, "patterns": listed}, shown, json=json)
    if not json:
        print_lines(*(say("Record: {path}", path=path) for path in written if path.endswith(".md")))
    return Exit.WARNINGS if any(logbook.problems for _, logbook in found) else Exit.OK
